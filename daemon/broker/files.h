/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/files-protocol.h"

#include <gio/gio.h>
#include <stdbool.h>

/* Reads /proc and opens files for one session, in a process that is replaced when it is stuck. */
struct files;

struct files_listener {
	/* The answers. The listener owns fd. On failure, fd is -1, and `error` or answer->error has
	 * the reason. */
	void (*snapshot)(const struct files_snapshot *request, uint32_t tag, int fd,
			 const GError *error, void *data);
	void (*image)(const struct files_answer *answer, int fd, void *data);
	/* Called when data of process `pid` did not arrive in time. A part of the data may be
	 * omitted. */
	void (*stuck)(pid_t pid, uid_t uid, bool is_file, void *data);
};

struct files *files_new(const struct files_config *config, const struct files_listener *listener,
			void *data, GError **error);
/* Kills the worker processes without calling the listener. */
void files_free(struct files *files);

#define FILES_READ_FIRST 0x01 /* read only the targets, if the config names any */
#define FILES_READ_NO_MAPS 0x02

/* The listener is called once for each request, perhaps before these functions return. For a
 * snapshot, it gets the request's `tag`. pid 0: all processes. `what`: FILES_READ_*. */
void files_read_processes(struct files *files, pid_t pid, unsigned what, uint32_t tag);
/* Reads the usage (FILES_USAGE_*) of at most ENGINE_MAX_USAGE_PIDS processes, or the stacks of as
 * many threads. `pids` must be sorted by absolute value. Negative pid: omit the data that takes
 * long to read. */
void files_read_usage(struct files *files, unsigned usage, const int32_t *pids, unsigned n,
		      uint32_t tag);
void files_open_image(struct files *files, const struct files_image *image, const char *path);
