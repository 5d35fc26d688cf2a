/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/broker/options.h"
#include "daemon/broker/perf.h"

/* Returns the body of MESSAGE_CONFIG: struct message_config, then the metadata. The caller sets
 * has_kallsyms. `plan` must be open. */
GByteArray *engine_config_new(const struct options *options, const struct perf_plan *plan,
			      uint32_t session);
