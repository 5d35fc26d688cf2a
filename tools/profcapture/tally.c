/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Tally - samples counted by the entity that they hit
 *
 * Invariants: (1) the self counts of all entities sum up to `all`            [test-report: sums]
 *             (2) a sample is counted at most once in an entity's total  [test-report: recursion]
 *             (3) the work is a constant a sample and a constant a distinct stack node
 */
#include "config.h"

#include "tools/profcapture/tally.h"

#include "tools/common/capture-error.h"
#include "tools/profcapture/stacks.h"

#include <glib/gi18n.h>
#include <inttypes.h>
#include <string.h>

const char *const tally_by_names[] = { "function", "line",   "image", "thread",
				       "process",  "cgroup", NULL };
const char *const tally_modes[] = { "any", "user", "kernel", NULL };

/* Flag in the node of a sample that has no node in its epoch. The other bits are its entity. */
#define BARE 0x80000000u

/* The state while one epoch is read. */
struct pass {
	struct tally *tally;
	struct names_epoch *epoch; /* NULL before the first sample */
	struct stacks *stacks;     /* NULL if stacks are not wanted */
	uint64_t weight_before;    /* of the previous epochs */
	GHashTable *cgroup_ids;    /* interned path → index in tally->cgroups */
	GArray *on_path;           /* uint32_t: how often the entity is on the path from the root */
	GArray *caller_on, *callee_on;
	uint32_t focus_on;
	GByteArray *is_focus, *is_own; /* enum verdict by function */
	struct number_map
		by_node;      /* node and entity → index + 1 in `amounts`, where filters choose */
	GArray *amounts;      /* struct amount */
	uint32_t event;       /* the event whose samples count */
	uint64_t last_source; /* of the last sample, and its event */
	uint32_t last_event;
	guint first_sample;     /* of the epoch, in tally->each */
	GArray *node_timelines; /* struct tally_timeline by node of the epoch */
};

enum { TIME, THREAD, CPU, STACK, SOURCE, METHOD, STOP, CGROUP, MODE, WEIGHT, N_COLUMNS };
static const uint16_t sample_columns[N_COLUMNS] = {
	PROF_SAMPLE_TIME,   PROF_SAMPLE_THREAD,      PROF_SAMPLE_CPU,       PROF_SAMPLE_STACK,
	PROF_SAMPLE_SOURCE, PROF_SAMPLE_USER_METHOD, PROF_SAMPLE_USER_STOP, PROF_SAMPLE_CGROUP,
	PROF_SAMPLE_MODE,   PROF_SAMPLE_WEIGHT,
};

/* ---- counting -------------------------------------------------------------------------------- */

static struct tally_count *count_of(GArray *counts, uint32_t entity)
{
	if (counts->len <= entity)
		g_array_set_size(counts, entity + 1);
	return &g_array_index(counts, struct tally_count, entity);
}

static void count_entity(struct pass *pass, uint32_t entity, struct amount amount)
{
	struct tally_count *count = count_of(pass->tally->counts, entity);

	amount_add(&count->self, amount);
	amount_add(&count->total, amount);
}

static uint32_t *number_of(GArray *numbers, uint32_t entity)
{
	if (numbers->len <= entity)
		g_array_set_size(numbers, entity + 1);
	return &g_array_index(numbers, uint32_t, entity);
}

static struct tally_timeline *timeline_of(GArray *timelines, uint32_t index)
{
	if (timelines->len <= index)
		g_array_set_size(timelines, index + 1);
	return &g_array_index(timelines, struct tally_timeline, index);
}

/* Returns whether entities are indexes of `functions`. */
static bool counts_functions(const struct tally *tally)
{
	return tally->by == TALLY_FUNCTION || tally->by == TALLY_LINE;
}

static bool by_stack(const struct tally *tally)
{
	return counts_functions(tally) || tally->by == TALLY_IMAGE;
}

static bool wants_stacks(const struct tally *tally)
{
	return by_stack(tally) || tally->filters;
}

/* Returns whether nodes of stacks are functions until the filters have run. */
static bool by_function(const struct tally *tally)
{
	return counts_functions(tally) || tally->filters;
}

static uint32_t function_entity(struct names_epoch *epoch, size_t frame_row, void *data)
{
	const struct pass *pass = data;

	return functions_entity_of_row(pass->tally->functions, epoch, frame_row);
}

static size_t inlined_functions(struct names_epoch *epoch, size_t frame_row, uint32_t *ret_entities,
				void *data)
{
	const struct pass *pass = data;

	return functions_inlined_at_row(pass->tally->functions, epoch, frame_row, ret_entities);
}

