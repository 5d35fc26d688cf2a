/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <gio/gio.h>
#include <stdbool.h>

/* Drops privileges. Must be called before the first thread is made and the first byte of a client
 * is read. */
bool sandbox_enter(GError **error);
/* Must be called before sandbox_enter() if profd will place probes in programs. */
void sandbox_keep_probes(void);
/* The two halves of sandbox_enter(), for tests. */
bool sandbox_drop_capabilities(GError **error);
bool sandbox_filter(GError **error);
