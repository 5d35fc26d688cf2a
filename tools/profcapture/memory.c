/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * profcapture memory - allocations, leaks, and the heap's peak
 *
 * Bytes are the requested sizes. A block is leaked if it was not freed before its process or the
 * recording ended. A block is live if it was not freed before the end of the range. A block is
 * temporary if the thread that allocated it freed it before making more than --threshold other
 * allocations; with --within, if it was freed within that time.
 */
#include "config.h"

#include "tools/profcapture/memory.h"

#include "tools/profcapture/verbs.h"

#include <glib/gi18n.h>
#include <string.h>

#define DEFAULT_LIMIT 20
#define TIMELINE_LIMIT 10
#define STACKS_LIMIT 100
#define THRESHOLD_UNSET UINT64_MAX

const char *const memory_call_names[MEMORY_CALLS] = {
	[PROF_ALLOC_MALLOC] = "malloc",
	[PROF_ALLOC_CALLOC] = "calloc",
	[PROF_ALLOC_REALLOC] = "realloc",
	[PROF_ALLOC_REALLOCARRAY] = "reallocarray",
	[PROF_ALLOC_POSIX_MEMALIGN] = "posix_memalign",
	[PROF_ALLOC_ALIGNED_ALLOC] = "aligned_alloc",
	[PROF_ALLOC_MEMALIGN] = "memalign",
	[PROF_ALLOC_VALLOC] = "valloc",
	[PROF_ALLOC_PVALLOC] = "pvalloc",
	[PROF_ALLOC_NEW] = "new",
	[PROF_ALLOC_MMAP] = "mmap",
	[PROF_ALLOC_MREMAP] = "mremap",
	[PROF_ALLOC_BRK] = "brk",
	[MEMORY_CALL_FREE + PROF_FREE_FREE] = "free",
	[MEMORY_CALL_FREE + PROF_FREE_CFREE] = "cfree",
	[MEMORY_CALL_FREE + PROF_FREE_FREE_SIZED] = "free_sized",
	[MEMORY_CALL_FREE + PROF_FREE_FREE_ALIGNED_SIZED] = "free_aligned_sized",
	[MEMORY_CALL_FREE + PROF_FREE_DELETE] = "delete",
	[MEMORY_CALL_FREE + PROF_FREE_MUNMAP] = "munmap",
	[MEMORY_CALL_FREE_NULL] = "free_null",
};

const char *const memory_tables[] = { "alloc", "free", "heap", "live", NULL };

#define FLAG(name, field, help)                                               \
	{                                                                     \
		name, 0, CLI_FLAG, offsetof(struct memory, field), NULL, help \
	}

static const struct cli_option options[] = {
	FLAG("leaks", views[MEMORY_LEAKS], N_("Show allocations not freed at exit, with stacks")),
	FLAG("temporary", views[MEMORY_TEMPORARY], N_("Show allocations freed almost at once")),
	FLAG("peak", views[MEMORY_PEAK], N_("Show allocations live at the heap's peak")),
	{ "at", 0, CLI_TIME, offsetof(struct memory, at), N_("TIME"),
	  N_("Show allocations live at TIME") },
	{ "diff", 0, CLI_RANGE, offsetof(struct memory, diff), N_("T1 T2"),
	  N_("Show what grew or shrank from T1 to T2") },
	FLAG("sizes", views[MEMORY_SIZES], N_("Show the distribution by size")),
	FLAG("lifetimes", views[MEMORY_LIFETIMES], N_("Show the distribution by lifetime")),
	FLAG("threads", views[MEMORY_THREADS], N_("Show allocations by thread")),
	FLAG("cross-thread", views[MEMORY_CROSS_THREAD],
	     N_("Show blocks freed by a thread that did not allocate them")),
	FLAG("reallocs", views[MEMORY_REALLOCS], N_("Show chains of reallocations")),
	FLAG("timeline", views[MEMORY_TIMELINE], N_("Show the live heap over time")),
	FLAG("tree", is_tree, N_("Show the call tree, callers first")),
	FLAG("inverted", is_inverted, N_("Show the call tree, allocating functions first")),
	FLAG("by-blocks", by_blocks, N_("Sort by blocks (default: bytes)")),
	FLAG("full-names", full_names, N_("Do not shorten names")),
	FLAG("no-fold", no_fold,
	     N_("Show every frame in trees (default: fold runs of library frames, and chains of single callees)")),
	FLAG("no-inline", no_inline, N_("Attribute inlined functions to their callers")),
	FLAG("inline", wants_inline,
	     N_("Count inlined functions separately from their callers (default)")),
	{ "through", 0, CLI_LIST, offsetof(struct memory, through), N_("PATTERN"),
	  N_("Attribute allocations in functions that match PATTERN to their callers, as is always done for C++'s new") },
	{ "suppressions", 0, CLI_LIST, offsetof(struct memory, suppression_files), N_("FILE"),
	  N_("Hide leaks that match a line leak:PATTERN of FILE") },
	FLAG("no-suppressions", no_suppressions,
	     N_("Also show leaks that are hidden by default: memory that language runtimes never free")),
	{ "threshold", 0, CLI_UINT, offsetof(struct memory, threshold), "N",
	  N_("With --temporary: show blocks freed before their thread made more than N other allocations (default: 1)"),
	  NULL, 0, UINT32_MAX / 4 },
	{ "within", 0, CLI_DURATION, offsetof(struct memory, within_ns), N_("DURATION"),
	  N_("With --temporary: show blocks freed within DURATION") },
	{ NULL },
};

