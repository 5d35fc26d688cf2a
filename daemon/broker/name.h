/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <gio/gio.h>

struct name;

/* Requests the name. Calls `lost` if another client has it, or if the bus refuses it or takes it
 * away. */
struct name *name_new(GDBusConnection *connection, const char *text, void (*lost)(void *data),
		      void *data);
/* Releases the name without waiting. Calls `done`, which may be NULL, once: after all messages that
 * came before the release, or when the bus does not answer in time. After name_free() nothing is
 * called. */
void name_release(struct name *name, void (*done)(void *data));
void name_free(struct name *name);
