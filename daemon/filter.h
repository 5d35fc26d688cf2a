/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <seccomp.h>
#include <stddef.h>
#include <stdint.h>

/* System calls, and what becomes of them: SCMP_ACT_*. */
struct filter_calls {
	uint32_t action;
	const int *calls;
	size_t n;
};

/* A call that is allowed where an argument is so. */
struct filter_rule {
	int call;
	struct scmp_arg_cmp argument;
};

struct filter {
	uint32_t otherwise; /* SCMP_ACT_*, for what is on no list */
	const struct filter_calls *lists;
	size_t n_lists;
	const struct filter_rule *rules;
	size_t n_rules;
};

/* For all threads of this process, for good. 0, or -errno. */
int filter_load(const struct filter *filter);
