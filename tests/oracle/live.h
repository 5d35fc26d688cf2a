/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Live - samples real stacks of a program that live_record() starts
 *
 * The program stays stopped, so that its mappings can be read; live_free() kills it. Only for
 * x86_64, because libdwfl receives registers by number.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define LIVE_REGISTERS 17 /* DWARF's first registers: the general registers and the pc */
#define LIVE_STACK_BYTES 65528

struct live_sample {
	uint64_t registers[LIVE_REGISTERS]; /* indexed by DWARF number */
	uint8_t *stack;                     /* from the stack pointer up */
	size_t stack_size;
};

struct live {
	pid_t pid;
	struct live_sample *samples;
	size_t n;
};

/* Takes at most n samples within `seconds`, at 999 Hz. Returns NULL and sets errno if no sample was
 * taken, for example because the kernel does not permit it. */
struct live *live_record(char *const *command, size_t n, unsigned int seconds);
void live_free(struct live *live);
