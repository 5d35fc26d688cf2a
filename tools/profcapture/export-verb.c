/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * profcapture export - the samples of a capture in the formats of other programs
 *
 * The result is written completely or not at all. A file whose name ends in ".gz" is compressed;
 * pprof always is.
 */
#include "config.h"

#include "tools/profcapture/export-allocations.h"
#include "tools/profcapture/export.h"
#include "tools/profcapture/html-sides.h"

#include "base/order.h"
#include "tools/common/spool.h"
#include "tools/profcapture/dump.h"
#include "tools/profcapture/result-file.h"
#include "tools/profcapture/verbs.h"

#include <gio/gunixinputstream.h>
#include <gio/gunixoutputstream.h>
#include <glib/gi18n.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Limits on the page's size, and on how often it is made again with fewer rows. */
#define MOST_PAGE_BYTES (UINT64_C(32) << 20)
#define MOST_MERGES 8

enum {
	FOLDED,
	FIREFOX,
	PPROF,
	SPEEDSCOPE,
	SVG,
	CALLGRIND,
	CHROME,
	PERF_SCRIPT,
	HTML,
	HEAPTRACK,
	MASSIF,
	SYSCAP,
	SQLITE,
	CSV,
	NDJSON
};
static const char *const format_names[] = { "folded", "firefox",   "pprof",  "speedscope",
					    "svg",    "callgrind", "chrome", "perf-script",
					    "html",   "heaptrack", "massif", "syscap",
					    "sqlite", "csv",       "ndjson", NULL };

static bool write_rows(struct export *export, struct out *out, GError **error)
{
	return dump_table(&export->reader, export->table, out, error);
}

static const struct {
	bool (*write)(struct export *export, struct out *out, GError **error);
	enum { FUNCTIONS_ONLY, PLACES, ADDRESSES } frames; /* PLACES: with lines of frames */
	enum {
		NO_ALLOCATIONS,
		ALLOCATION_VALUE, /* allocations instead of samples, with --value */
		ALLOCATION_SUMS,
		ALLOCATION_EVENTS,
		ALLOCATION_LIVES,
		ALLOCATION_ROWS, /* the format reads allocations itself */
		ONLY_ALLOCATIONS /* the format has no samples */
	} allocations;
	const char *how_to_open; /* what to do with the file; %s: its quoted name */
	bool compressed;         /* even without ".gz" */
	bool opens_gzip;         /* the program for the format reads compressed files, too */
	bool compares;           /* supports --compare */
	bool says_lost;          /* reports losses */
	bool has_tables;         /* the format has tables instead of samples and allocations */
	bool has_waits;          /* the format has waits in addition to samples */
	bool has_threads;        /* the format has the samples of each thread together */
} formats[] = {
	[FOLDED] = { export_folded, FUNCTIONS_ONLY, ALLOCATION_VALUE,
		     N_("Draw a flame graph: flamegraph.pl %s > flame.svg"), .compares = true },
	[FIREFOX] = { export_firefox, PLACES, ALLOCATION_EVENTS,
		      N_("Open it at profiler.firefox.com"), .opens_gzip = true, .has_waits = true,
		      .has_threads = true },
	[PPROF] = { export_pprof, PLACES, ALLOCATION_SUMS, N_("Open it: go tool pprof -http=: %s"),
		    .compressed = true, .opens_gzip = true },
	[SPEEDSCOPE] = { export_speedscope, FUNCTIONS_ONLY, ALLOCATION_VALUE,
			 N_("Open it in speedscope"), .compares = true },
	[SVG] = { export_svg, FUNCTIONS_ONLY, ALLOCATION_VALUE, N_("Open it in a browser: %s"),
		  .compares = true },
	[CALLGRIND] = { export_callgrind, PLACES, ALLOCATION_VALUE, N_("Open it: kcachegrind %s") },
	[CHROME] = { export_chrome, FUNCTIONS_ONLY, NO_ALLOCATIONS,
		     N_("Open it at ui.perfetto.dev"), .opens_gzip = true, .says_lost = true,
		     .has_waits = true, .has_threads = true },
	[PERF_SCRIPT] = { export_perf_script, ADDRESSES, NO_ALLOCATIONS,
			  N_("Open it in FlameScope, in speedscope or at profiler.firefox.com") },
	[HTML] = { export_html, FUNCTIONS_ONLY, ALLOCATION_LIVES, N_("Open it in a browser: %s"),
		   .compares = true, .says_lost = true, .has_waits = true },
	[HEAPTRACK] = { export_heaptrack, PLACES, ONLY_ALLOCATIONS, N_("Open it: heaptrack_gui %s"),
			.opens_gzip = true },
	[MASSIF] = { export_massif, PLACES, ONLY_ALLOCATIONS,
		     N_("Print it: ms_print %s, or open it in massif-visualizer"),
		     .says_lost = true },
	[SYSCAP] = { export_syscap, FUNCTIONS_ONLY, ALLOCATION_ROWS, N_("Open it: sysprof %s"),
		     .says_lost = true },
	[SQLITE] = { export_sqlite, FUNCTIONS_ONLY, NO_ALLOCATIONS,
		     N_("Query it: sqlite3 %s 'SELECT * FROM hot_functions LIMIT 10'"),
		     .has_tables = true, .says_lost = true },
	[CSV] = { write_rows, FUNCTIONS_ONLY, NO_ALLOCATIONS,
		  N_("Read it with any program for tables: %s"), .has_tables = true },
	[NDJSON] = { write_rows, FUNCTIONS_ONLY, NO_ALLOCATIONS,
		     N_("The first line is about the capture, each other line is a row: tail -n +2 %s | jq ."),
		     .has_tables = true, .says_lost = true },
};

