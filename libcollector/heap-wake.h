/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "libcollector/wake.h"

/* Of the hook that finds WAKE_ASKED in heap_mode. Registers the process, if it can be; errno
 * stays. */
void heap_wake_answer(void);
