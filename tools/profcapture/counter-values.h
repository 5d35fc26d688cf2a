/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Counter-values - what counters were set to, in the order of the capture
 *
 * A counter is the same in every epoch: it has an index. Memory: a block for each counter.
 */
#pragma once

#include "tools/profcapture/reader.h"

struct counter {
	const char *group, *name, *unit; /* interned, which is enough to compare; NULL = none */
	uint64_t kind;                   /* enum prof_counter_kind, or one of a later version */
	uint32_t process;                /* index of names */
};

struct counter_value {
	uint32_t counter; /* index */
	uint32_t segment;
	int64_t time_ns; /* relative */
	double value;
};

struct counter_values {
	struct capture *capture;
	GArray *all;         /* struct counter by index */
	GHashTable *indexes; /* struct counter → index */
	uint64_t unknown;    /* values of which nobody knows what was counted */
	/* of the epoch at hand */
	uint32_t epoch;
	struct prof_dictionary *rows;
	uint32_t *index_of; /* index + 1 by row; 0 = not looked up yet */
};

/* `values` holds the capture and zeros. Makes identities of processes known. */
bool counter_values_read(struct counter_values *values,
			 void (*found)(const struct counter_value *value, void *data), void *data,
			 GError **error);
void counter_values_done(struct counter_values *values);

/* Does --pid let it pass? A counter of the machine is of no process. */
bool counter_is_wanted(const struct counter *counter, const struct reader *reader);

static inline const struct counter *counter_at(const struct counter_values *values, uint32_t index)
{
	return &((const struct counter *)(void *)values->all->data)[index];
}