/* ---- options --------------------------------------------------------------------------------- */

static int choose_view(struct memory *memory)
{
	memory->views[MEMORY_AT] = memory->at.kind != UNITS_TIME_UNSET;
	memory->views[MEMORY_DIFF] = memory->diff.from.kind != UNITS_TIME_UNSET ||
				     memory->diff.to.kind != UNITS_TIME_UNSET;
	for (unsigned i = 0; i < MEMORY_VIEWS; i++) {
		if (!memory->views[i])
			continue;
		if (memory->view != MEMORY_SUMMARY)
			return cli_usage_error(_("--%s cannot be combined with --%s"),
					       memory_queries[i].name,
					       memory_query_of(memory)->name);
		memory->view = (enum memory_view)i;
	}
	return CLI_CONTINUE;
}

/* Refuses options that have no effect in the view. */
static int refuse_without_effect(const struct memory *memory)
{
	enum memory_filter filter = memory_query_of(memory)->filter;
	enum memory_key key = memory_query_of(memory)->key;
	bool has_leaks = memory_reads_all(memory) || filter == MEMORY_NOT_FREED;
	bool is_ordered = key == MEMORY_BY_SIZE || key == MEMORY_BY_LIFETIME ||
			  key == MEMORY_BY_TIME;
	const struct {
		const char *name;
		bool is_refused;
	} given[] = {
		{ "suppressions", !has_leaks && memory->suppression_files },
		{ "no-suppressions", !has_leaks && memory->no_suppressions },
		{ "threshold", !memory_reads_all(memory) && memory->threshold != THRESHOLD_UNSET },
		{ "within", !memory_reads_all(memory) && memory->within_ns != UINT64_MAX },
		{ "by-blocks", is_ordered && memory->by_blocks },
	};

	for (size_t i = 0; i < ARRAY_SIZE(given); i++)
		if (given[i].is_refused)
			return cli_usage_error(_("--%s cannot be combined with --%s"),
					       given[i].name, memory_query_of(memory)->name);
	return CLI_CONTINUE;
}

