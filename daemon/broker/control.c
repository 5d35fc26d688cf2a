/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Control - accepts processes that want to register their collectors
 *
 * Any process may connect. A peer first sends a packet of fixed size, which may have a session's
 * token. The kernel, not the packet, identifies the peer's process and user. The session's engine
 * then handles the peer.
 * The name of a private session's socket is public (/proc/net/unix), so every peer must send the
 * session's token. The socket accepts peers of profd's user and of root. If profd runs as root, the
 * socket accepts peers of all users, because a process that root starts may change its user.
 * Invariants: (1) profd never waits for a peer: a connection without a timely hello is closed
 *                 [test-control: silent]
 *             (2) connections are limited in total, per user, and per user in a second
 *                 [test-control: crowd]
 *             (3) a packet that is not a hello closes the connection without an answer
 *                 [test-control: hostile]
 *             (4) descriptors that a peer sends are never received  [test-control: hostile]
 *             (5) a peer that is refused for lack of room is reported  [test-control: crowd]
 *             (6) users with many connections do not block a user with few  [test-control: users]
 *             (7) while too few descriptors are free for a new peer, no peer is accepted
 *                 [test-control: full]
 *             (8) all peers together use at most a quarter of the main thread's time
 *                 [bench_floods]
 * Main thread only.
 */
#include "config.h"

#include "daemon/broker/control.h"

#include "arch/base.h"
#include "daemon/broker/target.h"
#include "daemon/deferred-close.h"
#include "daemon/stranger.h"

#include <errno.h>
#include <fcntl.h>
#include <glib-unix.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* asm-generic/socket.h, Linux 6.5 */
#endif

#define BACKLOG 128
#define MAX_PENDING 128
#define MAX_PENDING_OF_USER 32
#define MAX_OF_USER_A_SECOND 2000
#define HELLO_TIMEOUT_MS 1000
#define NAME_BYTES 16
#define PAUSE_MS 100
#define DESCRIPTORS 4 /* per peer: the connection, its copy, the pidfd, and a file in /proc */
#define TURN_US 1000
#define REST_MS 3

/* A connection that has not sent a hello yet. */
struct pending {
	struct control *control;
	int fd;
	struct ucred peer;
	guint input, timeout;
};

struct control {
	int socket;
	char *address;
	bool is_private;
	guint input, pause;
	gint64 turn_us, used_us; /* start of the current turn; time that peers have used in it */
	control_receiver receive;
	control_refused refused;
	void *data;
	GPtrArray *pending; /* struct pending */
	GHashTable *counts; /* new connections of each user in this second */
	gint64 second;
};

/* ---- Making ---------------------------------------------------------------------------------- */

static struct control *new_listener(const struct sockaddr_un *name, socklen_t bytes)
{
	CLEANUP_CLOSE int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct control *control;

	if (fd < 0)
		return NULL;
	(void)stranger_refuse_descriptors(fd);
	if (bind(fd, (const struct sockaddr *)name, bytes) < 0 || listen(fd, BACKLOG) < 0)
		return NULL;
	control = g_new0(struct control, 1);
	control->socket = steal_fd(&fd);
	control->pending = g_ptr_array_new();
	control->counts = g_hash_table_new(g_direct_hash, g_direct_equal);
	return control;
}

struct control *control_new_private(void)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	uint8_t random[NAME_BYTES];
	struct control *control;
	GString *text;

	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return NULL;
	text = g_string_new("profd-");
	for (size_t i = 0; i < sizeof(random); i++)
		g_string_append_printf(text, "%02x", random[i]);
	memcpy(name.sun_path + 1, text->str, text->len);
	control = new_listener(&name,
			       (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + text->len));
	if (control) {
		control->is_private = true;
		control->address = g_strdup_printf("unix-abstract:%s", text->str);
	}
	g_string_free(text, TRUE);
	return control;
}

struct control *control_new_at(const char *path)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	g_autofree char *folder = g_path_get_dirname(path);
	CLEANUP_CLOSE int probe = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct control *control;
	mode_t mask;

	if (g_strlcpy(name.sun_path, path, sizeof(name.sun_path)) >= sizeof(name.sun_path))
		return NULL;
	/* If a process already listens there, leave its socket alone. */
	if (probe >= 0 &&
	    (connect(probe, (const struct sockaddr *)&name, sizeof(name)) == 0 || errno == EAGAIN))
		return NULL;
	if (mkdir(folder, 0755) == 0 && chmod(folder, 0755) < 0)
		return NULL;
	if (unlink(path) < 0 && errno != ENOENT)
		return NULL;
	/* Any user may connect: each peer is authorized later. */
	mask = umask(0111);
	control = new_listener(&name, sizeof(name));
	umask(mask);
	if (control)
		control->address = g_strdup_printf("unix:%s", path);
	return control;
}