/* indexed by enum export_value */
static const char *const value_names[] = { "samples",       "alloc-objects", "alloc-space",
					   "inuse-objects", "inuse-space",   NULL };

static const struct cli_option options[] = {
	{ "to", 0, CLI_CHOICE, offsetof(struct export, format), N_("FORMAT"),
	  N_("Write this format: folded (flamegraph.pl), firefox, pprof, speedscope, svg (a flame graph), callgrind (KCachegrind), chrome (Perfetto), perf-script (text like that of perf), html (a page), heaptrack or massif (allocations), syscap (Sysprof), sqlite (a database), csv or ndjson (rows of a table)"),
	  format_names },
	{ "table", 't', CLI_STRING, offsetof(struct export, table), N_("TABLE"),
	  N_("In csv and ndjson, write the rows of this table") },
	{ "value", 0, CLI_CHOICE, offsetof(struct export, value), N_("VALUE"),
	  N_("In folded, speedscope, svg and callgrind, weight stacks by samples, by allocated blocks or bytes, or by blocks or bytes live at the end of the range (default: samples)"),
	  value_names },
	{ "compare", 0, CLI_STRING, offsetof(struct export, compare), N_("LATER"),
	  N_("In folded, speedscope, svg and html, compare with a later capture") },
	{ "output", 'o', CLI_STRING, offsetof(struct export, output), N_("NEW"),
	  N_("Write NEW (default: -, standard output)") },
	{ "force", 0, CLI_FLAG, offsetof(struct export, force), NULL,
	  N_("Overwrite an existing file") },
	{ "quiet", 'q', CLI_FLAG, offsetof(struct export, is_quiet), NULL,
	  N_("Do not say how to open the file") },
	{ "mode", 0, CLI_CHOICE, offsetof(struct export, profile.mode), N_("MODE"),
	  N_("Use only samples taken in this mode (default: any)"), profile_modes },
	{ NULL },
};

static const struct cli_option inline_options[] = {
	{ "no-inline", 0, CLI_FLAG, offsetof(struct export, no_inline), NULL,
	  N_("Attribute inlined functions to their callers") },
	{ "inline", 0, CLI_FLAG, offsetof(struct export, wants_inline), NULL,
	  N_("Show inlined functions as frames (default)") },
	{ NULL },
};

