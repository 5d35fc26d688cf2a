/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <seccomp.h>
#include <stddef.h>
#include <stdint.h>

/* System calls and the action for them, SCMP_ACT_*. */
struct filter_calls {
	uint32_t action;
	const int *calls;
	size_t n;
};

/* A call that is allowed if an argument matches. */
struct filter_rule {
	int call;
	struct scmp_arg_cmp argument;
};

struct filter {
	uint32_t otherwise; /* SCMP_ACT_* for calls on no list */
	const struct filter_calls *lists;
	size_t n_lists;
	const struct filter_rule *rules;
	size_t n_rules;
};

/* Applies a filter to all threads of this process, permanently. Also allows the calls that every
 * program of profd makes. Returns 0 or -errno. */
int filter_load(const struct filter *filter);