const char *control_address(const struct control *control)
{
	return control->address;
}

/* ---- A peer ---------------------------------------------------------------------------------- */

/* Ends the connection at once for the peer, even if the socket is closed later. */
static void hang_up(int fd)
{
	(void)shutdown(fd, SHUT_RDWR);
	deferred_close(fd);
}

static void pending_free(struct pending *pending)
{
	g_ptr_array_remove_fast(pending->control->pending, pending);
	g_clear_handle_id(&pending->input, g_source_remove);
	g_clear_handle_id(&pending->timeout, g_source_remove);
	if (pending->fd >= 0)
		hang_up(pending->fd);
	g_free(pending);
}

static void answer(int fd, enum control_status status)
{
	const struct control_answer answer = {
		.magic = CONTROL_ANSWER_MAGIC,
		.version = CONTROL_VERSION,
		.bytes = CONTROL_BYTES,
		.status = status,
	};

	/* A peer that does not read the answer sees the end of the connection. */
	if (send(fd, &answer, sizeof(answer), MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		return;
}

/* Charges the time since `begin_us` to the peers. */
static void count_time(struct control *control, gint64 begin_us)
{
	gint64 now_us = g_get_monotonic_time();

	if (begin_us - control->turn_us > TURN_US + REST_MS * 1000) {
		control->turn_us = begin_us;
		control->used_us = 0;
	}
	control->used_us += now_us - begin_us;
}

/* Opens the process that connected, even if another process has the connection now. */
static int open_pidfd(int fd, pid_t pid)
{
	socklen_t length = sizeof(int);
	int pidfd = -1;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &length) == 0)
		return pidfd;
	/* Older kernels: the pid is valid while the process lives, which the caller checks. */
	return errno == ENOPROTOOPT ? target_open(pid) : -1;
}

static void notify_refused(struct control *control, const struct ucred *who,
			   const struct control_hello *hello)
{
	const struct control_peer peer = {
		.connection = -1,
		.pidfd = -1,
		.pid = who->pid,
		.uid = who->uid,
		.hello = hello,
	};

	control->refused(&peer, control->data);
}

static enum control_status receive_peer(struct pending *pending, const struct control_hello *hello)
{
	static const uint8_t no_token[CONTROL_TOKEN_BYTES];
	struct control *control = pending->control;
	CLEANUP_CLOSE int pidfd = open_pidfd(pending->fd, pending->peer.pid);
	struct control_peer peer = {
		.connection = pending->fd,
		.pidfd = pidfd,
		.pid = pending->peer.pid,
		.uid = pending->peer.uid,
		.hello = hello,
	};

	if (hello->version != CONTROL_VERSION)
		return CONTROL_VERSION_UNKNOWN;
	if (control->is_private && memcmp(hello->token, no_token, sizeof(no_token)) == 0)
		return CONTROL_NO_SESSION;
	if (pidfd < 0 || !target_inner_pid(peer.pid, &peer.inner_pid) || !target_is_alive(pidfd)) {
		notify_refused(control, &pending->peer, hello);
		return CONTROL_FAILED;
	}
	return control->receive(&peer, control->data);
}

static gboolean on_hello(gint fd, GIOCondition condition, gpointer data)
{
	struct pending *pending = data;
	struct control *control = pending->control;
	gint64 begin_us = g_get_monotonic_time();
	struct control_hello hello;
	enum control_status status;
	ssize_t n;

	n = stranger_receive(fd, &hello, sizeof(hello));
	if (n < 0 && errno == EAGAIN)
		return G_SOURCE_CONTINUE;
	pending->input = 0;
	if (n == sizeof(hello) && hello.magic == CONTROL_HELLO_MAGIC &&
	    hello.bytes == CONTROL_BYTES) {
		status = receive_peer(pending, &hello);
		if (status == CONTROL_OK)
			deferred_close(steal_fd(&pending->fd)); /* the engine has a duplicate */
		else
			answer(fd, status);
	}
	pending_free(pending);
	count_time(control, begin_us);
	return G_SOURCE_REMOVE;
}

static gboolean on_timeout(gpointer data)
{
	struct pending *pending = data;

	pending->timeout = 0;
	pending_free(pending);
	return G_SOURCE_REMOVE;
}

/* ---- Accepting ------------------------------------------------------------------------------- */

static unsigned count_of_user(const struct control *control, uid_t uid)
{
	unsigned n = 0;

	for (guint i = 0; i < control->pending->len; i++)
		n += ((struct pending *)control->pending->pdata[i])->peer.uid == uid;
	return n;
}

static void refuse(struct control *control, int fd, const struct ucred *who)
{
	answer(fd, CONTROL_LIMIT);
	notify_refused(control, who, NULL);
}

