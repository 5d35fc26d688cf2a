/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>

/* From now on sendmsg() to this socket, and to what a listener accepts, fails with EPERM where
 * it carries descriptors. False: the kernel cannot do that, as before Linux 6.16. */
bool stranger_refuse_descriptors(int socket);
/* Reads a packet without waiting: its length, which is more than `size` where it was longer, 0
 * at the end, or -1 with errno. EAGAIN: no packet waits. EPROTO: the next packet carries
 * descriptors; it stays unread, so pass the socket to closer_close(). */
ssize_t stranger_receive(int socket, void *bytes, size_t size);
