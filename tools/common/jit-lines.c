/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * JIT lines - the source lines of generated code from a jitdump
 *
 * A record of lines comes before its load and says where each line begins. Lines in a capture have
 * no time, so an address that more than one load held gets none. V8 writes line addresses that are
 * larger by an ELF header, which is where 'perf inject' puts the code. A dump in which no function
 * has a line in its first ELF_HEADER_BYTES is assumed to be V8's. V8 of node 20 frees the name of a
 * script file before it writes it, so those bytes are garbage of any length. But each line has its
 * full number of bytes, and the function's name ends in the file name, so both can be recovered.
 * Invariants: (1) a record of lines is searched once, however many loads there are
 *                 [test-jit-names: lines]
 *             (2) a line belongs to the load that held the address, and to no other
 *                 [test-jit-names: lines]
 *             (3) if one line of a record is outside of the code, none of them counts
 *                 [test-jit-names: freed_file]
 */
#include "config.h"

#include "tools/common/jit-lines.h"

#include "arch/base.h"
#include "arch/jit-dump.h"
#include "tools/common/text.h"

#define ELF_HEADER_BYTES 0x40u
#define LINE_BYTES 16u
#define PADDING_BYTES 8u
#define MAX_LINES (UINT64_C(1) << 20) /* per function */
#define MAX_NAME_BYTES 4096u
#define MAX_STEPS (UINT64_C(1) << 28) /* pairs of a load and an address that it held */

/* The loads that held an address. */
struct held {
	uint32_t loads; /* at the end, 1 = only `load` */
	size_t load;    /* the dump position after it */
};

struct search {
	const uint64_t *addresses;
	size_t n;
	struct held *held; /* by address */
	uint64_t from_ns, to_ns;
	uint64_t shift; /* of line addresses in the dump */
};