static int check_options(struct memory *memory)
{
	int status = choose_view(memory);
	int format = memory->reader.json ? READER_JSON : memory->reader.format;

	if (status != CLI_CONTINUE)
		return status;
	if (memory_query_of(memory)->filter == MEMORY_LIVE_SINCE &&
	    (memory->diff.from.kind == UNITS_TIME_UNSET ||
	     memory->diff.to.kind == UNITS_TIME_UNSET))
		return cli_usage_error(_("--diff takes two times: --diff T1 T2, or T1..T2"));
	if (memory->is_tree && !memory_by_function(memory) &&
	    memory_query_of(memory)->filter != MEMORY_FREED_ELSEWHERE)
		return cli_usage_error(_("--%s cannot be combined with --%s"),
				       memory->is_inverted ? "inverted" : "tree",
				       memory_query_of(memory)->name);
	if (memory->is_tree && (format == READER_NDJSON || format == READER_CSV))
		return cli_usage_error(_("--tree is printed as text or json"));
	if ((memory_query_of(memory)->filter == MEMORY_LIVE_AT_TIME ||
	     memory_query_of(memory)->filter == MEMORY_LIVE_SINCE) &&
	    (memory->reader.range.from.kind != UNITS_TIME_UNSET ||
	     memory->reader.range.to.kind != UNITS_TIME_UNSET))
		return cli_usage_error(_("--from and --to do not go with --%s"),
				       memory_query_of(memory)->name);
	status = refuse_without_effect(memory);
	if (memory->threshold == THRESHOLD_UNSET)
		memory->threshold = MEMORY_THRESHOLD;
	return status;
}

/* Replaces "--diff T1 T2" with "--diff T1..T2", which is one value. */
static char **join_times(int *argc, char **argv)
{
	GPtrArray *words = g_ptr_array_new();

	for (int i = 0; i < *argc; i++) {
		struct units_time time;

		g_ptr_array_add(words, argv[i]);
		if (strcmp(argv[i], "--") == 0) {
			while (++i < *argc)
				g_ptr_array_add(words, argv[i]);
		} else if (strcmp(argv[i], "--diff") == 0 && i + 2 < *argc &&
			   !strstr(argv[i + 1], "..") &&
			   units_parse_time(argv[i + 1], &time, NULL) &&
			   units_parse_time(argv[i + 2], &time, NULL)) {
			char *joined = g_strconcat(argv[i + 1], "..", argv[i + 2], NULL);

			g_ptr_array_add(words, (char *)g_intern_string(joined));
			g_free(joined);
			i += 2;
		}
	}
	*argc = (int)words->len;
	g_ptr_array_add(words, NULL);
	return (char **)g_ptr_array_free(words, FALSE);
}

/* ---- arguments ------------------------------------------------------------------------------- */

static bool resolve_times(struct memory *memory, GError **error)
{
	struct reader *reader = &memory->reader;
	bool is_diff = memory_query_of(memory)->filter == MEMORY_LIVE_SINCE;
	const struct units_time *at = is_diff ? &memory->diff.to : &memory->at;
	g_autofree char *before = NULL, *then = NULL;

	if (!reader_resolve_time(reader, at, is_diff, 0, &memory->at_ns, error) ||
	    !reader_resolve_time(reader, &memory->diff.from, false, 0, &memory->before_ns, error))
		return false;
	if (!is_diff || memory->before_ns <= memory->at_ns)
		return at->kind == UNITS_TIME_UNSET ||
		       reader_check_start(reader, is_diff ? memory->before_ns : memory->at_ns,
					  error);
	before = text_seconds(memory->before_ns);
	then = text_seconds(memory->at_ns);
	return cli_set_error(error, CLI_USAGE, _("--diff: %s s is after %s s"), before, then);
}

/* ---- missing rows ---------------------------------------------------------------------------- */

struct reader memory_loss_reader(const struct memory *memory)
{
	struct reader reader = memory->reader;

	enum memory_filter filter = memory_query_of(memory)->filter;

	if (filter == MEMORY_LIVE_AT_TIME || filter == MEMORY_LIVE_SINCE)
		reader.to_ns = memory->at_ns;
	else if (filter != MEMORY_LIVE_AT_PEAK && filter != MEMORY_LIVE)
		reader.to_ns = INT64_MAX;
	if (filter != MEMORY_NOT_FREED)
		reader.from_ns = INT64_MIN;
	return reader;
}

struct table_end {
	const struct capture *capture;
	int64_t time_ns;
};

static bool find_end(const struct prof_chunk *chunk, void *data, GError **error)
{
	struct table_end *end = data;

	end->time_ns =
		MAX_OF(end->time_ns, capture_time(end->capture, chunk->segment, chunk->t_max));
	return true;
}

/* Adds to memory->lost the rows that were cut off at the end of the file, which are the last rows
 * of their table. */
