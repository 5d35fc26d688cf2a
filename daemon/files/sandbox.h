/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/files-protocol.h"

#include <stdbool.h>

/* Drops everything that this session's requests do not need. If it returns false, no file may be
 * opened. */
bool sandbox_enter(const struct files_config *config);
