/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Capture-losses - the records that a capture lacks, by stream and cause
 */
#pragma once

#include "tools/profcapture/capture.h"

struct capture_loss {
	const char *stream, *cause;
	uint64_t count; /* 0: unknown, but at least one */
	uint64_t bytes;
	int64_t from_ns, to_ns; /* since the capture's start */
};

/* Returns the number of missing records; 1 if it is unknown. */
static inline uint64_t capture_loss_least(const struct capture_loss *loss)
{
	return MAX_OF(loss->count, UINT64_C(1));
}

/* Adds rows of the table of losses to the capture. */
void capture_losses_add(struct capture *capture, const struct prof_batch *batch);
void capture_write_losses(const struct capture *capture, struct json *json, const char *key);
/* Prints losses as text, the largest first: at most `most` lines (0: all), then a sum of the rest.
 * Prints nothing if nothing was lost. Ticks that the kernel missed do not count as losses. */
void capture_print_losses(const struct capture *capture, struct out *out, uint64_t most);
/* Returns `lost` in percent of all records, read or lost. */
double capture_lost_percent(const struct capture *capture, uint64_t lost);
/* Returns how many records were lost, such as "6 records (1.4 % of all)". */
char *capture_lost_text(const struct capture *capture) MUST_CHECK;
/* Returns "from 0.024 s to 3.54 s", whose numbers can be given to --from and --to. */
char *capture_describe_span(int64_t from_ns, int64_t to_ns) MUST_CHECK;
void capture_print_missed_ticks(const struct capture *capture, struct out *out, double least_pct);
