/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/broker/control.h"

#include <gio/gio.h>

/* A session's end of the socket whose other end is SYSPROF_CONTROL_FD. */
struct sysprof;

/* An accepted peer is answered over control_peer.connection; the others get the answer that they
 * have no ring. */
bool sysprof_new(control_receiver receiver, void *data, struct sysprof **ret_sysprof,
		 GError **error);
/* Takes the requests that wait to be read. Call before the session is stopped. */
void sysprof_receive_rest(struct sysprof *sysprof);
/* Threads that still wait, or ask later, see that the connection is closed. Takes NULL. */
void sysprof_free(struct sysprof *sysprof);
/* For the command: every process that inherits it may ask. Borrowed. */
int sysprof_target_socket(const struct sysprof *sysprof);
