/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Fuzz target of libcapture/dictionary.c: a whole capture. Repairs its checksums, then loads the
 * dictionaries of the first epochs with all columns, and those of epoch 1 with one column.
 */
#include "tests/fuzz/capture.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct prof_table_def *const *tables;
	struct prof_dictionary *dictionary;
	struct prof_reader *reader;
	uint8_t *copy = malloc(size + 1);
	size_t n;

	if (!copy)
		return 0;
	if (size)
		memcpy(copy, data, size);
	capture_repair(copy, size);
	reader = capture_open(copy, size);
	free(copy);
	if (!reader)
		return 0;
	tables = prof_reader_tables(reader, &n);
	for (size_t i = 0; i < n; i++) {
		const uint16_t last = tables[i]->columns[tables[i]->n_columns - 1].id;

		capture_read_epochs(reader, tables[i]);
		if (prof_dictionary_load(reader, tables[i]->id, 1, &last, 1, &dictionary) == 0)
			prof_dictionary_free(dictionary);
	}
	prof_reader_free(reader);
	return 0;
}
