/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/protocol.h"

#include <gio/gio.h>

/* The summary of the signal Finished, a{sv}; docs/dbus.md lists its keys. */
GVariant *summary_new(const struct message_finished *finished);
/* Inserts the counters that a session has while it records. */
void summary_add_counters(GVariantDict *dict, const struct message_progress *counters);
/* For an engine that died: the last counts that it reported. */
GVariant *summary_unknown(const struct message_progress *counters, uint64_t start_ns,
			  uint64_t stop_ns);
/* Returns the reason's name on D-Bus. */
const char *summary_reason(uint32_t reason);
