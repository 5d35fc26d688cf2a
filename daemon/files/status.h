/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Maps the page of struct files_status that is shared with the broker. Returns false on failure. */
bool status_open(int fd);
/* Begins the next request. Returns false if another process handles it. */
bool status_begin(uint32_t serial);
/* Called before each file, so that the broker's stall time begins anew. */
void status_progress(void);
void status_set_pid(pid_t pid);
/* Reports that the snapshot is complete up to `bytes`. */
void status_set_bytes(uint64_t bytes);
uint64_t status_bytes(void);
