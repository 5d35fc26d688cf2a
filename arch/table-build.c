/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Table build - compiles CFI to a table, in one pass over the programs
 *
 * First the FDEs' positions are collected and sorted, then each program is run once and its rows
 * are appended. Most sections are sorted already. If FDEs overlap, the later one applies from its
 * start on. As in a search of .eh_frame_hdr, no rule applies between its end and the next FDE,
 * except in a clone() (add_gap()). If FDEs have the same start, the first one is used. A hash table
 * numbers the rules in order of appearance.
 * Invariants: (1) rows ascend, and neighbors differ in their rule  [test-table: order]
 *             (2) time is linear in the sections: a search in the hash table ends after MAX_PROBES
 *                 [test-table: hostile rules]
 *             (3) memory comes only from the caller and is bounded by max_bytes; after a failure
 *                 all of it is freed  [test-table: no memory]
 *             (4) the parent in a clone() has a rule  [test-table: clone]
 */
#include "arch/table-layout.h"
#include "base/hash.h"

#include <errno.h>

#define RULE_GAP 0
#define MAX_PROBES 64
#define MAX_CLONE 16u /* bytes of code without CFI in a clone(); glibc has 10 */
#define MAX_ROWS (1u << 30)
#define RADIX_BITS 11
#define RADIX_SIZE (1u << RADIX_BITS)
#define RADIX_PASSES 3

struct place {
	uint32_t start, end; /* relative to the base */
	uint32_t at;
	uint32_t section;
};

struct row {
	uint32_t start;
	uint32_t id;
};

/* A growing array. */
struct array {
	void *items;
	size_t n, allocated, item_size;
};

struct build {
	const struct table_source *source;
	const struct table_memory *memory;
	struct array places, rows, rules;
	uint32_t *slots; /* ids of rules by hash; 0: free (rule 0 is not stored) */
	size_t n_slots;
	uint64_t used_bytes;
	uint64_t base;
	uint32_t end; /* end of the last FDE, relative to `base` */
	struct cfi_rule last_rule;
	uint32_t last_id;
};

/* ---- Memory ---- */

static int resize(struct build *build, void **block, size_t old_bytes, size_t new_bytes)
{
	uint64_t used = build->used_bytes - old_bytes + new_bytes;
	void *moved;

	if (new_bytes > old_bytes && build->source->max_bytes > 0 &&
	    used > build->source->max_bytes)
		return -E2BIG;
	moved = build->memory->resize(build->memory->data, *block, old_bytes, new_bytes);
	if (!moved && new_bytes > 0)
		return -ENOMEM;
	build->used_bytes = used;
	*block = moved;
	return 0;
}

static int reserve(struct build *build, struct array *array, size_t n)
{
	size_t old_bytes = array->allocated * array->item_size;
	uint64_t new_bytes;
	int r;

	if (n <= array->allocated)
		return 0;
	if (!mul_u64(n, array->item_size, &new_bytes))
		return -E2BIG;
	r = resize(build, &array->items, old_bytes, new_bytes);
	if (r == 0)
		array->allocated = n;
	return r;
}

static int grow(struct build *build, struct array *array)
{
	if (array->n < array->allocated)
		return 0;
	return reserve(build, array, MAX_OF(array->allocated * 2, (size_t)1024));
}

static void free_array(struct build *build, struct array *array)
{
	if (array->items)
		build->memory->resize(build->memory->data, array->items,
				      array->allocated * array->item_size, 0);
}

/* ---- Rules ---- */

/* Returns the slot that has the rule, or a free one for it; NULL after too many collisions. */
static uint32_t *find_slot(const struct build *build, uint32_t *slots, size_t n_slots,
			   const struct cfi_rule *rule)
{
	const struct cfi_rule *rules = build->rules.items;
	uint64_t words[2], hash;

	memcpy(words, rule, sizeof(words));
	hash = (words[0] ^ (words[1] * HASH_ODD)) * UINT64_C(0xff51afd7ed558ccd);
	hash ^= hash >> 32;
	for (size_t probe = 0; probe < MAX_PROBES; probe++) {
		uint32_t *slot = &slots[(hash + probe) & (n_slots - 1)];

		if (*slot == 0 || memcmp(&rules[*slot], rule, sizeof(*rule)) == 0)
			return slot;
	}
	return NULL;
}

