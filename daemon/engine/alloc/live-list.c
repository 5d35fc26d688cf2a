/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Live list - lists the blocks of a process in the order of their numbers, in pieces
 *
 * A radix sort: one pass over the blocks lists them and counts each digit of their numbers, then
 * one pass per digit moves the items.
 * Invariant: a piece reads or moves at most LIVE_PIECE blocks or items
 *                                                            [test-engine-heap-live: pieces]
 * Runs on the drain thread only. The caller makes sure that no block changes between pieces.
 */
#include "daemon/engine/alloc/live-list.h"

#include "arch/base.h"

#define DIGIT_BITS 11u
#define DIGITS (1u << DIGIT_BITS)
#define PASSES 5u /* digits of a number, which has 48 bits */

/* For each pass and digit: first the number of items, later the place of the next item. */
struct live_places {
	uint32_t at[PASSES][DIGITS];
};

static uint32_t digit_of(uint64_t number, unsigned int pass)
{
	return number >> (pass * DIGIT_BITS) & (DIGITS - 1);
}

static void add_item(struct live_list *list, const struct live_block *block)
{
	uint64_t number = live_block_number(block);

	list->items[list->n_listed++] = (struct live_item){ number, block };
	for (unsigned int pass = 0; pass < list->n_passes; pass++)
		list->places->at[pass][digit_of(number, pass)]++;
}

bool live_list_init(struct live_list *list, const struct live_blocks *live,
		    const struct live_block *const *held, uint64_t highest)
{
	uint32_t n = live_blocks_count(live);

	*list = (struct live_list){ .n = n, .live = live };
	for (; highest > 0; highest >>= DIGIT_BITS)
		list->n_passes++;
	if (n == 0)
		return true;
	list->items = g_try_new(struct live_item, n);
	list->other = g_try_new(struct live_item, n);
	list->places = g_try_new0(struct live_places, 1);
	if (!list->items || !list->other || !list->places) {
		live_list_done(list);
		return false;
	}
	list->mapped = g_tree_node_first(live->mapped);
	for (uint32_t i = 0; i < live->n_held; i++)
		add_item(list, held[i]);
	return true;
}

/* Moves the next n items to their places by one digit. Stable. */
static void move_items(struct live_list *list, uint32_t n)
{
	uint32_t *at = list->places->at[list->pass], sum = 0;

	for (uint32_t i = 0; list->n_sorted == 0 && i < DIGITS; i++) {
		uint32_t count = at[i];

		at[i] = sum;
		sum += count;
	}
	for (; n > 0; n--) {
		const struct live_item *item = &list->items[list->n_sorted++];

		list->other[at[digit_of(item->number, list->pass)]++] = *item;
	}
}

bool live_list_run(struct live_list *list)
{
	uint32_t left = LIVE_PIECE;

	if (list->n == 0)
		return true;
	for (; left > 0 && list->mapped; left--) {
		add_item(list, g_tree_node_value(list->mapped));
		list->mapped = g_tree_node_next(list->mapped);
	}
	for (; left > 0 && list->n_read < list->live->n_blocks; left--) {
		const struct live_block *block = live_blocks_at(list->live, ++list->n_read);

		if (block->label != 0)
			add_item(list, block);
	}
	for (; left > 0 && list->pass < list->n_passes; list->pass++) {
		struct live_item *sorted = list->other;
		uint32_t n = MIN_OF(left, list->n - list->n_sorted);

		move_items(list, n);
		left -= n;
		if (list->n_sorted < list->n)
			return false;
		list->other = list->items;
		list->items = sorted;
		list->n_sorted = 0;
	}
	return left > 0;
}

void live_list_done(struct live_list *list)
{
	g_free(list->items);
	g_free(list->other);
	g_free(list->places);
	*list = (struct live_list){ 0 };
}
