/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Budget - limits the memory for state that is built from captures
 *
 * Invariants: (1) no verb's peak is above the allowance, whatever the rows
 *                 [test_small_captures: memory]
 *             (2) the error names what took the memory  [test_small_captures: memory]
 * Only memory that is not shared with files is counted; pages of mapped files are not.
 */
#include "config.h"

#include "tools/common/budget.h"

#include "arch/base.h"
#include "base/clock.h"

#include <fcntl.h>
#include <glib/gi18n.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <unistd.h>

#define BASE_BYTES (UINT64_C(256) << 20)
#define BYTES_PER_BYTE 100
/* Allow more with a sanitizer: it keeps freed memory, and its shadow memory is counted, too. */
#define SCALE (PROF_SANITIZED ? 8 : 1)

/* The state that is built from each table's rows; the message puts "the " before the text. */
static const char *const states[PROF_TABLE_LAST + 1] = {
	[PROF_TABLE_STRING] = N_("texts"),
	[PROF_TABLE_IMAGE] = N_("images"),
	[PROF_TABLE_FRAME] = N_("frames"),
	[PROF_TABLE_STACK] = N_("stacks"),
	[PROF_TABLE_PROCESS] = N_("processes"),
	[PROF_TABLE_THREAD] = N_("threads"),
	[PROF_TABLE_SOURCE] = N_("events"),
	[PROF_TABLE_SYMBOL] = N_("symbols"),
	[PROF_TABLE_COUNTER] = N_("counters"),
	[PROF_TABLE_LINE] = N_("source lines"),
	[PROF_TABLE_SAMPLE] = N_("samples"),
	[PROF_TABLE_TASK] = N_("thread names and exits"),
	[PROF_TABLE_MAPPING] = N_("mappings"),
	[PROF_TABLE_SWITCH] = N_("context switches"),
	[PROF_TABLE_ALLOC] = N_("live blocks"),
	[PROF_TABLE_FREE] = N_("freed blocks"),
	[PROF_TABLE_MARK] = N_("marks and open spans"),
	[PROF_TABLE_LOG] = N_("log messages"),
	[PROF_TABLE_COUNTER_VALUE] = N_("counter values"),
	[PROF_TABLE_LOSS] = N_("losses"),
	[PROF_TABLE_METADATA] = N_("metadata"),
	[PROF_TABLE_JIT] = N_("ranges of generated code"),
	[PROF_TABLE_HEAP] = N_("heaps"),
	[PROF_TABLE_LIVE] = N_("lists of live blocks"),
	[PROF_TABLE_WAIT] = N_("waits"),
};

static struct {
	uint64_t capture_bytes;
	const char *file;    /* capture that was last added or checked */
	uint64_t base;       /* memory use before the captures, which is not charged */
	uint64_t used;       /* memory use at the last check, without `base` */
	uint64_t checked_ns; /* time of the last check */
	unsigned reading;    /* table that was read last; later growth is charged to it */
	uint64_t grown[PROF_TABLE_LAST + 1];
	int statm; /* 0: not open yet */
} budget;

static uint64_t saturating_product(uint64_t a, uint64_t b)
{
	uint64_t product;

	return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX / 2 : product;
}

uint64_t budget_bytes(void)
{
	uint64_t pages = (uint64_t)MAX_OF(sysconf(_SC_PHYS_PAGES), 1L);
	uint64_t machine = saturating_product(pages, (uint64_t)sysconf(_SC_PAGESIZE));
	uint64_t allowed = BASE_BYTES + saturating_product(budget.capture_bytes, BYTES_PER_BYTE);

	return MIN_OF(allowed, machine) * SCALE / 10 * 3;
}

static uint64_t used_bytes(void)
{
	unsigned long resident, shared;
	char text[128];
	ssize_t n;

	if (budget.statm == 0)
		budget.statm = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
	n = pread(budget.statm, text, sizeof(text) - 1, 0);
	text[MAX_OF(n, (ssize_t)0)] = '\0';
	/* Without /proc, use the size of the heap. */
	if (sscanf(text, "%*u %lu %lu", &resident, &shared) != 2 || resident < shared)
		return mallinfo2().arena + mallinfo2().hblkhd;
	return (uint64_t)(resident - shared) * (uint64_t)sysconf(_SC_PAGESIZE);
}

char *budget_describe(void)
{
	unsigned most = 0;

	for (unsigned i = 0; i <= PROF_TABLE_LAST; i++)
		if (budget.grown[i] > budget.grown[most])
			most = i;
	return g_strdup_printf(
		_("the %s of '%s' need more than %" PRIu64
		  " MiB, the limit for a capture of this size; 'profcapture cut' writes a part of it as a capture"),
		states[most] ? _(states[most]) : _("rows"), budget.file, budget_bytes() >> 20);
}

/* Memory grows by at most about a megabyte in this time, and measuring it takes as long as reading
 * a small chunk. */
#define LEAST_INTERVAL_NS 50000

static int guard(unsigned int table, void *file)
{
	uint64_t now_ns = clock_now();
	unsigned before = budget.reading;
	uint64_t all, used;

	budget.reading = table;
	budget.file = file;
	if (now_ns - budget.checked_ns < LEAST_INTERVAL_NS)
		return 0;
	budget.checked_ns = now_ns;
	all = used_bytes();
	used = all - MIN_OF(all, budget.base);
	if (used > budget.used && before <= PROF_TABLE_LAST)
		budget.grown[before] += used - budget.used;
	budget.used = used;
	return used > budget_bytes() ? PROF_OVER_BUDGET : 0;
}

void budget_begin_anew(void)
{
	int statm = budget.statm;

	memset(&budget, 0, sizeof(budget));
	budget.statm = statm;
	budget.base = used_bytes();
}

void budget_add_capture(struct prof_reader *reader, const char *file)
{
	const char *name = g_intern_string(file);

	/* Some verbs open a capture twice in a row: count it once. */
	if (name != budget.file)
		budget.capture_bytes += prof_reader_info(reader)->bytes;
	budget.file = name;
	prof_reader_set_guard(reader, guard, (void *)(uintptr_t)name);
}
