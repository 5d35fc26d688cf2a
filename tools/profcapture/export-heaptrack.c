/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Export-heaptrack - allocations and frees in their order, in version 3 of heaptrack's format
 *
 * The first letter of a line is its type; numbers are hexadecimal. An index is the number of a line
 * among those of its type: strings (s), instruction pointers (i) and traces (t) count from 1,
 * because 0 means none; block kinds (a: size and trace) count from 0. "+" allocates a block of a
 * kind, and "-" frees one. A line "c" (milliseconds) or "R" (pages of RSS) applies to the time
 * after it. The line of an instruction pointer lists its functions, the innermost inlined one
 * first, each with file and line. Its address is the function's offset in the image. As in
 * heaptrack's own files, traces start at the function that called the allocator.
 *
 * A block that is live at the start of the time range is allocated at that start. The rest of a
 * partly unmapped mapping is written as a new allocation. Blocks that live until their process ends
 * are never freed, so heaptrack shows them as leaks. Therefore a file has one process: the blocks
 * of a process that ended would still count while the heap of another one grows.
 *
 * heaptrack calls a block temporary if its free is the next event after an allocation of its kind,
 * in any thread. In `memory`, it is temporary if the thread that allocated it frees it before its
 * next allocation. So that both agree:
 *   - in a stretch (up to MOST_ROWS events between two "c" lines), the free of a temporary block is
 *     written directly after its allocation. This only makes the heap smaller, and no free is moved
 *     to before the peak, so the peak stays the same.
 *   - if heaptrack would call a block temporary that `memory` does not, its free names a second
 *     kind with the same size and trace (a twin)
 *   - kind 0 is never used, because heaptrack calls its blocks temporary if they are freed directly
 *     after another free.
 * If a block that `memory` calls temporary lives at the end of a stretch or at the peak, heaptrack
 * may not call it temporary.
 */
#include "config.h"

#include "base/order.h"
#include "tools/common/grown-array.h"
#include "tools/profcapture/counter-values.h"
#include "tools/profcapture/export-allocations.h"

#include <glib/gi18n.h>
#include <inttypes.h>
#include <string.h>

#define PAGE_BYTES 4096 /* the unit of RSS */
#define MOST_ROWS 65536u
#define MOST_PIDS 8u /* maximum number of pids in a message */

/* One of heaptrack's instruction pointers: a frame's function, and the callers that it is inlined
 * into. */
struct inline_chain {
	uint32_t outer; /* the caller's chain; 0: this is the frame's own function */
	uint32_t entity;
	uint32_t written; /* the index in the file, or 0 */
};

struct place_of_node {
	uint32_t chain; /* 0: not known yet */
	uint32_t trace; /* the index in the file, or 0: not written yet */
};

struct kind {
	uint64_t size;
	uint32_t trace;
	uint32_t twin; /* second kind with this size and trace, or 0 */
};

/* An event that is not written yet. */
struct row {
	uint32_t kind;
	uint32_t partner; /* of a temporary block's allocation: index + 1 of the free; else 0 */
	bool is_free, is_temporary, is_written;
	uint64_t rows; /* number of allocations up to this event */
};

/* The last allocation of a thread. */
struct last_row {
	uint64_t stretch;
	uint32_t row; /* index + 1 */
};

struct heaptrack {
	struct export *export;
	struct out *out;
	struct memory_tree tree;
	struct memory_heaps heaps;
	struct export_strings strings; /* 0 is "", which is not written */
	GArray *chains;                /* struct inline_chain: a cct; index 0: no chain */
	struct number_map chain_of;    /* `outer` and entity → chain */
	GArray *nodes;                 /* struct place_of_node by node of the tree */
	GArray *path;                  /* uint32_t */
	struct number_map size_of;     /* size → number */
	struct number_map kind_of;     /* number of size, and trace → kind */
	GArray *kinds;                 /* struct kind */
	uint32_t n_pointers, n_traces, n_sizes;
	uint32_t last;              /* the kind of the last allocation, if no free followed; or 0 */
	GArray *rows;               /* struct row of this stretch */
	GArray *last_rows;          /* struct last_row by thread */
	uint64_t stretch;           /* number of the stretch, from 1 */
	uint64_t n_rows, peak_rows; /* allocations so far, and up to the peak */
	int64_t now_ms;             /* time of the last "c" */
	struct counter_values counters;
	GArray *rss;      /* struct counter_rss by time */
	GArray *rss_last; /* double by counter: its last value */
	guint rss_next;
	double rss_bytes;
	GByteArray *has_process; /* by process: true if it allocated */
	unsigned n_processes;    /* number of processes that allocated */
};

