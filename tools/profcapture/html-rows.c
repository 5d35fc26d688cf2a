/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "config.h"

#include "tools/profcapture/html-rows.h"

#include "base/each.h"
#include "base/order.h"
#include "tools/profcapture/export-allocations.h"
#include "tools/profcapture/html-counters.h"
#include "tools/profcapture/html-slices.h"
#include "tools/profcapture/spans.h"

#include <glib/gi18n.h>
#include <inttypes.h>
#include <math.h>

#define MOST_MARKS 500000u
#define MOST_LOGS 2000u

void html_keys_init(struct html_keys *keys)
{
	keys->known = g_hash_table_new(NULL, NULL);
	keys->all = g_array_new(FALSE, FALSE, sizeof(uint32_t));
}

void html_keys_done(struct html_keys *keys)
{
	g_hash_table_unref(keys->known);
	g_array_unref(keys->all);
}

uint32_t html_index(struct html_keys *keys, uint32_t key)
{
	gpointer at = g_hash_table_lookup(keys->known, GUINT_TO_POINTER(key + 1));

	if (!at) {
		g_array_append_val(keys->all, key);
		at = GUINT_TO_POINTER(keys->all->len);
		g_hash_table_insert(keys->known, GUINT_TO_POINTER(key + 1), at);
	}
	return GPOINTER_TO_UINT(at) - 1;
}

uint32_t html_rows_thread(struct html_rows *rows, uint32_t thread)
{
	return html_index(&rows->threads, rows->side->first_thread + thread);
}

int64_t html_rows_time(const struct html_rows *rows, int64_t time_ns)
{
	const struct html_side *side = rows->side;

	return MIN_OF(side->from_ns + MAX_OF(time_ns, INT64_C(0)),
		      rows->sides.n > 1 && side == rows->sides.each
			      ? rows->sides.each[HTML_LATER].from_ns - 1
			      : INT64_MAX);
}

/* ---- samples --------------------------------------------------------------------------------- */

/* The columns of samples. add_samples() may omit the last one. */
#define SAMPLE_COLUMNS(table, key)                                                 \
	{ table ".time", REPORT_MEMBER(struct html_sample, time), .delta = true }, \
		{ table ".thread", REPORT_MEMBER(struct html_sample, thread) },    \
		{ table "." key, REPORT_MEMBER(struct html_sample, stack) },       \
		{ table ".count", REPORT_MEMBER(struct html_sample, count) },      \
	{                                                                          \
		table ".weight", REPORT_MEMBER(struct html_sample, weight)         \
	}

/* Omits the weights if all samples weigh the same: the page computes them from the counts. */
static void add_samples(struct html_rows *rows, const struct html_samples *samples,
			const struct report_column *columns, size_t n)
{
	bool is_even = true;

	for (guint i = 0; i < samples->all->len && is_even; i++) {
		const struct html_sample *at = &g_array_index(samples->all, struct html_sample, i);

		is_even = at->weight == at->count * rows->sample_weight;
	}
	report_page_add(rows->page, samples->all, columns, n - is_even);
	rows->grid_ns = MAX_OF(rows->grid_ns, (int64_t)samples->unit_ns);
}

/* Converts the samples of rows->side to the page's times and indexes. `stacks`: the page's node for
 * each node of the side; NULL: the stacks stay as they are. */
static void convert_samples(struct html_rows *rows, struct html_samples *samples,
			    const uint32_t *stacks)
{
	ARRAY_EACH(struct html_sample, at, samples->all) {
		int64_t time_ns = (int64_t)(at->time * samples->unit_ns);

		at->time = (uint32_t)((uint64_t)html_rows_time(rows, time_ns) / samples->unit_ns);
		at->thread = html_rows_thread(rows, at->thread);
		if (stacks)
			at->stack = stacks[at->stack];
	}
}

/* Converts the samples of all sides to one unit, and moves them to the samples of the first
 * side. */
