/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Maps - the code mappings of a process
 *
 * The executable mappings are in a sorted array. The kernel reports new mappings, but never an
 * munmap. A stale mapping stays until a new mapping, or a scan of /proc, replaces it. This is
 * harmless, because no code runs there.
 * Invariants: (1) ranges are sorted and do not overlap  [test-engine-tasks: maps_overlap]
 *             (2) a change affects one process, not the others that share the array
 *                 [test-engine-tasks: maps_fork]
 *             (3) a mapping newer than a scan survives it          [test-engine-tasks: maps_scan]
 * Runs on the drain thread only.
 */
#include "daemon/engine/model/maps.h"

#include "arch/base.h"

#include <string.h>

static uint64_t next_version(void)
{
	static uint64_t version;

	return ++version;
}

struct maps *maps_new(void)
{
	struct maps *maps = g_new0(struct maps, 1);

	maps->refs = 1;
	maps->version = next_version();
	return maps;
}

struct maps *maps_ref(struct maps *maps)
{
	maps->refs++;
	return maps;
}

void maps_unref(struct maps *maps)
{
	if (!maps || --maps->refs)
		return;
	g_free(maps->mappings);
	g_free(maps);
}

static void reserve(struct maps *maps, uint32_t n)
{
	if (n <= maps->allocated)
		return;
	maps->allocated = MAX(n, maps->allocated + maps->allocated / 2 + 4);
	maps->mappings = g_renew(struct mapping, maps->mappings, maps->allocated);
}

static struct maps *own(struct maps **maps)
{
	struct maps *copy;

	if ((*maps)->refs == 1)
		return *maps;
	copy = maps_new();
	reserve(copy, (*maps)->n + 2);
	if ((*maps)->n)
		memcpy(copy->mappings, (*maps)->mappings, (*maps)->n * sizeof(*copy->mappings));
	copy->n = (*maps)->n;
	copy->version = (*maps)->version;
	maps_unref(*maps);
	*maps = copy;
	return copy;
}

/* Returns the index of the first mapping that ends above the address. */
static uint32_t lower_bound(const struct maps *maps, uint64_t address)
{
	uint32_t low = 0, high = maps->n, middle;

	while (low < high) {
		middle = low + (high - low) / 2;
		if (maps->mappings[middle].end > address)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

const struct mapping *maps_find(const struct maps *maps, uint64_t address)
{
	uint32_t i = lower_bound(maps, address);

	if (i == maps->n || maps->mappings[i].start > address)
		return NULL;
	return &maps->mappings[i];
}

/* Returns the part of a mapping above `from`. */
static struct mapping upper_part(const struct mapping *mapping, uint64_t from)
{
	struct mapping part = *mapping;

	part.file_offset += from - part.start;
	part.start = from;
	return part;
}

void maps_insert(struct maps **shared, const struct mapping *mapping)
{
	struct maps *maps = own(shared);
	uint32_t first = lower_bound(maps, mapping->start), last = first;
	struct mapping pieces[3];
	uint32_t n = 0;

	while (last < maps->n && maps->mappings[last].start < mapping->end)
		last++;
	if (first < last && maps->mappings[first].start < mapping->start) {
		pieces[n] = maps->mappings[first];
		pieces[n++].end = mapping->start;
	}
	pieces[n++] = *mapping;
	if (first < last && maps->mappings[last - 1].end > mapping->end)
		pieces[n++] = upper_part(&maps->mappings[last - 1], mapping->end);
	reserve(maps, maps->n - (last - first) + n);
	memmove(maps->mappings + first + n, maps->mappings + last,
		(maps->n - last) * sizeof(*maps->mappings));
	memcpy(maps->mappings + first, pieces, n * sizeof(*pieces));
	maps->n = maps->n - (last - first) + n;
	maps->version = next_version();
}

void maps_insert_anonymous(struct maps **maps, const struct mapping *mapping, const char *exe)
{
	struct mapping rest = *mapping;

	while (rest.start < rest.end) {
		uint32_t i = lower_bound(*maps, rest.start);
		struct mapping part = rest;

		for (; i < (*maps)->n && (*maps)->mappings[i].start < rest.end; i++) {
			const struct image *image = (*maps)->mappings[i].image;

			if (image && image->kind == PROF_IMAGE_FILE &&
			    strcmp(image->path, exe) == 0)
				break;
		}
		if (i == (*maps)->n || (*maps)->mappings[i].start >= rest.end) {
			maps_insert(maps, &rest);
			return;
		}
		part.end = (*maps)->mappings[i].start;
		rest = upper_part(&rest, MIN_OF(rest.end, (*maps)->mappings[i].end));
		if (part.start < part.end)
			maps_insert(maps, &part);
	}
}

void maps_replace(struct maps **shared, const struct mapping *scanned, size_t n, uint64_t time_ns)
{
	struct maps *fresh = maps_new();

	reserve(fresh, n);
	if (n)
		memcpy(fresh->mappings, scanned, n * sizeof(*scanned));
	fresh->n = n;
	for (uint32_t i = 0; i < (*shared)->n; i++)
		if ((*shared)->mappings[i].time_ns > time_ns)
			maps_insert(&fresh, &(*shared)->mappings[i]);
	maps_unref(*shared);
	*shared = fresh;
}

void maps_set_row(struct maps **shared, const struct mapping *mapping, uint32_t process)
{
	size_t i = mapping - (*shared)->mappings;

	own(shared)->mappings[i].row_process = process;
}
