/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

/* Sets the locale and the message catalogue; the first call of main(), before any thread is
 * started. */
void messages_init(void);
