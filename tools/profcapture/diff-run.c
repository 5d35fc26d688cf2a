/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "config.h"

#include "tools/profcapture/diff-run.h"

#include "tools/profcapture/spans.h"

#include <string.h>

static struct diff_count *count_of(GArray *counts, uint32_t index)
{
	if (counts->len <= index)
		g_array_set_size(counts, index + 1);
	return &((struct diff_count *)(void *)counts->data)[index];
}

void diff_count_add(struct diff_count *to, const struct diff_count *count)
{
	to->count += count->count;
	to->events += count->events;
	to->squares += count->squares;
}

static void set_range(struct diff_run *run)
{
	run->from_ns = MAX_OF(run->reader->from_ns, INT64_C(0));
	run->to_ns =
		MAX_OF(MIN_OF(run->reader->to_ns, run->reader->capture->duration_ns), run->from_ns);
}

unsigned diff_run_block(const struct diff_run *run, int64_t time_ns)
{
	int64_t in = MIN_OF(MAX_OF(time_ns, run->from_ns), run->to_ns) - run->from_ns;
	double share = (double)in / (double)(run->to_ns - run->from_ns + 1);

	return MIN_OF((unsigned)(share * NOISE_BLOCKS), NOISE_BLOCKS - 1u);
}

/* Counts one event. Returns the block that it is in. */
static unsigned count_event(struct diff_run *run, uint32_t key, int64_t time_ns, double count)
{
	const struct diff_count one = { count, 1, count * count };
	unsigned block = diff_run_block(run, time_ns);

	diff_count_add(count_of(run->counts, key), &one);
	diff_count_add(&run->all, &one);
	run->blocks[block] += count;
	return block;
}

uint32_t diff_run_key(const struct diff_run *run, uint32_t node)
{
	return run->diff->paths                     ? node
	       : run->diff->measure == DIFF_SAMPLES ? diff_run_node(run, node)->entity
						    : memory_node_at(&run->memory.tree, node)->site;
}

/*
 * Interrupts work for the machine, not for the interrupted program. The list has the entry points
 * of each architecture and the functions that they run, but not those of page faults and system
 * calls, which the program causes.
 */
bool diff_is_interrupt(const struct function *function)
{
	static const char *const prefixes[] = {
		"asm_sysvec_",      "sysvec_",          "asm_common_interrupt",
		"common_interrupt", "ret_from_intr",    "irqentry_exit",
		"irq_exit",         "__irq_exit",       "__do_softirq",
		"do_softirq",       "handle_softirqs",  "apic_timer_interrupt",
		"el0t_64_irq",      "el1h_64_irq",      "el0_interrupt",
		"el1_interrupt",    "do_IRQ",           "do_irq",
		"timer_interrupt",  "handle_riscv_irq",
	};

	if (strcmp(function->kind, "kernel") != 0)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++)
		if (g_str_has_prefix(function->name, prefixes[i]))
			return true;
	return false;
}

/* Reads the samples. Drops those in interrupts, except with --mode kernel. */
static bool read_samples(struct diff_run *run, const char *file, GError **error)
{
	const struct diff *diff = run->diff;
	struct profile *profile = &run->profile;
	g_autofree bool *is_interrupt = NULL;
	guint kept = 0;

	if (!reader_open(run->reader, file, error))
		return false;
	run->filters = diff->filters;
	if (!frame_filters_open(&run->filters, error))
		return false;
	if (frame_filters_any(&run->filters))
		profile->filters = &run->filters;
	profile->mode = diff->mode;
	profile->inlined = diff->inlined;
	profile->wants_tree = profile->wants_samples = true;
	if (!profile_run(profile, run->reader, error))
		return false;
	run->functions = profile->functions;
	set_range(run);
	is_interrupt = g_new0(bool, profile->tree.nodes->len);
	for (uint32_t i = 1; diff->mode != PROFILE_KERNEL && i < profile->tree.nodes->len; i++) {
		const struct profile_node *node = diff_run_node(run, i);

		is_interrupt[i] = is_interrupt[node->parent] ||
				  diff_is_interrupt(functions_at(run->functions, node->entity));
		run->interrupts += is_interrupt[i] ? (double)node->count.self.weight : 0;
	}
	for (guint i = 0; i < profile->each->len; i++) {
		const struct profile_sample *sample =
			&g_array_index(profile->each, struct profile_sample, i);

		if (is_interrupt[sample->node])
			continue;
		count_event(run, diff_run_key(run, sample->node), sample->time_ns,
			    (double)sample->weight);
		g_array_index(profile->each, struct profile_sample, kept++) = *sample;
	}
	g_array_set_size(profile->each, kept);
	return true;
}

static void allocated(int64_t time_ns, const struct memory_block *block, double blocks, void *data)
{
	struct diff_run *run = data;
	uint32_t key = diff_run_key(run, block->node);
	double count = run->diff->measure == DIFF_CALLS ? blocks : blocks * (double)block->size;
	unsigned at;

	/* The range is known only once the capture is open. */
	set_range(run);
	at = count_event(run, key, time_ns, count);
	if (run->buckets->len < (key + 1) * NOISE_BLOCKS)
		g_array_set_size(run->buckets, (key + 1) * NOISE_BLOCKS);
	g_array_index(run->buckets, double, key *NOISE_BLOCKS + at) += count;
}

