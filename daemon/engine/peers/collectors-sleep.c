/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Collectors, sleep - decides when rings are drained next
 *
 * A drain is due when a doorbell rings, when a ring was more than a third full at the last drain,
 * and in each round of the session. So idle processes cause no wake-ups of their own. Sysprof's
 * rings have no doorbell, so they are polled.
 * Invariants: (1) a doorbell that rings without reason is ignored  [test-engine-collectors: floods]
 *             (2) if all doorbells work and nothing waits, only session rounds check rings
 *                 [test-engine-collectors: quiet]
 * Runs on the drain thread only.
 */
#include "daemon/engine/peers/collectors-internal.h"
#include "daemon/engine/peers/sysprof-peer.h"

/* Sysprof's rings are large enough for what a program writes in this time. */
#define MAX_POLL_MS 4u

static bool is_filling(const struct peer_arena *arena)
{
	for (uint32_t i = 0; i < arena->memory.n_rings; i++)
		if (ring_reader_fill(&arena->rings[i].reader) > arena->rings[i].reader.size / 3)
			return true;
	return false;
}

static bool can_ring(const struct peer *peer, const struct peer_arena *arena, uint64_t now_ns)
{
	return peer->state == PEER_ACTIVE && !arena->sysprof && now_ns >= arena->deaf_until_ns;
}

/* Arms all doorbells. Returns whether a ring filled since its drain, when its doorbell was not
 * armed. */
static bool listen_to_all(struct collectors *collectors, uint64_t now_ns)
{
	struct doorbell doorbells[DOORBELLS_MAX];
	bool is_full = false;
	size_t n = 0;

	for (guint i = 0; i < collectors->peers->len; i++) {
		struct peer *peer = peer_at(collectors, i);

		for (uint32_t k = 0; k < peer->n_arenas && n < DOORBELLS_MAX; k++) {
			struct peer_arena *arena = peer->arenas[k];

			if (!can_ring(peer, arena, now_ns))
				continue;
			if (!arena->armed) {
				arena->doorbell.value =
					ring_arena_arm(&arena->memory, &arena->doorbell.word);
				arena->armed = true;
				is_full = is_full || is_filling(arena);
			}
			doorbells[n++] = arena->doorbell;
		}
	}
	doorbells_set(collectors->options.doorbells, doorbells, n);
	collectors->rung = false;
	collectors->armed_ns = now_ns;
	return is_full;
}

/* Returns whether the listed doorbells differ from the current ones. */
static bool is_outdated(const struct collectors *collectors, uint64_t now_ns)
{
	size_t n = 0;

	if (!collectors->options.doorbells)
		return false;
	for (guint i = 0; !collectors->rung && i < collectors->peers->len; i++) {
		const struct peer *peer = peer_at(collectors, i);

		for (uint32_t k = 0; k < peer->n_arenas && n < DOORBELLS_MAX; k++) {
			if (!can_ring(peer, peer->arenas[k], now_ns))
				continue;
			if (!peer->arenas[k]->armed)
				return true;
			n++;
		}
	}
	return collectors->rung;
}

/* Returns whether the peer must be checked again soon. */
static bool is_waiting(const struct peer *peer)
{
	return peer->state == PEER_WAITING ||
	       (peer->state == PEER_ACTIVE &&
		(!peer->process.process || peer->called || peer->ended ||
		 (peer->n_unanswered > 0 && !peer->is_blocked)));
}

/* Polls sysprof's rings, if there are any; the interval grows while they are idle. */
static uint64_t poll_sysprof_rings(struct collectors *collectors, uint64_t now_ns)
{
	bool is_filling = false, are_there = false;

	if (now_ns < collectors->poll_ns)
		return collectors->poll_ns;
	for (guint i = 0; i < collectors->peers->len; i++) {
		const struct peer *peer = peer_at(collectors, i);

		for (uint32_t k = 0;
		     peer->is_sysprof && peer->state == PEER_ACTIVE && k < peer->n_arenas; k++) {
			are_there = true;
			is_filling |= sysprof_arena_look(peer->arenas[k]);
		}
	}
	if (is_filling) {
		collectors->poll_ms = 1;
		collectors->due_ns = now_ns;
	}
	collectors->poll_ns = are_there ? now_ns + collectors->poll_ms * MS : UINT64_MAX;
	collectors->poll_ms = MIN_OF(collectors->poll_ms * 2, MAX_POLL_MS);
	return collectors->poll_ns;
}

bool collectors_are_quiet(const struct collectors *collectors, uint64_t now_ns)
{
	size_t n_doorbells = 0;

	if (collectors->peers->len == 0)
		return true;
	if (collectors->has_sysprof || collectors->unfinished || collectors->queued_bytes > 0 ||
	    collectors->rung || collectors->interval_ms < COLLECTORS_MAX_INTERVAL_MS ||
	    !collectors->options.doorbells || !doorbells_are_heard(collectors->options.doorbells))
		return false;
	for (guint i = 0; i < collectors->peers->len; i++) {
		const struct peer *peer = peer_at(collectors, i);

		if (is_waiting(peer))
			return false;
		for (uint32_t k = 0; peer->state == PEER_ACTIVE && k < peer->n_arenas; k++)
			if (!peer->arenas[k]->armed || !can_ring(peer, peer->arenas[k], now_ns) ||
			    ++n_doorbells > DOORBELLS_MAX)
				return false;
	}
	return true;
}

uint64_t collectors_sleep(struct collectors *collectors, uint64_t now_ns, uint64_t longest_ns)
{
	uint64_t interval_ns = collectors->interval_ms * MS;
	bool is_soon = false;

	collectors->due_ns = UINT64_MAX;
	if (!collectors->peers || collectors->peers->len == 0)
		return collectors->due_ns;
	for (guint i = 0; !is_soon && i < collectors->peers->len; i++)
		is_soon = is_waiting(peer_at(collectors, i));
	if (is_outdated(collectors, now_ns)) {
		/* Arm doorbells at most a thousand times a second. */
		if (now_ns - collectors->armed_ns < MS)
			is_soon = true;
		else
			is_soon = listen_to_all(collectors, now_ns) || is_soon;
	}
	if (is_soon)
		interval_ns = MS;
	else if (longest_ns > interval_ns && collectors_are_quiet(collectors, now_ns))
		interval_ns = longest_ns;
	collectors->due_ns = collectors->unfinished ? 0 : collectors->drained_ns + interval_ns;
	/* Not in due_ns, because polling a ring is not a drain. */
	interval_ns = poll_sysprof_rings(collectors, now_ns);
	return MIN_OF(collectors->due_ns, interval_ns);
}
