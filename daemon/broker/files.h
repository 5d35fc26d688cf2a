/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/files-protocol.h"

#include <gio/gio.h>
#include <stdbool.h>

/* The process that reads /proc and opens files for one session; another one takes its place
 * where it gets stuck. */
struct files;

struct files_listener {
	/* What was asked for; fd is the listener's. Without a descriptor, why. */
	void (*snapshot)(const struct files_snapshot *request, uint32_t tag, int fd,
			 const GError *error, void *data);
	void (*image)(const struct files_answer *answer, int fd, void *data);
	/* Something of this process's did not come in time, and is left out. */
	void (*stuck)(pid_t pid, uid_t uid, bool is_file, void *data);
};

struct files *files_new(const struct files_config *config, const struct files_listener *listener,
			void *data, GError **error);
/* Kills it, without calling the listener. */
void files_free(struct files *files);

#define FILES_READ_FIRST 0x01 /* the targets are enough, where the config names some */
#define FILES_READ_NO_MAPS 0x02

/* Each is answered once, by the listener, perhaps before these return. `tag` comes back with the
 * answer. Of all processes that is, for pid 0. `what`: FILES_READ_*. */
void files_read_processes(struct files *files, pid_t pid, unsigned what, uint32_t tag);
/* How much memory each of them takes; answered as the others are. At most ENGINE_MAX_FOOTPRINTS,
 * rising but for the sign; negative: without what takes long. */
void files_read_footprints(struct files *files, const int32_t *pids, unsigned n, uint32_t tag);
void files_open_image(struct files *files, const struct files_image *image, const char *path);
