/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Attach - how profd makes a process with libprofpreload-memory.so start recording
 *
 * A dormant process does not wait for anything: this library adds no thread, descriptor or shared
 * page. A requester that may write the process's memory (ptrace(2)) finds struct attach_request by
 * its magic in the library's data, writes a request, and then sets ATTACH_REQUESTED in the word
 * that every hook reads anyway. The next hook tries to register the process and writes the result.
 */
#pragma once

#include "arch/base.h"

#include <assert.h>

#define ATTACH_MAGIC                                                                              \
	{                                                                                         \
		0x7f, 'P', 'r', 'o', 'f', 'W', 'a', 'k', 'e', '\n', 0xe3, 0x1d, 0x95, 0x06, 0x5a, \
			0xc8                                                                      \
	}
#define ATTACH_MAGIC_BYTES 16u
#define ATTACH_ALIGNMENT 64u /* alignment of the structure */
#define ATTACH_VERSION 1u
#define ATTACH_CONTROL_BYTES 1024u /* NUL-terminated, like the settings */
#define ATTACH_SETTINGS_BYTES 200u
#define ATTACH_REQUESTED 0x40u /* flag in *mode */

struct attach_request {
	uint8_t magic[ATTACH_MAGIC_BYTES];
	uint32_t version;
	uint32_t bytes; /* sizeof(struct attach_request) */
	uint32_t *mode; /* address, in the recorded process, of the word with ATTACH_REQUESTED */
	/* Written by the requester. `requested` is written last, and rises with each request. */
	char control[ATTACH_CONTROL_BYTES];   /* same syntax as PROF_CONTROL */
	char settings[ATTACH_SETTINGS_BYTES]; /* same syntax as PROF_MEMORY */
	uint32_t requested;
	/* Written by the process. `received` is written last: it becomes equal to `requested`. */
	int32_t status; /* 0, an enum control_status, or -errno */
	uint32_t received;
	uint8_t reserved[4];
};
static_assert(offsetof(struct attach_request, control) == 32 &&
		      offsetof(struct attach_request, requested) == 1256 &&
		      offsetof(struct attach_request, received) == 1264 &&
		      sizeof(struct attach_request) == 1272,
	      "attach_request");
