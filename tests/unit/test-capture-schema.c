/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of libcapture/schema.c: encoding, decoding, conflicts, growth and invalid input.
 */
#include "libcapture/schema.h"
#include "tests/tools/rows.h"
#include "tests/unit/test.h"

static void fill(struct schema *schema)
{
	for (unsigned int id = 1; id <= PROF_TABLE_LAST; id++)
		if (prof_table_v1(id))
			CHECK_INT(schema_add(schema, prof_table_v1(id)), 0);
	CHECK_INT(schema_add(schema, rows_foreign_table()), 0);
}

static void test_round_trip(void)
{
	CLEANUP(schema_done) struct schema schema = { 0 };
	CLEANUP(schema_done) struct schema decoded = { 0 };
	CLEANUP(buffer_done) struct buffer bytes = { 0 };

	fill(&schema);
	CHECK_INT(schema_encode(&schema, &bytes), 0);
	CHECK_INT(schema_decode(&decoded, bytes.data, bytes.size), 0);
	CHECK_INT(decoded.n_tables, schema.n_tables);
	for (size_t i = 0; i < schema.n_tables; i++) {
		CHECK(schema_tables_agree(schema.tables[i], decoded.tables[i]));
		CHECK_INT(decoded.tables[i]->n_columns, schema.tables[i]->n_columns);
		CHECK(i == 0 || schema.tables[i - 1]->id < schema.tables[i]->id);
	}
	/* A second decoding changes nothing. */
	CHECK_INT(schema_decode(&decoded, bytes.data, bytes.size), 0);
	CHECK_INT(decoded.n_owned, decoded.n_tables);
}

static void test_cut(void)
{
	CLEANUP(schema_done) struct schema schema = { 0 };
	CLEANUP(buffer_done) struct buffer bytes = { 0 };

	fill(&schema);
	CHECK_INT(schema_encode(&schema, &bytes), 0);
	for (size_t n = 0; n < bytes.size; n++) {
		CLEANUP(schema_done) struct schema decoded = { 0 };
		/* Copy to a block of exactly n bytes, so that sanitizers detect reads past the
		 * end. */
		uint8_t *copy = malloc(n ? n : 1);

		REQUIRE(copy);
		memcpy(copy, bytes.data, n);
		CHECK_INT(schema_decode(&decoded, copy, n), PROF_DAMAGED);
		free(copy);
	}
}

static void test_hostile(void)
{
	CLEANUP(schema_done) struct schema schema = { 0 };
	CLEANUP(buffer_done) struct buffer bytes = { 0 };

	fill(&schema);
	CHECK_INT(schema_encode(&schema, &bytes), 0);
	for (size_t i = 0; i < bytes.size * 8; i++) {
		CLEANUP(schema_done) struct schema decoded = { 0 };
		int r;

		bytes.data[i / 8] ^= 1u << i % 8;
		r = schema_decode(&decoded, bytes.data, bytes.size);
		CHECK(r == 0 || r == PROF_DAMAGED || r == SCHEMA_CONFLICT || r == PROF_LIMIT);
		for (size_t t = 0; t < decoded.n_tables; t++)
			CHECK(schema_table_valid(decoded.tables[t]));
		bytes.data[i / 8] ^= 1u << i % 8;
	}
}

static void test_growth_and_conflict(void)
{
	static const struct prof_column_def columns[] = {
		{ .id = 0, .name = "id", .type = PROF_TYPE_UINT },
		{ .id = 1, .name = "a", .type = PROF_TYPE_UINT },
		{ .id = 2, .name = "b", .type = PROF_TYPE_TEXT },
	};
	static const struct prof_column_def others[] = {
		{ .id = 0, .name = "id", .type = PROF_TYPE_UINT },
		{ .id = 1, .name = "a", .type = PROF_TYPE_INT },
	};
	const struct prof_table_def old = {
		.name = "t", .columns = columns, .n_columns = 2, .id = 2000
	};
	const struct prof_table_def new = {
		.name = "t", .columns = columns, .n_columns = 3, .id = 2000
	};
	const struct prof_table_def other = {
		.name = "t", .columns = others, .n_columns = 2, .id = 2000
	};
	CLEANUP(schema_done) struct schema schema = { 0 };

	CHECK_INT(schema_add(&schema, &old), 0);
	CHECK_INT(schema_add(&schema, &new), 0);
	CHECK_INT(schema_find(&schema, 2000)->n_columns, 3);
	CHECK_INT(schema_add(&schema, &old), 0);
	CHECK_INT(schema_find(&schema, 2000)->n_columns, 3);
	CHECK_INT(schema_add(&schema, &other), SCHEMA_CONFLICT);
	CHECK(schema_find(&schema, 2000) == &new);
}

static void test_invalid(void)
{
	static const struct prof_column_def text[] = {
		{ .id = 0, .name = "time", .type = PROF_TYPE_TEXT }
	};
	static const struct prof_column_def twice[] = {
		{ .id = 3, .name = "a", .type = PROF_TYPE_UINT },
		{ .id = 3, .name = "b", .type = PROF_TYPE_UINT }
	};
	struct prof_table_def def = { .name = "t", .columns = text, .n_columns = 1, .id = 2000 };
	char long_name[PROF_MAX_NAME + 2];

	memset(long_name, 'x', sizeof(long_name) - 1);
	long_name[sizeof(long_name) - 1] = 0;
	CHECK(schema_table_valid(&def));
	def.flags = PROF_TABLE_TIMED;
	CHECK(!schema_table_valid(&def));
	def.flags = PROF_TABLE_DICTIONARY;
	CHECK(!schema_table_valid(&def));
	def.flags = 0;
	def.name = long_name;
	CHECK(!schema_table_valid(&def));
	def.name = "";
	CHECK(!schema_table_valid(&def));
	def.name = "t";
	def.id = 0;
	CHECK(!schema_table_valid(&def));
	def.id = 2000;
	def.columns = twice;
	def.n_columns = 2;
	CHECK(!schema_table_valid(&def));
}

int main(void)
{
	RUN(test_round_trip);
	RUN(test_cut);
	RUN(test_hostile);
	RUN(test_growth_and_conflict);
	RUN(test_invalid);
	return test_end();
}