/* The reader's time options except --to, which has another meaning in this verb. */
static const struct cli_option time_options[] = {
	{ "from", 0, CLI_RANGE, offsetof(struct reader, range), N_("TIME"),
	  N_("Start at TIME: 1.5s, -5s (before the end), @mark:NAME, or a range 1.2s..1.5s") },
	{ NULL },
};

/* ---- the file -------------------------------------------------------------------------------- */

static bool write_plain(struct export *export, int fd, GError **error)
{
	struct out out;
	bool ok;
	int r = 0;

	out_init(&out, fd);
	ok = formats[export->format].write(export, &out, error);
	if (ok)
		r = out_flush(&out);
	if (r != 0)
		g_set_error(error, CLI_ERROR, CLI_FAILURE, _("cannot write '%s': %s"),
			    export->output, g_strerror(-r));
	out_done(&out);
	return ok && r == 0;
}

static bool write_compressed(struct export *export, int fd, GError **error)
{
	CLEANUP_CLOSE int plain = spool_open(error);
	g_autoptr(GConverter)
		gzip = G_CONVERTER(g_zlib_compressor_new(G_ZLIB_COMPRESSOR_FORMAT_GZIP, -1));
	g_autoptr(GOutputStream) file = g_unix_output_stream_new(fd, FALSE);
	g_autoptr(GOutputStream) packed = g_converter_output_stream_new(file, gzip);
	g_autoptr(GInputStream) in = NULL;

	if (plain < 0 || !write_plain(export, plain, error))
		return false;
	if (lseek(plain, 0, SEEK_SET) < 0)
		return cli_set_error(error, CLI_FAILURE, "%s", g_strerror(errno));
	in = g_unix_input_stream_new(plain, FALSE);
	if (g_output_stream_splice(packed, in, G_OUTPUT_STREAM_SPLICE_CLOSE_TARGET, NULL, error) >=
	    0)
		return true;
	g_prefix_error(error, _("cannot write '%s': "), export->output);
	return false;
}

static void say_how_to_open(const struct export *export, bool must_unpack)
{
	g_autofree char *plain = g_strndup(
		export->output, strlen(export->output) - (must_unpack ? strlen(".gz") : 0));
	g_autofree char *packed_word = text_shell_file(export->output);
	g_autofree char *word = text_shell_file(plain);
	g_autofree char *packed = text_escape(packed_word), *name = text_escape(word);

	if (must_unpack)
		fprintf(stderr, _("Unpack it: gunzip %s. "), packed);
	fprintf(stderr, _(formats[export->format].how_to_open), name);
	fputc('\n', stderr);
}

static bool write_result(struct export *export, GError **error)
{
	CLEANUP(result_file_done) struct result_file file = { 0 };
	bool compressed = formats[export->format].compressed ||
			  g_str_has_suffix(export->output, ".gz");

	if (!result_file_open(export->output, export->force, &file, error) ||
	    !(compressed ? write_compressed(export, file.fd, error)
			 : write_plain(export, file.fd, error)) ||
	    !result_file_commit(&file, error))
		return false;
	if (!export->is_quiet && file.stream_fd < 0)
		say_how_to_open(export, compressed && !formats[export->format].opens_gzip);
	return true;
}

/* ---- the verb -------------------------------------------------------------------------------- */

/* Returns whether an option is given that applies only to samples. Allocations are then left
 * out. */
static bool is_of_samples(const struct export *export)
{
	return frame_filters_any(&export->filters) || export->profile.mode != PROFILE_ANY_MODE ||
	       export->reader.cpus || export->reader.metric != READER_CPU;
}

