/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Diff-notes - what two captures differ in that has nothing to do with what was recorded, and may look like it
 */
#include "config.h"

#include "tools/profcapture/diff.h"

#include <glib/gi18n.h>
#include <inttypes.h>
#include <string.h>

/* Recordings that differ by more are said to. */
#define DURATION_RATIO 2.0
/* More loss than this share of what there is can hide a change, or look like one. */
#define LOSS_SHARE 0.01

static void add(struct diff *diff, const char *code, char *text)
{
	struct diff_note note = { code, text };

	g_array_append_val(diff->notes, note);
}

static const char *metadata(const struct diff *diff, unsigned side, const char *key)
{
	const char *text = capture_metadata(diff_reader(diff, side)->capture, key);

	return text ? text : "-";
}

static void note_text(struct diff *diff, const char *code, const char *key, const char *what)
{
	const char *a = metadata(diff, DIFF_A, key), *b = metadata(diff, DIFF_B, key);

	if (strcmp(a, b) != 0)
		add(diff, code, g_strdup_printf(_("%s differs: '%s' and '%s'"), what, a, b));
}

static void note_duration(struct diff *diff)
{
	uint64_t ns[DIFF_SIDES];

	for (unsigned i = 0; i < DIFF_SIDES; i++)
		ns[i] = (uint64_t)(diff->sides[i].to_ns - diff->sides[i].from_ns);
	if ((double)MAX_OF(ns[0], ns[1]) > DURATION_RATIO * (double)MIN_OF(ns[0], ns[1])) {
		g_autofree char *a = text_duration(ns[DIFF_A]), *b = text_duration(ns[DIFF_B]);

		add(diff, "duration", g_strdup_printf(_("durations differ: %s and %s"), a, b));
	}
}

/* What is missing may be what changed, and a name that is missing is in no row of its function. */
static void note_damage(struct diff *diff, unsigned side)
{
	const struct capture *capture = diff_reader(diff, side)->capture;

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

static void note_losses(struct diff *diff, unsigned side)
{
	const struct capture *capture = diff_reader(diff, side)->capture;
	g_autofree char *lost = text_count(capture->lost);

	if ((double)capture->lost > LOSS_SHARE * diff->sides[side].all.events)
		add(diff, "loss",
		    g_strdup_printf(_("'%s' lost %s events, which may look like a change"),
				    capture->file, lost));
}

static void note_few(struct diff *diff, unsigned side)
{
	const struct diff_side *of = &diff->sides[side];

	if (diff->measure != DIFF_PEAK && diff_evidence(diff, &of->all) < DIFF_LEAST_ALL)
		add(diff, "few",
		    g_strdup_printf(
			    _("'%s' has %.0f of what is counted, too few to tell a change from noise: it takes %d"),
			    diff_reader(diff, side)->capture->file, diff_evidence(diff, &of->all),
			    DIFF_LEAST_ALL));
}

static void note_sampling(struct diff *diff)
{
	double a = diff->sides[DIFF_A].memory.sampled_bytes;
	double b = diff->sides[DIFF_B].memory.sampled_bytes;

	if (a != b)
		add(diff, "sampling",
		    g_strdup_printf(
			    _("allocations were sampled differently: one every %.0f and %.0f bytes (0: all)"),
			    a, b));
}

static bool check_events(struct diff *diff, GError **error)
{
	const char *a = tally_event_name(&diff->sides[DIFF_A].tally);
	const char *b = tally_event_name(&diff->sides[DIFF_B].tally);
	/* A name that damage took is no other one; note_damage() has it. */
	bool is_different = strcmp(a, b) != 0 && strcmp(a, NAMES_LOST_TEXT) != 0 &&
			    strcmp(b, NAMES_LOST_TEXT) != 0;

	if (is_different && diff->norm != DIFF_BY_SAMPLES) {
		g_set_error(
			error, CLI_ERROR, CLI_USAGE,
			_("samples of '%s' and of '%s' are no measure of the same; only their shares can be compared: --normalise samples"),
			a, b);
		return false;
	}
	if (is_different)
		add(diff, "event", g_strdup_printf(_("the event differs: '%s' and '%s'"), a, b));
	if (diff->sides[DIFF_A].tally.period_ns != diff->sides[DIFF_B].tally.period_ns ||
	    diff->sides[DIFF_A].tally.period_ns == 0)
		note_text(diff, "frequency", "frequency_hz", _("the frequency"));
	return true;
}

bool diff_note_all(struct diff *diff, GError **error)
{
	if (diff->measure != DIFF_SAMPLES)
		note_sampling(diff);
	else if (!check_events(diff, error))
		return false;
	note_text(diff, "host", "host", _("the machine"));
	note_text(diff, "arch", "arch", _("the architecture"));
	note_duration(diff);
	for (unsigned side = 0; side < DIFF_SIDES; side++) {
		note_damage(diff, side);
		note_losses(diff, side);
		note_few(diff, side);
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
