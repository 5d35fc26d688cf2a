/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Diff-notes - differences between the captures that are not changes of the program, but may look
 * like one
 */
#include "config.h"

#include "tools/profcapture/diff.h"

#include <glib/gi18n.h>
#include <inttypes.h>
#include <string.h>

/* Durations that differ by more get a note. */
#define DURATION_RATIO 2.0
/* Losing more than this share of the events can hide a change, or look like one. */
#define LOSS_SHARE 0.01

static void add(struct diff *diff, const char *code, char *text)
{
	struct diff_note note = { code, text };

	g_array_append_val(diff->notes, note);
}

static const char *metadata(const struct diff *diff, const struct diff_side *run, const char *key)
{
	const char *text = capture_metadata(diff_run_reader(diff, run)->capture, key);

	return text ? text : "-";
}

/* Returns the first run whose text differs from that of the first run of all, or NULL. */
static const struct diff_side *other_text(const struct diff *diff, const char *key)
{
	const char *first = metadata(diff, diff_run(diff, DIFF_A, 0), key);

	for (unsigned side = 0; side < DIFF_SIDES; side++)
		for (guint i = 0; i < diff->runs[side]->len; i++)
			if (strcmp(metadata(diff, diff_run(diff, side, i), key), first) != 0)
				return diff_run(diff, side, i);
	return NULL;
}

static void note_text(struct diff *diff, const char *code, const char *key, const char *what)
{
	const struct diff_side *other = other_text(diff, key);

	if (other)
		add(diff, code,
		    g_strdup_printf(_("%s differs: '%s' and '%s'"), what,
				    metadata(diff, diff_run(diff, DIFF_A, 0), key),
				    metadata(diff, other, key)));
}

static void note_duration(struct diff *diff)
{
	uint64_t least = UINT64_MAX, most = 0;

	for (unsigned side = 0; side < DIFF_SIDES; side++) {
		for (guint i = 0; i < diff->runs[side]->len; i++) {
			const struct diff_side *run = diff_run(diff, side, i);

			least = MIN_OF(least, (uint64_t)(run->to_ns - run->from_ns));
			most = MAX_OF(most, (uint64_t)(run->to_ns - run->from_ns));
		}
	}
	if ((double)most > DURATION_RATIO * (double)least) {
		g_autofree char *a = text_duration(least), *b = text_duration(most);

		add(diff, "duration", g_strdup_printf(_("durations differ: %s and %s"), a, b));
	}
}

/* Missing data may be what changed. Samples whose name is missing are in no row of their
 * function. */
static void note_damage(struct diff *diff, const struct diff_side *run)
{
	const struct capture *capture = diff_run_reader(diff, run)->capture;

	if (capture_state(capture) == PROF_STATE_DAMAGED)
		add(diff, "damage",
		    g_strdup_printf(_("'%s' is damaged, so no change is judged"), capture->file));
	else if (capture_metadata(capture, "damaged"))
		add(diff, "damage",
		    g_strdup_printf(_("'%s' was made of a damaged capture, so no change is judged"),
				    capture->file));
	else if (capture->names->lost)
		add(diff, "damage",
		    g_strdup_printf(_("'%s' lacks names that it refers to, so no change is judged"),
				    capture->file));
	else
		return;
	diff->is_damaged = true;
}

static void note_losses(struct diff *diff, const struct diff_side *run)
{
	const struct capture *capture = diff_run_reader(diff, run)->capture;
	g_autofree char *lost = text_count(capture->lost);

	if ((double)capture->lost > LOSS_SHARE * run->all.events)
		add(diff, "loss",
		    g_strdup_printf(_("'%s' lost %s events, which may look like a change"),
				    capture->file, lost));
}

static void note_few(struct diff *diff, const struct diff_side *run)
{
	const char *file = diff_run_reader(diff, run)->capture->file;
	double evidence = diff_evidence(diff, &run->all);

	if (diff->measure == DIFF_PEAK || evidence >= DIFF_LEAST_ALL)
		return;
	add(diff, "few",
	    run->all.events < DIFF_LEAST_ALL
		    ? g_strdup_printf(
			      _("'%s' has %.0f of what is counted, too few to tell a change from noise: it takes %d"),
			      file, run->all.events, DIFF_LEAST_ALL)
		    : g_strdup_printf(
			      _("'%s' has %.0f samples, of which a few stand for most events: they tell as much as %.0f of equal weight, and it takes %d"),
			      file, run->all.events, evidence, DIFF_LEAST_ALL));
}

static void note_sampling(struct diff *diff, const struct diff_side *run)
{
	double a = diff_run(diff, DIFF_A, 0)->memory.sampled_bytes;
	double b = run->memory.sampled_bytes;

	if (a != b)
		add(diff, "sampling",
		    g_strdup_printf(
			    _("allocations were sampled differently: one every %.0f and %.0f bytes (0: all)"),
			    a, b));
}

static bool check_event(struct diff *diff, const struct diff_side *run, GError **error)
{
	const char *a = tally_event_name(&diff_run(diff, DIFF_A, 0)->tally);
	const char *b = tally_event_name(&run->tally);

	/* A name lost to damage is not a different event; note_damage() reports it. */
	if (strcmp(a, b) == 0 || strcmp(a, NAMES_LOST_TEXT) == 0 || strcmp(b, NAMES_LOST_TEXT) == 0)
		return true;
	if (diff->norm != DIFF_BY_SAMPLES) {
		g_set_error(
			error, CLI_ERROR, CLI_USAGE,
			_("samples of '%s' and of '%s' are no measure of the same; only their shares can be compared: --normalise samples"),
			a, b);
		return false;
	}
	add(diff, "event", g_strdup_printf(_("the event differs: '%s' and '%s'"), a, b));
	return true;
}

static void note_frequency(struct diff *diff)
{
	uint64_t first = diff_run(diff, DIFF_A, 0)->tally.period_ns;
	bool is_same = first != 0;

	for (unsigned side = 0; side < DIFF_SIDES; side++)
		for (guint i = 0; i < diff->runs[side]->len; i++)
			is_same = is_same && diff_run(diff, side, i)->tally.period_ns == first;
	if (!is_same)
		note_text(diff, "frequency", "frequency_hz", _("the frequency"));
}

bool diff_note_all(struct diff *diff, GError **error)
{
	for (unsigned side = 0; side < DIFF_SIDES; side++) {
		for (guint i = 0; i < diff->runs[side]->len; i++) {
			const struct diff_side *run = diff_run(diff, side, i);

			if (diff->measure != DIFF_SAMPLES)
				note_sampling(diff, run);
			else if (!check_event(diff, run, error))
				return false;
		}
	}
	if (diff->measure == DIFF_SAMPLES)
		note_frequency(diff);
	note_text(diff, "host", "host", _("the machine"));
	note_text(diff, "arch", "arch", _("the architecture"));
	note_duration(diff);
	for (unsigned side = 0; side < DIFF_SIDES; side++) {
		for (guint i = 0; i < diff->runs[side]->len; i++) {
			note_damage(diff, diff_run(diff, side, i));
			note_losses(diff, diff_run(diff, side, i));
			note_few(diff, diff_run(diff, side, i));
		}
	}
	return true;
}

void diff_notes_done(struct diff *diff)
{
	if (!diff->notes)
		return;
	for (guint i = 0; i < diff->notes->len; i++)
		g_free(g_array_index(diff->notes, struct diff_note, i).text);
	g_array_unref(diff->notes);
}
