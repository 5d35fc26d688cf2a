/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Fuzz target of tools/symbols/demangle.c: the input is one name. Its readable form must not exceed
 * the limit.
 */
#include "tools/symbols/demangle.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *raw_name = malloc(size + 1);
	char *readable;

	if (!raw_name)
		return 0;
	if (size)
		memcpy(raw_name, data, size);
	raw_name[size] = '\0';
	readable = demangle_get(raw_name);
	if (readable && (readable[0] == '\0' || strlen(readable) >= DEMANGLE_MAX_BYTES))
		abort();
	free(readable);
	free(raw_name);
	return 0;
}
