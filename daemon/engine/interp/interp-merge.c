/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Interp-merge - where the frames of an interpreted program belong in the native stack
 *
 * Invariants: (1) runs keep their order: none is placed above one that is outside of it
 *                 [test-cpython: merge]
 *             (2) no run without an activation is taken for a whole one
 *                 [test-cruby: unsound]
 *             (3) the work is linear in the frames of both
 */
#include "daemon/engine/interp/interp-merge.h"

/* Splits the chain into runs. A chain that was cut ends without an end of a run. */
static size_t split(const struct interp_chain *chain, struct interp_run *runs)
{
	size_t n = 0, first = 0;

	for (size_t i = 0; i < chain->n; i++) {
		if (!(chain->frames[i].flags & (INTERP_FRAME_ENDS_RUN | INTERP_FRAME_ENDS_STACK)) &&
		    i + 1 < chain->n)
			continue;
		runs[n++] =
			(struct interp_run){ .first = (uint16_t)first, .end = (uint16_t)(i + 1) };
		first = i + 1;
	}
	return n;
}

/* The address of the last run of a cut chain is not known, but no native frame above the others
 * can be taken for it. */
static bool place_by_address(const struct interp_chain *chain, const struct interp_native *native,
			     struct interp_run *runs, size_t n)
{
	size_t at = 0;

	for (size_t i = 0; i < n; i++) {
		const struct interp_frame *last = &chain->frames[runs[i].end - 1];

		if (!(last->flags & INTERP_FRAME_ENDS_RUN) || last->at == 0) {
			runs[i].native = (uint32_t)native->n;
			return i + 1 == n;
		}
		/* Frame `at` owns the stack from its sp up to that of its caller. */
		while (at + 1 < native->n && last->at >= native->frames[at + 1].sp)
			at++;
		if (native->n == 0 || last->at < native->frames[at].sp)
			return false;
		/* The end of the outermost known frame is not known. */
		runs[i].native =
			(uint32_t)(at + 1 < native->n || native->has_root ? at : native->n);
	}
	return true;
}

static bool is_eval(const struct interp_native *native, size_t i)
{
	const uint64_t pc = native->frames[i].pc - !(native->frames[i].flags & WALK_FRAME_EXACT);

	return pc >= native->eval && pc < native->eval_end;
}

/* Assigns runs to activations, counted from the root. If there is one activation more than runs,
 * the innermost activation is about to begin or has ended. */
static bool place_by_function(const struct interp_native *native, struct interp_run *runs, size_t n)
{
	size_t run = n;

	if (!native->has_root)
		return false;
	for (size_t i = native->n; i > 0 && run > 0; i--)
		if (is_eval(native, i - 1))
			runs[--run].native = (uint32_t)(i - 1);
	return run == 0;
}

/* Assigns runs of PHP to activations. Those of functions in C, at the end, have no activation, and
 * those after the end of a stack are on another one. If there is one run more than activations, the
 * innermost one is about to begin. Where code that PHP generated hides all activations, the runs
 * are outside of what is known. */
static bool place_php(const struct interp_chain *chain, const struct interp_native *native,
		      struct interp_run *runs, size_t n)
{
	size_t inner = 0, activations = 0, n_runs, at;
	bool is_fiber = chain->flags & INTERP_OTHER_STACK;

	for (; inner < n && !is_fiber; inner++)
		is_fiber = chain->frames[runs[inner].end - 1].flags & INTERP_FRAME_ENDS_STACK;
	for (size_t i = inner; i < n; i++)
		runs[i].native = (uint32_t)native->n;
	if (inner > 0 && !(chain->frames[runs[inner - 1].end - 1].flags & INTERP_FRAME_ENDS_RUN) &&
	    (is_fiber || chain->n_more_runs == 0))
		runs[--inner].native = (uint32_t)native->n;
	if (!is_fiber && chain->n_more_runs == INTERP_RUNS_UNKNOWN)
		return false;
	if (chain->flags & INTERP_OTHER_STACK)
		return true;
	n_runs = inner;
	if (!is_fiber && chain->n_more_runs > 0) {
		/* The last run is one of these, if it does not end before. */
		n_runs += chain->n_more_runs;
		n_runs -= inner > 0 &&
			  !(chain->frames[runs[inner - 1].end - 1].flags & INTERP_FRAME_ENDS_RUN);
	}
	for (size_t i = 0; i < native->n; i++)
		activations += is_eval(native, i);
	if (activations == 0 && !native->has_root) {
		for (size_t i = 0; i < inner; i++)
			runs[i].native = (uint32_t)native->n;
		return true;
	}
	if (native->has_root ? activations + 1 < n_runs || activations > n_runs + 1
			     : native->is_cut || activations != n_runs)
		return false;
	at = native->n;
	for (size_t run = n_runs; run > 0; run--) {
		while (at > 0 && !is_eval(native, at - 1))
			at--;
		at -= at > 0;
		if (run <= inner)
			runs[run - 1].native = (uint32_t)at;
	}
	return true;
}

bool interp_merge_by_address(const struct interp_chain *chain)
{
	return chain->family == INTERP_RUBY ||
	       (chain->family == INTERP_PYTHON && chain->minor > 10);
}

bool interp_merge_is_sound(const struct interp_chain *chain)
{
	for (size_t i = 0; i < chain->n; i++)
		if (chain->frames[i].flags & INTERP_FRAME_ENDS_RUN && chain->frames[i].at == 0 &&
		    interp_merge_by_address(chain))
			return false;
	/* The program that reads PHP compares frames and activations itself. */
	return chain->n == 0 || chain->flags & INTERP_DEEPER || chain->family == INTERP_PHP ||
	       chain->frames[chain->n - 1].flags & INTERP_FRAME_ENDS_RUN;
}

bool interp_merge(const struct interp_chain *chain, const struct interp_native *native,
		  struct interp_run *ret_runs, size_t *ret_n)
{
	*ret_n = split(chain, ret_runs);
	if (chain->family == INTERP_PHP)
		return place_php(chain, native, ret_runs, *ret_n);
	return interp_merge_by_address(chain) ? place_by_address(chain, native, ret_runs, *ret_n)
					      : place_by_function(native, ret_runs, *ret_n);
}
