/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "config.h"

#include "tools/present/sparkline.h"

#include "tools/present/table.h"

#include <math.h>

char *sparkline(const double *values, size_t n, double max)
{
	static const char *const bars[] = { " ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" };
	static const char *const ascii[] = { " ", ".", ":", "-", "=", "+", "*", "#", "@" };
	const char *const *levels = g_get_charset(NULL) ? bars : ascii;
	const double highest = ARRAY_SIZE(bars) - 1;
	GString *line = g_string_new(NULL);

	for (size_t i = 0; i < n; i++) {
		bool is_shown = isfinite(values[i]) && values[i] > 0 && max > 0;
		double level = is_shown ? ceil(fmin(values[i] / max, 1) * highest) : 0;

		g_string_append(line, levels[(int)fmax(level, is_shown)]);
	}
	return g_string_free(line, FALSE);
}

char *sparkline_range(int64_t from_ns, int64_t to_ns)
{
	g_autofree char *from = table_number(COLUMN_REAL, (double)from_ns / 1e9);
	g_autofree char *to = table_number(COLUMN_REAL, (double)to_ns / 1e9);

	return g_strdup_printf("%s-%s s", from, to);
}
