/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Stacks - the calling-context tree of one epoch, with the samples that ended in each node
 *
 * Invariants: (1) parent[row] has a smaller id than row: there is no cycle
 *                 [test-report: cyclic stacks]
 *             (2) no node is deeper than STACKS_MAX_DEPTH  [test-report: deep stacks]
 *             (3) in order[], a parent comes before its children, so totals are computed in one
 *                 loop [test-report: totals]
 *             (4) leaving out frames of an interpreter changes no sum  [test-report: interpreter]
 */
#include "config.h"

#include "tools/profile/stacks.h"

#include <string.h>

/* By row: whether a name at or above it depends on the time, and the node of the last look-up. */
struct stacks_timed {
	bool is_timed;
	uint32_t node, segment;
	uint64_t from_ns, until_ns;
};

void stacks_free(struct stacks *stacks)
{
	if (!stacks)
		return;
	g_free(stacks->parent);
	g_free(stacks->entity);
	g_free(stacks->self);
	g_free(stacks->total);
	g_free(stacks->order);
	g_free(stacks->timed);
	g_free(stacks->shown);
	number_map_done(&stacks->made);
	g_free(stacks);
}

static void set_room(struct stacks *stacks, size_t room)
{
	stacks->room = room;
	stacks->parent = g_renew(uint32_t, stacks->parent, room);
	stacks->order = g_renew(uint32_t, stacks->order, room);
	stacks->entity = g_renew(uint32_t, stacks->entity, room);
	stacks->self = g_renew(struct amount, stacks->self, room);
	stacks->total = g_renew(struct amount, stacks->total, room);
}

/* Appends a node without samples. */
static uint32_t add_node(struct stacks *stacks, uint32_t parent, uint32_t entity)
{
	uint32_t node = (uint32_t)stacks->n++;

	if (node >= stacks->room)
		set_room(stacks, stacks->room * 2 + 64);
	stacks->parent[node] = parent;
	stacks->order[node] = node;
	stacks->entity[node] = entity;
	stacks->self[node] = stacks->total[node] = (struct amount){ 0 };
	return node;
}

static gint compare_ids(gconstpointer left, gconstpointer right, gpointer data)
{
	const uint64_t *ids = data;
	uint64_t a = ids[*(const uint32_t *)left], b = ids[*(const uint32_t *)right];

	return a < b ? -1 : a > b;
}

/* Sets the parents of all nodes. Cuts off and counts nodes whose parent is invalid, or which would
 * be too deep. */
static void link_parents(struct stacks *stacks, const uint64_t *ids)
{
	g_autofree uint16_t *depth = g_new0(uint16_t, stacks->n);

	for (size_t i = 0; i < stacks->n; i++) {
		uint32_t row = stacks->order[i];
		uint64_t parent = 0;
		ssize_t found = -1;

		(void)names_number(stacks->epoch, NAMES_STACK, PROF_STACK_PARENT, row, &parent);
		if (parent < ids[row])
			found = names_row(stacks->epoch, NAMES_STACK, parent);
		if (found >= 0 && depth[found] + 1 < STACKS_MAX_DEPTH) {
			stacks->parent[row] = (uint32_t)found;
			depth[row] = depth[found] + 1;
		} else {
			stacks->cut += parent != 0;
		}
	}
}

static ssize_t frame_row(const struct stacks *stacks, uint32_t row)
{
	uint64_t frame = 0;

	(void)names_number(stacks->epoch, NAMES_STACK, PROF_STACK_FRAME, row, &frame);
	return names_row(stacks->epoch, NAMES_FRAME, frame);
}

/* ---- Frames of interpreters ------------------------------------------------------------------ */

enum part { PART_UNKNOWN, PART_OTHER, PART_PROGRAM, PART_INTERPRETER };

/* More interpreters than this are ignored. */
#define MAX_INTERPRETERS 256u

struct parts {
	uint8_t *of_image;                       /* enum part, by row of the table of images */
	uint32_t interpreters[MAX_INTERPRETERS]; /* indexes in names */
	size_t n_interpreters;
};

static void parts_done(struct parts *parts)
{
	g_free(parts->of_image);
}

/* Finds the interpreters of the epoch. Looks up only their images, because there may be millions of
 * other images. */
