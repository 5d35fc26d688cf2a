/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/broker/options.h"
#include "daemon/broker/perf.h"

/* The body of MESSAGE_CONFIG: struct message_config and the metadata behind it; has_kallsyms is
 * the caller's. `plan` is one that was opened. */
GByteArray *engine_config_new(const struct options *options, const struct perf_plan *plan,
			      uint32_t session);
