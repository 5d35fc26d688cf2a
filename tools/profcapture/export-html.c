/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Export-html - the report as one page for a browser (data/report)
 *
 * The page consists of rows, which its script adds up (html-rows.h), and of a header: the verdict,
 * what was recorded, and the names of everything that rows refer to by number.
 */
#include "config.h"

#include "base/each.h"
#include "base/order.h"
#include "tools/profcapture/capture-losses.h"
#include "tools/profcapture/critical-path.h"
#include "tools/profcapture/diff.h"
#include "tools/profcapture/export-allocations.h"
#include "tools/profcapture/html-selection.h"
#include "tools/profcapture/html-sources.h"
#include "tools/profcapture/memory-heaps.h"
#include "tools/profcapture/summary.h"
#include "tools/profile/function-labels.h"

#include <glib/gi18n.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#define MOST_LOSSES 2000u

struct html {
	struct export *export;
	struct html_rows rows;
	struct json json;
};

/* ---- names ----------------------------------------------------------------------------------- */

static void write_functions(struct html *html)
{
	const struct html_sides *sides = &html->rows.sides;
	const GArray *list = html->rows.functions.all;
	struct function_labels *labels[HTML_SIDES] = { 0 };
	struct export_strings images;
	const struct html_side *side;
	uint32_t index;

	export_strings_init(&images);
	for (unsigned i = 0; i < sides->n; i++)
		labels[i] = function_labels_new(sides->each[i].export->profile.functions, false);
	for (guint i = 0; i < list->len; i++) {
		side = html_function_side(sides, g_array_index(list, uint32_t, i), &index);
		if (side)
			function_labels_add(labels[side - sides->each], index);
	}
	json_begin_array(&html->json, "functions");
	for (guint i = 0; i < list->len; i++) {
		static const struct function interrupts = { .name = DIFF_INTERRUPTS,
							    .kind = "kernel" };
		uint32_t number = g_array_index(list, uint32_t, i);
		const struct function *function = &interrupts;
		const char *image = DIFF_KERNEL, *file = NULL;
		enum code_origin origin = CODE_ORIGIN_KERNEL;
		g_autofree char *name = NULL;

		side = html_function_side(sides, number, &index);
		if (side) {
			const struct functions *functions = side->export->profile.functions;

			function = functions_at(functions, index);
			name = g_hash_table_contains(sides->unnamed, GUINT_TO_POINTER(number))
				       ? g_strdup(DIFF_NO_NAME)
				       : function_labels_name(labels[side - sides->each], index);
			image = names_image_at(functions->names, function->image)->path;
			file = function->file ? function->file : function->code_file;
			origin = index > FUNCTION_LOST ? code_origin_of(functions, index)
						       : CODE_ORIGIN_UNKNOWN;
		}
		json_begin_object(&html->json, NULL);
		json_string(&html->json, "name", name ? name : function->name);
		if (name && strcmp(name, function->name) != 0 && strcmp(name, DIFF_NO_NAME) != 0)
			json_string(&html->json, "full", function->name);
		json_string(&html->json, "kind", function->kind);
		json_uint(&html->json, "origin", origin);
		json_uint(&html->json, "image", export_string(&images, image));
		if (file)
			json_string(&html->json, "file", file);
		if (file && function->line)
			json_uint(&html->json, "line", function->line);
		if (function->is_inlined)
			json_bool(&html->json, "inlined", true);
		json_end(&html->json);
	}
	json_end(&html->json);
	json_begin_array(&html->json, "images");
	for (guint i = 0; i < images.all->len; i++)
		json_string(&html->json, NULL, images.all->pdata[i]);
	json_end(&html->json);
	for (unsigned i = 0; i < sides->n; i++)
		function_labels_free(labels[i]);
	export_strings_done(&images);
}

