/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Profile - counts samples by function, line, image, thread, process or cgroup
 *
 * Invariants: (1) the self counts of all entities add up to `all` - `filtered`  [test-report: sums]
 *             (2) an entity's total counts a sample at most once  [test-report: recursion]
 *             (3) the work is constant for each sample and for each distinct stack node
 */
#include "config.h"

#include "tools/profcapture/profile.h"

#include "tools/common/grown-array.h"
#include "tools/profile/stacks.h"

#include <glib/gi18n.h>
#include <inttypes.h>
#include <string.h>

const char *const profile_by_names[] = { "function", "line",   "image", "thread",
					 "process",  "cgroup", "state", NULL };
const char *const profile_modes[] = { "any", "user", "kernel", NULL };

/* Bit in the `node` of a sample without a stack node. The other bits are the sample's entity. */
#define BARE 0x80000000u

/* The state while samples and waits are read. */
struct pass {
	struct profile *profile;
	struct names_epoch *epoch; /* NULL before the first row of a table */
	struct stacks *stacks;     /* stacks of the epoch; NULL if not needed */
	uint64_t weight_before;    /* profile weight of the earlier epochs */
	GHashTable *cgroup_ids;    /* interned path → index in profile->cgroups */
	struct number_map by_node; /* node, entity → index + 1 in `amounts`; with filters */
	GArray *amounts;           /* struct amount */
	bool reads_waits;
	uint32_t event;       /* index of the event whose samples count */
	uint64_t last_source; /* source of the last sample */
	uint32_t last_event;
	guint first_sample;     /* first sample of the epoch in profile->each */
	GArray *node_timelines; /* struct profile_timeline by node of the epoch */
};

enum { TIME, THREAD, CPU, STACK, METHOD, STOP, WEIGHT, INTERPRETER, CGROUP, N_COMMON };
enum { SOURCE = N_COMMON, MODE, N_COLUMNS };
enum { STATE = N_COMMON, STACK_SOURCE, SYSCALL, OBJECT, N_WAIT_COLUMNS };
static const uint16_t sample_columns[N_COLUMNS] = {
	PROF_SAMPLE_TIME,        PROF_SAMPLE_THREAD,    PROF_SAMPLE_CPU,    PROF_SAMPLE_STACK,
	PROF_SAMPLE_USER_METHOD, PROF_SAMPLE_USER_STOP, PROF_SAMPLE_WEIGHT, PROF_SAMPLE_INTERPRETER,
	PROF_SAMPLE_CGROUP,      PROF_SAMPLE_SOURCE,    PROF_SAMPLE_MODE,
};
static const uint16_t wait_columns[N_WAIT_COLUMNS] = {
	PROF_WAIT_TIME,        PROF_WAIT_THREAD,    PROF_WAIT_CPU,          PROF_WAIT_STACK,
	PROF_WAIT_USER_METHOD, PROF_WAIT_USER_STOP, PROF_WAIT_DURATION,     PROF_WAIT_INTERPRETER,
	PROF_WAIT_CGROUP,      PROF_WAIT_STATE,     PROF_WAIT_STACK_SOURCE, PROF_WAIT_SYSCALL,
	PROF_WAIT_OBJECT,
};

/* ---- entities -------------------------------------------------------------------------------- */

static struct profile_entity *entity_at(GArray *entities, uint32_t index)
{
	return GROWN_AT(entities, struct profile_entity, index);
}

static void count_add(struct profile_count *count, struct amount amount)
{
	amount_add(&count->self, amount);
	amount_add(&count->total, amount);
}

/* Returns whether entities are indexes in profile->functions. */
static bool counts_functions(const struct profile *profile)
{
	return profile->by == PROFILE_FUNCTION || profile->by == PROFILE_LINE;
}

static bool by_stack(const struct profile *profile)
{
	return counts_functions(profile) || profile->by == PROFILE_IMAGE;
}

/* Returns whether stack nodes refer to functions, at least until the filters have run. */
static bool by_function(const struct profile *profile)
{
	return counts_functions(profile) || profile->filters;
}

static uint32_t function_entity(struct names_epoch *epoch, size_t frame_row, void *data)
{
	const struct profile *profile = data;

	return functions_entity_of_row(profile->functions, epoch, frame_row);
}

static size_t inlined_functions(struct names_epoch *epoch, size_t frame_row, uint32_t *ret_entities,
				void *data)
{
	const struct profile *profile = data;

	return functions_inlined_at_row(profile->functions, epoch, frame_row, ret_entities);
}

static uint32_t image_entity(struct names_epoch *epoch, size_t frame_row, void *data)
{
	const struct profile *profile = data;
	uint64_t image = 0;

	if (profile->place_of)
		return profile->place_of(epoch, frame_row, profile->place_data);
	if (!names_number(epoch, NAMES_FRAME, PROF_FRAME_IMAGE, frame_row, &image))
		return NAMES_LOST;
	return names_image(epoch, image);
}