static uint32_t image_entity(struct names_epoch *epoch, size_t frame_row, void *data)
{
	const struct tally *tally = ((const struct pass *)data)->tally;
	uint64_t image = 0;

	if (tally->place_of)
		return tally->place_of(epoch, frame_row, tally->place_data);
	if (!names_number(epoch, NAMES_FRAME, PROF_FRAME_IMAGE, frame_row, &image))
		return NAMES_LOST;
	return names_image(epoch, image);
}

/* ---- walking the stacks of an epoch ---------------------------------------------------------- */

static void enter_plain(const struct stacks *stacks, uint32_t row, void *data)
{
	struct pass *pass = data;
	uint32_t entity = stacks->entity[row];
	struct tally_count *count = count_of(pass->tally->counts, entity);

	amount_add(&count->self, stacks->self[row]);
	if ((*number_of(pass->on_path, entity))++ == 0)
		amount_add(&count->total, stacks->total[row]);
}

static void leave_plain(const struct stacks *stacks, uint32_t row, void *data)
{
	struct pass *pass = data;

	(*number_of(pass->on_path, stacks->entity[row]))--;
}

enum verdict { NOT_KNOWN, YES, NO };

static uint8_t *verdict_at(GByteArray *verdicts, uint32_t function)
{
	guint before = verdicts->len;

	if (before <= function) {
		g_byte_array_set_size(verdicts, function + 64);
		memset(verdicts->data + before, NOT_KNOWN, verdicts->len - before);
	}
	return &verdicts->data[function];
}

static bool is_focus(struct pass *pass, uint32_t function)
{
	enum function_name_match least = pass->tally->focus_is_part ? FUNCTION_NAME_COMPONENT
								    : FUNCTION_NAME_WHOLE;
	uint8_t *verdict = verdict_at(pass->is_focus, function);
	const struct function *f;

	if (*verdict == NOT_KNOWN) {
		f = functions_at(pass->tally->functions, function);
		*verdict = function_name_match(f->name, f->raw_name, pass->tally->focus) >= least
				   ? YES
				   : NO;
	}
	return *verdict == YES;
}

static bool is_own(struct pass *pass, uint32_t function)
{
	uint8_t *verdict = verdict_at(pass->is_own, function);

	if (*verdict == NOT_KNOWN)
		*verdict = code_origin_of(pass->tally->functions, function) == CODE_ORIGIN_OWN ? YES
											       : NO;
	return *verdict == YES;
}

/* Returns the node that counts as the caller of one that has a parent. */
static uint32_t caller_of(struct pass *pass, const struct stacks *stacks, uint32_t row,
			  uint32_t *ret_skipped)
{
	uint32_t caller = stacks->parent[row];

	*ret_skipped = 0;
	if (!pass->tally->own_callers)
		return caller;
	for (; caller != STACKS_NO_ROW; caller = stacks->parent[caller], (*ret_skipped)++)
		if (is_own(pass, stacks->entity[caller]))
			return caller;
	*ret_skipped = 0;
	return stacks->parent[row];
}

static void note_skipped(GArray *all, uint32_t caller, uint32_t skipped)
{
	struct tally_skipped *at;

	for (guint i = all->len; i <= caller; i++)
		g_array_append_vals(all, &(struct tally_skipped){ UINT32_MAX, 0 }, 1);
	at = &g_array_index(all, struct tally_skipped, caller);
	at->least = MIN_OF(at->least, skipped);
	at->most = MAX_OF(at->most, skipped);
}

static void enter_edge(GArray *on, GArray *counts, uint32_t entity, const struct stacks *stacks,
		       uint32_t row)
{
	struct tally_count *count = count_of(counts, entity);

	amount_add(&count->self, stacks->self[row]);
	if ((*number_of(on, entity))++ == 0)
		amount_add(&count->total, stacks->total[row]);
}

static void enter_focus(const struct stacks *stacks, uint32_t row, void *data)
{
	struct pass *pass = data;
	struct tally *tally = pass->tally;
	uint32_t here = stacks->entity[row];
	uint32_t parent = stacks->parent[row], skipped;

	enter_plain(stacks, row, data);
	if (is_focus(pass, here)) {
		tally->focus_found = true;
		amount_add(&tally->focus_count.self, stacks->self[row]);
		if (pass->focus_on++ == 0)
			amount_add(&tally->focus_count.total, stacks->total[row]);
		if (parent != STACKS_NO_ROW) {
			uint32_t caller = stacks->entity[caller_of(pass, stacks, row, &skipped)];

			enter_edge(pass->caller_on, tally->callers, caller, stacks, row);
			note_skipped(tally->skipped, caller, skipped);
		}
	}
	if (parent != STACKS_NO_ROW && is_focus(pass, stacks->entity[parent]))
		enter_edge(pass->callee_on, tally->callees, here, stacks, row);
}

