/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Symbols of ELF files - .symtab and .dynsym, merged, of the file and of its separate or packed
 * debug file
 *
 * A table is read once and only symbols that can name a wanted place are kept, so that a table of
 * 150 000 symbols is read but not sorted. Symbols name places in two ways:
 * - A symbol with a size names the places in [start, start + size). If several match, the one that
 *   starts last is used, and for equal starts the preferred one (prefer()).
 * - A symbol without a size (hand-written assembly) names the code up to the end of its FDE, or up
 *   to the next symbol, FDE or section if that is nearer. Code after the symbol's FDE that has no
 *   FDE itself, up to the next symbol, is "NAME+?".
 * For both, struct gap keeps the lowest and the highest start of a symbol between two neighboring
 * places; gap i ends at place i.
 * Invariants: (1) work is (symbols + places) x log, however the ranges overlap
 *                 [test-symbols: overlapping]
 *             (2) every name ends inside its string table  [fuzz_symbols_elf]
 * symbols.c checks and demangles names.
 */
#include "arch/base.h"
#include "base/each.h"
#include "base/order.h"
#include "tools/common/sorted.h"
#include "tools/symbols/symbols-source.h"

/* A symbol that may name a place. Its name is read as late as possible. */
struct candidate {
	uint64_t start;
	uint64_t end; /* equal to `start`: no size */
	const char *name;
	uint8_t type;
	uint8_t binding;
	bool dynamic;
	bool is_old; /* its version is no longer used to link programs */
};

#define VERSYM_HIDDEN 0x8000 /* not the default version (bit 15 in .gnu.version) */
/* limit for the bytes of a name that are compared to choose between two symbols */
#define NAME_COMPARED 1024

struct gap {
	uint64_t first_start; /* lowest start in the gap; UINT64_MAX = none */
	/* preferred symbol of the highest start in the gap; name NULL: none */
	struct candidate last;
};

struct search {
	struct symbols_query *query;
	GArray *sized;    /* struct candidate: symbols that cover a place */
	struct gap *gaps; /* n_places + 1 elements */
};

static unsigned int underscores(const char *name)
{
	unsigned int n = 0;

	while (n < 8 && name[n] == '_')
		n++;
	return n;
}

/* In .symtab, the name has the version: "cfree@GLIBC_2.2.5" is old, "free@@GLIBC_2.2.5" is not. */
static bool is_old(const struct candidate *candidate)
{
	const char *version = memchr(candidate->name, '@', strnlen(candidate->name, NAME_COMPARED));

	return candidate->is_old || (version && version[1] != '@');
}

/*
 * Decides which of two symbols with the same start is shown: `a` if the result is below 0. Prefers,
 * in this order: a symbol with a size; a function to an untyped label; a current name to a name for
 * old programs; global to local, and local to weak; fewer leading underscores; the longer name.
 * perf shows the same names, except for old ones, so that profiles of both tools can be compared.
 */
static int prefer(const struct candidate *a, const struct candidate *b)
{
	static const uint8_t ranks[16] = {
		[STB_LOCAL] = 1, [STB_GLOBAL] = 2, [STB_GNU_UNIQUE] = 2
	};
	bool a_sized = a->end > a->start, b_sized = b->end > b->start;
	size_t a_length, b_length;

	if (a_sized != b_sized)
		return a_sized ? -1 : 1;
	if ((a->type == STT_NOTYPE) != (b->type == STT_NOTYPE))
		return a->type == STT_NOTYPE ? 1 : -1;
	if (is_old(a) != is_old(b))
		return is_old(a) ? 1 : -1;
	if (ranks[a->binding] != ranks[b->binding])
		return ranks[b->binding] - ranks[a->binding];
	if (underscores(a->name) != underscores(b->name))
		return underscores(a->name) < underscores(b->name) ? -1 : 1;
	a_length = strnlen(a->name, NAME_COMPARED);
	b_length = strnlen(b->name, NAME_COMPARED);
	if (a_length != b_length)
		return a_length > b_length ? -1 : 1;
	if (a->dynamic != b->dynamic)
		return a->dynamic ? 1 : -1;
	return strncmp(a->name, b->name, NAME_COMPARED);
}