/* ---- walking the stacks of an epoch ---------------------------------------------------------- */

enum verdict { NOT_KNOWN, YES, NO };

static bool is_focus(struct profile *profile, uint32_t function)
{
	uint8_t *verdict = &entity_at(profile->counts, function)->is_focus;

	if (*verdict == NOT_KNOWN) {
		const struct function *f = functions_at(profile->functions, function);
		enum function_name_match least = profile->focus_is_part ? FUNCTION_NAME_COMPONENT
									: FUNCTION_NAME_WHOLE;

		*verdict = function_name_match(f->name, f->raw_name, profile->focus) >= least ? YES
											      : NO;
	}
	return *verdict == YES;
}

static bool is_own(struct profile *profile, uint32_t function)
{
	uint8_t *verdict = &entity_at(profile->counts, function)->is_own;

	if (*verdict == NOT_KNOWN)
		*verdict = code_origin_of(profile->functions, function) == CODE_ORIGIN_OWN ? YES
											   : NO;
	return *verdict == YES;
}

/* Returns the node that is counted as the caller of node `row`, which must have a parent. */
static uint32_t caller_of(struct profile *profile, const struct stacks *stacks, uint32_t row,
			  uint32_t *ret_skipped)
{
	uint32_t caller = stacks->parent[row];

	for (*ret_skipped = 0; profile->own_callers && caller != STACKS_NO_ROW; ++*ret_skipped) {
		if (is_own(profile, stacks->entity[caller]))
			return caller;
		caller = stacks->parent[caller];
	}
	*ret_skipped = 0;
	return stacks->parent[row];
}

/* Adds a node to its entity's self value, and to the total if no node above has this entity. */
static void visit_for(struct profile_entity *entity, const struct stacks *stacks, uint32_t row,
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
	struct profile *profile = data;
	uint32_t here = stacks->entity[row], parent = stacks->parent[row];

	visit_for(entity_at(profile->counts, here), stacks, row, enters);
	if (!profile->focus)
		return;
	if (is_focus(profile, here)) {
		profile->focus_found = true;
		visit_for(&profile->focus_entity, stacks, row, enters);
		if (parent != STACKS_NO_ROW) {
			uint32_t skipped, node = caller_of(profile, stacks, row, &skipped);
			struct profile_entity *caller =
				entity_at(profile->callers, stacks->entity[node]);

			if (caller->count.total.samples == 0 || skipped < caller->least_skipped)
				caller->least_skipped = skipped;
			caller->most_skipped = MAX_OF(caller->most_skipped, skipped);
			visit_for(caller, stacks, row, enters);
		}
	}
	if (parent != STACKS_NO_ROW && is_focus(profile, stacks->entity[parent]))
		visit_for(entity_at(profile->callees, here), stacks, row, enters);
}

/* Replaces a node's entity, a place in a function, with the entity to count. A frame's outermost
 * node must come last, because the frame's other nodes refer to it. */
static void settle_place(const struct profile *profile, struct stacks *stacks, uint32_t node,
			 uint32_t frame)
{
	uint32_t place =
		stacks->entity[profile->inlined || profile->by == PROFILE_LINE ? node : frame];

	if (profile->by == PROFILE_LINE)
		place = functions_line_of_place(profile->functions, place);
	else if (profile->by == PROFILE_IMAGE)
		place = functions_at(profile->functions, place)->image;
	else if (!profile->places)
		place = functions_whole(profile->functions, place);
	stacks->entity[node] = place;
}

/* Moves waits from the kernel's scheduler, in which all of their stacks end, to its callers, which
 * show what the thread waits for. Returns for each node the node that its waits are moved to. */
static uint32_t *leave_scheduler(struct stacks *stacks, const struct functions *functions)
{
	static const char *const scheduler[] = { "__schedule",
						 "schedule",
						 "schedule_timeout",
						 "schedule_preempt_disabled",
						 "schedule_hrtimeout_range",
						 "schedule_hrtimeout_range_clock",
						 "io_schedule",
						 "io_schedule_timeout",
						 NULL };
	uint32_t *nodes = g_new(uint32_t, stacks->n);

	for (size_t i = 0; i < stacks->n; i++) {
		uint32_t row = stacks->order[i], parent = stacks->parent[row];
		const struct function *f =
			functions_at(functions, functions_whole(functions, stacks->entity[row]));

		nodes[row] = row;
		if (parent == STACKS_NO_ROW || strcmp(f->kind, "kernel") != 0 ||
		    !g_strv_contains(scheduler, f->name))
			continue;
		nodes[row] = nodes[parent];
		amount_add(&stacks->self[nodes[row]], stacks->self[row]);
		stacks->self[row] = stacks->total[row] = (struct amount){ 0 };
	}
	return nodes;
}

/* Applies the filters. `leaves`: the nodes that samples were moved to before, or NULL. Returns for
 * each node the node that its samples are moved to; STACKS_NO_ROW: they are filtered. */
