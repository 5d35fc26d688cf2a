/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

/* Makes the only thread, for a process that cannot make one later. Without this call, threads are
 * made when needed. */
void deferred_close_start(void);
/* Closes a descriptor on another thread, however long that takes. Ignores -1. Any thread. */
void deferred_close(int fd);
