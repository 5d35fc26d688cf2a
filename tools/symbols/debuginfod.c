/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * A child process makes the requests (debuginfod-child.c). The parent waits for the child's answer,
 * the timeout or Ctrl-C, and in the latter two cases ends the child, because the library makes no
 * callbacks while a server is silent.
 * Invariants: (1) after the timeout or Ctrl-C, no more answers are waited for
 *                 [test_symbolize_debuginfod: slow, interrupt]
 *             (2) a second Ctrl-C ends the program: the handler is installed for one signal
 *             (3) only a file with the requested build-id is returned
 *                 [test_symbolize_debuginfod: other_file]
 *             (4) a build-id that was not found is requested once
 *                 [test_symbolize_debuginfod: missing]
 */
#include "config.h"

#include "tools/symbols/debuginfod.h"

#include "arch/packet.h"
#include "tools/common/cli.h"
#include "tools/symbols/debug-files.h"
#include "tools/symbols/debuginfod-child.h"

#include <errno.h>
#include <glib/gi18n.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define NS_PER_US 1000
#define START_US (10 * G_USEC_PER_SEC) /* time for the child to load the library */
/* maximum number of checks for the exit of the child; they are END_STEP_US apart */
#define END_STEPS 50
#define END_STEP_US 10000

struct debuginfod {
	GMutex lock;
	GHashTable *known; /* requested build-ids as GBytes → whether the file was found */
	pid_t child;       /* 0: ended */
	int socket;
	int64_t budget_us, end_us; /* end_us: 0 before the first request */
	struct sigaction before;
	bool handles, terminal;
	struct debuginfod_counts counts;
};

static int interrupted_fd = -1; /* an eventfd; readable after Ctrl-C */

static void on_interrupt(int number)
{
	const uint64_t one = 1;
	int before = errno;

	(void)!write(interrupted_fd, &one, sizeof(one));
	errno = before;
}

/* ---- The child ------------------------------------------------------------------------------- */

static void end_child(struct debuginfod *servers, enum debuginfod_end why)
{
	if (servers->child == 0)
		return;
	servers->counts.end = why;
	kill(servers->child, SIGTERM);
	for (int i = 0; i < END_STEPS; i++) {
		if (waitpid(servers->child, NULL, WNOHANG) != 0) {
			servers->child = 0;
			return;
		}
		g_usleep(END_STEP_US);
	}
	kill(servers->child, SIGKILL);
	(void)waitpid(servers->child, NULL, 0);
	servers->child = 0;
}

/* Returns false if there was no message, or a truncated one. */
static bool receive(int socket, struct debuginfod_reply *ret_reply, int *ret_fd)
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec part = { ret_reply, sizeof(*ret_reply) };
	struct msghdr message = {
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control.space),
	};
	const struct cmsghdr *item;
	ssize_t n = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);

	*ret_fd = -1;
	item = n > 0 ? CMSG_FIRSTHDR(&message) : NULL;
	if (item && item->cmsg_level == SOL_SOCKET && item->cmsg_type == SCM_RIGHTS &&
	    item->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(ret_fd, CMSG_DATA(item), sizeof(int));
	return n == (ssize_t)sizeof(*ret_reply);
}

/* Waits until the socket has `events`. Returns DEBUGINFOD_GOES_ON, or why the wait ended early. */
static enum debuginfod_end wait_until(int socket, short events, int64_t end_us)
{
	struct pollfd fds[] = { { interrupted_fd, POLLIN, 0 }, { socket, events, 0 } };

	for (;;) {
		int64_t left_us = end_us - g_get_monotonic_time();

		if (left_us <= 0)
			return DEBUGINFOD_TIME_OVER;
		if (poll(fds, ARRAY_SIZE(fds), (int)MIN_OF(left_us / 1000 + 1, INT64_C(60000))) <=
		    0)
			continue;
		return fds[0].revents ? DEBUGINFOD_INTERRUPTED : DEBUGINFOD_GOES_ON;
	}
}

