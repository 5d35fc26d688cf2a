/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <gio/gio.h>

/* From now on what clients send on the connection is closed by closer_close()'s threads; before any message is served. */
void closer_watch(GDBusConnection *connection);
/* Closes a descriptor that a client sent, whenever that comes to an end. Nothing for -1. */
void closer_close(int fd);
