/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Memory-show - the views of `memory`, and their rows as text, JSON, ndjson and CSV
 *
 * Values that a view does not compute are null: --leaks, for example, does not read every row. Rows
 * are sorted by the view's key, then by name, so that the same capture gives the same bytes.
 */
#include "config.h"

#include "base/each.h"
#include "base/order.h"
#include "tools/profcapture/memory.h"
#include "tools/profile/function-labels.h"

#include <glib/gi18n.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

/* clang-format off */
enum memory_field {
	/* identity of a row; the FN fields come before these */
	SIZE_FROM = FN_FIELDS, SIZE_TO, LIFETIME_FROM, LIFETIME_TO,
	PID, PPID, TID, COMM, FREE_TID, FREE_COMM, END, EXCLUDED, TIME,
	/* counts, times and sums: the members of the object MEM */
	CALLS, PEAK_NS, LOST, FAILED, FOREIGN, ALLOCATIONS, ALLOCATED, FREED, PEAK_BYTES,
	LIVE_BYTES, LIVE_BLOCKS, LEAKED_BYTES, LEAKED_BLOCKS, TEMPORARY,
	/* only for functions */
	REALLOCS, GROWN, COPIED, CHAIN,
	SELF_BYTES, SELF_BLOCKS, TOTAL_BYTES, TOTAL_BLOCKS, BEFORE_BYTES, BEFORE_BLOCKS,
	DELTA_BYTES, DELTA_BLOCKS,
	/* only for points of the timeline */
	LARGEST, LARGEST_BYTES, RSS_BYTES,
	/* only in text */
	ROW, PLACE, SHARE, OF_OWN, LIVED_BYTES, LIVED_BLOCKS,
};
/* clang-format on */

/* ---- numbers --------------------------------------------------------------------------------- */

uint64_t memory_integer(double number)
{
	if (!(number > 0))
		return 0;
	return number < 0x1p64 ? (uint64_t)(number + 0.5) : UINT64_MAX;
}

double memory_key_of(const struct memory *memory, const struct memory_sum *sum)
{
	return memory->by_blocks || memory_query_of(memory)->by_blocks ? sum->blocks : sum->bytes;
}

/* ---- rows ------------------------------------------------------------------------------------ */

COMPARE_BY(compare_lines, struct memory_line, ORDER(b->is_first, a->is_first),
	   ORDER(b->key, a->key), ORDER(b->total.bytes, a->total.bytes),
	   g_strcmp0(a->name, b->name), g_strcmp0(a->image, b->image), ORDER(a->entity, b->entity))

static bool is_nothing(const struct memory_sum *sum)
{
	return fabs(sum->bytes) < 0.5 && fabs(sum->blocks) < 0.5;
}

/* Stores a view's sums in all members that can hold them. A view shows only what it measures. */
static void set_sum(struct memory_counts *counts, const struct memory_sum *sum)
{
	counts->leaked_bytes = counts->live_bytes = counts->peak_bytes = sum->bytes;
	counts->leaked_blocks = counts->live_blocks = sum->blocks;
}

/* Lists functions with nonzero sums; in a summary, also the other functions that allocate. With
 * by_caller, lists sites whose own sum is nonzero (--diff: has changed); in a summary, also the
 * other sites that leak. */
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
	if (memory->entities->len < self->len)
		g_array_set_size(memory->entities, self->len);
	for (uint32_t i = 0; i < self->len; i++) {
		struct memory_counts *counts = memory_counts_at(memory->entities, i);
		const struct memory_site *site = memory_site_at(&memory->tree, i);
		uint32_t function = !memory->by_caller ? i
				    : site->callee     ? site->callee
						       : site->own;
		struct memory_line line = {
			.entity = i,
			.counts = counts->is_there ? counts : NULL,
			.self = memory_sum_at(self, i),
			.before = memory_sum_at(self_before, i),
			.name = functions_at(functions, function)->name,
			.image = functions_image(functions, function),
		};

		if (memory->by_caller) {
			const struct memory_sum change = { line.self.bytes - line.before.bytes,
							   line.self.blocks - line.before.blocks };

			if (is_nothing(&change) &&
			    (memory->view != MEMORY_SUMMARY || counts->leaked_blocks <= 0))
				continue;
		} else {
			line.total = memory_sum_at(total, i);
			if (is_nothing(&line.total) &&
			    (memory->view == MEMORY_SUMMARY
				     ? !line.counts
				     : is_nothing(&line.self) && is_nothing(&line.before)))
				continue;
		}
		if (!memory_reads_all(memory)) {
			set_sum(counts, &line.self);
			line.counts = counts;
		}
		line.key = memory_key_of(memory, &line.self);
		if (memory->before)
			line.key = fabs(line.key - memory_key_of(memory, &line.before));
		g_array_append_val(memory->lines, line);
	}
}

static void list_entities(struct memory *memory)
{
	enum memory_key by = memory_query_of(memory)->key;

	for (uint32_t i = 0; i < memory->entities->len; i++) {
		const struct memory_counts *counts = memory_counts_at(memory->entities, i);
		struct memory_line line = { .entity = i, .counts = counts };

		if (!counts->is_there)
			continue;
		line.key = memory->by_blocks ? counts->allocations : counts->allocated_bytes;
		if (by == MEMORY_BY_SIZE || by == MEMORY_BY_LIFETIME)
			line.key = -(double)i;
		else if (by == MEMORY_BY_THREAD)
			line.name = names_thread_at(memory->reader.capture->names, i)->comm;
		else
			line.is_first = memory_pair_at(memory, i)->allocator !=
					memory_pair_at(memory, i)->freer;
		g_array_append_val(memory->lines, line);
	}
}

