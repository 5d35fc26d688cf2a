/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Diff-notes - reports differences between captures that the rows do not show
 *
 * A note names a difference that looks like a change of the program, but has another cause, such
 * as another machine or lost events; or a change that samples of the CPU do not show, such as
 * longer waits. Damage and a lack of data prevent a verdict.
 */
#include "config.h"

#include "tools/profcapture/capture-losses.h"
#include "tools/profcapture/diff.h"

#include <glib/gi18n.h>
#include <string.h>

/* A greater ratio of durations gets a note. */
#define DURATION_RATIO 2.0
/* A greater share of lost events can hide a change, or look like one. */
#define LOSS_SHARE 0.01
/* Waiting gets a note if it grew by this share of A's duration, and by this time. */
#define WAIT_SHARE 0.1
#define WAIT_NS 10e6
/* If a greater share of a capture's samples has no name, the capture has no functions to
 * compare. */
#define MOST_UNNAMED 0.5

static void note(struct diff *diff, const char *code, bool prevents_verdict, const char *format,
		 ...) PRINTF_LIKE(4, 5);

static void note(struct diff *diff, const char *code, bool prevents_verdict, const char *format,
		 ...)
{
	struct diff_note *note = g_new(struct diff_note, 1);
	va_list arguments;

	va_start(arguments, format);
	*note = (struct diff_note){ code, g_strdup_vprintf(format, arguments), prevents_verdict };
	va_end(arguments);
	g_ptr_array_add(diff->notes, note);
	diff->prevents_verdict |= prevents_verdict;
}

/* Compares the metadata of all runs with run 0's. Adds a note on the first difference. */
static void note_metadata(struct diff *diff, const char *code, const char *key, const char *what)
{
	const char *first = NULL;

	for (guint i = 0; i < diff->runs->len; i++) {
		const char *text = capture_metadata(diff_run_at(diff, i)->reader->capture, key);

		text = text ? text : "-";
		first = first ? first : text;
		if (strcmp(first, text) != 0) {
			note(diff, code, false, _("%s differs: '%s' and '%s'"), what, first, text);
			return;
		}
	}
}

/* Adds a note on missing data, which may look like a change. Samples whose names are lost are
 * missing from the rows of their functions. */
static void note_state(struct diff *diff, const struct capture *capture)
{
	enum prof_state state = capture_state(capture);
	const char *code = "damage", *text = NULL;

	if (state == PROF_STATE_DAMAGED)
		text = _("%s is damaged. Record again.");
	else if (capture_metadata(capture, "damaged"))
		text = _("%s was made of a damaged capture. Record again.");
	else if (capture->names->lost)
		text = _("%s lacks names that it refers to. Record again.");
	diff->is_damaged |= text != NULL;
	if (!text && state != PROF_STATE_FINISHED) {
		code = "unfinished";
		text = _("%s is unfinished. Record again.");
		diff->is_unfinished = true;
	}
	if (text)
		note(diff, code, true, text, capture->file);
}

void diff_note_free(gpointer note)
{
	g_free(((struct diff_note *)note)->text);
	g_free(note);
}

/* Returns whether any file has symbols. The kernel does not count: it has symbols even if nothing
 * was symbolized. */
static bool is_symbolized(const struct profile *profile)
{
	const struct names *names = profile->functions->names;

	for (uint32_t i = NAMES_LOST + 1; i < names->images->len; i++)
		if (names_image_at(names, i)->kind == PROF_IMAGE_FILE &&
		    symbol_rows_any(profile->functions->symbols, i))
			return true;
	return false;
}