static void parts_init(struct parts *parts, struct names_epoch *epoch)
{
	const struct prof_dictionary *table = epoch->tables[NAMES_IMAGE];
	const struct prof_array *ids = table ? prof_dictionary_column(table, PROF_IMAGE_ID) : NULL;
	const size_t n = ids && ids->numbers ? prof_dictionary_rows(table) : 0;

	*parts = (struct parts){ 0 };
	for (size_t i = 0; i < n && parts->n_interpreters < MAX_INTERPRETERS; i++) {
		uint64_t kind = PROF_IMAGE_FILE;

		(void)names_number(epoch, NAMES_IMAGE, PROF_IMAGE_KIND, i, &kind);
		if (kind == PROF_IMAGE_INTERPRETER)
			parts->interpreters[parts->n_interpreters++] =
				names_image(epoch, ids->numbers[i]);
	}
	if (parts->n_interpreters > 0)
		parts->of_image = g_new0(uint8_t, n);
}

static enum part part_of_image(const struct parts *parts, const struct names *names, uint32_t index)
{
	const struct names_image *image = names_image_at(names, index);

	if (image->kind == PROF_IMAGE_INTERPRETER)
		return PART_PROGRAM;
	if (image->kind != PROF_IMAGE_FILE || (!image->build_id && !image->inode))
		return PART_OTHER;
	for (size_t i = 0; i < parts->n_interpreters; i++) {
		const struct names_image *other = names_image_at(names, parts->interpreters[i]);

		/* Build-ids are interned, so compare the pointers. */
		if (image->build_id == other->build_id && image->dev == other->dev &&
		    image->inode == other->inode)
			return PART_INTERPRETER;
	}
	return PART_OTHER;
}

static enum part part_of_row(const struct stacks *stacks, struct parts *parts, uint32_t row)
{
	ssize_t frame = frame_row(stacks, row), of;
	uint64_t image = 0;

	if (frame < 0 ||
	    !names_number(stacks->epoch, NAMES_FRAME, PROF_FRAME_IMAGE, (size_t)frame, &image))
		return PART_OTHER;
	of = names_row(stacks->epoch, NAMES_IMAGE, image);
	if (of < 0)
		return PART_OTHER;
	if (parts->of_image[of] == PART_UNKNOWN)
		parts->of_image[of] = (uint8_t)part_of_image(parts, stacks->epoch->names,
							     names_image(stacks->epoch, image));
	return parts->of_image[of];
}

/*
 * Links the rows that are shown. A stack with a frame of the interpreted program is shown without
 * frames of the interpreter. Other stacks keep these frames, because they may have no others.
 */
static void leave_out_interpreter(struct stacks *stacks, struct parts *parts)
{
	/* by row: the nearest row at or above it that is not the interpreter's; whether the row is
	 * a frame of the program, or below one */
	g_autofree uint32_t *outer = g_new(uint32_t, stacks->n);
	g_autofree bool *is_inside = g_new0(bool, stacks->n);

	stacks->shown = g_new(uint32_t, stacks->n);
	for (size_t i = 0; i < stacks->n; i++) {
		const uint32_t row = stacks->order[i], parent = stacks->parent[row];
		const bool is_root = parent == STACKS_NO_ROW;
		const enum part part = part_of_row(stacks, parts, row);

		is_inside[row] = part == PART_PROGRAM || (!is_root && is_inside[parent]);
		stacks->shown[row] = outer[row] = row;
		if (is_root) {
			if (part == PART_INTERPRETER)
				outer[row] = STACKS_NO_ROW;
			continue;
		}
		stacks->parent[row] = stacks->shown[parent];
		if (part == PART_PROGRAM && !is_inside[parent])
			stacks->parent[row] = outer[parent];
		if (part == PART_INTERPRETER)
			outer[row] = outer[parent];
		if (part == PART_INTERPRETER && is_inside[row])
			stacks->shown[row] = stacks->shown[parent];
	}
}

static void leave_out_program(struct stacks *stacks, struct parts *parts)
{
	stacks->shown = g_new(uint32_t, stacks->n);
	for (size_t i = 0; i < stacks->n; i++) {
		const uint32_t row = stacks->order[i], parent = stacks->parent[row];

		stacks->parent[row] = parent == STACKS_NO_ROW ? parent : stacks->shown[parent];
		stacks->shown[row] = part_of_row(stacks, parts, row) == PART_PROGRAM &&
						     parent != STACKS_NO_ROW
					     ? stacks->parent[row]
					     : row;
	}
}

/* ---- Loading --------------------------------------------------------------------------------- */