void memory_list(struct memory *memory)
{
	if (memory_query_of(memory)->key == MEMORY_BY_TIME)
		return;
	if (memory_by_function(memory))
		list_functions(memory);
	else
		list_entities(memory);
	g_array_sort(memory->lines, compare_lines);
	if (memory_query_of(memory)->filter == MEMORY_NOT_FREED && !memory->is_tree)
		memory_list_stacks(memory);
}

/* ---- cells ----------------------------------------------------------------------------------- */

static struct cell number_cell(bool known, double number)
{
	return known ? cell_uint(memory_integer(number)) : cell_unknown();
}

static void write_calls(struct json *json, const char *key, const void *data)
{
	const struct memory_counts *counts = data;

	json_begin_object(json, key);
	for (unsigned i = 0; i < MEMORY_CALLS; i++)
		if (memory_call_names[i])
			json_uint(json, memory_call_names[i], memory_integer(counts->calls[i]));
	json_end(json);
}

/* Returns the cell of a member of MEM. The time of the peak comes from `peak`. */
static struct cell counts_cell(const struct memory_counts *counts, const struct memory_counts *peak,
			       unsigned has, uint64_t lost, enum memory_field field)
{
#define NUMBER(needs, name)                                 \
	{                                                   \
		needs, offsetof(struct memory_counts, name) \
	}
	static const struct {
		unsigned needs;
		size_t at; /* offset of a double */
	} numbers[] = {
		[FAILED] = NUMBER(MEMORY_HAS_CALLS, failed),
		[FOREIGN] = NUMBER(MEMORY_HAS_CALLS, foreign),
		[ALLOCATIONS] = NUMBER(MEMORY_HAS_CALLS, allocations),
		[ALLOCATED] = NUMBER(MEMORY_HAS_CALLS, allocated_bytes),
		[FREED] = NUMBER(MEMORY_HAS_CALLS, freed_bytes),
		[PEAK_BYTES] = NUMBER(MEMORY_HAS_PEAK, peak_bytes),
		[LIVE_BYTES] = NUMBER(MEMORY_HAS_LIVE, live_bytes),
		[LIVE_BLOCKS] = NUMBER(MEMORY_HAS_LIVE, live_blocks),
		[LEAKED_BYTES] = NUMBER(MEMORY_HAS_LEAKED, leaked_bytes),
		[LEAKED_BLOCKS] = NUMBER(MEMORY_HAS_LEAKED, leaked_blocks),
		[TEMPORARY] = NUMBER(MEMORY_HAS_TEMPORARY, temporary),
		[REALLOCS] = NUMBER(0, reallocs),
		[GROWN] = NUMBER(0, grown_bytes),
		[COPIED] = NUMBER(0, copied_bytes),
	};
#undef NUMBER

	switch (field) {
	case CALLS:
		return has & MEMORY_HAS_CALLS ? (struct cell){ .kind = CELL_WRITTEN,
							       .write = write_calls,
							       .data = counts }
					      : cell_unknown();
	case PEAK_NS:
		return (has & MEMORY_HAS_PEAK) && peak->has_peak_time ? cell_int(peak->peak_ns)
								      : cell_unknown();
	case LOST:
		return has & MEMORY_HAS_LOST ? cell_uint(lost) : cell_unknown();
	default:
		return number_cell(!numbers[field].needs || (has & numbers[field].needs),
				   *(const double *)(const void *)((const char *)counts +
								   numbers[field].at));
	}
}

char *memory_name(const struct memory *memory, uint32_t function)
{
	return memory->full_names ? g_strdup(functions_at(memory->tree.functions, function)->name)
				  : function_label(memory->tree.functions, function);
}

/* Returns text such as "std::vector<int>::push_back < shop::parse_order". */
static char *site_name(const struct memory *memory, uint32_t entity)
{
	const struct memory_site *site = memory_site_at(&memory->tree, entity);
	g_autofree char *own = NULL, *callee = NULL;

	if (!memory->by_caller)
		return memory_name(memory, entity);
	if (site->own == FUNCTION_NO_STACK)
		return memory_name(memory, site->callee);
	own = memory_name(memory, site->own);
	if (site->callee == FUNCTION_NO_STACK)
		return g_steal_pointer(&own);
	callee = memory_name(memory, site->callee);
	return g_strdup_printf("%s < %s", callee, own);
}

static char *thread_text(const struct memory *memory, uint32_t index)
{
	const struct names *names = memory->reader.capture->names;
	const struct names_thread *thread = names_thread_at(names, index);

	return g_strdup_printf("%" PRIu64 "/%" PRIu64 " %s",
			       names_process_at(names, thread->process)->pid, thread->tid,
			       thread->comm ? thread->comm : "-");
}