static bool add_cut_rows(struct memory *memory, const struct reader *reader, GError **error)
{
	const struct capture *capture = reader->capture;
	size_t n;
	const struct prof_damage *damage = prof_reader_damage(capture->reader, &n);

	for (size_t i = 0; i < n; i++) {
		const struct prof_table_def *table =
			prof_reader_table(capture->reader, damage[i].table);
		struct table_end end = { .capture = capture, .time_ns = INT64_MIN };

		if (damage[i].reason != PROF_DAMAGE_CUT || damage[i].rows == UINT64_MAX || !table ||
		    !g_strv_contains(memory_tables, table->name))
			continue;
		if (!capture_each_chunk(capture, table->id, find_end, &end, error))
			return false;
		if (end.time_ns <= reader->to_ns)
			memory->lost += damage[i].rows;
	}
	return true;
}

static bool find_losses(struct memory *memory, GError **error)
{
	const struct reader reader = memory_loss_reader(memory);

	memory->lost = reader_lost_rows(&reader, memory_tables, NULL);
	if (!add_cut_rows(memory, &reader, error))
		return false;
	memory->is_incomplete = memory->lost > 0;
	for (size_t i = 0; memory_tables[i]; i++)
		memory->is_incomplete |= reader_misses_rows(&reader, memory_tables[i]);
	return true;
}

/* Fails if the capture was recorded without allocations, because zeros would then be wrong. */
static bool check_recorded(const struct memory *memory, GError **error)
{
	static const unsigned tables[] = { PROF_TABLE_HEAP, PROF_TABLE_ALLOC, PROF_TABLE_FREE,
					   PROF_TABLE_LIVE };
	const struct capture *capture = memory->reader.capture;
	bool has_rows = false;
	g_autofree char *command = capture_command(capture, 0);

	for (size_t i = 0; i < ARRAY_SIZE(tables) && !has_rows; i++)
		if (!reader_has_rows(&memory->reader, tables[i], &has_rows, error))
			return false;
	if (has_rows)
		return true;
	capture_warn(memory->reader.capture);
	return cli_set_error(
		error, CLI_NOTHING_CAPTURED,
		_("capture '%s' has no allocations. Record them: profctl record --memory -- %s"),
		capture->file, *command ? command : "COMMAND");
}

/* ---- the verb -------------------------------------------------------------------------------- */

#define ARRAY(field, type)                                   \
	{                                                    \
		offsetof(struct memory, field), sizeof(type) \
	}
static const struct {
	size_t at, size;
} arrays[] = {
	ARRAY(entities, struct memory_counts), ARRAY(processes, struct memory_counts),
	ARRAY(about, struct memory_about),     ARRAY(pairs, struct memory_pair),
	ARRAY(sums, struct memory_sum),        ARRAY(lines, struct memory_line),
	ARRAY(points, struct memory_point),    ARRAY(warnings, struct memory_warning),
};

static GArray **array_at(struct memory *memory, size_t i)
{
	return (GArray **)(void *)((char *)memory + arrays[i].at);
}

