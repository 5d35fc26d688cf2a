/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/protocol.h"

#include <gio/gio.h>
#include <stdbool.h>

/* A profd-engine that runs: a process and its socket. */
struct engine;

struct engine_listener {
	/* A message of a known type and right length; the counts inside are still the engine's
	 * claim. */
	void (*message)(uint32_t type, const void *body, size_t bytes, void *data);
	/* The process is gone, and all its messages were delivered. May free the engine. */
	void (*gone)(int wait_status, void *data);
};

/* max_bytes: of the capture, 0 = no limit; the engine cannot make it much longer, whatever
 * becomes of it. */
struct engine *engine_new(const struct engine_listener *listener, void *data, uint64_t max_bytes,
			  GError **error);
/* Kills it if it still runs, without calling the listener. */
void engine_free(struct engine *engine);
void engine_kill(struct engine *engine);
/* It was killed and does not go: nobody waits for it any more, and it counts against the user. */
void engine_abandon(struct engine *engine, uid_t uid);
/* Whether its messages are received; those that are not wait in its socket, and then it waits. */
void engine_set_reading(struct engine *engine, bool reading);

/* The time of a CPU that its threads have used, in ns; 0: it is gone. */
int64_t engine_cpu_ns(const struct engine *engine);
/* One of its threads runs, or waits for a CPU or a disk. */
bool engine_is_busy(const struct engine *engine);
/* Many messages wait for it to read. */
bool engine_is_behind(const struct engine *engine);
/* Sends the message, or keeps a copy (descriptors too) until there is room: never blocks. */
bool engine_send(struct engine *engine, uint32_t type, const void *body, size_t bytes,
		 const int *fds, unsigned n_fds, GError **error);
