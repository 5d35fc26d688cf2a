/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Pager - long text on a terminal, a page at a time
 *
 * PROFCTL_PAGER, else PAGER, else less, with LESS=FRX if that is unset: it exits at once if the
 * text fits. An empty value, "cat" or a missing program means no pager.
 */
#pragma once

#include "tools/common/out.h"

/* Sends all further standard output to the pager, if it is a terminal. Query properties of the
 * terminal, such as colors and columns, before this. */
void pager_start(void);
/* Waits until the pager ends; returns true if there was one. Call it after out_flush(). */
bool pager_end(void);