/* ---- names ----------------------------------------------------------------------------------- */

/* Returns the index of a text; 0 for NULL. Writes a new text. */
static uint32_t string_at(struct heaptrack *heaptrack, const char *text)
{
	guint known = heaptrack->strings.all->len;
	uint32_t index = export_string(&heaptrack->strings, text);

	if (index >= known) {
		g_autofree char *escaped = text_escape_utf8(text, strlen(text));

		out_printf(heaptrack->out, "s %zx %s\n", strlen(escaped), escaped);
	}
	return index;
}

static const struct function *function_of(const struct heaptrack *heaptrack, uint32_t entity)
{
	return functions_at(heaptrack->tree.functions, entity);
}

/* Returns a node's chain. Recursion is not deep: few calls are inlined into a frame. */
static uint32_t chain_at(struct heaptrack *heaptrack, uint32_t node)
{
	const struct memory_node *at = memory_node_at(&heaptrack->tree, node);
	uint32_t outer = 0, chain;

	if (node == 0)
		return 0;
	if (GROWN_AT(heaptrack->nodes, struct place_of_node, node)->chain)
		return g_array_index(heaptrack->nodes, struct place_of_node, node).chain;
	if (function_of(heaptrack, at->function)->depth > 0)
		outer = chain_at(heaptrack, at->parent);
	chain = cct_child(heaptrack->chains, &heaptrack->chain_of, outer, at->function);
	g_array_index(heaptrack->nodes, struct place_of_node, node).chain = chain;
	return chain;
}

static void put_function(struct heaptrack *heaptrack, GString *line, uint32_t entity)
{
	const struct function *function = function_of(heaptrack, entity);

	g_string_append_printf(line, " %x", string_at(heaptrack, function->name));
	g_string_append_printf(line, " %x %x",
			       string_at(heaptrack, function->is_line ? function->file : NULL),
			       function->is_line ? function->line : 0);
}

static uint32_t pointer_at(struct heaptrack *heaptrack, uint32_t node)
{
	uint32_t first = chain_at(heaptrack, node);
	struct inline_chain *chain = &g_array_index(heaptrack->chains, struct inline_chain, first);
	const struct function *function = function_of(heaptrack, chain->entity);
	g_autoptr(GString) line = NULL;

	if (chain->written)
		return chain->written;
	line = g_string_new(NULL);
	for (uint32_t i = first; i;
	     i = g_array_index(heaptrack->chains, struct inline_chain, i).outer)
		put_function(heaptrack, line,
			     g_array_index(heaptrack->chains, struct inline_chain, i).entity);
	out_printf(heaptrack->out, "i %" PRIx64 " %x%s\n", function->offset,
		   string_at(heaptrack, functions_image(heaptrack->tree.functions, chain->entity)),
		   line->str);
	chain->written = ++heaptrack->n_pointers;
	return chain->written;
}

/* Returns the node of the frame that called a node's frame, or 0. */
static uint32_t caller_of(const struct heaptrack *heaptrack, uint32_t node)
{
	const struct memory_node *at = memory_node_at(&heaptrack->tree, node);

	while (at->parent && function_of(heaptrack, at->function)->depth > 0)
		at = memory_node_at(&heaptrack->tree, at->parent);
	return at->parent;
}