static void leave_focus(const struct stacks *stacks, uint32_t row, void *data)
{
	struct pass *pass = data;
	uint32_t here = stacks->entity[row];
	uint32_t parent = stacks->parent[row], skipped;

	leave_plain(stacks, row, data);
	if (is_focus(pass, here)) {
		pass->focus_on--;
		if (parent != STACKS_NO_ROW)
			(*number_of(pass->caller_on,
				    stacks->entity[caller_of(pass, stacks, row, &skipped)]))--;
	}
	if (parent != STACKS_NO_ROW && is_focus(pass, stacks->entity[parent]))
		(*number_of(pass->callee_on, here))--;
}

static void count_unresolved(struct pass *pass)
{
	const struct stacks *stacks = pass->stacks;

	if (!by_function(pass->tally))
		return;
	for (size_t row = 0; row < stacks->n; row++)
		if (stacks->self[row].samples &&
		    strcmp(functions_at(pass->tally->functions, stacks->entity[row])->kind,
			   "unresolved") == 0)
			pass->tally->unresolved += stacks->self[row].samples;
}

/* Replaces the place of a node with the entity that is counted. A frame's outermost node comes
 * last, because the others refer to it. */
static void settle_place(const struct tally *tally, struct stacks *stacks, uint32_t node,
			 uint32_t frame)
{
	uint32_t place = stacks->entity[tally->inlined || tally->by == TALLY_LINE ? node : frame];

	if (tally->by == TALLY_LINE)
		place = functions_line_of_place(tally->functions, place);
	else if (tally->by == TALLY_IMAGE)
		place = functions_at(tally->functions, place)->image;
	else if (!tally->places)
		place = functions_whole(tally->functions, place);
	stacks->entity[node] = place;
}

/* Applies the filters. Returns, for each node, the node in which its samples end now. */
static uint32_t *filter(struct pass *pass)
{
	struct tally *tally = pass->tally;
	struct stacks *stacks = pass->stacks;
	uint32_t *nodes = g_new(uint32_t, stacks->n);
	g_autofree uint32_t *frames = g_new(uint32_t, stacks->n);
	uint64_t key;
	uint32_t index;
	size_t at = 0;

	amount_add(&tally->filtered, frame_filters_apply(tally->filters, stacks, tally->functions,
							 tally->inlined, nodes, frames));
	for (size_t i = stacks->n; i > 0; i--)
		settle_place(tally, stacks, stacks->order[i - 1], frames[stacks->order[i - 1]]);
	while (number_map_next(&pass->by_node, &at, &key, &index))
		if (nodes[key >> 32] != STACKS_NO_ROW)
			count_entity(pass, (uint32_t)key,
				     g_array_index(pass->amounts, struct amount, index - 1));
	number_map_clear(&pass->by_node);
	g_array_set_size(pass->amounts, 0);
	return nodes;
}

static void add_to_tree(struct pass *pass)
{
	struct stacks *inverted = pass->tally->inverted ? stacks_invert(pass->stacks) : NULL;

	tally_tree_add(&pass->tally->tree, inverted ? inverted : pass->stacks,
		       pass->tally->all.weight - pass->weight_before);
	stacks_free(inverted);
}

/* Replaces the epoch's nodes in samples with nodes of the tree when the epoch is over. Removes
 * samples that were filtered. */
static void settle_samples(struct pass *pass, const uint32_t *nodes)
{
	GArray *each = pass->tally->each;
	guint kept = pass->first_sample;

	for (guint i = pass->first_sample; i < each->len; i++) {
		struct tally_sample sample = g_array_index(each, struct tally_sample, i);

		if (sample.node & BARE) {
			sample.node = 1 + (sample.node & ~BARE);
		} else {
			sample.node = nodes ? nodes[sample.node] : sample.node;
			if (sample.node == STACKS_NO_ROW)
				continue;
			sample.node = tally_tree_node(&pass->tally->tree, sample.node);
		}
		g_array_index(each, struct tally_sample, kept++) = sample;
	}
	g_array_set_size(each, kept);
	pass->first_sample = kept;
}

