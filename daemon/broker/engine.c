/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Engine - runs and talks to the unprivileged process of one session
 *
 * profd-engine starts with a SOCK_SEQPACKET socket as fd 3, and no other descriptor except 0 to 2.
 * It parses hostile bytes, so it may have been taken over.
 * Invariants: (1) only messages of a known type, with a length that fits the type, are delivered
 *             (2) descriptors that the engine sends are never received
 *             (3) an engine that does not read cannot block the broker: messages wait in a bounded
 *                 queue
 *             (4) `gone` is called once, after the last message and after the process was reaped;
 *                 never if the engine was abandoned or freed before
 * Main thread only.
 */
#include "config.h"

#include "arch/errno-text.h"
#include "daemon/broker/engine.h"

#include "arch/base.h"
#include "daemon/broker/child.h"
#include "daemon/broker/error.h"
#include "daemon/broker/stall-quota.h"
#include "daemon/broker/watch.h"
#include "daemon/deferred-close.h"
#include "daemon/stranger.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#define MAX_QUEUED 4096
#define MANY_QUEUED 64
#define DESCRIPTORS_WAIT_MS 20
#define MAX_HELD_BYTES (UINT64_C(64) << 20) /* memfds in the queue; a single one may be larger */

struct outgoing {
	size_t bytes;
	uint64_t held; /* size of a memfd that exists only for this message */
	unsigned n_fds;
	int fds[MESSAGE_MAX_FDS];
	uint8_t datagram[];
};

struct engine {
	const struct engine_listener *listener;
	void *data;
	pid_t pid; /* 0: reaped */
	int socket;
	guint child_watch, input_watch, output_watch;
	GQueue queue;    /* struct outgoing */
	uint64_t held;   /* bytes of the memfds in the queue */
	uint8_t *buffer; /* MESSAGE_MAX_BYTES */
	bool ended;      /* no more messages will come */
};

/* A body has exactly `least` bytes, or, if `more` is set, at least `least` bytes. */
static const struct {
	uint32_t type;
	size_t least;
	bool more;
} incoming[] = {
	{ MESSAGE_STARTED, 0, false },
	{ MESSAGE_OBEYED, 0, false },
	{ MESSAGE_SNAPSHOT_REQUEST, sizeof(struct message_snapshot_request), false },
	{ MESSAGE_IMAGE_REQUEST, sizeof(struct message_image_request), true },
	{ MESSAGE_USAGE_REQUEST, sizeof(struct message_usage_request), true },
	{ MESSAGE_CPU_REQUEST, sizeof(struct message_cpu_request), false },
	{ MESSAGE_INTERPRETED, sizeof(struct message_interpreted), false },
	{ MESSAGE_PROGRESS, sizeof(struct message_progress), false },
	{ MESSAGE_WARNING, sizeof(struct message_warning), false },
	{ MESSAGE_FINISHED, sizeof(struct message_finished), true },
};

static void outgoing_free(gpointer pointer)
{
	struct outgoing *message = pointer;

	for (unsigned i = 0; i < message->n_fds; i++)
		close(message->fds[i]);
	g_free(message);
}

static bool message_is_valid(const struct message *message, size_t bytes)
{
	if (bytes < sizeof(*message) || message->length != bytes - sizeof(*message))
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(incoming); i++)
		if (incoming[i].type == message->type)
			return incoming[i].more ? message->length >= incoming[i].least
						: message->length == incoming[i].least;
	return false;
}

/* Passes one message to the listener. Returns false if none is waiting or no more will come. */
static bool receive(struct engine *engine)
{
	const struct message *message = (const struct message *)engine->buffer;
	ssize_t n;

	if (engine->socket < 0)
		return false;
	/* ECONNRESET is reported once if the engine ended without reading all messages. The
	 * engine's own messages can be received afterwards. */
	do {
		n = stranger_receive(engine->socket, engine->buffer, MESSAGE_MAX_BYTES);
	} while (n < 0 && errno == ECONNRESET);
	if (n < 0 && errno == EAGAIN)
		return false;
	if (n > 0 && message_is_valid(message, (size_t)n)) {
		engine->listener->message(message->type, message + 1, message->length,
					  engine->data);
		return true;
	}
	/* If the socket has ended, let the engine finish. If the message is one that a correct
	 * engine never sends, kill the engine. */
	if (n > 0 || (n < 0 && errno == EPROTO))
		engine_kill(engine);
	engine->ended = true;
	engine_set_reading(engine, false);
	return false;
}

static gboolean on_input(gint fd, GIOCondition condition, gpointer data)
{
	struct engine *engine = data;

	/* One message per iteration, so that a busy engine leaves time for others. */
	receive(engine);
	return engine->input_watch != 0;
}

void engine_set_reading(struct engine *engine, bool reading)
{
	if (!reading)
		g_clear_handle_id(&engine->input_watch, g_source_remove);
	else if (!engine->input_watch && !engine->ended)
		engine->input_watch =
			watch_add(engine->socket, G_IO_IN | G_IO_HUP | G_IO_ERR, on_input, engine);
}

