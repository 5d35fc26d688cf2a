/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Go table - reads .gopclntab
 *
 * Invariants: (1) every read lies within the section, whatever its offsets are
 *                 [fuzz_unwind_file, fuzz_symbols_elf]
 *             (2) the rows of a function lie within it and ascend  [test-go-table: damaged]
 */
#include "arch/go-table.h"

#include "arch/base.h"

#define MAGIC_1_2 0xfffffffbu
#define MAGIC_1_16 0xfffffffau
#define MAGIC_1_18 0xfffffff0u
#define MAGIC_1_20 0xfffffff1u
#define HEADER_BYTES 8
#define RECORD_NAME 0 /* indexes of the 32-bit words that follow the start in a record */
#define RECORD_DISTANCES 3
#define FLAG_OUTERMOST 0x01
#define RELOCATION_BYTES 24 /* Elf64_Rela */

static uint64_t number_at(const struct go_table *table, uint64_t at, size_t bytes)
{
	if (at > table->size || table->size - at < bytes)
		return 0;
	return bytes == 8 ? load_le64(table->bytes + at) : load_le32(table->bytes + at);
}

static uint64_t header_word(const struct go_table *table, size_t i)
{
	return number_at(table, HEADER_BYTES + i * table->word, table->word);
}

/* ---- The table ---- */

static bool read_layout(struct go_table *table, size_t *ret_text_at)
{
	switch (load_le32(table->bytes)) {
	case MAGIC_1_2:
		table->functions = HEADER_BYTES + table->word;
		return true;
	case MAGIC_1_16:
		table->names = header_word(table, 2);
		table->numbers = header_word(table, 5);
		table->functions = header_word(table, 6);
		return true;
	case MAGIC_1_18:
	case MAGIC_1_20:
		*ret_text_at = HEADER_BYTES + 2 * table->word;
		table->number = 4;
		table->flags_at = load_le32(table->bytes) == MAGIC_1_20 ? 41 : 37;
		table->text = header_word(table, 2);
		table->names = header_word(table, 3);
		table->numbers = header_word(table, 6);
		table->functions = header_word(table, 7);
		return true;
	default:
		return false;
	}
}

bool go_table_init(struct go_table *ret_table, const uint8_t *bytes, size_t size,
		   size_t *ret_text_at)
{
	struct go_table table = { .bytes = bytes, .size = size };

	*ret_text_at = 0;
	if (size <= HEADER_BYTES || (bytes[7] != 4 && bytes[7] != 8) || bytes[6] == 0)
		return false;
	table.quantum = bytes[6];
	table.word = table.number = bytes[7];
	table.n_functions = header_word(&table, 0);
	if (!read_layout(&table, ret_text_at) || table.functions > size ||
	    table.n_functions > (size - table.functions) / (2u * table.number))
		return false;
	*ret_table = table;
	return true;
}

bool go_table_relocate(const uint8_t *relocations, size_t size, uint64_t address,
		       uint64_t *ret_value)
{
	for (size_t at = 0; size - at >= RELOCATION_BYTES; at += RELOCATION_BYTES)
		if (load_le64(relocations + at) == address) {
			*ret_value = load_le64(relocations + at + 16);
			return true;
		}
	return false;
}

/* Returns the start of a function; for i == n_functions, the end of the last function. */
static uint64_t start_of(const struct go_table *table, uint64_t i)
{
	return table->text +
	       number_at(table, table->functions + i * 2 * table->number, table->number);
}

bool go_table_get(const struct go_table *table, uint64_t i, struct go_function *ret_function)
{
	uint64_t pair = table->functions + i * 2 * table->number;
	uint64_t record = number_at(table, pair + table->number, table->number);
	struct go_function function = { start_of(table, i), start_of(table, i + 1), 0 };

	/* In Go 1.2, a record's offset is relative to the table's start; in later versions, to the
	 * start of the pairs. */
	if (table->names > 0 && !add_u64(record, table->functions, &record))
		return false;
	if (record >= table->size || function.start >= function.end)
		return false;
	function.record = record;
	*ret_function = function;
	return true;
}

bool go_table_find(const struct go_table *table, uint64_t address, struct go_function *ret_function)
{
	uint64_t low = 0, high = table->n_functions;

	while (low < high) {
		uint64_t middle = low + (high - low) / 2;

		if (start_of(table, middle) <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low > 0 && go_table_get(table, low - 1, ret_function) && address < ret_function->end;
}

static uint32_t record_number(const struct go_table *table, const struct go_function *function,
			      size_t i)
{
	return (uint32_t)number_at(table, function->record + table->number + 4 * i, 4);
}

const char *go_table_name(const struct go_table *table, const struct go_function *function)
{
	uint64_t at;

	if (!add_u64(table->names, record_number(table, function, RECORD_NAME), &at) ||
	    at >= table->size || !memchr(table->bytes + at, 0, table->size - at))
		return NULL;
	return (const char *)table->bytes + at;
}

bool go_table_is_outermost(const struct go_table *table, const struct go_function *function)
{
	uint64_t at = function->record + table->flags_at;

	return table->flags_at > 0 && at < table->size && (table->bytes[at] & FLAG_OUTERMOST);
}

/* ---- Distances ---- */

void go_rows_init(struct go_rows *ret_rows, const struct go_table *table,
		  const struct go_function *function)
{
	uint32_t offset = record_number(table, function, RECORD_DISTANCES);
	uint64_t at;

	if (offset == 0 || !add_u64(table->numbers, offset, &at))
		at = table->size;
	*ret_rows = (struct go_rows){ .table = table,
				      .function = *function,
				      .distances = { table->bytes + MIN_OF(at, table->size),
						     table->bytes + table->size, false },
				      .pc = function->start,
				      .distance = -1 };
}

/* In the first row, a change of 0 is valid; in later rows, it ends the rows. */
bool go_rows_next(struct go_rows *rows, struct go_row *ret_row)
{
	uint64_t change, bytes, end;

	if (rows->pc >= rows->function.end)
		return false;
	change = byte_reader_uleb(&rows->distances);
	if (change == 0 && rows->pc > rows->function.start)
		return false;
	bytes = byte_reader_uleb(&rows->distances);
	if (rows->distances.failed || (change | bytes) > UINT32_MAX)
		return false;
	rows->distance += (int32_t)((change >> 1) ^ (0u - (change & 1)));
	if (!add_u64(rows->pc, bytes * rows->table->quantum, &end) || end <= rows->pc)
		return false;
	*ret_row = (struct go_row){ rows->pc, MIN_OF(end, rows->function.end), rows->distance };
	rows->pc = end;
	return true;
}