/* Makes room: refuses a connection of the user with the most connections, if that user has more
 * than `most`. Returns whether a connection was refused. */
static bool displace(struct control *control, unsigned most)
{
	struct pending *victim = NULL;

	for (guint i = 0; i < control->pending->len; i++) {
		struct pending *pending = control->pending->pdata[i];
		unsigned n = count_of_user(control, pending->peer.uid);

		if (n > most)
			victim = pending;
		most = MAX_OF(most, n);
	}
	if (!victim)
		return false;
	refuse(control, victim->fd, &victim->peer);
	pending_free(victim);
	return true;
}

static bool has_room(struct control *control, uid_t uid)
{
	gint64 second = g_get_monotonic_time() / G_USEC_PER_SEC;
	gpointer key = GUINT_TO_POINTER(uid);
	unsigned of_user = count_of_user(control, uid);
	guint in_second;

	if (second != control->second)
		g_hash_table_remove_all(control->counts);
	control->second = second;
	in_second = GPOINTER_TO_UINT(g_hash_table_lookup(control->counts, key)) + 1;
	g_hash_table_insert(control->counts, key, GUINT_TO_POINTER(in_second));
	return in_second <= MAX_OF_USER_A_SECOND && of_user < MAX_PENDING_OF_USER &&
	       (control->pending->len < MAX_PENDING || displace(control, of_user + 1));
}

static gboolean on_connection(gint listener, GIOCondition condition, gpointer data);

static gboolean on_pause_over(gpointer data)
{
	struct control *control = data;

	control->pause = 0;
	control->input = g_unix_fd_add(control->socket, G_IO_IN, on_connection, control);
	return G_SOURCE_REMOVE;
}

/* Returns whether enough descriptors are free to accept a peer. Otherwise a connection would be
 * accepted only to be refused. */
static bool are_free(int fd)
{
	int copies[DESCRIPTORS];
	unsigned n = 0;

	while (n < DESCRIPTORS && (copies[n] = fcntl(fd, F_DUPFD_CLOEXEC, 0)) >= 0)
		n++;
	for (unsigned i = 0; i < n; i++)
		close(copies[i]);
	return n == DESCRIPTORS;
}

/* During the pause, new connections stay in the listener's queue. */
static gboolean pause_for(struct control *control, guint ms)
{
	control->input = 0;
	control->pause = g_timeout_add(ms, on_pause_over, control);
	return G_SOURCE_REMOVE;
}

/* Accepts one connection per iteration of the main loop, so that others are served meanwhile. */
static gboolean on_connection(gint listener, GIOCondition condition, gpointer data)
{
	struct control *control = data;
	gint64 begin_us = g_get_monotonic_time();
	bool has_descriptors = are_free(listener);
	int fd = has_descriptors ? accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK) : -1;
	struct ucred peer = { 0 };
	socklen_t length = sizeof(peer);

	/* Pause, because the main loop would call this function again at once. */
	if (fd < 0 && (!has_descriptors || errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
		       errno == ENOMEM))
		return pause_for(control, PAUSE_MS);
	if (fd >= 0 && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
	    (!control->is_private || getuid() == 0 || peer.uid == getuid() || peer.uid == 0)) {
		/* 0: the peer's PID namespace is not below ours */
		if (peer.pid <= 0) {
			answer(fd, CONTROL_NOT_A_TARGET);
		} else if (has_room(control, peer.uid)) {
			struct pending *pending = g_new0(struct pending, 1);

			pending->control = control;
			pending->peer = peer;
			pending->fd = fd;
			pending->input =
				g_unix_fd_add(fd, G_IO_IN | G_IO_HUP | G_IO_ERR, on_hello, pending);
			pending->timeout = g_timeout_add(HELLO_TIMEOUT_MS, on_timeout, pending);
			g_ptr_array_add(control->pending, pending);
			fd = -1;
		} else {
			refuse(control, fd, &peer);
		}
	}
	if (fd >= 0)
		hang_up(fd);
	count_time(control, begin_us);
	return control->used_us > TURN_US ? pause_for(control, REST_MS) : G_SOURCE_CONTINUE;
}

void control_serve(struct control *control, control_receiver receive, control_refused refused,
		   void *data)
{
	control->receive = receive;
	control->refused = refused;
	control->data = data;
	control->input = g_unix_fd_add(control->socket, G_IO_IN, on_connection, control);
}

void control_free(struct control *control)
{
	if (!control)
		return;
	g_clear_handle_id(&control->input, g_source_remove);
	g_clear_handle_id(&control->pause, g_source_remove);
	while (control->pending->len > 0)
		pending_free(control->pending->pdata[0]);
	g_ptr_array_unref(control->pending);
	g_hash_table_destroy(control->counts);
	hang_up(control->socket);
	g_free(control->address);
	g_free(control);
}