static uint32_t *filter(struct pass *pass, const uint32_t *leaves)
{
	struct profile *profile = pass->profile;
	struct stacks *stacks = pass->stacks;
	uint32_t *nodes = g_new(uint32_t, stacks->n);
	g_autofree uint32_t *frames = g_new(uint32_t, stacks->n);
	uint64_t key;
	uint32_t index;
	size_t at = 0;

	amount_add(&profile->filtered,
		   frame_filters_apply(profile->filters, stacks, profile->functions,
				       profile->inlined, nodes, frames));
	for (size_t i = stacks->n; i > 0; i--)
		settle_place(profile, stacks, stacks->order[i - 1], frames[stacks->order[i - 1]]);
	while (number_map_next(&pass->by_node, &at, &key, &index)) {
		uint32_t node = leaves ? leaves[key >> 32] : (uint32_t)(key >> 32);

		if (nodes[node] != STACKS_NO_ROW)
			count_add(&entity_at(profile->counts, (uint32_t)key)->count,
				  g_array_index(pass->amounts, struct amount, index - 1));
	}
	number_map_clear(&pass->by_node);
	g_array_set_size(pass->amounts, 0);
	for (size_t row = 0; leaves && row < stacks->n; row++)
		if (leaves[row] != row)
			nodes[row] = nodes[leaves[row]];
	return nodes;
}

/* At the end of an epoch, replaces the nodes in samples with nodes of the tree or, without a tree,
 * with their entities. Removes filtered samples. */
static void settle_samples(struct pass *pass, const uint32_t *nodes)
{
	GArray *each = pass->profile->each;
	bool has_tree = pass->profile->wants_tree;
	guint kept = pass->first_sample;

	for (guint i = pass->first_sample; i < each->len; i++) {
		struct profile_sample sample = g_array_index(each, struct profile_sample, i);

		if (sample.node & BARE) {
			sample.node = (sample.node & ~BARE) + has_tree;
		} else {
			sample.node = nodes ? nodes[sample.node] : sample.node;
			if (sample.node == STACKS_NO_ROW)
				continue;
			sample.node = has_tree
					      ? profile_tree_node(&pass->profile->tree, sample.node)
					      : pass->stacks->entity[sample.node];
		}
		g_array_index(each, struct profile_sample, kept++) = sample;
	}
	if (pass->profile->take) {
		pass->profile->take((const struct profile_sample *)(void *)each->data, kept,
				    pass->profile->taker);
		kept = 0;
	}
	g_array_set_size(each, kept);
	pass->first_sample = kept;
}

/* Adds the timelines of the epoch's nodes to those of their entities. */
static void settle_timelines(struct pass *pass, const uint32_t *nodes)
{
	static const struct profile_timeline none;

	for (uint32_t row = 0; row < pass->node_timelines->len; row++) {
		const struct profile_timeline *from =
			&g_array_index(pass->node_timelines, struct profile_timeline, row);
		uint32_t node = nodes ? nodes[row] : row;
		struct profile_timeline *to;

		/* Skip nodes without samples, which may have no entity. */
		if (node == STACKS_NO_ROW || memcmp(from, &none, sizeof(none)) == 0)
			continue;
		to = GROWN_AT(pass->profile->timelines, struct profile_timeline,
			      pass->stacks->entity[node]);
		for (unsigned i = 0; i < PROFILE_BINS; i++)
			amount_add(&to->self[i], from->self[i]);
	}
	g_array_set_size(pass->node_timelines, 0);
}

static void finish_epoch(struct pass *pass)
{
	struct profile *profile = pass->profile;
	struct stacks *stacks = pass->stacks;
	bool functions = by_function(profile);
	g_autofree uint32_t *nodes = NULL, *leaves = NULL;

	if (!stacks)
		return;
	stacks_settle(stacks, functions ? function_entity : image_entity, profile,
		      functions ? FUNCTION_LOST : NAMES_LOST);
	if (profile->functions->inlined)
		stacks_insert(stacks, inlined_functions, profile);
	for (size_t row = 0; functions && row < stacks->n; row++)
		if (stacks->self[row].samples &&
		    strcmp(functions_at(profile->functions, stacks->entity[row])->kind,
			   "unresolved") == 0)
			profile->unresolved += stacks->self[row].samples;
	if (pass->reads_waits && functions)
		leaves = leave_scheduler(stacks, profile->functions);
	if (profile->filters)
		nodes = filter(pass, leaves);
	else
		nodes = steal_ptr(&leaves);
	if (profile->wants_timeline)
		settle_timelines(pass, nodes);
	if (profile->own)
		own_weights_count(profile->own, profile->functions, stacks);
	if (profile->waiting)
		wait_places_count(profile->waiting, profile->functions, stacks);
	if (by_stack(profile))
		stacks_walk(stacks, visit, profile);
	if (profile->wants_tree) {
		struct stacks *inverted = profile->inverted ? stacks_invert(stacks) : NULL;

		profile_tree_add(&profile->tree, inverted ? inverted : stacks,
				 profile->all.weight - pass->weight_before);
		stacks_free(inverted);
	}
	if (profile->wants_samples)
		settle_samples(pass, nodes);
	profile->bad_stacks += stacks->cut;
	stacks_free(stacks);
	pass->stacks = NULL;
}

