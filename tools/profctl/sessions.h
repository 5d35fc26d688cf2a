/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "tools/profctl/transport.h"

#include <stdint.h>

/* A session of the system's profd, as it was when asked. */
struct session_info {
	uint32_t id, uid;
	char *state;
	GVariant *options; /* a{sv} */
	uint64_t start_ns, samples, events, lost, bytes;
};

/* Those that the caller may see, by id: of struct session_info, to be unreffed. Waits for the
 * answer so long at most. CLI_ERROR. */
GPtrArray *sessions_get(const struct transport *transport, int patience_ms, GError **error);

#define SESSIONS_PATIENCE_MS 20000

/* "pid 12, 13" or "system" or the command, of harmless characters; g_free. */
char *session_info_target(const struct session_info *session);
