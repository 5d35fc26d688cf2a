/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Perl-file - finds Perl in an ELF file
 *
 * Perl exports its version, and the size of an interpreter's state.
 * Invariants: (1) a build without threads, or whose state has another size, is not used
 *                 [test-perl5: files]
 * Pure functions of the file.
 */
#include "daemon/engine/interp/perl-file.h"

#include "arch/base.h"
#include "base/perl-layouts.h"

#define MAX_CODE_BYTES 512u
#define LOAD_BYTES 7u
#define CALL_BYTES 5u
#define MAX_BETWEEN 8u

/* Returns the address of docatch(), which is not exported: pp_entertry() loads its own address as
 * an argument, then calls docatch() or jumps there. Returns 0 if the code is different. */
static uint64_t find_again(const struct interp_elf *elf, const struct interp_perl *layout)
{
	const uint64_t start = interp_elf_pointer(elf, elf->found[PERL_OPERATIONS].st_value +
							       8 * (uint64_t)layout->op_entertry);
	const uint64_t end = interp_elf_function_end(elf, start);
	uint8_t code[MAX_CODE_BYTES];
	size_t load = 0;

	if (end == 0 || end - start > MAX_CODE_BYTES ||
	    !interp_elf_address(elf, code, end - start, start))
		return 0;
	for (size_t i = 0; i + CALL_BYTES <= end - start; i++) {
		/* lea or mov N(%rip),%rsi */
		if (code[i] == 0x48 && (code[i + 1] == 0x8d || code[i + 1] == 0x8b) &&
		    code[i + 2] == 0x35)
			load = i + LOAD_BYTES;
		if (load != 0 && i >= load && i - load <= MAX_BETWEEN &&
		    (code[i] == 0xe8 || code[i] == 0xe9)) {
			const uint64_t target = start + i + CALL_BYTES +
						(uint64_t)(int64_t)(int32_t)load_le32(code + i + 1);

			if (interp_elf_function_end(elf, target) != 0)
				return target;
		}
	}
	return 0;
}

static struct interp_range range_of(const struct interp_elf *elf, enum interp_symbol symbol)
{
	return (struct interp_range){ elf->found[symbol].st_value, elf->found[symbol].st_size };
}

bool perl_file_describe(const struct interp_elf *elf, struct interp_runtime *ret_runtime)
{
	const Elf64_Sym *runops = &elf->found[PERL_RUNOPS];
	const struct interp_perl *layout;
	uint16_t state_bytes = 0;
	uint8_t minor = 0;

	if (!interp_elf_has(elf, PERL_RUNOPS) || !interp_elf_has(elf, PERL_VERSION_MINOR))
		return false;
	interp_elf_address(elf, &minor, sizeof(minor), elf->found[PERL_VERSION_MINOR].st_value);
	*ret_runtime = (struct interp_runtime){
		.family = INTERP_PERL,
		.minor = minor,
		.addresses = { [INTERP_PERL_KEY] = elf->found[PERL_KEY].st_value,
			       [INTERP_PERL_FIRST] = elf->found[PERL_FIRST].st_value },
		.eval = runops->st_value,
		.eval_size = runops->st_size,
		.main = range_of(elf, PERL_RUN),
		.callers = { range_of(elf, PERL_CALL), range_of(elf, PERL_CALL_OPERATOR) },
		.code_bias = interp_elf_code_bias(elf, runops->st_value),
		.found = INTERP_OTHER_BUILD,
	};
	layout = perl_layout(minor);
	if (!layout) {
		ret_runtime->found = INTERP_OTHER_VERSION;
		return true;
	}
	if (!elf->is_x86_64 || !interp_elf_has(elf, PERL_KEY) || !interp_elf_has(elf, PERL_FIRST) ||
	    !interp_elf_has(elf, PERL_RUN) || !interp_elf_has(elf, PERL_OPERATIONS) ||
	    !interp_elf_address(elf, &state_bytes, sizeof(state_bytes),
				elf->found[PERL_STATE_BYTES].st_value) ||
	    state_bytes != layout->state_bytes)
		return true;
	ret_runtime->again.start = find_again(elf, layout);
	if (ret_runtime->again.start == 0)
		return true;
	ret_runtime->again.size = interp_elf_function_end(elf, ret_runtime->again.start) -
				  ret_runtime->again.start;
	ret_runtime->addresses[INTERP_PERL_OF_KEY] =
		interp_elf_relocation(elf, PERL_KEY, R_X86_64_GLOB_DAT);
	ret_runtime->addresses[INTERP_PERL_OF_FIRST] =
		interp_elf_relocation(elf, PERL_FIRST, R_X86_64_GLOB_DAT);
	ret_runtime->found = INTERP_FOUND;
	return true;
}