struct stacks *stacks_load(struct names_epoch *epoch, GError **error)
{
	CLEANUP(parts_done) struct parts parts = { 0 };
	const struct prof_array *ids;
	struct stacks *stacks;
	bool sorted = true;

	if (!names_load(epoch, NAMES_STACK, error) || !names_load(epoch, NAMES_FRAME, error))
		return NULL;
	stacks = g_new0(struct stacks, 1);
	stacks->epoch = epoch;
	number_map_init(&stacks->made);
	if (!epoch->tables[NAMES_STACK])
		return stacks;
	ids = prof_dictionary_column(epoch->tables[NAMES_STACK], PROF_STACK_ID);
	stacks->n_rows = ids->numbers ? prof_dictionary_rows(epoch->tables[NAMES_STACK]) : 0;
	set_room(stacks, stacks->n_rows);
	while (stacks->n < stacks->n_rows) {
		uint32_t row = add_node(stacks, STACKS_NO_ROW, 0);

		sorted = sorted && (row == 0 || ids->numbers[row - 1] <= ids->numbers[row]);
	}
	/* The rows are usually sorted, because the engine writes them in order. */
	if (!sorted)
		g_qsort_with_data(stacks->order, (gint)stacks->n, sizeof(*stacks->order),
				  compare_ids, (gpointer)ids->numbers);
	link_parents(stacks, ids->numbers);
	if (!epoch->names->interpreter_frames)
		parts_init(&parts, epoch);
	if (parts.n_interpreters > 0 && epoch->names->native_frames)
		leave_out_program(stacks, &parts);
	else if (parts.n_interpreters > 0)
		leave_out_interpreter(stacks, &parts);
	return stacks;
}

/* ---- Names that depend on the time ----------------------------------------------------------- */

void stacks_time(struct stacks *stacks, struct functions *functions)
{
	if (!code_names_any(functions->codes))
		return;
	stacks->timed = g_new0(struct stacks_timed, stacks->n);
	for (size_t i = 0; i < stacks->n; i++) {
		uint32_t row = stacks->order[i], parent = stacks->parent[row];
		ssize_t frame = frame_row(stacks, row);

		stacks->timed[row].is_timed =
			(parent != STACKS_NO_ROW && stacks->timed[parent].is_timed) ||
			(frame >= 0 && functions_is_timed(functions, stacks->epoch, (size_t)frame));
	}
}

uint32_t stacks_below(struct stacks *stacks, uint32_t parent, uint32_t function)
{
	uint64_t above = parent == STACKS_NO_ROW ? 0 : (uint64_t)parent + 1;
	uint32_t *known = number_map_at(&stacks->made, above << 32 | function);

	/* Parents are created first, so order[] stays valid. */
	if (*known == 0)
		*known = add_node(stacks, parent, function) + 1;
	return *known - 1;
}

uint32_t stacks_row_at(struct stacks *stacks, struct functions *functions, uint32_t row,
		       uint32_t segment, uint64_t time_ns)
{
	uint32_t path[STACKS_MAX_DEPTH], n = 0, node;
	uint64_t until_ns = UINT64_MAX;
	struct stacks_timed *timed;

	if (stacks->shown)
		row = stacks->shown[row];
	node = row;
	if (!stacks->timed || !stacks->timed[row].is_timed)
		return row;
	timed = &stacks->timed[row];
	if (timed->segment == segment && time_ns >= timed->from_ns && time_ns < timed->until_ns)
		return timed->node;
	for (; node != STACKS_NO_ROW && stacks->timed[node].is_timed; node = stacks->parent[node])
		path[n++] = node;
	while (n > 0) {
		ssize_t frame = frame_row(stacks, path[--n]);
		uint32_t entities[FUNCTIONS_MAX_AT_ROW] = { FUNCTION_LOST };
		uint64_t until = UINT64_MAX;
		size_t n_entities = frame < 0 ? 1
					      : functions_at_row(functions, stacks->epoch,
								 (size_t)frame, segment, time_ns,
								 entities, &until);

		until_ns = MIN_OF(until_ns, until);
		for (size_t i = 0; i < n_entities; i++)
			node = stacks_below(stacks, node, entities[i]);
	}
	*timed = (struct stacks_timed){ true, node, segment, time_ns, until_ns };
	return node;
}

/* ---- Totals ---------------------------------------------------------------------------------- */

