/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Files - sends requests to profd-files, and recovers when it is stuck
 *
 * Several requests are sent to a process (files-worker.c), which answers them in order, so it works
 * on the first one. If it makes no progress for STALL_US and other requests wait, it is set aside
 * with its request, and a new process gets the others. After PATIENCE_US the stuck process is
 * killed, and its request is retried without the likely cause: an image by its path only, on
 * filesystems without a server (careful); a snapshot without files that depend on the target's
 * memory (bare) and, if it is stuck again, without the target. Once a process was stuck on a
 * target, and while stall-quota.c blocks a target, the target's files are read only in the careful
 * or bare way.
 * Invariants: (1) whatever the process does, every request is answered once, and profd never waits
 *                 for it  [test_hostile_files: test_file_that_hangs, test-broker-files: dies]
 *             (2) an answer has no target twice or in part: a snapshot continues after its last
 *                 whole target, and a process that was set aside begins no other request
 *                 [test_hostile_files: test_locked_memory, test-broker-files: snapshot]
 *             (3) a stuck request delays the others only briefly  [test-broker-files: aside]
 *             (4) a snapshot cannot be changed once it is passed on  [test_attack_descriptors]
 * Main thread only.
 */
#include "config.h"

#include "arch/errno-text.h"
#include "daemon/broker/files.h"

#include "arch/base.h"
#include "daemon/broker/error.h"
#include "daemon/broker/files-worker.h"
#include "daemon/broker/stall-quota.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/mman.h>

#define MAX_SENT 16
#define MAX_ASIDE 4
/* number of worker processes that a user may block before the user's files are opened carefully */
#define MAX_ASIDE_OF_USER 2
#define TICK_MS 50
#define STALL_US 75000 /* longer than most disk accesses; a longer access costs a further process */
#define PATIENCE_US (1000 * 1000)
#define MAX_STUCK 4096 /* maximum number of remembered pids */
#define MAX_DEATHS 8   /* maximum number of exits that profd did not cause */

struct request {
	struct files_request message;
	uint32_t tag;
	uid_t uid;  /* for an image: the target's owner at the time of the request */
	int memfd;  /* for a snapshot */
	char *path; /* for an image */
};

struct worker {
	struct files_worker *process; /* NULL: none */
	GQueue sent;                  /* struct request, in order of work */
	uid_t uid;                    /* if set aside: the user who makes the process wait */
};

struct files {
	const struct files_listener *listener;
	void *data;
	struct files_config config;
	struct worker worker;
	struct worker aside[MAX_ASIDE]; /* each with the one request on which it is stuck */
	GQueue waiting;                 /* struct request; not sent yet */
	guint tick;
	uint32_t last_serial;
	unsigned deaths;
	GHashTable *stuck; /* pids of targets on which a process was stuck */
};

static void push(struct files *files);

static void request_free(struct request *request)
{
	if (request->memfd >= 0)
		close(request->memfd);
	g_free(request->path);
	g_free(request);
}

/* ---- Answers --------------------------------------------------------------------------------- */

/* Takes ownership of the request and fd. */
static void finish(struct files *files, struct request *request, const struct files_answer *answer,
		   int fd)
{
	const struct files_snapshot *snapshot = &request->message.snapshot;
	g_autoptr(GError) error = NULL;

	if (request->message.type == FILES_IMAGE)
		files->listener->image(answer, steal_fd(&fd), files->data);
	else if (answer->error)
		error = g_error_new(BROKER_ERROR, BROKER_ERROR_FAILED, "reading \"/proc\": %s",
				    ERRNO_TEXT(answer->error));
	/* Cut the snapshot to the bytes that were read, and seal it. */
	else if (ftruncate(request->memfd, (off_t)snapshot->offset) < 0 ||
		 fcntl(request->memfd, F_ADD_SEALS,
		       F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) < 0)
		broker_fail(&error, BROKER_ERROR_FAILED, "passing on the contents of /proc: %s",
			    ERRNO_TEXT(errno));
	if (request->message.type == FILES_SNAPSHOT)
		files->listener->snapshot(snapshot, request->tag,
					  error ? -1 : steal_fd(&request->memfd), error,
					  files->data);
	if (fd >= 0)
		close(fd);
	request_free(request);
}

static void fail(struct files *files, struct request *request, int number)
{
	const struct files_answer answer = {
		.error = number,
		.image = { .image_id = request->message.image.request.image_id, .error = number },
	};

	finish(files, request, &answer, -1);
}