static void write_threads(struct html *html)
{
	const struct html_sides *sides = &html->rows.sides;
	const GArray *list = html->rows.threads.all;
	/* the later side's processes are numbered after the first side's */
	struct html_keys processes;
	uint32_t first = sides->each[HTML_FIRST].export->reader.capture->names->processes->len;

	html_keys_init(&processes);
	json_begin_array(&html->json, "threads");
	for (guint i = 0; i < list->len; i++) {
		uint32_t index;
		const struct html_side *side =
			html_thread_side(sides, g_array_index(list, uint32_t, i), &index);
		const struct names_thread *thread =
			names_thread_at(side->export->reader.capture->names, index);
		uint32_t process = thread->process + (side == sides->each ? 0 : first);

		json_begin_object(&html->json, NULL);
		json_string(&html->json, "name", export_thread_name(side->export, index));
		json_uint(&html->json, "tid", thread->tid);
		json_uint(&html->json, "process", html_index(&processes, process));
		if (side != sides->each)
			json_bool(&html->json, "is_later", true);
		json_end(&html->json);
	}
	json_end(&html->json);
	json_begin_array(&html->json, "processes");
	for (guint i = 0; i < processes.all->len; i++) {
		uint32_t index = g_array_index(processes.all, uint32_t, i);
		const struct html_side *side = &sides->each[sides->n > 1 && index >= first];
		const struct names_process *process =
			names_process_at(side->export->reader.capture->names,
					 side == sides->each ? index : index - first);

		json_begin_object(&html->json, NULL);
		json_uint(&html->json, "pid", process->pid);
		json_end(&html->json);
	}
	json_end(&html->json);
	html_keys_done(&processes);
}

/* ---- the capture ----------------------------------------------------------------------------- */

static void write_fact(struct json *json, const char *title, const char *text)
{
	if (!text)
		return;
	json_begin_array(json, NULL);
	json_string(json, NULL, title);
	json_string(json, NULL, text);
	json_end(json);
}

static void write_losses(struct html *html, const struct html_side *side)
{
	const GArray *losses = side->export->reader.capture->losses;
	guint shown = MIN_OF(losses->len, export_most(side->export, MOST_LOSSES));

	if (shown < losses->len)
		g_ptr_array_add(
			html->rows.notes,
			g_strdup_printf(
				_("Of %u losses, the first %u are here; 'profcapture info' lists all."),
				losses->len, shown));
	for (guint i = 0; i < shown; i++) {
		const struct capture_loss *loss = &g_array_index(losses, struct capture_loss, i);
		g_autofree char *count = loss->count ? text_count(loss->count)
						     : g_strdup(_("an unknown number"));
		g_autofree char *share = text_percent(
			capture_lost_percent(side->export->reader.capture, loss->count), true);
		const char *stream = loss->stream ? loss->stream : "-";
		bool is_tick = strcmp(loss->cause, "ticks-missed") == 0;
		g_autofree char *span = capture_describe_span(loss->from_ns, loss->to_ns);
		g_autofree char *text =
			is_tick ? g_strdup_printf(_("%s: %s timer ticks were never reported by the "
						    "kernel, %s."),
						  stream, count, span)
			: loss->count ? g_strdup_printf(_("%s: %s lost (%s %% of all), %s (%s)."),
							stream, count, share, span, loss->cause)
				      : g_strdup_printf(_("%s: %s lost, %s (%s)."), stream, count,
							span, loss->cause);
		g_autofree char *whose =
			html->rows.sides.n > 1
				? g_strdup_printf("%s: %s",
						  side == html->rows.sides.each ? "A" : "B", text)
				: NULL;

		json_begin_object(&html->json, NULL);
		json_bool(&html->json, "is_tick", is_tick);
		json_uint(&html->json, "count", loss->count);
		json_int(&html->json, "from_ns", side->from_ns + loss->from_ns);
		json_int(&html->json, "to_ns", side->from_ns + loss->to_ns);
		json_string(&html->json, "text", whose ? whose : text);
		json_end(&html->json);
	}
}

static char *summary_of(const struct export *export)
{
	const struct capture *capture = export->reader.capture;
	const char *host = capture_metadata(capture, "host");
	g_autofree char *duration =
		text_duration((uint64_t)MAX_OF(capture->duration_ns, INT64_C(0)));
	g_autofree char *count = text_count(export->profile.all.samples);

	return g_strdup_printf(_("%s%s%s · %s samples of %s"), duration, host ? _(" on ") : "",
			       host ? host : "", count, profile_event_name(&export->profile));
}

