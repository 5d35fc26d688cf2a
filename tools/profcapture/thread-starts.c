/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "config.h"

#include "tools/profcapture/thread-starts.h"

#include "tools/common/grown-array.h"
#include "tools/profile/code-origin.h"
#include "tools/profile/stacks.h"

#include <string.h>

enum { THREAD, STACK, STOP, N_COLUMNS };

/* The state while one table is read. */
struct pass {
	struct thread_starts *starts;
	struct names_epoch *epoch; /* NULL before the first row */
	struct stacks *stacks;     /* stacks of the epoch */
	/* thread → node of its first and last complete stack in the epoch; in the first one, the
	 * dynamic linker may still run */
	GHashTable *first, *last;
};

static uint32_t function_entity(struct names_epoch *epoch, size_t frame_row, void *data)
{
	return functions_entity_of_row(data, epoch, frame_row);
}

/* Returns the outermost function of the program in a stack; FUNCTION_NO_STACK: none, or it has no
 * name. */
static uint32_t start_in(const struct pass *pass, uint32_t leaf)
{
	const struct functions *functions = pass->starts->functions;
	uint32_t start = FUNCTION_NO_STACK;

	for (uint32_t row = leaf; row != STACKS_NO_ROW; row = pass->stacks->parent[row]) {
		uint32_t function = functions_whole(functions, pass->stacks->entity[row]);

		if (function > FUNCTION_LOST &&
		    code_origin_of(functions, function) == CODE_ORIGIN_OWN)
			start = function;
	}
	/* A function without a name is shown as image and offset. */
	return strstr(functions_at(functions, start)->name, "+0x") ? FUNCTION_NO_STACK : start;
}

static void finish_epoch(struct pass *pass)
{
	struct functions *functions = pass->starts->functions;
	GHashTableIter iter;
	gpointer thread, leaf;

	if (!pass->stacks)
		return;
	stacks_settle(pass->stacks, function_entity, functions, FUNCTION_LOST);
	g_hash_table_iter_init(&iter, pass->first);
	while (g_hash_table_iter_next(&iter, &thread, &leaf)) {
		uint32_t start = start_in(pass, GPOINTER_TO_UINT(leaf));

		leaf = g_hash_table_lookup(pass->last, thread);
		*GROWN_AT(pass->starts->of, uint32_t, GPOINTER_TO_UINT(thread)) =
			start != FUNCTION_NO_STACK ? start : start_in(pass, GPOINTER_TO_UINT(leaf));
	}
	g_hash_table_remove_all(pass->first);
	g_hash_table_remove_all(pass->last);
	g_clear_pointer(&pass->stacks, stacks_free);
}

static bool add_batch(struct names_epoch *epoch, const struct prof_batch *batch, void *data,
		      GError **error)
{
	struct pass *pass = data;
	const struct prof_array *c = batch->columns;

	if (epoch != pass->epoch) {
		finish_epoch(pass);
		pass->epoch = epoch;
		pass->stacks = stacks_load(epoch, error);
		if (!pass->stacks)
			return false;
	}
	for (size_t i = 0; i < batch->rows; i++) {
		uint32_t thread = names_thread(epoch, array_number_or(&c[THREAD], i, 0));
		ssize_t row;

		if (thread <= NAMES_LOST ||
		    array_number_or(&c[STOP], i, PROF_STOP_UNKNOWN) != PROF_STOP_ROOT ||
		    thread_starts_of(pass->starts, thread) != FUNCTION_NO_STACK)
			continue;
		row = names_row(epoch, NAMES_STACK, array_number_or(&c[STACK], i, 0));
		if (row < 0 || (size_t)row >= pass->stacks->n_rows)
			continue;
		/* Only nodes with samples get an entity. */
		pass->stacks->self[row].samples = 1;
		g_hash_table_insert(pass->last, GUINT_TO_POINTER(thread),
				    GSIZE_TO_POINTER((size_t)row));
		if (!g_hash_table_contains(pass->first, GUINT_TO_POINTER(thread)))
			g_hash_table_insert(pass->first, GUINT_TO_POINTER(thread),
					    GSIZE_TO_POINTER((size_t)row));
	}
	return true;
}

bool thread_starts_read(struct thread_starts *starts, struct reader *reader, GError **error)
{
	static const struct {
		unsigned table;
		uint16_t columns[N_COLUMNS];
	} tables[] = {
		{ PROF_TABLE_SAMPLE,
		  { PROF_SAMPLE_THREAD, PROF_SAMPLE_STACK, PROF_SAMPLE_USER_STOP } },
		{ PROF_TABLE_WAIT, { PROF_WAIT_THREAD, PROF_WAIT_STACK, PROF_WAIT_USER_STOP } },
	};
	struct names *names = reader->capture->names;
	struct pass pass = { .starts = starts };
	uint64_t lost = names->lost;
	bool ok = true;

	starts->of = g_array_new(FALSE, TRUE, sizeof(uint32_t));
	starts->functions = functions_new(names, error);
	if (!starts->functions)
		return false;
	pass.first = g_hash_table_new(NULL, NULL);
	pass.last = g_hash_table_new(NULL, NULL);
	for (size_t i = 0; ok && i < ARRAY_SIZE(tables); i++) {
		ok = names_each_batch(names, NAMES_COLUMNS_OF(tables[i].table, tables[i].columns),
				      add_batch, &pass, error);
		if (ok)
			finish_epoch(&pass);
		pass.epoch = NULL;
	}
	stacks_free(pass.stacks);
	g_hash_table_unref(pass.first);
	g_hash_table_unref(pass.last);
	/* Do not count the names lost here: each only makes a start function unknown, which the
	 * answer shows. */
	names->lost = lost;
	return ok;
}

void thread_starts_done(struct thread_starts *starts)
{
	functions_free(starts->functions);
	g_clear_pointer(&starts->of, g_array_unref);
	starts->functions = NULL;
}

uint32_t thread_starts_of(const struct thread_starts *starts, uint32_t thread)
{
	return starts->of && thread < starts->of->len ? g_array_index(starts->of, uint32_t, thread)
						      : FUNCTION_NO_STACK;
}