static bool begin_epoch(struct pass *pass, struct names_epoch *epoch, GError **error)
{
	pass->epoch = epoch;
	pass->weight_before = pass->profile->all.weight;
	pass->last_source = UINT64_MAX;
	pass->last_event = sampled_events_of(pass->profile->reader->capture->sampled, epoch->epoch,
					     pass->last_source);
	if (!by_stack(pass->profile) && !pass->profile->filters)
		return true;
	pass->stacks = stacks_load(epoch, error);
	if (pass->stacks && by_function(pass->profile))
		stacks_time(pass->stacks, pass->profile->functions);
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
	g_ptr_array_add(pass->profile->cgroups, (gpointer)path);
	g_hash_table_insert(pass->cgroup_ids, (gpointer)path,
			    GUINT_TO_POINTER(pass->profile->cgroups->len - 1));
	return pass->profile->cgroups->len - 1;
}

/* A sample or a wait that is being counted. */
struct hit {
	uint64_t clock_ns, stack;
	int64_t time_ns; /* since the capture's start */
	uint32_t segment, thread, cpu;
	bool is_wait;
	const char *call; /* the wait's system call, if the stack lacks it, or NULL */
	struct amount amount;
};

/* Returns the stack node of a sample. Returns STACKS_NO_ROW if stacks are not wanted, the sample
 * has no stack, or the capture lost the stack. */
static uint32_t node_of(struct pass *pass, const struct hit *hit)
{
	struct functions *functions = pass->profile->functions;
	ssize_t row = pass->stacks ? names_row(pass->epoch, NAMES_STACK, hit->stack) : -1;
	uint32_t node;

	if (row < 0 || (size_t)row >= pass->stacks->n_rows)
		return STACKS_NO_ROW;
	node = stacks_row_at(pass->stacks, functions, (uint32_t)row, hit->segment, hit->clock_ns);
	return hit->call && by_function(pass->profile) && node != STACKS_NO_ROW
		       ? stacks_below(pass->stacks, node, functions_of_call(functions, hit->call))
		       : node;
}

/* Divides a wait's time among the bins that it spans. Counts the wait itself in the first bin. */
static void add_wait(struct profile_timeline *timeline, const struct profile *profile,
		     const struct hit *hit)
{
	uint64_t at = (uint64_t)MAX_OF(hit->time_ns - profile->bins_from_ns, INT64_C(0));
	uint64_t left = hit->amount.weight, samples = 1;

	while (left > 0) {
		uint64_t bin = MIN_OF(at / profile->bin_ns, (uint64_t)PROFILE_BINS - 1);
		uint64_t part = bin + 1 < PROFILE_BINS
					? MIN_OF((bin + 1) * profile->bin_ns - at, left)
					: left;

		amount_add(&timeline->self[bin], (struct amount){ samples, part });
		samples = 0;
		left -= part;
		at += part;
	}
}

/* With wants_samples, stores the sample. With wants_timeline, adds it to a timeline. */
static void place_in_time(struct profile *profile, GArray *timelines, uint32_t index, uint32_t node,
			  const struct hit *hit)
{
	const struct profile_sample sample = { hit->time_ns, hit->thread, node, hit->amount.weight,
					       hit->cpu };

	if (profile->wants_samples)
		g_array_append_val(profile->each, sample);
	if (profile->wants_timeline && hit->is_wait) {
		add_wait(GROWN_AT(timelines, struct profile_timeline, index), profile, hit);
	} else if (profile->wants_timeline) {
		uint64_t since = (uint64_t)MAX_OF(hit->time_ns - profile->bins_from_ns, INT64_C(0));
		uint64_t bin = MIN_OF(since / profile->bin_ns, (uint64_t)PROFILE_BINS - 1);

		amount_add(&GROWN_AT(timelines, struct profile_timeline, index)->self[bin],
			   hit->amount);
	}
}

/* Counts a sample in its stack node. `entity`: the sample's entity or, if stack nodes determine the
 * entities, the entity of samples without a node. */
