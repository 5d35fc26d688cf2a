/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Export-samples - each sample of a profile, in the order of threads and of time
 *
 * Formats with the samples of a thread side by side need this order, which is not that of a
 * capture. A long capture has more samples than memory should hold: they are sorted in runs, which
 * are merged into a temporary file.
 */
#pragma once

#include "tools/profcapture/profile.h"

/* The samples of a thread; the first member is for sorted.h. */
struct export_thread_samples {
	uint64_t thread; /* index in names */
	uint64_t first, n;
};

struct export_samples {
	guint most;      /* maximum number of samples that are sorted in memory */
	GArray *run;     /* struct profile_sample: the samples that are not in `runs` yet */
	struct out runs; /* a file with the earlier runs, each in order */
	GArray *ends;    /* uint64_t: the number of samples up to the end of each run in the file */
	struct out file; /* all samples in order */
	GArray *threads; /* struct export_thread_samples, by thread */
	GArray *window;  /* struct profile_sample: those read last from `file` */
	uint64_t window_first;
	GError *error; /* the first error */
};

void export_samples_init(struct export_samples *samples);
void export_samples_done(struct export_samples *samples);
/* For profile.take: adds samples. Errors are reported by export_samples_sort(). */
void export_samples_take(const struct profile_sample *each, size_t n, void *samples);
/* Fills in `threads`. No more samples can be added. */
bool export_samples_sort(struct export_samples *samples, GError **error);
/* Returns a sample by its place in the order. If the file cannot be read, sets samples->error, and
 * returns zeros. */
struct profile_sample export_samples_at(struct export_samples *samples, uint64_t index);
