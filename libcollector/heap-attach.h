/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "libcollector/attach.h"

/* Called by the hook that finds ATTACH_REQUESTED in heap_mode. Registers the process, if possible;
 * errno does not change. */
void heap_attach_answer(void);