static bool read_allocations(struct export *export, GError **error)
{
	bool is_only = export->value != EXPORT_SAMPLES ||
		       formats[export->format].allocations == ONLY_ALLOCATIONS;
	bool wants_events = formats[export->format].allocations == ALLOCATION_EVENTS;
	const GArray *events;

	if (is_of_samples(export) ||
	    (!is_only && formats[export->format].allocations <= ALLOCATION_VALUE))
		return true;
	if (!allocations_are_there(export)) {
		if (!is_only)
			return true;
		/* This key shows that allocations were recorded, even if none can be read. */
		if (!capture_metadata(export->reader.capture, "memory.mode"))
			return cli_set_error(
				error, CLI_NOTHING_CAPTURED, "%s",
				_("the capture has no allocations. Record them: profctl record --memory"));
	}
	export->wants_rows = formats[export->format].allocations >= ALLOCATION_ROWS;
	if (export->wants_rows)
		return true;
	export->allocations = g_new0(struct allocations, 1);
	if (formats[export->format].allocations == ALLOCATION_LIVES)
		export->allocations->unit_ns = export_html_grid(export->reader.capture);
	if (!allocations_read(export->allocations, export, wants_events, error))
		return false;
	events = export->allocations->events;
	if (export->allocations->left_out) {
		g_autofree char *last = text_seconds(
			g_array_index(events, struct allocation_event, events->len - 1).time_ns);

		cli_warning(
			_("only allocations and frees up to %s s are exported, the first %u; --from selects a later range"),
			last, ALLOCATIONS_MOST_EVENTS);
	}
	return true;
}

/* Orders by duration, longest first, then by time. */
COMPARE_BY(compare_samples, struct profile_sample, ORDER(b->weight, a->weight),
	   ORDER(a->time_ns, b->time_ns))

static void keep_longest(const struct profile_sample *each, size_t n, void *data)
{
	GArray *longest = data;

	for (size_t i = 0; i < n; i++) {
		g_array_append_val(longest, each[i]);
		if (longest->len < 2 * EXPORT_MOST_WAITS)
			continue;
		g_array_sort(longest, compare_samples);
		g_array_set_size(longest, EXPORT_MOST_WAITS);
	}
}

/* Reads the waits if the format and the capture have them, unless they are among the samples. */
static bool read_waits(struct export *export, GError **error)
{
	struct reader *reader = &export->reader;
	const struct profile *profile = &export->profile;
	g_autoptr(GArray) longest = g_array_new(FALSE, FALSE, sizeof(struct profile_sample));
	bool has, ok;

	if (!formats[export->format].has_waits || reader->metric != READER_CPU)
		return true;
	if (!reader_has_rows(reader, PROF_TABLE_WAIT, &has, error))
		return false;
	if (!has)
		return true;
	export->waits = (struct profile){ .wants_tree = true,
					  .wants_samples = true,
					  .inlined = profile->inlined,
					  .joins_inlined = profile->joins_inlined,
					  .places = profile->places,
					  .filters = profile->filters,
					  .mode = profile->mode,
					  .waiting = &export->waiting,
					  .shared = profile->functions };
	if (export->format == HTML) {
		export->waits.take = html_waits_take;
		export->waits.taker = &export->html_waits;
		html_waits_init(&export->html_waits, export_html_grid(reader->capture),
				reader->capture->duration_ns);
		export->html_waits.most = export_most(export, export->html_waits.most);
		export->html_waits.within.most =
			export_most(export, export->html_waits.within.most);
	} else {
		export->waits.take = keep_longest;
		export->waits.taker = longest;
	}
	reader->metric = READER_OFF_CPU;
	ok = profile_run(&export->waits, reader, error);
	reader->metric = READER_CPU;
	if (ok)
		g_array_append_vals(export->waits.each, longest->data, longest->len);
	return ok;
}

/* Warns about other recorded events, because the formats hold only one. */
static void warn_other_events(const struct export *export)
{
	const struct sampled_events *events = export->reader.capture->sampled;
	g_autofree char *others = NULL;

	if (!export->profile.event || export->reader.metric == READER_OFF_CPU ||
	    export->value != EXPORT_SAMPLES ||
	    formats[export->format].allocations == ONLY_ALLOCATIONS)
		return;
	others = sampled_events_others(events, (uint32_t)(export->profile.event -
							  sampled_event_at(events, 0)));
	if (others)
		cli_warning(
			_("only the samples of %s are exported; also recorded: %s (--event NAME)"),
			profile_event_name(&export->profile), others);
}

