/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/broker/control.h"

#include <gio/gio.h>

/* A session's end of the socket whose other end is SYSPROF_CONTROL_FD. */
struct sysprof;

/* `receiver` is called for each peer that requests a ring. If it accepts the peer, it answers over
 * control_peer.connection; otherwise the peer gets an answer without a ring. */
bool sysprof_new(control_receiver receiver, void *data, struct sysprof **ret_sysprof,
		 GError **error);
/* Reads the waiting requests. Must be called before the session is stopped. */
void sysprof_receive_rest(struct sysprof *sysprof);
/* Closes the connection, so that waiting and later threads see its end. NULL is allowed. */
void sysprof_free(struct sysprof *sysprof);
/* Returns the command's end of the socket pair. Every process that inherits it may send requests.
 * Borrowed. */
int sysprof_target_socket(const struct sysprof *sysprof);
