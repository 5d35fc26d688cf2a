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

void progress_init(struct progress *progress, bool quiet, bool shared)
{
	*progress = (struct progress){ .terminal = isatty(STDERR_FILENO) };
	progress->shown = !quiet && !(progress->terminal && shared);
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

static char *line(const struct progress *progress, int64_t now,
		  const struct client_counters *counters)
{
	g_autofree char *elapsed =
		text_duration((uint64_t)(now - progress->start_us) / 100000 * 100000000);
	g_autofree char *samples = text_count(counters->samples);
	g_autofree char *events = text_count(counters->events);
	g_autofree char *lost = text_count(counters->lost);
	g_autofree char *bytes = text_bytes(counters->bytes);

	return g_strdup_printf(_("%s: %s samples, %s events, %s lost, %s"), elapsed, samples,
			       events, lost, bytes);
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
		g_autofree char *fitting =
			text_fit(text, MAX_OF(cli_columns(STDERR_FILENO), 2u) - 1, TEXT_LEFT);

		fprintf(stderr, "\r%s\033[K", fitting);
		fflush(stderr);
		progress->drawn = true;
	} else {
		fprintf(stderr, "profctl: %s\n", text);
	}
}
