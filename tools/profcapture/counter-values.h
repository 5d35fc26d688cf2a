/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Counter-values - reads the values of counters, in the order of the capture
 *
 * A counter has the same index in every epoch. counter_values_read() keeps no values.
 */
#pragma once

#include "tools/profcapture/reader.h"

struct counter {
	const char *group, *name, *unit; /* interned, so pointers can be compared; NULL = none */
	uint64_t kind;    /* enum prof_counter_kind; a later version may define more */
	uint32_t process; /* index in names */
};

struct counter_value {
	uint32_t counter; /* index */
	uint32_t segment;
	int64_t time_ns; /* since the capture's start */
	double value;
};

struct counter_values {
	struct capture *capture;
	GArray *all;         /* struct counter by index */
	GHashTable *indexes; /* struct counter → index */
	uint64_t unknown;    /* number of values of undefined counters */
	/* the current epoch */
	uint32_t epoch;
	struct prof_dictionary *rows;
	uint32_t *index_of; /* index + 1 by row; 0 = not looked up yet */
};

/* Calls `found` for every value, in the order of the capture. The caller sets `capture` and zeroes
 * the rest. Loads the identities of processes. */
bool counter_values_read(struct counter_values *values,
			 void (*found)(const struct counter_value *value, void *data), void *data,
			 GError **error);
void counter_values_done(struct counter_values *values);

struct ranged_value {
	int64_t time_ns;
	double value;
};
/* Returns, for each counter, an array of struct ranged_value by time: the finite values in the time
 * range. The value at the start of the range is the first point. NULL on failure. */
GPtrArray *counter_values_of_range(struct counter_values *values, const struct reader *reader,
				   GError **error);

/* A value of a process's resident memory. */
struct counter_rss {
	int64_t time_ns;
	uint32_t counter; /* index */
	double bytes;
};
/* Reads the resident memory of the processes that --pid selects, until --to. Returns an array of
 * struct counter_rss; NULL on failure. Sort it with counter_rss_compare(). */
GArray *counter_values_read_rss(struct counter_values *values, const struct reader *reader,
				GError **error);
gint counter_rss_compare(gconstpointer left, gconstpointer right); /* by time */

/* Notes a time at an index. `times`: int64_t, the latest time noted at each index. */
void latest_note(GArray *times, guint index, int64_t time_ns);
/* Returns the latest time at an index; `otherwise` if no time was noted. */
int64_t latest_or(const GArray *times, guint index, int64_t otherwise);
/* Returns the latest exit time of each process for latest_or(), by index in names; NULL on
 * failure. */
GArray *counter_values_read_exits(const struct capture *capture, GError **error);

/* Returns the name of each process's main thread, by index in names; NULL: it is not known. The
 * caller frees the array. */
const char **counter_values_comms(const struct names *names);

/* Returns whether --pid selects the counter's process; true without --pid. With --pid, counters of
 * the whole machine are not wanted, because they belong to no process. */
bool counter_is_wanted(const struct counter *counter, const struct reader *reader);

static inline const struct counter *counter_at(const struct counter_values *values, uint32_t index)
{
	return &((const struct counter *)(void *)values->all->data)[index];
}
