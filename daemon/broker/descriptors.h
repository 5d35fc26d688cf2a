/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <gio/gio.h>

/* Closes the descriptors that clients send on the connection with deferred_close(). Must be called
 * before any message is served. */
void descriptors_watch(GDBusConnection *connection);
