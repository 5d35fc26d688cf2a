/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * profcapture critical-path - prints the critical path as a tree
 */
#include "config.h"

#include "base/each.h"
#include "base/order.h"
#include "tools/present/tree.h"
#include "tools/profcapture/critical-path.h"
#include "tools/profcapture/verbs.h"
#include "tools/profile/function-names.h"

#include <glib/gi18n.h>
#include <inttypes.h>

#define TEXT_MIN_SHARE 0.01 /* smaller branches are not printed, unless --limit is 0 */
#define TEXT_THREADS 3      /* maximum number of threads named in the sentence about threads */
#define DEFAULT_LIMIT 40    /* maximum number of children shown for each node */

struct path_verb {
	struct reader reader;
	bool full_names;
	struct critical_path path;
};

static const struct path_label *label_at(const struct critical_path *path, uint32_t index)
{
	return &g_array_index(path->labels, struct path_label, index);
}

static const struct cct_node *node_at(const struct critical_path *path, uint32_t index)
{
	return &g_array_index(path->nodes, struct cct_node, index);
}

/* ---- Text ------------------------------------------------------------------------------------ */

static char *shown_name(uint32_t index, const void *data)
{
	const struct path_verb *verb = data;

	return critical_path_name(&verb->path, index, verb->full_names);
}

static char *place_of(uint32_t index, const void *data)
{
	return critical_path_place(&((const struct path_verb *)data)->path, index);
}

/* Returns the name by which nodes with equal totals are sorted. */
static const char *name_of(uint32_t index, const void *data)
{
	const struct path_verb *verb = data;
	const struct path_label *label = label_at(&verb->path, index);

	return label->thread  ? critical_path_comm(&verb->path, label->thread)
	       : label->place ? functions_at(verb->path.places.functions, label->place)->name
			      : "";
}

static enum cct_kind kind_of(uint32_t index, const void *data)
{
	return CCT_OWN;
}

/* Prints text such as "1.2 s running; 0.3 s ready, without a CPU." */
static void print_times(const struct critical_path *path, struct out *out)
{
	const struct {
		uint64_t ns;
		const char *text;
	} parts[] = {
		{ path->all.run_ns, N_("%s running") },
		{ path->all.wait_ns,
		  N_("%s waiting for something other than a thread, such as a disk or a timer") },
		{ path->all.ready_ns, N_("%s ready, without a CPU") },
		{ path->all.unknown_ns, N_("%s not recorded") },
	};
	const char *before = "";

	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		g_autofree char *time = text_duration(parts[i].ns);

		if (parts[i].ns == 0)
			continue;
		out_text(out, before);
		out_printf(out, _(parts[i].text), time);
		before = "; ";
	}
	out_text(out, ".\n");
}

/* Prints text such as "Threads: worker 1.2 s, main 0.3 s." */
static void print_threads(const struct critical_path *path, bool all, struct out *out)
{
	guint n = path->threads->len, shown = all ? n : MIN_OF(n, (guint)TEXT_THREADS);

	out_text(out, _("Threads: "));
	for (guint i = 0; i < shown; i++) {
		const struct path_thread *at = &g_array_index(path->threads, struct path_thread, i);
		g_autofree char *time = text_duration(path_time_sum(&at->time));
		g_autofree char *comm = text_escape(critical_path_comm(path, at->thread));

		out_printf(out, "%s%s %s", i ? ", " : "", comm, time);
	}
	if (n > shown)
		out_printf(out,
			   ngettext(", and %u other (--limit 0)", ", and %u others (--limit 0)",
				    n - shown),
			   n - shown);
	out_text(out, ".\n");
}

