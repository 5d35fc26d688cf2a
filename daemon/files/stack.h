/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/files/buffer.h"

/* Adds a SNAPSHOT_STACK: the stack of a sleeping thread, and what the thread waits for. `dir`: the
 * thread's directory in /proc. Adds nothing if the thread runs, may not be read, or executes 32-bit
 * code. Usually takes about 20 us, but may block forever. */
void stack_add(struct buffer *buffer, int dir, pid_t tid);