static void join_samples(struct html_rows *rows, struct html_samples *const parts[HTML_SIDES],
			 const uint32_t *const stacks[HTML_SIDES])
{
	struct html_samples *samples = parts[HTML_FIRST];
	uint64_t unit_ns = (uint64_t)rows->grid_ns / GRID_UNITS;

	for (unsigned k = 0; k < rows->sides.n; k++) {
		html_samples_merge(parts[k]);
		unit_ns = MAX_OF(unit_ns, parts[k]->unit_ns);
	}
	for (unsigned k = 0; k < rows->sides.n; k++) {
		struct html_samples *part = parts[k];

		rows->side = &rows->sides.each[k];
		html_samples_set_unit(part, unit_ns);
		convert_samples(rows, part, stacks[k]);
		if (rows->sides.folded)
			part->n_merged = 0;
		if (part == samples)
			continue;
		g_array_append_vals(samples->all, part->all->data, part->all->len);
		samples->n_merged = 0;
		samples->most_unit_ns = MAX_OF(samples->most_unit_ns, part->most_unit_ns);
		html_samples_done(part);
	}
	html_samples_merge(samples);
}

static void write_samples(struct html_rows *rows)
{
	static const struct report_column columns[] = { SAMPLE_COLUMNS("samples", "stack") };
	struct html_samples *parts[HTML_SIDES] = { 0 };
	const uint32_t *stacks[HTML_SIDES] = { 0 };
	struct amount all = { 0 };

	for (unsigned k = 0; k < rows->sides.n; k++) {
		parts[k] = &rows->sides.each[k].export->samples;
		stacks[k] = rows->sides.each[k].stacks;
		amount_add(&all, rows->sides.each[k].export->profile.all);
	}
	rows->sample_weight = all.samples ? all.weight / all.samples : 0;
	join_samples(rows, parts, stacks);
	rows->sample_unit = parts[HTML_FIRST]->unit_ns;
	add_samples(rows, parts[HTML_FIRST], columns, ARRAY_SIZE(columns));
	html_samples_done(parts[HTML_FIRST]);
}

/* ---- waits ----------------------------------------------------------------------------------- */

/* Adds the waits that cross a border of cells (html-waits.h), ordered by their start. */
static void write_across(struct html_rows *rows)
{
	static const struct report_column columns[] = {
		{ "sleeps.time", REPORT_MEMBER(struct html_wait, time), .delta = true },
		{ "sleeps.rest", REPORT_MEMBER(struct html_wait, rest) },
		{ "sleeps.length", REPORT_MEMBER(struct html_wait, length_ns) },
		{ "sleeps.thread", REPORT_MEMBER(struct html_wait, thread) },
		{ "sleeps.stack", REPORT_MEMBER(struct html_wait, stack) },
	};
	g_autoptr(GArray) all = g_array_new(FALSE, FALSE, sizeof(struct html_wait));

	for (unsigned k = 0; k < rows->sides.n; k++) {
		const struct html_side *side = rows->side = &rows->sides.each[k];
		struct html_waits *waits = &side->export->html_waits;

		html_waits_sort(waits);
		ARRAY_EACH(struct html_wait, at, waits->across) {
			uint64_t begin = (uint64_t)html_rows_time(rows, at->begin_ns);

			at->time = (uint32_t)(begin / rows->wait_unit);
			at->rest = (uint32_t)(begin % rows->wait_unit);
			at->thread = html_rows_thread(rows, at->thread);
			at->stack = side->wait_stacks[at->stack];
		}
		g_array_append_vals(all, waits->across->data, waits->across->len);
		rows->grid_ns = MAX_OF(rows->grid_ns, waits->cell_ns);
	}
	report_page_add(rows->page, all, columns, ARRAY_SIZE(columns));
}

/* Writes the calls in which threads wait and, for each stack, the index + 1 of its call (0:
 * unknown). */