static void on_child_exit(GPid pid, gint wait_status, gpointer data)
{
	struct engine *engine = data;

	engine->child_watch = 0;
	engine->pid = 0;
	while (receive(engine))
		;
	engine->listener->gone(wait_status, engine->data);
}

struct engine *engine_new(const struct engine_listener *listener, void *data, uint64_t max_bytes,
			  GError **error)
{
	g_autofree char *limit = max_bytes ? g_strdup_printf("%" PRIu64, max_bytes) : NULL;
	CLEANUP_CLOSE int ours = -1;
	CLEANUP_CLOSE int theirs = -1;
	struct engine *engine;
	int sockets[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0) {
		broker_fail(error, BROKER_ERROR_FAILED, "making a socket: %s", ERRNO_TEXT(errno));
		return NULL;
	}
	ours = sockets[0];
	theirs = sockets[1];
	(void)stranger_refuse_descriptors(ours);
	if (!child_spawn("profd-engine", limit, &theirs, 1, &pid, error))
		return NULL;
	engine = g_new0(struct engine, 1);
	engine->listener = listener;
	engine->data = data;
	engine->pid = pid;
	engine->socket = steal_fd(&ours);
	engine->buffer = g_malloc(MESSAGE_MAX_BYTES);
	engine->child_watch = g_child_watch_add(pid, on_child_exit, engine);
	engine_set_reading(engine, true);
	return engine;
}

void engine_kill(struct engine *engine)
{
	if (engine->pid)
		kill(engine->pid, SIGKILL);
}

void engine_abandon(struct engine *engine, uid_t uid)
{
	if (!engine->pid)
		return;
	g_source_remove(engine->child_watch);
	stall_quota_add(engine->pid, uid, 0);
	engine->pid = 0;
}

static void reap(GPid pid, gint wait_status, gpointer data)
{
}

void engine_free(struct engine *engine)
{
	if (!engine)
		return;
	if (engine->pid) {
		engine_kill(engine);
		g_source_remove(engine->child_watch);
		g_child_watch_add(engine->pid, reap, NULL);
	}
	g_clear_handle_id(&engine->input_watch, g_source_remove);
	g_clear_handle_id(&engine->output_watch, g_source_remove);
	g_queue_clear_full(&engine->queue, outgoing_free);
	deferred_close(engine->socket);
	g_free(engine->buffer);
	g_free(engine);
}

/* Returns 0 or an errno. EAGAIN: the socket is full. ETOOMANYREFS: too many descriptors are in
 * flight, a limit that all processes of a user share. */