/* Highest start first; for equal starts the preferred first. */
COMPARE_BY(compare_candidates, struct candidate, ORDER(b->start, a->start), prefer(a, b))

static bool is_code_symbol(const GElf_Sym *symbol)
{
	int type = GELF_ST_TYPE(symbol->st_info);

	return (type == STT_FUNC || type == STT_GNU_IFUNC || type == STT_NOTYPE) &&
	       symbol->st_shndx != SHN_UNDEF && symbol->st_name != 0 && symbol->st_value != 0;
}

static void add_symbol(struct search *search, const struct candidate *candidate)
{
	struct symbols_query *query = search->query;
	size_t place = sorted_below(query->places, query->n_places, sizeof(*query->places),
				    candidate->start);
	struct gap *gap = &search->gaps[place];

	if (place < query->n_places && query->places[place].address < candidate->end)
		g_array_append_val(search->sized, *candidate);
	gap->first_start = MIN_OF(gap->first_start, candidate->start);
	if (!gap->last.name || candidate->start > gap->last.start ||
	    (candidate->start == gap->last.start && prefer(candidate, &gap->last) < 0))
		gap->last = *candidate;
}

/* Reads a symbol table. `versions`: symbol versions of .dynsym, or NULL. */
static void read_table(struct search *search, const struct elf_image *file, Elf_Scn *section,
		       const GElf_Shdr *header, Elf_Data *versions)
{
	const struct elf_image *elf = search->query->elf;
	const Elf_Data *strings = elf_image_get_strings(file, header->sh_link);
	Elf_Data *data = elf_image_get_data(file, section);
	size_t size = gelf_fsize(file->elf, ELF_T_SYM, 1, EV_CURRENT);
	struct elf_range code = { 0, 0 };

	if (!data || !strings)
		return;
	for (size_t i = 0; i < data->d_size / size; i++) {
		struct candidate candidate;
		GElf_Versym version = 0;
		GElf_Sym symbol;

		if (!gelf_getsym(data, (int)i, &symbol) || !is_code_symbol(&symbol) ||
		    symbol.st_name >= strings->d_size)
			continue;
		if ((symbol.st_value < code.start || symbol.st_value >= code.end) &&
		    !elf_image_get_code(elf, symbol.st_value, &code))
			continue;
		if (header->sh_type == SHT_DYNSYM && versions)
			(void)gelf_getversym(versions, (int)i, &version);
		candidate = (struct candidate){
			.start = symbol.st_value,
			.end = symbol.st_value + MIN_OF(symbol.st_size, code.end - symbol.st_value),
			.name = (const char *)strings->d_buf + symbol.st_name,
			.type = GELF_ST_TYPE(symbol.st_info),
			.binding = GELF_ST_BIND(symbol.st_info),
			.dynamic = header->sh_type == SHT_DYNSYM,
			.is_old = version & VERSYM_HIDDEN,
		};
		/*
		 * Skip assembler labels: those that begin with .L, and the marks between code and
		 * data ($x, $d.1) of ARM and RISC-V. Only untyped symbols are checked, because
		 * checking every name would cost more than everything else.
		 */
		if (candidate.type != STT_NOTYPE ||
		    (strncmp(candidate.name, ".L", 2) != 0 &&
		     (candidate.name[0] != '$' || candidate.name[1] == '\0' ||
		      !strchr("adtx", candidate.name[1]))))
			add_symbol(search, &candidate);
	}
}

/* A file has at most one table of each type. Ignores further ones. */
static void read_tables(struct search *search, const struct elf_image *file)
{
	bool seen[SHT_DYNSYM + 1] = { false };
	Elf_Scn *section = NULL;
	Elf_Data *versions = NULL;
	GElf_Shdr header;

	while (!versions && (section = elf_nextscn(file->elf, section)))
		if (gelf_getshdr(section, &header) && header.sh_type == SHT_GNU_versym)
			versions = elf_image_get_data(file, section);
	section = NULL;
	while ((section = elf_nextscn(file->elf, section))) {
		if (!gelf_getshdr(section, &header) ||
		    (header.sh_type != SHT_SYMTAB && header.sh_type != SHT_DYNSYM) ||
		    seen[header.sh_type])
			continue;
		seen[header.sh_type] = true;
		read_table(search, file, section, &header, versions);
	}
}

