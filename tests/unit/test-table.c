/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Checks of arch/table: compiled rules equal evaluated ones in any order of FDEs, and damage is
 * detected. */
#include "arch/table.h"

#include "tests/unit/cfi-builder.h"
#include "tests/unit/test.h"

#include <errno.h>
#include <time.h>

#define LOW 0x10000u
#define HIGH 0x4000000u

struct made {
	void *bytes;
	size_t size;
	struct unwind_table table;
};

/* Counts the memory in use, and fails after `left` calls. */
struct account {
	size_t left;
	int64_t used;
};

static void *resize(void *data, void *block, size_t old_bytes, size_t new_bytes)
{
	struct account *account = data;

	if (new_bytes > 0 && account->left == 0)
		return NULL;
	if (new_bytes > 0)
		account->left--;
	account->used += (int64_t)new_bytes - (int64_t)old_bytes;
	if (new_bytes > 0)
		return realloc(block, new_bytes);
	free(block);
	return NULL;
}

static int make(const struct builder *b, struct account *account, uint64_t max_bytes,
		struct made *ret_made)
{
	const struct cfi_section section = build_section(b);
	const struct table_source source = {
		.sections = &section,
		.n_sections = 1,
		.low = LOW,
		.high = HIGH,
		.max_bytes = max_bytes,
	};
	const struct table_memory memory = { resize, account };
	int r = table_build(&source, &memory, &ret_made->bytes, &ret_made->size);

	if (r == 0)
		CHECK_INT(table_init(&ret_made->table, ret_made->bytes, ret_made->size), 0);
	return r;
}

static void free_made(struct made *made)
{
	free(made->bytes);
}
#define CLEANUP_MADE CLEANUP(free_made)

static int32_t offset_at(const struct made *made, uint64_t address)
{
	const struct cfi_rule *rule = table_get(&made->table, address);

	return rule->cfa == CFI_CFA_NONE ? -1 : rule->cfa_offset;
}

/* Writes a function with the rule CFA = sp + 8n. */
static void build_plain(struct builder *b, uint64_t start, uint64_t size, uint8_t n)
{
	uint8_t program[] = { OP_DEF_CFA_OFFSET, (uint8_t)(8 * n) };

	build_fde(b, start, size, (struct build_bytes){ program, sizeof(program) });
}

static void test_order(void)
{
	CLEANUP_BUILDER struct builder b = { .n = 0 };
	CLEANUP_MADE struct made made = { .bytes = NULL };
	struct account account = { .left = SIZE_MAX };

	build_x86_cie(&b);
	build_plain(&b, 0x13000, 0x100, 3);
	build_plain(&b, 0x11000, 0x100, 1);
	build_plain(&b, 0x12000, 0x1000, 2);
	build_plain(&b, 0x13100, 0x10, 3); /* the same rule continues */
	build_plain(&b, 0x5000, 0x100, 4); /* not code */
	build_plain(&b, HIGH, 0x100, 4);
	build_plain(&b, HIGH - 0x80, 0x100, 5);
	REQUIRE(make(&b, &account, 0, &made) == 0);
	CHECK_INT(offset_at(&made, 0), -1);
	CHECK_INT(offset_at(&made, LOW), -1);
	CHECK_INT(offset_at(&made, 0x10fff), -1);
	CHECK_INT(offset_at(&made, 0x11000), 8);
	CHECK_INT(offset_at(&made, 0x110ff), 8);
	CHECK_INT(offset_at(&made, 0x11100), -1);
	CHECK_INT(offset_at(&made, 0x12000), 16);
	CHECK_INT(offset_at(&made, 0x13000), 24);
	CHECK_INT(offset_at(&made, 0x1310f), 24);
	CHECK_INT(offset_at(&made, 0x13110), -1);
	CHECK_INT(offset_at(&made, HIGH - 0x80), 40);
	CHECK_INT(offset_at(&made, HIGH - 1), 40);
	CHECK_INT(offset_at(&made, HIGH), -1);
	CHECK_INT(offset_at(&made, UINT64_MAX), -1);
	CHECK_INT(made.table.n_rows, 8);
	CHECK_INT(made.table.n_rules, 5);
	CHECK_INT(account.used, made.size);
}

static void test_overlap(void)
{
	CLEANUP_BUILDER struct builder b = { .n = 0 };
	CLEANUP_MADE struct made made = { .bytes = NULL };
	struct account account = { .left = SIZE_MAX };

	build_x86_cie(&b);
	build_plain(&b, 0x11000, 0x1000, 1);
	build_plain(&b, 0x11800, 0x100, 2);
	build_plain(&b, 0x11800, 0x400, 3);
	build_plain(&b, 0x11000, 0x2000, 4);
	build_plain(&b, 0x11f00, 0x200, 5);
	REQUIRE(make(&b, &account, 0, &made) == 0);
	for (uint64_t address = 0x10ff0; address < 0x13010; address++) {
		const struct cfi_section section = build_section(&b);
		struct cfi_reader reader;
		struct cfi_rule rule;

		cfi_reader_init(&reader, &section);
		cfi_get_rule(&reader, address, &rule);
		if (!CHECK(memcmp(table_get(&made.table, address), &rule, sizeof(rule)) == 0))
			printf("# at 0x%" PRIx64 "\n", address);
	}
	CHECK_INT(offset_at(&made, 0x117ff), 8);
	CHECK_INT(offset_at(&made, 0x118ff), 16);
	CHECK_INT(offset_at(&made, 0x11900), -1);
	CHECK_INT(offset_at(&made, 0x120ff), 40);
	CHECK_INT(offset_at(&made, 0x12100), -1);
}

