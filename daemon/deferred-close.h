/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

/* Makes the only thread now, for a process that cannot make threads later. Without this call,
 * threads are made when needed. */
void deferred_close_start(void);
/* Closes a descriptor on another thread, which may take any time. Ignores -1. Any thread. */
void deferred_close(int fd);
