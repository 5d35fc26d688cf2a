/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of arch/go-table on generated tables. test_stacks, case stripped_go, has real tables.
 */
#include "arch/go-table.h"

#include "arch/base.h"
#include "base/bytes.h"
#include "tests/unit/test.h"

#define TEXT 0x401000u
#define FIRST_END 0x40
#define SECOND_END 0x60

struct layout {
	uint32_t magic;
	bool has_text;    /* starts of functions are relative to an address in the header */
	bool has_offsets; /* the header has the offsets of the parts */
	size_t flags_at;
};

static const struct layout layouts[] = {
	{ 0xfffffffb, false, false, 0 },
	{ 0xfffffffa, false, true, 0 },
	{ 0xfffffff0, true, true, 37 },
	{ 0xfffffff1, true, true, 41 },
};

static uint8_t bytes[1024];
static size_t n_bytes;

static size_t put(const void *data, size_t size)
{
	size_t at = n_bytes;

	memcpy(bytes + n_bytes, data, size);
	n_bytes += size;
	return at;
}

static void put_number(uint64_t value, size_t size)
{
	const uint64_t word = htole64(value);

	put(&word, size);
}

/* Appends the record of a function. */
static void put_record(const struct layout *layout, uint64_t start, uint32_t name, uint32_t rows,
		       bool is_outermost)
{
	size_t at = n_bytes;

	put_number(start, layout->has_text ? 4 : 8);
	put_number(name, 4);
	put_number(0, 8);
	put_number(rows, 4);
	n_bytes = at + 48;
	bytes[at + layout->flags_at] |= layout->flags_at && is_outermost;
}

static void build(const struct layout *layout)
{
	/* go_row.distance is 0 for 4 bytes of code, then 16 for 60 bytes */
	static const uint8_t rows[] = { 0, 2, 4, 32, 0x3c, 0 };
	static const char first[] = "main.first", second[] = "main.second";
	size_t number = layout->has_text ? 4 : 8, parts[3], pairs, header;
	uint64_t base = layout->has_text ? 0 : TEXT;

	memset(bytes, 0, sizeof(bytes));
	n_bytes = 0;
	put_number(layout->magic, 4);
	put_number(0, 2);
	put_number(1, 1);
	put_number(8, 1);
	put_number(2, 8);
	header = n_bytes;
	n_bytes += layout->has_offsets ? 7 * 8 : 0;
	pairs = n_bytes;
	/* The pairs, 5 numbers, are filled in last: they have the offsets of the 2 records, of 48
	 * bytes each, that follow them. */
	n_bytes += 5 * number;
	put_record(layout, base, 0, 0, false);
	put_record(layout, base + FIRST_END, 0, 0, true);
	parts[0] = put(first, sizeof(first));
	put(second, sizeof(second));
	parts[1] = put(rows, sizeof(rows));
	parts[2] = layout->has_offsets ? pairs : 0;
	if (!layout->has_offsets)
		memset(parts, 0, sizeof(parts));
	for (size_t i = 0; i < 2; i++) {
		size_t record = pairs + 5 * number + i * 48, end = n_bytes;
		uint64_t start = base + (i ? FIRST_END : 0);

		n_bytes = pairs + i * 2 * number;
		put_number(start, number);
		put_number(record - parts[2], number);
		n_bytes = record;
		put_record(layout, start,
			   (uint32_t)(pairs + 5 * number + 96 + i * sizeof(first) - parts[0]),
			   i ? 0
			     : (uint32_t)(pairs + 5 * number + 96 + sizeof(first) + sizeof(second) +
					  1 - parts[1]),
			   i > 0);
		n_bytes = end;
	}
	store_le64(bytes + pairs + 4 * number, base + SECOND_END);
	if (!layout->has_offsets)
		return;
	size_t end = n_bytes;
	n_bytes = header + 8;
	if (layout->has_text)
		put_number(TEXT, 8);
	put_number(parts[0], 8);
	n_bytes += 16;
	put_number(parts[1], 8);
	put_number(parts[2], 8);
	n_bytes = end;
}