/* A short gap before a function without a caller, as in clone(), gets the rule that precedes the
 * gap. */
static void test_clone(void)
{
	CLEANUP_BUILDER struct builder b = { .n = 0 };
	CLEANUP_MADE struct made made = { .bytes = NULL };
	struct account account = { .left = SIZE_MAX };

	build_x86_cie(&b);
	build_plain(&b, 0x11000, 0x30, 1);
	build_fde(&b, 0x1103a, 0x10, BYTES(OP_UNDEFINED, 16));
	build_plain(&b, 0x12000, 0x30, 1);
	build_plain(&b, 0x12032, 0x10, 2);
	build_plain(&b, 0x13000, 0x30, 1);
	build_fde(&b, 0x13041, 0x10, BYTES(OP_UNDEFINED, 16));
	if (!CHECK_INT(make(&b, &account, 0, &made), 0))
		return;
	CHECK_INT(offset_at(&made, 0x11030), 8);
	CHECK_INT(offset_at(&made, 0x11039), 8);
	CHECK_INT(table_get(&made.table, 0x11039)->flags, CFI_CLONE);
	CHECK_INT(table_get(&made.table, 0x1103a)->ra, CFI_UNDEFINED);
	CHECK_INT(offset_at(&made, 0x1104a), -1);
	CHECK_INT(offset_at(&made, 0x12031), -1); /* the next function has a caller */
	CHECK_INT(offset_at(&made, 0x13030), -1); /* too far */
}

/* If a function covers many pages, most of them have no row. */
static void test_pages(void)
{
	CLEANUP_BUILDER struct builder b = { .n = 0 };
	CLEANUP_MADE struct made made = { .bytes = NULL };
	struct account account = { .left = SIZE_MAX };

	build_x86_cie(&b);
	build_plain(&b, 0x1fff0, 0x500000, 1);
	build_plain(&b, 0x3000000, 0x10, 2);
	REQUIRE(make(&b, &account, 0, &made) == 0);
	for (uint64_t address = LOW; address < HIGH; address += 0x1003) {
		int32_t want = address >= 0x1fff0 && address < 0x51fff0 ? 8 : -1;

		if (address >= 0x3000000 && address < 0x3000010)
			want = 16;
		if (!CHECK_INT(offset_at(&made, address), want))
			printf("# at 0x%" PRIx64 "\n", address);
	}
	CHECK_INT(offset_at(&made, 0x51ffef), 8);
	CHECK_INT(offset_at(&made, 0x51fff0), -1);
	CHECK_INT(offset_at(&made, 0x300000f), 16);
	CHECK_INT(made.table.n_rows, 5);
}

/* .debug_frame is used where .eh_frame has gaps. */
static void test_two_sections(void)
{
	CLEANUP_BUILDER struct builder b = { .n = 0 }, debug = { .is_debug_frame = true };
	struct account account = { .left = SIZE_MAX };
	const struct table_memory memory = { resize, &account };
	CLEANUP_MADE struct made made = { .bytes = NULL };
	struct table_source source = { .n_sections = 2, .low = LOW, .high = HIGH };
	struct cfi_section sections[2];

	build_x86_cie(&b);
	build_plain(&b, 0x11000, 0x100, 1);
	debug.arch = REGS_X86_64;
	build_cie_start(&debug, 3, "", 1, -8, 16, NO_BYTES);
	build_raw(&debug, BYTES(OP_DEF_CFA, 7, 8).bytes, 3);
	build_end(&debug);
	build_plain(&debug, 0x11000, 0x100, 2);
	build_plain(&debug, 0x12000, 0x100, 3);
	sections[0] = build_section(&b);
	sections[1] = build_section(&debug);
	source.sections = sections;
	REQUIRE(table_build(&source, &memory, &made.bytes, &made.size) == 0);
	REQUIRE(table_init(&made.table, made.bytes, made.size) == 0);
	CHECK_INT(offset_at(&made, 0x11000), 8);
	CHECK_INT(offset_at(&made, 0x12000), 24);
}

