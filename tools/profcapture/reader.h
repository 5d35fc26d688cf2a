/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Reader - common parts of the verbs that read captures
 *
 * Provides options (time range, filters, limit, format), the open capture, and reader_run(), which
 * parses the options, runs the query and shows the answer. A verb whose answer is not one table
 * writes the envelope of its JSON itself:
 *
 *     reader_begin(&reader, &json, "report", …)   everything before the data
 *     …the data's members…                                 in JSON: inside the object "data"
 *     reader_end(&reader, &json)
 */
#pragma once

#include "tools/common/cli.h"
#include "tools/present/table.h"
#include "tools/profcapture/capture.h"
#include "tools/profcapture/thread-names.h"

#define READER_LIMIT_UNSET UINT64_MAX
/* Initializes a reader whose text has at most this many rows without --limit. */
#define READER_TEXT_ROWS(n)                                    \
	{                                                      \
		.limit = READER_LIMIT_UNSET, .text_limit = (n) \
	}
#define READER_USUAL_ROWS 40

enum reader_format { READER_TEXT, READER_JSON, READER_NDJSON, READER_CSV };

/* The rows that count: samples, waits, or both. */
enum reader_metric { READER_CPU, READER_OFF_CPU, READER_WALL };

struct reader {
	/* options */
	struct units_range range;
	GArray *pids, *tids, *cpus; /* uint32_t; NULL = all */
	GPtrArray *comms;           /* strings; NULL = all */
	const char *event;          /* event whose samples count; NULL = the first recorded */
	int metric;                 /* enum reader_metric */
	uint64_t limit;             /* 0 = all; READER_LIMIT_UNSET: text_limit for text, else all */
	uint64_t text_limit;
	int format; /* enum reader_format */
	bool json;
	int color; /* enum cli_color */
	bool no_pager;
	/* the verb reports damage itself: do not warn, and accept unreadable captures */
	bool judges_damage;
	/* if nothing is selected, only warn, because the exported file shows this */
	bool writes_empty;
	/* the verb reads a small part of the capture, so damage is known only after reading it */
	bool finds_damage_late;
	bool redacts; /* see capture_open() */
	bool interpreter_frames;
	/* after reader_open() */
	struct capture *capture;
	int64_t from_ns, to_ns; /* since the capture's start, both included */
	bool colored;           /* use colors in text */
	unsigned columns;       /* width of the terminal for text; 0 = no limit */
	bool is_padded;         /* text is for a terminal, even if `columns` is set to 0 later */
	bool timed;             /* the range is limited */
	bool has_warned;        /* a warning said that the options select nothing */
	/* set by the verb's query, for reader_run() */
	bool is_incomplete; /* rows of the verb's table may be missing */
	int status; /* exit status of an answer, or of a query that fails without an error */
	/* loaded if threads are selected by name, or by reader_load_names() */
	struct thread_names *thread_names;
	GByteArray *verdicts; /* cache of reader_wants_thread() by thread index: 0 = unknown */
};

extern const struct cli_option reader_time_options[];        /* --from --to */
extern const struct cli_option reader_process_options[];     /* --pid */
extern const struct cli_option reader_thread_options[];      /* --tid --comm */
extern const struct cli_option reader_cpu_options[];         /* --cpu */
extern const struct cli_option reader_event_options[];       /* --event --metric */
extern const struct cli_option reader_output_options[];      /* --limit --format --json --color */
extern const struct cli_option reader_pager_options[];       /* --no-pager */
extern const struct cli_option reader_redact_options[];      /* --redact */
extern const struct cli_option reader_interpreter_options[]; /* --interpreter-frames */
/* The groups that select rows by time and thread. */
#define READER_SELECT(title, reader)                                                      \
	{ title, reader_time_options, reader }, { NULL, reader_process_options, reader }, \
	{                                                                                 \
		NULL, reader_thread_options, reader                                       \
	}
extern const char *const reader_formats[];
extern const char *const reader_metrics[];

/* Opens the capture, resolves the range, and, unless finds_damage_late is set, reads the capture
 * once to find damage before anything is printed. A verb calls capture_warn() before it prints;
 * reader_done() calls it again for damage that was found later. */
bool reader_open(struct reader *reader, const char *file, GError **error);
void reader_done(struct reader *reader);
#define CLEANUP_READER CLEANUP(reader_done)

/* Stores the range [from_ns, to_ns] as clock values of a segment. */
void reader_clock_range(const struct reader *reader, uint32_t segment, uint64_t *ret_from,
			uint64_t *ret_to);
/* Returns whether --pid, --tid and --comm select the thread (index in names) at some time. */
bool reader_wants_thread(struct reader *reader, uint32_t thread);
/* Returns whether --pid, --tid and --comm select the thread at time_ns. --comm is compared with the
 * name that the thread had then. */
bool reader_wants_thread_at(struct reader *reader, uint32_t thread, int64_t time_ns);
/* Loads the names of threads over time. Returns false on error. Until this is called,
 * reader_comm_at() returns the thread's last name. */
bool reader_load_names(struct reader *reader, GError **error);
const char *reader_comm_at(const struct reader *reader, uint32_t thread, int64_t time_ns);
void reader_forget_threads(struct reader *reader); /* must be called after names_forget() */
bool reader_wants_cpu(const struct reader *reader, uint64_t cpu);
/* Returns whether --pid, --tid or --comm is given. */
bool reader_filters_threads(const struct reader *reader);

