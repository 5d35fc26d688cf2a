/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Memory-rows - which rows an answer has, and in which order
 *
 * Rows are sorted by the view's key, then by name, so that the same capture gives the same bytes.
 */
#include "config.h"

#include "tools/profcapture/memory.h"

#include <math.h>

uint64_t memory_integer(double number)
{
	if (!(number > 0))
		return 0;
	return number < 0x1p64 ? (uint64_t)(number + 0.5) : UINT64_MAX;
}

static bool is_by_blocks(const struct memory *memory)
{
	return memory->by_blocks || memory->view == MEMORY_TEMPORARY ||
	       memory->view == MEMORY_REALLOCS;
}

double memory_key_of(const struct memory *memory, const struct memory_sum *sum)
{
	return is_by_blocks(memory) ? sum->blocks : sum->bytes;
}

static gint compare_lines(gconstpointer left, gconstpointer right)
{
	const struct memory_line *a = left, *b = right;
	int order;

	if (a->key != b->key)
		return a->key > b->key ? -1 : 1;
	if (a->total.bytes != b->total.bytes)
		return a->total.bytes > b->total.bytes ? -1 : 1;
	order = g_strcmp0(a->name, b->name);
	if (order == 0)
		order = g_strcmp0(a->image, b->image);
	return order ? order : a->entity < b->entity ? -1 : a->entity > b->entity;
}

static const struct memory_counts *counts_at(const struct memory *memory, uint32_t entity)
{
	const struct memory_counts *counts =
		entity < memory->entities->len
			? &g_array_index(memory->entities, struct memory_counts, entity)
			: NULL;

	return counts && counts->is_there ? counts : NULL;
}

static bool is_nothing(const struct memory_sum *sum)
{
	return fabs(sum->bytes) < 0.5 && fabs(sum->blocks) < 0.5;
}

/* A summary lists every function that allocates. Other views list functions with nonzero sums. */
static bool is_worth_a_line(const struct memory *memory, const struct memory_line *line)
{
	if (memory->view == MEMORY_SUMMARY)
		return line->counts || !is_nothing(&line->total);
	return !is_nothing(&line->self) || !is_nothing(&line->total) || !is_nothing(&line->before);
}

static void list_functions(struct memory *memory)
{
	const struct functions *functions = memory->tree.functions;
	g_autoptr(GArray) self = g_array_new(FALSE, TRUE, sizeof(struct memory_sum));
	g_autoptr(GArray) total = g_array_new(FALSE, TRUE, sizeof(struct memory_sum));
	g_autoptr(GArray) self_before = g_array_new(FALSE, TRUE, sizeof(struct memory_sum));
	g_autoptr(GArray) before = g_array_new(FALSE, TRUE, sizeof(struct memory_sum));

	memory_tree_by_function(&memory->tree, memory->sums, self, total);
	if (memory->before)
		memory_tree_by_function(&memory->tree, memory->before, self_before, before);
	for (uint32_t i = 0; i < functions->all->len; i++) {
		struct memory_line line = {
			.entity = i,
			.counts = counts_at(memory, i),
			.self = memory_sum_at(self, i),
			.total = memory_sum_at(total, i),
			.before = memory_sum_at(self_before, i),
			.name = functions_at(functions, i)->name,
			.image = functions_image(functions, i),
		};

		if (!is_worth_a_line(memory, &line))
			continue;
		line.key = memory_key_of(memory, &line.self);
		if (memory->before)
			line.key = fabs(line.key - memory_key_of(memory, &line.before));
		g_array_append_val(memory->lines, line);
	}
}

/* Classes are in their own order, other rows by bytes or blocks. Pairs of two different threads
 * come first. */
static double key_of(const struct memory *memory, uint32_t entity,
		     const struct memory_counts *counts)
{
	double key = memory->by_blocks ? counts->allocations : counts->allocated_bytes;
	const struct memory_pair *pair;

	switch (memory->view) {
	case MEMORY_SIZES:
	case MEMORY_LIFETIMES:
		return -(double)entity;
	case MEMORY_CROSS_THREAD:
		pair = &g_array_index(memory->pairs, struct memory_pair, entity);
		return key + (pair->allocator != pair->freer ? 0x1p80 : 0);
	default:
		return key;
	}
}

static void list_entities(struct memory *memory)
{
	for (uint32_t i = 0; i < memory->entities->len; i++) {
		struct memory_line line = { .entity = i, .counts = counts_at(memory, i) };

		if (!line.counts)
			continue;
		line.key = key_of(memory, i, line.counts);
		if (memory->view == MEMORY_THREADS)
			line.name = names_thread_at(memory->reader.capture->names, i)->comm;
		g_array_append_val(memory->lines, line);
	}
}

void memory_list(struct memory *memory)
{
	if (memory_by_function(memory))
		list_functions(memory);
	else
		list_entities(memory);
	g_array_sort(memory->lines, compare_lines);
}

guint memory_shown(const struct memory *memory)
{
	uint64_t limit = memory->reader.limit;

	return limit && limit < memory->lines->len ? (guint)limit : memory->lines->len;
}