static void warn_lost(const struct export *export, const char *file)
{
	g_autofree char *word = text_shell_file(file);

	if (export->reader.capture->lost && !formats[export->format].says_lost)
		cli_warning(
			_("the capture lost events, and this format cannot say so. List them: profcapture info %s"),
			word);
}

static bool read_capture(struct export *export, const char *file, GError **error)
{
	export->reader.format = export->format == CSV      ? READER_CSV
				: export->format == NDJSON ? READER_NDJSON
							   : READER_TEXT;
	if (!frame_filters_open(&export->filters, error) ||
	    !reader_open(&export->reader, file, error) ||
	    !reader_load_names(&export->reader, error))
		return false;
	if (formats[export->format].has_tables) {
		capture_warn(export->reader.capture);
		warn_lost(export, file);
		return true;
	}
	export->profile.wants_tree = export->profile.wants_samples =
		formats[export->format].allocations != ONLY_ALLOCATIONS;
	export->profile.places = formats[export->format].frames != FUNCTIONS_ONLY;
	export->profile.addresses = formats[export->format].frames == ADDRESSES;
	export->profile.inlined = !export->no_inline;
	/* Inlined copies count with the function, as in report and memory; in a comparison, they
	 * are separate, as in diff. */
	export->profile.joins_inlined = !export->no_inline && !export->compare;
	if (formats[export->format].has_threads) {
		export->profile.take = export_samples_take;
		export->profile.taker = &export->ordered;
		export_samples_init(&export->ordered);
	}
	if (export->format == HTML) {
		export->profile.wants_threads = true;
		export->profile.own = &export->own;
		export->profile.take = html_samples_take;
		export->profile.taker = &export->samples;
		html_samples_init(&export->samples,
				  (uint64_t)export_html_grid(export->reader.capture) / GRID_UNITS,
				  export->reader.capture->duration_ns);
		export->samples.most = export_most(export, export->samples.most);
	}
	if (frame_filters_any(&export->filters))
		export->profile.filters = &export->filters;
	if (!profile_run(&export->profile, &export->reader, error))
		return false;
	if (formats[export->format].has_threads && !export_samples_sort(&export->ordered, error))
		return false;
	capture_warn(export->reader.capture);
	if (!read_allocations(export, error) || !read_waits(export, error))
		return false;
	if (capture_samples(export->reader.capture) == 0 && export->value == EXPORT_SAMPLES &&
	    formats[export->format].allocations == ALLOCATION_VALUE &&
	    allocations_are_there(export))
		cli_warning(_(
			"the capture has no samples, but allocations: use --value alloc-space, or inuse-space for those not freed"));
	if ((capture_samples(export->reader.capture) > 0 || export->reader.metric != READER_CPU) &&
	    export->profile.wants_tree && export->value == EXPORT_SAMPLES &&
	    !export->reader.has_warned &&
	    export->profile.all.samples == export->profile.filtered.samples)
		cli_warning(_("the options leave out all samples of capture '%s'"),
			    export->reader.capture->file);
	export_find_files(export);
	if (export->merges == 0)
		warn_other_events(export);
	warn_lost(export, file);
	return true;
}

/* Returns a copy of the options. Must be called before a capture is read. Each copy must be
 * freed. */
static struct export *copy_options(const struct export *export)
{
	struct export *copy = g_memdup2(export, sizeof(*export));
	GArray *const shared[] = { export->reader.pids, export->reader.tids, export->reader.cpus };
	GPtrArray *const texts[] = { export->reader.comms, export->code.debug_folders,
				     export->code.source_folders };

	for (size_t i = 0; i < ARRAY_SIZE(shared); i++)
		if (shared[i])
			g_array_ref(shared[i]);
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		if (texts[i])
			g_ptr_array_ref(texts[i]);
	return copy;
}

