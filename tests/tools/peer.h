/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Peer - registers a process at PROF_CONTROL with control.h alone, for tests
 */
#pragma once

#include "libcollector/control.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static inline int peer_connect_to(const char *entry)
{
	static const char path[] = "unix:", name[] = "unix-abstract:";
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	socklen_t length = sizeof(address);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (strncmp(entry, name, strlen(name)) == 0) {
		strncpy(address.sun_path + 1, entry + strlen(name), sizeof(address.sun_path) - 2);
		length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
				     strlen(address.sun_path + 1));
	} else if (strncmp(entry, path, strlen(path)) == 0) {
		strncpy(address.sun_path, entry + strlen(path), sizeof(address.sun_path) - 1);
	}
	if (fd >= 0 && connect(fd, (struct sockaddr *)&address, length) == 0)
		return fd;
	close(fd);
	return -1;
}

static inline void peer_read_token(const char *text, uint8_t *token)
{
	unsigned byte;

	for (size_t i = 0; i < CONTROL_TOKEN_BYTES && sscanf(text + 2 * i, "%2x", &byte) == 1; i++)
		token[i] = (uint8_t)byte;
}

/* Connects to the first address that accepts. Returns -1 if none does. The caller sends the
 * hello. */
static inline int peer_connect(struct control_hello *ret_hello)
{
	const char *variable = getenv(CONTROL_VARIABLE);
	char *entries = strdup(variable ? variable : ""), *entry;
	int connection = -1;

	*ret_hello = (struct control_hello){ .magic = CONTROL_HELLO_MAGIC,
					     .version = CONTROL_VERSION,
					     .bytes = CONTROL_BYTES };
	for (char *rest = entries; (entry = strsep(&rest, ",")) != NULL;)
		if (strncmp(entry, "token:", strlen("token:")) == 0)
			peer_read_token(entry + strlen("token:"), ret_hello->token);
		else if (connection < 0)
			connection = peer_connect_to(entry);
	free(entries);
	return connection;
}

/* Returns the status of the answer, and the arena's descriptor with CONTROL_OK; -1: no answer. */
static inline int peer_receive(int connection, int *ret_fd)
{
	struct control_answer answer;
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec part = { &answer, sizeof(answer) };
	struct msghdr header = { .msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof(control) };
	struct pollfd item = { .fd = connection, .events = POLLIN };

	if (poll(&item, 1, 10000) <= 0 ||
	    recvmsg(connection, &header, MSG_CMSG_CLOEXEC) != sizeof(answer))
		return -1;
	if (answer.status == CONTROL_OK)
		memcpy(ret_fd, CMSG_DATA(CMSG_FIRSTHDR(&header)), sizeof(*ret_fd));
	return (int)answer.status;
}
