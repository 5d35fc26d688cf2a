/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "libcollector/attach.h"

/* Called by the hook that finds ATTACH_REQUESTED in heap_mode. Registers the process, if possible.
 * Preserves errno. */
void heap_attach_answer(void);
