/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/model/images.h"

#include <stddef.h>
#include <stdint.h>

struct mapping {
	uint64_t start, end;
	uint64_t file_offset;
	uint64_t time_ns;     /* when the mapping was recorded */
	struct image *image;  /* NULL: anonymous */
	uint32_t row_process; /* id of the process for which this mapping's row was written */
};

/* Executable mappings of a process, sorted and without overlaps; processes share them after fork
 * until one changes them. */
struct maps {
	unsigned int refs;
	uint32_t n, allocated;
	uint64_t version; /* maps with equal versions have equal ranges */
	struct mapping *mappings;
};

struct maps *maps_new(void);
struct maps *maps_ref(struct maps *maps);
void maps_unref(struct maps *maps); /* NULL is allowed */

/* Inserts a mapping; replaces any others in its range. */
void maps_insert(struct maps **maps, const struct mapping *mapping);
/* Inserts anonymous memory. Replaces the mappings in its range, but not the code of the program,
 * whose path is `exe`, because some programs move their code onto huge pages at the same address
 * (node --use-largepages, HHVM). */
void maps_insert_anonymous(struct maps **maps, const struct mapping *mapping, const char *exe);
/* Replaces all mappings that are not newer than time_ns by `scanned`, which was read from /proc at
 * that time. `scanned` must be sorted, without overlaps. */
void maps_replace(struct maps **maps, const struct mapping *scanned, size_t n, uint64_t time_ns);
const struct mapping *maps_find(const struct maps *maps, uint64_t address);
/* Records that `process` has a row for the mapping in the capture. */
void maps_set_row(struct maps **maps, const struct mapping *mapping, uint32_t process);
