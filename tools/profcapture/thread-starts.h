/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Thread-starts - the functions with which threads began
 *
 * A start function is known only if a sample or a wait of the thread has a complete stack with a
 * function of the program: the start function is the outermost one.
 */
#pragma once

#include "tools/profcapture/reader.h"
#include "tools/profile/functions.h"

struct thread_starts {
	struct functions *functions;
	GArray *of; /* uint32_t: function by thread (index in names); FUNCTION_NO_STACK: unknown */
};

bool thread_starts_read(struct thread_starts *starts, struct reader *reader, GError **error);
void thread_starts_done(struct thread_starts *starts);
/* Returns the start function of a thread; FUNCTION_NO_STACK: unknown. */
uint32_t thread_starts_of(const struct thread_starts *starts, uint32_t thread);
