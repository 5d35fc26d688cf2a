/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Reader - what the verbs that read have in common
 *
 * Their options (time range, filters, limit, format), the open capture, and the envelope around
 * their answer:
 *
 *     struct reader reader = { .limit = READER_LIMIT_UNSET, .text_limit = 20 };
 *     const struct cli_group groups[] = { { NULL, options, &mine },
 *                                         { NULL, reader_time_options, &reader }, …, { NULL } };
 *     …cli_parse()…
 *     if (!reader_open(&reader, argv[0], &error)) …
 *     reader_begin(&reader, &json, "report", truncated)   in JSON what stands before the data
 *     …the data's members…                                 in JSON inside the object "data"
 *     reader_end(&reader, &json)
 */
#pragma once

#include "tools/common/cli.h"
#include "tools/profcapture/capture.h"
#include "tools/profcapture/thread-names.h"

#define READER_LIMIT_UNSET UINT64_MAX

enum reader_format { READER_TEXT, READER_JSON, READER_NDJSON, READER_CSV };

struct reader {
	/* options */
	struct units_range range;
	GArray *pids, *tids, *cpus; /* of uint32_t; NULL = all */
	GPtrArray *comms;           /* of text; NULL = all */
	const char *event;          /* of samples; NULL = the first that was recorded */
	uint64_t limit;             /* 0 = all; READER_LIMIT_UNSET: text_limit for text, else all */
	uint64_t text_limit;
	int format; /* enum reader_format */
	bool json;
	int color; /* enum cli_color */
	bool no_pager;
	/* it is the verb's answer: no warning, and a capture of which nothing is left is not
	 * refused */
	bool judges_damage;
	/* after reader_open() */
	struct capture *capture;
	int64_t from_ns, to_ns; /* relative, both included */
	bool colored;           /* text is */
	unsigned columns;       /* of the terminal that text goes to; 0 = no limit */
	bool timed;             /* the range is less than everything */
	/* read where threads are chosen by name, or reader_load_names() was called */
	struct thread_names *thread_names;
	GByteArray *verdicts; /* of reader_wants_thread(), by thread index: 0 = not asked yet */
};

extern const struct cli_option reader_time_options[];    /* --from --to */
extern const struct cli_option reader_process_options[]; /* --pid */
extern const struct cli_option reader_thread_options[];  /* --tid --comm */
extern const struct cli_option reader_cpu_options[];     /* --cpu */
extern const struct cli_option reader_event_options[];   /* --event */
extern const struct cli_option reader_output_options[];  /* --limit --format --json --color */
extern const struct cli_option reader_pager_options[];   /* --no-pager */
extern const char *const reader_formats[];

/* Opens, resolves the range, and reads what is in it once, so that damage is known before
 * anything is printed. A verb calls capture_warn() before it answers; reader_done() does what a
 * verb forgot. */
bool reader_open(struct reader *reader, const char *file, GError **error);
void reader_done(struct reader *reader);
#define CLEANUP_READER CLEANUP(reader_done)

/* Clock values of [from_ns, to_ns] in a segment. */
void reader_clock_range(const struct reader *reader, uint32_t segment, uint64_t *ret_from,
			uint64_t *ret_to);
/* Do --pid, --tid and --comm let this thread (index of names) pass, at some time? */
bool reader_wants_thread(struct reader *reader, uint32_t thread);
/* The same at a relative time, as threads may have had several names. */
bool reader_wants_thread_at(struct reader *reader, uint32_t thread, int64_t time_ns);
/* What threads are called at each time; false: failure. reader_comm_at() is the last name where
 * that was not called. */
bool reader_load_names(struct reader *reader, GError **error);
const char *reader_comm_at(const struct reader *reader, uint32_t thread, int64_t time_ns);
void reader_forget_threads(struct reader *reader); /* after names_forget() */
bool reader_wants_cpu(const struct reader *reader, uint64_t cpu);
/* Is anything but the time filtered by? */
bool reader_filters_threads(const struct reader *reader);

/* A time, relative; at a mark where it begins, or, with `end`, where it ends. `otherwise` where
 * it is unset. */
bool reader_resolve_time(const struct reader *reader, const struct units_time *time, bool end,
			 int64_t otherwise, int64_t *ret_ns, GError **error);
/* Sets the error that there is no mark of that name; returns false. */
bool reader_no_mark(const struct reader *reader, const char *name, GError **error);

static inline enum json_format reader_json_format(const struct reader *reader)
{
	return reader->format == READER_CSV      ? JSON_FORMAT_CSV
	       : reader->format == READER_NDJSON ? JSON_FORMAT_NDJSON
						 : JSON_FORMAT_JSON;
}

/* Text goes to a pager from here on, where it goes to a terminal. */
void reader_page(const struct reader *reader);
void reader_begin(const struct reader *reader, struct json *json, const char *verb, bool truncated);
void reader_end(const struct reader *reader, struct json *json);
/* What follows in text stands out, where colours are wanted; until the next call. */
enum reader_style { READER_PLAIN, READER_BOLD, READER_WARNING, READER_HOT };
void reader_style(const struct reader *reader, struct out *out, enum reader_style style);
/* The style of so much of a whole, in percent: what is hot stands out. */
enum reader_style reader_heat(double percent);
/* The rest of a line of which `used` columns are written: escapes, cuts what does not fit, and
 * ends the line. */
void reader_end_line(const struct reader *reader, struct out *out, const char *bytes,
		     unsigned used);
/* The losses of the capture, as a warning, at most `most` of them (0: all). */
#define READER_LOSSES 8 /* enough where they are not what was asked for */
void reader_print_losses(const struct reader *reader, struct out *out, uint64_t most);
/* The ticks that the capture misses, if they are more than so many percent of all; a virtual
 * machine always misses some. */
#define READER_MIN_MISSED_PCT 1.0
void reader_print_missed_ticks(const struct reader *reader, struct out *out);
/* Is the capture whole, and was nothing lost, as far as is known? */
bool reader_is_complete(const struct reader *reader);
/* That names were lost, where some that were looked for are. */
void reader_print_lost_names(const struct reader *reader, struct out *out);
/* Was anything lost in the reader's range of time that may have been rows which collectors made
 * for this table? What is damaged counts once it was met: capture_check(). */
bool reader_misses_rows(const struct reader *reader, const char *table);
/* Has the capture rows of this table, at any time, or may it have lost some? */
bool reader_has_rows(const struct reader *reader, unsigned table, bool *ret_has, GError **error);
/* How many records were lost in the range that may have been rows of these tables (NULL at the
 * end), of a stream or (NULL) of all. */
uint64_t reader_lost_rows(const struct reader *reader, const char *const *tables,
			  const char *stream);
/* "showing 20 of 3412", when that is so. */
void reader_print_limit(const struct reader *reader, struct out *out, uint64_t shown, uint64_t all);
