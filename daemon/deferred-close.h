/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

/* Starts a single closing thread now, for a process that cannot start threads later. Without this
 * call, threads are started when needed. */
void deferred_close_start(void);
/* Closes a descriptor on another thread, because closing may take any time. Ignores -1. Any thread
 * may call this. */
void deferred_close(int fd);
