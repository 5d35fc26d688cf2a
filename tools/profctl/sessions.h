/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "tools/profctl/transport.h"

#include <stdint.h>

/* A session of the system's profd, at the time of the query. */
struct session_info {
	uint32_t id, uid;
	char *state;
	GVariant *options; /* a{sv} */
	uint64_t start_ns, samples, events, lost, bytes;
};

/* Returns the sessions that the caller may see, by id: of struct session_info, to be unreffed.
 * Waits at most that long for the answer. CLI_ERROR. */
GPtrArray *sessions_get(const struct transport *transport, int patience_ms, GError **error);

#define SESSIONS_PATIENCE_MS 20000

/* Returns "pid 12, 13", "system" or the command, in harmless characters; g_free. */
char *session_info_target(const struct session_info *session);
