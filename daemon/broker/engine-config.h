/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/broker/options.h"

/* The body of MESSAGE_CONFIG: struct message_config and the metadata behind it; has_kallsyms is the caller's. */
GByteArray *engine_config_new(const struct options *options);
