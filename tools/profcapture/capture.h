/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Capture - an open capture, as the verbs of profcapture see it
 *
 * Opens the file, gathers what every verb reports about it (the "capture" object in JSON; losses:
 * capture-losses.h) and converts times of any segment to nanoseconds since the first segment's
 * start. Within a boot, it uses the monotonic clock; across boots, the wall clock of the segments.
 */
#pragma once

#include "tools/common/json.h"
#include "tools/profile/sampled-events.h"
#include "tools/symbols/names.h"

struct capture {
	char *file; /* path as given; "-" is standard input; if redacted, its last part */
	struct redactor *redactor; /* NULL: texts are not redacted */
	struct prof_reader *reader;
	struct names *names;
	struct sampled_events *sampled; /* sampled_events_read() fills them in */
	const struct prof_segment *segments;
	size_t n_segments;
	int64_t duration_ns;
	uint64_t indexed_samples, indexed_events; /* from the chunks' headers */
	uint64_t lost;                            /* a minimum if lost_incomplete */
	uint64_t missed_ticks;
	bool lost_incomplete; /* the number of some losses is unknown */
	bool is_damaged;      /* set by verify: damage that reading does not show */
	bool is_quiet;        /* the verb itself reports damage, instead of capture_warn() */
	uint64_t warned_of;   /* 1 + amount of damage at the last capture_warn(); 0: not called */
	/* struct capture_loss: one for each combination of stream, cause, and known or unknown
	 * count */
	GArray *losses;
	GHashTable *loss_indexes; /* cause, known or unknown count, and stream → index in losses */
	GHashTable *metadata;     /* interned key → GBytes: the last value in the file */
	GHashTable *metadata_of; /* segment number, line feed, key → GBytes: the segment's value */
};

/* Learns the names to redact from a capture that is shown later, after other captures. */
bool capture_learn_names(const char *file, GError **error);
/* `redacts`: removes what identifies the machine and its users from all texts (redact.h), using the
 * names learned from all captures so far. */
struct capture *capture_open(const char *file, bool redacts, GError **error);
void capture_free(struct capture *capture);
static inline void capture_cleanup(struct capture **capture)
{
	capture_free(*capture);
}
#define CLEANUP_CAPTURE CLEANUP(capture_cleanup)

/* Converts a segment's clock value to a relative time, in ns since the capture's start. `segment`:
 * number as in batches. */
int64_t capture_time(const struct capture *capture, uint32_t segment, uint64_t time);
/* Converts a relative time to a segment's clock value, clamped to the clock's range. */
uint64_t capture_clock(const struct capture *capture, uint32_t segment, int64_t relative);

/* Return the text of a metadata key: the last one in the file, or that of a segment; NULL if the
 * key is missing. Texts may differ, because segments may come from recordings with different
 * options. */
const char *capture_metadata(const struct capture *capture, const char *key);
const char *capture_metadata_of(const struct capture *capture, uint32_t segment, const char *key);

/* Returns whether the whole system was recorded. */
bool capture_is_system(const struct capture *capture);

/* Calls `ended` for every exit of a thread, with its process (index in names). A process ends with
 * its last thread, which is not always its main thread. Loads every thread and process of the task
 * table into names. */
bool capture_each_exit(const struct capture *capture,
		       void (*ended)(uint32_t process, int64_t time_ns, void *data), void *data,
		       GError **error);

/* Calls `chunk` for each chunk of a table (0 = all) in file order, until it returns false. */
bool capture_each_chunk(const struct capture *capture, unsigned table,
			bool (*chunk)(const struct prof_chunk *chunk, void *data, GError **error),
			void *data, GError **error);

/* Returns the position of the first column, lists excepted, that has a ref to a table, or
 * CAPTURE_NO_COLUMN. */
#define CAPTURE_NO_COLUMN UINT_MAX
unsigned capture_column_referring(const struct prof_table_def *def, unsigned table);

/* Returns whether rows of a table count as events. All timed tables except losses and metadata
 * do. */
bool capture_is_event_table(const struct prof_table_def *table);
/* Returns whether an item of a row's list is only a text: a value of a sample that is a string or
 * could not be read. `texts`: the column of texts, if the table is that of samples. */
bool capture_has_no_number(const struct prof_table_def *table, unsigned column,
			   const struct prof_array *texts, size_t row, uint64_t item);

/*
 * Damage. The functions below report what cursors and dictionaries could not read. Damage inside a
 * chunk is found only when the chunk is read, so some functions read chunks for this purpose:
 */
/* Reads all dictionaries and every chunk that overlaps [from_ns, to_ns], to find damaged bytes. */
bool capture_scan(struct capture *capture, int64_t from_ns, int64_t to_ns, GError **error);
/* Returns false if damage found so far makes the whole capture unreadable. */
bool capture_refuse_nothing(const struct capture *capture, GError **error);
/* Decodes the chunks of a table (0 = all), to find damage inside chunks whose checksums match, and
 * to find exactly which rows are lost. */
bool capture_check(struct capture *capture, unsigned table, GError **error);
/* Returns what could not be read of a table (0 = all) so far. */
struct prof_lost capture_unreadable(const struct capture *capture, unsigned table);
/* Returns whether rows of a table may be missing, as far as known so far. */
bool capture_lacks_rows(const struct capture *capture, unsigned table);
enum prof_state capture_state(const struct capture *capture);
const char *capture_state_name(const struct capture *capture);
/* Return the number of readable samples, and of readable events: rows of all timed tables except
 * losses and metadata. */
uint64_t capture_samples(const struct capture *capture);
uint64_t capture_events(const struct capture *capture);

/* Warns on stderr if the capture is unfinished, damaged or joined with another. Warns once, and
 * again if more damage is found later. */
void capture_warn(struct capture *capture);
void capture_write_json(const struct capture *capture, struct json *json, const char *key);
/* Returns the recorded command, escaped and quoted for a shell, cut to `columns` (0: no limit); ""
 * if no command was recorded. */
#define CAPTURE_COMMAND_COLUMNS 60 /* in sentences */
char *capture_command(const struct capture *capture, unsigned columns) MUST_CHECK;
