/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Stacks - the call tree of one epoch, with the samples that ended in each node
 *
 * Invariants: (1) parent[row] has a smaller id than row: there is no cycle          [test-report: cyclic stacks]
 *             (2) no node is deeper than STACKS_MAX_DEPTH                           [test-report: deep stacks]
 *             (3) in order, a parent comes before its children: totals need no walk  [test-report: totals]
 */
#include "config.h"

#include "tools/profcapture/stacks.h"

void stacks_free(struct stacks *stacks)
{
	if (!stacks)
		return;
	g_free(stacks->parent);
	g_free(stacks->entity);
	g_free(stacks->self);
	g_free(stacks->total);
	g_free(stacks->order);
	g_free(stacks);
}

static gint compare_ids(gconstpointer left, gconstpointer right, gpointer data)
{
	const uint64_t *ids = data;
	uint64_t a = ids[*(const uint32_t *)left], b = ids[*(const uint32_t *)right];

	return a < b ? -1 : a > b;
}

/* Rows by rising id. They are in a file that the engine wrote. */
static void sort_rows(struct stacks *stacks, const uint64_t *ids)
{
	bool sorted = true;

	for (size_t i = 0; i < stacks->n; i++) {
		stacks->order[i] = (uint32_t)i;
		sorted = sorted && (i == 0 || ids[i - 1] <= ids[i]);
	}
	if (!sorted)
		g_qsort_with_data(stacks->order, (gint)stacks->n, sizeof(*stacks->order),
				  compare_ids, (gpointer)ids);
}

/* What a node says its parent is: a row, STACKS_NO_ROW for none, BAD_ROW for one that cannot be. */
#define BAD_ROW (STACKS_NO_ROW - 1)
static uint32_t parent_row(struct names_epoch *epoch, const uint64_t *ids, size_t row)
{
	uint64_t parent;
	ssize_t found;

	if (!names_number(epoch, NAMES_STACK, PROF_STACK_PARENT, row, &parent) || parent == 0)
		return STACKS_NO_ROW;
	found = parent < ids[row] ? names_row(epoch, NAMES_STACK, parent) : -1;
	return found < 0 ? BAD_ROW : (uint32_t)found;
}

/* A parent that cannot be one is cut off and counted. */
static void link_parents(struct stacks *stacks, const uint64_t *ids)
{
	g_autofree uint16_t *depth = g_new0(uint16_t, stacks->n);

	for (size_t i = 0; i < stacks->n; i++) {
		uint32_t row = stacks->order[i];
		uint32_t parent = parent_row(stacks->epoch, ids, row);

		if (parent < stacks->n && depth[parent] + 1 < STACKS_MAX_DEPTH) {
			depth[row] = depth[parent] + 1;
		} else if (parent != STACKS_NO_ROW) {
			stacks->cut++;
			parent = STACKS_NO_ROW;
		}
		stacks->parent[row] = parent;
	}
}

struct stacks *stacks_load(struct names_epoch *epoch, GError **error)
{
	struct stacks *stacks;
	const struct prof_array *ids;

	if (!names_load(epoch, NAMES_STACK, error) || !names_load(epoch, NAMES_FRAME, error))
		return NULL;
	stacks = g_new0(struct stacks, 1);
	stacks->epoch = epoch;
	if (!epoch->tables[NAMES_STACK])
		return stacks;
	ids = prof_dictionary_column(epoch->tables[NAMES_STACK], PROF_STACK_ID);
	stacks->n = ids->numbers ? prof_dictionary_rows(epoch->tables[NAMES_STACK]) : 0;
	stacks->parent = g_new(uint32_t, stacks->n);
	stacks->order = g_new(uint32_t, stacks->n);
	stacks->entity = g_new0(uint32_t, stacks->n);
	stacks->self = g_new0(uint64_t, stacks->n);
	stacks->total = g_new0(uint64_t, stacks->n);
	if (stacks->n > 0) {
		sort_rows(stacks, ids->numbers);
		link_parents(stacks, ids->numbers);
	}
	return stacks;
}

void stacks_settle(struct stacks *stacks,
		   uint32_t (*entity_of)(struct names_epoch *epoch, size_t frame_row, void *data),
		   void *data, uint32_t lost)
{
	for (size_t i = stacks->n; i > 0; i--) {
		uint32_t row = stacks->order[i - 1];
		uint32_t parent = stacks->parent[row];
		uint64_t frame = 0;
		ssize_t frame_row;

		stacks->total[row] += stacks->self[row];
		if (stacks->total[row] == 0)
			continue;
		if (parent != STACKS_NO_ROW)
			stacks->total[parent] += stacks->total[row];
		(void)names_number(stacks->epoch, NAMES_STACK, PROF_STACK_FRAME, row, &frame);
		frame_row = names_row(stacks->epoch, NAMES_FRAME, frame);
		stacks->entity[row] =
			frame_row < 0 ? lost : entity_of(stacks->epoch, (size_t)frame_row, data);
	}
}

/* Children as lists: the first of each node, and the next of the same parent. */
struct lists {
	uint32_t *first; /* of node i; [n]: of the roots */
	uint32_t *next;
};

static struct lists list_children(const struct stacks *stacks)
{
	struct lists lists = { .first = g_new(uint32_t, stacks->n + 1),
			       .next = g_new(uint32_t, stacks->n + 1) };

	for (size_t i = 0; i <= stacks->n; i++)
		lists.first[i] = STACKS_NO_ROW;
	for (size_t i = stacks->n; i > 0; i--) {
		uint32_t row = stacks->order[i - 1];
		size_t parent = stacks->parent[row] == STACKS_NO_ROW ? stacks->n
								     : stacks->parent[row];

		if (stacks->total[row] == 0)
			continue;
		lists.next[row] = lists.first[parent];
		lists.first[parent] = row;
	}
	return lists;
}

void stacks_walk(const struct stacks *stacks, const struct stacks_visitor *visitor)
{
	struct lists lists = list_children(stacks);
	uint32_t row = lists.first[stacks->n];

	while (row != STACKS_NO_ROW) {
		visitor->enter(stacks, row, visitor->data);
		if (lists.first[row] != STACKS_NO_ROW) {
			row = lists.first[row];
			continue;
		}
		/* Back up to the nearest node that has a sibling. */
		while (row != STACKS_NO_ROW) {
			visitor->leave(stacks, row, visitor->data);
			if (lists.next[row] != STACKS_NO_ROW) {
				row = lists.next[row];
				break;
			}
			row = stacks->parent[row];
		}
	}
	g_free(lists.first);
	g_free(lists.next);
}
