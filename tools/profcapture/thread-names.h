/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Thread-names - what a thread was called at a time
 *
 * A thread has the name of who created it until it gets one of its own, and programs rename threads
 * by what they do. The rows of the task table say what a thread is called from then on; the
 * dictionary has the last name only.
 */
#pragma once

#include "tools/profcapture/capture.h"

struct thread_names;

/* NULL: failure. The capture is borrowed. */
struct thread_names *thread_names_read(struct capture *capture, GError **error);
void thread_names_free(struct thread_names *names);
/* The name of a thread (index of names) at a relative time, interned; NULL: it has none. */
const char *thread_names_at(const struct thread_names *names, uint32_t thread, int64_t time_ns);
/* When it got its next name; INT64_MAX: never. */
int64_t thread_names_until(const struct thread_names *names, uint32_t thread, int64_t time_ns);
/* How many different names it had, but for the one that it inherited; 0: none is known. */
unsigned thread_names_count(const struct thread_names *names, uint32_t thread);
/* Whether it ever had that name. */
bool thread_names_has(const struct thread_names *names, uint32_t thread, const char *name);
