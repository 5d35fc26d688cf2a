/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Cpython-file - finds CPython in an ELF file
 *
 * Invariants: (1) a file is not used if it has offsets (_Py_DebugOffsets) other than the known ones
 *                 [test-cpython: offsets of the file]
 * Pure functions of the file.
 */
#include "daemon/engine/interp/cpython-file.h"

#include "arch/base.h"
#include "base/cpython-layouts.h"

/* Returns the minor version; 0 if it is not known. */
static unsigned find_minor(const struct interp_elf *elf)
{
	uint64_t version; /* PY_VERSION_HEX, as an unsigned long */

	if (interp_elf_has(elf, PYTHON_VERSION))
		return interp_elf_address(elf, &version, sizeof(version),
					  elf->found[PYTHON_VERSION].st_value) &&
				       version >> 24 == 3
			       ? version >> 16 & 255
			       : 0;
	return interp_elf_has(elf, PYTHON_SINCE_3_10)  ? 10
	       : interp_elf_has(elf, PYTHON_SINCE_3_9) ? 9
	       : interp_elf_has(elf, PYTHON_SINCE_3_8) ? 8
						       : 0;
}

bool cpython_file_describe(const struct interp_elf *elf, struct interp_runtime *ret_runtime)
{
	const struct interp_cpython *layout;
	__u64 words[CPYTHON_DEBUG_WORDS];
	bool has_words;

	if (!interp_elf_has(elf, PYTHON_RUNTIME) || !interp_elf_has(elf, PYTHON_CODE_TYPE))
		return false;
	*ret_runtime = (struct interp_runtime){
		.family = INTERP_PYTHON,
		.minor = find_minor(elf),
		.addresses = { [INTERP_PYTHON_RUNTIME] = elf->found[PYTHON_RUNTIME].st_value,
			       [INTERP_PYTHON_CODE_TYPE] = elf->found[PYTHON_CODE_TYPE].st_value },
		.eval = elf->found[PYTHON_EVAL].st_value,
		.eval_size = elf->found[PYTHON_EVAL].st_size,
		.code_bias = interp_elf_code_bias(elf, elf->found[PYTHON_EVAL].st_value),
	};
	has_words = ret_runtime->minor >= CPYTHON_FIRST_DEBUG_MINOR;
	if (has_words &&
	    !interp_elf_address(elf, words, sizeof(words), elf->found[PYTHON_RUNTIME].st_value))
		memset(words, 0, sizeof(words));
	if (has_words)
		ret_runtime->minor = cpython_build(ret_runtime->minor, words);
	layout = cpython_layout(ret_runtime->minor);
	ret_runtime->found = !layout ? INTERP_OTHER_VERSION
			     : !has_words || cpython_offsets_agree(layout, words)
				     ? INTERP_FOUND
				     : INTERP_OTHER_BUILD;
	return true;
}
