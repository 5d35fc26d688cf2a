/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Debug info - which function, inlined calls and source line an address of a file is, from its
 * DWARF
 *
 * The addresses of a unit come from the unit itself, because .debug_aranges is optional and often
 * missing. libdw checks what it reads; the budget of debug-unit.h bounds the amount.
 * Invariants: (1) a unit is flattened once
 *             (2) a file cannot cost more than its budget
 * Does not find files (debug-files.h).
 */
#include "tools/common/debug-info.h"

#include "tools/common/debug-unit.h"

#include <dwarf.h>
#include <glib.h>

#define MAX_UNITS (4u << 20)
#define MAX_UNIT_RANGES (64u << 20)
#define MAX_DIES (UINT64_C(1) << 30)
#define MAX_RANGES (UINT64_C(64) << 20)
#define MAX_LINES (UINT64_C(256) << 20)
#define MAX_NS (UINT64_C(60) * 1000000000)

struct unit {
	Dwarf_Off die;
	struct debug_unit *flat; /* NULL = not yet */
};

struct unit_range {
	uint64_t start, end;
	uint32_t unit;
};

struct debug_info {
	Dwarf *dwarf;
	struct debug_split *split; /* NULL = split units are not looked for */
	GArray *units;             /* struct unit */
	GArray *ranges;            /* struct unit_range, by start */
	struct debug_budget budget;
};

static gint compare_ranges(gconstpointer left, gconstpointer right)
{
	const struct unit_range *a = left, *b = right;

	if (a->start != b->start)
		return a->start < b->start ? -1 : 1;
	return (a->end > b->end) - (a->end < b->end);
}

static void add_unit(struct debug_info *info, Dwarf_Die *die)
{
	const struct unit unit = { .die = dwarf_dieoffset(die) };
	Dwarf_Addr base, start, end;
	ptrdiff_t at = 0;

	while ((at = dwarf_ranges(die, at, &base, &start, &end)) > 0 &&
	       info->ranges->len < MAX_UNIT_RANGES) {
		const struct unit_range range = { start, end, info->units->len };

		if (start < end)
			g_array_append_val(info->ranges, range);
	}
	g_array_append_val(info->units, unit);
}

static void list_units(struct debug_info *info)
{
	Dwarf_CU *unit = NULL;
	Dwarf_Die die;
	uint8_t type;

	while (info->units->len < MAX_UNITS &&
	       dwarf_get_units(info->dwarf, unit, &unit, NULL, &type, &die, NULL) == 0)
		if (type == DW_UT_compile || type == DW_UT_skeleton)
			add_unit(info, &die);
	g_array_sort(info->ranges, compare_ranges);
}

static void clear_unit(gpointer data)
{
	struct unit *unit = data;

	if (unit->flat)
		debug_unit_done(unit->flat);
	g_free(unit->flat);
}

struct debug_info *debug_info_new(const struct debug_file *file)
{
	struct debug_info *info = g_new0(struct debug_info, 1);

	info->dwarf = file->dwarf;
	info->split = file->split;
	info->units = g_array_new(FALSE, FALSE, sizeof(struct unit));
	g_array_set_clear_func(info->units, clear_unit);
	info->ranges = g_array_new(FALSE, FALSE, sizeof(struct unit_range));
	info->budget = (struct debug_budget){
		.dies = MAX_DIES,
		.ranges = MAX_RANGES,
		.lines = MAX_LINES,
		.until_ns = (uint64_t)g_get_monotonic_time() * 1000 + MAX_NS,
	};
	list_units(info);
	return info;
}

void debug_info_free(struct debug_info *info)
{
	if (!info)
		return;
	g_array_unref(info->units);
	g_array_unref(info->ranges);
	g_free(info);
}

bool debug_info_is_cut(const struct debug_info *info)
{
	return info->budget.spent;
}

static struct debug_unit *get_unit(struct debug_info *info, uint32_t number)
{
	struct unit *unit = &g_array_index(info->units, struct unit, number);
	Dwarf_Die die;

	if (!unit->flat && !info->budget.spent && dwarf_offdie(info->dwarf, unit->die, &die)) {
		unit->flat = g_new0(struct debug_unit, 1);
		debug_unit_init(unit->flat, &die, info->split, &info->budget);
	}
	return unit->flat;
}

static bool find_in_unit(struct debug_info *info, const struct unit_range *range, uint64_t address,
			 struct debug_info_place *ret_place)
{
	struct debug_unit *unit = get_unit(info, range->unit);
	struct debug_info_place place = { .start = range->start, .end = range->end };
	const struct debug_line *line;

	if (!unit)
		return false;
	place.function = debug_unit_find_function(unit, address, &place.start, &place.end);
	line = debug_unit_find_line(unit, address, &place.start, &place.end);
	if (line) {
		place.file = line->file;
		place.line = line->line;
	}
	if (!place.function && !line)
		return false;
	*ret_place = place;
	return true;
}

/* Units may overlap, because the linker folded equal functions or the file is wrong. So this tries
 * the nearest few units and uses the first with an answer. */
bool debug_info_find(struct debug_info *info, uint64_t address, struct debug_info_place *ret_place)
{
	size_t low = 0, high = info->ranges->len;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (g_array_index(info->ranges, struct unit_range, middle).start <= address)
			low = middle + 1;
		else
			high = middle;
	}
	for (size_t i = 0; i < 4 && i < low; i++) {
		const struct unit_range *range =
			&g_array_index(info->ranges, struct unit_range, low - 1 - i);

		if (address < range->end && find_in_unit(info, range, address, ret_place))
			return true;
	}
	return false;
}
