/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <gio/gio.h>

/* From now on descriptors that clients send on the connection are closed by closer_close();
 * before any message is served. */
void descriptors_watch(GDBusConnection *connection);
