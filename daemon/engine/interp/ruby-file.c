/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Ruby-file - finds Ruby in an ELF file
 *
 * Since 3.0, the variable `ruby_current_ec` of each thread points to the thread's state. In a
 * library, the variable's block is found by the number of the library, which the dynamic linker
 * stores at a relocation. A program's own block ends at the thread pointer.
 * Invariants: (1) a variable that is reached in another way is not used
 *                 [test-cruby: files]
 * Pure functions of the file.
 */
#include "daemon/engine/interp/ruby-file.h"

#include "arch/base.h"
#include "base/ruby-layouts.h"

#define MAX_BLOCK_BYTES (UINT64_C(1) << 30)

/* Returns the minor version; 0 if it is not known. */
static unsigned find_minor(const struct interp_elf *elf)
{
	uint32_t version[3]; /* {major, minor, teeny} of the interface; minor versions are equal */

	return interp_elf_address(elf, version, sizeof(version),
				  elf->found[RUBY_API_VERSION].st_value) &&
			       version[0] == 3
		       ? version[1]
		       : 0;
}

/* Finds the thread-local variable. Returns false if its location cannot be determined. */
static bool find_variable(const struct interp_elf *elf, struct interp_runtime *runtime)
{
	const uint64_t value = elf->found[RUBY_CURRENT_EC].st_value;
	const Elf64_Phdr *block = interp_elf_segment(elf, PT_TLS);
	uint64_t module;

	if (!interp_elf_has(elf, RUBY_CURRENT_EC) || !interp_elf_has(elf, RUBY_VM_EXEC) ||
	    !elf->is_x86_64 || !block || block->p_memsz > MAX_BLOCK_BYTES ||
	    value >= block->p_memsz || block->p_align > MAX_BLOCK_BYTES ||
	    (block->p_align & (block->p_align - 1)) != 0)
		return false;
	module = interp_elf_relocation(elf, RUBY_CURRENT_EC, R_X86_64_DTPMOD64);
	runtime->addresses[INTERP_RUBY_MODULE] = module;
	runtime->addresses[INTERP_RUBY_OFFSET] = value;
	if (module == 0) {
		const uint64_t align = MAX_OF(block->p_align, UINT64_C(1));

		runtime->addresses[INTERP_RUBY_OFFSET] -= (block->p_memsz + align - 1) & -align;
	}
	return module != 0 || interp_elf_segment(elf, PT_INTERP);
}

bool ruby_file_describe(const struct interp_elf *elf, struct interp_runtime *ret_runtime)
{
	const Elf64_Sym *exec = &elf->found[RUBY_VM_EXEC];

	if (!interp_elf_has(elf, RUBY_API_VERSION))
		return false;
	*ret_runtime = (struct interp_runtime){
		.family = INTERP_RUBY,
		.minor = find_minor(elf),
		.addresses = { [INTERP_RUBY_EVAL] = exec->st_value,
			       [INTERP_RUBY_EVAL_END] = exec->st_value + exec->st_size },
		.eval = exec->st_value,
		.eval_size = exec->st_size,
		.code_bias = interp_elf_code_bias(elf, exec->st_value),
	};
	ret_runtime->found = !ruby_layout(ret_runtime->minor)  ? INTERP_OTHER_VERSION
			     : find_variable(elf, ret_runtime) ? INTERP_FOUND
							       : INTERP_OTHER_BUILD;
	return true;
}
