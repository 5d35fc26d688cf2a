/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Thread-names - the name of a thread at a time
 *
 * A thread has the name of its creator until it is renamed. A row of the task table has a thread's
 * name from the row's time on. The dictionary has only the last name.
 */
#pragma once

#include "tools/profcapture/capture.h"

struct thread_names;

/* Borrows the capture. Returns NULL on error. */
struct thread_names *thread_names_read(struct capture *capture, GError **error);
void thread_names_free(struct thread_names *names);
/* Returns the name of a thread (index in names) at time_ns, interned; NULL: no name. */
const char *thread_names_at(const struct thread_names *names, uint32_t thread, int64_t time_ns);
/* Returns when, after time_ns, the thread gets its next name; INT64_MAX: never. */
int64_t thread_names_until(const struct thread_names *names, uint32_t thread, int64_t time_ns);
/* Returns how many different names the thread had. An inherited name counts only if there is
 * no other. 0: no known name. */
unsigned thread_names_count(const struct thread_names *names, uint32_t thread);
/* Returns whether the thread ever had that name. */
bool thread_names_has(const struct thread_names *names, uint32_t thread, const char *name);