/* Returns the next place at or after `place` that has no name yet. next[i]: i if place i has no
 * name, else a later place. Shortens the followed chain of places. */
static size_t next_open(size_t *next, size_t place)
{
	size_t open = place;

	while (next[open] != open)
		open = next[open];
	while (next[place] != open) {
		size_t following = next[place];

		next[place] = open;
		place = following;
	}
	return open;
}

static void name_sized(struct search *search, size_t *next)
{
	struct symbols_query *query = search->query;

	g_array_sort(search->sized, compare_candidates);
	ARRAY_EACH(const struct candidate, candidate, search->sized) {
		size_t place =
			next_open(next, sorted_below(query->places, query->n_places,
						     sizeof(*query->places), candidate->start));

		while (place < query->n_places && query->places[place].address < candidate->end) {
			symbols_query_add(query, &query->places[place], candidate->start,
					  candidate->end, candidate->name, SYMBOLS_FROM_TABLE);
			next[place] = place + 1;
			place = next_open(next, place);
		}
	}
}

/*
 * Finds the code around a place that a symbol without a size names. The symbol ends at the end of
 * its FDE, or where the next FDE, symbol or section begins. The code after that end may still
 * belong to the symbol if no FDE covers that code; then, sets *ret_is_beyond.
 */
static bool get_unsized(struct search *search, const struct candidate *label, uint64_t next_start,
			uint64_t place, struct elf_range *ret_range, bool *ret_is_beyond)
{
	struct elf_frames *frames = symbols_query_frames(search->query);
	struct elf_range code, stretch;
	uint64_t limit;

	if (!elf_image_get_code(search->query->elf, label->start, &code))
		return false;
	limit = MIN_OF(next_start, code.end);
	(void)elf_frames_get(frames, label->start, &stretch);
	*ret_range = (struct elf_range){ label->start, MIN_OF(limit, stretch.end) };
	*ret_is_beyond = place >= ret_range->end;
	if (!*ret_is_beyond)
		return true;
	if (place >= limit || elf_frames_get(frames, place, &stretch))
		return false;
	*ret_range = (struct elf_range){ MAX_OF(ret_range->end, stretch.start),
					 MIN_OF(limit, stretch.end) };
	return true;
}

static void name_unsized(struct search *search, const size_t *next)
{
	struct symbols_query *query = search->query;
	g_autofree uint64_t *next_start = g_new(uint64_t, query->n_places + 1);
	const struct candidate *last = NULL;

	next_start[query->n_places] = search->gaps[query->n_places].first_start;
	for (size_t i = query->n_places; i-- > 0;)
		next_start[i] = MIN_OF(search->gaps[i].first_start, next_start[i + 1]);
	for (size_t i = 0; i < query->n_places; i++) {
		const struct symbols_place *place = &query->places[i];
		struct elf_range range;
		bool is_beyond;

		if (search->gaps[i].last.name)
			last = &search->gaps[i].last;
		if (next[i] != i || !last || last->end > last->start)
			continue;
		if (get_unsized(search, last, next_start[i + 1], place->address, &range,
				&is_beyond))
			symbols_query_add(query, place, range.start, range.end, last->name,
					  is_beyond ? SYMBOLS_BEYOND : SYMBOLS_FROM_TABLE);
	}
}

void symbols_elf_read(struct symbols_query *query)
{
	g_autoptr(GArray) sized = g_array_new(FALSE, FALSE, sizeof(struct candidate));
	g_autofree struct gap *gaps = g_new0(struct gap, query->n_places + 1);
	g_autofree size_t *next = g_new(size_t, query->n_places + 1);
	struct search search = { .query = query, .sized = sized, .gaps = gaps };

	for (size_t i = 0; i <= query->n_places; i++) {
		gaps[i].first_start = UINT64_MAX;
		next[i] = i;
	}
	read_tables(&search, query->elf);
	if (query->debug && query->debug->elf)
		read_tables(&search, query->debug->elf);
	if (query->packed)
		read_tables(&search, query->packed);
	name_sized(&search, next);
	name_unsized(&search, next);
}
