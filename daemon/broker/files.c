/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Files - profd-files, seen from the broker
 *
 * Requests are sent ahead and answered in order, so the one that is worked on is the first. It has PATIENCE_US for each file
 * that it touches, which its status page tells. When that is over the process is killed, the request is answered with
 * ETIMEDOUT (a snapshot goes on, without what was stuck), and a new process gets all the others again.
 * Invariants: (1) whatever the process does, every request is answered once, and nothing here waits for it
 *                                                              [test_hostile_files: test_file_that_hangs]
 *             (2) what was stuck is in the answer neither twice nor half: a snapshot continues behind its last whole process
 *                                                              [test_hostile_files: test_locked_memory]
 *             (3) who is starved of CPU time is not stuck
 * Main thread only.
 */
#include "config.h"

#include "daemon/broker/files.h"

#include "arch/base.h"
#include "daemon/broker/child.h"
#include "daemon/broker/error.h"
#include "daemon/broker/hung.h"
#include "daemon/datagram.h"

#include <errno.h>
#include <fcntl.h>
#include <glib-unix.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>

#define MAX_SENT 16
#define TICK_MS 250
#define PATIENCE_US 900000         /* seen at a tick: a second */
#define STARTING_US (10 * 1000000) /* until it has begun, which is nobody's fault */
#define MAX_STUCK 4096             /* processes that are remembered */
#define MAX_DEATHS 8               /* that were not our doing */
#define PAGE_BYTES 4096

struct request {
	struct files_request message;
	uint32_t tag;
	int memfd;  /* of a snapshot */
	char *path; /* of an image */
};

struct files {
	const struct files_listener *listener;
	void *data;
	struct files_config config;
	pid_t pid; /* 0: none */
	int socket;
	struct files_status *status;
	guint child_watch, input_watch, tick;
	GQueue requests; /* struct request, the first n_sent of them are on their way */
	unsigned n_sent;
	uint32_t last_serial, seen_progress;
	int64_t seen_us;
	unsigned deaths;
	GHashTable *stuck; /* pid → how often it was */
};

static void push(struct files *files);
static void go_on(struct files *files);

static void request_free(struct request *request)
{
	if (request->memfd >= 0)
		close(request->memfd);
	g_free(request->path);
	g_free(request);
}

/* ---- Answers ------------------------------------------------------------------------------------ */

/* What is in the memfd by now, as the engine gets it. */
static bool seal(const struct request *request, GError **error)
{
	if (ftruncate(request->memfd, (off_t)request->message.snapshot.offset) == 0 &&
	    fcntl(request->memfd, F_ADD_SEALS,
		  F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) == 0)
		return true;
	return broker_fail(error, BROKER_ERROR_FAILED, "passing on what /proc says: %s",
			   g_strerror(errno));
}

/* The first request is over. Takes over fd. */
static void finish(struct files *files, const struct files_answer *answer, int fd)
{
	struct request *request = g_queue_pop_head(&files->requests);
	const struct files_snapshot *snapshot = &request->message.snapshot;
	g_autoptr(GError) error = NULL;

	if (files->n_sent)
		files->n_sent--;
	if (request->message.type == FILES_IMAGE)
		files->listener->image(answer, steal_fd(&fd), files->data);
	else if (answer->error)
		error = g_error_new(BROKER_ERROR, BROKER_ERROR_FAILED, "reading \"/proc\": %s",
				    g_strerror(answer->error));
	else
		seal(request, &error);
	if (request->message.type == FILES_SNAPSHOT)
		files->listener->snapshot(snapshot, request->tag,
					  error ? -1 : steal_fd(&request->memfd), error,
					  files->data);
	if (fd >= 0)
		close(fd);
	request_free(request);
}

static void fail(struct files *files, int number)
{
	const struct request *request = g_queue_peek_head(&files->requests);
	const struct files_answer answer = {
		.error = number,
		.image = { .image_id = request->message.image.request.image_id, .error = number },
	};

	finish(files, &answer, -1);
}

