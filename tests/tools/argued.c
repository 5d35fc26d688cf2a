/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Argued - static probes with arguments of all sizes, which this program prints itself
 *
 *     argued     prints lines "NAME ARGUMENT…"; "?" for an argument that no sample has
 */
#include "tests/tools/static-probe.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define CALLS 40

static volatile uint64_t mixed = 0x9e3779b97f4a7c15;
static int64_t variable = -7;

static uint64_t next(void)
{
	mixed = mixed * 6364136223846793005 + 1442695040888963407;
	return mixed ^ mixed >> 29;
}

/* The first probe's operands are in registers, the second one's wherever the compiler puts them. */
static void pass_registers(void)
{
	int8_t s8 = (int8_t)next();
	uint8_t u8 = (uint8_t)next();
	int16_t s16 = (int16_t)next();
	uint16_t u16 = (uint16_t)next();
	int32_t s32 = (int32_t)next();
	uint32_t u32 = (uint32_t)next();
	int64_t s64 = (int64_t)next();
	uint64_t u64 = next();

	STATIC_PROBE("nop", "registers", "0", "-1@%0 1@%1 -2@%2 2@%3 -4@%4 4@%5 -8@%6 8@%7",
		     "r"(s8), "r"(u8), "r"(s16), "r"(u16), "r"(s32), "r"(u32), "r"(s64), "r"(u64));
	STATIC_PROBE("nop", "likes", "0", "-1@%0 1@%1 -2@%2 2@%3 -4@%4 4@%5 -8@%6 8@%7", "nor"(s8),
		     "nor"(u8), "nor"(s16), "nor"(u16), "nor"(s32), "nor"(u32), "nor"(s64),
		     "nor"(u64));
	printf("registers %d %u %d %u %d %u %" PRId64 " %" PRIu64 "\n", s8, u8, s16, u16, s32, u32,
	       s64, u64);
	printf("likes %d %u %d %u %d %u %" PRId64 " %" PRIu64 "\n", s8, u8, s16, u16, s32, u32, s64,
	       u64);
}

/* Each operand is in memory on the stack, one of them at an index. */
static void pass_stack(void)
{
	volatile int8_t s8 = (int8_t)next();
	volatile uint16_t u16 = (uint16_t)next();
	volatile int32_t s32 = (int32_t)next();
	volatile uint64_t u64 = next();
	volatile float f32 = (float)(int32_t)next() / 3;
	volatile double f64 = (double)(int64_t)next() / 3;
	volatile int32_t list[8];
	size_t index = next() % 8;

	for (size_t i = 0; i < 8; i++)
		list[i] = (int32_t)next();
	STATIC_PROBE("nop", "stack", "0", "-1@%0 2@%1 -4@%2 8@%3 4f@%4 8f@%5 -4@%6", "m"(s8),
		     "m"(u16), "m"(s32), "m"(u64), "m"(f32), "m"(f64), "m"(list[index]));
	printf("stack %d %u %d %" PRIu64 " %.17g %.17g %d\n", s8, u16, s32, u64, (double)f32, f64,
	       list[index]);
}

/* The probe's first place has constants as arguments, its second place has fewer arguments. */
static void pass_constants(uint64_t turn)
{
	if (turn % 2 == 0) {
		STATIC_PROBE("nop", "constants", "0", "-4@%0 4@%1 1@%2 -8@%3", "n"(-5), "n"(-5),
			     "n"(255), "n"(-1234567890123));
		printf("constants -5 4294967291 255 -1234567890123\n");
	} else {
		STATIC_PROBE("nop", "constants", "0", "-8@%0 4@%1", "r"(turn), "r"((uint32_t)turn));
		printf("constants %" PRIu64 " %" PRIu64 " ? ?\n", turn, turn);
	}
}

/* Passes arguments that cannot be read: the sample lacks their memory, or their operand has an
 * unsupported form. */
static void pass_unread(int64_t *heap)
{
	STATIC_PROBE("nop", "unread", "0", "-8@%0 -8@%1 -4@%2 8@%%xmm0", "m"(*heap), "m"(variable),
		     "n"(3));
#if defined(__x86_64__)
	STATIC_PROBE("nop", "below", "0", "-8@-8(%%rsp) -4@%0", "n"(4));
#else
	STATIC_PROBE("nop", "below", "0", "-8@[sp, -8] -4@%0", "n"(4));
#endif
	printf("unread ? ? 3 ?\nbelow ? 4\n");
}

int main(void)
{
	int64_t *heap = malloc(sizeof(*heap));

	if (!heap)
		return 1;
	*heap = -9;
	for (uint64_t i = 0; i < CALLS; i++) {
		pass_registers();
		pass_stack();
		pass_constants(i);
		pass_unread(heap);
	}
	free(heap);
	/* Gives the recorder time to read the samples while this program still exists. */
	nanosleep(&(struct timespec){ .tv_nsec = 300000000 }, NULL);
	return 0;
}
