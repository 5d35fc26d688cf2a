/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Interp-merge - where the frames of an interpreted program belong in the native stack
 *
 * A run is the frames that one activation of the interpreter, a call of a C function, executes. The
 * run's address is in that function's part of the native stack, so the run belongs after that
 * native frame. Symbols are not needed. In Python up to 3.10, a run is one frame without an
 * address, and the activations are the native frames of the evaluating function. Runs of PHP and
 * Perl have no address either. In V8, each frame is a run.
 */
#pragma once

#include "arch/walk.h"
#include "daemon/engine/interp/interp-record.h"
#include "daemon/engine/interp/interp-runtime.h"

/* Frames [first, end) of the chain, innermost first. */
struct interp_run {
	uint16_t first, end;
	/* index of the native frame that executes the run; interp_native.n: above (nearer to the
	 * root than) all known frames */
	uint32_t native;
};

struct interp_native {
	const struct walk_frame *frames; /* innermost first */
	size_t n;
	bool has_root;           /* the outermost frame is known */
	uint64_t eval, eval_end; /* code of the evaluating function; for runs without addresses */
	/* Perl: as in struct interp_runtime */
	struct interp_range again, main, callers[INTERP_PERL_CALLERS];
	bool is_cut; /* callers are missing, because the copy of the stack ended */
};

/* Returns whether runs are placed by address, which needs the stack pointers of native frames. */
bool interp_merge_by_address(const struct interp_chain *chain);
/* Returns false if an activation's address is not known, or if the outermost frame of a chain that
 * was not cut belongs to no activation. */
bool interp_merge_is_sound(const struct interp_chain *chain);
/* Stores the runs of the chain, innermost first, at most INTERP_MAX_FRAMES. Returns false if a run
 * cannot be placed. */
bool interp_merge(const struct interp_chain *chain, const struct interp_native *native,
		  struct interp_run *ret_runs, size_t *ret_n);
/* Returns whether an activation of Python is nearer to the root than all runs. Such an activation
 * executes functions of another interpreter or greenlet, which are not in the chain. */
bool interp_merge_lacks_callers(const struct interp_chain *chain,
				const struct interp_native *native, const struct interp_run *runs,
				size_t n);
