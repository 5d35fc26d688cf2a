/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Mark-load, tracepoints of lttng-ust, whose macros include this file many times. */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER prof_bench
#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "tests/bench/mark-load-tracepoints.h"

#if !defined(MARK_LOAD_TRACEPOINTS_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define MARK_LOAD_TRACEPOINTS_H

#include <lttng/tracepoint.h>
#include <stdint.h>

LTTNG_UST_TRACEPOINT_EVENT(prof_bench, flat, LTTNG_UST_TP_ARGS(), LTTNG_UST_TP_FIELDS())
LTTNG_UST_TRACEPOINT_EVENT(prof_bench, arguments_of_20_byte,
			   LTTNG_UST_TP_ARGS(uint64_t, width, uint64_t, height),
			   LTTNG_UST_TP_FIELDS(lttng_ust_field_integer(uint64_t, width, width)
						       lttng_ust_field_integer(uint64_t, height,
									       height)))

#endif

#include <lttng/tracepoint-event.h>