/* Writes what identifies each side of a comparison, and how they are compared. */
static void write_sides(struct html *html)
{
	const struct html_sides *sides = &html->rows.sides;

	if (sides->n < 2)
		return;
	json_begin_object(&html->json, "compare");
	json_double(&html->json, "scale", html_sides_scale(sides));
	json_double(&html->json, "wait_scale", html_sides_wait_scale(sides));
	json_bool(&html->json, "is_by_run", html_sides_are_runs(sides));
	json_begin_array(&html->json, "sides");
	for (unsigned i = 0; i < sides->n; i++) {
		const struct capture *capture = sides->each[i].export->reader.capture;
		g_autofree char *word = text_shell_file(
			names_intern(capture->names, capture->file, strlen(capture->file)));
		g_autofree char *name = g_path_get_basename(capture->file);

		json_begin_object(&html->json, NULL);
		json_string(&html->json, "name", name);
		json_string(&html->json, "file_word", word);
		json_int(&html->json, "from_ns", sides->each[i].from_ns);
		json_int(&html->json, "to_ns", sides->each[i].to_ns);
		json_string(&html->json, "state", capture_state_name(capture));
		json_end(&html->json);
	}
	json_end(&html->json);
	json_end(&html->json);
}

static void write_capture(struct html *html)
{
	static const struct {
		const char *key, *title;
	} facts[] = {
		{ "host", N_("Host") },         { "kernel", N_("Kernel") },
		{ "arch", N_("Architecture") }, { "cpus", N_("CPUs") },
		{ "call_graph", N_("Stacks") }, { "options", N_("Options") },
	};
	const struct html_sides *sides = &html->rows.sides;
	const struct export *last = sides->each[sides->n - 1].export;
	const struct capture *capture = last->reader.capture;
	g_autofree char *title = export_title(last);
	g_autofree char *word =
		text_shell_file(names_intern(capture->names, capture->file, strlen(capture->file)));
	g_autofree char *summary = summary_of(last);
	const char *cpus = capture_metadata(capture, "cpus"), *version;

	json_begin_object(&html->json, "capture");
	json_string(&html->json, "title",
		    capture_metadata(capture, "command") ? title : _("The system"));
	if (sides->n > 1) {
		g_autofree char *first = summary_of(html->export);
		g_autofree char *both = g_strdup_printf("A %s, B %s", first, summary);

		json_string(&html->json, "summary", both);
	} else {
		json_string(&html->json, "summary", summary);
	}
	json_string(&html->json, "file_word", word);
	json_int(&html->json, "duration_ns", sides->each[sides->n - 1].to_ns);
	json_uint(&html->json, "cpus", cpus ? g_ascii_strtoull(cpus, NULL, 10) : 0);
	json_string(&html->json, "state", capture_state_name(capture));
	json_bool(&html->json, "is_time", export_is_time(html->export) && export_is_time(last));
	if (html->export->reader.metric != READER_CPU)
		json_string(&html->json, "metric", reader_metrics[html->export->reader.metric]);
	json_bool(&html->json, "is_system", capture_is_system(capture));
	json_uint(&html->json, "sample_weight", html->rows.sample_weight);
	json_begin_array(&html->json, "losses");
	for (unsigned i = 0; i < sides->n; i++)
		write_losses(html, &sides->each[i]);
	json_end(&html->json);
	json_begin_array(&html->json, "facts");
	for (unsigned k = 0; k < sides->n; k++) {
		const struct capture *side = sides->each[k].export->reader.capture;
		g_autofree char *command = capture_command(side, 0);

		if (sides->n > 1)
			write_fact(&html->json, k == HTML_FIRST ? "A" : "B",
				   names_intern(side->names, side->file, strlen(side->file)));
		write_fact(&html->json, _("Command"), *command ? g_strchomp(command) : NULL);
		for (size_t i = 0; i < ARRAY_SIZE(facts); i++)
			write_fact(&html->json, _(facts[i].title),
				   capture_metadata(side, facts[i].key));
		version = capture_metadata(side, "version");
		write_fact(&html->json, _("Recorded by profd"), version ? version : _("unknown"));
	}
	write_fact(&html->json, _("Page by profcapture"), PROF_VERSION);
	json_end(&html->json);
	json_end(&html->json);
	write_sides(html);
}

/* ---- verdict --------------------------------------------------------------------------------- */

/* Begins a sentence of the verdict: `figure` is its number, shown in `color`; `tab` and `measure`
 * select the panel with its evidence. */
static void begin_sentence(struct html *html, const char *figure, const char *text,
			   const char *color, const char *tab, const char *measure)
{
	json_begin_object(&html->json, NULL);
	json_string(&html->json, "figure", figure);
	json_string(&html->json, "text", text);
	json_string(&html->json, "color", color);
	json_begin_object(&html->json, "show");
	json_string(&html->json, "tab", tab);
	if (measure)
		json_string(&html->json, "measure", measure);
}