static void test_limits(void)
{
	CLEANUP_BUILDER struct builder b = { .n = 0 }, outside = { .n = 0 };
	struct account account = { .left = SIZE_MAX };
	const struct table_memory memory = { resize, &account };
	struct cfi_section section;
	struct table_source source = { .sections = &section, .n_sections = 1 };
	struct made made;

	build_x86_cie(&b);
	for (uint64_t i = 0; i < 3000; i++)
		build_plain(&b, 0x11000 + 16 * i, 16, (uint8_t)(1 + i % 30));
	CHECK_INT(make(&b, &account, 100000, &made), -E2BIG);
	CHECK_INT(account.used, 0);
	build_x86_cie(&outside);
	build_plain(&outside, 0x1000, 0x100, 1);
	CHECK_INT(make(&outside, &account, 0, &made), -ENODATA);
	CHECK_INT(account.used, 0);
	section = build_section(&b);
	source.low = 0x10000;
	CHECK_INT(table_build(&source, &memory, &made.bytes, &made.size), -E2BIG);
	source.high = source.low + TABLE_MAX_SPAN;
	CHECK_INT(table_build(&source, &memory, &made.bytes, &made.size), -E2BIG);
	source.high--;
	CHECK_INT(table_build(&source, &memory, &made.bytes, &made.size), 0);
	free(made.bytes);
}

static void test_no_memory(void)
{
	CLEANUP_BUILDER struct builder b = { .n = 0 };
	int r = -ENOMEM;

	build_x86_cie(&b);
	for (uint64_t i = 3000; i > 0; i--)
		build_plain(&b, 0x11000 + 16 * i, 16, (uint8_t)(1 + i % 30));
	for (size_t left = 0; r == -ENOMEM && left < 100; left++) {
		CLEANUP_MADE struct made made = { .bytes = NULL };
		struct account account = { .left = left };

		r = make(&b, &account, 0, &made);
		CHECK(r == 0 || account.used == 0);
		CHECK(r == 0 || r == -ENOMEM);
	}
	CHECK_INT(r, 0);
}

/* There are more rules than 16 bits can number. */
static void test_wide(void)
{
	CLEANUP_BUILDER struct builder b = { .n = 0 };
	CLEANUP_MADE struct made made = { .bytes = NULL };
	struct account account = { .left = SIZE_MAX };
	const uint64_t n = 70000;

	build_x86_cie(&b);
	build_fde_start(&b, 0x11000, n);
	for (uint64_t i = 0; i < n; i++) {
		build_number(&b, OP_DEF_CFA_OFFSET, 1);
		build_uleb(&b, i);
		build_number(&b, OP_ADVANCE | 1, 1);
	}
	build_end(&b);
	REQUIRE(make(&b, &account, 0, &made) == 0);
	CHECK(made.table.is_wide);
	CHECK_INT(made.table.n_rules, n + 1);
	for (uint64_t i = 0; i < n; i++)
		if (!CHECK_INT(offset_at(&made, 0x11000 + i), i))
			break;
	CHECK_INT(offset_at(&made, 0x11000 + n), -1);
}

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* A rule for each byte of code is more than a table may have. */
static void test_hostile_rules(void)
{
	CLEANUP_BUILDER struct builder b = { .n = 0 };
	struct account account = { .left = SIZE_MAX };
	uint64_t start = now_ms();
	struct made made;

	build_x86_cie(&b);
	build_fde_start(&b, 0x11000, 0x3000000);
	for (uint64_t i = 0; i < 0x180000; i++) {
		build_number(&b, OP_DEF_CFA_OFFSET, 1);
		build_uleb(&b, i);
		build_number(&b, OP_ADVANCE | 1, 1);
	}
	build_end(&b);
	CHECK_INT(make(&b, &account, 0, &made), -E2BIG);
	CHECK_INT(account.used, 0);
	CHECK(now_ms() - start < 5000);
}

/* Any change is detected, or lookups stay inside of the table. */
static void test_damaged(void)
{
	CLEANUP_BUILDER struct builder b = { .n = 0 };
	CLEANUP_MADE struct made made = { .bytes = NULL };
	struct account account = { .left = SIZE_MAX };
	CLEANUP_FREE uint8_t *copy = NULL;
	struct unwind_table table;

	build_x86_cie(&b);
	for (uint64_t i = 0; i < 20; i++)
		build_plain(&b, 0x11000 + 0x4000 * i, 0x2000 + 16, (uint8_t)(1 + i % 7));
	REQUIRE(make(&b, &account, 0, &made) == 0);
	copy = aligned_alloc(16, (made.size + 15) & ~(size_t)15);
	REQUIRE(copy != NULL);
	for (size_t i = 0; i < made.size; i++) {
		for (unsigned int bit = 0; bit < 8; bit++) {
			memcpy(copy, made.bytes, made.size);
			copy[i] ^= (uint8_t)(1 << bit);
			if (table_init(&table, copy, made.size) < 0)
				continue;
			for (uint64_t address = 0; address < 0x80000; address += 0x1ff3)
				CHECK(table_get(&table, table.base + address)->cfa < CFI_N_CFAS);
		}
	}
	for (size_t size = 0; size < made.size; size++)
		CHECK_INT(table_init(&table, made.bytes, size), -EBADMSG);
	CHECK_INT(table_init(&table, (uint8_t *)made.bytes + 8, made.size - 8), -EBADMSG);
}

int main(void)
{
	RUN(test_order);
	RUN(test_overlap);
	RUN(test_clone);
	RUN(test_pages);
	RUN(test_two_sections);
	RUN(test_limits);
	RUN(test_no_memory);
	RUN(test_wide);
	RUN(test_hostile_rules);
	RUN(test_damaged);
	return test_end();
}