/* Moves timelines from nodes of the epoch to entities. */
static void settle_timelines(struct pass *pass, const uint32_t *nodes)
{
	static const struct tally_timeline none;

	for (uint32_t row = 0; row < pass->node_timelines->len; row++) {
		const struct tally_timeline *from = timeline_of(pass->node_timelines, row);
		uint32_t node = nodes ? nodes[row] : row;
		struct tally_timeline *to;

		/* A node without samples has no entity. */
		if (node == STACKS_NO_ROW || memcmp(from, &none, sizeof(none)) == 0)
			continue;
		to = timeline_of(pass->tally->timelines, pass->stacks->entity[node]);
		for (unsigned i = 0; i < TALLY_BINS; i++)
			amount_add(&to->self[i], from->self[i]);
	}
	g_array_set_size(pass->node_timelines, 0);
}

static void finish_epoch(struct pass *pass)
{
	static const struct stacks_visitor plain = { enter_plain, leave_plain, NULL };
	static const struct stacks_visitor focus = { enter_focus, leave_focus, NULL };
	struct stacks_visitor visitor = pass->tally->focus ? focus : plain;
	bool functions = by_function(pass->tally);
	g_autofree uint32_t *nodes = NULL;

	if (!pass->stacks)
		return;
	stacks_settle(pass->stacks, functions ? function_entity : image_entity, pass,
		      functions ? FUNCTION_LOST : NAMES_LOST);
	if (pass->tally->functions->inlined)
		stacks_insert(pass->stacks, inlined_functions, pass);
	count_unresolved(pass);
	if (pass->tally->filters)
		nodes = filter(pass);
	if (pass->tally->wants_timeline)
		settle_timelines(pass, nodes);
	if (pass->tally->own)
		own_weights_count(pass->tally->own, pass->tally->functions, pass->stacks);
	if (by_stack(pass->tally)) {
		visitor.data = pass;
		stacks_walk(pass->stacks, &visitor);
	}
	if (pass->tally->wants_tree)
		add_to_tree(pass);
	if (pass->tally->wants_samples)
		settle_samples(pass, nodes);
	pass->tally->bad_stacks += pass->stacks->cut;
	stacks_free(pass->stacks);
	pass->stacks = NULL;
}

static bool begin_epoch(struct pass *pass, uint32_t number, GError **error)
{
	pass->weight_before = pass->tally->all.weight;
	pass->last_source = UINT64_MAX;
	pass->last_event =
		sampled_events_of(pass->tally->reader->capture->sampled, number, pass->last_source);
	pass->epoch = names_epoch(pass->tally->reader->capture->names, number, error);
	if (!pass->epoch || !names_load_identities(pass->epoch, error))
		return false;
	if (!wants_stacks(pass->tally))
		return true;
	pass->stacks = stacks_load(pass->epoch, error);
	if (pass->stacks && by_function(pass->tally))
		stacks_time(pass->stacks, pass->tally->functions);
	return pass->stacks;
}

/* ---- reading the samples --------------------------------------------------------------------- */

static void count_without_frames(struct tally *tally, uint64_t stack, struct amount amount)
{
	bool functions = counts_functions(tally);
	uint32_t entity = stack == 0 ? (functions ? FUNCTION_NO_STACK : NAMES_NONE)
				     : (functions ? FUNCTION_LOST : NAMES_LOST);
	struct tally_count *count = count_of(tally->counts, entity);

	amount_add(&count->self, amount);
	amount_add(&count->total, amount);
	if (functions)
		tally->unresolved++;
	if (tally->wants_tree) {
		/* Each of the two has a root of its own. */
		struct tally_node *nodes = (struct tally_node *)(void *)tally->tree.nodes->data;

		amount_add(&nodes[1 + entity].count.self, amount);
		amount_add(&nodes[1 + entity].count.total, amount);
	}
}

static uint32_t cgroup_entity(struct pass *pass, uint64_t id)
{
	const char *path = names_text(pass->epoch, id);
	gpointer known;

	if (!path)
		return 0;
	if (g_hash_table_lookup_extended(pass->cgroup_ids, path, NULL, &known))
		return GPOINTER_TO_UINT(known);
	g_ptr_array_add(pass->tally->cgroups, (gpointer)path);
	g_hash_table_insert(pass->cgroup_ids, (gpointer)path,
			    GUINT_TO_POINTER(pass->tally->cgroups->len - 1));
	return pass->tally->cgroups->len - 1;
}

/* A sample that counts. */
struct hit {
	uint64_t time_ns, stack;
	uint32_t segment, thread;
	struct amount amount;
};

/* Returns the node that the sample ended in, or STACKS_NO_ROW if it has no stack or the capture
 * lost it. */
static uint32_t node_of(struct pass *pass, const struct hit *hit)
{
	ssize_t row = names_row(pass->epoch, NAMES_STACK, hit->stack);

	if (row < 0 || (size_t)row >= pass->stacks->n_rows)
		return STACKS_NO_ROW;
	return stacks_row_at(pass->stacks, pass->tally->functions, (uint32_t)row, hit->segment,
			     hit->time_ns);
}