static bool answer_is_valid(struct files *files, const struct files_answer *answer, ssize_t bytes,
			    int fd)
{
	const struct request *request = g_queue_peek_head(&files->requests);

	return bytes == (ssize_t)sizeof(*answer) && request && files->n_sent &&
	       answer->serial == request->message.serial && answer->error >= 0 &&
	       answer->image.build_id_size <= sizeof(answer->image.build_id) &&
	       (request->message.type == FILES_SNAPSHOT || (answer->error == 0) == (fd >= 0));
}

/* Whether the process was at this request; else its answer is on the way, and what is stuck is the next one. */
static bool is_about(const struct files *files, const struct request *request)
{
	/* pairs with status_begin() */
	return files->status &&
	       __atomic_load_n(&files->status->serial, __ATOMIC_ACQUIRE) == request->message.serial;
}

static uint64_t status_bytes(const struct files *files)
{
	/* pairs with status_set_bytes() */
	return __atomic_load_n(&files->status->bytes, __ATOMIC_ACQUIRE);
}

/* One answer. False: there is none now, or there will be none. */
static bool receive(struct files *files)
{
	struct files_answer answer;
	struct request *request;
	CLEANUP_CLOSE int fd = -1;
	ssize_t n = datagram_receive(files->socket, &answer, sizeof(answer), MSG_DONTWAIT, &fd);

	if (n < 0 && errno == EAGAIN)
		return false;
	if (n <= 0 || !answer_is_valid(files, &answer, n, fd)) {
		g_clear_handle_id(&files->input_watch, g_source_remove);
		if (n > 0)
			kill(files->pid, SIGKILL);
		return false;
	}
	files->seen_us = g_get_monotonic_time();
	request = g_queue_peek_head(&files->requests);
	if (request->message.type == FILES_SNAPSHOT)
		request->message.snapshot.offset = answer.snapshot_bytes;
	finish(files, &answer, steal_fd(&fd));
	return true;
}

static gboolean on_input(gint fd, GIOCondition condition, gpointer data)
{
	struct files *files = data;

	for (unsigned i = 0; i < MAX_SENT && receive(files); i++)
		;
	push(files);
	return files->input_watch != 0;
}

/* ---- The process -------------------------------------------------------------------------------- */

static void forget_process(struct files *files)
{
	g_clear_handle_id(&files->input_watch, g_source_remove);
	g_clear_handle_id(&files->child_watch, g_source_remove);
	if (files->socket >= 0)
		close(steal_fd(&files->socket));
	if (files->status)
		munmap(files->status, PAGE_BYTES);
	files->status = NULL;
	files->pid = 0;
	files->n_sent = 0;
}

static void on_child_exit(GPid pid, gint wait_status, gpointer data)
{
	struct files *files = data;

	files->child_watch = 0;
	while (files->input_watch && receive(files))
		;
	files->pid = 0;
	files->deaths++;
	go_on(files);
}