size_t jit_first_at(const uint64_t *addresses, size_t n, uint64_t address)
{
	size_t low = 0, high = n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (addresses[middle] < address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static uint64_t shift_of(struct jit_dump dump)
{
	struct jit_dump_entry entry;
	struct jit_dump_line line;
	bool any = false;

	while (jit_dump_next(&dump, &entry)) {
		if (entry.kind != JIT_DUMP_LINES)
			continue;
		while (jit_dump_next_line(&entry.lines, &line)) {
			any = true;
			if (line.address - entry.address < ELF_HEADER_BYTES)
				return 0;
		}
	}
	return any ? ELF_HEADER_BYTES : 0;
}

/* Finds the loads of each address. Only the last load before from_ns counts. Returns false
 * if there are too many. */
static bool hold(struct search *search, struct jit_dump dump)
{
	struct jit_dump_entry entry;
	uint64_t steps = 0;

	while (jit_dump_next(&dump, &entry)) {
		size_t i = jit_first_at(search->addresses, search->n, entry.address);
		bool is_first = entry.time_ns <= search->from_ns && entry.kind == JIT_DUMP_LOAD;

		if (!jit_dump_is_code(entry.kind) || entry.time_ns > search->to_ns)
			continue;
		for (; i < search->n && search->addresses[i] - entry.address < entry.size; i++) {
			struct held *held = &search->held[i];

			held->loads = is_first ? 1 : MIN_OF(held->loads + 1, 2u);
			held->loads = entry.kind == JIT_DUMP_MOVE ? 2 : held->loads;
			held->load = dump.at;
			steps++;
		}
		if (steps > MAX_STEPS)
			return false;
	}
	return true;
}

static gint compare_lines(gconstpointer left, gconstpointer right)
{
	const struct jit_dump_line *a = left, *b = right;

	return (a->address > b->address) - (a->address < b->address);
}

/* Returns the lines by address; NULL if they do not belong to this code. */
static GArray *read_lines(struct jit_dump_lines lines, const struct jit_dump_entry *load,
			  uint64_t shift)
{
	g_autoptr(GArray) all = g_array_new(FALSE, FALSE, sizeof(struct jit_dump_line));
	struct jit_dump_line line;

	while (all->len < MAX_LINES && jit_dump_next_line(&lines, &line)) {
		if (line.address - load->address - shift > load->size)
			return NULL;
		if (line.line > 0 && line.line <= INT32_MAX && line.file && *line.file)
			g_array_append_val(all, line);
	}
	if (lines.n > 0)
		return NULL;
	g_array_sort(all, compare_lines); /* a stable sort */
	return g_steal_pointer(&all);
}

/* Finds the file in "JS:*name file:12:34"; *ret_end is the ":12:34" after it. Returns false if the
 * name is not V8's. */
static bool find_end_of_file(const char *name, const char **ret_end)
{
	const char *end = name + strlen(name);

	if (!g_str_has_prefix(name, "JS:"))
		return false;
	for (int i = 0; i < 2; i++) {
		const char *digits = end;

		while (digits > name && g_ascii_isdigit(digits[-1]))
			digits--;
		if (digits == end || digits == name || digits[-1] != ':')
			return false;
		end = digits - 1;
	}
	*ret_end = end;
	return true;
}

/* Finds the number of bytes of each line; a few bytes of padding may follow the last. */
static bool repair(struct jit_dump_lines *lines, const char *name, GStringChunk *texts)
{
	size_t bytes = lines->end - lines->at;
	const char *end;

	if (lines->n == 0 || lines->n > MAX_LINES || !find_end_of_file(name, &end))
		return false;
	for (size_t stride = bytes / lines->n;
	     stride > LINE_BYTES + 1 && bytes - lines->n * stride < PADDING_BYTES; stride--) {
		size_t file_bytes = stride - LINE_BYTES - 1;

		if (file_bytes >= (size_t)(end - name) || end[-(ptrdiff_t)file_bytes - 1] != ' ')
			continue;
		lines->stride = stride;
		lines->file =
			g_string_chunk_insert_len(texts, end - file_bytes, (gssize)file_bytes);
		return true;
	}
	return false;
}

/* Returns the last line that begins at or before the address. */
static const struct jit_dump_line *line_at(const GArray *lines, uint64_t address)
{
	guint low = 0, high = lines->len;

	while (low < high) {
		guint middle = low + (high - low) / 2;

		if (g_array_index(lines, struct jit_dump_line, middle).address <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low > 0 ? &g_array_index(lines, struct jit_dump_line, low - 1) : NULL;
}

static void add_row(GArray *rows, uint64_t address, const struct jit_dump_line *line,
		    GStringChunk *texts)
{
	g_autofree char *file = text_escape_n(line->file, strnlen(line->file, MAX_NAME_BYTES));
	const struct jit_line row = { address, line->line,
				      g_string_chunk_insert_const(texts, file) };

	g_array_append_val(rows, row);
}

/* `at` is the load's place, as in struct held. */
static void name_load(const struct search *search, const struct jit_dump_entry *load, size_t at,
		      struct jit_dump_lines lines, GStringChunk *texts, GArray *rows)
{
	g_autoptr(GArray) all = NULL;

	for (size_t i = jit_first_at(search->addresses, search->n, load->address);
	     i < search->n && search->addresses[i] - load->address < load->size; i++) {
		const struct jit_dump_line *line;

		if (search->held[i].loads != 1 || search->held[i].load != at)
			continue;
		if (!all)
			all = read_lines(lines, load, search->shift);
		if (!all && repair(&lines, load->name, texts))
			all = read_lines(lines, load, search->shift);
		if (!all)
			return;
		line = line_at(all, search->addresses[i] + search->shift);
		if (line && line->address >= load->address)
			add_row(rows, search->addresses[i], line, texts);
	}
}

static gint compare_rows(gconstpointer left, gconstpointer right)
{
	const struct jit_line *a = left, *b = right;

	return (a->address > b->address) - (a->address < b->address);
}

GArray *jit_lines_of_dump(const void *bytes, size_t size, const uint64_t *addresses, size_t n,
			  uint64_t from_ns, uint64_t to_ns, GStringChunk *texts)
{
	GArray *rows = g_array_new(FALSE, FALSE, sizeof(struct jit_line));
	g_autofree struct held *held = g_new0(struct held, n + 1);
	struct search search = { addresses, n, held, from_ns, to_ns, 0 };
	struct jit_dump_entry entry, before = { 0 };
	struct jit_dump dump;

	if (!jit_dump_open(&dump, bytes, size))
		return rows;
	search.shift = shift_of(dump);
	if (!hold(&search, dump))
		return rows;
	while (jit_dump_next(&dump, &entry)) {
		if (entry.kind == JIT_DUMP_LOAD && before.kind == JIT_DUMP_LINES &&
		    before.address == entry.address)
			name_load(&search, &entry, dump.at, before.lines, texts, rows);
		/* Moves, unwinding information and other records may come between the two. */
		if (entry.kind == JIT_DUMP_LOAD || entry.kind == JIT_DUMP_LINES)
			before = entry;
	}
	g_array_sort(rows, compare_rows);
	return rows;
}
