/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A library with one empty function, to measure a call of prof_mark_instant() without its body. */
#include "tests/bench/bench-mark-empty.h"

bool bench_mark_empty(const char *group, const char *name, const struct prof_arg *args,
		      size_t n_args)
{
	return false;
}
