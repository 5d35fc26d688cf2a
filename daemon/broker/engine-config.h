/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/broker/counter-files.h"
#include "daemon/broker/engine.h"
#include "daemon/broker/options.h"
#include "daemon/broker/perf.h"

/* Sends the options, the capture, and open files of /proc and /sys. Must be called after
 * perf_open_all(). */
bool engine_config_send(struct engine *engine, const struct options *options,
			const struct perf_plan *plan, uint32_t session, int capture_fd,
			GError **error);
/* Sends the fields of tracepoints, and the arguments of static probes. */
bool engine_config_send_fields(struct engine *engine, const struct perf_plan *plan, GError **error);
/* Sends the open files with the machine's counters. */
bool engine_config_send_counters(struct engine *engine, const struct counter_files *files,
				 GError **error);
