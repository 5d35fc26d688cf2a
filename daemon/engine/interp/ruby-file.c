/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Ruby-file - finds Ruby in an ELF file
 *
 * Since 3.0, the variable `ruby_current_ec` of each thread points to the thread's state. In a
 * library, the block of thread-local variables is found by the library's number, which the dynamic
 * linker stores at a relocation. A program's own block ends at the thread pointer.
 *
 * From 3.3 on, neither this variable nor rb_vm_exec() is exported. Both are found in the code of
 * exported functions: rb_errinfo() begins by getting the variable, with the instructions that
 * linkers expect (System V ABI, general dynamic model), and rb_iseq_eval() and rb_iseq_eval_main()
 * end with a jump to rb_vm_exec().
 * Invariants: (1) a variable that the code gets in another way is not used
 *                 [test-cruby: files]
 *             (2) a build whose code is not as expected is not used  [test-cruby: files]
 * Pure functions of the file.
 */
#include "daemon/engine/interp/ruby-file.h"

#include "arch/base.h"
#include "base/ruby-layouts.h"

#define JUMP_BYTES 5u

/* Returns the minor version; 0 if it is not known. */
static unsigned find_minor(const struct interp_elf *elf)
{
	uint32_t version[3]; /* {major, minor, teeny} of the interface; Ruby has the same minor */

	return interp_elf_address(elf, version, sizeof(version),
				  elf->found[RUBY_API_VERSION].st_value) &&
			       version[0] == 3
		       ? version[1]
		       : 0;
}

/* Returns the address of the words {module, offset} of the variable that the function gets first;
 * 0: no variable is found. */
static uint64_t find_first_variable(const struct interp_elf *elf, enum interp_symbol symbol)
{
	/* data16 lea words(%rip),%rdi; data16 data16 rex.W call __tls_get_addr; mov (%rax),%rax */
	static const uint8_t lea[] = { 0x66, 0x48, 0x8d, 0x3d },
			     call[] = { 0x66, 0x66, 0x48, 0xe8 }, load[] = { 0x48, 0x8b, 0x00 };
	uint8_t code[INTERP_ELF_MAX_CODE];
	const size_t size = interp_elf_code(elf, symbol, code);

	for (size_t i = 0; i + 19 <= size; i++)
		if (memcmp(code + i, lea, sizeof(lea)) == 0 &&
		    memcmp(code + i + 8, call, sizeof(call)) == 0 &&
		    memcmp(code + i + 16, load, sizeof(load)) == 0)
			return elf->found[symbol].st_value + i + 8 +
			       (uint64_t)(int64_t)(int32_t)load_le32(code + i + 4);
	return 0;
}

/* Returns the target of a jump, whose instruction is at `address`; 0: it is another instruction. */
static uint64_t find_target(const uint8_t *code, uint64_t address)
{
	return code[0] == 0xe9
		       ? address + JUMP_BYTES + (uint64_t)(int64_t)(int32_t)load_le32(code + 1)
		       : 0;
}

/* Returns the only function to which both functions jump; 0 if they share no or several targets. */
static uint64_t find_common_jump(const struct interp_elf *elf, enum interp_symbol one,
				 enum interp_symbol other)
{
	uint8_t a[INTERP_ELF_MAX_CODE], b[INTERP_ELF_MAX_CODE];
	const size_t a_size = interp_elf_code(elf, one, a), b_size = interp_elf_code(elf, other, b);
	uint64_t found = 0;

	for (size_t i = 0; i + JUMP_BYTES <= a_size; i++) {
		const uint64_t target = find_target(a + i, elf->found[one].st_value + i);
		bool is_common = false;

		for (size_t j = 0; target && !is_common && j + JUMP_BYTES <= b_size; j++)
			is_common = find_target(b + j, elf->found[other].st_value + j) == target;
		if (!is_common || target == found || interp_elf_function_end(elf, target) == 0)
			continue;
		if (found)
			return 0;
		found = target;
	}
	return found;
}

static void set_exec(struct interp_runtime *runtime, uint64_t start, uint64_t end)
{
	runtime->addresses[INTERP_RUBY_EVAL] = runtime->eval = start;
	runtime->addresses[INTERP_RUBY_EVAL_END] = end;
	runtime->eval_size = end - start;
}

/* Finds the addresses that are not exported. Returns false if the code is different. */
static bool find_in_code(const struct interp_elf *elf, struct interp_runtime *runtime)
{
	const uint64_t module = find_first_variable(elf, RUBY_ERRINFO);
	const uint64_t exec = find_common_jump(elf, RUBY_ISEQ_EVAL, RUBY_ISEQ_EVAL_MAIN);
	uint64_t offset;

	if (!interp_elf_is_relocated(elf, module, R_X86_64_DTPMOD64) ||
	    !interp_elf_address(elf, &offset, sizeof(offset), module + 8) || exec == 0 ||
	    offset > INTERP_ELF_MAX_BLOCK)
		return false;
	runtime->addresses[INTERP_RUBY_MODULE] = module;
	runtime->addresses[INTERP_RUBY_OFFSET] = offset;
	set_exec(runtime, exec, interp_elf_function_end(elf, exec));
	return true;
}

/* Finds the addresses that are exported. Returns false if the variable's location cannot be
 * determined. */
static bool find_exported(const struct interp_elf *elf, struct interp_runtime *runtime)
{
	const Elf64_Sym *exec = &elf->found[RUBY_VM_EXEC];
	struct interp_thread_local variable;

	if (!interp_elf_has(elf, RUBY_VM_EXEC) ||
	    !interp_elf_thread_local(elf, RUBY_CURRENT_EC, &variable) || variable.of_offset != 0)
		return false;
	runtime->addresses[INTERP_RUBY_MODULE] = variable.of_module;
	runtime->addresses[INTERP_RUBY_OFFSET] = variable.offset;
	set_exec(runtime, exec->st_value, exec->st_value + exec->st_size);
	return true;
}

bool ruby_file_describe(const struct interp_elf *elf, struct interp_runtime *ret_runtime)
{
	if (!interp_elf_has(elf, RUBY_API_VERSION))
		return false;
	*ret_runtime = (struct interp_runtime){ .family = INTERP_RUBY, .minor = find_minor(elf) };
	if (!ruby_layout(ret_runtime->minor))
		ret_runtime->found = INTERP_OTHER_VERSION;
	else if (elf->is_x86_64 &&
		 (find_exported(elf, ret_runtime) || find_in_code(elf, ret_runtime)))
		ret_runtime->found = INTERP_FOUND;
	else
		ret_runtime->found = INTERP_OTHER_BUILD;
	ret_runtime->code_bias = interp_elf_code_bias(elf, ret_runtime->eval);
	return true;
}