static void note_run(struct diff *diff, const struct diff_run *run)
{
	const struct capture *capture = run->reader->capture;
	bool is_samples = diff->measure == DIFF_SAMPLES;
	bool waits = is_samples && run->reader->metric == READER_OFF_CPU;
	double events = run->all.events, evidence = diff_evidence_of(diff, &run->all);
	g_autofree char *lost = capture_lost_text(capture), *count = text_count((uint64_t)events);

	note_state(diff, capture);
	if ((double)capture->lost > LOSS_SHARE * events)
		note(diff, "loss", false, _("'%s' lost %s, which may look like a change"),
		     capture->file, lost);
	if (diff->measure != DIFF_PEAK && evidence < DIFF_LEAST_ALL) {
		if (events >= DIFF_LEAST_ALL)
			note(diff, "few", true,
			     waits ? _("%s has %s waits, but a few make up most of the time (as good as %.0f waits; %d are needed). Record longer.")
			     : is_samples
				     ? _("%s has %s samples, but a few stand for most events (as good as %.0f samples; %d are needed). Record longer.")
				     : _("%s has %s allocations, but a few make up most of the bytes (as good as %.0f allocations; %d are needed). Record longer."),
			     capture->file, count, evidence, DIFF_LEAST_ALL);
		else if (events == 0 && capture_samples(capture) > 0 && is_samples)
			note(diff, "few", true, _("no sample of %s passes the filters."),
			     capture->file);
		else
			note(diff, "few", true,
			     waits ? _("%s has %s waits; %d are needed. Record longer.")
			     : is_samples
				     ? _("%s has %s samples; %d are needed. Record longer or raise -F.")
				     : _("%s has %s allocations; %d are needed. Record longer."),
			     capture->file, count, DIFF_LEAST_ALL);
		/* If a filter selects nothing, do not blame a lack of data. */
		diff->is_few |= events > 0 || !is_samples || capture_samples(capture) == 0;
	}
	if (is_samples && !is_symbolized(&run->profile) &&
	    (double)run->profile.unresolved > MOST_UNNAMED * (double)run->profile.all.samples) {
		note(diff, "unnamed", true,
		     _("most samples of %s have no name. Add the names that this machine has: profcapture symbolize %s"),
		     capture->file, capture->file);
		diff->is_few = true;
	}
}

/* How long each side waited: at one place or, if `place` is NULL, in total. */
struct diff_waits {
	char *place;
	double ns[DIFF_SIDES];
};

static void free_waits(gpointer data)
{
	struct diff_waits *waits = data;

	g_free(waits->place);
	g_free(waits);
}

/* Adds the waits of a run to those of its side. Returns whether the run has waits. */
static bool add_waits(const struct diff *diff, struct diff_run *run, struct diff_waits *all,
		      GHashTable *places)
{
	struct wait_places waiting = { 0 };
	CLEANUP_PROFILE struct profile profile = {
		.by = PROFILE_FUNCTION, .inlined = true, .joins_inlined = true, .waiting = &waiting
	};
	g_autoptr(GArray) rows = NULL;
	bool has = false;

	run->reader->metric = READER_OFF_CPU;
	has = reader_has_rows(run->reader, PROF_TABLE_WAIT, &has, NULL) && has &&
	      profile_run(&profile, run->reader, NULL);
	run->reader->metric = READER_CPU;
	rows = wait_places_rows(&waiting);
	all->ns[run->side] += (double)profile.all.weight / diff->n_runs[run->side];
	for (guint i = 0; has && i < rows->len; i++) {
		const struct wait_place *at = &g_array_index(rows, struct wait_place, i);
		const struct function *f = at->function > FUNCTION_LOST
						   ? functions_at(profile.functions, at->function)
						   : NULL;
		g_autofree char *name = f ? function_name_for_people(f->name, f->raw_name) : NULL;
		const char *call = at->call ? at->call : wait_cause_names[at->cause];
		g_autofree char *place = name ? g_strdup_printf(_("%s in %s"), call, name)
					      : g_strdup(call);
		struct diff_waits *waits = g_hash_table_lookup(places, place);

		if (!waits) {
			waits = g_new0(struct diff_waits, 1);
			waits->place = g_steal_pointer(&place);
			g_hash_table_insert(places, waits->place, waits);
		}
		waits->ns[run->side] += (double)at->weight / diff->n_runs[run->side];
	}
	wait_places_done(&waiting);
	return has;
}

/* Adds a note if B waited longer than A: samples of the CPU do not show waits. Adds no note if CPU
 * time grew as much, because a thread may just have waited for that work. */
