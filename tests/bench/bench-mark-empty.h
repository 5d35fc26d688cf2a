/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <prof-collector.h>

/* Like prof_mark_instant(), but does nothing. */
PROF_PUBLIC bool bench_mark_empty(const char *group, const char *name, const struct prof_arg *args,
				  size_t n_args);
