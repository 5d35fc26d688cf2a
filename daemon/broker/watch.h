/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <glib-unix.h>

/* Like g_unix_fd_add(), for descriptors that are often ready and functions that do not run the main
 * loop. The source may recurse: otherwise, GLib would stop polling the descriptor during each call,
 * and wake the loop for this, with a write, a read and another poll. */
guint watch_add(int fd, GIOCondition condition, GUnixFDSourceFunc function, void *data);
