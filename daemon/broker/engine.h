/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/protocol.h"

#include <gio/gio.h>
#include <stdbool.h>

/* A running profd-engine: a process and its socket. */
struct engine;

struct engine_listener {
	/* Called for each message, if its type is known and its length valid. Counts in the message
	 * are not checked. */
	void (*message)(uint32_t type, const void *body, size_t bytes, void *data);
	/* Called after the process has exited and all its messages are delivered. The function may
	 * free the engine. */
	void (*gone)(int wait_status, void *data);
};

/* max_bytes: maximum size of the capture, which even an engine that was taken over cannot exceed by
 * much; 0: unlimited. */
struct engine *engine_new(const struct engine_listener *listener, void *data, uint64_t max_bytes,
			  GError **error);
/* Kills the engine if it still runs. Does not call the listener. */
void engine_free(struct engine *engine);
void engine_kill(struct engine *engine);
/* Stops waiting for a killed engine that does not exit, and charges it to the user
 * (stall-quota.h). */
void engine_abandon(struct engine *engine, uid_t uid);
/* Starts or stops receiving messages. While receiving is stopped, messages wait in the socket; when
 * the socket is full, the engine's process waits. */
void engine_set_reading(struct engine *engine, bool reading);

/* Returns the CPU time that the engine has used, in ns; 0 if it has exited. */
int64_t engine_cpu_ns(const struct engine *engine);
/* Returns whether one of the engine's threads runs, or waits for a CPU or a disk. */
bool engine_is_busy(const struct engine *engine);
/* Returns whether many messages wait because the engine does not read. */
bool engine_is_behind(const struct engine *engine);
/* Sends the message, or queues a copy, with its descriptors, until there is room. Never blocks.
 * Fails if the queue is full. Succeeds if the engine has died, because `gone` reports that. */
bool engine_send(struct engine *engine, uint32_t type, const void *body, size_t bytes,
		 const int *fds, unsigned n_fds, GError **error);