static void keep_sample(struct pass *pass, uint32_t node, const struct hit *hit)
{
	struct tally_sample sample = { capture_time(pass->tally->reader->capture, hit->segment,
						    hit->time_ns),
				       hit->thread, node, hit->amount.weight };

	if (pass->tally->wants_samples)
		g_array_append_val(pass->tally->each, sample);
}

static void count_in_time(struct pass *pass, GArray *timelines, uint32_t index,
			  const struct hit *hit)
{
	const struct tally *tally = pass->tally;
	int64_t since;

	if (!tally->wants_timeline)
		return;
	since = capture_time(tally->reader->capture, hit->segment, hit->time_ns) -
		tally->bins_from_ns;
	since = MAX_OF(since, 0);
	amount_add(
		&timeline_of(timelines, index)
			 ->self[MIN_OF((uint64_t)since / tally->bin_ns, (uint64_t)TALLY_BINS - 1)],
		hit->amount);
}

static void count_stack(struct pass *pass, const struct hit *hit)
{
	uint32_t entity = hit->stack == 0 ? FUNCTION_NO_STACK : FUNCTION_LOST;
	uint32_t node = node_of(pass, hit);

	if (node != STACKS_NO_ROW) {
		amount_add(&pass->stacks->self[node], hit->amount);
		count_in_time(pass, pass->node_timelines, node, hit);
		keep_sample(pass, node, hit);
	} else if (pass->tally->filters && !frame_filters_want_bare(pass->tally->filters)) {
		amount_add(&pass->tally->filtered, hit->amount);
	} else {
		count_without_frames(pass->tally, hit->stack, hit->amount);
		count_in_time(pass, pass->tally->timelines, entity, hit);
		keep_sample(pass, BARE | entity, hit);
	}
}

static struct amount *amount_by_node(struct pass *pass, uint32_t node, uint32_t entity)
{
	uint32_t *index = number_map_at(&pass->by_node, (uint64_t)node << 32 | entity);

	if (*index == 0) {
		g_array_set_size(pass->amounts, pass->amounts->len + 1);
		*index = pass->amounts->len;
	}
	return &g_array_index(pass->amounts, struct amount, *index - 1);
}

/* Counts a sample in an entity that is not part of its stack. */
static void count_by(struct pass *pass, uint32_t entity, const struct hit *hit)
{
	uint32_t node;

	if (!pass->tally->filters) {
		count_entity(pass, entity, hit->amount);
		return;
	}
	node = node_of(pass, hit);
	if (node != STACKS_NO_ROW) {
		amount_add(&pass->stacks->self[node], hit->amount);
		amount_add(amount_by_node(pass, node, entity), hit->amount);
	} else if (frame_filters_want_bare(pass->tally->filters)) {
		count_entity(pass, entity, hit->amount);
	} else {
		amount_add(&pass->tally->filtered, hit->amount);
	}
}

static void count_unwind(struct tally *tally, uint64_t method, uint64_t stop)
{
	/* A kernel thread has no user memory. Values that this version does not define count as
	 * guesses. */
	if (stop == PROF_STOP_KERNEL_THREAD)
		return;
	if (stop == PROF_STOP_NO_MEMORY)
		tally->unwind[UNWIND_NO_MEMORY]++;
	else if (method == PROF_METHOD_NONE)
		tally->unwind[UNWIND_NONE]++;
	else if (method != PROF_METHOD_CFI)
		tally->unwind[UNWIND_GUESSED]++;
	else if (stop == PROF_STOP_ROOT)
		tally->unwind[UNWIND_COMPLETE]++;
	else if (stop == PROF_STOP_COPY_END || stop == PROF_STOP_DEPTH)
		tally->unwind[UNWIND_TRUNCATED]++;
	else
		tally->unwind[UNWIND_GUESSED]++;
}

static struct amount amount_of(const struct tally *tally, const struct prof_array *weights,
			       size_t i)
{
	return (struct amount){
		1, tally->event ? sampled_event_weight(tally->event, array_number_or(weights, i, 0))
				: 1
	};
}