static void note_waits(struct diff *diff)
{
	g_autoptr(GHashTable)
		places = g_hash_table_new_full(g_str_hash, g_str_equal, NULL, free_waits);
	struct diff_waits all = { 0 };
	const struct diff_waits *most = NULL, *waits;
	double wall_ns = 0, computed_ns = 0, longer;
	GHashTableIter iter;

	for (guint i = 0; i < diff->runs->len; i++) {
		struct diff_run *run = diff_run_at(diff, i);

		if (!add_waits(diff, run, &all, places))
			return;
		if (run->side == DIFF_A)
			wall_ns += (double)(run->to_ns - run->from_ns) / diff->n_runs[DIFF_A];
		if (strcmp(profile_unit(&run->profile), "ns") == 0)
			computed_ns += (run->side == DIFF_B ? 1.0 : -1.0) *
				       (double)run->profile.all.weight / diff->n_runs[run->side];
	}
	longer = all.ns[DIFF_B] - all.ns[DIFF_A];
	if (longer < WAIT_NS || longer < WAIT_SHARE * wall_ns || longer < computed_ns ||
	    g_hash_table_size(places) == 0)
		return;
	g_hash_table_iter_init(&iter, places);
	while (g_hash_table_iter_next(&iter, NULL, (gpointer *)&waits))
		if (!most ||
		    waits->ns[DIFF_B] - waits->ns[DIFF_A] > most->ns[DIFF_B] - most->ns[DIFF_A])
			most = waits;
	g_autofree char *total = text_duration((uint64_t)longer);
	g_autofree char *a = text_duration((uint64_t)all.ns[DIFF_A]);
	g_autofree char *b = text_duration((uint64_t)all.ns[DIFF_B]);
	g_autofree char *part =
		text_duration((uint64_t)MAX_OF(most->ns[DIFF_B] - most->ns[DIFF_A], 0.0));

	note(diff, "waiting", false,
	     _("the second waited %s longer (%s, then %s), most of all %s (%s longer); --metric off-cpu compares waits"),
	     total, a, b, most->place, part);
}

void diff_add_notes(struct diff *diff)
{
	const struct diff_run *first = diff_run_at(diff, 0);
	bool is_same_period = first->profile.period_ns != 0,
	     is_samples = diff->measure == DIFF_SAMPLES;
	const char *event = is_samples ? profile_event_name(&first->profile) : NULL;
	uint64_t least = UINT64_MAX, most = 0;

	diff->has_events = true;
	for (guint i = 0; i < diff->runs->len; i++) {
		const struct diff_run *run = diff_run_at(diff, i);
		const char *other = is_samples ? profile_event_name(&run->profile) : NULL;

		least = MIN_OF(least, (uint64_t)(run->to_ns - run->from_ns));
		most = MAX_OF(most, (uint64_t)(run->to_ns - run->from_ns));
		is_same_period &= run->profile.period_ns == first->profile.period_ns;
		if (!is_samples && run->memory.sampled_bytes != first->memory.sampled_bytes)
			note(diff, "sampling", false,
			     _("allocations were sampled differently: one every %.0f and %.0f bytes (0: all)"),
			     first->memory.sampled_bytes, run->memory.sampled_bytes);
		/* Ignore names lost to damage, which note_state() reports. */
		if (is_samples && strcmp(event, other) != 0 &&
		    strcmp(event, NAMES_LOST_TEXT) != 0 && strcmp(other, NAMES_LOST_TEXT) != 0) {
			note(diff, "event", false, _("the event differs: '%s' and '%s'"), event,
			     other);
			diff->has_events = false;
		}
	}
	if (is_samples && !is_same_period)
		note_metadata(diff, "frequency", "frequency_hz", _("the frequency"));
	note_metadata(diff, "host", "host", _("the machine"));
	note_metadata(diff, "arch", "arch", _("the architecture"));
	if ((double)most > DURATION_RATIO * (double)least) {
		g_autofree char *a = text_duration(least), *b = text_duration(most);

		note(diff, "duration", false, _("durations differ: %s and %s"), a, b);
	}
	for (guint i = 0; i < diff->runs->len; i++)
		note_run(diff, diff_run_at(diff, i));
	if (is_samples && first->reader->metric == READER_CPU)
		note_waits(diff);
}
