/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Interp-merge - where the frames of an interpreted program belong in the native stack
 *
 * Invariants: (1) runs keep their order: an inner run is never placed nearer to the root than an
 *                 outer one
 *                 [test-cpython: merge]
 *             (2) a run without an activation is never shown as a complete run
 *                 [test-cruby: unsound]
 *             (3) the work is linear in the number of interpreted and native frames
 */
#include "daemon/engine/interp/interp-merge.h"

#include <string.h>

/* Splits the chain into runs. The last run of a cut chain has no end. */
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

/* Places each run by the address of its last frame. The last run of a cut chain has no known
 * address, so it is placed after the outermost known frame. */
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
		/* Frame `at` owns the stack from its sp up to its caller's sp. */
		while (at + 1 < native->n && last->at >= native->frames[at + 1].sp)
			at++;
		if (native->n == 0 || last->at < native->frames[at].sp)
			return false;
		/* The outermost known frame may end below the run's address. */
		runs[i].native =
			(uint32_t)(at + 1 < native->n || native->has_root ? at : native->n);
	}
	return true;
}

static bool is_in(const struct interp_native *native, size_t i, struct interp_range range)
{
	const struct walk_frame *frame = &native->frames[i];

	return i < native->n &&
	       frame->pc - !(frame->flags & WALK_FRAME_EXACT) - range.start < range.size;
}

static bool is_eval(const struct interp_native *native, size_t i)
{
	return is_in(native, i,
		     (struct interp_range){ native->eval, native->eval_end - native->eval });
}

/* Assigns runs to activations, counted from the root. If there is one activation more than runs,
 * and the innermost activation has called at most one function in C, that activation is about to
 * begin or has ended. Other surplus activations are outermost: the chain was cut, or they belong to
 * another interpreter or greenlet. Surplus activations get no run. */
static bool place_by_function(const struct interp_native *native, struct interp_run *runs, size_t n)
{
	size_t activations = 0, innermost = 0, n_outer, run = n;

	for (size_t i = native->n; i > 0; i--)
		if (is_eval(native, i - 1)) {
			activations++;
			innermost = i - 1;
		}
	if (!native->has_root || activations < n)
		return false;
	n_outer = activations > n + (innermost <= 1) ? activations - n : 0;
	for (size_t i = native->n; run > 0; i--) {
		if (!is_eval(native, i - 1))
			continue;
		if (n_outer > 0)
			n_outer--;
		else
			runs[--run].native = (uint32_t)(i - 1);
	}
	return true;
}

/* Assigns runs of PHP to activations. Functions in C at the end of a stack form a run without
 * an activation. Runs after the end of a stack are on another stack. If there is one run more than
 * activations, the innermost activation is about to begin. If code that PHP generated hides all
 * activations, the runs are placed after the outermost known frame. */
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
		/* n_more_runs includes a last run that has no end. */
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

/* Returns whether the frame begins an activation of Perl. A frame that `again` called continues an
 * earlier activation instead. */
static bool begins_activation(const struct interp_native *native, size_t i)
{
	return is_eval(native, i) && !is_in(native, i + 1, native->again);
}

/* Returns whether the outermost activation is that of the main program. */
static bool has_main_activation(const struct interp_native *native)
{
	size_t at = native->n;

	while (at > 0 && !is_eval(native, at - 1))
		at--;
	return at > 0 && (is_in(native, at, native->main) || is_in(native, at + 1, native->main));
}

static bool is_in_main(const struct interp_native *native)
{
	for (size_t i = 0; i < native->n; i++)
		if (is_in(native, i, native->main))
			return true;
	return false;
}

static bool repeats(const struct interp_chain *chain, const struct interp_run *run)
{
	return chain->frames[run->end - 1].flags & INTERP_FRAME_REPEATS;
}

/* If there is one run more than activations, finds the run without an activation. Returns its
 * index; SIZE_MAX: it may be any of several. */
static size_t find_resting(const struct interp_chain *chain, const struct interp_native *native,
			   const struct interp_run *runs, size_t n)
{
	size_t found = 0, left, i = 0;

	for (size_t run = 1; run < n; run++)
		if (repeats(chain, &runs[run]) && !repeats(chain, &runs[run - 1])) {
			if (found > 0)
				return SIZE_MAX;
			found = run;
		}
	/* Run `found` has no activation if a C function in `callers` called the activation of the
	 * next inner run. */
	for (left = found; left > 0 && i < native->n; i++)
		left -= begins_activation(native, i);
	for (size_t caller = 0; found > 0 && caller < INTERP_PERL_CALLERS; caller++)
		if (is_in(native, i, native->callers[caller]))
			return found;
	return 0;
}