static void path_print(const void *data, struct out *out)
{
	const struct path_verb *verb = data;
	const struct critical_path *path = &verb->path;
	bool all = verb->reader.limit == 0;
	const struct tree_options options = {
		.kind_of = kind_of,
		.name_of = name_of,
		.shown_name = shown_name,
		.place_of = place_of,
		.data = verb,
		.whole = node_at(path, 0)->total,
		.min_share = all ? 0 : TEXT_MIN_SHARE,
		.most = verb->reader.limit,
		.columns = verb->reader.columns,
		.bold_share = 0.1,
	};
	struct table table = { .fit = verb->full_names ? NULL : &function_name_fits };
	const struct table_style style = { .out = out,
					   .is_colored = verb->reader.colored,
					   .columns = verb->full_names ? 0 : verb->reader.columns };
	g_autofree char *whole = text_duration(critical_path_ns(node_at(path, 0)->total));
	g_autofree char *samples = text_count(path->samples);
	g_auto(GStrv) lines = NULL;
	CLEANUP_OUT struct out text = out_buffer();

	reader_print_losses(&verb->reader, out, READER_LOSSES);
	reader_print_lost_names(&verb->reader, out);
	if (verb->reader.is_incomplete)
		out_text(out, _("Waits during which another thread ran may be missing\n"));
	if (path->mark) {
		g_autofree char *mark = text_escape(path->mark);
		g_autofree char *spans = text_count(path->spans);

		out_printf(&text,
			   ngettext("Critical path of mark '%s', %s time: %s",
				    "Critical path of mark '%s', %s times: %s", path->spans),
			   mark, spans, whole);
	} else {
		const struct names_thread *thread =
			names_thread_at(verb->reader.capture->names, path->thread);
		g_autofree char *comm = text_escape(critical_path_comm(path, path->thread));

		out_printf(&text, _("Critical path of %s (thread %" PRIu64 "): %s"), comm,
			   thread->tid, whole);
	}
	out_text(&text, _(", of which "));
	print_times(path, &text);
	print_threads(path, all, &text);
	if (path->samples)
		out_printf(&text,
			   ngettext("Which functions ran is estimated from %s sample.\n",
				    "Which functions ran is estimated from %s samples.\n",
				    path->samples),
			   samples);
	else if (path->all.run_ns)
		out_text(&text, _("There is no sample, so it is unknown which functions ran.\n"));
	lines = g_strsplit(g_strchomp(text.text->str), "\n", -1);
	for (char **line = lines; *line; line++)
		text_wrap(out, *line, 0, 2, verb->reader.columns);
	out_char(out, '\n');
	table_add_column(&table, TREE_TOTAL_SHARE, COLUMN_PERCENT, _("total %"));
	table_add_column(&table, TREE_TOTAL, COLUMN_DURATION, _("time"));
	tree_print(path->nodes, &options, &table, &style, false);
	if (path->is_deep)
		out_printf(out, _("Waits for waits are followed through at most %d threads.\n"),
			   CCT_MAX_DEPTH / 2);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void write_thread(const struct critical_path *path, struct json *json, uint32_t thread)
{
	const struct names *names = path->reader->capture->names;
	const struct names_thread *at = names_thread_at(names, thread);

	json_string(json, "comm", at->comm);
	json_string(json, "exe", names_process_at(names, at->process)->exe);
}

static void write_node(struct json *json, uint32_t index, unsigned depth, const void *data)
{
	static const char *const kinds[PATH_KINDS] = { "thread", "runs",    "function", "ready",
						       "waits",  "created", "unknown" };
	static const char *const wakers[] = { "unknown", "thread", "interrupt", "outside" };
	const struct critical_path *path = &((const struct path_verb *)data)->path;
	const struct cct_node *node = node_at(path, index);
	const struct path_label *label = label_at(path, node->function);

	json_string(json, "kind", index ? kinds[label->kind] : "root");
	json_uint(json, "total_ns", critical_path_ns(node->total));
	json_uint(json, "self_ns", critical_path_ns(node->self));
	if (index == 0)
		return;
	if (label->kind == PATH_FUNCTION || label->kind == PATH_WAIT) {
		json_begin_object(json, "function");
		functions_write(path->places.functions, label->place, json);
		json_end(json);
	}
	if (label->kind == PATH_FUNCTION)
		json_uint(json, "samples", (uint64_t)node->self_count);
	if (label->kind == PATH_WAIT) {
		/* A wait that is known only from switches has no row to count. */
		json_uint_if(json, "waits", node->total_count > 0, (uint64_t)node->total_count);
		json_string(json, "cause", wait_cause_names[label->cause]);
		json_string(json, "call", label->call);
		json_string(json, "waker",
			    wakers[label->waker < ARRAY_SIZE(wakers) ? label->waker : 0]);
	}
	if (label->thread)
		write_thread(path, json, label->thread);
}

static gint compare_nodes(gconstpointer left, gconstpointer right, gpointer data)
{
	const struct path_verb *verb = data;
	uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;

	return ORDER_BY(ORDER(node_at(&verb->path, b)->total, node_at(&verb->path, a)->total),
			ORDER(a, b));
}

static void write_time(const struct path_time *time, struct json *json)
{
	json_uint(json, "running_ns", time->run_ns);
	json_uint(json, "ready_ns", time->ready_ns);
	json_uint(json, "waiting_ns", time->wait_ns);
	json_uint(json, "unknown_ns", time->unknown_ns);
}

static void path_write(const void *data, struct json *json)
{
	const struct path_verb *verb = data;
	const struct critical_path *path = &verb->path;
	const struct names *names = verb->reader.capture->names;
	const struct names_thread *thread = names_thread_at(names, path->thread);
	g_autofree double *totals = g_new(double, path->nodes->len);
	const struct tree_writer writer = { .nodes = path->nodes,
					    .keys = totals,
					    .most = verb->reader.limit,
					    .compare = compare_nodes,
					    .write = write_node,
					    .data = verb };

	for (guint i = 0; i < path->nodes->len; i++)
		totals[i] = node_at(path, i)->total > 0 ? node_at(path, i)->total : -1;
	reader_begin(&verb->reader, json, "critical-path", tree_is_cut(&writer),
		     READER_TOTAL_UNKNOWN);
	json_bool(json, "incomplete", verb->reader.is_incomplete);
	json_string(json, "mark", path->mark);
	json_uint(json, "spans", path->spans);
	json_uint_if(json, "pid", path->thread, names_process_at(names, thread->process)->pid);
	json_uint_if(json, "tid", path->thread, thread->tid);
	json_uint(json, "total_ns", critical_path_ns(node_at(path, 0)->total));
	write_time(&path->all, json);
	json_uint(json, "samples", path->samples);
	json_bool(json, "is_deep", path->is_deep);
	json_begin_array(json, "threads");
	ARRAY_EACH(const struct path_thread, at, path->threads) {
		json_begin_object(json, NULL);
		write_thread(path, json, at->thread);
		write_time(&at->time, json);
		json_end(json);
	}
	json_end(json);
	tree_write(&writer, json);
	reader_end(&verb->reader, json);
}

/* ---- The verb -------------------------------------------------------------------------------- */

static int path_check(void *data)
{
	const struct path_verb *verb = data;

	if (verb->reader.format == READER_NDJSON || verb->reader.format == READER_CSV)
		return cli_usage_error(_("a critical path is printed as text or json"));
	return CLI_CONTINUE;
}

static bool path_query(void *data, char **operands, GError **error)
{
	struct path_verb *verb = data;
	struct reader *reader = &verb->reader;

	if (!reader_open_wakers(reader, operands[0], error) ||
	    !critical_path_find(&verb->path, reader, error))
		return false;
	reader->is_incomplete = reader_misses_rows(reader, "wait");
	return true;
}

static void path_done(struct path_verb *verb)
{
	critical_path_done(&verb->path);
	reader_done(&verb->reader);
}

static const struct cli_option what_options[] = {
	{ "mark", 0, CLI_STRING, offsetof(struct path_verb, path.mark), N_("NAME"),
	  N_("Show the paths of all spans of marks named NAME (default: the path of one thread)") },
	{ NULL },
};

static const struct cli_option name_options[] = {
	{ "full-names", 0, CLI_FLAG, offsetof(struct path_verb, full_names), NULL,
	  N_("Do not shorten the names of functions") },
	{ NULL },
};

int verb_critical_path(int argc, char **argv)
{
	static const struct reader_verb reader_verb = {
		.spec = { N_("FILE"),
			  N_("Show how a thread spent its time: its own work and, during each wait, the work of the thread that ended the wait."),
			  1, 1 },
		.check = path_check,
		.query = path_query,
		.print = path_print,
		.write = path_write,
		.is_paged = true,
	};
	CLEANUP(path_done)
	struct path_verb verb = { .reader = READER_TEXT_ROWS(DEFAULT_LIMIT) };
	const struct cli_group groups[] = { { N_("Select"), what_options, &verb },
					    READER_SELECT(NULL, &verb.reader),
					    { N_("Output"), name_options, &verb },
					    { NULL, reader_output_options, &verb.reader },
					    { NULL, reader_pager_options, &verb.reader },
					    { NULL } };

	return reader_run(&reader_verb, groups, &verb, argc, argv);
}
