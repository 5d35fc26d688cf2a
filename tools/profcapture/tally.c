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

#include "tools/common/grown-array.h"
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
	struct number_map by_node; /* node, entity → index + 1 in `amounts`; with filters */
	GArray *amounts;           /* struct amount */
	uint32_t event;            /* the event whose samples count */
	uint64_t last_source;      /* of the last sample, and its event */
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

/* ---- entities -------------------------------------------------------------------------------- */

static struct tally_entity *entity_at(GArray *entities, uint32_t index)
{
	return GROWN_AT(entities, struct tally_entity, index);
}

static void count_add(struct tally_count *count, struct amount amount)
{
	amount_add(&count->self, amount);
	amount_add(&count->total, amount);
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

/* Returns whether nodes of stacks are functions until the filters have run. */
static bool by_function(const struct tally *tally)
{
	return counts_functions(tally) || tally->filters;
}

static uint32_t function_entity(struct names_epoch *epoch, size_t frame_row, void *data)
{
	const struct tally *tally = data;

	return functions_entity_of_row(tally->functions, epoch, frame_row);
}

static size_t inlined_functions(struct names_epoch *epoch, size_t frame_row, uint32_t *ret_entities,
				void *data)
{
	const struct tally *tally = data;

	return functions_inlined_at_row(tally->functions, epoch, frame_row, ret_entities);
}

static uint32_t image_entity(struct names_epoch *epoch, size_t frame_row, void *data)
{
	const struct tally *tally = data;
	uint64_t image = 0;

	if (tally->place_of)
		return tally->place_of(epoch, frame_row, tally->place_data);
	if (!names_number(epoch, NAMES_FRAME, PROF_FRAME_IMAGE, frame_row, &image))
		return NAMES_LOST;
	return names_image(epoch, image);
}

/* ---- walking the stacks of an epoch ---------------------------------------------------------- */

enum verdict { NOT_KNOWN, YES, NO };

static bool is_focus(struct tally *tally, uint32_t function)
{
	uint8_t *verdict = &entity_at(tally->counts, function)->is_focus;

	if (*verdict == NOT_KNOWN) {
		const struct function *f = functions_at(tally->functions, function);
		enum function_name_match least = tally->focus_is_part ? FUNCTION_NAME_COMPONENT
								      : FUNCTION_NAME_WHOLE;

		*verdict = function_name_match(f->name, f->raw_name, tally->focus) >= least ? YES
											    : NO;
	}
	return *verdict == YES;
}

static bool is_own(struct tally *tally, uint32_t function)
{
	uint8_t *verdict = &entity_at(tally->counts, function)->is_own;

	if (*verdict == NOT_KNOWN)
		*verdict = code_origin_of(tally->functions, function) == CODE_ORIGIN_OWN ? YES : NO;
	return *verdict == YES;
}

/* Returns the node that counts as the caller of one that has a parent. */
static uint32_t caller_of(struct tally *tally, const struct stacks *stacks, uint32_t row,
			  uint32_t *ret_skipped)
{
	uint32_t caller = stacks->parent[row];

	for (*ret_skipped = 0; tally->own_callers && caller != STACKS_NO_ROW; ++*ret_skipped) {
		if (is_own(tally, stacks->entity[caller]))
			return caller;
		caller = stacks->parent[caller];
	}
	*ret_skipped = 0;
	return stacks->parent[row];
}

/* Counts a node for an entity. Its total counts if no node above it is of the same entity. */
static void visit_for(struct tally_entity *entity, const struct stacks *stacks, uint32_t row,
		      bool enters)
{
	if (!enters) {
		entity->on_path--;
		return;
	}
	amount_add(&entity->count.self, stacks->self[row]);
	if (entity->on_path++ == 0)
		amount_add(&entity->count.total, stacks->total[row]);
}

static void visit(const struct stacks *stacks, uint32_t row, bool enters, void *data)
{
	struct tally *tally = data;
	uint32_t here = stacks->entity[row], parent = stacks->parent[row];

	visit_for(entity_at(tally->counts, here), stacks, row, enters);
	if (!tally->focus)
		return;
	if (is_focus(tally, here)) {
		tally->focus_found = true;
		visit_for(&tally->focus_entity, stacks, row, enters);
		if (parent != STACKS_NO_ROW) {
			uint32_t skipped, node = caller_of(tally, stacks, row, &skipped);
			struct tally_entity *caller =
				entity_at(tally->callers, stacks->entity[node]);

			if (caller->count.total.samples == 0 || skipped < caller->least_skipped)
				caller->least_skipped = skipped;
			caller->most_skipped = MAX_OF(caller->most_skipped, skipped);
			visit_for(caller, stacks, row, enters);
		}
	}
	if (parent != STACKS_NO_ROW && is_focus(tally, stacks->entity[parent]))
		visit_for(entity_at(tally->callees, here), stacks, row, enters);
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
			count_add(&entity_at(tally->counts, (uint32_t)key)->count,
				  g_array_index(pass->amounts, struct amount, index - 1));
	number_map_clear(&pass->by_node);
	g_array_set_size(pass->amounts, 0);
	return nodes;
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
		const struct tally_timeline *from =
			&g_array_index(pass->node_timelines, struct tally_timeline, row);
		uint32_t node = nodes ? nodes[row] : row;
		struct tally_timeline *to;

		/* A node without samples has no entity. */
		if (node == STACKS_NO_ROW || memcmp(from, &none, sizeof(none)) == 0)
			continue;
		to = GROWN_AT(pass->tally->timelines, struct tally_timeline,
			      pass->stacks->entity[node]);
		for (unsigned i = 0; i < TALLY_BINS; i++)
			amount_add(&to->self[i], from->self[i]);
	}
	g_array_set_size(pass->node_timelines, 0);
}

