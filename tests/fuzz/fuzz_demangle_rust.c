/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Fuzz target of tools/common/demangle-rust*.c: the input is one name. What comes out is a string
 * of valid UTF-8 within its buffer, whatever its size.
 */
#include "tools/common/demangle.h"

#include <glib.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const char *raw_name, size_t size)
{
	char *name = malloc(size);

	if (!name)
		return;
	if (demangle_rust(raw_name, name, size) &&
	    (strnlen(name, size) == size || !g_utf8_validate(name, -1, NULL)))
		abort();
	free(name);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *raw_name = malloc(size + 1);

	if (!raw_name)
		return 0;
	if (size)
		memcpy(raw_name, data, size);
	raw_name[size] = '\0';
	check(raw_name, DEMANGLE_MAX_BYTES);
	check(raw_name, 16);
	free(raw_name);
	return 0;
}