static void count_sample(struct pass *pass, const struct prof_batch *batch, size_t i,
			 uint32_t thread)
{
	const struct prof_array *c = batch->columns;
	struct tally *tally = pass->tally;
	const struct hit hit = {
		.time_ns = array_number_or(&c[TIME], i, 0),
		.stack = array_number_or(&c[STACK], i, 0),
		.segment = batch->segment,
		.thread = thread,
		.amount = amount_of(tally, &c[WEIGHT], i),
	};

	amount_add(&tally->all, hit.amount);
	tally->least_weight = MIN_OF(tally->least_weight, hit.amount.weight);
	tally->most_weight = MAX_OF(tally->most_weight, hit.amount.weight);
	count_unwind(tally, array_number_or(&c[METHOD], i, PROF_METHOD_NONE),
		     array_number_or(&c[STOP], i, PROF_STOP_UNKNOWN));
	if (array_number_or(&c[MODE], i, PROF_MODE_USER) == PROF_MODE_KERNEL)
		amount_add(&tally->kernel, hit.amount);
	if (tally->wants_threads) {
		if (tally->threads->len <= thread)
			g_array_set_size(tally->threads, thread + 1);
		amount_add(&g_array_index(tally->threads, struct amount, thread), hit.amount);
	}
	switch (tally->by) {
	case TALLY_THREAD:
		count_by(pass, thread, &hit);
		break;
	case TALLY_PROCESS:
		count_by(pass, names_thread_at(tally->functions->names, thread)->process, &hit);
		break;
	case TALLY_CGROUP:
		count_by(pass, cgroup_entity(pass, array_number_or(&c[CGROUP], i, 0)), &hit);
		break;
	default:
		count_stack(pass, &hit);
	}
}

/* Keeps the last look-up, because consecutive samples are mostly of one source. */
static bool is_of_event(struct pass *pass, uint32_t epoch, uint64_t source)
{
	if (pass->tally->wants_all_events)
		return true;
	if (source != pass->last_source) {
		pass->last_source = source;
		pass->last_event =
			sampled_events_of(pass->tally->reader->capture->sampled, epoch, source);
	}
	return pass->last_event == pass->event;
}

static void count_batch(struct pass *pass, const struct prof_batch *batch)
{
	struct reader *reader = pass->tally->reader;
	const struct prof_array *c = batch->columns;
	const struct span_set *inside = pass->tally->inside;
	bool threads = reader_filters_threads(reader) || inside || pass->tally->wants_samples ||
		       pass->tally->wants_threads || pass->tally->by == TALLY_THREAD ||
		       pass->tally->by == TALLY_PROCESS;
	uint64_t from, to;

	reader_clock_range(reader, batch->segment, &from, &to);
	for (size_t i = 0; i < batch->rows; i++) {
		uint64_t time = array_number_or(&c[TIME], i, 0);
		uint32_t thread = NAMES_NONE;

		if (time < from || time > to)
			continue;
		if (!is_of_event(pass, batch->epoch, array_number_or(&c[SOURCE], i, 0)))
			continue;
		if (pass->tally->mode != TALLY_ANY_MODE &&
		    (array_number_or(&c[MODE], i, PROF_MODE_USER) == PROF_MODE_KERNEL) !=
			    (pass->tally->mode == TALLY_KERNEL))
			continue;
		if (reader->cpus &&
		    !reader_wants_cpu(reader, array_number_or(&c[CPU], i, UINT64_MAX)))
			continue;
		if (threads)
			thread = names_thread(pass->epoch, array_number_or(&c[THREAD], i, 0));
		if (reader_filters_threads(reader) &&
		    !reader_wants_thread_at(reader, thread,
					    capture_time(reader->capture, batch->segment, time)))
			continue;
		if (inside && !span_set_has(inside, thread,
					    capture_time(reader->capture, batch->segment, time)))
			continue;
		count_sample(pass, batch, i, thread);
	}
}

static bool read_rows(struct pass *pass, struct prof_cursor *cursor, GError **error)
{
	struct capture *capture = pass->tally->reader->capture;
	struct prof_batch batch;
	int r;

	while ((r = prof_cursor_next(cursor, &batch)) == 0) {
		if (!pass->epoch || pass->epoch->epoch != batch.epoch) {
			finish_epoch(pass);
			if (!begin_epoch(pass, batch.epoch, error))
				return false;
		}
		count_batch(pass, &batch);
	}
	finish_epoch(pass);
	pass->epoch = NULL;
	return r == PROF_END ||
	       capture_error(error, r, _("cannot read samples of '%s'"), capture->file);
}

/* Resets the counts, because everything is counted once more for the tree. */
static void forget_counts(struct tally *tally)
{
	g_array_set_size(tally->counts, 0);
	memset(tally->unwind, 0, sizeof(tally->unwind));
	tally->all = tally->filtered = tally->kernel = (struct amount){ 0 };
	tally->unresolved = tally->bad_stacks = 0;
	g_array_set_size(tally->threads, 0);
}

