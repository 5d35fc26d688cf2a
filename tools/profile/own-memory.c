/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "config.h"

#include "tools/profile/own-memory.h"

#include "base/each.h"
#include "tools/common/sorted.h"

enum { START, LENGTH, IMAGE, N_COLUMNS };
static const uint16_t columns[N_COLUMNS] = { PROF_MAPPING_START, PROF_MAPPING_LENGTH,
					     PROF_MAPPING_IMAGE };

struct range {
	uint64_t start, end, reach; /* reach: highest end of all ranges up to this one */
};

struct own_memory {
	GHashTable *ranges; /* image → GArray of struct range, sorted by start */
};

static void free_ranges(gpointer ranges)
{
	g_array_unref(ranges);
}

bool own_memory_is(const struct names_image *image)
{
	return (image->kind == PROF_IMAGE_ANON || image->kind == PROF_IMAGE_JIT) &&
	       image->process > NAMES_LOST;
}

static void add_row(struct own_memory *memory, struct names_epoch *epoch,
		    const struct prof_batch *batch, size_t row)
{
	const struct prof_array *c = batch->columns;
	uint64_t id, length;
	struct range range;
	uint32_t image;
	GArray *ranges;

	if (!array_number(&c[START], row, &range.start) ||
	    !array_number(&c[LENGTH], row, &length) || !array_number(&c[IMAGE], row, &id) ||
	    !add_u64(range.start, length, &range.end))
		return;
	image = names_image(epoch, id);
	if (!own_memory_is(names_image_at(epoch->names, image)))
		return;
	ranges = g_hash_table_lookup(memory->ranges, GUINT_TO_POINTER(image));
	if (!ranges) {
		ranges = g_array_new(FALSE, FALSE, sizeof(range));
		g_hash_table_insert(memory->ranges, GUINT_TO_POINTER(image), ranges);
	}
	g_array_append_val(ranges, range);
}

static bool add_rows(struct names_epoch *epoch, const struct prof_batch *batch, void *data,
		     GError **error)
{
	for (size_t i = 0; i < batch->rows; i++)
		add_row(data, epoch, batch, i);
	return true;
}

struct own_memory *own_memory_load(struct names *names, GError **error)
{
	struct own_memory *memory = g_new0(struct own_memory, 1);
	GHashTableIter iter;
	GArray *ranges;

	memory->ranges = g_hash_table_new_full(g_direct_hash, g_direct_equal, NULL, free_ranges);
	if (!names_each_batch(names, NAMES_COLUMNS_OF(PROF_TABLE_MAPPING, columns), add_rows,
			      memory, error)) {
		own_memory_free(memory);
		return NULL;
	}
	g_hash_table_iter_init(&iter, memory->ranges);
	while (g_hash_table_iter_next(&iter, NULL, (void **)&ranges)) {
		uint64_t reach = 0;

		g_array_sort(ranges, sorted_compare);
		ARRAY_EACH(struct range, range, ranges)
			range->reach = reach = MAX_OF(reach, range->end);
	}
	return memory;
}

void own_memory_free(struct own_memory *memory)
{
	if (!memory)
		return;
	g_hash_table_unref(memory->ranges);
	g_free(memory);
}

uint64_t own_memory_start(const struct own_memory *memory, uint32_t image, uint64_t address)
{
	const GArray *ranges = g_hash_table_lookup(memory->ranges, GUINT_TO_POINTER(image));

	for (guint low = sorted_array_upto(ranges, sizeof(struct range), address); low > 0; low--) {
		const struct range *range = &g_array_index(ranges, struct range, low - 1);

		if (range->reach <= address)
			break;
		if (address < range->end)
			return range->start;
	}
	return address;
}
