/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <glib-unix.h>

/*
 * g_unix_fd_add() for descriptors that are often ready, with functions that do not run the main
 * loop. For a source that must not recurse, GLib stops polling the descriptor while it is
 * dispatched, and wakes the loop for that: a write, a read and another poll each time.
 */
guint watch_add(int fd, GIOCondition condition, GUnixFDSourceFunc function, void *data);