static void write_causes(struct html_rows *rows)
{
	static const struct report_column cause = { "stacks.cause", 0, sizeof(uint32_t) };
	guint n = rows->sides.nodes->len;
	g_autoptr(GArray) causes = g_array_sized_new(FALSE, TRUE, sizeof(uint32_t), n);
	g_autoptr(GHashTable) known = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);

	g_array_set_size(causes, n);
	json_begin_array(rows->json, "wait_calls");
	for (unsigned k = 0; k < rows->sides.n; k++) {
		const struct html_side *side = &rows->sides.each[k];
		const struct profile *waits = &side->export->waits;
		g_autofree struct wait_place *places =
			wait_places_of_nodes(waits->tree.nodes, waits->functions);

		for (guint i = 0; i < waits->tree.nodes->len; i++) {
			const char *name = wait_cause_names[places[i].cause];
			g_autofree char *key =
				g_strconcat(name, " ", places[i].call ? places[i].call : "", NULL);
			gpointer index = g_hash_table_lookup(known, key);

			if (!index) {
				json_begin_object(rows->json, NULL);
				json_string(rows->json, "cause", name);
				json_string(rows->json, "call", places[i].call);
				json_end(rows->json);
				index = GUINT_TO_POINTER(g_hash_table_size(known) + 1);
				g_hash_table_insert(known, g_steal_pointer(&key), index);
			}
			/* a stack keeps its own cause if other stacks were folded into it */
			if (g_array_index(causes, uint32_t, side->wait_stacks[i]) == 0)
				g_array_index(causes, uint32_t, side->wait_stacks[i]) =
					GPOINTER_TO_UINT(index);
		}
	}
	json_end(rows->json);
	report_page_add(rows->page, causes, &cause, 1);
}

static void write_waits(struct html_rows *rows)
{
	static const struct report_column columns[] = { SAMPLE_COLUMNS("waits", "stack") };
	struct html_samples *parts[HTML_SIDES] = { 0 };
	const uint32_t *stacks[HTML_SIDES] = { 0 };

	rows->wait_unit = rows->sample_unit;
	if (!html_sides_have_waits(&rows->sides))
		return;
	for (unsigned k = 0; k < rows->sides.n; k++) {
		parts[k] = &rows->sides.each[k].export->html_waits.within;
		stacks[k] = rows->sides.each[k].wait_stacks;
	}
	join_samples(rows, parts, stacks);
	rows->wait_unit = parts[HTML_FIRST]->unit_ns;
	report_page_add(rows->page, parts[HTML_FIRST]->all, columns, ARRAY_SIZE(columns));
	rows->grid_ns = MAX_OF(rows->grid_ns, (int64_t)rows->wait_unit);
	write_across(rows);
	write_causes(rows);
}

/* ---- stacks, places -------------------------------------------------------------------------- */

void html_rows_write_places(struct html_rows *rows, struct html_samples *samples)
{
	static const struct report_column columns[] = { SAMPLE_COLUMNS("places", "place") };

	rows->side = &rows->sides.each[HTML_FIRST];
	rows->place_unit = samples->unit_ns;
	convert_samples(rows, samples, NULL);
	add_samples(rows, samples, columns, ARRAY_SIZE(columns));
}

static void write_stacks(struct html_rows *rows)
{
	static const struct report_column parent = { "stacks.parent",
						     REPORT_MEMBER(struct profile_node, parent) };
	static const struct report_column function = { "stacks.function", 0, sizeof(uint32_t) };
	GArray *nodes = rows->sides.nodes;
	g_autoptr(GArray) functions = g_array_sized_new(FALSE, TRUE, sizeof(uint32_t), nodes->len);

	g_array_set_size(functions, nodes->len); /* the root's item stays 0: it has no function */
	for (guint i = 1; i < nodes->len; i++)
		g_array_index(functions, uint32_t, i) = html_index(
			&rows->functions, g_array_index(nodes, struct profile_node, i).entity);
	report_page_add(rows->page, nodes, &parent, 1);
	report_page_add(rows->page, functions, &function, 1);
}

/* ---- marks and logs -------------------------------------------------------------------------- */

struct page_marks {
	struct html_rows *rows;
	GArray *all;    /* struct html_mark */
	guint most;     /* maximum number of marks to keep */
	uint64_t n;     /* number of marks, including those that were left out */
	GArray *counts; /* uint64_t by name: number of marks, including those that were left out */
	GHashTable *names; /* length of the group, group and name → index + 1 */
};

static uint32_t mark_name(struct page_marks *marks, const char *group, const char *name)
{
	g_autofree char *key = g_strdup_printf("%zu %s%s", group ? strlen(group) : SIZE_MAX,
					       group ? group : "", name ? name : "");
	gpointer at = g_hash_table_lookup(marks->names, key);

	if (!at) {
		g_ptr_array_add(marks->rows->mark_names, (gpointer)group);
		g_ptr_array_add(marks->rows->mark_names, (gpointer)name);
		at = GUINT_TO_POINTER(marks->rows->mark_names->len / 2);
		g_array_set_size(marks->counts, GPOINTER_TO_UINT(at));
		g_hash_table_insert(marks->names, g_steal_pointer(&key), at);
	}
	return GPOINTER_TO_UINT(at) - 1;
}

