/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/files-protocol.h"

#include <gio/gio.h>
#include <stdbool.h>

/* The process that reads /proc and opens files for one session. It is replaced when it gets
 * stuck. */
struct files;

struct files_listener {
	/* The answer. The listener owns fd; on failure fd is -1, and the error says why. */
	void (*snapshot)(const struct files_snapshot *request, uint32_t tag, int fd,
			 const GError *error, void *data);
	void (*image)(const struct files_answer *answer, int fd, void *data);
	/* Data of this process did not come in time, and is left out. */
	void (*stuck)(pid_t pid, uid_t uid, bool is_file, void *data);
};

struct files *files_new(const struct files_config *config, const struct files_listener *listener,
			void *data, GError **error);
/* Kills it without calling the listener. */
void files_free(struct files *files);

#define FILES_READ_FIRST 0x01 /* the targets are enough, if the config names any */
#define FILES_READ_NO_MAPS 0x02

/* The listener answers each request once, possibly before these return. `tag` comes back with the
 * answer. pid 0: all processes. `what`: FILES_READ_*. */
void files_read_processes(struct files *files, pid_t pid, unsigned what, uint32_t tag);
/* Reads the memory usage of each process; answered like the others. At most ENGINE_MAX_USAGE_PIDS
 * pids, in ascending order of their absolute values. Negative: without what takes long. */
void files_read_memory_usage(struct files *files, const int32_t *pids, unsigned n, uint32_t tag);
void files_open_image(struct files *files, const struct files_image *image, const char *path);