static uint32_t trace_at(struct heaptrack *heaptrack, uint32_t node)
{
	uint32_t trace = 0;

	g_array_set_size(heaptrack->path, 0);
	for (; node; node = caller_of(heaptrack, node)) {
		trace = GROWN_AT(heaptrack->nodes, struct place_of_node, node)->trace;
		if (trace)
			break;
		g_array_append_val(heaptrack->path, node);
	}
	for (guint i = heaptrack->path->len; i > 0; i--) {
		uint32_t at = g_array_index(heaptrack->path, uint32_t, i - 1);

		out_printf(heaptrack->out, "t %x %x\n", pointer_at(heaptrack, at), trace);
		trace = ++heaptrack->n_traces;
		g_array_index(heaptrack->nodes, struct place_of_node, at).trace = trace;
	}
	return trace;
}

/* ---- events ---------------------------------------------------------------------------------- */

static uint32_t add_kind(struct heaptrack *heaptrack, struct kind kind)
{
	out_printf(heaptrack->out, "a %" PRIx64 " %x\n", kind.size, kind.trace);
	g_array_append_val(heaptrack->kinds, kind);
	return heaptrack->kinds->len - 1;
}

static uint32_t kind_at(struct heaptrack *heaptrack, const struct memory_block *block)
{
	uint32_t trace = trace_at(heaptrack, memory_tree_caller(&heaptrack->tree, block->node));
	uint32_t *known = number_map_at(&heaptrack->size_of, block->size);
	struct kind kind = { block->size, trace, 0 };

	if (*known == 0)
		*known = ++heaptrack->n_sizes;
	known = number_map_at(&heaptrack->kind_of, (uint64_t)*known << 32 | trace);
	if (*known == 0) {
		if (heaptrack->kinds->len == 0)
			(void)add_kind(heaptrack, (struct kind){ 0, trace, 0 });
		*known = add_kind(heaptrack, kind);
	}
	return *known;
}

static void put_event(struct heaptrack *heaptrack, char event, uint32_t kind)
{
	char line[16], *at = line + sizeof(line);

	*--at = '\n';
	do
		*--at = "0123456789abcdef"[kind & 15];
	while (kind >>= 4);
	*--at = ' ';
	*--at = event;
	out_write(heaptrack->out, at, (size_t)(line + sizeof(line) - at));
}

static void put_free(struct heaptrack *heaptrack, uint32_t index, bool is_temporary)
{
	struct kind *kind = &g_array_index(heaptrack->kinds, struct kind, index);

	if (index == heaptrack->last && !is_temporary) {
		if (kind->twin == 0) {
			uint32_t twin = add_kind(heaptrack, *kind);

			kind = &g_array_index(heaptrack->kinds, struct kind, index);
			kind->twin = twin;
		}
		index = kind->twin;
	}
	put_event(heaptrack, '-', index);
	heaptrack->last = 0;
}

/* Writes the events of the stretch and starts the next one. */
static void put_rows(struct heaptrack *heaptrack)
{
	struct row *rows = (void *)heaptrack->rows->data;

	for (guint i = 0; i < heaptrack->rows->len; i++) {
		struct row *row = &rows[i],
			   *partner = row->partner ? &rows[row->partner - 1] : NULL;

		if (row->is_written)
			continue;
		if (row->is_free) {
			put_free(heaptrack, row->kind, row->is_temporary);
			continue;
		}
		put_event(heaptrack, '+', row->kind);
		heaptrack->last = row->kind;
		if (partner &&
		    !(row->rows < heaptrack->peak_rows && partner->rows >= heaptrack->peak_rows)) {
			put_free(heaptrack, row->kind, true);
			partner->is_written = true;
		}
	}
	g_array_set_size(heaptrack->rows, 0);
	heaptrack->stretch++;
}

static void put_rss(struct heaptrack *heaptrack, int64_t until_ns)
{
	for (; heaptrack->rss_next < heaptrack->rss->len; heaptrack->rss_next++) {
		const struct counter_rss *rss =
			&g_array_index(heaptrack->rss, struct counter_rss, heaptrack->rss_next);
		double *last = GROWN_AT(heaptrack->rss_last, double, rss->counter);

		if (rss->time_ns > until_ns)
			break;
		heaptrack->rss_bytes += rss->bytes - *last;
		*last = rss->bytes;
		out_printf(heaptrack->out, "R %" PRIx64 "\n",
			   (uint64_t)MAX_OF(heaptrack->rss_bytes / PAGE_BYTES, 0.0));
	}
}

