/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A library whose only function does nothing: what it costs to call prof_mark_instant(),
 * whatever that does. */
#include "tests/bench/bench-mark-empty.h"

bool bench_mark_empty(const char *group, const char *name, const struct prof_arg *args,
		      size_t n_args)
{
	return false;
}
