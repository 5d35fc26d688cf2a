/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Mark-load with sysprof-capture-4, which takes a text instead of arguments, and does not report
 * losses. First checks whether there is a recorder, to avoid reading the clock and formatting the
 * text in vain.
 */
#include "tests/bench/mark-load.h"

#include <inttypes.h>
#include <sysprof-capture.h>

bool load_mark(void)
{
	if (!sysprof_collector_is_active())
		return false;
	sysprof_collector_mark(SYSPROF_CAPTURE_CURRENT_TIME, 0, "bench", "flat", NULL);
	return true;
}

bool load_arguments(uint64_t width, uint64_t height)
{
	if (!sysprof_collector_is_active())
		return false;
	sysprof_collector_mark_printf(SYSPROF_CAPTURE_CURRENT_TIME, 0, "bench",
				      "a name of 20 bytes..", "width %" PRIu64 " height %" PRIu64,
				      width, height);
	return true;
}
