/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Probe - opens the file for a probe, and finds the place of the probe
 *
 * A client names the file; the kernel will change its code in all processes that map it. So the
 * client must have permission to read the file, and the file must not be writable by everybody.
 * Invariants: (1) the descriptor that is passed on refers to the file that was examined
 *             (2) the file is on a filesystem without a server, so that nobody who opens it waits
 *             (3) every other file is refused with a reason  [test_probes: test_refused_files]
 */
#include "daemon/files/probe.h"

#include "arch/base.h"
#include "arch/probe-file.h"
#include "arch/regular-file.h"
#include "daemon/files/below.h"
#include "daemon/files/status.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

#define MAX_FILE_BYTES (UINT64_C(4) << 30)

static int fail(struct files_answer *answer, const char *reason)
{
	snprintf(answer->reason, sizeof(answer->reason), "%s", reason);
	return EINVAL;
}

/* Opens a file by a path without symbolic links, if the client may read it. */
static int open_for_client(const struct files_config *config, const struct client *client,
			   const char *path, struct files_answer *answer, int *ret_fd)
{
	CLEANUP_CLOSE int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	CLEANUP_CLOSE int handle = -1;
	struct stat status;
	int failed = 0;

	if (config->any_image)
		failed = root < 0 ? errno : below_open(root, path, true, &handle);
	else
		handle = client_find(client, path, true);
	if (failed == EACCES)
		return fail(answer,
			    "the file is on a filesystem with a server, which may not answer");
	if (handle < 0 || fstat(handle, &status) < 0)
		return fail(answer, "the file is not there");
	if (!S_ISREG(status.st_mode))
		return fail(answer, "it is not a regular file");
	if (!config->any_image && !client_may_read(client, handle))
		return fail(answer, "this user may not read the file");
	if (status.st_mode & S_IWOTH)
		return fail(answer,
			    "everybody may change the file, so that a place that is safe now "
			    "may not stay so");
	*ret_fd = regular_file_reopen(handle, MAX_FILE_BYTES);
	return *ret_fd < 0 ? fail(answer, "the file cannot be opened, or is too large") : 0;
}

/* Adds the symbols of the file's debug file, if there is one that the client may read. */
static void add_debug_file(const struct files_config *config, const struct client *client,
			   struct probe_file *file)
{
	CLEANUP_CLOSE int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	CLEANUP_CLOSE int handle = -1;
	CLEANUP_CLOSE int fd = -1;
	char path[PATH_MAX];

	if (root < 0 || !probe_file_debug_path(file, path, sizeof(path)) ||
	    below_open(root, path, true, &handle) != 0 ||
	    (!config->any_image && !client_may_read(client, handle)))
		return;
	fd = regular_file_reopen(handle, MAX_FILE_BYTES);
	if (fd >= 0)
		probe_file_add_symbols(file, fd);
}

int probe_open(const struct files_config *config, const struct client *client,
	       const struct files_probe *request, const char *text, struct files_answer *answer,
	       int *ret_fd)
{
	const char *name = strchr(text, ':'), *reason;
	CLEANUP_CLOSE int fd = -1;
	struct probe_file *file;
	char path[PATH_MAX];
	int failed;

	if (!name || text[0] != '/' || (size_t)(name - text) >= sizeof(path))
		return EINVAL;
	memcpy(path, text, (size_t)(name - text));
	path[name - text] = '\0';
	status_progress();
	failed = open_for_client(config, client, path, answer, &fd);
	if (failed)
		return failed;
	status_progress();
	file = probe_file_new(fd, &reason);
	if (!file)
		return fail(answer, reason);
	add_debug_file(config, client, file);
	answer->n_places = probe_file_find(file, name + 1, request->optimizes_nops != 0,
					   answer->places, answer->reason);
	probe_file_free(file);
	if (answer->n_places == 0)
		return ENOENT;
	*ret_fd = steal_fd(&fd);
	return 0;
}
