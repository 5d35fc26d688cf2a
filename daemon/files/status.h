/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Our status, which the broker sees while we may be stuck: struct files_status in a page that is
 * shared with it. */
bool status_open(int fd);
/* Begins the next request. Returns false if another process has it. */
bool status_begin(uint32_t serial);
/* Another file is begun, so the broker's stall time begins anew. */
void status_progress(void);
void status_set_pid(pid_t pid);
/* The snapshot is complete up to there. */
void status_set_bytes(uint64_t bytes);
uint64_t status_bytes(void);
