/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Diff-side - the data of one of the two captures: samples or blocks by function or by node of its
 * call tree, in blocks of time
 */
#include "config.h"

#include "tools/profcapture/diff.h"

#include "tools/profcapture/spans.h"

#include <math.h>
#include <string.h>

static struct diff_count *count_of(GArray *counts, uint32_t index)
{
	if (counts->len <= index)
		g_array_set_size(counts, index + 1);
	return &((struct diff_count *)(void *)counts->data)[index];
}

static void add_to(struct diff_count *to, double count)
{
	to->count += count;
	to->events++;
	to->squares += count * count;
}

static void set_range(struct diff_side *side, const struct reader *reader)
{
	side->from_ns = MAX_OF(reader->from_ns, INT64_C(0));
	side->to_ns = MAX_OF(MIN_OF(reader->to_ns, reader->capture->duration_ns), side->from_ns);
}

static unsigned block_at(const struct diff_side *side, int64_t time_ns)
{
	int64_t in = MIN_OF(MAX_OF(time_ns, side->from_ns), side->to_ns) - side->from_ns;
	double share = (double)in / (double)(side->to_ns - side->from_ns + 1);

	return MIN_OF((unsigned)(share * NOISE_BLOCKS), NOISE_BLOCKS - 1u);
}

/* ---- samples --------------------------------------------------------------------------------- */

static const struct tally_node *node_at(const struct diff_side *side, uint32_t node)
{
	return &((const struct tally_node *)(void *)side->tally.tree.nodes->data)[node];
}

/*
 * Prefixes of the kernel's entries for interrupts and of the functions that they run, on each
 * architecture. Page faults and system calls do not count as interrupts, because the program causes
 * them.
 */
bool diff_is_interrupt(const char *name)
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

	for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++)
		if (g_str_has_prefix(name, prefixes[i]))
			return true;
	return false;
}

/* In kernel mode, interrupts count like all other code. A node comes after its parent. */
static void find_interrupts(const struct diff *diff, struct diff_side *side)
{
	uint32_t n = side->tally.tree.nodes->len;

	side->is_interrupt = g_new0(bool, n);
	for (uint32_t i = 1; diff->mode != TALLY_KERNEL && i < n; i++) {
		const struct tally_node *node = node_at(side, i);
		const struct function *function = functions_at(side->functions, node->entity);

		side->is_interrupt[i] = side->is_interrupt[node->parent] ||
					(strcmp(function->kind, "kernel") == 0 &&
					 diff_is_interrupt(function->name));
		if (side->is_interrupt[i])
			side->interrupts += (double)node->count.self.weight;
	}
}

static void count_samples(const struct diff *diff, struct diff_side *side)
{
	const GArray *each = side->tally.each;

	for (guint i = 0; i < each->len; i++) {
		const struct tally_sample *sample = &g_array_index(each, struct tally_sample, i);
		double weight = (double)sample->weight;

		if (side->is_interrupt[sample->node])
			continue;
		add_to(count_of(side->counts,
				diff->paths ? sample->node : node_at(side, sample->node)->entity),
		       weight);
		add_to(&side->all, weight);
		side->blocks[block_at(side, sample->time_ns)] += weight;
	}
}

static bool read_samples(struct diff *diff, struct diff_side *side, const char *file,
			 GError **error)
{
	if (!reader_open(&side->reader, file, error))
		return false;
	side->filters = diff->filters;
	if (!frame_filters_open(&side->filters, error))
		return false;
	if (frame_filters_any(&side->filters))
		side->tally.filters = &side->filters;
	side->tally.mode = diff->mode;
	side->tally.inlined = diff->inlined;
	side->tally.wants_tree = side->tally.wants_samples = true;
	if (!tally_run(&side->tally, &side->reader, error))
		return false;
	side->functions = side->tally.functions;
	set_range(side, &side->reader);
	find_interrupts(diff, side);
	count_samples(diff, side);
	return true;
}

static void fill_samples(struct diff *diff, struct diff_side *side)
{
	const GArray *each = side->tally.each;

	for (guint i = 0; i < each->len; i++) {
		const struct tally_sample *sample = &g_array_index(each, struct tally_sample, i);
		uint32_t key = diff->paths ? sample->node : node_at(side, sample->node)->entity;
		uint32_t slot;

		if (side->is_interrupt[sample->node])
			continue;
		slot = diff_row_at(diff, g_array_index(side->rows, uint32_t, key) - 1)->slot;

		if (slot)
			diff_blocks(diff, slot, side->side)[block_at(side, sample->time_ns)] +=
				(double)sample->weight;
	}
}

