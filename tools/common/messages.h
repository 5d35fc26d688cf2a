/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

/* Sets the locale and the message catalog. Call it first in main(), before any thread starts. */
void messages_init(void);