static void count_in(struct pass *pass, uint32_t entity, const struct hit *hit)
{
	struct profile *profile = pass->profile;
	uint32_t node = node_of(pass, hit), *index;

	if (node != STACKS_NO_ROW) {
		amount_add(&pass->stacks->self[node], hit->amount);
		if (by_stack(profile)) {
			place_in_time(profile, pass->node_timelines, node, node, hit);
			return;
		}
		index = number_map_at(&pass->by_node, (uint64_t)node << 32 | entity);
		if (*index == 0)
			*index = pass->amounts->len + 1;
		amount_add(GROWN_AT(pass->amounts, struct amount, *index - 1), hit->amount);
	} else if (profile->filters && !frame_filters_want_bare(profile->filters)) {
		amount_add(&profile->filtered, hit->amount);
	} else {
		count_add(&entity_at(profile->counts, entity)->count, hit->amount);
		if (profile->waiting)
			wait_places_add_unknown(profile->waiting, hit->amount);
		if (counts_functions(profile))
			profile->unresolved++;
		/* FUNCTION_NO_STACK and FUNCTION_LOST each have a node under the root. */
		if (profile->wants_tree)
			count_add(&g_array_index(profile->tree.nodes, struct profile_node,
						 1 + entity)
					   .count,
				  hit->amount);
		place_in_time(profile, profile->timelines, entity, BARE | entity, hit);
	}
}

/* Returns whether a row was taken in the kernel. Every wait is in the kernel. */
static bool is_in_kernel(const struct prof_batch *batch, size_t i, bool is_wait)
{
	return is_wait ||
	       array_number_or(&batch->columns[MODE], i, PROF_MODE_USER) == PROF_MODE_KERNEL;
}

/* Counts how a stack was unwound. Frames of generated code do not count as guessed if the sample
 * has all of the interpreter's functions. Stop reasons that later versions add count as guesses. */
static void count_unwind(struct profile *profile, uint64_t method, uint64_t stop,
			 uint64_t interpreter)
{
	if (method == PROF_METHOD_JIT_FP && interpreter == PROF_INTERPRETER_COMPLETE)
		method = PROF_METHOD_CFI;
	/* A kernel thread has no user stack. */
	if (stop == PROF_STOP_KERNEL_THREAD)
		return;
	if (stop == PROF_STOP_NO_MEMORY)
		profile->unwind[UNWIND_NO_MEMORY]++;
	else if (method == PROF_METHOD_NONE)
		profile->unwind[UNWIND_NONE]++;
	else if (method == PROF_METHOD_CFI && stop == PROF_STOP_ROOT)
		profile->unwind[UNWIND_COMPLETE]++;
	else if (method == PROF_METHOD_CFI &&
		 (stop == PROF_STOP_COPY_END || stop == PROF_STOP_DEPTH))
		profile->unwind[UNWIND_TRUNCATED]++;
	else
		profile->unwind[UNWIND_GUESSED]++;
}

static void count_sample(struct pass *pass, const struct prof_batch *batch, size_t i,
			 struct hit *hit)
{
	const struct prof_array *c = batch->columns;
	struct profile *profile = pass->profile;
	uint32_t entity;
	uint64_t read;

	hit->stack = array_number_or(&c[STACK], i, 0);
	amount_add(&profile->all, hit->amount);
	profile->least_weight = MIN_OF(profile->least_weight, hit->amount.weight);
	profile->most_weight = MAX_OF(profile->most_weight, hit->amount.weight);
	read = array_number_or(&c[INTERPRETER], i, PROF_INTERPRETER_NONE);
	count_unwind(profile, array_number_or(&c[METHOD], i, PROF_METHOD_NONE),
		     array_number_or(&c[STOP], i, PROF_STOP_UNKNOWN), read);
	if (is_in_kernel(batch, i, hit->is_wait))
		amount_add(&profile->kernel, hit->amount);
	/* Interpreter states that later versions add count as missing. */
	profile->interpreter[read < PROF_INTERPRETERS ? read : PROF_INTERPRETER_MISSING]++;
	if (hit->is_wait) {
		uint64_t state = array_number_or(&c[STATE], i, PROF_WAIT_UNKNOWN);
		uint64_t source = array_number_or(&c[STACK_SOURCE], i, PROF_STACK_NONE);

		hit->call = wait_call_name(&(struct wait_call){
			.source = source,
			.state = state,
			.call = names_text(pass->epoch, array_number_or(&c[SYSCALL], i, 0)),
			.object = names_text(pass->epoch, array_number_or(&c[OBJECT], i, 0)),
		});
		profile->wait_ns[MIN_OF(state, (uint64_t)PROF_WAIT_TRACED)] += hit->amount.weight;
		if (source < PROF_STACK_SOURCES)
			profile->stack_ns[source] += hit->amount.weight;
	}
	if (profile->wants_threads)
		amount_add(GROWN_AT(profile->threads, struct amount, hit->thread), hit->amount);
	switch (profile->by) {
	case PROFILE_THREAD:
		entity = hit->thread;
		break;
	case PROFILE_PROCESS:
		entity = names_thread_at(profile->functions->names, hit->thread)->process;
		break;
	case PROFILE_CGROUP:
		entity = cgroup_entity(pass, array_number_or(&c[CGROUP], i, 0));
		break;
	default:
		entity = hit->stack == 0 ? FUNCTION_NO_STACK : FUNCTION_LOST;
	}
	count_in(pass, entity, hit);
}