/* Writes the time range that the sentence is about. */
static void write_range(struct html *html, int64_t from_ns, int64_t to_ns)
{
	json_begin_array(&html->json, "range");
	json_int(&html->json, NULL, from_ns);
	json_int(&html->json, NULL, to_ns);
	json_end(&html->json);
}

static void end_sentence(struct html *html)
{
	json_end(&html->json);
	json_end(&html->json);
}

static void write_where(const struct summary_where *where, void *data)
{
	struct html *html = data;
	g_autofree char *figure = g_strdup_printf("%.0f %%", where->pct);
	g_autofree char *callee =
		where->callee ? g_strdup_printf(" (%s %.0f %%)", where->callee, where->callee_pct)
			      : g_strdup("");
	g_autofree char *text = g_strdup_printf(_("in %s%s and the library code that it calls"),
						where->name, callee);

	begin_sentence(html, figure, text, "own", "functions", "cpu");
	json_uint(&html->json, "fn", html_index(&html->rows.functions, where->function));
	end_sentence(html);
}

static void write_not_freed(struct html *html)
{
	const GArray *lives = html->export->allocations ? html->export->allocations->lives : NULL;
	double bytes = 0, not_freed = 0;
	g_autofree char *figure = NULL, *all = NULL, *text = NULL;

	if (!lives || lives->len == 0)
		return;
	ARRAY_EACH(const struct allocation_life, life, lives) {
		bytes += life->kind == ALLOCATION_EARLIER ? 0 : life->bytes;
		not_freed += life->kind == ALLOCATION_KEPT ? life->bytes : 0;
	}
	figure = text_bytes((uint64_t)llround(not_freed));
	all = text_bytes((uint64_t)llround(bytes));
	text = g_strdup_printf(_("not freed at exit, of %s that were allocated"), all);
	begin_sentence(html, figure, text, "heap", "memory", "live");
	end_sentence(html);
}

static void write_longest_mark(struct html *html)
{
	const struct html_mark *longest = &html->rows.longest;
	g_autofree char *figure = NULL, *text = NULL;

	if (longest->length_ns == 0)
		return;
	figure = text_duration(longest->length_ns);
	text = g_strdup_printf(_("in the longest mark, %s, at %.3f s"),
			       (const char *)html->rows.mark_names->pdata[2 * longest->name + 1],
			       (double)longest->start_ns / 1e9);
	begin_sentence(html, figure, text, "mark", "marks", NULL);
	json_uint(&html->json, "mark", longest->name);
	write_range(html, longest->start_ns, longest->start_ns + (int64_t)longest->length_ns);
	end_sentence(html);
}

static void write_change(const struct diff_sentence *sentence, void *data)
{
	struct html *html = data;
	bool is_more = sentence->verdict == DIFF_SLOWER || sentence->verdict == DIFF_NEW;
	bool is_less = sentence->verdict == DIFF_FASTER || sentence->verdict == DIFF_GONE;

	begin_sentence(html, sentence->figure ? sentence->figure : "", sentence->text,
		       is_more   ? "more"
		       : is_less ? "less"
				 : "none",
		       "functions", "cpu");
	json_bool(&html->json, "compares", true);
	end_sentence(html);
}

/* Writes what changed, and each side's CPU time. Omits what changed if a capture is standard input,
 * which can be read only once. */
static bool write_comparison(struct html *html, GError **error)
{
	const struct html_sides *sides = &html->rows.sides;
	const char *first = html->export->file, *later = html->export->compare;

	json_begin_array(&html->json, "verdict");
	if (strcmp(first, "-") != 0 && strcmp(later, "-") != 0 &&
	    !diff_each_sentence(&html->export->reader, &html->export->filters, first, later,
				write_change, html, error))
		return false;
	for (unsigned i = 0; i < sides->n && export_is_time(html->export) &&
			     export_is_time(sides->each[HTML_LATER].export);
	     i++) {
		const struct html_side *side = &sides->each[i];
		g_autofree char *figure = text_duration(side->export->profile.all.weight);
		g_autofree char *name = g_path_get_basename(side->export->reader.capture->file);
		g_autofree char *text = g_strdup_printf(_("of CPU time in %s: %s"),
							i == HTML_FIRST ? "A" : "B", name);

		begin_sentence(html, figure, text, "run", "functions", "cpu");
		write_range(html, side->from_ns, side->to_ns);
		end_sentence(html);
	}
	json_end(&html->json);
	return true;
}

