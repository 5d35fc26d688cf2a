/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Fuzz target of libcapture/schema.c: an encoded schema, added to a schema with two tables of
 * version 1. An accepted schema must be valid, and equal after encoding and decoding.
 */
#include "libcapture/schema.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_again(const struct schema *schema)
{
	CLEANUP(buffer_done) struct buffer once = { 0 }, twice = { 0 };
	CLEANUP(schema_done) struct schema copy = { 0 };

	for (size_t i = 0; i < schema->n_tables; i++)
		if (!schema_table_valid(schema->tables[i]) ||
		    schema_find(schema, schema->tables[i]->id) != schema->tables[i])
			abort();
	if (schema_encode(schema, &once))
		return;
	if (schema_decode(&copy, once.data, once.size) || schema_encode(&copy, &twice))
		abort();
	if (once.size != twice.size || memcmp(once.data, twice.data, once.size) != 0)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	CLEANUP(schema_done) struct schema schema = { 0 };
	int r = schema_add(&schema, prof_table_v1(PROF_TABLE_STRING));

	if (!r)
		r = schema_add(&schema, prof_table_v1(PROF_TABLE_SOURCE));
	if (!r)
		r = schema_decode(&schema, data, size);
	check_again(&schema);
	return 0;
}
