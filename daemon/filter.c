/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Filter - restricts a process to a list of system calls (seccomp(2))
 *
 * The calls that every program of profd makes are here. The others and their reasons are in the
 * sandbox.c of profd, profd-engine and profd-files.
 * Invariants: (1) a filter that could not be built completely is not loaded
 *                 [test-engine-sandbox, test-broker-sandbox, test-files]
 */
#include "daemon/filter.h"

#include "arch/base.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>

static const int common_calls[] = {
	SCMP_SYS(read),           SCMP_SYS(pwrite64),     SCMP_SYS(close),
	SCMP_SYS(lseek),          SCMP_SYS(fstat),        SCMP_SYS(fstatfs),
	SCMP_SYS(ftruncate),      SCMP_SYS(memfd_create), SCMP_SYS(brk),
	SCMP_SYS(munmap),         SCMP_SYS(mremap),       SCMP_SYS(madvise),
	SCMP_SYS(futex),          SCMP_SYS(recvmsg),      SCMP_SYS(sendmsg),
	SCMP_SYS(clock_gettime),  SCMP_SYS(gettimeofday), SCMP_SYS(getpid),
	SCMP_SYS(gettid),         SCMP_SYS(getrandom),    SCMP_SYS(rt_sigaction),
	SCMP_SYS(rt_sigprocmask), SCMP_SYS(rt_sigreturn), SCMP_SYS(restart_syscall),
	SCMP_SYS(exit),           SCMP_SYS(exit_group),   SCMP_SYS(sysinfo), /* for qsort() */
};

static const struct filter_rule common_rules[] = {
	{ SCMP_SYS(mmap), SCMP_A2_64(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0) },
	{ SCMP_SYS(mprotect), SCMP_A2_64(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0) },
	{ SCMP_SYS(fcntl), SCMP_A1_64(SCMP_CMP_EQ, F_ADD_SEALS, 0) },
	{ SCMP_SYS(fcntl), SCMP_A1_64(SCMP_CMP_EQ, F_GETFL, 0) },
	{ SCMP_SYS(tgkill), SCMP_A2_64(SCMP_CMP_EQ, SIGABRT, 0) }, /* for abort() */
};

static void release(scmp_filter_ctx *context)
{
	if (*context)
		seccomp_release(*context);
}

/* Ignores calls that this architecture lacks, because no program can make them. */
static void add(scmp_filter_ctx context, uint32_t action, const struct filter_rule *rule,
		unsigned n_arguments, int *error)
{
	int r = *error ? *error
		       : seccomp_rule_add_array(context, action, rule->call, n_arguments,
						&rule->argument);

	*error = r == -EDOM ? 0 : r;
}

static void add_calls(scmp_filter_ctx context, const struct filter_calls *list, int *error)
{
	for (size_t i = 0; i < list->n; i++)
		add(context, list->action, &(struct filter_rule){ .call = list->calls[i] }, 0,
		    error);
}

static void add_rules(scmp_filter_ctx context, const struct filter_rule *rules, size_t n,
		      int *error)
{
	for (size_t i = 0; i < n; i++)
		add(context, SCMP_ACT_ALLOW, &rules[i], 1, error);
}

int filter_load(const struct filter *filter)
{
	const struct filter_calls common = { SCMP_ACT_ALLOW, common_calls,
					     ARRAY_SIZE(common_calls) };
	CLEANUP(release) scmp_filter_ctx context = seccomp_init(filter->otherwise);
	int r = context ? 0 : -ENOMEM;

	if (r == 0)
		r = seccomp_attr_set(context, SCMP_FLTATR_CTL_TSYNC, 1);
	add_calls(context, &common, &r);
	for (size_t i = 0; i < filter->n_lists; i++)
		add_calls(context, &filter->lists[i], &r);
	add_rules(context, common_rules, ARRAY_SIZE(common_rules), &r);
	add_rules(context, filter->rules, filter->n_rules, &r);
	return r == 0 ? seccomp_load(context) : r;
}