static bool answer_is_valid(const struct request *request, const struct files_answer *answer,
			    int fd)
{
	return request && answer->serial == request->message.serial && answer->error >= 0 &&
	       answer->image.build_id_size <= sizeof(answer->image.build_id) &&
	       (request->message.type == FILES_SNAPSHOT || (answer->error == 0) == (fd >= 0));
}

/* Receives one answer. Returns false if no answer is waiting or no more will come. */
static bool receive_answer(struct files *files, struct worker *worker)
{
	struct files_answer answer;
	struct request *request;
	CLEANUP_CLOSE int fd = -1;

	if (!files_worker_receive(worker->process, &answer, &fd))
		return false;
	if (!answer_is_valid(g_queue_peek_head(&worker->sent), &answer, fd)) {
		files_worker_reject(worker->process);
		return false;
	}
	request = g_queue_pop_head(&worker->sent);
	if (request->message.type == FILES_SNAPSHOT)
		request->message.snapshot.offset = answer.snapshot_bytes;
	finish(files, request, &answer, steal_fd(&fd));
	return true;
}

static void receive_answers(struct files *files, struct worker *worker)
{
	for (unsigned i = 0; i < MAX_SENT && receive_answer(files, worker); i++)
		if (g_queue_is_empty(&worker->sent))
			break;
	if (worker == &files->worker || !g_queue_is_empty(&worker->sent))
		return;
	files_worker_free(worker->process, false, STALL_QUOTA_NOBODY);
	worker->process = NULL;
}

/* ---- The processes --------------------------------------------------------------------------- */

static struct worker *find_worker(struct files *files, const struct files_worker *process)
{
	for (unsigned i = 0; i < MAX_ASIDE; i++)
		if (files->aside[i].process == process)
			return &files->aside[i];
	return &files->worker;
}

static bool is_idle(struct files *files)
{
	for (unsigned i = 0; i < MAX_ASIDE; i++)
		if (files->aside[i].process)
			return false;
	return g_queue_is_empty(&files->worker.sent) && g_queue_is_empty(&files->waiting);
}

static void on_input(struct files_worker *process, void *data)
{
	struct files *files = data;

	receive_answers(files, find_worker(files, process));
	push(files);
	if (is_idle(files))
		g_clear_handle_id(&files->tick, g_source_remove);
}

static void recover(struct files *files, struct worker *worker, bool stuck);

static void on_ended(struct files_worker *process, void *data)
{
	struct files *files = data;
	struct worker *worker = find_worker(files, process);

	receive_answers(files, worker);
	files->deaths++;
	if (worker->process)
		recover(files, worker, false);
	push(files);
}

static struct files_worker *start(struct files *files, GError **error)
{
	static const struct files_worker_listener listener = { .input = on_input,
							       .ended = on_ended };

	return files_worker_new(&files->config, &listener, files, error);
}

static void unsend(struct files *files, struct worker *worker)
{
	struct request *request;

	while ((request = g_queue_pop_tail(&worker->sent)))
		g_queue_push_head(&files->waiting, request);
}

/* ---- Being stuck ----------------------------------------------------------------------------- */

static uid_t owner_of(const struct request *request, pid_t pid)
{
	uid_t uid = stall_quota_owner(pid);

	return uid == STALL_QUOTA_NOBODY && request->message.type == FILES_IMAGE ? request->uid
										 : uid;
}

static bool was_stuck(const struct files *files, pid_t pid)
{
	return g_hash_table_contains(files->stuck, GINT_TO_POINTER(pid));
}

/* Retries a request without the part that probably failed. If the retry fails, too, a request for
 * an image fails, a snapshot of one process is passed on with what was read, and a snapshot of the
 * system skips the process. */
static void retry(struct files *files, struct request *request, pid_t pid, uint64_t bytes)
{
	struct files_snapshot *snapshot = &request->message.snapshot;

	if (request->message.type == FILES_IMAGE) {
		if (request->message.image.careful) {
			fail(files, request, ETIMEDOUT);
			return;
		}
		request->message.image.careful = 1;
	} else if (snapshot->pid && snapshot->bare_pid == pid) {
		fail(files, request, 0);
		return;
	} else {
		snapshot->offset = MAX_OF(snapshot->offset, bytes);
		snapshot->from_pid = snapshot->bare_pid == pid ? pid + 1 : MAX_OF(pid, 1);
		snapshot->bare_pid = pid;
	}
	g_queue_push_head(&files->waiting, request);
}

