/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "config.h"

#include "tools/profcapture/memory-peak.h"

void memory_parts_init(struct memory_parts *parts)
{
	parts->now = g_array_new(FALSE, TRUE, sizeof(struct memory_sum));
	parts->most = g_array_new(FALSE, TRUE, sizeof(struct memory_sum));
	parts->changed = g_array_new(FALSE, FALSE, sizeof(uint32_t));
	parts->flags = g_byte_array_new();
}

void memory_parts_done(struct memory_parts *parts)
{
	g_array_unref(parts->now);
	g_array_unref(parts->most);
	g_array_unref(parts->changed);
	g_byte_array_unref(parts->flags);
}

void memory_parts_add(struct memory_parts *parts, uint32_t index, double bytes, double blocks,
		      bool wants_most)
{
	uint8_t *is_changed;

	memory_sum_add(memory_sum_of(parts->now, index), bytes, blocks);
	if (!wants_most)
		return;
	is_changed = memory_byte_at(parts->flags, index);
	if (!*is_changed)
		g_array_append_val(parts->changed, index);
	*is_changed = 1;
}

void memory_parts_note(struct memory_parts *parts)
{
	if (parts->most->len < parts->now->len)
		g_array_set_size(parts->most, parts->now->len);
	for (guint i = 0; i < parts->changed->len; i++) {
		uint32_t index = g_array_index(parts->changed, uint32_t, i);

		g_array_index(parts->most, struct memory_sum, index) =
			memory_sum_at(parts->now, index);
		parts->flags->data[index] = 0;
	}
	g_array_set_size(parts->changed, 0);
}