/* Returns whether samples of a source count. The last result is cached, because consecutive samples
 * mostly have the same source. */
static bool is_of_event(struct pass *pass, uint32_t epoch, uint64_t source)
{
	if (pass->profile->wants_all_events)
		return true;
	if (source != pass->last_source) {
		pass->last_source = source;
		pass->last_event =
			sampled_events_of(pass->profile->reader->capture->sampled, epoch, source);
	}
	return pass->last_event == pass->event;
}

/* Fills in the time and the amount of a row. `weight`: the weight of a sample, or the duration of a
 * wait. Returns false if the row is not in the range of clock values. */
static bool fit_hit(struct pass *pass, struct hit *hit, uint64_t weight, uint64_t from, uint64_t to)
{
	const struct profile *profile = pass->profile;
	uint64_t begin, end;

	if (!hit->is_wait) {
		hit->amount = (struct amount){
			1, profile->event ? sampled_event_weight(profile->event, weight) : 1
		};
		return hit->clock_ns >= from && hit->clock_ns <= to;
	}
	begin = MAX_OF(hit->clock_ns - MIN_OF(weight, hit->clock_ns), from);
	end = MIN_OF(hit->clock_ns, to);
	if (begin >= end)
		return false;
	hit->clock_ns = begin;
	hit->amount = (struct amount){ 1, end - begin };
	return true;
}

static bool count_batch(struct names_epoch *epoch, const struct prof_batch *batch, void *data,
			GError **error)
{
	struct pass *pass = data;
	struct profile *profile = pass->profile;
	struct reader *reader = profile->reader;
	const struct prof_array *c = batch->columns;
	bool filters_threads = reader_filters_threads(reader);
	bool threads = filters_threads || profile->inside || profile->wants_samples ||
		       profile->wants_threads || profile->by == PROFILE_THREAD ||
		       profile->by == PROFILE_PROCESS;
	bool is_wait = pass->reads_waits;
	/* converts clock values to relative times */
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
				   .segment = batch->segment,
				   .is_wait = is_wait };

		if (!fit_hit(pass, &hit, array_number_or(&c[WEIGHT], i, 0), from, to))
			continue;
		if (!is_wait && !is_of_event(pass, batch->epoch, array_number_or(&c[SOURCE], i, 0)))
			continue;
		if (profile->mode != PROFILE_ANY_MODE &&
		    is_in_kernel(batch, i, is_wait) != (profile->mode == PROFILE_KERNEL))
			continue;
		if (reader->cpus &&
		    !reader_wants_cpu(reader, array_number_or(&c[CPU], i, UINT64_MAX)))
			continue;
		hit.cpu = (uint32_t)MIN_OF(array_number_or(&c[CPU], i, PROFILE_NO_CPU),
					   (uint64_t)PROFILE_NO_CPU);
		hit.time_ns = (int64_t)(hit.clock_ns + shift);
		if (threads)
			hit.thread = names_thread(epoch, array_number_or(&c[THREAD], i, 0));
		if (filters_threads && !reader_wants_thread_at(reader, hit.thread, hit.time_ns))
			continue;
		if (profile->inside && !span_set_has(profile->inside, hit.thread, hit.time_ns))
			continue;
		count_sample(pass, batch, i, &hit);
	}
	return true;
}

static bool read_table(struct pass *pass, bool waits, GError **error)
{
	struct reader *reader = pass->profile->reader;
	struct prof_cursor_options options = {
		.table = waits ? PROF_TABLE_WAIT : PROF_TABLE_SAMPLE,
		.columns = waits ? wait_columns : sample_columns,
		.n_columns = waits ? N_WAIT_COLUMNS : N_COLUMNS,
	};

	/* With several segments, one relative time may be several clock values. A wait's row has
	 * the time of its end, which may be after the range. */
	if (reader->timed && reader->capture->n_segments == 1)
		reader_clock_range(reader, reader->capture->segments[0].number, &options.t_from,
				   &options.t_to);
	if (waits && options.t_to)
		options.t_to = UINT64_MAX;
	pass->reads_waits = waits;
	if (!names_each_batch(reader->capture->names, &options, count_batch, pass, error))
		return false;
	finish_epoch(pass);
	pass->epoch = NULL;
	return true;
}