char *memory_row_text(const struct memory *memory, uint32_t entity)
{
	g_autofree char *allocator = NULL, *freer = NULL, *since = NULL, *until = NULL;
	uint64_t from, to;

	switch (memory_query_of(memory)->key) {
	case MEMORY_BY_FUNCTION:
		return site_name(memory, entity);
	case MEMORY_BY_SIZE:
		memory_size_range(entity, &from, &to);
		return from == to ? g_strdup_printf("%" PRIu64, from)
				  : g_strdup_printf("%" PRIu64 " - %" PRIu64, from, to);
	case MEMORY_BY_LIFETIME:
		if (entity == MEMORY_NEVER_FREED)
			return g_strdup(_("never freed"));
		memory_lifetime_range(entity, &from, &to);
		since = text_duration(from);
		until = text_duration(to == UINT64_MAX ? to : to + 1);
		return g_strdup_printf(_("%s to %s"), since, until);
	case MEMORY_BY_PAIR:
		allocator = thread_text(memory, memory_pair_at(memory, entity)->allocator);
		if (memory_pair_at(memory, entity)->allocator ==
		    memory_pair_at(memory, entity)->freer)
			return g_strdup_printf(_("%s, by itself"), allocator);
		freer = thread_text(memory, memory_pair_at(memory, entity)->freer);
		return g_strdup_printf(_("%s, by %s"), allocator, freer);
	default:
		return thread_text(memory, entity);
	}
}

static struct cell class_cell(const struct memory *memory, uint32_t entity, bool is_from)
{
	uint64_t from, to;

	if (memory_query_of(memory)->key == MEMORY_BY_SIZE)
		memory_size_range(entity, &from, &to);
	else if (entity == MEMORY_NEVER_FREED)
		return cell_unknown();
	else
		memory_lifetime_range(entity, &from, &to);
	/* Some JSON readers have only signed integers, so a larger limit is written as unknown. */
	return is_from ? cell_uint(from) : to < UINT64_MAX / 2 ? cell_uint(to) : cell_unknown();
}

static struct cell thread_cell(const struct memory *memory, uint32_t entity,
			       enum memory_field field)
{
	const struct names *names = memory->reader.capture->names;
	bool is_pair = memory_query_of(memory)->key == MEMORY_BY_PAIR;
	uint32_t allocator = is_pair ? memory_pair_at(memory, entity)->allocator : entity;
	uint32_t freer = is_pair ? memory_pair_at(memory, entity)->freer : entity;
	uint32_t index = field == TID || field == COMM ? allocator : freer;
	const struct names_thread *thread = names_thread_at(names, index);

	if (field == COMM || field == FREE_COMM)
		return cell_text(thread->comm);
	if (field == PID)
		return thread->process > NAMES_LOST
			       ? cell_uint(names_process_at(names, thread->process)->pid)
			       : cell_unknown();
	return index > NAMES_LOST ? cell_uint(thread->tid) : cell_unknown();
}

static struct cell point_cell(const struct memory *memory, uint32_t index, enum memory_field field)
{
	const struct memory_point *point =
		&g_array_index(memory->points, struct memory_point, index);
	g_autofree char *name = NULL;

	switch (field) {
	case TIME:
		return cell_int(point->time_ns);
	case LIVE_BYTES:
		return cell_uint(memory_integer(point->bytes));
	case LIVE_BLOCKS:
		return cell_uint(memory_integer(point->blocks));
	case LARGEST:
		return cell_text(
			point->largest_bytes > 0
				? functions_at(memory->tree.functions, point->largest)->name
				: NULL);
	case LARGEST_BYTES:
		return cell_uint(memory_integer(point->largest_bytes));
	case RSS_BYTES:
		return point->rss_bytes < 0 ? cell_unknown()
					    : cell_uint(memory_integer(point->rss_bytes));
	default:
		if (point->largest_bytes <= 0)
			return (struct cell){ 0 };
		name = memory_name(memory, point->largest);
		return cell_own_text(g_strdup_printf("%s %s %%", name,
						     memory_share_text(memory, point->largest_bytes,
								       point->bytes)));
	}
}

/* The rows of the answer, or one node of the tree. */
struct show {
	const struct memory *memory;
	const struct memory_line *lines;
	unsigned has;
	bool is_node;
	double all; /* sum of the keys of all rows */
};

static struct cell function_cell(const struct memory *memory, uint32_t entity,
				 enum function_field field)
{
	if (entity != MEMORY_ROOT)
		return functions_cell(memory->tree.functions, entity, field);
	return field == FN_NAME || field == FN_RAW_NAME ? cell_text("<root>")
	       : field == FN_KIND                       ? cell_text("unresolved")
							: cell_unknown();
}

static struct cell place_cell(const struct memory *memory, uint32_t entity)
{
	const struct memory_site *site = memory_site_at(&memory->tree, entity);
	uint32_t function = !memory->by_caller ? entity
			    : site->place      ? site->place
			    : site->own        ? site->own
					       : site->callee;

	return cell_own_or_none(functions_place(memory->tree.functions, function, false));
}

static struct cell get_cell(const void *data, size_t row, unsigned field)
{
	static const struct memory_counts nothing;
	const struct show *show = data;
	const struct memory *memory = show->memory;
	const struct memory_line *line = &show->lines[row];
	const struct memory_counts *counts = line->counts ? line->counts : &nothing;
	const struct memory_sum *now = show->is_node ? &line->total : &line->self;
	const double sums[] = { line->self.bytes,   line->self.blocks,  line->total.bytes,
				line->total.blocks, line->before.bytes, line->before.blocks };
	bool never = memory_query_of(memory)->key == MEMORY_BY_LIFETIME &&
		     line->entity == MEMORY_NEVER_FREED;

