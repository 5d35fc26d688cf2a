/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Debuginfod child - the process that requests files from the servers
 *
 * Only this process loads libdebuginfod, so that a silent server, or a library that blocks or
 * aborts, affects no other process. The socket is a SOCK_SEQPACKET; a datagram is a message. The
 * child sends READY once. It answers each request with any number of PROGRESS and one ANSWER, which
 * carries the file's descriptor by SCM_RIGHTS if there is a file. It exits when the socket is
 * closed.
 */
#pragma once

#include "tools/symbols/elf-image.h"

#include <sys/types.h>

struct debuginfod_request {
	uint32_t size;
	uint8_t id[ELF_IMAGE_MAX_BUILD_ID];
};

enum debuginfod_kind { DEBUGINFOD_READY, DEBUGINFOD_PROGRESS, DEBUGINFOD_ANSWER };

struct debuginfod_reply {
	uint32_t kind;
	int32_t error;       /* READY, ANSWER: 0 or -errno */
	int64_t done, total; /* PROGRESS: bytes; total is 0 if unknown */
	char text[256];      /* READY with an error: the loader's message */
};

/* Runs the child process, which must be forked while the parent has one thread. SIGTERM ends it at
 * once, even while it waits for a server, and leaves no partial file in the library's cache. */
_Noreturn void debuginfod_child_run(int socket, pid_t parent);