static void finish_epoch(struct pass *pass)
{
	struct tally *tally = pass->tally;
	struct stacks *stacks = pass->stacks;
	bool functions = by_function(tally);
	g_autofree uint32_t *nodes = NULL;

	if (!stacks)
		return;
	stacks_settle(stacks, functions ? function_entity : image_entity, tally,
		      functions ? FUNCTION_LOST : NAMES_LOST);
	if (tally->functions->inlined)
		stacks_insert(stacks, inlined_functions, tally);
	for (size_t row = 0; functions && row < stacks->n; row++)
		if (stacks->self[row].samples &&
		    strcmp(functions_at(tally->functions, stacks->entity[row])->kind,
			   "unresolved") == 0)
			tally->unresolved += stacks->self[row].samples;
	if (tally->filters)
		nodes = filter(pass);
	if (tally->wants_timeline)
		settle_timelines(pass, nodes);
	if (tally->own)
		own_weights_count(tally->own, tally->functions, stacks);
	if (by_stack(tally))
		stacks_walk(stacks, visit, tally);
	if (tally->wants_tree) {
		struct stacks *inverted = tally->inverted ? stacks_invert(stacks) : NULL;

		tally_tree_add(&tally->tree, inverted ? inverted : stacks,
			       tally->all.weight - pass->weight_before);
		stacks_free(inverted);
	}
	if (tally->wants_samples)
		settle_samples(pass, nodes);
	tally->bad_stacks += stacks->cut;
	stacks_free(stacks);
	pass->stacks = NULL;
}

static bool begin_epoch(struct pass *pass, struct names_epoch *epoch, GError **error)
{
	pass->epoch = epoch;
	pass->weight_before = pass->tally->all.weight;
	pass->last_source = UINT64_MAX;
	pass->last_event = sampled_events_of(pass->tally->reader->capture->sampled, epoch->epoch,
					     pass->last_source);
	if (!by_stack(pass->tally) && !pass->tally->filters)
		return true;
	pass->stacks = stacks_load(epoch, error);
	if (pass->stacks && by_function(pass->tally))
		stacks_time(pass->stacks, pass->tally->functions);
	return pass->stacks;
}

/* ---- reading the samples --------------------------------------------------------------------- */

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
	uint64_t clock_ns, stack;
	int64_t time_ns; /* relative */
	uint32_t segment, thread;
	struct amount amount;
};

/* Returns the node that the sample ended in, or STACKS_NO_ROW if stacks are not wanted, it has no
 * stack, or the capture lost it. */
static uint32_t node_of(struct pass *pass, const struct hit *hit)
{
	ssize_t row = pass->stacks ? names_row(pass->epoch, NAMES_STACK, hit->stack) : -1;

	if (row < 0 || (size_t)row >= pass->stacks->n_rows)
		return STACKS_NO_ROW;
	return stacks_row_at(pass->stacks, pass->tally->functions, (uint32_t)row, hit->segment,
			     hit->clock_ns);
}

/* Keeps the sample and counts it in time, if this is wanted. */
static void place_in_time(struct tally *tally, GArray *timelines, uint32_t index, uint32_t node,
			  const struct hit *hit)
{
	const struct tally_sample sample = { hit->time_ns, hit->thread, node, hit->amount.weight };

	if (tally->wants_samples)
		g_array_append_val(tally->each, sample);
	if (tally->wants_timeline) {
		uint64_t since = (uint64_t)MAX_OF(hit->time_ns - tally->bins_from_ns, INT64_C(0));
		uint64_t bin = MIN_OF(since / tally->bin_ns, (uint64_t)TALLY_BINS - 1);

		amount_add(&GROWN_AT(timelines, struct tally_timeline, index)->self[bin],
			   hit->amount);
	}
}

