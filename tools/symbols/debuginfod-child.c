/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Invariants: (1) the child leaves only complete files and the library's notes of misses in the
 *                 cache [test_symbolize_debuginfod: slow]
 *             (2) the child does not outlive its parent  [test_symbolize_debuginfod: killed]
 *             (3) no file becomes larger than DEBUGINFOD_MAXSIZE, or MAX_BYTES without it
 *                 [test_symbolize_debuginfod: huge]
 * The child starts no threads and shares no state with the parent, which checks every message.
 */
#include "config.h"

#include "tools/symbols/debuginfod-child.h"

#include "arch/base.h"
#include "arch/packet.h"
#include "tools/symbols/debuginfod.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#define MAX_BYTES (UINT64_C(1) << 30)
#define MAX_FILES 256 /* descriptors to check at exit */
#define PROGRESS_US 200000

/* Like the type in elfutils/debuginfod.h, which the build does not need. */
typedef int progress_function(void *client, long done, long total);
struct library {
	void *(*begin)(void);
	int (*find_debuginfo)(void *client, const unsigned char *id, int size, char **path);
	void (*set_progressfn)(void *client, progress_function *function);
};

/* State of the library's callback, which runs between a request and its answer. */
static struct {
	int socket;
	int64_t told_us;
} child;

/* Removes a partial file, and exits. The library downloads to debuginfo.XXXXXX in a folder of its
 * cache, and renames the file when it is complete. Async-signal-safe, like glibc's snprintf() of
 * numbers. */
static void on_end(int number)
{
	char link[32], path[PATH_MAX];

	for (int fd = STDERR_FILENO + 1; fd < MAX_FILES; fd++) {
		ssize_t n;
		char *name;

		(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
		n = readlink(link, path, sizeof(path) - 1);
		if (n <= 0)
			continue;
		path[n] = '\0';
		name = strrchr(path, '/');
		if (!name || strncmp(name, "/debuginfo.", strlen("/debuginfo.")) != 0)
			continue;
		(void)unlink(path);
		*name = '\0';
		(void)rmdir(path); /* fails if the folder has other files */
	}
	_exit(0);
}

static uint64_t max_bytes(void)
{
	const char *wanted = g_getenv("DEBUGINFOD_MAXSIZE");
	uint64_t bytes = wanted ? g_ascii_strtoull(wanted, NULL, 10) : 0;

	return bytes > 0 ? bytes : MAX_BYTES;
}

/* The parent handles Ctrl-C. The library checks the size that a server announces; RLIMIT_FSIZE
 * applies if the server announces none. */
static void set_up(pid_t parent)
{
	const struct sigaction ignore = { .sa_handler = SIG_IGN }, end = { .sa_handler = on_end };
	struct rlimit limit = { max_bytes(), max_bytes() };
	g_autofree char *text = g_strdup_printf("%" G_GUINT64_FORMAT, max_bytes());
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	sigaction(SIGINT, &ignore, NULL);
	sigaction(SIGQUIT, &ignore, NULL);
	sigaction(SIGXFSZ, &ignore, NULL);
	sigaction(SIGTERM, &end, NULL);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(0);
	(void)setrlimit(RLIMIT_FSIZE, &limit);
	g_setenv("DEBUGINFOD_MAXSIZE", text, TRUE);
	/* Version 0.188 also retries files that are too large, and may then report that no server
	 * has the file. */
	g_setenv("DEBUGINFOD_RETRY_LIMIT", "0", FALSE);
	if (null >= 0) {
		(void)dup2(null, STDIN_FILENO);
		(void)dup2(null, STDOUT_FILENO);
	}
}

static bool send_reply(const struct debuginfod_reply *reply, int fd, int flags)
{
	const struct iovec part = { (void *)reply, sizeof(*reply) };

	return packet_send(child.socket, &part, 1, fd, flags) == (ssize_t)sizeof(*reply);
}

static int on_progress(void *client, long done, long total)
{
	struct debuginfod_reply reply = { .kind = DEBUGINFOD_PROGRESS,
					  .done = done,
					  .total = total };
	int64_t now_us = g_get_monotonic_time();

	if (now_us - child.told_us >= PROGRESS_US) {
		child.told_us = now_us;
		(void)send_reply(&reply, -1, MSG_DONTWAIT);
	}
	return 0;
}

static void *begin(struct library *library, struct debuginfod_reply *reply)
{
	void *handle = dlopen(DEBUGINFOD_LIBRARY, RTLD_NOW | RTLD_LOCAL);
	void *client = NULL;
	const char *why;

	if (handle) {
		library->begin = (__typeof__(library->begin))dlsym(handle, "debuginfod_begin");
		library->find_debuginfo = (__typeof__(library->find_debuginfo))dlsym(
			handle, "debuginfod_find_debuginfo");
		library->set_progressfn = (__typeof__(library->set_progressfn))dlsym(
			handle, "debuginfod_set_progressfn");
		if (library->begin && library->find_debuginfo && library->set_progressfn)
			client = library->begin();
	}
	if (client)
		return client;
	why = dlerror();
	reply->error = -ENOENT;
	g_strlcpy(reply->text, why ? why : DEBUGINFOD_LIBRARY, sizeof(reply->text));
	return NULL;
}

static void answer(const struct library *library, void *client,
		   const struct debuginfod_request *request)
{
	struct debuginfod_reply reply = { .kind = DEBUGINFOD_ANSWER };
	int fd = library->find_debuginfo(client, request->id, (int)request->size, NULL);

	if (fd < 0)
		reply.error = fd;
	if (!send_reply(&reply, fd < 0 ? -1 : fd, 0))
		_exit(1);
	if (fd >= 0)
		close(fd);
}

_Noreturn void debuginfod_child_run(int socket, pid_t parent)
{
	struct debuginfod_reply ready = { .kind = DEBUGINFOD_READY };
	struct debuginfod_request request;
	struct library library = { 0 };
	void *client;

	child.socket = socket;
	set_up(parent);
	client = begin(&library, &ready);
	if (!send_reply(&ready, -1, 0) || !client)
		_exit(1);
	library.set_progressfn(client, on_progress);
	while (recv(socket, &request, sizeof(request), 0) == (ssize_t)sizeof(request) &&
	       request.size <= sizeof(request.id))
		answer(&library, client, &request);
	_exit(0);
}