static bool read_captures(struct export *export, const char *file, GError **error)
{
	export->file = file;
	if (export->compare)
		export->compared = copy_options(export);
	return (!export->with_source || code_files_open(&export->code, error)) &&
	       read_capture(export, file, error) &&
	       (!export->compared || read_capture(export->compared, export->compare, error)) &&
	       (export->format != HTML || export_html_make(export, error));
}

static void export_done(struct export *export);

/* Reads the captures. While the page is too large, reads them again, with fewer rows. Standard
 * input can be read only once. */
static bool read_to_fit(struct export *export, const char *file, GError **error)
{
	struct export *given = copy_options(export);
	bool is_once = strcmp(file, "-") == 0 || g_strcmp0(export->compare, "-") == 0;
	const char *set = g_getenv("PROF_PAGE_BYTES"); /* set by tests */
	uint64_t most = set ? g_ascii_strtoull(set, NULL, 10) : MOST_PAGE_BYTES;
	bool ok = read_captures(export, file, error);

	while (ok && export->page && export->page->len > most && !is_once &&
	       export->merges < MOST_MERGES) {
		struct export *again = copy_options(given);

		again->merges = export->merges + 1;
		again->reader.judges_damage = true; /* the first try has already warned of damage */
		export_done(export);
		*export = *again;
		g_free(again);
		ok = read_captures(export, file, error);
	}
	if (ok && export->page && export->page->len > most) {
		g_autofree char *size = text_bytes(export->page->len);

		cli_warning(_("the page has %s; --from and --to limit it to a part of the time"),
			    size);
	}
	export_done(given);
	g_free(given);
	return ok;
}

/* Returns "shop.html" for "runs/shop.cap". */
static char *page_name(const char *capture)
{
	g_autofree char *name = strcmp(capture, "-") == 0 ? g_strdup("report")
							  : g_path_get_basename(capture);
	char *dot = strrchr(name, '.');

	if (dot && dot != name)
		*dot = '\0';
	return g_strconcat(name, ".html", NULL);
}

static bool refuse_inputs(const struct export *export, const char *file, GError **error)
{
	return result_file_refuse_input(export->output, file, error) &&
	       (!export->compare ||
		result_file_refuse_input(export->output, export->compare, error));
}

static bool export_query(void *data, char **operands, GError **error)
{
	struct export *export = data;

	bool learns = export->compare && export->reader.redacts;

	if (learns && strcmp(export->compare, "-") == 0)
		return cli_set_error(error, CLI_USAGE, "%s",
				     _("--redact reads the later capture twice: name its file"));
	if ((export->output && !refuse_inputs(export, operands[0], error)) ||
	    (learns && !capture_learn_names(export->compare, error)) ||
	    !read_to_fit(export, operands[0], error))
		return false;
	if (!export->output) { /* only now, because opening a capture redacts its name */
		export->output = export->name = page_name(export->reader.capture->file);
		if (!refuse_inputs(export, operands[0], error))
			return false;
	}
	if (export->compared && export->value == EXPORT_SAMPLES) {
		const char *event = profile_event_name(&export->profile);
		const char *other = profile_event_name(&export->compared->profile);

		if (strcmp(event, other) != 0)
			cli_warning(_("the event differs: '%s' and '%s'"), event, other);
	}
	return write_result(export, error);
}

static void export_done(struct export *export)
{
	if (export->compared)
		export_done(export->compared);
	g_clear_pointer(&export->compared, g_free);
	if (export->allocations)
		allocations_done(export->allocations);
	g_free(export->allocations);
	html_samples_done(&export->samples);
	if (export->ordered.run)
		export_samples_done(&export->ordered);
	html_waits_done(&export->html_waits);
	g_free(export->files);
	if (export->page)
		g_string_free(export->page, TRUE);
	g_free(export->name);
	profile_done(&export->waits);
	wait_places_done(&export->waiting);
	profile_done(&export->profile);
	own_weights_done(&export->own);
	code_files_done(&export->code);
	frame_filters_done(&export->filters);
	reader_done(&export->reader);
}