static int grow_slots(struct build *build)
{
	const struct cfi_rule *rules = build->rules.items;
	size_t n = build->n_slots ? build->n_slots * 4 : 1024;
	uint32_t *slot;
	void *slots = NULL;
	int r;

	r = resize(build, &slots, 0, n * sizeof(*slot));
	if (r < 0)
		return r;
	memset(slots, 0, n * sizeof(*slot));
	for (uint32_t id = 1; id < build->rules.n && r == 0; id++) {
		slot = find_slot(build, slots, n, &rules[id]);
		if (slot)
			*slot = id;
		else
			r = -E2BIG;
	}
	if (build->slots)
		resize(build, (void **)&build->slots, build->n_slots * sizeof(*slot), 0);
	build->slots = slots;
	build->n_slots = n;
	return r;
}

static int add_rule(struct build *build, const struct cfi_rule *rule)
{
	int r = build->rules.n < TABLE_MAX_RULES ? grow(build, &build->rules) : -E2BIG;

	if (r < 0)
		return r;
	((struct cfi_rule *)build->rules.items)[build->rules.n++] = *rule;
	return 0;
}

static inline int get_id(struct build *build, const struct cfi_rule *rule, uint32_t *ret_id)
{
	uint32_t *slot;
	int r = 0;

	if (memcmp(rule, &build->last_rule, sizeof(*rule)) == 0) {
		*ret_id = build->last_id;
		return 0;
	}
	if (build->rules.n * 2 >= build->n_slots)
		r = grow_slots(build);
	if (r < 0)
		return r;
	slot = find_slot(build, build->slots, build->n_slots, rule);
	if (!slot)
		return -E2BIG;
	if (*slot == 0) {
		r = add_rule(build, rule);
		if (r < 0)
			return r;
		*slot = (uint32_t)build->rules.n - 1;
	}
	build->last_rule = *rule;
	build->last_id = *ret_id = *slot;
	return 0;
}

/* ---- FDEs ---- */

static int add_place(struct build *build, const struct cfi_fde *fde, uint32_t section)
{
	const struct table_source *source = build->source;
	int r;

	if (fde->start < source->low || fde->start >= source->high)
		return 0;
	r = grow(build, &build->places);
	if (r < 0)
		return r;
	((struct place *)build->places.items)[build->places.n++] = (struct place){
		.start = (uint32_t)(fde->start - build->base),
		.end = (uint32_t)(MIN_OF(fde->end, source->high) - build->base),
		.at = (uint32_t)fde->at,
		.section = section,
	};
	return 0;
}

static int collect(struct build *build)
{
	const struct table_source *source = build->source;
	struct cfi_reader reader;
	struct cfi_fde fde;
	int r = 0;

	for (uint32_t i = 0; i < source->n_sections; i++) {
		size_t at = 0;

		if (source->sections[i].size > UINT32_MAX)
			return -E2BIG;
		cfi_reader_init(&reader, &source->sections[i]);
		while (r == 0 && cfi_reader_next(&reader, &at, &fde))
			r = add_place(build, &fde, i);
	}
	return r == 0 && build->places.n == 0 ? -ENODATA : r;
}

static bool is_sorted(const struct place *places, size_t n)
{
	for (size_t i = 1; i < n; i++)
		if (places[i].start < places[i - 1].start)
			return false;
	return true;
}

