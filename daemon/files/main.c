/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * profd-files - opens files that targets choose, and may be killed while it is blocked
 *
 * profd starts one such process for each session. A read of a FUSE file, or of a /proc file that
 * needs a process's memory, may never return. The reading process is then stuck in the kernel; this
 * process takes that risk instead of profd. For probes, another profd-files process with fewer
 * rights parses the files. See daemon/files-protocol.h.
 * Invariants: (1) requests are handled one at a time, in order, so that the broker can identify a
 *                 stuck request
 *             (2) a request leaves no state behind, so that another such process can continue
 */
#include "config.h"

#include "arch/base.h"
#include "daemon/datagram.h"
#include "daemon/files-protocol.h"
#include "daemon/files/client.h"
#include "daemon/files/image.h"
#include "daemon/files/probe.h"
#include "daemon/files/proc.h"
#include "daemon/files/sandbox.h"
#include "daemon/files/status.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>

struct incoming {
	struct files_request request;
	char path[PATH_MAX];
};

/* Takes ownership of `memfd`. Returns false if this process must end. */
static bool handle(const struct files_config *config, const struct client *client,
		   const struct incoming *incoming, size_t bytes, int memfd)
{
	const struct files_request *request = &incoming->request;
	struct files_answer body = { .serial = request->serial, .error = EINVAL };
	const struct iovec part = { &body, sizeof(body) };
	CLEANUP_CLOSE int fd = memfd;

	if (!status_begin(request->serial))
		return false;
	if (request->type == FILES_SNAPSHOT && fd >= 0) {
		body.error = proc_snapshot(config, &request->snapshot, fd);
		body.snapshot_bytes = status_bytes();
		close(steal_fd(&fd));
	} else if (request->type == FILES_IMAGE &&
		   request->image.request.path_bytes == bytes - sizeof(*request)) {
		body.error =
			image_open(config, client, &request->image, incoming->path, &body, &fd);
	} else if (request->type == FILES_PROBE && config->probes &&
		   request->probe.text_bytes == bytes - sizeof(*request)) {
		body.error =
			probe_open(config, client, &request->probe, incoming->path, &body, &fd);
	}
	body.image.image_id = request->image.request.image_id;
	body.image.error = body.error;
	if (datagram_send(FILES_SOCKET_FD, &part, 1, fd, 0))
		return true;
	/* Answer without the file if the user has too many descriptors in flight: the kernel's
	 * limit is the number of files that the sender may open. */
	if (fd < 0 || errno != ETOOMANYREFS)
		return false;
	body.error = body.image.error = EAGAIN;
	return datagram_send(FILES_SOCKET_FD, &part, 1, -1, 0);
}

static int serve(void)
{
	static struct incoming incoming;
	struct files_config config;
	struct client client;
	int fd = -1;
	ssize_t n;

	signal(SIGXFSZ, SIG_IGN); /* so that a write beyond the limit fails instead */
	if (datagram_receive(FILES_SOCKET_FD, &config, sizeof(config), 0, &fd) !=
	    (ssize_t)sizeof(config))
		return 1;
	client_init(&client, config.uid);
	/* A stuck process must not keep a pipe of profd's caller open, nor a mount busy. */
	if (!status_open(FILES_STATUS_FD) || chdir("/") < 0 ||
	    (!PROF_SANITIZED &&
	     (dup2(STDIN_FILENO, STDOUT_FILENO) < 0 || dup2(STDIN_FILENO, STDERR_FILENO) < 0)) ||
	    !sandbox_enter(&config))
		return 1;
	for (;;) {
		n = datagram_receive(FILES_SOCKET_FD, &incoming, sizeof(incoming) - 1, 0, &fd);
		if (n < (ssize_t)sizeof(incoming.request))
			return n == 0 ? 0 : 1;
		((char *)&incoming)[n] = '\0';
		if (!handle(&config, &client, &incoming, (size_t)n, fd))
			return 1;
	}
}

int main(int argc, char **argv)
{
	struct stat status;

	if (argc == 2 && strcmp(argv[1], "--version") == 0) {
		printf("profd-files %s\n", PROF_VERSION);
		return 0;
	}
	if (argc == 1 && fstat(FILES_SOCKET_FD, &status) == 0 && S_ISSOCK(status.st_mode))
		/* no exit(): this process cannot be traced, so a leak check would fail */
		_exit(serve());
	fprintf(stderr,
		"Usage: profd-files --version\nprofd starts it; it does nothing by itself.\n");
	return argc == 2 && strcmp(argv[1], "--help") == 0 ? 0 : 2;
}