	if (memory_query_of(memory)->key == MEMORY_BY_TIME)
		return point_cell(memory, line->entity, field);
	else if (field < FN_FIELDS)
		return function_cell(memory, line->entity, field);
	else if (field <= LIFETIME_TO)
		return class_cell(memory, line->entity,
				  field == SIZE_FROM || field == LIFETIME_FROM);
	else if (field <= FREE_COMM)
		return thread_cell(memory, line->entity, field);
	else if (field >= CALLS && field <= COPIED)
		return counts_cell(counts, &memory->all, show->has, 0, field);
	else if (field == CHAIN)
		return number_cell(memory->sampled_bytes <= 0, counts->longest_chain);
	else if (field <= BEFORE_BLOCKS)
		return number_cell(true, sums[field - SELF_BYTES]);
	else if (field == DELTA_BYTES)
		return cell_int(llround(now->bytes - line->before.bytes));
	else if (field == DELTA_BLOCKS)
		return cell_int(llround(now->blocks - line->before.blocks));
	else if (field == ROW)
		return cell_own_text(memory_row_text(memory, line->entity));
	else if (field == PLACE)
		return place_cell(memory, line->entity);
	else if (field == SHARE)
		return cell_double(show->all > 0 ? 100 * line->key / show->all : 0);
	else if (field == OF_OWN)
		return cell_double(counts->allocations > 0
					   ? 100 * line->self.blocks / counts->allocations
					   : 0);
	else if (field == LIVED_BYTES)
		return number_cell(true, never ? counts->leaked_bytes : counts->allocated_bytes);
	else
		return number_cell(true, never ? counts->leaked_blocks : counts->allocations);
}

/* Returns text such as "11 more functions, 0.96 MiB of 175 MiB". */
static char *rest_text(const void *data, size_t shown)
{
	const struct show *show = data;
	const struct memory *memory = show->memory;
	size_t n = memory->lines->len - shown;
	bool by_blocks = memory->by_blocks || memory_query_of(memory)->by_blocks;
	double rest = 0;

	if (!memory_by_function(memory))
		return NULL;
	for (guint i = (guint)shown; i < memory->lines->len; i++)
		rest += show->lines[i].key;
	return g_strdup_printf(ngettext("%s more function, %s of %s", "%s more functions, %s of %s",
					(unsigned long)n),
			       memory_count_text(memory, (double)n),
			       (by_blocks ? memory_count_text : memory_bytes_text)(memory, rest),
			       (by_blocks ? memory_blocks_text : memory_bytes_text)(memory,
										    show->all));
}

static bool is_bold(const void *data, size_t row)
{
	const struct show *show = data;

	return memory_by_function(show->memory) && show->lines[row].key >= show->all / 10;
}

static unsigned measures_of(const struct memory *memory)
{
	unsigned has = memory_query_of(memory)->measures;

	return memory_knows_temporary(memory) ? has : has & ~(unsigned)MEMORY_HAS_TEMPORARY;
}

static struct show show_of(const struct memory *memory)
{
	struct show show = { .memory = memory,
			     .lines = (const struct memory_line *)(void *)memory->lines->data,
			     .has = measures_of(memory) };

	for (guint i = 0; i < memory->lines->len; i++)
		show.all += show.lines[i].key;
	return show;
}

static struct table table_of(const struct show *show)
{
	const struct memory_query *query = memory_query_of(show->memory);
	struct table table = { .rows = show->memory->lines->len,
			       .get = get_cell,
			       .data = show,
			       .members = query->members,
			       .key = query->key == MEMORY_BY_TIME ? "series" : NULL,
			       .fit = show->memory->full_names ? NULL : &function_name_fits,
			       .is_bold = is_bold,
			       .rest = rest_text };

	for (const struct table_column *c = query->columns; c && c->format; c++) {
		/* Without leaks, the column would have only zeros. */
		if (c->field == LEAKED_BYTES && show->memory->all.leaked_blocks <= 0)
			continue;
		table_add_column(&table, c->field, c->format, c->title ? _(c->title) : NULL);
		table.columns[table.n_columns - 1].is_signed = c->is_signed;
	}
	return table;
}

/* ---- processes ------------------------------------------------------------------------------- */

/* Returns NULL if the heap is not excluded. Reasons that a later version adds count as
 * "unregistered". */
static const char *excluded_name(uint32_t event)
{
	static const char *const names[PROF_HEAP_EVENTS] = {
		[PROF_HEAP_STATIC] = "static",
		[PROF_HEAP_SETUID] = "setuid",
		[PROF_HEAP_OTHER_ARCH] = "other-arch",
		[PROF_HEAP_UNREGISTERED] = "unregistered",
		[PROF_HEAP_OTHER_LIBC] = "other-libc",
		[PROF_HEAP_ENVIRONMENT] = "environment",
		[PROF_HEAP_NO_DESCRIPTORS] = "no-descriptors",
		[PROF_HEAP_NO_MEMORY] = "no-memory",
		[PROF_HEAP_SANITIZER] = "sanitizer",
		[PROF_HEAP_NEVER_ALLOCATED] = "never-allocated",
	};

	return event < PROF_HEAP_EVENTS ? names[event] : names[PROF_HEAP_UNREGISTERED];
}

