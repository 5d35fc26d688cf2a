/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Amount - a number of samples, and the sum of their weights
 *
 * The kernel varies how many events pass between two samples, so equal numbers of samples may
 * represent very different numbers of events. Shares are computed from weights; the number of
 * samples shows how reliable a share is. Both are in one struct, so that code that adds samples
 * cannot forget their weights.
 */
#pragma once

#include <stdint.h>

struct amount {
	uint64_t samples;
	uint64_t weight; /* sum in the unit of the event */
};

/* The sums wrap if a hostile file makes them overflow. */
static inline void amount_add(struct amount *to, struct amount what)
{
	to->samples += what.samples;
	to->weight += what.weight;
}

static inline struct amount amount_less(struct amount from, struct amount what)
{
	return (struct amount){ from.samples - what.samples, from.weight - what.weight };
}

/* Returns the share of the whole weight, in percent; 0 if the whole weight is 0. */
static inline double amount_percent(struct amount part, struct amount whole)
{
	return whole.weight ? 100.0 * (double)part.weight / (double)whole.weight : 0;
}

/* Orders by weight, then by samples, both descending. */
static inline int amount_compare(struct amount a, struct amount b)
{
	if (a.weight != b.weight)
		return a.weight > b.weight ? -1 : 1;
	return a.samples > b.samples ? -1 : a.samples < b.samples;
}