static int send_now(int socket, const void *datagram, size_t bytes, const int *fds, unsigned n_fds)
{
	union {
		struct cmsghdr header;
		uint8_t space[CMSG_SPACE(MESSAGE_MAX_FDS * sizeof(int))];
	} control = { 0 };
	struct iovec part = { (void *)datagram, bytes };
	struct msghdr header = { .msg_iov = &part, .msg_iovlen = 1 };
	ssize_t n;

	if (n_fds) {
		header.msg_control = &control;
		header.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(n_fds * sizeof(int));
		memcpy(CMSG_DATA(&control.header), fds, n_fds * sizeof(int));
	}
	do {
		n = sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? errno : 0;
}

static bool is_full(int failed)
{
	return failed == EAGAIN || failed == ETOOMANYREFS;
}

/* Sends queued messages while there is room; drops those that cannot be sent for another reason.
 * Returns 0, or the errno that stopped sending (is_full()). */
static int send_queued(struct engine *engine)
{
	struct outgoing *message;

	while ((message = g_queue_peek_head(&engine->queue))) {
		int failed = send_now(engine->socket, message->datagram, message->bytes,
				      message->fds, message->n_fds);

		if (is_full(failed))
			return failed;
		engine->held -= message->held;
		outgoing_free(g_queue_pop_head(&engine->queue));
	}
	return 0;
}

static void await_room(struct engine *engine, int failed);

static gboolean on_output(gint fd, GIOCondition condition, gpointer data)
{
	struct engine *engine = data;
	int failed = send_queued(engine);

	if (failed == EAGAIN)
		return G_SOURCE_CONTINUE;
	engine->output_watch = 0;
	if (failed)
		await_room(engine, failed);
	return G_SOURCE_REMOVE;
}

static gboolean on_descriptors_wait(gpointer data)
{
	struct engine *engine = data;
	int failed = send_queued(engine);

	if (failed == ETOOMANYREFS)
		return G_SOURCE_CONTINUE;
	engine->output_watch = 0;
	if (failed)
		await_room(engine, failed);
	return G_SOURCE_REMOVE;
}

/* Waits until sending may succeed. If too many descriptors are in flight, the socket is writable,
 * and the kernel does not signal when there are fewer, so this case needs a timer. */
static void await_room(struct engine *engine, int failed)
{
	if (failed == ETOOMANYREFS)
		engine->output_watch =
			g_timeout_add(DESCRIPTORS_WAIT_MS, on_descriptors_wait, engine);
	else
		engine->output_watch =
			watch_add(engine->socket, G_IO_OUT | G_IO_ERR, on_output, engine);
}

static bool enqueue(struct engine *engine, const void *datagram, size_t bytes, const int *fds,
		    unsigned n_fds, GError **error)
{
	const struct message *header = datagram;
	struct outgoing *message;
	struct stat status;
	uint64_t held = 0;

	/* A snapshot uses memory until the engine reads it. */
	if (header->type == MESSAGE_SNAPSHOT && fstat(fds[0], &status) == 0)
		held = (uint64_t)status.st_size;

	if (g_queue_get_length(&engine->queue) >= MAX_QUEUED ||
	    (engine->held && engine->held + held > MAX_HELD_BYTES))
		return broker_fail(error, BROKER_ERROR_LIMIT_EXCEEDED,
				   "the engine does not read its messages");
	message = g_malloc(sizeof(*message) + bytes);
	message->bytes = bytes;
	message->held = held;
	memcpy(message->datagram, datagram, bytes);
	for (message->n_fds = 0; message->n_fds < n_fds; message->n_fds++) {
		int copy = fcntl(fds[message->n_fds], F_DUPFD_CLOEXEC, 0);

		if (copy < 0) {
			outgoing_free(message);
			return broker_fail(error, BROKER_ERROR_LIMIT_EXCEEDED,
					   "keeping a descriptor for the engine: %s",
					   ERRNO_TEXT(errno));
		}
		message->fds[message->n_fds] = copy;
	}
	g_queue_push_tail(&engine->queue, message);
	engine->held += held;
	return true;
}

int64_t engine_cpu_ns(const struct engine *engine)
{
	struct timespec used;
	clockid_t clock;

	if (engine->pid == 0 || clock_getcpuclockid(engine->pid, &clock) != 0 ||
	    clock_gettime(clock, &used) != 0)
		return 0;
	return used.tv_sec * INT64_C(1000000000) + used.tv_nsec;
}

/* Returns whether the thread's state is R or D. In `stat`, the state follows a name of arbitrary
 * characters. */
static bool is_busy_thread(int dir, const char *tid)
{
	g_autofree char *path = g_strdup_printf("%s/stat", tid);
	CLEANUP_CLOSE int fd = openat(dir, path, O_RDONLY | O_CLOEXEC);
	char text[128];
	ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
	const char *end;

	if (n <= 0)
		return false;
	text[n] = '\0';
	end = strrchr(text, ')');
	return end && (strncmp(end, ") R", 3) == 0 || strncmp(end, ") D", 3) == 0);
}

bool engine_is_busy(const struct engine *engine)
{
	g_autofree char *path = g_strdup_printf("/proc/%d/task", (int)engine->pid);
	const struct dirent *entry;
	bool is_busy = false;
	DIR *dir = engine->pid ? opendir(path) : NULL;

	while (dir && !is_busy && (entry = readdir(dir)))
		is_busy = entry->d_name[0] != '.' && is_busy_thread(dirfd(dir), entry->d_name);
	if (dir)
		closedir(dir);
	return is_busy;
}

bool engine_is_behind(const struct engine *engine)
{
	return engine->queue.length >= MANY_QUEUED;
}

bool engine_send(struct engine *engine, uint32_t type, const void *body, size_t bytes,
		 const int *fds, unsigned n_fds, GError **error)
{
	const struct message header = { .type = type, .length = (uint32_t)bytes };
	g_autofree uint8_t *datagram = NULL;
	int failed = EAGAIN;

	if (bytes > MESSAGE_MAX_BYTES - sizeof(header) || n_fds > MESSAGE_MAX_FDS)
		return broker_fail(error, BROKER_ERROR_LIMIT_EXCEEDED,
				   "a message to the engine is too long");
	datagram = g_malloc(sizeof(header) + bytes);
	memcpy(datagram, &header, sizeof(header));
	if (bytes)
		memcpy(datagram + sizeof(header), body, bytes);
	if (g_queue_is_empty(&engine->queue))
		failed = send_now(engine->socket, datagram, sizeof(header) + bytes, fds, n_fds);
	if (is_full(failed)) {
		if (!enqueue(engine, datagram, sizeof(header) + bytes, fds, n_fds, error))
			return false;
		if (!engine->output_watch)
			await_room(engine, failed);
		return true;
	}
	/* EPIPE and ECONNRESET: the engine has died, which `gone` reports. */
	if (failed && failed != EPIPE && failed != ECONNRESET)
		return broker_fail(error, BROKER_ERROR_FAILED, "sending to the engine: %s",
				   ERRNO_TEXT(failed));
	return true;
}