/* Returns whether the page covers all CPU time of the recording: see report_is_all_cpu_time(). */
static bool is_all_cpu_time(const struct export *export)
{
	const struct reader *reader = &export->reader;

	return reader->metric == READER_CPU && export_is_time(export) &&
	       export->profile.all.weight > 0 && export->profile.mode == PROFILE_ANY_MODE &&
	       !reader->timed && !reader_filters_threads(reader) && !reader->cpus &&
	       reader->capture->duration_ns > 0;
}

/* Writes the first sentence of `profcapture report`. */
static void write_first(struct html *html, const struct summary *summary)
{
	const struct export *export = html->export;
	struct amount all = export->profile.all;
	g_autofree char *figure = export_is_time(export) || export->reader.metric != READER_CPU
					  ? text_duration(all.weight)
					  : text_count(all.samples);
	CLEANUP_OUT struct out text = out_buffer();

	if (is_all_cpu_time(export))
		summary_print_cost(summary, &text);
	else
		summary_print_samples(summary, &text);
	if (export->profile.filters)
		out_char(&text, ' ');
	summary_print_passed(&export->profile, &text);
	begin_sentence(html, figure, text.text->str, "run", "tree", "cpu");
	end_sentence(html);
}

static void write_waiting(struct html *html, const struct summary *summary)
{
	uint64_t waited_ns = summary_waited_ns(summary);
	g_autofree char *figure = text_duration(waited_ns ? waited_ns : summary_ready_ns(summary));
	CLEANUP_OUT struct out text = out_buffer();

	summary_print_waiting(summary, &text);
	if (text.text->len) {
		begin_sentence(html, figure, g_strchomp(text.text->str),
			       waited_ns ? "idle" : "ready", "waiting",
			       summary->waits ? "wait" : NULL);
		end_sentence(html);
	}
}

static void write_verdict(struct html *html)
{
	struct export *export = html->export;
	struct summary summary = { .reader = &export->reader,
				   .profile = &export->profile,
				   .own = &export->own,
				   .times = html->rows.times,
				   .waits = export_has_waits(export) ? &export->waits : NULL };
	json_begin_array(&html->json, "verdict");
	if (export->profile.all.samples > 0)
		write_first(html, &summary);
	if (export->profile.all.weight > 0)
		summary_each_where(&summary, write_where, html);
	if (is_all_cpu_time(export) && !capture_is_system(export->reader.capture))
		write_waiting(html, &summary);
	write_not_freed(html);
	write_longest_mark(html);
	json_end(&html->json);
}

/* ---- the page -------------------------------------------------------------------------------- */

/* Unless the page has steps, branches of the critical path with a smaller share are left out. */
#define PATH_LEAST_SHARE 0.002
#define MOST_PATH_NODES 20000u
#define MOST_PATH_STEPS 400000u

static bool path_has_steps(const struct critical_path *path)
{
	return path->steps && path->nodes->len <= MOST_PATH_NODES;
}

/* Writes each node's parent, name, place and time. With steps, all nodes are written, because a
 * node with a small share of the whole may be important in the range that the page shows. Stores
 * the number of each written node in `numbers`, from 1; 0: left out. */
static void write_path_nodes(struct html *html, const struct critical_path *path, uint32_t *numbers)
{
	double whole = g_array_index(path->nodes, struct cct_node, 0).total;
	bool has_all = path_has_steps(path);
	double least = has_all ? 0 : PATH_LEAST_SHARE * whole;
	uint32_t n = 0;

	json_begin_array(&html->json, "nodes");
	for (guint i = 1; i < path->nodes->len; i++) {
		const struct cct_node *node = &g_array_index(path->nodes, struct cct_node, i);
		g_autofree char *name = NULL, *place = NULL;

		if (node->total < least || (node->parent && !numbers[node->parent]))
			continue;
		name = critical_path_name(path, node->function, false);
		place = critical_path_place(path, node->function);
		json_begin_array(&html->json, NULL);
		json_uint(&html->json, NULL, numbers[node->parent]);
		json_string(&html->json, NULL, name);
		json_string(&html->json, NULL, place);
		json_uint(&html->json, NULL, critical_path_ns(node->total));
		json_end(&html->json);
		numbers[i] = ++n;
	}
	json_end(&html->json);
}