/* Assigns runs of Perl to activations, counted from the root. The main program has no activation
 * while it is compiled, and while it ends: its run is then placed after the outermost known frame.
 * In a program that embeds Perl, the main program may have ended, and its run is left out. If there
 * is one activation more than runs, the innermost activation begins or ends, or the compiler
 * computes a constant. If there is one run more, usually the innermost run is not executed at
 * present, and is left out. But if C called a sub from a run that repeats, that run is shown with
 * the sub's run. */
static bool place_perl(const struct interp_chain *chain, const struct interp_native *native,
		       struct interp_run *runs, size_t *n)
{
	const bool is_open = *n > 0 &&
			     !(chain->frames[runs[*n - 1].end - 1].flags & INTERP_FRAME_ENDS_RUN);
	const bool is_unknown = chain->n_more_runs == INTERP_RUNS_UNKNOWN;
	size_t activations = 0, n_runs = *n, inner = *n, at = native->n;

	for (size_t i = 0; i < native->n; i++)
		activations += begins_activation(native, i);
	if (*n > 0)
		runs[*n - 1].native = (uint32_t)native->n;
	if (*n > 0 && chain->flags & INTERP_MAIN &&
	    (is_open || (native->has_root && !has_main_activation(native)))) {
		n_runs = --inner;
		*n -= !is_open && !is_in_main(native);
	} else if (!is_unknown) {
		n_runs += chain->n_more_runs - (is_open && chain->n_more_runs > 0);
	}
	if (native->has_root && !is_unknown
		    ? activations + 1 < n_runs || activations > n_runs + 1
		    : native->is_cut || (is_unknown && !native->has_root) || activations != n_runs)
		return false;
	if (activations + 1 == n_runs) {
		const size_t resting = find_resting(chain, native, runs, inner);

		if (inner == 0 || n_runs != inner || resting >= inner)
			return false;
		if (resting > 0)
			runs[resting - 1].end = runs[resting].end;
		inner--;
		n_runs--;
		(*n)--;
		memmove(runs + resting, runs + resting + 1, (*n - resting) * sizeof(*runs));
	}
	for (size_t run = n_runs; run > 0; run--) {
		while (at > 0 && !begins_activation(native, at - 1))
			at--;
		at -= at > 0;
		/* The innermost continuation of the activation executes the run's frames. */
		for (size_t i = at; i > 0 && !begins_activation(native, i - 1); i--)
			if (is_eval(native, i - 1))
				at = i - 1;
		if (run <= inner)
			runs[run - 1].native = (uint32_t)at;
	}
	return true;
}

bool interp_merge_by_address(const struct interp_chain *chain)
{
	return chain->family == INTERP_RUBY || chain->family == INTERP_V8 ||
	       (chain->family == INTERP_PYTHON && chain->minor > 10);
}

bool interp_merge_is_sound(const struct interp_chain *chain)
{
	for (size_t i = 0; i < chain->n; i++)
		if (chain->frames[i].flags & INTERP_FRAME_ENDS_RUN && chain->frames[i].at == 0 &&
		    interp_merge_by_address(chain))
			return false;
	/* The BPF programs for PHP and Perl compare frames and activations themselves. */
	return chain->n == 0 || chain->flags & INTERP_DEEPER || chain->family == INTERP_PHP ||
	       chain->family == INTERP_PERL ||
	       chain->frames[chain->n - 1].flags & INTERP_FRAME_ENDS_RUN;
}

bool interp_merge(const struct interp_chain *chain, const struct interp_native *native,
		  struct interp_run *ret_runs, size_t *ret_n)
{
	*ret_n = split(chain, ret_runs);
	if (chain->family == INTERP_PHP)
		return place_php(chain, native, ret_runs, *ret_n);
	if (chain->family == INTERP_PERL)
		return place_perl(chain, native, ret_runs, ret_n);
	return interp_merge_by_address(chain) ? place_by_address(chain, native, ret_runs, *ret_n)
					      : place_by_function(native, ret_runs, *ret_n);
}

bool interp_merge_lacks_callers(const struct interp_chain *chain,
				const struct interp_native *native, const struct interp_run *runs,
				size_t n)
{
	if (chain->family != INTERP_PYTHON || n == 0)
		return false;
	for (size_t i = (size_t)runs[n - 1].native + 1; i < native->n; i++)
		if (is_eval(native, i))
			return true;
	return false;
}
