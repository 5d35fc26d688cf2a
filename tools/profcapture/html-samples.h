/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Html-samples - the samples of a capture for the page, merged while they are read
 *
 * Samples of the same thread and stack in the same unit of time are one row. Whenever there are too
 * many rows, the unit grows, so that memory is bounded however long the recording is. The unit does
 * not depend on the order in which samples are merged  [test-html-samples: units]
 */
#pragma once

#include "tools/profcapture/profile.h"

struct html_sample {
	uint32_t time; /* in units of html_samples.unit_ns */
	uint32_t thread, stack, count;
	uint64_t weight;
};

struct html_samples {
	guint most; /* maximum number of rows, unless the unit is the largest */
	uint64_t unit_ns;
	uint64_t most_unit_ns; /* the unit stops growing when it reaches this */
	GArray *all;           /* struct html_sample */
	guint n_merged;        /* number of rows at the start that are sorted and merged */
};

/* `unit_ns`: a power of two. */
void html_samples_init(struct html_samples *samples, uint64_t unit_ns, int64_t duration_ns);
void html_samples_done(struct html_samples *samples);
void html_samples_add(struct html_samples *samples, const struct html_sample *sample);
/* Sorts the rows by time, thread and stack, and merges rows in which all three are equal. */
void html_samples_merge(struct html_samples *samples);
/* Changes the unit, and divides the times accordingly. */
void html_samples_set_unit(struct html_samples *samples, uint64_t unit_ns);
/* Adds samples of a profile; each has a thread (index in names) and a stack (node). `data`: struct
 * html_samples. */
void html_samples_take(const struct profile_sample *each, size_t n, void *data);
