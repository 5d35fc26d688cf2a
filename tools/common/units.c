/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Units - parses numbers as people write them on a command line */
#include "config.h"

#include "tools/common/units.h"

#include "tools/common/cli.h"

#include <glib/gi18n.h>
#include <inttypes.h>

#define NS_PER_S G_GUINT64_CONSTANT(1000000000)

struct unit {
	const char *name;
	uint64_t scale;
};

static const struct unit units_duration[] = {
	{ "", NS_PER_S },         { "ns", 1 },
	{ "us", 1000 },           { "\302\265s", 1000 },
	{ "ms", 1000000 },        { "s", NS_PER_S },
	{ "m", 60 * NS_PER_S },   { "min", 60 * NS_PER_S },
	{ "h", 3600 * NS_PER_S }, { "d", 86400 * NS_PER_S },
};

static const struct unit units_size[] = {
	{ "", 1 },
	{ "B", 1 },
	{ "K", 1 << 10 },
	{ "KiB", 1 << 10 },
	{ "M", 1 << 20 },
	{ "MiB", 1 << 20 },
	{ "G", 1 << 30 },
	{ "GiB", 1 << 30 },
	{ "T", G_GUINT64_CONSTANT(1) << 40 },
	{ "TiB", G_GUINT64_CONSTANT(1) << 40 },
};

/* Parses DIGITS[.DIGITS]UNIT. Truncates fractions of one ns or byte. */
static bool units_scale(const char *text, const struct unit *units, size_t n_units, uint64_t *ret)
{
	const char *p = text;
	uint64_t value = 0, numerator = 0, denominator = 1;

	if (!g_ascii_isdigit(*p))
		return false;
	for (; g_ascii_isdigit(*p); p++)
		if (!mul_u64(value, 10, &value) ||
		    !add_u64(value, (uint64_t)g_ascii_digit_value(*p), &value))
			return false;
	if (*p == '.' && !g_ascii_isdigit(*++p))
		return false;
	for (unsigned i = 0; g_ascii_isdigit(*p); i++, p++) {
		/* Digits after the 18th are irrelevant even for a day in ns. */
		if (i >= 18)
			continue;
		numerator = numerator * 10 + (uint64_t)g_ascii_digit_value(*p);
		denominator *= 10;
	}
	for (size_t i = 0; i < n_units; i++) {
		uint64_t scale = units[i].scale;

		if (strcmp(units[i].name, p) != 0)
			continue;
		return mul_u64(value, scale, &value) &&
		       add_u64(value,
			       (uint64_t)((unsigned __int128)numerator * scale / denominator), ret);
	}
	return false;
}

bool units_parse_duration(const char *text, uint64_t *ret_ns, GError **error)
{
	if (units_scale(text, units_duration, ARRAY_SIZE(units_duration), ret_ns))
		return true;
	return cli_set_error(
		error, CLI_USAGE,
		_("'%s' is not a duration; write 10, 1.5, 500ms, 2m or 1h (units: ns us ms s m h d)"),
		text);
}

bool units_parse_size(const char *text, uint64_t *ret_bytes, GError **error)
{
	if (units_scale(text, units_size, ARRAY_SIZE(units_size), ret_bytes))
		return true;
	return cli_set_error(
		error, CLI_USAGE,
		_("'%s' is not a size; write 4096, 64K or 1.5MiB (units of 1024: K M G T)"), text);
}

bool units_parse_uint(const char *text, uint64_t min, uint64_t max, uint64_t *ret_value,
		      GError **error)
{
	guint64 value;

	if (g_ascii_string_to_unsigned(text, 10, min, max, &value, NULL)) {
		*ret_value = value;
		return true;
	}
	return max == UINT64_MAX && min == 0
		       ? cli_set_error(error, CLI_USAGE, _("'%s' is not a number from 0 up"), text)
		       : cli_set_error(error, CLI_USAGE,
				       _("'%s' is not a number from %" PRIu64 " to %" PRIu64), text,
				       min, max);
}

bool units_parse_time(const char *text, struct units_time *ret_time, GError **error)
{
	bool is_from_end = *text == '-';
	struct units_time time = { .kind = is_from_end ? UNITS_TIME_END : UNITS_TIME_START };

	if (g_str_has_prefix(text, "@mark:") && text[6] != '\0') {
		time.kind = UNITS_TIME_MARK;
		time.mark = g_intern_string(text + 6);
	} else if (!units_scale(text + is_from_end, units_duration, ARRAY_SIZE(units_duration),
				&time.ns))
		return cli_set_error(
			error, CLI_USAGE,
			_("'%s' is not a time; write 1.5s (after the start), -5s (before the end) or @mark:NAME"),
			text);
	*ret_time = time;
	return true;
}

bool units_parse_range(const char *text, struct units_range *ret_range, GError **error)
{
	/* Split at the last "..", because the name of a mark may contain one. */
	const char *dots = g_strrstr(text, "..");
	g_autofree char *first = dots ? g_strndup(text, (gsize)(dots - text)) : NULL;
	struct units_range range = *ret_range;

	if (dots == text && !dots[2])
		return cli_set_error(error, CLI_USAGE, _("'%s' is not a range; write 1.2s..1.5s"),
				     text);
	if (dots != text && !units_parse_time(dots ? first : text, &range.from, error))
		return false;
	if (dots && dots[2] && !units_parse_time(dots + 2, &range.to, error))
		return false;
	*ret_range = range;
	return true;
}
