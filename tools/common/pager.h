/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Pager - shows long text on a terminal page by page
 *
 * Runs PROFCTL_PAGER, else PAGER, else less, with LESS=FRX if that is unset: less then exits at
 * once if the text fits. An empty value, "cat" or a missing program means no pager.
 */
#pragma once

#include "tools/common/out.h"

/* If standard output is a terminal, sends all further output to the pager. Query properties of the
 * terminal, such as colors and columns, before this. */
void pager_start(void);
/* Waits until the pager exits. Returns whether there was one. Call this after out_flush(). */
bool pager_end(void);
