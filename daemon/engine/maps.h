/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/images.h"

#include <stddef.h>
#include <stdint.h>

struct mapping {
	uint64_t start, end;
	uint64_t file_offset;
	uint64_t time_ns;     /* when it was seen */
	struct image *image;  /* NULL: anonymous */
	uint32_t row_process; /* the process that has a row of it in the capture */
};

/* Executable mappings of a process, sorted and apart; shared by processes after fork until one
 * changes. */
struct maps {
	unsigned int refs;
	uint32_t n, allocated;
	uint64_t version; /* the same version has the same ranges */
	struct mapping *mappings;
};

struct maps *maps_new(void);
struct maps *maps_ref(struct maps *maps);
void maps_unref(struct maps *maps); /* takes NULL */

/* Puts a mapping over what was there. */
void maps_insert(struct maps **maps, const struct mapping *mapping);
/*
 * Puts anonymous memory over what was there, except over the code of the program itself (`exe` is
 * its path): programs copy their code onto huge pages in its place (node --use-largepages, HHVM).
 */
void maps_insert_anonymous(struct maps **maps, const struct mapping *mapping, const char *exe);
/* What /proc said at time_ns: it replaces whatever is not newer. `scanned` is sorted and its
 * ranges lie apart. */
void maps_replace(struct maps **maps, const struct mapping *scanned, size_t n, uint64_t time_ns);
const struct mapping *maps_find(const struct maps *maps, uint64_t address);
/* Remembers that `process` has a row of the mapping. */
void maps_set_row(struct maps **maps, const struct mapping *mapping, uint32_t process);