bool memory_run(struct memory *memory, const char *file, GError **error)
{
	struct reader *reader = &memory->reader;
	const struct memory_query *query = memory_query_of(memory);

	/* A whole tree is rarely useful, in any format. */
	if (memory->is_tree && reader->limit == READER_LIMIT_UNSET)
		reader->limit = DEFAULT_LIMIT;
	else if (memory->is_tree)
		memory->tree_lines = reader->limit;
	/* These views have few rows, and none may be omitted. */
	if (query->key == MEMORY_BY_SIZE || query->key == MEMORY_BY_LIFETIME)
		reader->text_limit = 0;
	else if (query->key == MEMORY_BY_TIME)
		reader->text_limit = TIMELINE_LIMIT;
	/* Stacks take many lines, so they have a default limit in every format. */
	memory->most_stacks = reader->limit == READER_LIMIT_UNSET ? STACKS_LIMIT : reader->limit;
	if ((!reader->capture && !reader_open(reader, file, error)) ||
	    !check_recorded(memory, error) || !resolve_times(memory, error))
		return false;
	for (guint i = 0; memory->suppression_files && i < memory->suppression_files->len; i++)
		if (!suppressions_read(&memory->suppressions, memory->suppression_files->pdata[i],
				       error))
			return false;
	memory->sampled_bytes = (double)memory_most_setting(reader->capture, MEMORY_SAMPLE_BYTES,
							    &memory->is_sampled_alike);
	for (size_t i = 0; i < ARRAY_SIZE(arrays); i++)
		*array_at(memory, i) = g_array_new(FALSE, TRUE, arrays[i].size);
	memory->texts = g_ptr_array_new_with_free_func(g_free);
	memory->stacks = memory_stacks_new();
	if (!memory_tree_init(&memory->tree, reader, memory->through, error))
		return false;
	memory->tree.by_caller = memory->by_caller;
	memory->tree.functions->inlined = memory->inlined;
	memory->tree.functions->joins_inlined = memory->inlined;
	/* In a tree, lines would split the nodes of a function. */
	if (!memory->is_tree && (memory->by_caller || query->filter == MEMORY_NOT_FREED))
		memory->tree.functions->detail = FUNCTIONS_PLACES;
	if (!memory_heaps_init(&memory->heaps, &memory->tree, error))
		return false;
	/* List each process with a heap or with a reason for having none, even if it allocated
	 * nothing. */
	for (uint32_t i = 0; i < memory->heaps.heaps->len; i++)
		if (memory_heaps_wants(&memory->heaps, i))
			(void)memory_counts_of(memory->processes,
					       memory_heap_at(&memory->heaps, i)->process);
	if (!memory_find(memory, error) || !memory_read_warnings(memory, error) ||
	    !find_losses(memory, error))
		return false;
	memory_describe(memory);
	memory_list(memory);
	return true;
}

void memory_done(struct memory *memory)
{
	json_done(&memory->json);
	for (size_t i = 0; i < ARRAY_SIZE(arrays); i++)
		g_clear_pointer(array_at(memory, i), g_array_unref);
	g_clear_pointer(&memory->stacks, g_array_unref);
	g_clear_pointer(&memory->before, g_array_unref);
	g_clear_pointer(&memory->texts, g_ptr_array_unref);
	g_clear_pointer(&memory->through, g_ptr_array_unref);
	g_clear_pointer(&memory->suppression_files, g_ptr_array_unref);
	suppressions_done(&memory->suppressions);
	memory_heaps_done(&memory->heaps);
	memory_tree_done(&memory->tree);
	reader_done(&memory->reader);
}

int verb_memory(int argc, char **argv)
{
	static const struct cli_spec spec = {
		N_("FILE"),
		N_("Show what was allocated, what was not freed and when the heap was largest."), 1,
		1
	};
	CLEANUP(memory_done)
	struct memory memory = { .reader = READER_TEXT_ROWS(DEFAULT_LIMIT),
				 .threshold = THRESHOLD_UNSET,
				 .within_ns = UINT64_MAX };
	const struct cli_group groups[] = { { N_("Views"), options, &memory },
					    READER_SELECT(N_("Select"), &memory.reader),
					    { NULL, reader_interpreter_options, &memory.reader },
					    { N_("Output"), reader_output_options, &memory.reader },
					    { NULL } };
	g_autofree char **words = join_times(&argc, argv);
	GError *error = NULL;
	int status;

	argv = words;
	status = cli_parse(&spec, groups, &argc, &argv);
	memory.is_tree |= memory.is_inverted;
	memory.inlined = !memory.no_inline;
	json_init(&memory.json, out_stdout());
	if (status == CLI_CONTINUE)
		status = check_options(&memory);
	memory.hides_runtime = !memory.reader.json && memory.reader.format == READER_TEXT;
	memory.by_caller = memory.hides_runtime && memory_by_function(&memory) && !memory.is_tree;
	if (status != CLI_CONTINUE)
		return status;
	if (!memory_run(&memory, argv[0], &error))
		return cli_fail(error);
	capture_warn(memory.reader.capture);
	if (memory.reader.format == READER_TEXT)
		memory_print(&memory, out_stdout());
	else
		memory_write(&memory);
	return CLI_OK;
}