static bool read_memory(struct diff_run *run, const char *file, GError **error)
{
	struct memory *memory = &run->memory;

	memory->within_ns = UINT64_MAX;
	memory->inlined = run->diff->inlined;
	memory->by_caller = !run->diff->paths;
	memory->watch = allocated;
	memory->watch_data = run;
	if (!memory_run(memory, file, error))
		return false;
	run->functions = memory->tree.functions;
	set_range(run);
	if (run->diff->measure != DIFF_PEAK)
		return true;
	/* Use the bytes of each function at the overall peak, not all that it allocated. */
	g_array_set_size(run->counts, 0);
	for (uint32_t i = 0; i < memory->entities->len; i++) {
		const struct memory_counts *counts =
			&g_array_index(memory->entities, struct memory_counts, i);

		if (counts->is_there)
			*count_of(run->counts, i) =
				(struct diff_count){ .count = counts->peak_bytes,
						     .events = counts->allocations };
	}
	run->all.count = memory->all.peak_bytes;
	return true;
}

static void count_mark(const struct span *span, void *data)
{
	struct diff_run *run = data;

	if (span->kind == SPAN_NO_BEGIN || g_strcmp0(span->name, run->diff->mark) != 0 ||
	    span->start_ns < run->reader->from_ns || span->start_ns > run->reader->to_ns ||
	    !reader_wants_thread_at(run->reader, span->thread, span->start_ns))
		return;
	run->weights[diff_run_block(run, span->start_ns)]++;
	run->marks++;
}

bool diff_run_weigh(struct diff_run *run, GError **error)
{
	const struct diff *diff = run->diff;
	double seconds = (double)(run->to_ns - run->from_ns) / 1e9;

	if (diff->norm == DIFF_BY_MARK &&
	    (!capture_check(run->reader->capture, PROF_TABLE_MARK, error) ||
	     !spans_read(run->reader->capture, count_mark, run, error) ||
	     (run->marks == 0 && !reader_no_mark(run->reader, diff->mark, error))))
		return false;
	/* Weight a block by its samples even for totals of a run: noise is how functions share the
	 * block's CPU time, not how much CPU time the block had. */
	for (unsigned i = 0; i < NOISE_BLOCKS; i++) {
		if (diff->norm != DIFF_BY_MARK)
			run->weights[i] = diff->norm == DIFF_BY_SAMPLES ? run->blocks[i]
					  : diff->norm == DIFF_BY_TIME  ? seconds / NOISE_BLOCKS
					  : diff->measure == DIFF_SAMPLES && run->all.count > 0
						  ? run->blocks[i] / run->all.count
						  : 1.0 / NOISE_BLOCKS;
		run->weight += run->weights[i];
	}
	return true;
}

GHashTable *diff_builds(const struct names *names)
{
	GHashTable *builds = g_hash_table_new(g_str_hash, g_str_equal);

	for (guint i = NAMES_LOST + 1; i < names->images->len; i++)
		if (names_image_at(names, i)->build_id)
			g_hash_table_add(builds, (gpointer)names_image_at(names, i)->build_id);
	return builds;
}

bool diff_run_read(struct diff *diff, unsigned side, const char *file, GError **error)
{
	struct diff_run *run = g_new0(struct diff_run, 1);
	GArray *const shared[] = { diff->options.pids, diff->options.tids, diff->options.cpus };
	bool is_memory = diff->measure != DIFF_SAMPLES;

	g_ptr_array_add(diff->runs, run);
	diff->n_runs[side]++;
	run->diff = diff;
	run->side = side;
	run->reader = is_memory ? &run->memory.reader : &run->samples;
	*run->reader = diff->options;
	for (unsigned i = 0; i < ARRAY_SIZE(shared); i++)
		if (shared[i])
			g_array_ref(shared[i]);
	if (run->reader->comms)
		g_ptr_array_ref(run->reader->comms);
	run->counts = g_array_new(FALSE, TRUE, sizeof(struct diff_count));
	run->buckets = g_array_new(FALSE, TRUE, sizeof(double));
	run->rows = g_array_new(FALSE, TRUE, sizeof(uint32_t));
	if (!(is_memory ? read_memory : read_samples)(run, file, error))
		return false;
	run->builds = diff_builds(run->reader->capture->names);
	capture_warn(run->reader->capture);
	return true;
}

void diff_run_free(gpointer data)
{
	struct diff_run *run = data;

	g_array_unref(run->counts);
	g_array_unref(run->buckets);
	g_array_unref(run->rows);
	g_clear_pointer(&run->builds, g_hash_table_unref);
	profile_done(&run->profile);
	frame_filters_done(&run->filters);
	memory_done(&run->memory);
	reader_done(&run->samples);
	g_free(run);
}