void stacks_sum(struct stacks *stacks)
{
	for (size_t i = stacks->n; i > 0; i--) {
		uint32_t row = stacks->order[i - 1], parent = stacks->parent[row];

		amount_add(&stacks->total[row], stacks->self[row]);
		if (parent != STACKS_NO_ROW)
			amount_add(&stacks->total[parent], stacks->total[row]);
	}
}

void stacks_settle(struct stacks *stacks,
		   uint32_t (*entity_of)(struct names_epoch *epoch, size_t frame_row, void *data),
		   void *data, uint32_t lost)
{
	stacks_sum(stacks);
	for (size_t row = 0; row < stacks->n_rows; row++) {
		ssize_t frame;

		if (stacks->total[row].samples == 0)
			continue;
		frame = frame_row(stacks, (uint32_t)row);
		stacks->entity[row] = frame < 0 ? lost
						: entity_of(stacks->epoch, (size_t)frame, data);
	}
}

struct stacks *stacks_invert(const struct stacks *stacks)
{
	struct stacks *inverted = g_new0(struct stacks, 1);

	inverted->epoch = stacks->epoch;
	number_map_init(&inverted->made);
	for (size_t i = 0; i < stacks->n; i++) {
		uint32_t node = STACKS_NO_ROW;

		if (stacks->self[i].samples == 0)
			continue;
		for (uint32_t row = (uint32_t)i; row != STACKS_NO_ROW; row = stacks->parent[row])
			node = stacks_below(inverted, node, stacks->entity[row]);
		amount_add(&inverted->self[node], stacks->self[i]);
	}
	stacks_sum(inverted);
	return inverted;
}

/*
 * For a frame with inlined calls, the existing node becomes the innermost call, because its
 * children refer to it as parent. The containing function and the other calls become new nodes
 * above it, and before it in order[].
 */
void stacks_insert(struct stacks *stacks,
		   size_t (*inlined)(struct names_epoch *epoch, size_t frame_row,
				     uint32_t *ret_entities, void *data),
		   void *data)
{
	g_autoptr(GArray) order = g_array_new(FALSE, FALSE, sizeof(uint32_t));
	const size_t n_before = stacks->n;

	for (size_t i = 0; i < n_before; i++) {
		uint32_t entities[FUNCTIONS_MAX_INLINED], row = stacks->order[i];
		ssize_t frame = row < stacks->n_rows && stacks->total[row].samples > 0
					? frame_row(stacks, row)
					: -1;
		size_t n = frame < 0 ? 0 : inlined(stacks->epoch, (size_t)frame, entities, data);

		for (size_t j = 0; j < n; j++) {
			uint32_t node = add_node(stacks, stacks->parent[row], stacks->entity[row]);

			stacks->total[node] = stacks->total[row];
			stacks->parent[row] = node;
			stacks->entity[row] = entities[j];
			g_array_append_val(order, node);
		}
		g_array_append_val(order, row);
	}
	if (order->len > 0)
		memcpy(stacks->order, order->data, order->len * sizeof(uint32_t));
}

void stacks_walk(const struct stacks *stacks,
		 void (*visit)(const struct stacks *stacks, uint32_t row, bool enters, void *data),
		 void *data)
{
	/* first child of each node (at index n: the first root); next child of the same parent */
	g_autofree uint32_t *first = g_new(uint32_t, stacks->n + 1);
	g_autofree uint32_t *next = g_new(uint32_t, stacks->n + 1);
	uint32_t row;

	for (size_t i = 0; i <= stacks->n; i++)
		first[i] = STACKS_NO_ROW;
	for (size_t i = stacks->n; i > 0; i--) {
		uint32_t child = stacks->order[i - 1], parent = stacks->parent[child];
		uint32_t *list = &first[parent == STACKS_NO_ROW ? stacks->n : parent];

		if (stacks->total[child].samples == 0)
			continue;
		next[child] = *list;
		*list = child;
	}
	row = first[stacks->n];
	while (row != STACKS_NO_ROW) {
		visit(stacks, row, true, data);
		if (first[row] != STACKS_NO_ROW) {
			row = first[row];
			continue;
		}
		/* Go up to the nearest node with a further sibling. */
		while (row != STACKS_NO_ROW) {
			visit(stacks, row, false, data);
			if (next[row] != STACKS_NO_ROW) {
				row = next[row];
				break;
			}
			row = stacks->parent[row];
		}
	}
}
