/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

/* Drops uid, groups and capabilities, and lowers limits. Cannot be undone. Must be called before
 * threads are created. max_bytes: maximum size of the capture; 0: no limit. */
bool sandbox_drop_privileges(uint64_t max_bytes, GError **error);
/* Restricts all threads to the system calls that draining and writing need. */
bool sandbox_filter(GError **error);