/* Describes all processes in one pass, because even a small file may list very many. */
void memory_describe(struct memory *memory)
{
	const struct names *names = memory->reader.capture->names;
	struct memory_about *all;

	g_array_set_size(memory->about, names->processes->len);
	all = (struct memory_about *)(void *)memory->about->data;
	ARRAY_EACH(const struct memory_heap, heap, memory->heaps.heaps) {
		struct memory_about *about = &all[heap->process];

		about->has_heap |= heap->last != 0;
		about->excluded = about->has_heap ? NULL : excluded_name(heap->excluded);
	}
	for (guint i = NAMES_LOST + 1; i < names->threads->len; i++) {
		const struct names_thread *thread = names_thread_at(names, i);
		struct memory_about *about = &all[thread->process];

		if (!about->comm || thread->tid == names_process_at(names, thread->process)->pid)
			about->comm = thread->comm;
	}
	all[NAMES_LOST].comm = NAMES_LOST_TEXT;
}

struct process_rows {
	const struct memory *memory;
	GArray *all; /* uint32_t: indexes of processes */
	bool is_text;
};

static struct cell get_process_cell(const void *data, size_t row, unsigned field)
{
	const struct process_rows *rows = data;
	const struct memory *memory = rows->memory;
	uint32_t process = g_array_index(rows->all, uint32_t, row);
	const struct names_process *of = names_process_at(memory->reader.capture->names, process);
	const struct memory_counts *counts = memory_counts_at(memory->processes, process);
	const char *comm = memory_comm(memory, process), *shown = comm ? comm : "-";
	const char *excluded = memory_excluded(memory, process);
	bool known = process > NAMES_LOST;
	uint64_t lost = 0;

	if (field == LOST) {
		const struct reader reader = memory_loss_reader(memory);
		g_autofree char *stream = g_strdup_printf("collector/%" G_GUINT64_FORMAT, of->pid);

		lost = reader_lost_rows(&reader, memory_tables, stream);
	}
	if (field == PID)
		return known ? cell_uint(of->pid) : cell_unknown();
	else if (field == PPID)
		return known && of->ppid ? cell_uint(of->ppid) : cell_unknown();
	else if (field == COMM)
		return cell_text(comm);
	else if (field == END)
		return cell_text(memory_end_names[memory_heaps_end(&memory->heaps, process)]);
	else if (field == EXCLUDED)
		return cell_text(excluded);
	else if (field == ROW)
		return cell_own_text(
			excluded ? g_strdup_printf(_("%s  (not recorded: %s)"), shown, excluded)
				 : g_strdup(shown));
	else if (rows->is_text && excluded)
		return cell_unknown(); /* not recorded, so unknown instead of 0 */
	else
		return counts_cell(counts, counts, memory->has_processes, lost, field);
}

static gint compare_processes(gconstpointer left, gconstpointer right, gpointer data)
{
	const GArray *processes = ((const struct memory *)data)->processes;
	uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;

	return ORDER_BY(ORDER(memory_counts_at(processes, b)->allocated_bytes,
			      memory_counts_at(processes, a)->allocated_bytes),
			ORDER(a, b));
}

static struct process_rows list_processes(const struct memory *memory)
{
	struct process_rows rows = { memory, g_array_new(FALSE, FALSE, sizeof(uint32_t)),
				     memory->reader.format == READER_TEXT };

	for (uint32_t i = 0; i < memory->processes->len; i++)
		if (memory_counts_at(memory->processes, i)->is_there)
			g_array_append_val(rows.all, i);
	if (rows.is_text)
		g_array_sort_with_data(rows.all, compare_processes, (gpointer)memory);
	return rows;
}

/* ---- members --------------------------------------------------------------------------------- */

/* clang-format off */
#define MEM \
	{ "calls", CALLS }, { "failed", FAILED }, { "foreign_frees", FOREIGN }, \
	{ "allocations", ALLOCATIONS }, { "allocated_bytes", ALLOCATED }, \
	{ "freed_bytes", FREED }, { "peak_bytes", PEAK_BYTES }, { "peak_ns", PEAK_NS }, \
	{ "live_bytes", LIVE_BYTES }, { "live_blocks", LIVE_BLOCKS }, \
	{ "leaked_bytes", LEAKED_BYTES }, { "leaked_blocks", LEAKED_BLOCKS }, \
	{ "temporary", TEMPORARY }, { "lost", LOST }
#define TOTALS { "total_bytes", TOTAL_BYTES }, { "total_blocks", TOTAL_BLOCKS }
#define DIFFERENCES \
	{ "before_bytes", BEFORE_BYTES }, { "before_blocks", BEFORE_BLOCKS }, \
	{ "delta_bytes", DELTA_BYTES }, { "delta_blocks", DELTA_BLOCKS }
#define NODE FN_MEMBERS, MEM, { "self_bytes", SELF_BYTES }, { "self_blocks", SELF_BLOCKS }, TOTALS
#define MEMBERS(name, ...) \
	static const struct table_member name##_members[] = { __VA_ARGS__, { NULL } }

MEMBERS(mem, MEM);
MEMBERS(function, FN_MEMBERS, MEM, TOTALS);
MEMBERS(temporary, FN_MEMBERS, MEM, TOTALS, { "self_bytes", SELF_BYTES });
MEMBERS(diff, FN_MEMBERS, MEM, TOTALS, DIFFERENCES);
MEMBERS(realloc, FN_MEMBERS, MEM, TOTALS, { "self_bytes", SELF_BYTES }, { "reallocs", REALLOCS },
	{ "longest_chain", CHAIN }, { "grown_bytes", GROWN }, { "copied_bytes", COPIED });
