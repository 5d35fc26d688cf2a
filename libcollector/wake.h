/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Wake - what stands in a process that was started with libprofpreload-memory.so, so that it can be
 * asked to record later
 *
 * Nothing of a dormant process waits for anybody: it has no thread of ours, no descriptor, no page
 * that is shared. Who may write its memory (ptrace(2)) finds this by its magic in the library's
 * data, writes what is asked and then WAKE_ASKED into the word that every hook looks at anyway. The
 * next call of one registers the process, or not, and says so here.
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
#define WAKE_CONTROL_BYTES 1024u /* with the 0 that ends it, as the next */
#define WAKE_SETTINGS_BYTES 200u
#define WAKE_ASKED 0x40u /* in *mode */

struct wake {
	uint8_t magic[WAKE_MAGIC_BYTES];
	uint32_t version;
	uint32_t bytes; /* of all of this */
	uint32_t *mode; /* as the process sees it */
	/* By who asks; `asked` last, and one more each time. */
	char control[WAKE_CONTROL_BYTES];   /* as PROF_CONTROL */
	char settings[WAKE_SETTINGS_BYTES]; /* as PROF_MEMORY */
	uint32_t asked;
	/* By the process; `taken` last: as `asked` was. */
	int32_t status; /* 0, an enum control_status, or -errno */
	uint32_t taken;
	uint8_t reserved[4];
};
static_assert(offsetof(struct wake, control) == 32 && offsetof(struct wake, asked) == 1256 &&
		      offsetof(struct wake, taken) == 1264 && sizeof(struct wake) == 1272,
	      "wake");
