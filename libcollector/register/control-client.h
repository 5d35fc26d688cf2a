/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Control client - the process's end of the connection that delivers its arenas
 *
 * Uses only system calls: no allocation, lock or signal. Every wait ends at the caller's deadline,
 * a time of CLOCK_MONOTONIC in ns. The caller preserves errno.
 */
#pragma once

#include "libcollector/control.h"

#define CONTROL_MAX_ADDRESSES 4
#define CONTROL_MAX_PATH 108 /* sockaddr_un.sun_path */

struct control_address {
	/* length of `path`; an abstract name starts with a 0 byte and has no other 0 byte */
	uint32_t n_bytes;
	char path[CONTROL_MAX_PATH]; /* as in sockaddr_un */
};

/* The parsed value of PROF_CONTROL. */
struct control_addresses {
	uint32_t n;
	struct control_address addresses[CONTROL_MAX_ADDRESSES];
	uint8_t token[CONTROL_TOKEN_BYTES];
};

/* Ignores entries that are invalid or too long. Returns false if no address is left. */
bool control_parse(const char *text, struct control_addresses *ret_addresses);

/* A connection. The cookie shows whether the descriptor still refers to the same socket. */
struct control_connection {
	int fd;            /* -1: none */
	bool is_requested; /* an answer is pending */
	uint64_t cookie;
};

/* Connects, sends a hello, and receives the arena's memfd, which the caller closes. Returns 0, a
 * control_status if the engine refuses, -EPROTO, -ETIMEDOUT, or -errno for the last address. */
MUST_CHECK int control_connect(const struct control_addresses *addresses,
			       const struct control_hello *hello, uint64_t deadline_ns,
			       struct control_connection *ret_connection, int *ret_memfd);
/*
 * Requests another arena. Returns -EBADF if the program has closed the connection or reused its
 * descriptor. After -ETIMEDOUT the answer is still pending, and the next call receives it. With a
 * deadline in the past, the call does not wait.
 */
MUST_CHECK int control_request_arena(struct control_connection *connection,
				     const struct control_request *request, uint64_t deadline_ns,
				     int *ret_memfd);
/* Takes ownership of a socket. Closes it on failure. */
MUST_CHECK int control_adopt(int fd, struct control_connection *ret_connection);
/* Returns whether the descriptor still refers to the connection's socket. */
bool control_is_open(const struct control_connection *connection);
/* Returns whether the connection is open and its other end is closed. */
bool control_is_left(const struct control_connection *connection);
/* Sends or receives a packet of a fixed length. *ret_fd: the packet's descriptor, or -1. Returns
 * -EPIPE if the other end is closed. */
MUST_CHECK int control_send(int fd, const void *packet, size_t bytes, uint64_t deadline_ns);
MUST_CHECK int control_receive(int fd, void *packet, size_t bytes, uint64_t deadline_ns,
			       int *ret_fd);
/* Closes the socket. If the descriptor's number refers to another file by now, leaves that file
 * open. */
void control_disconnect(struct control_connection *connection);