/* Converts a time to nanoseconds since the capture's start (a relative time). For the name of a
 * mark, the result is the mark's start or, with `end`, its end. For an unset time, it is
 * `otherwise`. */
bool reader_resolve_time(const struct reader *reader, const struct units_time *time, bool end,
			 int64_t otherwise, int64_t *ret_ns, GError **error);
/* Returns whether an answer without rows is an error. In text it is an error, because it would look
 * like good news. Formats for programs get a valid answer and a warning, and so does text if the
 * capture lacks rows that may have matched, or if judges_damage or writes_empty is set. */
bool reader_fails_empty(const struct reader *reader);
/* If from_ns is after the end of the capture, fails if reader_fails_empty(), else warns. */
bool reader_check_start(struct reader *reader, int64_t from_ns, GError **error);
/* Sets the error that a mark does not exist. Returns false. */
bool reader_no_mark(const struct reader *reader, const char *name, GError **error);

static inline enum json_format reader_json_format(const struct reader *reader)
{
	return reader->format == READER_CSV      ? JSON_FORMAT_CSV
	       : reader->format == READER_NDJSON ? JSON_FORMAT_NDJSON
						 : JSON_FORMAT_JSON;
}

/* Starts a pager for text that goes to a terminal. */
void reader_page(const struct reader *reader);
/* `truncated`: --limit hides rows. `total`: how many rows all lists have without --limit. */
#define READER_TOTAL_UNKNOWN UINT64_MAX
void reader_begin(const struct reader *reader, struct json *json, const char *verb, bool truncated,
		  uint64_t total);
void reader_end(const struct reader *reader, struct json *json);
/* Sets the style of the text that follows, if colors are wanted. */
enum reader_style { READER_PLAIN, READER_BOLD, READER_WARNING };
void reader_style(const struct reader *reader, struct out *out, enum reader_style style);
/* Prints at most `most` losses of the capture as a warning (0: all). */
#define READER_LOSSES 8 /* for verbs that report something other than losses */
void reader_print_losses(const struct reader *reader, struct out *out, uint64_t most);
/* Prints the share of missed ticks if the share exceeds READER_MIN_MISSED_PCT. Smaller shares are
 * normal in virtual machines. */
#define READER_MIN_MISSED_PCT 1.0
void reader_print_missed_ticks(const struct reader *reader, struct out *out);
/* Returns whether the capture is finished, undamaged and without known losses. */
bool reader_is_complete(const struct reader *reader);
/* Prints that names were lost, if the answer needed a lost name. */
void reader_print_lost_names(const struct reader *reader, struct out *out);
/* Returns whether rows of this table may be missing: because of damage anywhere in the capture that
 * has been found (see capture_check()), or because of a loss in the reader's time range. Losses of
 * kernel events are not considered. */
bool reader_misses_rows(const struct reader *reader, const char *table);
/* Stores in *ret_has whether the capture has, or may have lost, rows of this table, even outside of
 * the time range. */
bool reader_has_rows(const struct reader *reader, unsigned table, bool *ret_has, GError **error);
/* Returns how many lost records in the range, at least, may have been rows of these tables
 * (NULL-terminated), in one stream, or in all if `stream` is NULL. */
uint64_t reader_lost_rows(const struct reader *reader, const char *const *tables,
			  const char *stream);
/* Returns how many of `all` rows --limit shows. */
size_t reader_shown(const struct reader *reader, size_t all);
/* Prints the rows that --limit shows, then the number of hidden rows. */
void reader_print_table(const struct reader *reader, struct out *out, const struct table *table);
/* Writes the rows that --limit shows. */
void reader_write_table(const struct reader *reader, struct json *json, const struct table *table);
/* Prints "showing 20 of 3412" if rows are hidden. */
void reader_print_limit(const struct reader *reader, struct out *out, uint64_t shown, uint64_t all);

/* A verb that reads a capture. `data` is the verb's struct, which begins with struct reader. */
struct reader_verb {
	struct cli_spec spec;
	/* Checks the options. Returns CLI_CONTINUE, or an exit status after a message. */
	int (*check)(void *data);
	/* Opens the capture and computes the answer. */
	bool (*query)(void *data, char **operands, GError **error);
	/* If print and write are NULL, the query shows its answer itself. */
	void (*print)(const void *data, struct out *out);
	void (*write)(const void *data, struct json *json);
	bool is_paged; /* the text is long */
	/* For an answer that is one table: its name in the schema, and the table. `print` then
	 * prints only the sentence above the table. */
	const char *name;
	struct table (*table)(const void *data);
	const char *incomplete; /* N_(): printed if is_incomplete */
	const char *empty; /* N_(): the error if the table has no rows, with a %s for the file */
};

/* Runs the verb and returns its exit status. The caller frees the struct, also after a failure. */
int reader_run(const struct reader_verb *verb, const struct cli_group *groups, void *data, int argc,
	       char **argv);
/* Opens a capture. If it has no rows of the table, fails with message `none`, which has a %s for
 * the file. */
bool reader_open_rows(struct reader *reader, const char *file, unsigned table, const char *none,
		      GError **error);
/* Opens a capture, and reads its waits once to find damage. Fails if the capture does not say which
 * threads ended waits. */
bool reader_open_wakers(struct reader *reader, const char *file, GError **error);