static void sort_pass(const struct place *from, struct place *to, size_t n, unsigned int shift,
		      uint32_t *counts)
{
	uint32_t sum = 0;

	memset(counts, 0, RADIX_SIZE * sizeof(*counts));
	for (size_t i = 0; i < n; i++)
		counts[from[i].start >> shift & (RADIX_SIZE - 1)]++;
	for (size_t i = 0; i < RADIX_SIZE; i++) {
		uint32_t count = counts[i];

		counts[i] = sum;
		sum += count;
	}
	for (size_t i = 0; i < n; i++)
		to[counts[from[i].start >> shift & (RADIX_SIZE - 1)]++] = from[i];
}

/* The sort is stable, so that the first of two FDEs with the same start stays first. */
static int sort_places(struct build *build)
{
	size_t n = build->places.n, bytes = n * sizeof(struct place);
	struct place *places = build->places.items;
	uint32_t counts[RADIX_SIZE];
	void *scratch = NULL;
	int r;

	if (is_sorted(places, n))
		return 0;
	r = resize(build, &scratch, 0, bytes);
	if (r < 0)
		return r;
	for (unsigned int pass = 0; pass < RADIX_PASSES; pass++) {
		sort_pass(places, scratch, n, pass * RADIX_BITS, counts);
		memcpy(places, scratch, bytes);
	}
	resize(build, &scratch, bytes, 0);
	return 0;
}

/* ---- Rows ---- */

static int add_row(struct build *build, uint32_t start, uint32_t id)
{
	const struct row *rows = build->rows.items;
	int r;

	if (build->rows.n > 0 && rows[build->rows.n - 1].id == id)
		return 0;
	r = build->rows.n < MAX_ROWS ? grow(build, &build->rows) : -E2BIG;
	if (r < 0)
		return r;
	((struct row *)build->rows.items)[build->rows.n++] = (struct row){ start, id };
	return 0;
}

/*
 * Adds the rule for the gap before an FDE, whose first rule is `next`. The gap may be the part of
 * clone() between its system call and the child's code, which has no CFI: parent and child both run
 * there, and only the parent has a caller. The rule before the gap is right for the parent.
 */
static int add_gap(struct build *build, const struct place *place, const struct cfi_rule *next)
{
	const struct regs *regs = regs_get(build->source->sections[0].arch);
	const struct row *rows = build->rows.items;
	struct cfi_rule rule;
	uint32_t id = RULE_GAP;
	int r = 0;

	/* Only the register with the result of clone() distinguishes the child from the parent. */
	if (regs && regs->result < regs->n_numbered && build->rows.n > 0 &&
	    rows[build->rows.n - 1].id != RULE_GAP && next->ra == CFI_UNDEFINED &&
	    next->cfa != CFI_CFA_UNSUPPORTED && place->start - build->end <= MAX_CLONE) {
		rule = ((struct cfi_rule *)build->rules.items)[rows[build->rows.n - 1].id];
		rule.flags |= CFI_CLONE;
		r = get_id(build, &rule, &id);
	}
	return r == 0 ? add_row(build, build->end, id) : r;
}

static int add_fde(struct build *build, struct cfi_reader *reader, const struct place *place,
		   uint32_t end)
{
	struct cfi_fde fde;
	struct cfi_rows rows;
	struct cfi_row row = { 0 };
	bool is_whole = cfi_reader_get(reader, place->at, &fde), has_row = false;
	uint32_t id;
	int r = 0;

	if (is_whole) {
		cfi_rows_init(&rows, reader, &fde);
		has_row = cfi_rows_next(&rows, &row);
	}
	if (build->end < place->start)
		r = add_gap(build, place, &row.rule);
	if (!is_whole)
		return r;
	for (; r == 0 && has_row && row.start - build->base < end;
	     has_row = cfi_rows_next(&rows, &row)) {
		r = get_id(build, &row.rule, &id);
		if (r == 0)
			r = add_row(build, (uint32_t)(row.start - build->base), id);
	}
	build->end = end;
	return r;
}