/* Handles a process that has exited or was stuck for too long. If it was working on its first
 * request, that request is the cause. */
static void recover(struct files *files, struct worker *worker, bool stuck)
{
	struct files_worker *process = worker->process;
	struct request *request = g_queue_peek_head(&worker->sent);
	bool again = files_worker_has_begun(process) && files->deaths <= MAX_DEATHS;
	bool at = again && request && files_worker_is_at(process, request->message.serial);
	pid_t pid = files_worker_target(process);
	uint64_t bytes = files_worker_bytes(process);
	uid_t uid = at ? owner_of(request, pid) : STALL_QUOTA_NOBODY;

	worker->process = NULL;
	if (stuck && at)
		files_worker_give_up(process, uid);
	else
		files_worker_free(process, true, uid);
	if (at)
		g_queue_pop_head(&worker->sent);
	unsend(files, worker);
	if (stuck && at) {
		const bool is_file = request->message.type == FILES_IMAGE;

		if (g_hash_table_size(files->stuck) >= MAX_STUCK)
			g_hash_table_remove_all(files->stuck);
		g_hash_table_add(files->stuck, GINT_TO_POINTER(pid));
		files->listener->stuck(pid, uid, is_file, files->data);
	}
	if (at)
		retry(files, request, pid, bytes);
	if (worker == &files->worker && again)
		worker->process = start(files, NULL);
}

/* Leaves the process alone with its current request, and continues with a new process. */
static void set_aside(struct files *files)
{
	struct worker *worker = &files->worker, *aside = find_worker(files, NULL);
	struct request *request = g_queue_peek_head(&worker->sent);
	unsigned n = g_queue_get_length(&worker->sent) + g_queue_get_length(&files->waiting);
	struct files_worker *other;

	if (aside == worker || n < 2)
		return;
	other = start(files, NULL);
	if (!other)
		return;
	if (!files_worker_stop_behind(worker->process, request->message.serial)) {
		files_worker_free(other, false, STALL_QUOTA_NOBODY);
		return;
	}
	aside->process = worker->process;
	aside->uid = owner_of(request, files_worker_target(worker->process));
	g_queue_push_tail(&aside->sent, g_queue_pop_head(&worker->sent));
	unsend(files, worker);
	worker->process = other;
}

static void look_at(struct files *files, struct worker *worker)
{
	/* The process is not stuck on its first request if the answer is already in the socket. */
	if (worker->process)
		receive_answers(files, worker);
	if (!worker->process || g_queue_is_empty(&worker->sent))
		return;
	if (files_worker_is_stuck(worker->process, PATIENCE_US))
		recover(files, worker, true);
	else if (worker == &files->worker && files_worker_is_stuck(worker->process, STALL_US))
		set_aside(files);
}

static gboolean on_tick(gpointer data)
{
	struct files *files = data;

	look_at(files, &files->worker);
	for (unsigned i = 0; i < MAX_ASIDE; i++)
		look_at(files, &files->aside[i]);
	push(files);
	if (!is_idle(files))
		return G_SOURCE_CONTINUE;
	files->tick = 0;
	return G_SOURCE_REMOVE;
}

/* ---- Requests -------------------------------------------------------------------------------- */

/* Returns whether a worker that was set aside waits for this target, or too many such workers wait
 * for targets of this user, who is not root. */
static bool is_set_aside(const struct files *files, pid_t pid, uid_t uid)
{
	unsigned n = 0;

	for (unsigned i = 0; i < MAX_ASIDE; i++) {
		const struct worker *aside = &files->aside[i];

		if (aside->process && files_worker_target(aside->process) == pid)
			return true;
		n += aside->process && aside->uid == uid;
	}
	return uid != 0 && n >= MAX_ASIDE_OF_USER;
}