static bool read_samples(struct pass *pass, GError **error)
{
	struct profile *profile = pass->profile;
	struct names *names = profile->reader->capture->names;
	int metric = profile->reader->metric;
	uint64_t names_lost = names->lost;

	for (;;) {
		if ((metric != READER_OFF_CPU && !read_table(pass, false, error)) ||
		    (metric != READER_CPU && !read_table(pass, true, error)))
			return false;
		if (!profile->wants_tree || !profile_tree_again(&profile->tree))
			return true;
		/* The tree needs a second pass, so reset all counts. */
		g_array_set_size(profile->counts, 0);
		memset(profile->unwind, 0, sizeof(profile->unwind));
		memset(profile->wait_ns, 0, sizeof(profile->wait_ns));
		memset(profile->stack_ns, 0, sizeof(profile->stack_ns));
		memset(profile->interpreter, 0, sizeof(profile->interpreter));
		profile->all = profile->filtered = profile->kernel = (struct amount){ 0 };
		profile->unresolved = profile->bad_stacks = 0;
		g_array_set_size(profile->threads, 0);
		g_array_set_size(profile->timelines, 0);
		g_array_set_size(profile->each, 0);
		pass->first_sample = 0;
		if (profile->own)
			own_weights_done(profile->own);
		if (profile->waiting)
			wait_places_done(profile->waiting);
		names->lost = names_lost;
	}
}

/* ---- run ------------------------------------------------------------------------------------- */

static void results_init(struct profile *profile, struct reader *reader)
{
	int64_t to = MIN_OF(reader->to_ns, reader->capture->duration_ns);

	profile->reader = reader;
	profile->bins_from_ns = MAX_OF(reader->from_ns, 0);
	profile->bin_ns = to > profile->bins_from_ns
				  ? (uint64_t)(to - profile->bins_from_ns) / PROFILE_BINS + 1
				  : 1;
	profile->least_weight = UINT64_MAX;
	profile->counts = g_array_new(FALSE, TRUE, sizeof(struct profile_entity));
	profile->callers = g_array_new(FALSE, TRUE, sizeof(struct profile_entity));
	profile->callees = g_array_new(FALSE, TRUE, sizeof(struct profile_entity));
	profile->threads = g_array_new(FALSE, TRUE, sizeof(struct amount));
	profile_tree_init(&profile->tree);
	profile->each = g_array_new(FALSE, FALSE, sizeof(struct profile_sample));
	profile->timelines = g_array_new(FALSE, TRUE, sizeof(struct profile_timeline));
	profile->cgroups = g_ptr_array_new();
	g_ptr_array_add(profile->cgroups, NULL);
}

/* Returns whether waits can be counted. */
static bool has_waits(struct reader *reader, GError **error)
{
	bool has = false;

	if (!capture_check(reader->capture, PROF_TABLE_WAIT, error) ||
	    !reader_has_rows(reader, PROF_TABLE_WAIT, &has, error))
		return false;
	if (!has)
		g_set_error(error, CLI_ERROR, CLI_NOTHING_CAPTURED,
			    _("capture '%s' does not say where threads waited; 'profctl record "
			      "--off-cpu' records it"),
			    reader->capture->file);
	return has;
}

/* Selects the event whose samples count. */
static bool choose_event(struct profile *profile, uint32_t *ret_event, GError **error)
{
	/* waits count like samples of a clock that runs while a thread sleeps */
	static const struct sampled_event waits = { .name = "off-cpu", .unit = "ns" };
	struct reader *reader = profile->reader;
	const struct capture *capture = reader->capture;

	if (reader->metric != READER_CPU && !has_waits(reader, error))
		return false;
	if (!sampled_events_read(capture->sampled, capture->reader, capture->names, error) ||
	    !sampled_events_find(capture->sampled, reader->event, capture->file, ret_event, error))
		return false;
	if (reader->metric == READER_OFF_CPU) {
		profile->event = &waits;
		return true;
	}
	if (reader->metric == READER_WALL && *ret_event != SAMPLED_NO_EVENT &&
	    !sampled_event_is_clock(sampled_event_at(capture->sampled, *ret_event))) {
		if (!sampled_event_at(capture->sampled, *ret_event)->name)
			return cli_set_error(error, CLI_UNREADABLE,
					     _("--metric wall: what the samples count is lost"));
		return cli_set_error(error, CLI_USAGE,
				     _("--metric wall needs samples of a clock; 'profctl record -e "
				       "cpu-clock' takes them"));
	}
	if (profile->wants_all_events || *ret_event == SAMPLED_NO_EVENT)
		return true;
	profile->event = sampled_event_at(capture->sampled, *ret_event);
	profile->period_ns = sampled_event_period_ns(profile->event);
	return true;
}

bool profile_run(struct profile *profile, struct reader *reader, GError **error)
{
	struct pass pass = { .profile = profile };
	bool ok;

	results_init(profile, reader);
	profile->functions = profile->shared ? profile->shared
					     : functions_new(reader->capture->names, error);
	if (!profile->functions || !choose_event(profile, &pass.event, error))
		return false;
	profile->functions->inlined = profile->inlined || profile->filters;
	profile->functions->joins_inlined = profile->joins_inlined;
	if (profile->addresses)
		profile->functions->detail = FUNCTIONS_ADDRESSES;
	else if (profile->places || profile->filters)
		profile->functions->detail = FUNCTIONS_PLACES;
	else if (profile->by == PROFILE_LINE)
		profile->functions->detail = FUNCTIONS_LINES;
	pass.cgroup_ids = g_hash_table_new(g_str_hash, g_str_equal);
	pass.node_timelines = g_array_new(FALSE, TRUE, sizeof(struct profile_timeline));
	number_map_init(&pass.by_node);
	pass.amounts = g_array_new(FALSE, TRUE, sizeof(struct amount));
	ok = read_samples(&pass, error);
	stacks_free(pass.stacks);
	g_hash_table_unref(pass.cgroup_ids);
	g_array_unref(pass.node_timelines);
	number_map_done(&pass.by_node);
	g_array_unref(pass.amounts);
	return ok;
}