MEMBERS(size, { "size_from", SIZE_FROM }, { "size_to", SIZE_TO }, MEM);
MEMBERS(lifetime, { "lifetime_from_ns", LIFETIME_FROM }, { "lifetime_to_ns", LIFETIME_TO }, MEM);
MEMBERS(thread, { "pid", PID }, { "tid", TID }, { "comm", COMM }, MEM);
MEMBERS(pair, { "pid", PID }, { "alloc_tid", TID }, { "alloc_comm", COMM },
	{ "free_tid", FREE_TID }, { "free_comm", FREE_COMM }, MEM);
MEMBERS(point, { "time_ns", TIME }, { "live_bytes", LIVE_BYTES }, { "live_blocks", LIVE_BLOCKS },
	{ "rss_bytes", RSS_BYTES }, { "largest", LARGEST }, { "largest_bytes", LARGEST_BYTES });
MEMBERS(process, { "pid", PID }, { "ppid", PPID }, { "comm", COMM }, { "end", END },
	{ "excluded", EXCLUDED }, MEM);
MEMBERS(node, NODE);
MEMBERS(diff_node, NODE, DIFFERENCES);
/* clang-format on */

/* ---- JSON, ndjson and CSV -------------------------------------------------------------------- */

void memory_write_node(struct memory *memory, struct json *json, struct memory_line *line)
{
	struct memory_counts counts = { 0 };
	struct show show = { .memory = memory, .lines = line, .is_node = true };
	const struct table table = { .rows = 1,
				     .get = get_cell,
				     .data = &show,
				     .members = memory->before ? diff_node_members : node_members };

	set_sum(&counts, &line->total);
	line->counts = &counts;
	if (!memory_reads_all(memory))
		show.has = measures_of(memory);
	table_write_row(&table, json, 0);
}

static struct cell get_summary_cell(const void *data, size_t row, unsigned field)
{
	const struct memory *memory = data;
	const struct memory_counts *counts = &memory->all;
	struct memory_counts all;

	/* Only text leaves out the runtimes' pools, so add them here. Other cells do not use the
	 * local copy, because the cell of CALLS keeps a pointer to its counts. */
	if (memory->hides_runtime && (field == LEAKED_BYTES || field == LEAKED_BLOCKS)) {
		const struct memory_sum runtime = memory_runtime_sum(memory);

		all = memory->all;
		all.leaked_bytes += runtime.bytes;
		all.leaked_blocks += runtime.blocks;
		counts = &all;
	}
	return counts_cell(counts, &memory->all, memory->has_all, memory->lost, field);
}

void memory_write_runtime(const struct memory *memory, struct json *json)
{
	json_begin_array(json, "runtime");
	for (unsigned i = 0; i < RUNTIME_POOLS; i++) {
		const struct memory_sum *sum = &memory->suppressions.pools[i];

		if (sum->blocks <= 0)
			continue;
		json_begin_object(json, NULL);
		json_string(json, "pool", runtime_pool_name(i));
		json_uint(json, "leaked_bytes", memory_integer(sum->bytes));
		json_uint(json, "leaked_blocks", memory_integer(sum->blocks));
		json_end(json);
	}
	json_end(json);
}

static void write_suppressed(const struct memory *memory, struct json *json)
{
	const GArray *all = memory->suppressions.all;

	if (all) {
		json_begin_array(json, "suppressed");
		ARRAY_EACH(const struct suppression, suppression, all) {
			json_begin_object(json, NULL);
			json_string(json, "pattern", suppression->pattern);
			json_uint(json, "bytes", memory_integer(suppression->bytes));
			json_uint(json, "blocks", memory_integer(suppression->blocks));
			json_end(json);
		}
		json_end(json);
	}
	if ((memory->has_all & MEMORY_HAS_LEAKED) && !memory->no_suppressions)
		memory_write_runtime(memory, json);
}

void memory_write_summary(const struct memory *memory, struct json *json, const char *key)
{
	const struct table summary = {
		.rows = 1, .get = get_summary_cell, .data = memory, .members = mem_members
	};

	json_begin_object(json, key);
	table_write_row(&summary, json, 0);
	json_end(json);
}

static void write_head(struct memory *memory, struct json *json)
{
	const struct process_rows rows = list_processes(memory);
	const struct table processes = { .rows = rows.all->len,
					 .get = get_process_cell,
					 .data = &rows,
					 .members = process_members,
					 .key = "processes" };
	enum memory_filter filter = memory_query_of(memory)->filter;

	json_string(json, "view", memory_query_of(memory)->name);
	json_bool(json, "incomplete", memory->is_incomplete);
	json_uint_if(json, "sampled_bytes", memory->sampled_bytes > 0,
		     memory_integer(memory->sampled_bytes));
	if (filter == MEMORY_LIVE_AT_TIME || filter == MEMORY_LIVE_SINCE)
		json_int(json, "at_ns", memory->at_ns);
	if (filter == MEMORY_LIVE_SINCE)
		json_int(json, "before_ns", memory->before_ns);
	memory_write_summary(memory, json, "summary");
	table_write(&processes, json, JSON_FORMAT_JSON, processes.rows);
	g_array_unref(rows.all);
	json_begin_array(json, "warnings");
	ARRAY_EACH(const struct memory_warning, warning, memory->warnings) {
		json_begin_object(json, NULL);
		json_string(json, "text", warning->text);
		json_uint(json, "processes", warning->processes);
		json_end(json);
	}
	json_end(json);
	write_suppressed(memory, json);
}

