/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/files-protocol.h"

#include <stdbool.h>

/* Gives away all that this session's requests do not need. False: it did not work, and nothing
 * should be opened. */
bool sandbox_enter(const struct files_config *config);