static int check_options(void *data)
{
	const struct export *export = data;
	bool is_rows = export->format == CSV || export->format == NDJSON;

	if (export->format < 0) {
		g_autofree char *all = g_strjoinv(", ", (char **)format_names);

		return cli_usage_error(_("choose a format: --to with one of %s"), all);
	}
	if (formats[export->format].allocations == ONLY_ALLOCATIONS && is_of_samples(export))
		return cli_usage_error(
			_("--to %s has allocations only: frame filters, --metric, --cpu and --mode apply to samples"),
			format_names[export->format]);
	if (export->value != EXPORT_SAMPLES &&
	    (formats[export->format].allocations != ALLOCATION_VALUE || is_of_samples(export)))
		return cli_usage_error(
			_("--value %s works with folded, speedscope, svg and callgrind only, without frame filters, --metric, --cpu and --mode"),
			value_names[export->value]);
	if (is_rows != (export->table != NULL))
		return cli_usage_error(
			is_rows ? _("--to %s needs --table TABLE")
				: _("--table works with csv and ndjson only, not with %s"),
			format_names[export->format]);
	if (formats[export->format].has_tables &&
	    (is_of_samples(export) || export->wants_inline || export->no_inline ||
	     export->reader.event || export->reader.redacts))
		return cli_usage_error(
			_("--to %s has whole rows: frame filters, --metric, --cpu, --mode, --no-inline, --event and --redact work with samples"),
			format_names[export->format]);
	if (export->format == SQLITE && (export->reader.range.from.kind != UNITS_TIME_UNSET ||
					 export->reader.range.to.kind != UNITS_TIME_UNSET ||
					 reader_filters_threads(&export->reader)))
		return cli_usage_error(
			"%s",
			_("--to sqlite has the whole capture; profcapture cut makes a capture of a part of it"));
	if (export->compare && !formats[export->format].compares)
		return cli_usage_error(
			_("--compare works with folded, speedscope, svg and html only"));
	return CLI_CONTINUE;
}

int verb_export(int argc, char **argv)
{
	static const struct reader_verb verb = {
		.spec = { N_("FILE --to FORMAT [-o NEW]"),
			  N_("Write samples in the format of another program."), 1, 1 },
		.check = check_options,
		.query = export_query,
	};
	CLEANUP(export_done)
	struct export export = { .output = "-", .format = -1, .reader.writes_empty = true };
	const struct cli_group groups[] = {
		{ NULL, options, &export },
		{ NULL, inline_options, &export },
		{ NULL, reader_redact_options, &export.reader },
		{ N_("Select"), time_options, &export.reader },
		{ NULL, reader_process_options, &export.reader },
		{ NULL, reader_thread_options, &export.reader },
		{ NULL, reader_cpu_options, &export.reader },
		{ NULL, reader_event_options, &export.reader },
		{ N_("Frames (regular expressions on function, file or image, as in pprof)"),
		  frame_filter_options, &export.filters },
		{ NULL, reader_interpreter_options, &export.reader },
		{ NULL }
	};

	return reader_run(&verb, groups, &export, argc, argv);
}

/* ---- the verbs of the page ------------------------------------------------------------------- */

static const struct cli_option compare_options[] = {
	{ "compare", 0, CLI_STRING, offsetof(struct export, compare), N_("LATER"),
	  N_("Compare with a later capture") },
	{ NULL },
};

static const struct cli_option source_options[] = {
	{ "with-source", 0, CLI_FLAG, offsetof(struct export, with_source), NULL,
	  N_("Add source lines and instructions of the hottest functions whose files can be found") },
	{ NULL },
};

static const struct cli_option html_options[] = {
	{ "output", 'o', CLI_STRING, offsetof(struct export, output), N_("NEW"),
	  N_("Write NEW (default: the capture's name with .html, in the current folder)") },
	{ "force", 0, CLI_FLAG, offsetof(struct export, force), NULL,
	  N_("Overwrite an existing file") },
	{ "quiet", 'q', CLI_FLAG, offsetof(struct export, is_quiet), NULL,
	  N_("Do not say how to open the file") },
	{ NULL },
};