/* A step in the page: its begin is time * slice_unit + rest. */
struct page_step {
	uint64_t begin_ns, length_ns;
	uint32_t time, rest, node, part;
};

COMPARE_BY(compare_steps, struct page_step, ORDER(a->begin_ns, b->begin_ns),
	   ORDER(a->part, b->part), ORDER(a->node, b->node), ORDER(a->length_ns, b->length_ns))

static void write_path_steps(struct html *html, const struct critical_path *path,
			     const uint32_t *numbers)
{
	static const struct report_column columns[] = {
		{ "path.time", REPORT_MEMBER(struct page_step, time), .delta = true },
		{ "path.rest", REPORT_MEMBER(struct page_step, rest) },
		{ "path.length", REPORT_MEMBER(struct page_step, length_ns) },
		{ "path.node", REPORT_MEMBER(struct page_step, node) },
		{ "path.part", REPORT_MEMBER(struct page_step, part) },
	};
	uint64_t unit = html->rows.slice_unit;
	g_autoptr(GArray) all = g_array_new(FALSE, FALSE, sizeof(struct page_step));

	ARRAY_EACH(const struct path_step, step, path->steps) {
		uint64_t begin_ns = (uint64_t)MAX_OF(step->from_ns, INT64_C(0));
		const struct page_step at = { .begin_ns = begin_ns,
					      .length_ns = (uint64_t)(step->to_ns - step->from_ns),
					      .time = (uint32_t)(begin_ns / unit),
					      .rest = (uint32_t)(begin_ns % unit),
					      .node = numbers[step->node],
					      .part = step->part };

		if (at.node)
			g_array_append_val(all, at);
	}
	g_array_sort(all, compare_steps);
	report_page_add(html->rows.page, all, columns, ARRAY_SIZE(columns));
	json_uint(&html->json, "unit_ns", unit);
}

/* Writes the critical path of the command, or of the selected thread, if wakers were recorded and
 * the page compares nothing. */
static bool write_path(struct html *html, GError **error)
{
	struct reader *reader = &html->export->reader;
	CLEANUP(critical_path_done)
	struct critical_path path = { .most_steps = export_most(html->export, MOST_PATH_STEPS) };
	g_autofree uint32_t *numbers = NULL;
	g_autoptr(GError) failure = NULL;

	if (html->rows.sides.n > 1 || !capture_metadata(reader->capture, "wakers") ||
	    (capture_is_system(reader->capture) && !reader_filters_threads(reader)))
		return true;
	if (!critical_path_find(&path, reader, &failure)) {
		if (g_error_matches(failure, CLI_ERROR, CLI_NOTHING_CAPTURED))
			return true;
		g_propagate_error(error, g_steal_pointer(&failure));
		return false;
	}
	json_begin_object(&html->json, "path");
	json_string(&html->json, "comm", critical_path_comm(&path, path.thread));
	json_uint(&html->json, "tid", names_thread_at(reader->capture->names, path.thread)->tid);
	json_uint(&html->json, "samples", path.samples);
	json_bool(&html->json, "is_whole", !reader->timed);
	json_double(&html->json, "least_pct", 100 * PATH_LEAST_SHARE);
	numbers = g_new0(uint32_t, path.nodes->len);
	write_path_nodes(html, &path, numbers);
	if (path_has_steps(&path))
		write_path_steps(html, &path, numbers);
	json_end(&html->json);
	return true;
}

/* Writes the share of the waiting time whose stacks are known. */
static void write_wait_stacks(struct html *html)
{
	const struct html_sides *sides = &html->rows.sides;

	json_begin_array(&html->json, "wait_notes");
	for (unsigned i = 0; i < sides->n && html_sides_have_waits(sides); i++) {
		const struct export *side = sides->each[i].export;
		CLEANUP_OUT struct out text = out_buffer();

		if (sides->n > 1)
			out_text(&text, i == HTML_FIRST ? "A: " : "B: ");
		profile_print_wait_stacks(&side->waits, &text);
		if (capture_lacks_rows(side->reader.capture, PROF_TABLE_WAIT))
			out_text(&text, _("Waits could not be read: times are lower bounds\n"));
		json_string(&html->json, NULL, g_strchomp(text.text->str));
	}
	json_end(&html->json);
}

