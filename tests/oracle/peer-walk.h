/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Peer walk - the same stacks walked by libdwfl, with one Dwfl for all of them
 */
#pragma once

#include "tests/oracle/live.h"

#include <elfutils/libdwfl.h>

struct peer_walk {
	Dwfl *dwfl;
	pid_t pid;
	const struct live_sample *sample;
	uint64_t *pcs;
	size_t n, n_allocated;
};

/* False where libdwfl cannot read the process. */
bool peer_walk_init(struct peer_walk *peer, pid_t pid);
void peer_walk_done(struct peer_walk *peer);

/* The pcs of a stack, innermost first; how many there are. */
size_t peer_walk_run(struct peer_walk *peer, const struct live_sample *sample, uint64_t *pcs,
		     size_t n);
