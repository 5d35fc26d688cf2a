/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Live - real stacks, sampled from a program that live_record() starts
 *
 * The program stays stopped, so that its mappings can be read; live_free() kills it. x86_64 only,
 * because libdwfl receives the registers by number.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define LIVE_REGISTERS 17 /* DWARF's first registers: the general ones, and the pc */
#define LIVE_STACK_BYTES 65528

struct live_sample {
	uint64_t registers[LIVE_REGISTERS]; /* by DWARF number */
	uint8_t *stack;                     /* from the stack pointer upwards */
	size_t stack_size;
};

struct live {
	pid_t pid;
	struct live_sample *samples;
	size_t n;
};

/* At most n samples within `seconds`, at 999 Hz. NULL with errno if the kernel does not permit
 * it. */
struct live *live_record(char *const *command, size_t n, unsigned int seconds);
void live_free(struct live *live);
