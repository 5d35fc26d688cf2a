/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <gio/gio.h>

/* Makes deferred_close() close the descriptors that clients send on the connection. Must be called
 * before any message is served. */
void descriptors_watch(GDBusConnection *connection);