/* Counts a sample in the node that it ended in. `entity` is that of a sample without a node. If
 * entities are not parts of stacks, it is that of all samples. */
static void count_in(struct pass *pass, uint32_t entity, const struct hit *hit)
{
	struct tally *tally = pass->tally;
	uint32_t node = node_of(pass, hit), *index;

	if (node != STACKS_NO_ROW) {
		amount_add(&pass->stacks->self[node], hit->amount);
		if (by_stack(tally)) {
			place_in_time(tally, pass->node_timelines, node, node, hit);
			return;
		}
		index = number_map_at(&pass->by_node, (uint64_t)node << 32 | entity);
		if (*index == 0)
			*index = pass->amounts->len + 1;
		amount_add(GROWN_AT(pass->amounts, struct amount, *index - 1), hit->amount);
	} else if (tally->filters && !frame_filters_want_bare(tally->filters)) {
		amount_add(&tally->filtered, hit->amount);
	} else {
		count_add(&entity_at(tally->counts, entity)->count, hit->amount);
		if (counts_functions(tally))
			tally->unresolved++;
		/* Each of the two entities without frames has a root of its own. */
		if (tally->wants_tree)
			count_add(&g_array_index(tally->tree.nodes, struct tally_node, 1 + entity)
					   .count,
				  hit->amount);
		place_in_time(tally, tally->timelines, entity, BARE | entity, hit);
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
	else if (method == PROF_METHOD_CFI && stop == PROF_STOP_ROOT)
		tally->unwind[UNWIND_COMPLETE]++;
	else if (method == PROF_METHOD_CFI &&
		 (stop == PROF_STOP_COPY_END || stop == PROF_STOP_DEPTH))
		tally->unwind[UNWIND_TRUNCATED]++;
	else
		tally->unwind[UNWIND_GUESSED]++;
}

static void count_sample(struct pass *pass, const struct prof_batch *batch, size_t i,
			 struct hit *hit)
{
	const struct prof_array *c = batch->columns;
	struct tally *tally = pass->tally;
	uint64_t weight = array_number_or(&c[WEIGHT], i, 0);
	uint32_t entity;

	hit->stack = array_number_or(&c[STACK], i, 0);
	hit->amount =
		(struct amount){ 1, tally->event ? sampled_event_weight(tally->event, weight) : 1 };
	amount_add(&tally->all, hit->amount);
	tally->least_weight = MIN_OF(tally->least_weight, hit->amount.weight);
	tally->most_weight = MAX_OF(tally->most_weight, hit->amount.weight);
	count_unwind(tally, array_number_or(&c[METHOD], i, PROF_METHOD_NONE),
		     array_number_or(&c[STOP], i, PROF_STOP_UNKNOWN));
	if (array_number_or(&c[MODE], i, PROF_MODE_USER) == PROF_MODE_KERNEL)
		amount_add(&tally->kernel, hit->amount);
	if (tally->wants_threads)
		amount_add(GROWN_AT(tally->threads, struct amount, hit->thread), hit->amount);
	switch (tally->by) {
	case TALLY_THREAD:
		entity = hit->thread;
		break;
	case TALLY_PROCESS:
		entity = names_thread_at(tally->functions->names, hit->thread)->process;
		break;
	case TALLY_CGROUP:
		entity = cgroup_entity(pass, array_number_or(&c[CGROUP], i, 0));
		break;
	default:
		entity = hit->stack == 0 ? FUNCTION_NO_STACK : FUNCTION_LOST;
	}
	count_in(pass, entity, hit);
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

static bool count_batch(struct names_epoch *epoch, const struct prof_batch *batch, void *data,
			GError **error)
{
	struct pass *pass = data;
	struct tally *tally = pass->tally;
	struct reader *reader = tally->reader;
	const struct prof_array *c = batch->columns;
	bool filters_threads = reader_filters_threads(reader);
	bool threads = filters_threads || tally->inside || tally->wants_samples ||
		       tally->wants_threads || tally->by == TALLY_THREAD ||
		       tally->by == TALLY_PROCESS;
	/* what makes a time relative */
	uint64_t shift = (uint64_t)capture_time(reader->capture, batch->segment, 0);
	uint64_t from, to;

	if (!pass->epoch || pass->epoch->epoch != epoch->epoch) {
		finish_epoch(pass);
		if (!begin_epoch(pass, epoch, error))
			return false;
	}
	reader_clock_range(reader, batch->segment, &from, &to);
	for (size_t i = 0; i < batch->rows; i++) {
		struct hit hit = { .clock_ns = array_number_or(&c[TIME], i, 0),
				   .segment = batch->segment };

		if (hit.clock_ns < from || hit.clock_ns > to)
			continue;
		if (!is_of_event(pass, batch->epoch, array_number_or(&c[SOURCE], i, 0)))
			continue;
		if (tally->mode != TALLY_ANY_MODE &&
		    (array_number_or(&c[MODE], i, PROF_MODE_USER) == PROF_MODE_KERNEL) !=
			    (tally->mode == TALLY_KERNEL))
			continue;
		if (reader->cpus &&
		    !reader_wants_cpu(reader, array_number_or(&c[CPU], i, UINT64_MAX)))
			continue;
		hit.time_ns = (int64_t)(hit.clock_ns + shift);
		if (threads)
			hit.thread = names_thread(epoch, array_number_or(&c[THREAD], i, 0));
		if (filters_threads && !reader_wants_thread_at(reader, hit.thread, hit.time_ns))
			continue;
		if (tally->inside && !span_set_has(tally->inside, hit.thread, hit.time_ns))
			continue;
		count_sample(pass, batch, i, &hit);
	}
	return true;
}

static bool read_samples(struct pass *pass, const struct prof_cursor_options *options,
			 GError **error)
{
	struct tally *tally = pass->tally;
	struct names *names = tally->reader->capture->names;
	g_autofree char *failure =
		g_strdup_printf(_("cannot read samples of '%s'"), tally->reader->capture->file);
	uint64_t names_lost = names->lost;

	for (;;) {
		if (!names_each_batch(names, options, count_batch, pass, failure, error))
			return false;
		finish_epoch(pass);
		pass->epoch = NULL;
		if (!tally->wants_tree || !tally_tree_again(&tally->tree))
			return true;
		/* Everything is counted once more for the tree. */
		g_array_set_size(tally->counts, 0);
		memset(tally->unwind, 0, sizeof(tally->unwind));
		tally->all = tally->filtered = tally->kernel = (struct amount){ 0 };
		tally->unresolved = tally->bad_stacks = 0;
		g_array_set_size(tally->threads, 0);
		names->lost = names_lost;
	}
}

/* ---- run ------------------------------------------------------------------------------------- */

static void results_init(struct tally *tally, struct reader *reader)
{
	int64_t to = MIN_OF(reader->to_ns, reader->capture->duration_ns);

	tally->reader = reader;
	tally->bins_from_ns = MAX_OF(reader->from_ns, 0);
	tally->bin_ns = to > tally->bins_from_ns
				? (uint64_t)(to - tally->bins_from_ns) / TALLY_BINS + 1
				: 1;
	tally->least_weight = UINT64_MAX;
	tally->counts = g_array_new(FALSE, TRUE, sizeof(struct tally_entity));
	tally->callers = g_array_new(FALSE, TRUE, sizeof(struct tally_entity));
	tally->callees = g_array_new(FALSE, TRUE, sizeof(struct tally_entity));
	tally->threads = g_array_new(FALSE, TRUE, sizeof(struct amount));
	tally_tree_init(&tally->tree);
	tally->each = g_array_new(FALSE, FALSE, sizeof(struct tally_sample));
	tally->timelines = g_array_new(FALSE, TRUE, sizeof(struct tally_timeline));
	tally->cgroups = g_ptr_array_new();
	g_ptr_array_add(tally->cgroups, NULL);
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
	struct pass pass = { .tally = tally };
	bool ok;

	results_init(tally, reader);
	tally->functions = functions_new(reader->capture->names, error);
	if (!tally->functions || !choose_event(tally, &pass.event, error))
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
	pass.cgroup_ids = g_hash_table_new(g_str_hash, g_str_equal);
	pass.node_timelines = g_array_new(FALSE, TRUE, sizeof(struct tally_timeline));
	number_map_init(&pass.by_node);
	pass.amounts = g_array_new(FALSE, TRUE, sizeof(struct amount));
	ok = read_samples(&pass, &options, error);
	stacks_free(pass.stacks);
	g_hash_table_unref(pass.cgroup_ids);
	g_array_unref(pass.node_timelines);
	number_map_done(&pass.by_node);
	g_array_unref(pass.amounts);
	return ok;
}

void tally_done(struct tally *tally)
{
	functions_free(tally->functions);
	if (tally->counts) {
		g_array_unref(tally->counts);
		g_array_unref(tally->callers);
		g_array_unref(tally->callees);
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

void tally_write_unwind(const struct tally *tally, struct json *json, const char *key)
{
	static const char *const kinds[UNWIND_KINDS] = { "complete", "truncated", "guessed", "none",
							 "no_memory" };

	json_begin_object(json, key);
	for (size_t i = 0; i < UNWIND_KINDS; i++)
		json_uint(json, kinds[i], tally->unwind[i]);
	json_end(json);
}