/* --with-source needs a single capture, without redaction and without frame filters. */
static int check_source(void *data)
{
	const struct export *export = data;

	if (export->with_source &&
	    (export->compare || export->reader.redacts || frame_filters_any(&export->filters)))
		return cli_usage_error(_(
			"--with-source cannot be combined with --compare, --redact or frame filters"));
	if (!export->with_source &&
	    (export->code.source_folders || export->code.debug_folders || export->code.sysroot))
		return cli_usage_error(
			_("--source-dir, --debug-dir and --sysroot require --with-source"));
	return CLI_CONTINUE;
}

int verb_html(int argc, char **argv)
{
	static const struct reader_verb verb = {
		.spec = { N_("FILE [--compare LATER] [-o NEW]"),
			  N_("Write a report as one page for a browser. It needs no network and no other file."),
			  1, 1 },
		.check = check_source,
		.query = export_query,
	};
	CLEANUP(export_done) struct export export = { .format = HTML, .reader.writes_empty = true };
	const struct cli_group groups[] = {
		{ NULL, html_options, &export },
		{ NULL, inline_options, &export },
		{ NULL, compare_options, &export },
		{ NULL, reader_redact_options, &export.reader },
		{ NULL, source_options, &export },
		{ NULL, code_files_options, &export.code },
		READER_SELECT(N_("Select"), &export.reader),
		{ NULL, reader_cpu_options, &export.reader },
		{ NULL, reader_event_options, &export.reader },
		{ N_("Frames (regular expressions on function, file or image, as in pprof)"),
		  frame_filter_options, &export.filters },
		{ NULL, reader_interpreter_options, &export.reader },
		{ NULL }
	};

	return reader_run(&verb, groups, &export, argc, argv);
}

/* Starts $BROWSER or, on a desktop, the default browser. For root, only $BROWSER is used, because
 * the desktop belongs to the user who became root. */
static void open_page(const char *path)
{
	const char *browser = g_getenv("BROWSER");
	bool has_desktop = geteuid() != 0 && (g_getenv("DISPLAY") || g_getenv("WAYLAND_DISPLAY"));
	g_autofree char *opener = browser && *browser ? g_find_program_in_path(browser)
				  : has_desktop       ? g_find_program_in_path("xdg-open")
						      : NULL;
	char *command[] = { opener, (char *)path, NULL };

	if (opener)
		(void)g_spawn_async(NULL, command, NULL,
				    G_SPAWN_STDOUT_TO_DEV_NULL | G_SPAWN_STDERR_TO_DEV_NULL, NULL,
				    NULL, NULL, NULL);
}

static bool view_query(void *data, char **operands, GError **error)
{
	struct export *export = data;
	g_autofree char *folder = g_dir_make_tmp("profcapture-XXXXXX", error);
	g_autofree char *name = page_name(operands[0]);
	g_autofree char *path = folder ? g_build_filename(folder, name, NULL) : NULL;

	if (!folder)
		return false;
	export->output = path;
	if (!export_query(data, operands, error)) {
		(void)rmdir(folder);
		return false;
	}
	out_printf(out_stdout(), "%s\n", path);
	open_page(path);
	return true;
}

int verb_view(int argc, char **argv)
{
	static const struct reader_verb verb = {
		.spec = { N_("FILE [--compare LATER]"),
			  N_("Show a report in the browser ($BROWSER, or the desktop's), and print its path."),
			  1, 1 },
		.check = check_source,
		.query = view_query,
	};
	CLEANUP(export_done)
	struct export export = { .format = HTML, .is_quiet = true, .reader.writes_empty = true };
	const struct cli_group groups[] = { { NULL, compare_options, &export },
					    { NULL, source_options, &export },
					    { NULL, code_files_options, &export.code },
					    READER_SELECT(N_("Select"), &export.reader),
					    { NULL, reader_event_options, &export.reader },
					    { NULL } };

	return reader_run(&verb, groups, &export, argc, argv);
}