COMPARE_BY(compare_marks, struct html_mark, ORDER(a->start_ns, b->start_ns),
	   ORDER(a->length_ns, b->length_ns), ORDER(a->thread, b->thread), ORDER(a->name, b->name))

COMPARE_BY(compare_lengths, struct html_mark, ORDER(b->length_ns, a->length_ns),
	   compare_marks(a, b))

/* Leaves out all but the longest marks. */
static void keep_longest(GArray *marks, guint most)
{
	if (marks->len <= most)
		return;
	g_array_sort(marks, compare_lengths);
	g_array_set_size(marks, most);
}

static void take_span(const struct span *span, void *data)
{
	struct page_marks *marks = data;
	struct reader *reader = &marks->rows->side->export->reader;
	struct html_mark mark = { .start_ns = MAX_OF(span->start_ns, INT64_C(0)) };
	int64_t end_ns = span->kind == SPAN_NO_END ? reader->capture->duration_ns : span->end_ns;

	if (span->start_ns < reader->from_ns || span->start_ns > reader->to_ns ||
	    !reader_wants_thread_at(reader, span->thread, span->start_ns))
		return;
	mark.length_ns = (uint64_t)(MAX_OF(end_ns, mark.start_ns) - mark.start_ns);
	mark.start_ns = html_rows_time(marks->rows, mark.start_ns);
	mark.time = (uint64_t)mark.start_ns / marks->rows->sample_unit;
	mark.thread = html_rows_thread(marks->rows, span->thread);
	mark.name = mark_name(marks, span->group, span->name);
	g_array_index(marks->counts, uint64_t, mark.name)++;
	g_array_append_val(marks->all, mark);
	marks->n++;
	if (marks->all->len >= 2 * marks->most)
		keep_longest(marks->all, marks->most);
}

static bool write_marks(struct html_rows *rows, GError **error)
{
	static const struct report_column columns[] = {
		{ "marks.time", REPORT_MEMBER(struct html_mark, time), .delta = true },
		{ "marks.length", REPORT_MEMBER(struct html_mark, length_ns) },
		{ "marks.thread", REPORT_MEMBER(struct html_mark, thread) },
		{ "marks.name", REPORT_MEMBER(struct html_mark, name) },
	};
	g_autoptr(GArray) all = g_array_new(FALSE, FALSE, sizeof(struct html_mark));
	g_autoptr(GHashTable) names = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
	g_autoptr(GArray) counts = g_array_new(FALSE, TRUE, sizeof(uint64_t));
	struct page_marks marks = { .rows = rows,
				    .all = all,
				    .names = names,
				    .counts = counts,
				    .most = export_most(rows->sides.each[HTML_FIRST].export,
							MOST_MARKS) };

	for (unsigned i = 0; i < rows->sides.n; i++) {
		rows->side = &rows->sides.each[i];
		if (!spans_read(rows->side->export->reader.capture, take_span, &marks, error))
			return false;
	}
	keep_longest(all, marks.most);
	if (marks.n > all->len)
		g_ptr_array_add(
			rows->notes,
			g_strdup_printf(
				_("Of %" PRIu64
				  " marks, the %u longest are here; 'profcapture marks' counts all."),
				marks.n, all->len));
	g_array_sort(all, compare_marks);
	for (guint i = 0; i < all->len; i++)
		if (g_array_index(all, struct html_mark, i).length_ns > rows->longest.length_ns)
			rows->longest = g_array_index(all, struct html_mark, i);
	if (all->len > 0)
		report_page_add(rows->page, all, columns, ARRAY_SIZE(columns));
	json_begin_array(rows->json, "mark_names");
	for (guint i = 0; i < rows->mark_names->len; i += 2) {
		json_begin_object(rows->json, NULL);
		json_string(rows->json, "group", rows->mark_names->pdata[i]);
		json_string(rows->json, "name", rows->mark_names->pdata[i + 1]);
		json_uint(rows->json, "count", g_array_index(counts, uint64_t, i / 2));
		json_end(rows->json);
	}
	json_end(rows->json);
	return true;
}

