/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Filter - restricts a process to a list of system calls (seccomp(2))
 *
 * The lists and their reasons are in the sandbox.c of profd, profd-engine and profd-files.
 * Invariants: (1) a filter that could not be built completely is not loaded
 *                 [test-engine-sandbox, test-broker-sandbox, test-files]
 */
#include "daemon/filter.h"

#include "arch/base.h"

#include <errno.h>

static void release(scmp_filter_ctx *context)
{
	if (*context)
		seccomp_release(*context);
}

/* Ignores calls that this architecture lacks, because nobody can make them. */
static int add(scmp_filter_ctx context, uint32_t action, const struct filter_rule *rule,
	       unsigned n_arguments)
{
	int r = seccomp_rule_add_array(context, action, rule->call, n_arguments, &rule->argument);

	return r == -EDOM ? 0 : r;
}

int filter_load(const struct filter *filter)
{
	CLEANUP(release) scmp_filter_ctx context = seccomp_init(filter->otherwise);
	int r = context ? 0 : -ENOMEM;

	if (r == 0)
		r = seccomp_attr_set(context, SCMP_FLTATR_CTL_TSYNC, 1);
	for (size_t i = 0; i < filter->n_lists; i++) {
		const struct filter_calls *list = &filter->lists[i];

		for (size_t call = 0; r == 0 && call < list->n; call++)
			r = add(context, list->action,
				&(struct filter_rule){ .call = list->calls[call] }, 0);
	}
	for (size_t i = 0; r == 0 && i < filter->n_rules; i++)
		r = add(context, SCMP_ACT_ALLOW, &filter->rules[i], 1);
	return r == 0 ? seccomp_load(context) : r;
}
