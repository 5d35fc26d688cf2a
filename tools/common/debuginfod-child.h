/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Debuginfod child - the process that asks the servers
 *
 * libdebuginfod is loaded in it alone: a server that is silent, a library that waits or aborts, end
 * this process and no other. The socket is a SOCK_SEQPACKET, a datagram is a message. The child
 * says READY once, then gives each request any number of PROGRESS and one ANSWER, with the file's
 * descriptor by SCM_RIGHTS where there is one. It ends where the socket does.
 */
#pragma once

#include "tools/common/elf-image.h"

#include <sys/types.h>

struct debuginfod_request {
	uint32_t size;
	uint8_t id[ELF_IMAGE_MAX_BUILD_ID];
};

enum debuginfod_kind { DEBUGINFOD_READY, DEBUGINFOD_PROGRESS, DEBUGINFOD_ANSWER };

struct debuginfod_reply {
	uint32_t kind;
	int32_t error;       /* READY, ANSWER: 0 or -errno */
	int64_t done, total; /* PROGRESS: bytes; total is 0 where no one knows it */
	char text[256];      /* READY with an error: what the loader says */
};

/*
 * The whole of the process, which was forked while it had one thread. SIGTERM ends it at once, also
 * while it waits for a server, and leaves nothing half in the library's cache.
 */
_Noreturn void debuginfod_child_run(int socket, pid_t parent);
