/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "libcollector/wake.h"

/* Called by the hook that finds WAKE_ASKED in heap_mode. Registers the process, if possible; errno
 * does not change. */
void heap_wake_answer(void);