void memory_write(struct memory *memory)
{
	const struct show show = show_of(memory);
	const struct table table = table_of(&show);
	struct reader *reader = &memory->reader;
	struct json *json = &memory->json;

	reader_begin(reader, json, "memory",
		     memory->is_tree ? memory_tree_is_cut(memory)
				     : reader_shown(reader, table.rows) < table.rows,
		     memory->is_tree ? READER_TOTAL_UNKNOWN : table.rows);
	if (reader->format == READER_JSON)
		write_head(memory, json);
	if (memory->is_tree)
		memory_write_tree(memory, json);
	else
		reader_write_table(reader, json, &table);
	if (reader->format == READER_JSON && memory->stacks->len > 0)
		memory_write_stacks(memory, json);
	reader_end(reader, json);
}

/* ---- the views ------------------------------------------------------------------------------- */

/* clang-format off */
#define COLUMNS(name, ...) \
	static const struct table_column name##_columns[] = { __VA_ARGS__, { 0 } }
#define NAMED(title) { ROW, COLUMN_NAME, title }
#define FUNCTION NAMED(N_("function < own caller")), { PLACE, COLUMN_PLACE, NULL }
#define LIVE(title) \
	{ SELF_BYTES, COLUMN_SIZE, title }, { SELF_BLOCKS, COLUMN_COUNT, N_("blocks") }, \
	{ SHARE, COLUMN_PERCENT, N_("share %") }, FUNCTION
#define MADE(title) \
	{ ALLOCATED, COLUMN_SIZE, title }, { ALLOCATIONS, COLUMN_COUNT, N_("blocks") }
#define SHORT_LIVED { TEMPORARY, COLUMN_COUNT, N_("temporary") }
#define NOT_FREED { LEAKED_BYTES, COLUMN_SIZE, N_("not freed") }
#define AT_PEAK(title) { PEAK_BYTES, COLUMN_SIZE, title }

COLUMNS(summary, MADE(N_("allocated")), NOT_FREED, FUNCTION);
COLUMNS(temporary, { SELF_BLOCKS, COLUMN_COUNT, N_("blocks") },
	{ OF_OWN, COLUMN_PERCENT, N_("of own %") }, { SELF_BYTES, COLUMN_SIZE, N_("bytes") },
	FUNCTION);
COLUMNS(peak, LIVE(N_("at peak")));
COLUMNS(at, LIVE(N_("live")));
COLUMNS(diff, { DELTA_BYTES, COLUMN_SIZE, N_("change"), true },
	{ DELTA_BLOCKS, COLUMN_COUNT, N_("blocks"), true },
	{ SHARE, COLUMN_PERCENT, N_("share %") }, FUNCTION);
COLUMNS(size, MADE(N_("allocated")), SHORT_LIVED, AT_PEAK(N_("at peak")), NOT_FREED,
	NAMED(N_("bytes of a block")));
COLUMNS(lifetime, { LIVED_BYTES, COLUMN_SIZE, N_("bytes") },
	{ LIVED_BLOCKS, COLUMN_COUNT, N_("blocks") }, SHORT_LIVED, NAMED(N_("lived")));
COLUMNS(thread, MADE(N_("allocated")), SHORT_LIVED, AT_PEAK(N_("at peak")), NOT_FREED,
	NAMED(N_("thread")));
COLUMNS(pair, MADE(N_("bytes")), SHORT_LIVED, NAMED(N_("allocated by, freed by")));
COLUMNS(realloc, { SELF_BYTES, COLUMN_SIZE, N_("bytes") },
	{ SELF_BLOCKS, COLUMN_COUNT, N_("blocks") }, { GROWN, COLUMN_SIZE, N_("grown") },
	{ CHAIN, COLUMN_COUNT, N_("in a row") }, FUNCTION);
COLUMNS(point, { TIME, COLUMN_DURATION, N_("time") }, { LIVE_BYTES, COLUMN_SIZE, N_("live") },
	{ LIVE_BLOCKS, COLUMN_COUNT, N_("blocks") }, NAMED(N_("largest then")));
COLUMNS(process, MADE(N_("allocated")), AT_PEAK(N_("peak")), NOT_FREED,
	{ PID, COLUMN_NUMBER, N_("pid") }, { END, COLUMN_WORD, N_("end") },
	NAMED(N_("process")));
/* clang-format on */

#define HAS_ALL                                                                     \
	(MEMORY_HAS_CALLS | MEMORY_HAS_LIVE | MEMORY_HAS_LEAKED | MEMORY_HAS_PEAK | \
	 MEMORY_HAS_TEMPORARY)

