/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <glib.h>
#include <stdbool.h>

/* Gives away uid, groups, capabilities and limits; threads come after it. Cannot be undone. */
bool sandbox_drop_privileges(GError **error);
/* Allows the system calls that draining and writing need and no others, in all threads. */
bool sandbox_filter(GError **error);