/* ---- memory ---------------------------------------------------------------------------------- */

struct watch {
	const struct diff *diff;
	struct diff_side *side;
};

static void allocated(int64_t time_ns, const struct memory_block *block, double blocks, void *data)
{
	const struct watch *watch = data;
	struct diff_side *side = watch->side;
	bool is_calls = watch->diff->measure == DIFF_CALLS;
	uint32_t key = watch->diff->paths ? block->node
					  : memory_node_at(&side->memory.tree, block->node)->site;
	double count = is_calls ? blocks : blocks * (double)block->size;
	struct diff_count *to = count_of(side->counts, key);
	unsigned at;

	/* The range is known only after the capture was opened. */
	set_range(side, &side->memory.reader);
	at = block_at(side, time_ns);
	if (side->buckets->len < (key + 1) * NOISE_BLOCKS)
		g_array_set_size(side->buckets, (key + 1) * NOISE_BLOCKS);
	g_array_index(side->buckets, double, key *NOISE_BLOCKS + at) += count;
	side->blocks[at] += count;
	add_to(to, count);
	add_to(&side->all, count);
}

/* Takes what each function had at the peak of the whole. */
static void take_peak(struct diff_side *side)
{
	const struct memory *memory = &side->memory;

	g_array_set_size(side->counts, 0);
	for (uint32_t i = 0; i < memory->entities->len; i++) {
		const struct memory_counts *counts =
			&g_array_index(memory->entities, struct memory_counts, i);

		if (counts->is_there)
			*count_of(side->counts, i) =
				(struct diff_count){ .count = counts->peak_bytes,
						     .events = counts->allocations };
	}
	side->all.count = memory->all.peak_bytes;
}

static bool read_memory(struct diff *diff, struct diff_side *side, const char *file, GError **error)
{
	struct watch watch = { diff, side };

	side->memory.within_ns = UINT64_MAX;
	side->memory.watch = allocated;
	side->memory.watch_data = &watch;
	side->memory.reader = side->reader;
	side->reader = (struct reader){ 0 };
	if (!memory_run(&side->memory, file, error))
		return false;
	side->functions = side->memory.tree.functions;
	set_range(side, &side->memory.reader);
	if (diff->measure == DIFF_PEAK)
		take_peak(side);
	return true;
}

static void fill_memory(struct diff *diff, const struct diff_side *side)
{
	for (uint32_t key = 0; key < side->counts->len; key++) {
		uint32_t row = g_array_index(side->rows, uint32_t, key);
		uint32_t slot = row ? diff_row_at(diff, row - 1)->slot : 0;

		for (unsigned i = 0; slot && i < NOISE_BLOCKS; i++)
			diff_blocks(diff, slot, side->side)[i] +=
				g_array_index(side->buckets, double, key *NOISE_BLOCKS + i);
	}
}

/* ---- weights --------------------------------------------------------------------------------- */

struct mark_search {
	struct reader *reader;
	struct diff_side *side;
	const char *name;
};

static void count_mark(const struct span *span, void *data)
{
	const struct mark_search *search = data;

	if (span->kind == SPAN_NO_BEGIN || g_strcmp0(span->name, search->name) != 0 ||
	    span->start_ns < search->reader->from_ns || span->start_ns > search->reader->to_ns ||
	    !reader_wants_thread_at(search->reader, span->thread, span->start_ns))
		return;
	search->side->weights[block_at(search->side, span->start_ns)]++;
	search->side->marks++;
}

static bool weigh_marks(struct diff *diff, struct diff_side *side, struct reader *reader,
			GError **error)
{
	struct mark_search search = { reader, side, diff->mark };

	return capture_check(reader->capture, PROF_TABLE_MARK, error) &&
	       spans_read(reader->capture, count_mark, &search, error) &&
	       (side->marks > 0 || reader_no_mark(reader, diff->mark, error));
}

static bool weigh(struct diff *diff, struct diff_side *side, struct reader *reader, GError **error)
{
	double seconds = (double)(side->to_ns - side->from_ns) / 1e9;

	if (diff->norm == DIFF_BY_MARK)
		return weigh_marks(diff, side, reader, error);
	/* For a run, samples are divided among its functions as by shares: when it had a CPU is not
	 * noise of how it used it. */
	for (unsigned i = 0; i < NOISE_BLOCKS; i++)
		side->weights[i] = diff->norm == DIFF_BY_SAMPLES ? side->blocks[i]
				   : diff->norm == DIFF_BY_TIME  ? seconds / NOISE_BLOCKS
				   : diff->measure == DIFF_SAMPLES && side->all.count > 0
					   ? side->blocks[i] / side->all.count
					   : 1.0 / NOISE_BLOCKS;
	return true;
}

