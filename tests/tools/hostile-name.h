/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Hostile-name - a name with bytes that terminals and parsers might obey
 *
 * Escapes, a terminal's title, line ends, separators of formats, markup, bytes that are not UTF-8,
 * C1's CSI and an override of the text direction.
 */
#pragma once

#include <stddef.h>

static inline void hostile_name(void *to, size_t size)
{
	static const char text[] =
		"\x1b[31m\x1b]0;x\x07\n\r\t|;,\"</script>\xff\xc2\x9b\xe2\x80\xae";

	for (size_t i = 0; i < size; i++)
		((char *)to)[i] = text[i % (sizeof(text) - 1)];
}