static int add_rows(struct build *build)
{
	const struct table_source *source = build->source;
	const struct place *places = build->places.items;
	size_t n = build->places.n;
	struct cfi_reader reader = { .section = NULL };
	int r = 0;

	for (size_t i = 0; i < n && r == 0; i++) {
		const struct cfi_section *section = &source->sections[places[i].section];
		uint32_t end = places[i].end;

		if (i > 0 && places[i].start == places[i - 1].start)
			continue;
		for (size_t next = i + 1; next < n && places[next].start < end; next++) {
			if (places[next].start == places[i].start)
				continue;
			end = places[next].start;
		}
		if (reader.section != section)
			cfi_reader_init(&reader, section);
		r = add_fde(build, &reader, &places[i], end);
	}
	return r == 0 ? add_row(build, build->end, RULE_GAP) : r;
}

/* ---- The block ---- */

static void fill(const struct build *build, const struct table_header *header, uint8_t *bytes)
{
	const struct row *rows = build->rows.items;
	uint32_t page = 0;
	struct unwind_table table;
	uint32_t *pages;
	uint16_t *starts;

	memset(bytes, 0, table_layout_size(header));
	memcpy(bytes, header, sizeof(*header));
	table_layout_set(&table, bytes);
	memcpy((void *)table.rules, build->rules.items, header->n_rules * sizeof(struct cfi_rule));
	pages = (uint32_t *)table.pages;
	starts = (uint16_t *)table.rows;
	for (uint32_t i = 0; i < header->n_rows; i++) {
		for (; page <= rows[i].start / TABLE_PAGE; page++)
			pages[page] = i;
		starts[i] = (uint16_t)(rows[i].start % TABLE_PAGE);
		if (header->is_wide)
			((uint32_t *)table.ids)[i] = rows[i].id;
		else
			((uint16_t *)table.ids)[i] = (uint16_t)rows[i].id;
	}
	for (; page <= header->n_pages; page++)
		pages[page] = header->n_rows;
}

static int make_block(struct build *build, void **ret_bytes, size_t *ret_size)
{
	const struct row *rows = build->rows.items;
	struct table_header header = {
		.magic = TABLE_MAGIC,
		.version = TABLE_VERSION,
		.arch = (uint8_t)build->source->sections[0].arch,
		.is_wide = build->rules.n > UINT16_MAX + 1,
		.base = build->base,
		.n_pages = rows[build->rows.n - 1].start / TABLE_PAGE + 1,
		.n_rows = (uint32_t)build->rows.n,
		.n_rules = (uint32_t)build->rules.n,
	};
	uint64_t size = table_layout_size(&header);
	void *bytes = NULL;
	int r = resize(build, &bytes, 0, size);

	if (r < 0)
		return r;
	fill(build, &header, bytes);
	*ret_bytes = bytes;
	*ret_size = size;
	return 0;
}

static int run(struct build *build, void **ret_bytes, size_t *ret_size)
{
	static const struct cfi_rule gap = { .cfa = CFI_CFA_NONE };
	int r = add_rule(build, &gap);

	if (r == 0)
		r = collect(build);
	if (r == 0)
		r = sort_places(build);
	if (r == 0)
		r = reserve(build, &build->rows, build->places.n * 8);
	if (r == 0)
		r = add_rows(build);
	if (r == 0)
		r = make_block(build, ret_bytes, ret_size);
	return r;
}

int table_build(const struct table_source *source, const struct table_memory *memory,
		void **ret_bytes, size_t *ret_size)
{
	struct build build = {
		.source = source,
		.memory = memory,
		.places.item_size = sizeof(struct place),
		.rows.item_size = sizeof(struct row),
		.rules.item_size = sizeof(struct cfi_rule),
		.base = source->low & ~(uint64_t)(TABLE_PAGE - 1),
	};
	int r;

	if (source->low >= source->high || source->high - build.base >= TABLE_MAX_SPAN)
		return -E2BIG;
	r = run(&build, ret_bytes, ret_size);
	free_array(&build, &build.places);
	free_array(&build, &build.rows);
	free_array(&build, &build.rules);
	if (build.slots)
		build.memory->resize(build.memory->data, build.slots,
				     build.n_slots * sizeof(*build.slots), 0);
	return r;
}
