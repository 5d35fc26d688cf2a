/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Control client - the process's end of the connection that its arenas come by
 *
 * System calls and nothing else: no allocation, no lock, no signal. Every wait ends at the caller's
 * deadline, a time of CLOCK_MONOTONIC in ns. errno is the caller's to keep.
 */
#pragma once

#include "libcollector/control.h"

#define CONTROL_MAX_ADDRESSES 4
#define CONTROL_MAX_PATH 108 /* sockaddr_un.sun_path */

struct control_address {
	uint32_t n_bytes;            /* of path; abstract names begin with a 0 and have no other */
	char path[CONTROL_MAX_PATH]; /* as in sockaddr_un */
};

/* What PROF_CONTROL says. */
struct control_addresses {
	uint32_t n;
	struct control_address addresses[CONTROL_MAX_ADDRESSES];
	uint8_t token[CONTROL_TOKEN_BYTES];
};

/* Entries that are not understood or too long are passed over. False where no address is left. */
bool control_parse(const char *text, struct control_addresses *ret_addresses);

/* A connection, and how to know that the number is still that socket's. */
struct control_connection {
	int fd;        /* -1: none */
	bool is_asked; /* an answer is to come */
	uint64_t cookie;
};

/*
 * Connects, says hello, and gets the arena's memfd, which the caller closes. Returns 0, a positive
 * enum control_status where the engine refuses, -EPROTO for an answer that is none, -ETIMEDOUT, or
 * -errno of the last address.
 */
MUST_CHECK int control_connect(const struct control_addresses *addresses,
			       const struct control_hello *hello, uint64_t deadline_ns,
			       struct control_connection *ret_connection, int *ret_memfd);
/*
 * Another arena. -EBADF where the program has closed the connection, or its number is something
 * else's now. After -ETIMEDOUT the answer is still to come, and what is asked for next is that; a
 * deadline that is over is for what is there.
 */
MUST_CHECK int control_ask(struct control_connection *connection,
			   const struct control_request *request, uint64_t deadline_ns,
			   int *ret_memfd);
/* Takes a socket over, or closes it. */
MUST_CHECK int control_adopt(int fd, struct control_connection *ret_connection);
/* Whether it is still that socket. */
bool control_is_open(const struct control_connection *connection);
/* Whether it is, and nobody is at the other end any more. */
bool control_is_left(const struct control_connection *connection);
/* Packets of a certain length, with at most one descriptor, or -1. -EPIPE where the other end is
 * closed. */
MUST_CHECK int control_send(int fd, const void *packet, size_t bytes, uint64_t deadline_ns);
MUST_CHECK int control_receive(int fd, void *packet, size_t bytes, uint64_t deadline_ns,
			       int *ret_fd);
/* Closes the socket, and nothing else that may have its number. */
void control_disconnect(struct control_connection *connection);

uint64_t control_now_ns(void);