static void advance(struct heaptrack *heaptrack, int64_t time_ns)
{
	int64_t ms = time_ns / 1000000;

	if (ms <= heaptrack->now_ms)
		return;
	put_rows(heaptrack);
	put_rss(heaptrack, time_ns);
	heaptrack->now_ms = ms;
	out_printf(heaptrack->out, "c %" PRIx64 "\n", (uint64_t)ms);
}

static void add_allocation(struct heaptrack *heaptrack, const struct memory_live *live,
			   bool is_counted)
{
	uint32_t process = memory_heap_at(&heaptrack->heaps, live->heap)->process;
	struct row row = { .kind = kind_at(heaptrack, &live->block) };

	row.rows = heaptrack->n_rows += is_counted;
	g_array_append_val(heaptrack->rows, row);
	*GROWN_AT(heaptrack->last_rows, struct last_row, live->block.thread) =
		(struct last_row){ heaptrack->stretch, heaptrack->rows->len };
	if (heaptrack->rows->len == MOST_ROWS)
		put_rows(heaptrack);
	if (!*memory_byte_at(heaptrack->has_process, process))
		heaptrack->n_processes++;
	*memory_byte_at(heaptrack->has_process, process) = true;
}

static void loaded(const struct memory_live *live, void *data)
{
	struct heaptrack *heaptrack = data;

	advance(heaptrack, heaptrack->export->reader.from_ns);
	add_allocation(heaptrack, live, false);
}

static void allocated(const struct memory_event *event, const struct memory_live *live, void *data)
{
	advance(data, event->time_ns);
	add_allocation(data, live, event->is_counted);
}

static void released(const struct memory_event *event, const struct memory_live *live,
		     enum memory_release how, void *data)
{
	struct heaptrack *heaptrack = data;
	struct row row = { .kind = kind_at(heaptrack, &live->block), .is_free = true };
	const struct last_row *last;

	advance(heaptrack, event->time_ns);
	row.rows = heaptrack->n_rows;
	row.is_temporary = how == MEMORY_FREED && event->thread == live->block.thread &&
			   event->others == 0;
	g_array_append_val(heaptrack->rows, row);
	last = GROWN_AT(heaptrack->last_rows, struct last_row, live->block.thread);
	if (row.is_temporary && last->stretch == heaptrack->stretch)
		g_array_index(heaptrack->rows, struct row, last->row - 1).partner =
			heaptrack->rows->len;
	if (heaptrack->rows->len == MOST_ROWS)
		put_rows(heaptrack);
}

/* ---- the file -------------------------------------------------------------------------------- */

/* Fails if several processes allocated. A process that executed another program counts once,
 * because it keeps its pid. */
static bool check_processes(const struct heaptrack *heaptrack, GError **error)
{
	const struct names *names = heaptrack->export->reader.capture->names;
	g_autoptr(GHashTable) pids = g_hash_table_new(NULL, NULL);
	g_autoptr(GString) list = g_string_new(NULL);

	for (guint i = 0; i < heaptrack->has_process->len; i++) {
		const struct names_process *process;

		if (!heaptrack->has_process->data[i])
			continue;
		process = names_process_at(names, i);
		if (!g_hash_table_add(pids, GSIZE_TO_POINTER(process->pid)))
			continue;
		if (g_hash_table_size(pids) <= MOST_PIDS)
			g_string_append_printf(list, "%s%" PRIu64, list->len ? ", " : "",
					       process->pid);
	}
	if (g_hash_table_size(pids) > MOST_PIDS)
		g_string_append(list, ", ...");
	if (g_hash_table_size(pids) > 1)
		return cli_set_error(
			error, CLI_USAGE,
			_("heaptrack's format has one process, but %u allocated: --pid selects one of %s"),
			g_hash_table_size(pids), list->str);
	if (heaptrack->n_processes > 1)
		cli_warning(
			"%s",
			_("the process executed another program: blocks that the first one had not freed count until the end"));
	return true;
}

