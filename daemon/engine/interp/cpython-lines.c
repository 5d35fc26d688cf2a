/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Cpython-lines - the source line of a position in a Python function
 *
 * Invariants: (1) no byte beyond the end of the table is read  [fuzz_interp_record]
 *             (2) lines are those of code.co_lines()  [test-cpython: lines]
 * Pure functions. The tables are described in CPython's Objects/locations.md (3.11),
 * Objects/lnotab_notes.txt (3.8 to 3.10) and PEP 626.
 */
#include "daemon/engine/interp/cpython-lines.h"

#include "base/bytes.h"

/* Kinds of entries in the table of locations; the other kinds do not change the line. */
enum { ONE_LINE_0 = 10, ONE_LINE_2 = 12, NO_COLUMNS = 13, LONG = 14, NO_LOCATION = 15 };

static uint32_t to_line(int64_t line)
{
	return line > 0 && line <= INT32_MAX ? (uint32_t)line : 0;
}

/* Reads a number in groups of six bits, lowest first, zigzag-encoded with the sign in bit 0. */
static int64_t read_signed(struct byte_reader *bytes)
{
	uint64_t number = 0;
	unsigned shift = 0;
	uint8_t byte;

	do {
		byte = byte_reader_u8(bytes);
		number |= shift < 32 ? (uint64_t)(byte & 63) << shift : 0;
		shift += 6;
	} while (byte & 64);
	return number & 1 ? -(int64_t)(number >> 1) : (int64_t)(number >> 1);
}

static uint32_t find_location(const struct cpython_lines *lines, int64_t position)
{
	struct byte_reader bytes = { lines->bytes, lines->bytes + lines->size, false };
	int64_t line = lines->first_line, end = 0;

	while (byte_reader_left(&bytes) > 0) {
		const uint8_t first = byte_reader_u8(&bytes);
		const unsigned kind = first >> 3 & 15;

		if (kind == NO_COLUMNS || kind == LONG)
			line += read_signed(&bytes);
		else if (kind >= ONE_LINE_0 && kind <= ONE_LINE_2)
			line += kind - ONE_LINE_0;
		/* Only the first byte of an entry has its highest bit set. */
		while (byte_reader_left(&bytes) > 0 && !(*bytes.at & 128))
			bytes.at++;
		end += 2 * ((first & 7) + 1);
		if (position < end)
			return kind == NO_LOCATION ? 0 : to_line(line);
	}
	return 0;
}

/* 3.10: pairs of a length and a line change, which applies to this length; -128: no line. */
static uint32_t find_pep626(const struct cpython_lines *lines, int64_t position)
{
	int64_t line = lines->first_line, end = 0;

	for (size_t i = 0; i + 1 < lines->size; i += 2) {
		const int8_t change = (int8_t)lines->bytes[i + 1];

		end += lines->bytes[i];
		line += change == INT8_MIN ? 0 : change;
		if (position < end)
			return change == INT8_MIN ? 0 : to_line(line);
	}
	return 0;
}

/* 3.8, 3.9: pairs of a length and a line change, which applies after this length. */
static uint32_t find_lnotab(const struct cpython_lines *lines, int64_t position)
{
	int64_t line = lines->first_line, end = 0;

	for (size_t i = 0; i + 1 < lines->size; i += 2) {
		end += lines->bytes[i];
		if (position < end)
			break;
		line += (int8_t)lines->bytes[i + 1];
	}
	return to_line(line);
}

uint32_t cpython_lines_find(const struct cpython_lines *lines, int64_t position)
{
	/* Before its first instruction, a function is at its beginning. */
	if (position < 0)
		return lines->first_line;
	if (lines->minor >= 11)
		return find_location(lines, position);
	/* f_lasti counts instructions in 3.10, and bytes in earlier versions. */
	return lines->minor == 10 ? find_pep626(lines, 2 * position) : find_lnotab(lines, position);
}