static bool read_samples(struct pass *pass, const struct prof_cursor_options *options,
			 GError **error)
{
	struct tally *tally = pass->tally;
	struct capture *capture = tally->reader->capture;
	uint64_t names_lost = capture->names->lost;
	bool ok = true, again = true;

	while (ok && again) {
		struct prof_cursor *cursor;
		int r = prof_cursor_new(capture->reader, options, &cursor);

		if (r != 0)
			return r == PROF_NO_TABLE ||
			       capture_error(error, r, _("cannot read samples of '%s'"),
					     capture->file);
		ok = read_rows(pass, cursor, error);
		again = ok && tally->wants_tree && tally_tree_again(&tally->tree);
		if (again) {
			forget_counts(tally);
			capture->names->lost = names_lost;
		}
		prof_cursor_free(cursor);
	}
	return ok;
}

/* ---- run ------------------------------------------------------------------------------------- */

static void set_bins(struct tally *tally)
{
	const struct reader *reader = tally->reader;
	int64_t to = MIN_OF(reader->to_ns, reader->capture->duration_ns);

	tally->bins_from_ns = MAX_OF(reader->from_ns, 0);
	tally->bin_ns = to > tally->bins_from_ns
				? (uint64_t)(to - tally->bins_from_ns) / TALLY_BINS + 1
				: 1;
}

static void answer_init(struct tally *tally)
{
	set_bins(tally);
	tally->least_weight = UINT64_MAX;
	tally->counts = g_array_new(FALSE, TRUE, sizeof(struct tally_count));
	tally->callers = g_array_new(FALSE, TRUE, sizeof(struct tally_count));
	tally->callees = g_array_new(FALSE, TRUE, sizeof(struct tally_count));
	tally->skipped = g_array_new(FALSE, TRUE, sizeof(struct tally_skipped));
	tally->threads = g_array_new(FALSE, TRUE, sizeof(struct amount));
	tally_tree_init(&tally->tree);
	tally->each = g_array_new(FALSE, FALSE, sizeof(struct tally_sample));
	tally->timelines = g_array_new(FALSE, TRUE, sizeof(struct tally_timeline));
	tally->cgroups = g_ptr_array_new();
	g_ptr_array_add(tally->cgroups, NULL);
}

static void pass_init(struct pass *pass, struct tally *tally)
{
	*pass = (struct pass){ .tally = tally };
	pass->cgroup_ids = g_hash_table_new(g_str_hash, g_str_equal);
	pass->on_path = g_array_new(FALSE, TRUE, sizeof(uint32_t));
	pass->caller_on = g_array_new(FALSE, TRUE, sizeof(uint32_t));
	pass->callee_on = g_array_new(FALSE, TRUE, sizeof(uint32_t));
	pass->is_focus = g_byte_array_new();
	pass->is_own = g_byte_array_new();
	pass->node_timelines = g_array_new(FALSE, TRUE, sizeof(struct tally_timeline));
	number_map_init(&pass->by_node);
	pass->amounts = g_array_new(FALSE, TRUE, sizeof(struct amount));
}

static void pass_done(struct pass *pass)
{
	stacks_free(pass->stacks);
	g_hash_table_unref(pass->cgroup_ids);
	g_array_unref(pass->on_path);
	g_array_unref(pass->caller_on);
	g_array_unref(pass->callee_on);
	g_byte_array_unref(pass->is_focus);
	g_byte_array_unref(pass->is_own);
	g_array_unref(pass->node_timelines);
	number_map_done(&pass->by_node);
	g_array_unref(pass->amounts);
}

/* Selects the event whose samples are counted. */
static bool choose_event(struct tally *tally, uint32_t *ret_event, GError **error)
{
	const struct capture *capture = tally->reader->capture;

	if (!sampled_events_read(capture->sampled, capture->reader, capture->names, error) ||
	    !sampled_events_find(capture->sampled, tally->reader->event, capture->file, ret_event,
				 error))
		return false;
	if (tally->wants_all_events || *ret_event == SAMPLED_NO_EVENT)
		return true;
	tally->event = sampled_event_at(capture->sampled, *ret_event);
	tally->period_ns = sampled_event_period_ns(tally->event);
	return true;
}

