/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Pager - long text on a terminal, a page at a time
 *
 * PROFCTL_PAGER, else PAGER, else less, which has LESS=FRX where that is unset: it ends by itself
 * where the text fits. An empty value or "cat" is no pager, as is a program that is not there.
 */
#pragma once

#include "tools/common/out.h"

/* From here on what is written to standard output goes to the pager, if that is a terminal. What
 * depends on the terminal, as colours and columns do, is asked before. */
void pager_start(void);
/* Waits until it ends; true where there was one. After out_flush(). */
bool pager_end(void);