bool diff_side_read(struct diff *diff, struct diff_side *side, const char *file, GError **error)
{
	bool is_memory = diff->measure != DIFF_SAMPLES;

	side->counts = g_array_new(FALSE, TRUE, sizeof(struct diff_count));
	side->buckets = g_array_new(FALSE, TRUE, sizeof(double));
	side->identities = g_array_new(FALSE, TRUE, sizeof(uint32_t));
	side->rows = g_array_new(FALSE, TRUE, sizeof(uint32_t));
	side->builds = g_hash_table_new(g_str_hash, g_str_equal);
	return (is_memory ? read_memory : read_samples)(diff, side, file, error) &&
	       weigh(diff, side, is_memory ? &side->memory.reader : &side->reader, error);
}

void diff_side_done(struct diff_side *side)
{
	if (side->counts) {
		g_array_unref(side->counts);
		g_array_unref(side->buckets);
		g_array_unref(side->identities);
		g_array_unref(side->rows);
		g_hash_table_unref(side->builds);
	}
	g_free(side->is_interrupt);
	tally_done(&side->tally);
	frame_filters_done(&side->filters);
	memory_done(&side->memory);
	reader_done(&side->reader);
}

void diff_side_node(const struct diff *diff, const struct diff_side *side, uint32_t node,
		    uint32_t *ret_parent, uint32_t *ret_function)
{
	if (diff->measure == DIFF_SAMPLES) {
		*ret_parent = node_at(side, node)->parent;
		*ret_function = node_at(side, node)->entity;
	} else {
		*ret_parent = memory_node_at(&side->memory.tree, node)->parent;
		*ret_function = memory_node_at(&side->memory.tree, node)->function;
	}
}

void diff_side_fill(struct diff *diff, struct diff_side *side)
{
	if (diff->measure == DIFF_SAMPLES)
		fill_samples(diff, side);
	else if (diff->measure != DIFF_PEAK)
		fill_memory(diff, side);
}

/* ---- processes ------------------------------------------------------------------------------- */

static gint compare_processes(gconstpointer left, gconstpointer right)
{
	const struct diff_process *a = *(const struct diff_process *const *)left;
	const struct diff_process *b = *(const struct diff_process *const *)right;
	double by_a = fabs(a->of[DIFF_B] - a->of[DIFF_A]);
	double by_b = fabs(b->of[DIFF_B] - b->of[DIFF_A]);

	if (by_a != by_b)
		return by_a > by_b ? -1 : 1;
	return g_strcmp0(a->comm, b->comm);
}

static struct diff_process *process_of(struct diff *diff, const char *comm)
{
	struct diff_process *process;

	for (guint i = 0; i < diff->processes->len; i++) {
		process = diff->processes->pdata[i];
		if (g_strcmp0(process->comm, comm) == 0)
			return process;
	}
	process = g_new0(struct diff_process, 1);
	process->comm = comm;
	g_ptr_array_add(diff->processes, process);
	return process;
}

static void add_process(struct diff *diff, const struct diff_side *of, uint32_t index)
{
	const struct memory_counts *counts =
		&g_array_index(of->memory.processes, struct memory_counts, index);
	struct diff_process *process;
	double weight = 0, count;

	if (!counts->is_there)
		return;
	for (unsigned i = 0; i < NOISE_BLOCKS; i++)
		weight += of->weights[i];
	count = diff->measure == DIFF_BYTES   ? counts->allocated_bytes
		: diff->measure == DIFF_CALLS ? counts->allocations
					      : counts->peak_bytes;
	process = process_of(diff, memory_comm(&of->memory, index));
	process->of[of->side] +=
		weight > 0 ? count / weight * diff->scale / diff->runs[of->side]->len : 0;
}

void diff_list_processes(struct diff *diff)
{
	diff->processes = g_ptr_array_new_with_free_func(g_free);
	for (unsigned side = 0; side < DIFF_SIDES; side++) {
		for (guint run = 0; run < diff->runs[side]->len; run++) {
			const struct diff_side *of = diff_run(diff, side, run);

			for (uint32_t i = 0; i < of->memory.processes->len; i++)
				add_process(diff, of, i);
		}
	}
	g_ptr_array_sort(diff->processes, compare_processes);
}
