/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Progress - the progress of a recording, on standard error
 *
 * On a terminal one line, redrawn at each report of profd (about once a second); in a file or a log
 * a line every ten seconds.
 */
#include "config.h"

#include "tools/profctl/progress.h"

#include "tools/common/cli.h"

#include <glib/gi18n.h>
#include <stdio.h>

#define LINE_INTERVAL_US (10 * G_USEC_PER_SEC)

void progress_init(struct progress *progress, const struct record_options *options)
{
	*progress = (struct progress){ .terminal = isatty(STDERR_FILENO) };
	progress->target = record_options_target(options, false);
	/* a command writes to the terminal, too; its output is not broken up */
	progress->shown = !options->quiet && !(progress->terminal && options->command);
}

void progress_begin(struct progress *progress)
{
	progress->start_us = progress->last_us = g_get_monotonic_time();
}

void progress_clear(struct progress *progress)
{
	if (progress->drawn)
		fputs("\r\033[K", stderr);
	progress->drawn = false;
}

/* "Recording ./shop: 1.2 s, 1,329 samples, 20.7 KiB, nothing lost. Ctrl-C stops." */
static char *line(const struct progress *progress, int64_t now,
		  const struct client_counters *counters)
{
	g_autofree char *elapsed =
		text_duration((uint64_t)(now - progress->start_us) / 100000 * 100000000);
	g_autofree char *count =
		text_count(counters->samples ? counters->samples : counters->events);
	g_autofree char *lost = text_count(counters->lost);
	g_autofree char *bytes = text_bytes(counters->bytes);
	const char *stops = _(" Ctrl-C stops.");
	GString *text = g_string_new(NULL);

	g_string_printf(text,
			counters->samples || !counters->events
				? _("Recording %s: %s, %s samples, %s, ")
				: _("Recording %s: %s, %s events, %s, "),
			progress->target, elapsed, count, bytes);
	if (counters->lost)
		g_string_append_printf(text, _("%s lost."), lost);
	else
		g_string_append(text, _("nothing lost."));
	if (text_width(text->str) + text_width(stops) < cli_columns(STDERR_FILENO))
		g_string_append(text, stops);
	return g_string_free(text, FALSE);
}

void progress_update(struct progress *progress, const struct client_counters *counters)
{
	int64_t now = g_get_monotonic_time();
	g_autofree char *text = NULL;

	if (!progress->shown || !progress->start_us)
		return;
	if (!progress->terminal && now - progress->last_us < LINE_INTERVAL_US)
		return;
	progress->last_us = now;
	text = line(progress, now, counters);
	if (progress->terminal) {
		unsigned columns = MAX_OF(cli_columns(STDERR_FILENO), 2u) - 1;
		g_autofree char *fitting = text_width(text) > columns
						   ? text_fit(text, columns, TEXT_LEFT)
						   : g_strdup(text);

		fprintf(stderr, "\r%s\033[K", fitting);
		fflush(stderr);
		progress->drawn = true;
	} else {
		fprintf(stderr, "profctl: %s\n", text);
	}
}

void progress_done(struct progress *progress)
{
	progress_clear(progress);
	g_clear_pointer(&progress->target, g_free);
}
