/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Perf map - the names that a program writes for its generated code
 *
 * Invariant: nothing outside of [text, text + bytes) is read, whatever the text is
 * [test-jit-names: map, fuzz_perf_map]
 */
#include "config.h"

#include "tools/common/perf-map.h"

#include <glib.h>
#include <string.h>

/* Reads a hex number at *at and the blanks after it. */
static bool take_number(const char **at, const char *end, uint64_t *ret_number)
{
	const char *p = *at;
	uint64_t number = 0;
	unsigned digits = 0;

	if (end - p >= 2 && p[0] == '0' && (p[1] == 'x' || p[1] == 'X'))
		p += 2;
	for (; p < end && g_ascii_isxdigit(*p); p++, digits++)
		number = number << 4 | (unsigned)g_ascii_xdigit_value(*p);
	if (digits == 0 || digits > 16 || p == end || (*p != ' ' && *p != '\t'))
		return false;
	while (p < end && (*p == ' ' || *p == '\t'))
		p++;
	*at = p;
	*ret_number = number;
	return true;
}

static bool parse(const char *line, const char *end, struct perf_map_entry *ret_entry)
{
	uint64_t start, size;

	if (end > line && end[-1] == '\r')
		end--;
	if (!take_number(&line, end, &start) || !take_number(&line, end, &size) || line == end ||
	    size == 0 || size > UINT64_MAX - start)
		return false;
	*ret_entry = (struct perf_map_entry){ start, size, line, (size_t)(end - line) };
	return true;
}

bool perf_map_next(const char *text, size_t bytes, size_t *at, struct perf_map_entry *ret_entry)
{
	while (*at < bytes) {
		const char *line = text + *at, *end = memchr(line, '\n', bytes - *at);

		if (!end) {
			*at = bytes;
			return false;
		}
		*at = (size_t)(end + 1 - text);
		if (parse(line, end, ret_entry))
			return true;
	}
	return false;
}