void profile_done(struct profile *profile)
{
	if (!profile->shared)
		functions_free(profile->functions);
	if (profile->counts) {
		g_array_unref(profile->counts);
		g_array_unref(profile->callers);
		g_array_unref(profile->callees);
		g_array_unref(profile->threads);
		g_array_unref(profile->each);
		g_array_unref(profile->timelines);
		profile_tree_done(&profile->tree);
		g_ptr_array_unref(profile->cgroups);
	}
	*profile = (struct profile){ 0 };
}

const char *profile_event_name(const struct profile *profile)
{
	const char *recorded = capture_metadata(profile->reader->capture, "event");

	if (profile->event && profile->event->name)
		return profile->event->name;
	return recorded ? recorded : "-";
}

const char *profile_unit(const struct profile *profile)
{
	return profile->event && profile->event->unit ? profile->event->unit : "samples";
}

bool profile_is_weighted(const struct profile *profile)
{
	if (!profile->event || !profile->event->unit || profile->all.samples == 0)
		return false;
	return profile->least_weight != profile->most_weight ||
	       (!sampled_event_is_clock(profile->event) && profile->most_weight != 1);
}

void profile_print_sum(const struct profile *profile, struct out *out)
{
	g_autofree char *weight = text_count(profile->all.weight);

	if (!profile_is_weighted(profile))
		return;
	if (strcmp(profile_unit(profile), "ns") == 0)
		out_printf(out, _(", which stand for %s ns"), weight);
	else
		out_printf(out, _(", which stand for %s events"), weight);
}

void profile_print_other_events(const struct profile *profile, struct out *out)
{
	const struct sampled_events *events = profile->reader->capture->sampled;
	g_autofree char *names = NULL, *escaped = NULL;

	if (!profile->event || profile->reader->metric == READER_OFF_CPU)
		return;
	names = sampled_events_others(events,
				      (uint32_t)(profile->event - sampled_event_at(events, 0)));
	if (!names)
		return;
	escaped = text_escape(names);
	out_printf(out, _("; also recorded: %s (--event NAME)"), escaped);
}

void profile_print_wait_stacks(const struct profile *profile, struct out *out)
{
	uint64_t all = 0;
	double raced, none;

	for (size_t i = 0; i < PROF_STACK_SOURCES; i++)
		all += profile->stack_ns[i];
	if (all == 0)
		return;
	raced = 100 * (double)profile->stack_ns[PROF_STACK_RACED] / (double)all;
	none = 100 * (double)profile->stack_ns[PROF_STACK_NONE] / (double)all;
	if (raced + none >= 0.05)
		out_printf(
			out,
			_("Stacks of waits: %.1f %% of the time, %.1f %% read too late, %.1f %% not read.\n"),
			MAX_OF(100 - raced - none, 0.0), raced, none);
}

uint64_t profile_interpreted(const struct profile *profile)
{
	uint64_t all = 0;

	for (size_t i = PROF_INTERPRETER_NONE + 1; i < PROF_INTERPRETERS; i++)
		all += profile->interpreter[i];
	return all;
}

void profile_write_interpreter(const struct profile *profile, struct json *json, const char *key)
{
	static const char *const kinds[PROF_INTERPRETERS] = {
		[PROF_INTERPRETER_COMPLETE] = "complete", [PROF_INTERPRETER_DEEPER] = "deeper",
		[PROF_INTERPRETER_TORN] = "torn",         [PROF_INTERPRETER_MISSING] = "missing",
		[PROF_INTERPRETER_IDLE] = "idle",
	};

	if (profile_interpreted(profile) == 0) {
		json_null(json, key);
		return;
	}
	json_begin_object(json, key);
	for (size_t i = PROF_INTERPRETER_NONE + 1; i < PROF_INTERPRETERS; i++)
		json_uint(json, kinds[i], profile->interpreter[i]);
	json_end(json);
}

void profile_write_unwind(const struct profile *profile, struct json *json, const char *key)
{
	static const char *const kinds[UNWIND_KINDS] = { "complete", "truncated", "guessed", "none",
							 "no_memory" };

	json_begin_object(json, key);
	for (size_t i = 0; i < UNWIND_KINDS; i++)
		json_uint(json, kinds[i], profile->unwind[i]);
	json_end(json);
}
