/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

/* Drops uid, groups and capabilities and lowers limits. Call it before threads are created. Cannot
 * be undone. max_bytes: of the capture; 0 = no limit. */
bool sandbox_drop_privileges(uint64_t max_bytes, GError **error);
/* Allows the system calls that draining and writing need and no others, in all threads. */
bool sandbox_filter(GError **error);
