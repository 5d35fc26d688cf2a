/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/protocol.h"

#include <gio/gio.h>

/* Returns the summary for the signal Finished, a{sv}; docs/dbus.md lists its keys. */
GVariant *summary_new(const struct message_finished *finished);
/* Inserts the counters of a running session. */
void summary_add_counters(GVariantDict *dict, const struct message_progress *counters);
/* Returns a summary for an engine that died: the last counters that it reported. */
GVariant *summary_unknown(const struct message_progress *counters, uint64_t start_ns,
			  uint64_t stop_ns);
/* Returns the reason's name on D-Bus. */
const char *summary_reason(uint32_t reason);
