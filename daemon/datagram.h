/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

/* Sends the parts as one datagram, with the descriptor `fd` unless it is -1. `flags`: MSG_DONTWAIT
 * or 0. */
bool datagram_send(int socket, const struct iovec *parts, size_t n_parts, int fd, int flags);
/* Returns the number of received bytes, 0 at end-of-file, or -1 with errno. *ret_fd: the descriptor
 * in the datagram, or -1. */
ssize_t datagram_receive(int socket, void *bytes, size_t size, int flags, int *ret_fd);
