/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Capture - an open capture, as the verbs of profcapture see it
 *
 * Opens the file, gathers what every verb says about it (the "capture" object of the JSON envelope,
 * the losses) and turns times of any segment into nanoseconds since the first segment's start:
 * within a boot by the monotonic clock, across boots by the wall clock of the segments.
 */
#pragma once

#include "tools/common/json.h"
#include "tools/common/names.h"
#include "tools/profcapture/sampled-events.h"

struct capture_loss {
	const char *stream, *cause;
	uint64_t count; /* 0: unknown, at least one */
	uint64_t bytes;
	int64_t from_ns, to_ns; /* relative */
};

/* How many records are missing, or 1 where that is unknown. */
static inline uint64_t capture_loss_least(const struct capture_loss *loss)
{
	return MAX_OF(loss->count, UINT64_C(1));
}

struct capture {
	char *file; /* as given; "-" is standard input */
	struct prof_reader *reader;
	struct names *names;
	struct sampled_events *sampled; /* sampled_events_read() fills them in */
	const struct prof_segment *segments;
	size_t n_segments;
	int64_t duration_ns;
	uint64_t indexed_samples, indexed_events; /* as the chunks' headers have them */
	uint64_t lost;                            /* at least, where lost_incomplete */
	uint64_t missed_ticks;
	bool lost_incomplete; /* the number of some losses is unknown */
	bool is_damaged;      /* where no reading shows it */
	bool is_quiet;        /* capture_warn() leaves damage to the verb */
	uint64_t warned_of;   /* capture_warn(): damaged chunks and lost rows, plus 1 */
	/* of struct capture_loss, by stream, cause and whether the count is known */
	GArray *losses;
	GHashTable *loss_indexes; /* cause and stream → index in losses */
	GHashTable *metadata;     /* interned key → GBytes; a later row of a key replaces */
	GHashTable *metadata_of;  /* the same by segment: number, line feed and key */
};

struct capture *capture_open(const char *file, GError **error);
void capture_free(struct capture *capture);
static inline void capture_cleanup(struct capture **capture)
{
	capture_free(*capture);
}
#define CLEANUP_CAPTURE CLEANUP(capture_cleanup)

/* Relative time of a clock value of a segment (number as in batches). */
int64_t capture_time(const struct capture *capture, uint32_t segment, uint64_t time);
/* The clock value of a relative time in a segment, bounded to what a clock can show. */
uint64_t capture_clock(const struct capture *capture, uint32_t segment, int64_t relative);

/* Text of a metadata key, or NULL: the file's last, and what the recording of a segment says,
 * which may be of another kind. */
const char *capture_metadata(const struct capture *capture, const char *key);
const char *capture_metadata_of(const struct capture *capture, uint32_t segment, const char *key);

/* Every end of a thread, by process (index of names): a process ends with its last one, which
 * need not be its main thread. Makes every thread and process of the task table known. */
bool capture_each_exit(const struct capture *capture,
		       void (*ended)(uint32_t process, int64_t time_ns, void *data), void *data,
		       GError **error);

/* Hands out the chunks of a table (0 = all) in file order, until one says false. */
bool capture_each_chunk(const struct capture *capture, unsigned table,
			bool (*chunk)(const struct prof_chunk *chunk, void *data, GError **error),
			void *data, GError **error);

/*
 * Damage. Whatever reads through the capture's reader (cursors, dictionaries) leaves behind in it
 * what it could not read; these report it, and the state and counts follow from it. Damage of
 * payloads is met when they are read, so:
 */
/* Reads all dictionaries, and what reaches into the range of relative times: damaged bytes are
 * known from then on. */
bool capture_scan(struct capture *capture, int64_t from_ns, int64_t to_ns, GError **error);
/* False where nothing of the capture can be read, as far as is known. */
bool capture_refuse_nothing(const struct capture *capture, GError **error);
/* Decodes the chunks of a table (0 = all), so that also damage behind whole bytes is known, and
 * what exactly is lost. */
bool capture_check(struct capture *capture, unsigned table, GError **error);
/* What of a table (0 = all) could not be read so far. */
struct prof_lost capture_unreadable(const struct capture *capture, unsigned table);
/* May rows of a table be missing, as far as is known? */
bool capture_lacks_rows(const struct capture *capture, unsigned table);
enum prof_state capture_state(const struct capture *capture);
const char *capture_state_name(const struct capture *capture);
/* Rows that can be read: samples, and those of all timed tables but loss and metadata. */
uint64_t capture_samples(const struct capture *capture);
uint64_t capture_events(const struct capture *capture);

/* On stderr: that the capture is unfinished, damaged or joined with another, when it is. Says it
 * once, and again when more damage was met. */
void capture_warn(struct capture *capture);
/* The "capture" object, and the array of LOSS. */
void capture_write_json(const struct capture *capture, struct json *json, const char *key);
void capture_write_losses(const struct capture *capture, struct json *json, const char *key);
/* Lines about loss for people, the largest first and at most `most` (0: all) and a sum of the
 * others; nothing when nothing was lost. Ticks that the kernel missed are no loss of ours. */
void capture_print_losses(const struct capture *capture, struct out *out, uint64_t most);
void capture_print_missed_ticks(const struct capture *capture, struct out *out, double least_pct);
/* The recorded command as a shell would read it; nothing where there was none. */
void capture_print_command(const struct capture *capture, struct out *out);
