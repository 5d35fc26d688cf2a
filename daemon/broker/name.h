/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <gio/gio.h>

/* A name on a bus. */
struct name;

/* Asks for it. `lost`: somebody else has it, or the bus says no, or took it away. */
struct name *name_new(GDBusConnection *connection, const char *text, void (*lost)(void *data),
		      void *data);
/* Gives it back, without waiting. `done`, which may be NULL: once, when what came before has
 * come, or when the bus does not answer in time. Nothing is called after name_free(). */
void name_release(struct name *name, void (*done)(void *data));
void name_free(struct name *name);
