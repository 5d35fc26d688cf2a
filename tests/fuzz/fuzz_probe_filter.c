/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Fuzz target of arch/probe-filter.c. Input: a byte with the types of the arguments, then the text
 * of the filter. Whether the filter is invalid must not depend on the values of the arguments.
 */
#include "arch/probe-filter.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct probe_number numbers[4] = { { 0 } };
	enum probe_verdict first, second;
	const char *at = NULL;
	char *text;

	if (size == 0)
		return 0;
	text = malloc(size);
	if (!text)
		abort();
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	for (unsigned i = 0; i < 4; i++) {
		numbers[i].is_signed = *data & 1;
		numbers[i].is_float = *data >> i & 2;
	}
	first = probe_filter_test(text, numbers, 4, &at);
	for (unsigned i = 0; i < 4; i++) {
		numbers[i].is_known = true;
		numbers[i].value = i - UINT64_C(2);
	}
	second = probe_filter_test(text, numbers, 4, &at);
	if ((first == PROBE_FILTER_INVALID) != (second == PROBE_FILTER_INVALID) ||
	    (first == PROBE_FILTER_INVALID && (at < text || at > text + strlen(text))))
		abort();
	/* All arguments are known. */
	if (second == PROBE_FILTER_UNKNOWN)
		abort();
	free(text);
	return 0;
}
