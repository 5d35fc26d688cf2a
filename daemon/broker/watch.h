/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <glib-unix.h>

/* Like g_unix_fd_add(), for descriptors that are often ready and functions that do not run the main
 * loop. For a source that must not recurse, GLib stops polling the descriptor while dispatching,
 * and wakes the loop for this: with a write, a read and another poll each time. */
guint watch_add(int fd, GIOCondition condition, GUnixFDSourceFunc function, void *data);
