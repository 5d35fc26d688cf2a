/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Wake - the interface to ask a process with libprofpreload-memory.so to record later
 *
 * Nothing in a dormant process waits: this library adds no thread, descriptor or shared page. A
 * process that may write its memory (ptrace(2)) finds this structure by its magic in the library's
 * data, writes a request and then WAKE_ASKED into the word that every hook reads anyway. The next
 * hook registers the process, or fails, and writes the result here.
 */
#pragma once

#include "arch/base.h"

#include <assert.h>

#define WAKE_MAGIC                                                                                \
	{                                                                                         \
		0x7f, 'P', 'r', 'o', 'f', 'W', 'a', 'k', 'e', '\n', 0xe3, 0x1d, 0x95, 0x06, 0x5a, \
			0xc8                                                                      \
	}
#define WAKE_MAGIC_BYTES 16u
#define WAKE_ALIGNMENT 64u /* of the structure */
#define WAKE_VERSION 1u
#define WAKE_CONTROL_BYTES 1024u /* NUL-terminated, as the next */
#define WAKE_SETTINGS_BYTES 200u
#define WAKE_ASKED 0x40u /* in *mode */

struct wake {
	uint8_t magic[WAKE_MAGIC_BYTES];
	uint32_t version;
	uint32_t bytes; /* of all of this */
	uint32_t *mode; /* address in the process */
	/* Written by the requester; `asked` last, incremented each time. */
	char control[WAKE_CONTROL_BYTES];   /* as PROF_CONTROL */
	char settings[WAKE_SETTINGS_BYTES]; /* as PROF_MEMORY */
	uint32_t asked;
	/* Written by the process; `taken` last: the value of `asked`. */
	int32_t status; /* 0, an enum control_status, or -errno */
	uint32_t taken;
	uint8_t reserved[4];
};
static_assert(offsetof(struct wake, control) == 32 && offsetof(struct wake, asked) == 1256 &&
		      offsetof(struct wake, taken) == 1264 && sizeof(struct wake) == 1272,
	      "wake");
