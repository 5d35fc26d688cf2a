/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Peer-walk - walks the stacks of samples with libdwfl, with one Dwfl for all of them
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
	int error; /* dwfl_errno() of the last walk; 0: the walk ended without an error */
};

/* A mapped file. `bias`: the mapped address minus the address in the ELF file. */
struct peer_module {
	const char *path;
	uint64_t bias;
};

/* Returns false if libdwfl cannot read the process. */
bool peer_walk_init(struct peer_walk *peer, pid_t pid);
/* Does the same for a process that has exited, from a list of its modules. */
bool peer_walk_init_modules(struct peer_walk *peer, pid_t pid, const struct peer_module *modules,
			    size_t n);
void peer_walk_done(struct peer_walk *peer);

/* Stores the pcs of a stack, innermost first. Returns their number. */
size_t peer_walk_run(struct peer_walk *peer, const struct live_sample *sample, uint64_t *pcs,
		     size_t n);