/* A page that nobody can make smaller under us. */
static int make_page(struct files_status **ret_status)
{
	CLEANUP_CLOSE int fd = memfd_create("prof-status", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	void *page;

	if (fd < 0 || ftruncate(fd, PAGE_BYTES) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		return -1;
	page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED)
		return -1;
	*ret_status = page;
	return steal_fd(&fd);
}

static bool start(struct files *files, GError **error)
{
	const struct iovec config = { &files->config, sizeof(files->config) };
	CLEANUP_CLOSE int theirs = -1;
	CLEANUP_CLOSE int page = -1;
	int sockets[2];

	if (hung_is_full())
		return broker_fail(error, BROKER_ERROR_FAILED,
				   "too many files of this machine's processes cannot be opened");
	page = make_page(&files->status);
	if (page < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0) {
		broker_fail(error, BROKER_ERROR_FAILED, "making a socket: %s", g_strerror(errno));
		forget_process(files);
		return false;
	}
	files->socket = sockets[0];
	theirs = sockets[1];
	if (!child_spawn("profd-files", NULL, (const int[]){ theirs, page }, 2, &files->pid,
			 error)) {
		forget_process(files);
		return false;
	}
	datagram_send(files->socket, &config, 1, -1, MSG_DONTWAIT);
	files->child_watch = g_child_watch_add(files->pid, on_child_exit, files);
	files->input_watch =
		g_unix_fd_add(files->socket, G_IO_IN | G_IO_HUP | G_IO_ERR, on_input, files);
	files->seen_us = g_get_monotonic_time();
	files->seen_progress = 0;
	return true;
}

/* ---- Being stuck -------------------------------------------------------------------------------- */

static unsigned times_stuck(const struct files *files, pid_t pid)
{
	return GPOINTER_TO_UINT(g_hash_table_lookup(files->stuck, GINT_TO_POINTER(pid)));
}

static void add_stuck(struct files *files, pid_t pid)
{
	if (g_hash_table_size(files->stuck) >= MAX_STUCK)
		g_hash_table_remove_all(files->stuck);
	g_hash_table_insert(files->stuck, GINT_TO_POINTER(pid),
			    GUINT_TO_POINTER(times_stuck(files, pid) + 1));
}

/* A snapshot goes on: first without what it was stuck at, then behind the process. */
static void skip(struct files *files, struct files_snapshot *snapshot, pid_t pid)
{
	snapshot->offset = MAX_OF(snapshot->offset, status_bytes(files));
	if (snapshot->bare_pid == pid)
		snapshot->from_pid = pid + 1;
	else
		snapshot->from_pid = MAX_OF(pid, 1);
	snapshot->bare_pid = pid;
}

/* The process is gone or killed, and the first request is why. */
static void go_on(struct files *files)
{
	struct request *request = g_queue_peek_head(&files->requests);
	bool began = files->status && __atomic_load_n(&files->status->progress, __ATOMIC_RELAXED);
	pid_t pid = files->status ? __atomic_load_n(&files->status->pid, __ATOMIC_RELAXED) : 0;
	g_autoptr(GError) error = NULL;
	bool again = began && files->deaths <= MAX_DEATHS;

	if (request && files->n_sent && again && is_about(files, request)) {
		struct files_snapshot *snapshot = &request->message.snapshot;

		if (request->message.type == FILES_IMAGE)
			fail(files, ETIMEDOUT);
		else if (snapshot->pid && snapshot->bare_pid == pid)
			fail(files, 0);
		else
			skip(files, snapshot, pid);
	}
	forget_process(files);
	if (again && start(files, &error)) {
		push(files);
		return;
	}
	while (!g_queue_is_empty(&files->requests))
		fail(files, EIO);
}

static bool is_starved(pid_t pid)
{
	g_autofree char *text = NULL;
	char path[48];
	const char *state;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	if (!g_file_get_contents(path, &text, NULL, NULL))
		return false;
	state = strrchr(text, ')');
	return state && strncmp(state, ") R", 3) == 0;
}

static bool has_time_left(struct files *files)
{
	uint32_t progress = __atomic_load_n(&files->status->progress, __ATOMIC_RELAXED);
	int64_t now = g_get_monotonic_time(), waited = now - files->seen_us;

	if (progress != files->seen_progress) {
		files->seen_progress = progress;
		files->seen_us = now;
		return true;
	}
	if (progress == 0 || is_starved(files->pid))
		return waited < STARTING_US;
	return waited < PATIENCE_US;
}

static gboolean on_tick(gpointer data)
{
	struct files *files = data;
	struct request *request;
	bool is_file;
	pid_t pid;
	uid_t uid;

	/* its last answers may be in the socket, and then it is not stuck at what is first now */
	if (files->input_watch)
		on_input(files->socket, G_IO_IN, files);
	request = g_queue_peek_head(&files->requests);
	if (!request) {
		files->tick = 0;
		return G_SOURCE_REMOVE;
	}
	if (!files->pid || !files->n_sent || has_time_left(files)) {
		push(files);
		return G_SOURCE_CONTINUE;
	}
	is_file = request->message.type == FILES_IMAGE;
	pid = __atomic_load_n(&files->status->pid, __ATOMIC_RELAXED);
	uid = hung_owner(pid);
	kill(files->pid, SIGKILL);
	g_clear_handle_id(&files->child_watch, g_source_remove);
	hung_add(files->pid, uid, pid);
	add_stuck(files, pid);
	files->listener->stuck(pid, uid, is_file, files->data);
	go_on(files);
	return G_SOURCE_CONTINUE;
}

/* ---- Requests ----------------------------------------------------------------------------------- */

/* What is known by now of those that make us wait. */
static void prepare(const struct files *files, struct request *request)
{
	struct files_snapshot *snapshot = &request->message.snapshot;
	struct files_image *image = &request->message.image;

	if (request->message.type == FILES_IMAGE) {
		image->bare = times_stuck(files, image->request.pid) > 0;
		return;
	}
	snapshot->n_bare = hung_list_blocked(snapshot->bare, FILES_MAX_BARE);
	if (snapshot->pid && times_stuck(files, snapshot->pid))
		snapshot->bare_pid = snapshot->pid;
}

/* Sends what there is room for. */
static void push(struct files *files)
{
	while (files->pid && files->n_sent < MAX_SENT &&
	       files->n_sent < g_queue_get_length(&files->requests)) {
		struct request *request = g_queue_peek_nth(&files->requests, files->n_sent);
		struct iovec parts[2] = { { &request->message, sizeof(request->message) } };

		prepare(files, request);
		if (request->path)
			parts[1] = (struct iovec){ request->path, strlen(request->path) };
		if (files->n_sent == 0)
			files->seen_us = g_get_monotonic_time();
		if (!datagram_send(files->socket, parts, ARRAY_SIZE(parts), request->memfd,
				   MSG_DONTWAIT))
			return;
		files->n_sent++;
	}
}

static void add(struct files *files, struct request *request)
{
	request->message.serial = ++files->last_serial;
	g_queue_push_tail(&files->requests, request);
	if (!files->tick)
		files->tick = g_timeout_add(TICK_MS, on_tick, files);
	if (!files->pid && (files->deaths > MAX_DEATHS || !start(files, NULL)))
		fail(files, EIO);
	push(files);
}

void files_read_processes(struct files *files, pid_t pid, uint32_t tag)
{
	struct request *request = g_new0(struct request, 1);

	request->message.type = FILES_SNAPSHOT;
	request->message.snapshot.pid = pid;
	request->tag = tag;
	request->memfd = memfd_create("prof-snapshot", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (request->memfd < 0) {
		g_autoptr(GError) error = NULL;

		broker_fail(&error, BROKER_ERROR_FAILED, "making a file in memory: %s",
			    g_strerror(errno));
		files->listener->snapshot(&request->message.snapshot, tag, -1, error, files->data);
		request_free(request);
		return;
	}
	add(files, request);
}

void files_open_image(struct files *files, const struct files_image *image, const char *path)
{
	const struct files_answer refused = {
		.error = ETIMEDOUT,
		.image = { .image_id = image->request.image_id, .error = ETIMEDOUT },
	};
	struct request *request;

	if (times_stuck(files, image->request.pid) > 1 ||
	    hung_is_blocked(hung_owner(image->request.pid), image->request.pid)) {
		files->listener->image(&refused, -1, files->data);
		return;
	}
	request = g_new0(struct request, 1);
	request->message.type = FILES_IMAGE;
	request->message.image = *image;
	request->memfd = -1;
	request->path = g_strdup(path);
	request->message.image.request.path_bytes = (uint32_t)strlen(path);
	add(files, request);
}

struct files *files_new(const struct files_config *config, const struct files_listener *listener,
			void *data, GError **error)
{
	struct files *files = g_new0(struct files, 1);

	files->listener = listener;
	files->data = data;
	files->config = *config;
	files->socket = -1;
	files->stuck = g_hash_table_new(NULL, NULL);
	if (start(files, error))
		return files;
	files_free(files);
	return NULL;
}

static void on_reaped(GPid pid, gint wait_status, gpointer data)
{
}

void files_free(struct files *files)
{
	struct request *request;

	if (!files)
		return;
	if (files->pid) {
		pid_t pid = __atomic_load_n(&files->status->pid, __ATOMIC_RELAXED);

		kill(files->pid, SIGKILL);
		g_clear_handle_id(&files->child_watch, g_source_remove);
		if (files->n_sent)
			hung_reap(files->pid, hung_owner(pid), pid);
		else
			g_child_watch_add(files->pid, on_reaped, NULL);
	}
	g_clear_handle_id(&files->tick, g_source_remove);
	forget_process(files);
	while ((request = g_queue_pop_head(&files->requests)))
		request_free(request);
	g_hash_table_unref(files->stuck);
	g_free(files);
}