static bool put_all(struct heaptrack *heaptrack, GError **error)
{
	static const struct memory_ops ops = { .loaded = loaded,
					       .allocated = allocated,
					       .released = released };
	const struct reader *reader = &heaptrack->export->reader;
	struct memory_replay replay = {
		.ops = &ops, .data = heaptrack, .wants_more = true, .wants_nodes = true
	};
	g_autofree char *title = export_title(heaptrack->export);

	if (memory_most_setting(reader->capture, MEMORY_SAMPLE_BYTES, &(bool){ false }) > 0)
		return cli_set_error(
			error, CLI_FAILURE, "%s",
			_("heaptrack's format needs every allocation, and this capture has samples of them. Use --to massif or --to pprof"));
	heaptrack->rss = counter_values_read_rss(&heaptrack->counters, reader, error);
	if (!heaptrack->rss)
		return false;
	g_array_sort(heaptrack->rss, counter_rss_compare);
	out_printf(heaptrack->out, "v 10400 3\nX %s\nI %x 0\n# profcapture " PROF_VERSION "\n",
		   title, PAGE_BYTES);
	if (reader->capture->lost)
		out_printf(heaptrack->out, "# lost: %" PRIu64 " records\n", reader->capture->lost);
	if (!allocations_find_peak(heaptrack->export, &heaptrack->heaps, true,
				   &heaptrack->peak_rows, error) ||
	    !allocations_replay(heaptrack->export, &heaptrack->heaps, &replay, error))
		return false;
	put_rows(heaptrack);
	advance(heaptrack, MIN_OF(reader->to_ns, reader->capture->duration_ns));
	return check_processes(heaptrack, error);
}

bool export_heaptrack(struct export *export, struct out *out, GError **error)
{
	struct heaptrack heaptrack = {
		.export = export,
		.out = out,
		.chains = g_array_new(FALSE, TRUE, sizeof(struct inline_chain)),
		.nodes = g_array_new(FALSE, TRUE, sizeof(struct place_of_node)),
		.path = g_array_new(FALSE, FALSE, sizeof(uint32_t)),
		.kinds = g_array_new(FALSE, FALSE, sizeof(struct kind)),
		.rows = g_array_new(FALSE, FALSE, sizeof(struct row)),
		.last_rows = g_array_new(FALSE, TRUE, sizeof(struct last_row)),
		.rss_last = g_array_new(FALSE, TRUE, sizeof(double)),
		.counters.capture = export->reader.capture,
		.has_process = g_byte_array_new(),
		.stretch = 1,
	};
	bool ok;

	export_strings_init(&heaptrack.strings);
	(void)export_string(&heaptrack.strings, NULL);
	g_array_set_size(heaptrack.chains, 1);
	number_map_init(&heaptrack.chain_of);
	number_map_init(&heaptrack.size_of);
	number_map_init(&heaptrack.kind_of);
	ok = allocations_open(export, &heaptrack.tree, &heaptrack.heaps, error) &&
	     put_all(&heaptrack, error);
	memory_heaps_done(&heaptrack.heaps);
	memory_tree_done(&heaptrack.tree);
	counter_values_done(&heaptrack.counters);
	number_map_done(&heaptrack.chain_of);
	number_map_done(&heaptrack.size_of);
	number_map_done(&heaptrack.kind_of);
	export_strings_done(&heaptrack.strings);
	g_byte_array_unref(heaptrack.has_process);
	g_array_unref(heaptrack.chains);
	g_array_unref(heaptrack.nodes);
	g_array_unref(heaptrack.path);
	g_array_unref(heaptrack.kinds);
	g_array_unref(heaptrack.rows);
	g_array_unref(heaptrack.last_rows);
	g_clear_pointer(&heaptrack.rss, g_array_unref);
	g_array_unref(heaptrack.rss_last);
	return ok;
}