enum { LOG_TIME, LOG_THREAD, LOG_LEVEL, LOG_TEXT, N_LOG_COLUMNS };

struct page_logs {
	struct html_rows *rows;
	uint64_t n, most;
};

static bool take_logs(struct names_epoch *epoch, const struct prof_batch *batch, void *data,
		      GError **error)
{
	struct page_logs *logs = data;
	struct json *json = logs->rows->json;
	struct reader *reader = &logs->rows->side->export->reader;

	for (size_t i = 0; i < batch->rows; i++) {
		uint32_t thread =
			names_thread(epoch, array_number_or(&batch->columns[LOG_THREAD], i, 0));

		if (!reader_wants_thread(reader, thread) || logs->n++ >= logs->most)
			continue;
		json_begin_object(json, NULL);
		json_int(json, "time_ns",
			 html_rows_time(
				 logs->rows,
				 capture_time(reader->capture, batch->segment,
					      array_number_or(&batch->columns[LOG_TIME], i, 0))));
		json_uint(json, "level", array_number_or(&batch->columns[LOG_LEVEL], i, 0));
		json_string(json, "text",
			    names_text_at(epoch->names, &batch->columns[LOG_TEXT], i));
		json_end(json);
	}
	return true;
}

static bool write_logs(struct html_rows *rows, GError **error)
{
	struct page_logs logs = { rows, 0,
				  export_most(rows->sides.each[HTML_FIRST].export, MOST_LOGS) };
	bool ok = true;

	json_begin_array(rows->json, "logs");
	for (unsigned i = 0; ok && i < rows->sides.n; i++) {
		rows->side = &rows->sides.each[i];
		/* --redact omits log lines, because they may contain anything */
		ok = rows->side->export->reader.redacts ||
		     names_each_batch(rows->side->export->reader.capture->names,
				      NAMES_COLUMNS(PROF_TABLE_LOG, PROF_LOG_TIME, PROF_LOG_THREAD,
						    PROF_LOG_LEVEL, PROF_LOG_TEXT),
				      take_logs, &logs, error);
	}
	json_end(rows->json);
	if (logs.n > logs.most)
		g_ptr_array_add(rows->notes,
				g_strdup_printf(_("Of %" PRIu64 " log lines, the first %" PRIu64
						  " are here."),
						logs.n, logs.most));
	return ok;
}

/* ---- allocations ----------------------------------------------------------------------------- */

/* With sampling, numbers of blocks are fractional: the page gets multiples of 1 / BLOCK_SCALE. */
#define BLOCK_SCALE 256u

struct page_life {
	uint32_t time, freed, thread, stack;
	uint8_t kind, size;
	uint64_t bytes, blocks, brief;
};

static void write_allocations(struct html_rows *rows)
{
	static const struct report_column columns[] = {
		{ "allocations.time", REPORT_MEMBER(struct page_life, time), .delta = true },
		{ "allocations.freed", REPORT_MEMBER(struct page_life, freed) },
		{ "allocations.thread", REPORT_MEMBER(struct page_life, thread) },
		{ "allocations.stack", REPORT_MEMBER(struct page_life, stack) },
		{ "allocations.kind", REPORT_MEMBER(struct page_life, kind) },
		{ "allocations.size", REPORT_MEMBER(struct page_life, size) },
		{ "allocations.bytes", REPORT_MEMBER(struct page_life, bytes) },
		{ "allocations.blocks", REPORT_MEMBER(struct page_life, blocks),
		  .scale = BLOCK_SCALE },
		{ "allocations.brief", REPORT_MEMBER(struct page_life, brief),
		  .scale = BLOCK_SCALE },
	};
	g_autoptr(GArray) all = g_array_new(FALSE, FALSE, sizeof(struct page_life));

	for (unsigned k = 0; k < rows->sides.n; k++) {
		const struct allocations *part = rows->sides.each[k].export->allocations;

		if (part)
			rows->allocation_unit =
				MAX_OF(rows->allocation_unit, (uint64_t)part->unit_ns);
	}
	rows->grid_ns = MAX_OF(rows->grid_ns, (int64_t)rows->allocation_unit);
	for (unsigned k = 0; k < rows->sides.n; k++) {
		const struct html_side *side = rows->side = &rows->sides.each[k];
		const struct allocations *allocations = side->export->allocations;
		uint64_t part = 1, from = (uint64_t)side->from_ns / rows->allocation_unit;

		if (!allocations || !allocations->lives)
			continue;
		part = rows->allocation_unit / (uint64_t)allocations->unit_ns;
		ARRAY_EACH(const struct allocation_life, life, allocations->lives) {
			struct page_life row = {
				(uint32_t)(from + life->time / part),
				life->freed ? (uint32_t)(from + (life->freed - 1) / part + 1) : 0,
				html_rows_thread(rows, life->thread),
				html_stack(side, life->node),
				life->kind,
				life->size,
				(uint64_t)llround(life->bytes),
				(uint64_t)llround(life->blocks * BLOCK_SCALE),
				(uint64_t)llround(life->brief * BLOCK_SCALE)
			};

			/* a block that a capture leaves live ends where the next capture begins */
			if (!row.freed && k + 1 < rows->sides.n)
				row.freed = (uint32_t)((uint64_t)side[1].from_ns /
						       rows->allocation_unit) +
					    1;
			g_array_append_val(all, row);
		}
	}
	if (all->len > 0)
		report_page_add(rows->page, all, columns, ARRAY_SIZE(columns));
}

