/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Fuzz target of arch/probe-arguments.c: a byte for the CPU, a description up to a NUL, and a
 * stack. Registers point into the stack and around it.
 */
#include "arch/probe-arguments.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const enum regs_arch archs[] = { REGS_X86_64, REGS_AARCH64, REGS_RISCV64 };
	struct probe_argument arguments[PROBE_MAX_ARGUMENTS];
	struct probe_state state = { 0 };
	uint64_t registers[64];
	const struct regs *regs;
	size_t length;
	unsigned n;
	char *text;

	if (size == 0)
		return 0;
	regs = regs_get(archs[*data % 3]);
	text = malloc(size);
	if (!text)
		abort();
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	n = probe_arguments_parse(archs[*data % 3], text, arguments);
	length = strlen(text);
	free(text);
	if (n > PROBE_MAX_ARGUMENTS)
		abort();
	state.stack = data + 1 + length;
	state.stack_bytes = size - 1 - length;
	for (uint64_t i = 0; i < 64; i++)
		registers[i] = (uintptr_t)state.stack + i - 32;
	registers[regs->perf_sp] = (uintptr_t)state.stack;
	for (unsigned i = 0; i < 2 * n; i++) {
		struct probe_value value;

		if (!probe_argument_is_valid(&arguments[i / 2]))
			abort();
		state.registers = i % 2 ? registers : NULL;
		value = probe_argument_read(regs, &arguments[i / 2], &state);
		if (!probe_unread_text(value.unread) != (value.unread == PROBE_READ) ||
		    (value.unread && value.value))
			abort();
	}
	return 0;
}
