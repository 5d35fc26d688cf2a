/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Fuzz target of the records about interpreters: a code object, then a sample whose frames are
 * placed in a native stack, and whose lines are looked up.
 *
 *     input = u16 size of the code's record, that record, the sample's record
 */
#include "arch/base.h"
#include "daemon/engine/interp/interp-functions.h"
#include "daemon/engine/interp/interp-merge.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_place(const struct interp_chain *chain, const struct interp_native *native)
{
	struct interp_run runs[INTERP_MAX_FRAMES];
	size_t n = 0;

	if (!interp_merge(chain, native, runs, &n))
		return;
	for (size_t i = 0; i < n; i++)
		if (runs[i].first >= runs[i].end || runs[i].end > chain->n ||
		    runs[i].native > native->n || (i > 0 && runs[i].native < runs[i - 1].native))
			abort();
}

/* Places the frames in stacks of each length. All native frames are in the interpreter's evaluation
 * function. */
static void place(const struct interp_chain *chain)
{
	struct walk_frame frames[8];
	struct interp_native native = {
		.frames = frames,
		.eval = 0x1000,
		.eval_end = 0x2000,
		.again = { 0x1003, 2 },
		.main = { 0x1007, 1 },
		.callers = { { 0x1001, 2 } },
	};

	for (size_t i = 0; i < ARRAY_SIZE(frames); i++)
		frames[i] = (struct walk_frame){ .pc = 0x1001 + i, .sp = 0x7000 + 256 * i };
	for (; native.n <= ARRAY_SIZE(frames); native.n++) {
		native.has_root = true;
		check_place(chain, &native);
		native.has_root = false;
		check_place(chain, &native);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct interp_functions *functions;
	struct interp_code_text code;
	struct interp_chain chain;
	size_t first;

	if (size < 2)
		return 0;
	first = MIN_OF((size_t)load_le16(data), size - 2);
	functions = interp_functions_new(1u << 16, 1);
	if (interp_record_code(data + 2, first, &code)) {
		(void)interp_functions_add(functions, 1, &code);
		(void)interp_functions_add(functions, 2, &code);
	}
	if (interp_record_sample(data + 2 + first, size - 2 - first, &chain)) {
		place(&chain);
		for (unsigned i = 0; i < chain.n; i++) {
			const struct interp_function *function =
				interp_functions_find(functions, 1, &chain.frames[i]);

			if (function && interp_function_line(function, &chain.frames[i]) >=
						INTERP_FUNCTION_LINES)
				abort();
		}
	}
	interp_functions_free(functions);
	return 0;
}
