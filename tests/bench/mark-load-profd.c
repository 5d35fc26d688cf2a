/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Mark-load with libprofcollector. */
#include "libcollector/prof-collector.h"
#include "tests/bench/mark-load.h"

bool load_mark(void)
{
	return prof_mark_instant("bench", "flat", NULL, 0);
}

bool load_arguments(uint64_t width, uint64_t height)
{
	const struct prof_arg args[2] = {
		{ .name = "width", .kind = PROF_ARG_U64, .value.u64 = width },
		{ .name = "height", .kind = PROF_ARG_U64, .value.u64 = height },
	};

	return prof_mark_instant("bench", "a name of 20 bytes..", args, 2);
}