bool tally_run(struct tally *tally, struct reader *reader, GError **error)
{
	struct prof_cursor_options options = { .table = PROF_TABLE_SAMPLE,
					       .columns = sample_columns,
					       .n_columns = N_COLUMNS };
	struct pass pass;
	uint32_t event;
	bool ok;

	tally->reader = reader;
	answer_init(tally);
	tally->functions = functions_new(reader->capture->names, error);
	if (!tally->functions || !choose_event(tally, &event, error))
		return false;
	tally->functions->inlined = tally->inlined || tally->filters;
	tally->functions->joins_inlined = tally->joins_inlined;
	if (tally->places || tally->filters)
		tally->functions->detail = FUNCTIONS_PLACES;
	else if (tally->by == TALLY_LINE)
		tally->functions->detail = FUNCTIONS_LINES;
	/* With several segments, a relative time has several clock values. */
	if (reader->timed && reader->capture->n_segments == 1)
		reader_clock_range(reader, reader->capture->segments[0].number, &options.t_from,
				   &options.t_to);
	pass_init(&pass, tally);
	pass.event = event;
	ok = read_samples(&pass, &options, error);
	pass_done(&pass);
	return ok;
}

void tally_done(struct tally *tally)
{
	functions_free(tally->functions);
	if (tally->counts) {
		g_array_unref(tally->counts);
		g_array_unref(tally->callers);
		g_array_unref(tally->callees);
		g_array_unref(tally->skipped);
		g_array_unref(tally->threads);
		g_array_unref(tally->each);
		g_array_unref(tally->timelines);
		tally_tree_done(&tally->tree);
		g_ptr_array_unref(tally->cgroups);
	}
	*tally = (struct tally){ 0 };
}

const char *tally_event_name(const struct tally *tally)
{
	const char *recorded = capture_metadata(tally->reader->capture, "event");

	if (tally->event && tally->event->name)
		return tally->event->name;
	return recorded ? recorded : "-";
}

const char *tally_unit(const struct tally *tally)
{
	return tally->event && tally->event->unit ? tally->event->unit : "samples";
}

bool tally_is_weighted(const struct tally *tally)
{
	if (!tally->event || !tally->event->unit || tally->all.samples == 0)
		return false;
	return tally->least_weight != tally->most_weight ||
	       (!sampled_event_is_clock(tally->event) && tally->most_weight != 1);
}

#define WEIGHT_COLUMNS 14u

const char *tally_weight_title(const struct tally *tally)
{
	const char *name = tally_event_name(tally);

	if (strcmp(tally_unit(tally), "ns") == 0)
		return _("time");
	return text_width(name) > WEIGHT_COLUMNS ? _("events") : name;
}

void tally_print_sum(const struct tally *tally, struct out *out)
{
	g_autofree char *weight = text_count(tally->all.weight);

	if (!tally_is_weighted(tally))
		return;
	if (strcmp(tally_unit(tally), "ns") == 0)
		out_printf(out, _(", which stand for %s ns"), weight);
	else
		out_printf(out, _(", which stand for %s events"), weight);
}

void tally_print_other_events(const struct tally *tally, struct out *out)
{
	const struct sampled_events *events = tally->reader->capture->sampled;
	g_autofree char *names = NULL, *escaped = NULL;

	if (!tally->event)
		return;
	names = sampled_events_others(events,
				      (uint32_t)(tally->event - sampled_event_at(events, 0)));
	if (!names)
		return;
	escaped = text_escape(names);
	out_printf(out, _("; also recorded: %s (--event NAME)"), escaped);
}

/*
 * These are shares of samples, not of weight. They say how well samples could be explained, and
 * each sample was one attempt, whatever its weight.
 */
void tally_describe_quality(const struct tally *tally, GString *to)
{
	uint64_t user = 0;

	for (size_t i = 0; i < UNWIND_NO_MEMORY; i++)
		user += tally->unwind[i];

	const struct {
		const char *label;
		uint64_t count, all;
	} kinds[] = {
		{ N_("Stacks cut short"), tally->unwind[UNWIND_TRUNCATED], user },
		{ N_("Stacks guessed"), tally->unwind[UNWIND_GUESSED], user },
		{ N_("Without a user stack"), tally->unwind[UNWIND_NONE], user },
		{ N_("Without a name"), tally->unresolved, tally->all.samples },
	};

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		double percent = 100.0 * (double)kinds[i].count / (double)kinds[i].all;

		if (100 * kinds[i].count > kinds[i].all)
			g_string_append_printf(to, " %s: %.*f %%.", _(kinds[i].label), percent < 10,
					       percent);
	}
}

void tally_write_unwind(const struct tally *tally, struct json *json, const char *key)
{
	static const char *const kinds[UNWIND_KINDS] = { "complete", "truncated", "guessed", "none",
							 "no_memory" };

	json_begin_object(json, key);
	for (size_t i = 0; i < UNWIND_KINDS; i++)
		json_uint(json, kinds[i], tally->unwind[i]);
	json_end(json);
}
