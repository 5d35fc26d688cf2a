/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Mark-load with lttng-ust. Losses are reported by the session, not to the program. */
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "tests/bench/mark-load-tracepoints.h"
#include "tests/bench/mark-load.h"

bool load_mark(void)
{
	lttng_ust_tracepoint(prof_bench, flat);
	return true;
}

bool load_arguments(uint64_t width, uint64_t height)
{
	lttng_ust_tracepoint(prof_bench, arguments_of_20_byte, width, height);
	return true;
}
