/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

/* Makes the only thread there will be, for a process that may make none later. Otherwise they
 * are made when needed. */
void closer_start(void);
/* Closes a descriptor on another thread, whenever that comes to an end. Nothing for -1. Any
 * thread. */
void closer_close(int fd);
