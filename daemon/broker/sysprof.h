/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/broker/control.h"

#include <gio/gio.h>

/* A session's end of the socket behind SYSPROF_CONTROL_FD. */
struct sysprof;

/* Who is taken will be answered over control_peer.connection; the others are told that there is
 * no ring. */
bool sysprof_new(control_taker take, void *data, struct sysprof **ret_sysprof, GError **error);
/* Before the session is told to stop: requests that are waiting to be read. */
void sysprof_take_rest(struct sysprof *sysprof);
/* Who still waits, or asks later, sees that the connection is closed. Takes NULL. */
void sysprof_free(struct sysprof *sysprof);
/* For the command: whoever inherits it may ask. Borrowed. */
int sysprof_target_socket(const struct sysprof *sysprof);