/* Makes a request careful or bare if its target is known to make processes wait. */
static void prepare(const struct files *files, struct request *request)
{
	struct files_snapshot *snapshot = &request->message.snapshot;
	struct files_image *image = &request->message.image;
	pid_t pid = image->request.pid;

	if (request->message.type == FILES_IMAGE) {
		if (was_stuck(files, pid) || stall_quota_is_blocked(request->uid, pid) ||
		    is_set_aside(files, pid, request->uid))
			image->careful = 1;
		return;
	}
	snapshot->n_bare = stall_quota_list_blocked(snapshot->bare, FILES_MAX_BARE);
	if (snapshot->pid && was_stuck(files, snapshot->pid))
		snapshot->bare_pid = snapshot->pid;
	for (uint32_t i = 0; i < snapshot->n_usage_pids; i++)
		if (was_stuck(files, abs(snapshot->usage_pids[i])))
			snapshot->usage_pids[i] = -abs(snapshot->usage_pids[i]);
}

/* Sends requests while there is room. Without a process, all requests fail. */
static void push(struct files *files)
{
	struct worker *worker = &files->worker;
	struct request *request;

	while (!worker->process && (request = g_queue_pop_head(&files->waiting)))
		fail(files, request, EIO);
	while (g_queue_get_length(&worker->sent) < MAX_SENT &&
	       (request = g_queue_peek_head(&files->waiting))) {
		prepare(files, request);
		if (!files_worker_send(worker->process, &request->message, request->path,
				       request->memfd, g_queue_is_empty(&worker->sent)))
			return;
		g_queue_push_tail(&worker->sent, g_queue_pop_head(&files->waiting));
	}
}

static void add(struct files *files, struct request *request)
{
	request->message.serial = ++files->last_serial;
	g_queue_push_tail(&files->waiting, request);
	if (!files->tick)
		files->tick = g_timeout_add(TICK_MS, on_tick, files);
	if (!files->worker.process && files->deaths <= MAX_DEATHS)
		files->worker.process = start(files, NULL);
	push(files);
}

static void add_snapshot(struct files *files, const struct files_snapshot *snapshot, uint32_t tag)
{
	struct request *request = g_new0(struct request, 1);

	request->message.type = FILES_SNAPSHOT;
	request->message.snapshot = *snapshot;
	request->tag = tag;
	request->memfd = memfd_create("prof-snapshot", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (request->memfd < 0) {
		g_autoptr(GError) error = NULL;

		broker_fail(&error, BROKER_ERROR_FAILED, "making a file in memory: %s",
			    ERRNO_TEXT(errno));
		files->listener->snapshot(&request->message.snapshot, tag, -1, error, files->data);
		request_free(request);
		return;
	}
	add(files, request);
}

void files_read_processes(struct files *files, pid_t pid, unsigned what, uint32_t tag)
{
	const struct files_snapshot snapshot = {
		.pid = pid,
		.targets_only = (what & FILES_READ_FIRST) && files->config.n_targets > 0,
		.maps_known = (what & FILES_READ_NO_MAPS) != 0,
	};

	add_snapshot(files, &snapshot, tag);
}

void files_read_usage(struct files *files, unsigned usage, const int32_t *pids, unsigned n,
		      uint32_t tag)
{
	struct files_snapshot snapshot = { .n_usage_pids = MIN_OF(n, ENGINE_MAX_USAGE_PIDS),
					   .usage = usage };

	memcpy(snapshot.usage_pids, pids, snapshot.n_usage_pids * sizeof(*pids));
	add_snapshot(files, &snapshot, tag);
}

void files_open_image(struct files *files, const struct files_image *image, const char *path)
{
	struct request *request = g_new0(struct request, 1);

	request->message.type = FILES_IMAGE;
	request->message.image = *image;
	request->uid = stall_quota_owner(image->request.pid);
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
	files->stuck = g_hash_table_new(NULL, NULL);
	files->worker.process = start(files, error);
	if (files->worker.process)
		return files;
	files_free(files);
	return NULL;
}

static void end_worker(struct worker *worker)
{
	bool busy = !g_queue_is_empty(&worker->sent);
	struct request *request;

	if (worker->process)
		files_worker_free(worker->process, busy,
				  busy ? stall_quota_owner(files_worker_target(worker->process))
				       : STALL_QUOTA_NOBODY);
	while ((request = g_queue_pop_head(&worker->sent)))
		request_free(request);
}

void files_free(struct files *files)
{
	struct request *request;

	if (!files)
		return;
	end_worker(&files->worker);
	for (unsigned i = 0; i < MAX_ASIDE; i++)
		end_worker(&files->aside[i]);
	g_clear_handle_id(&files->tick, g_source_remove);
	while ((request = g_queue_pop_head(&files->waiting)))
		request_free(request);
	g_hash_table_unref(files->stuck);
	g_free(files);
}