const struct memory_query memory_queries[MEMORY_VIEWS] = {
	[MEMORY_SUMMARY] = { "summary", MEMORY_BY_FUNCTION, MEMORY_ALLOCATED, false, HAS_ALL,
			     summary_columns, function_members },
	[MEMORY_LEAKS] = { "leaks", MEMORY_BY_FUNCTION, MEMORY_NOT_FREED, false, MEMORY_HAS_LEAKED,
			   NULL, function_members },
	[MEMORY_TEMPORARY] = { "temporary", MEMORY_BY_FUNCTION, MEMORY_FREED_AT_ONCE, true, HAS_ALL,
			       temporary_columns, temporary_members },
	[MEMORY_PEAK] = { "peak", MEMORY_BY_FUNCTION, MEMORY_LIVE_AT_PEAK, false,
			  MEMORY_HAS_LIVE | MEMORY_HAS_PEAK, peak_columns, function_members },
	[MEMORY_AT] = { "at", MEMORY_BY_FUNCTION, MEMORY_LIVE_AT_TIME, false, MEMORY_HAS_LIVE,
			at_columns, function_members },
	[MEMORY_DIFF] = { "diff", MEMORY_BY_FUNCTION, MEMORY_LIVE_SINCE, false, MEMORY_HAS_LIVE,
			  diff_columns, diff_members },
	[MEMORY_SIZES] = { "sizes", MEMORY_BY_SIZE, MEMORY_ALLOCATED, false, HAS_ALL, size_columns,
			   size_members },
	[MEMORY_LIFETIMES] = { "lifetimes", MEMORY_BY_LIFETIME, MEMORY_ALLOCATED, false,
			       MEMORY_HAS_CALLS | MEMORY_HAS_LEAKED | MEMORY_HAS_TEMPORARY,
			       lifetime_columns, lifetime_members },
	[MEMORY_THREADS] = { "threads", MEMORY_BY_THREAD, MEMORY_ALLOCATED, false, HAS_ALL,
			     thread_columns, thread_members },
	[MEMORY_CROSS_THREAD] = { "cross-thread", MEMORY_BY_PAIR, MEMORY_FREED_ELSEWHERE, false,
				  MEMORY_HAS_CALLS | MEMORY_HAS_TEMPORARY, pair_columns,
				  pair_members },
	[MEMORY_REALLOCS] = { "reallocs", MEMORY_BY_FUNCTION, MEMORY_MOVED, true, HAS_ALL,
			      realloc_columns, realloc_members },
	[MEMORY_TIMELINE] = { "timeline", MEMORY_BY_TIME, MEMORY_LIVE, false, 0, point_columns,
			      point_members },
};

/* ---- text ------------------------------------------------------------------------------------ */

static void print_processes(const struct memory *memory, const struct process_rows *rows,
			    struct out *out)
{
	struct table table = { .rows = rows->all->len, .get = get_process_cell, .data = rows };

	for (const struct table_column *c = process_columns; c->format; c++)
		table_add_column(&table, c->field, c->format, _(c->title));
	out_char(out, '\n');
	reader_print_table(&memory->reader, out, &table);
}

bool memory_print_verdict(const struct memory *memory, struct out *out)
{
	g_autoptr(GString) text = g_string_new(NULL);
	const struct process_rows processes = list_processes(memory);
	g_autoptr(GArray) all_processes = processes.all;
	g_auto(GStrv) lines = NULL;
	guint excluded = 0;

	memory_print_warnings(memory, out);
	while (excluded < all_processes->len &&
	       memory_excluded(memory, g_array_index(all_processes, uint32_t, excluded)))
		excluded++;
	if (excluded > 0 && excluded == all_processes->len) {
		out_text(out, _("No allocations were recorded of any of these processes:\n"));
		print_processes(memory, &processes, out);
		return false;
	}
	memory_append_sentences(memory, text);
	lines = g_strsplit(text->str, "\n", -1);
	for (unsigned i = 0; lines[i] && *lines[i]; i++)
		text_wrap(out, lines[i], 0, 2, memory->reader.columns);
	return true;
}

const char *memory_next_view(const struct memory *memory)
{
	return memory->all.leaked_blocks > 0                         ? "--leaks"
	       : 2 * memory->all.temporary > memory->all.allocations ? "--temporary"
								     : "--peak";
}

/* Mentions processes that did not register. The losses do not include their allocations, because
 * nothing of these processes could be counted. */
static void print_losses(const struct memory *memory, const struct process_rows *processes,
			 struct out *out)
{
	unsigned n = 0;

	ARRAY_EACH(const uint32_t, process, processes->all)
		n += g_strcmp0(memory_excluded(memory, *process), "unregistered") == 0;
	if (n > 0)
		out_printf(
			out,
			ngettext("Lost: all allocations of %u process that did not register.\n",
				 "Lost: all allocations of %u processes that did not register.\n",
				 n),
			n);
	else if (reader_is_complete(&memory->reader) && !memory->is_incomplete)
		out_text(out, _("Lost: nothing.\n"));
}

void memory_print(struct memory *memory, struct out *out)
{
	const struct show show = show_of(memory);
	const struct table table = table_of(&show);
	const struct process_rows processes = list_processes(memory);
	g_autoptr(GArray) all_processes = processes.all;

	if (!memory_print_verdict(memory, out))
		return;
	print_losses(memory, &processes, out);
	if (memory->view == MEMORY_SUMMARY && all_processes->len > 1)
		print_processes(memory, &processes, out);
	if (memory->lines->len > 0)
		out_char(out, '\n');
	if (memory->is_tree)
		memory_print_tree(memory, out);
	else if (memory_query_of(memory)->columns)
		reader_print_table(&memory->reader, out, &table);
	else
		memory_print_stacks(memory, out);
	if (memory->hides_runtime && memory_query_of(memory)->filter == MEMORY_NOT_FREED &&
	    !memory->is_tree)
		memory_print_runtime(memory, out);
	if (memory->view == MEMORY_SUMMARY && !memory->is_tree && isatty(STDOUT_FILENO)) {
		g_autofree char *file = text_escape(memory->reader.capture->file);

		out_printf(out, _("Next: profcapture memory %s %s\n"), file,
			   memory_next_view(memory));
	}
}
