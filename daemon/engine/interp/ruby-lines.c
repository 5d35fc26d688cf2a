/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Ruby-lines - the source line of a position in a Ruby iseq
 *
 * An iseq has an entry for each word at which the line changes, and a set of these words. The
 * number of these words up to a position gives the position's entry. The set is Ruby's
 * succ_index_table (iseq.c). It has this number for each of the first 54 positions, then blocks of
 * 512 bits, each with the numbers of words before the block and before each 64 of its bits.
 * Invariants: (1) no byte beyond the end of the table is read  [fuzz_interp_record]
 *             (2) lines are those of RubyVM::InstructionSequence#to_a
 *                 [test-cruby: lines]
 * Pure functions.
 */
#include "daemon/engine/interp/ruby-lines.h"

#include "arch/base.h"
#include "daemon/interp-protocol.h"

enum {
	FIXED = 54, /* positions with a number of 7 bits each; 9 numbers in 64 bits */
	FIXED_BYTES = 48,
	BLOCK = 512,
	/* u32: number of entries before the block; u32: unused; u64: for each word of bits except
	 * the first, 9 bits: number of entries in the block before it; u64 [8]: the bits */
	BLOCK_BYTES = 80,
};

/* Returns the number of entries that begin at or before the position; 0: unknown. */
static uint32_t count_entries(const uint8_t *set, size_t size, uint32_t position)
{
	const uint32_t at = position - FIXED, word = at / 64 % 8;
	const uint8_t *block;
	uint64_t count;

	if (position < FIXED)
		return size < FIXED_BYTES
			       ? 0
			       : load_le64(set + position / 9 * 8) >> position % 9 * 7 & 127;
	if (size < FIXED_BYTES || (size - FIXED_BYTES) / BLOCK_BYTES <= at / BLOCK)
		return 0;
	block = set + FIXED_BYTES + (size_t)BLOCK_BYTES * (at / BLOCK);
	count = load_le32(block);
	if (word > 0)
		count += load_le64(block + 8) >> (word - 1) * 9 & 511;
	count += (uint64_t)__builtin_popcountll(load_le64(block + 16 + 8 * word) << (63 - at % 64));
	return count <= UINT32_MAX ? (uint32_t)count : 0;
}

uint32_t ruby_lines_find(const uint8_t *bytes, size_t size, uint32_t position)
{
	const uint8_t *numbers;
	uint32_t n, n_read, count;
	int32_t line;

	if (size < sizeof(struct interp_ruby_lines))
		return 0;
	numbers = bytes + sizeof(struct interp_ruby_lines);
	size -= sizeof(struct interp_ruby_lines);
	n = load_le32(bytes + offsetof(struct interp_ruby_lines, n));
	n_read = load_le32(bytes + offsetof(struct interp_ruby_lines, n_read));
	if (n_read > size / 4)
		return 0;
	count = n == 1 ? 1
		       : count_entries(numbers + 4 * (size_t)n_read, size - 4 * (size_t)n_read,
				       position);
	if (count == 0 || count > n_read)
		return 0;
	line = (int32_t)load_le32(numbers + 4 * (size_t)(count - 1));
	return line > 0 ? (uint32_t)line : 0;
}