/* Waits for a message from the child. Returns DEBUGINFOD_GOES_ON, or why there is no message. */
static enum debuginfod_end wait_for(const struct debuginfod *servers, int64_t end_us,
				    struct debuginfod_reply *ret_reply, int *ret_fd)
{
	enum debuginfod_end end = wait_until(servers->socket, POLLIN, end_us);

	if (end == DEBUGINFOD_GOES_ON && !receive(servers->socket, ret_reply, ret_fd))
		end = DEBUGINFOD_DIED;
	return end;
}

static void show(const struct debuginfod *servers, const struct debuginfod_reply *progress)
{
	g_autofree char *done = text_bytes((uint64_t)MAX_OF(progress->done, INT64_C(0)));
	g_autofree char *total = text_bytes((uint64_t)MAX_OF(progress->total, INT64_C(0)));

	if (!servers->terminal)
		return;
	if (progress->total > 0)
		g_printerr(_("\rdebuginfod: %s of %s\033[K"), done, total);
	else
		g_printerr(_("\rdebuginfod: %s\033[K"), done);
}

/* ---- Requests -------------------------------------------------------------------------------- */

/* Returns the file from the servers, or -1 and the error in *ret_error: -ECANCELED if the wait for
 * an answer ended early, else the library's. */
static int ask(struct debuginfod *servers, const uint8_t *id, size_t size, int *ret_error)
{
	struct debuginfod_request request = { .size = (uint32_t)size };
	const struct iovec part = { &request, sizeof(request) };
	struct debuginfod_reply reply = { 0 };
	enum debuginfod_end end;
	int fd = -1;

	memcpy(request.id, id, size);
	if (servers->end_us == 0)
		servers->end_us = g_get_monotonic_time() + servers->budget_us;
	end = wait_until(servers->socket, POLLOUT, servers->end_us);
	if (end == DEBUGINFOD_GOES_ON && packet_send(servers->socket, &part, 1, -1, 0) < 0)
		end = DEBUGINFOD_DIED;
	while (end == DEBUGINFOD_GOES_ON) {
		end = wait_for(servers, servers->end_us, &reply, &fd);
		if (end != DEBUGINFOD_GOES_ON || reply.kind == DEBUGINFOD_ANSWER)
			break;
		show(servers, &reply);
	}
	if (servers->terminal)
		g_printerr("\r\033[K");
	if (end != DEBUGINFOD_GOES_ON)
		end_child(servers, end);
	*ret_error = end == DEBUGINFOD_GOES_ON ? reply.error : -ECANCELED;
	return fd;
}

static void count(struct debuginfod_counts *counts, const struct elf_image *elf, bool came,
		  int error)
{
	if (elf) {
		counts->found++;
		counts->found_bytes += elf->file_size;
	} else if (came) {
		counts->refused++;
	} else if (error == -ENOENT) {
		counts->missing++;
	} else if (error == -ECANCELED) {
		counts->left++;
	} else {
		counts->failed++;
		counts->error = error;
	}
}

static struct elf_image *fetch(struct debuginfod *servers, const uint8_t *id, size_t size)
{
	g_autoptr(GBytes) key = g_bytes_new(id, size);
	gpointer found = NULL;
	bool again = g_hash_table_lookup_extended(servers->known, key, NULL, &found);
	struct elf_image *elf;
	int error = -ECANCELED, fd;

	if (again && !found)
		return NULL;
	fd = servers->child ? ask(servers, id, size, &error) : -1;
	elf = debug_files_check(fd, id, size);
	if (again)
		return elf;
	count(&servers->counts, elf, fd >= 0, error);
	g_hash_table_insert(servers->known, g_steal_pointer(&key), GINT_TO_POINTER(elf != NULL));
	return elf;
}

struct elf_image *debuginfod_fetch(const uint8_t *id, size_t size, char **ret_path, void *data)
{
	struct debuginfod *servers = data;
	struct elf_image *elf = NULL;