/* Writes the live heap of each side over time: the largest size in each interval, if it differs
 * from that of the previous interval, and the peak. */
static void write_heap(struct html_rows *rows)
{
	struct json *json = rows->json;

	json_begin_array(json, "heap");
	for (unsigned k = 0; k < rows->sides.n; k++) {
		const struct allocations *allocations = rows->sides.each[k].export->allocations;

		if (!allocations || !allocations->heap)
			continue;
		rows->side = &rows->sides.each[k];
		json_begin_object(json, NULL);
		json_int(json, "peak_ns", html_rows_time(rows, allocations->peak.time_ns));
		json_uint(json, "peak_bytes", (uint64_t)llround(allocations->peak.bytes));
		json_begin_array(json, "points");
		for (guint i = 0; i < allocations->heap->len; i++) {
			const struct allocation_most *at =
				&g_array_index(allocations->heap, struct allocation_most, i);

			if (i && llround(at->bytes) == llround(at[-1].bytes))
				continue;
			json_begin_array(json, NULL);
			json_int(json, NULL, html_rows_time(rows, at->time_ns));
			json_uint(json, NULL, (uint64_t)llround(at->bytes));
			json_end(json);
		}
		json_end(json);
		json_end(json);
	}
	json_end(json);
}

/* ---- all rows -------------------------------------------------------------------------------- */

void html_rows_init(struct html_rows *rows, struct export *export, struct report_page *page,
		    struct json *json)
{
	uint64_t duration;

	*rows = (struct html_rows){ .page = page, .json = json };
	html_sides_init(&rows->sides, export);
	duration = (uint64_t)rows->sides.each[rows->sides.n - 1].to_ns;
	rows->grid_ns = rows->sides.grid_ns;
	rows->allocation_unit = (uint64_t)rows->grid_ns;
	/* lengths and gaps have 32 bits */
	for (rows->slice_unit = 1; duration / rows->slice_unit > UINT32_MAX / 2;)
		rows->slice_unit *= 2;
	rows->notes = g_ptr_array_new_with_free_func(g_free);
	rows->mark_names = g_ptr_array_new();
	html_keys_init(&rows->threads);
	html_keys_init(&rows->functions);
}

void html_rows_done(struct html_rows *rows)
{
	html_sides_done(&rows->sides);
	html_keys_done(&rows->threads);
	html_keys_done(&rows->functions);
	g_ptr_array_unref(rows->mark_names);
	g_ptr_array_unref(rows->notes);
	g_clear_pointer(&rows->times, g_array_unref);
}

bool html_rows_write(struct html_rows *rows, GError **error)
{
	write_samples(rows);
	write_waits(rows);
	write_stacks(rows);
	write_allocations(rows);
	write_heap(rows);
	return html_slices_write(rows, error) && write_marks(rows, error) &&
	       write_logs(rows, error) && html_counters_write(rows, error);
}