/* Writes what `profcapture report` says about the quality of stacks and names. */
static void write_quality(struct html *html)
{
	const struct html_sides *sides = &html->rows.sides;

	json_begin_array(&html->json, "quality");
	for (unsigned i = 0; i < sides->n; i++) {
		g_autoptr(GString) text = g_string_new(sides->n < 2      ? NULL
						       : i == HTML_FIRST ? "A:"
									 : "B:");
		gsize empty = text->len;

		summary_append_quality(&sides->each[i].export->profile, text);
		if (text->len > empty)
			json_string(&html->json, NULL, g_strchug(text->str));
	}
	json_end(&html->json);
}

static void write_units(struct html *html)
{
	const struct capture *capture = html->export->reader.capture;
	const struct html_rows *rows = &html->rows;
	bool all, has_wakeups = true;

	for (unsigned i = 0; i < rows->sides.n; i++)
		has_wakeups &= run_times_have_wakeups(rows->sides.each[i].export->reader.capture);
	json_uint(&html->json, "grid_ns", (uint64_t)rows->grid_ns);
	json_uint(&html->json, "sample_unit_ns", rows->sample_unit);
	json_uint(&html->json, "slice_unit_ns", rows->slice_unit);
	json_uint(&html->json, "place_unit_ns", rows->place_unit);
	json_uint(&html->json, "mark_unit_ns", rows->sample_unit);
	json_uint(&html->json, "wait_unit_ns", rows->wait_unit);
	json_uint(&html->json, "allocation_unit_ns", rows->allocation_unit);
	json_bool(&html->json, "has_wakeups", has_wakeups);
	json_bool(&html->json, "has_waits", html_sides_have_waits(&rows->sides));
	write_wait_stacks(html);
	json_uint(&html->json, "sample_interval",
		  memory_most_setting(capture, MEMORY_SAMPLE_BYTES, &all));
	json_begin_array(&html->json, "notes");
	if (html->export->reader.redacts)
		json_string(
			&html->json, NULL,
			_("Arguments, host, users, log lines and folders were left out (--redact)."));
	if (html->export->merges)
		json_string(
			&html->json, NULL,
			_("The page would be larger than 32 MiB: rows are merged over longer times, and fewer marks, logs and counters are here."));
	if (rows->sides.folded) {
		g_autofree char *note = g_strdup_printf(
			_("Of %u stacks, the %u with the most weight are here; the others count in their callers."),
			rows->sides.folded + rows->sides.nodes->len - 1,
			rows->sides.nodes->len - 1);

		json_string(&html->json, NULL, note);
	}
	if (rows->grid_ns > rows->sides.grid_ns) {
		g_autofree char *step = text_duration((uint64_t)rows->grid_ns);
		g_autofree char *note = g_strdup_printf(
			_("Ranges begin and end in steps of %s, because there are many samples or allocations."),
			step);

		json_string(&html->json, NULL, note);
	}
	for (guint i = 0; i < rows->notes->len; i++)
		json_string(&html->json, NULL, rows->notes->pdata[i]);
	json_end(&html->json);
}

bool export_html(struct export *export, struct out *out, GError **error)
{
	out_write(out, export->page->str, export->page->len);
	return true;
}

bool export_html_make(struct export *export, GError **error)
{
	struct html html = { .export = export };
	struct report_page page;
	CLEANUP_OUT struct out members = out_buffer();
	CLEANUP_OUT struct out text = out_buffer();
	bool ok;

	json_init(&html.json, &members);
	report_page_init(&page);
	html_rows_init(&html.rows, export, &page, &html.json);
	json_begin_object(&html.json, NULL);
	ok = html_rows_write(&html.rows, error);
	if (ok && export->compared)
		ok = write_comparison(&html, error);
	else if (ok)
		write_verdict(&html);
	ok = ok && write_path(&html, error) &&
	     html_selection_write(&html.rows.sides, &html.json, error);
	if (ok && export->with_source)
		ok = html_sources_write(&html.rows, &export->code, error);
	if (ok) {
		write_functions(&html);
		write_capture(&html);
		write_threads(&html);
		write_quality(&html);
		write_units(&html);
		/* drop the '{', because the list of columns comes before these members */
		g_string_erase(members.text, 0, 1);
		ok = report_page_write(&page, members.text, &text) ||
		     cli_set_error(error, CLI_FAILURE, "%s", _("cannot compress the page"));
	}
	html_rows_done(&html.rows);
	report_page_done(&page);
	json_done(&html.json);
	export->page = g_steal_pointer(&text.text);
	return ok;
}