	g_mutex_lock(&servers->lock);
	if (size <= ELF_IMAGE_MAX_BUILD_ID)
		elf = fetch(servers, id, size);
	g_mutex_unlock(&servers->lock);
	if (elf) {
		g_autofree char *link = g_strdup_printf("/proc/self/fd/%d", elf->fd);

		*ret_path = g_file_read_link(link, NULL);
	}
	return elf;
}

struct debuginfod_counts debuginfod_get_counts(const struct debuginfod *servers)
{
	return servers->counts;
}

/* ---- Begin and end --------------------------------------------------------------------------- */

static bool fork_child(struct debuginfod *servers)
{
	pid_t parent = getpid();
	int sockets[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0)
		return false;
	servers->child = fork();
	if (servers->child == 0) {
		close(sockets[0]);
		debuginfod_child_run(sockets[1], parent);
	}
	close(sockets[1]);
	servers->socket = sockets[0];
	if (servers->child > 0)
		return true;
	servers->child = 0;
	return false;
}

static bool start(struct debuginfod *servers, GError **error)
{
	struct debuginfod_reply reply = { 0 };
	int fd;

	interrupted_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (interrupted_fd < 0 || !fork_child(servers)) {
		return cli_set_error(
			error, CLI_FAILURE,
			_("cannot start the process that asks debuginfod's servers: %s"),
			g_strerror(errno));
	}
	if (wait_for(servers, g_get_monotonic_time() + START_US, &reply, &fd) ==
		    DEBUGINFOD_GOES_ON &&
	    reply.kind == DEBUGINFOD_READY && reply.error == 0)
		return true;
	reply.text[sizeof(reply.text) - 1] = '\0';
	return cli_set_error(
		error, CLI_FAILURE,
		_("--debuginfod needs the library '%s', which cannot be loaded (%s); install it "
		  "(on Debian the package libdebuginfod1), or leave the option out"),
		DEBUGINFOD_LIBRARY, reply.text[0] ? reply.text : _("it does not answer"));
}

struct debuginfod *debuginfod_new(uint64_t budget_ns, GError **error)
{
	const char *urls = g_getenv("DEBUGINFOD_URLS");
	struct sigaction action = { .sa_handler = on_interrupt,
				    .sa_flags = (int)(SA_RESETHAND | SA_RESTART) };
	struct debuginfod *servers;

	if (!urls || urls[strspn(urls, " ")] == '\0') {
		g_set_error(error, CLI_ERROR, CLI_USAGE,
			    _("--debuginfod asks the servers of the variable '%s', which is empty; "
			      "set it to their URLs, with spaces between them"),
			    "DEBUGINFOD_URLS");
		return NULL;
	}
	servers = g_new0(struct debuginfod, 1);
	g_mutex_init(&servers->lock);
	servers->known = g_hash_table_new_full(g_bytes_hash, g_bytes_equal,
					       (GDestroyNotify)g_bytes_unref, NULL);
	servers->socket = -1;
	servers->budget_us = (int64_t)MIN_OF(budget_ns / NS_PER_US, (uint64_t)(INT64_MAX / 2));
	servers->terminal = isatty(STDERR_FILENO);
	if (!start(servers, error)) {
		debuginfod_free(servers);
		return NULL;
	}
	servers->handles = sigaction(SIGINT, NULL, &servers->before) == 0 &&
			   servers->before.sa_handler != SIG_IGN &&
			   sigaction(SIGINT, &action, NULL) == 0;
	return servers;
}

void debuginfod_free(struct debuginfod *servers)
{
	if (!servers)
		return;
	if (servers->handles)
		sigaction(SIGINT, &servers->before, NULL);
	end_child(servers, DEBUGINFOD_GOES_ON);
	if (servers->socket >= 0)
		close(servers->socket);
	if (interrupted_fd >= 0)
		close(interrupted_fd);
	interrupted_fd = -1;
	g_hash_table_unref(servers->known);
	g_mutex_clear(&servers->lock);
	g_free(servers);
}