static void test_layouts(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(layouts); i++) {
		struct go_function function;
		struct go_table table;
		struct go_rows rows;
		struct go_row row;
		size_t text_at;

		build(&layouts[i]);
		REQUIRE(go_table_init(&table, bytes, n_bytes, &text_at));
		CHECK_INT(text_at, layouts[i].has_text ? 24 : 0);
		CHECK_INT(table.n_functions, 2);
		CHECK(!go_table_find(&table, TEXT - 1, &function));
		CHECK(!go_table_find(&table, TEXT + SECOND_END, &function));
		REQUIRE(go_table_find(&table, TEXT + FIRST_END - 1, &function));
		CHECK_INT(function.start, TEXT);
		CHECK_INT(function.end, TEXT + FIRST_END);
		CHECK_STR(go_table_name(&table, &function), "main.first");
		CHECK(!go_table_is_outermost(&table, &function));
		go_rows_init(&rows, &table, &function);
		REQUIRE(go_rows_next(&rows, &row));
		CHECK(row.start == TEXT && row.end == TEXT + 4 && row.distance == 0);
		REQUIRE(go_rows_next(&rows, &row));
		CHECK(row.start == TEXT + 4 && row.end == TEXT + FIRST_END && row.distance == 16);
		CHECK(!go_rows_next(&rows, &row));
		REQUIRE(go_table_get(&table, 1, &function));
		CHECK_STR(go_table_name(&table, &function), "main.second");
		CHECK(go_table_is_outermost(&table, &function) == (layouts[i].flags_at > 0));
		go_rows_init(&rows, &table, &function);
		CHECK(!go_rows_next(&rows, &row));
	}
}

/* With any byte damaged, reads stay within the table, and rows ascend within a function. */
static void test_damaged(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(layouts); i++) {
		build(&layouts[i]);
		for (size_t at = 0; at < n_bytes * 3; at++) {
			CLEANUP_FREE uint8_t *copy = malloc(n_bytes);
			struct go_function function;
			struct go_table table;
			struct go_rows rows;
			struct go_row row;
			size_t text_at;

			REQUIRE(copy != NULL);
			memcpy(copy, bytes, n_bytes);
			copy[at / 3] = (uint8_t[]){ 0, 0xff, 0x80 }[at % 3];
			if (!go_table_init(&table, copy, n_bytes - at % 2, &text_at))
				continue;
			for (uint64_t k = 0; k < MIN_OF(table.n_functions, 4u); k++) {
				uint64_t before;

				if (!go_table_get(&table, k, &function))
					continue;
				go_table_name(&table, &function);
				go_table_is_outermost(&table, &function);
				before = function.start;
				go_rows_init(&rows, &table, &function);
				while (go_rows_next(&rows, &row)) {
					CHECK(row.start == before && row.end > row.start &&
					      row.end <= function.end);
					before = row.end;
				}
			}
		}
	}
}

/* A number has at most ten bytes, so reading one in a long run of 0x80 stops before the run's
 * end. */
static void test_long_number(void)
{
	uint8_t run[100];
	struct byte_reader reader = { run, run + sizeof(run), false };

	memset(run, 0x80, sizeof(run));
	run[BYTES_MAX_LEB - 1] = 1;
	CHECK(byte_reader_uleb(&reader) == UINT64_C(1) << 63 && !reader.failed);
	CHECK(reader.at == run + BYTES_MAX_LEB);
	run[BYTES_MAX_LEB - 1] = 0x80;
	run[BYTES_MAX_LEB] = 0;
	reader = (struct byte_reader){ run, run + sizeof(run), false };
	byte_reader_uleb(&reader);
	CHECK(reader.failed && reader.at == reader.end);
}

static void test_relocation(void)
{
	uint8_t relocations[50] = { 0 };
	uint64_t value;

	store_le64(relocations + 24, 0x1234);
	store_le64(relocations + 40, TEXT);
	CHECK(go_table_relocate(relocations, 48, 0x1234, &value) && value == TEXT);
	CHECK(!go_table_relocate(relocations, 47, 0x1234, &value));
	CHECK(!go_table_relocate(relocations, sizeof(relocations), 0x1235, &value));
}

int main(void)
{
	RUN(test_layouts);
	RUN(test_damaged);
	RUN(test_long_number);
	RUN(test_relocation);
	return test_end();
}
