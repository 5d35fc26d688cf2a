/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>

/* Makes sendmsg() of descriptors to this socket fail with EPERM; for a listener, to the sockets
 * that it accepts. Returns false if the kernel cannot do this (before Linux 6.16). */
bool stranger_refuse_descriptors(int socket);
/* Reads a packet without waiting. Returns its length, which exceeds `size` if the packet was cut; 0
 * at the end; or -1 with errno. EAGAIN: no packet waits. EPROTO: the next packet has descriptors;
 * it stays unread, so pass the socket to deferred_close(). */
ssize_t stranger_receive(int socket, void *bytes, size_t size);
