/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Checks of arch/cfi on generated sections, valid and broken; test-cfi-files reads real ones. */
#include "arch/cfi.h"

#include "tests/unit/cfi-builder.h"
#include "tests/unit/test.h"

#define START 0x1000u
#define SIZE 0x100u

static struct cfi_rule rule_at(const struct builder *b, uint64_t pc)
{
	struct cfi_section section = build_section(b);
	struct cfi_reader reader;
	struct cfi_rule rule;

	cfi_reader_init(&reader, &section);
	cfi_get_rule(&reader, pc, &rule);
	return rule;
}

static bool check_rule(struct cfi_rule got, struct cfi_rule want, const char *what)
{
	bool same = CHECK(memcmp(&got, &want, sizeof(got)) == 0);

	if (!same)
		printf("# %s: got cfa %u%+d fp %u%+d ra %u%+d flags 0x%x\n", what, got.cfa,
		       got.cfa_offset, got.fp, got.fp_offset, got.ra, got.ra_offset, got.flags);
	return same;
}

static const struct cfi_rule at_entry = {
	.cfa = CFI_CFA_SP,
	.cfa_offset = 8,
	.ra = CFI_AT_CFA,
	.ra_offset = -8,
};
static const struct cfi_rule none = { .cfa = CFI_CFA_NONE };

static void test_rows(void)
{
	CLEANUP_BUILDER struct builder b = { .n = 0 };
	struct cfi_section section;
	struct cfi_reader reader;
	struct cfi_fde fde;
	struct cfi_rows rows;
	struct cfi_row row;
	size_t at = 0, n = 0;

	build_x86_cie(&b);
	build_fde(&b, START, SIZE,
		  BYTES(OP_ADVANCE | 1, OP_DEF_CFA_OFFSET, 16, OP_OFFSET | 6, 2, OP_ADVANCE | 3,
			OP_DEF_CFA_REGISTER, 6, OP_ADVANCE1, 0x80, OP_DEF_CFA, 7, 8));
	section = build_section(&b);
	cfi_reader_init(&reader, &section);
	REQUIRE(cfi_reader_next(&reader, &at, &fde));
	CHECK_INT(fde.start, START);
	CHECK_INT(fde.end, START + SIZE);
	for (cfi_rows_init(&rows, &reader, &fde); cfi_rows_next(&rows, &row); n++) {
		static const uint64_t ends[] = { START + 1, START + 4, START + 0x84, START + SIZE };

		REQUIRE(n < ARRAY_SIZE(ends));
		CHECK_INT(row.end, ends[n]);
	}
	CHECK_INT(n, 4);
	CHECK(!cfi_reader_next(&reader, &at, &fde));
	check_rule(rule_at(&b, START), at_entry, "entry");
	check_rule(rule_at(&b, START + 4),
		   (struct cfi_rule){ .cfa = CFI_CFA_FP,
				      .cfa_offset = 16,
				      .fp = CFI_AT_CFA,
				      .fp_offset = -16,
				      .ra = CFI_AT_CFA,
				      .ra_offset = -8 },
		   "body");
	check_rule(rule_at(&b, START + SIZE), none, "behind");
	check_rule(rule_at(&b, START - 1), none, "before");
}

/* FDE programs, which run after the CIE's program, and the resulting rule at the function's end. */
static const struct {
	const char *what;
	struct build_bytes program;
	struct cfi_rule rule;
} programs[] = {
	{ "nothing", { NULL, 0 }, { CFI_CFA_SP, 0, CFI_AT_CFA, 0, 8, 0, -8 } },
	{ "args size",
	  BYTES(OP_ARGS_SIZE, 0x90, 0x01),
	  { CFI_CFA_SP, 0, CFI_AT_CFA, 0, 8, 0, -8 } },
	{ "def_cfa_offset",
	  BYTES(OP_DEF_CFA_OFFSET, 0x80, 0x02),
	  { CFI_CFA_SP, 0, CFI_AT_CFA, 0, 256, 0, -8 } },
	{ "def_cfa_offset_sf",
	  BYTES(OP_DEF_CFA_OFFSET_SF, 0x7e),
	  { CFI_CFA_SP, 0, CFI_AT_CFA, 0, 16, 0, -8 } },
	{ "def_cfa_sf",
	  BYTES(OP_DEF_CFA_SF, 6, 0x7d),
	  { CFI_CFA_FP, 0, CFI_AT_CFA, 0, 24, 0, -8 } },
	{ "def_cfa_register",
	  BYTES(OP_DEF_CFA_REGISTER, 6),
	  { CFI_CFA_FP, 0, CFI_AT_CFA, 0, 8, 0, -8 } },
	{ "another register",
	  BYTES(OP_DEF_CFA_REGISTER, 3),
	  { CFI_CFA_REGISTER, 0, CFI_AT_CFA, 3 << CFI_NUMBER_SHIFT, 8, 0, -8 } },
	{ "no register", BYTES(OP_DEF_CFA_REGISTER, 17), { .cfa = CFI_CFA_UNSUPPORTED } },
	{ "far",
	  BYTES(OP_DEF_CFA_OFFSET, 0x80, 0x80, 0x80, 0x80, 0x08),
	  { .cfa = CFI_CFA_UNSUPPORTED } },
	{ "offset",
	  BYTES(OP_OFFSET | 6, 3),
	  { CFI_CFA_SP, CFI_AT_CFA, CFI_AT_CFA, 0, 8, -24, -8 } },
	{ "offset_extended",
	  BYTES(OP_OFFSET_EXTENDED, 6, 3),
	  { CFI_CFA_SP, CFI_AT_CFA, CFI_AT_CFA, 0, 8, -24, -8 } },
	{ "offset_extended_sf",
	  BYTES(OP_OFFSET_EXTENDED_SF, 6, 0x7d),
	  { CFI_CFA_SP, CFI_AT_CFA, CFI_AT_CFA, 0, 8, 24, -8 } },
	{ "negative_offset",
	  BYTES(OP_NEGATIVE_OFFSET, 6, 3),
	  { CFI_CFA_SP, CFI_AT_CFA, CFI_AT_CFA, 0, 8, 24, -8 } },
	{ "restore",
	  BYTES(OP_OFFSET | 6, 3, OP_RESTORE | 6),
	  { CFI_CFA_SP, 0, CFI_AT_CFA, 0, 8, 0, -8 } },
	{ "restore_extended",
	  BYTES(OP_UNDEFINED, 16, OP_RESTORE_EXTENDED, 16),
	  { CFI_CFA_SP, 0, CFI_AT_CFA, 0, 8, 0, -8 } },
	{ "undefined", BYTES(OP_UNDEFINED, 16), { CFI_CFA_SP, 0, CFI_UNDEFINED, 0, 8, 0, 0 } },
	{ "fp undefined",
	  BYTES(OP_UNDEFINED, 6),
	  { CFI_CFA_SP, CFI_UNDEFINED, CFI_AT_CFA, 0, 8, 0, -8 } },
	{ "same_value",
	  BYTES(OP_OFFSET | 6, 3, OP_SAME_VALUE, 6),
	  { CFI_CFA_SP, 0, CFI_AT_CFA, 0, 8, 0, -8 } },
	{ "ra same", BYTES(OP_SAME_VALUE, 16), { .cfa = CFI_CFA_UNSUPPORTED } },
	{ "fp in a register",
	  BYTES(OP_REGISTER, 6, 3),
	  { CFI_CFA_SP, CFI_UNDEFINED, CFI_AT_CFA, 0, 8, 0, -8 } },
	{ "ra in a register",
	  BYTES(OP_REGISTER, 16, 3),
	  { CFI_CFA_SP, 0, CFI_IN_REGISTER, 0, 8, 0, 3 } },
	{ "ra in no register", BYTES(OP_REGISTER, 16, 17), { .cfa = CFI_CFA_UNSUPPORTED } },
	{ "others",
	  BYTES(OP_OFFSET | 3, 3, OP_REGISTER, 12, 13, OP_VAL_EXPRESSION, 14, 1, 0x30),
	  { CFI_CFA_SP, 0, CFI_AT_CFA, 0, 8, 0, -8 } },
	{ "val_offset",
	  BYTES(OP_VAL_OFFSET, 6, 2),
	  { CFI_CFA_SP, CFI_UNDEFINED, CFI_AT_CFA, 0, 8, 0, -8 } },
	{ "sp is the CFA",
	  BYTES(OP_VAL_OFFSET_SF, 7, 0),
	  { CFI_CFA_SP, 0, CFI_AT_CFA, 0, 8, 0, -8 } },
	{ "sp is not", BYTES(OP_VAL_OFFSET, 7, 1), { .cfa = CFI_CFA_UNSUPPORTED } },
	{ "sp elsewhere", BYTES(OP_OFFSET | 7, 1), { .cfa = CFI_CFA_UNSUPPORTED } },
	/* Expressions: realigned frames of gcc, signal frames, the PLT, and some that rules cannot
	 * express. */
	{ "register",
	  BYTES(OP_DEF_CFA_EXPRESSION, 2, 0x77, 16),
	  { CFI_CFA_SP, 0, CFI_AT_CFA, 0, 16, 0, -8 } },
	{ "*(fp - 8)",
	  BYTES(OP_EXPRESSION, 6, 2, 0x76, 0, OP_DEF_CFA_EXPRESSION, 3, 0x76, 0x78, 0x06),
	  { CFI_CFA_AT_FP, CFI_AT_FP, CFI_AT_CFA, 0, -8, 0, -8 } },
	{ "*(sp + 16)",
	  BYTES(OP_DEF_CFA_EXPRESSION, 3, 0x77, 16, 0x06, OP_EXPRESSION, 7, 2, 0x77, 16,
		OP_EXPRESSION, 16, 2, 0x77, 24),
	  { CFI_CFA_AT_SP, 0, CFI_AT_SP, 0, 16, 0, 24 } },
	{ "*(sp + 16) + 56",
	  BYTES(OP_DEF_CFA_EXPRESSION, 5, 0x77, 16, 0x06, 0x23, 56),
	  { CFI_CFA_AT_SP, 0, CFI_AT_CFA, 7 << CFI_NUMBER_SHIFT, 16, 0, -8 } },
	{ "*(sp + 16) + 57",
	  BYTES(OP_DEF_CFA_EXPRESSION, 5, 0x77, 16, 0x06, 0x23, 57),
	  { .cfa = CFI_CFA_UNSUPPORTED } },
	{ "back to a register",
	  BYTES(OP_DEF_CFA_EXPRESSION, 5, 0x77, 16, 0x06, 0x23, 56, OP_DEF_CFA_OFFSET, 32,
		OP_DEF_CFA_REGISTER, 6),
	  { CFI_CFA_FP, 0, CFI_AT_CFA, 0, 32, 0, -8 } },
	{ "offset_sf of an expression",
	  BYTES(OP_DEF_CFA_EXPRESSION, 3, 0x77, 16, 0x06, OP_DEF_CFA_OFFSET_SF, 0x7e),
	  { CFI_CFA_AT_SP, 0, CFI_AT_CFA, 0, 16, 0, -8 } },
	{ "sp at fp",
	  BYTES(OP_DEF_CFA_EXPRESSION, 3, 0x76, 16, 0x06, OP_EXPRESSION, 7, 2, 0x76, 16),
	  { CFI_CFA_AT_FP, 0, CFI_AT_CFA, 0, 16, 0, -8 } },
	{ "sp at another place",
	  BYTES(OP_EXPRESSION, 7, 2, 0x77, 16),
	  { .cfa = CFI_CFA_UNSUPPORTED } },
	{ "*(rbx)",
	  BYTES(OP_DEF_CFA_EXPRESSION, 3, 0x73, 0, 0x06),
	  { .cfa = CFI_CFA_UNSUPPORTED } },
	{ "**(sp)",
	  BYTES(OP_DEF_CFA_EXPRESSION, 4, 0x77, 0, 0x06, 0x06),
	  { .cfa = CFI_CFA_UNSUPPORTED } },
	{ "empty", BYTES(OP_DEF_CFA_EXPRESSION, 0), { .cfa = CFI_CFA_UNSUPPORTED } },
	{ "fp by rbx",
	  BYTES(OP_EXPRESSION, 6, 2, 0x73, 0),
	  { CFI_CFA_SP, CFI_UNDEFINED, CFI_AT_CFA, 0, 8, 0, -8 } },
	{ "PLT",
	  BYTES(OP_DEF_CFA_EXPRESSION, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24,
		0x22),
	  { CFI_CFA_PLT, 0, CFI_AT_CFA, 11 << CFI_NUMBER_SHIFT, 8, 0, -8 } },
	{ "nearly a PLT",
	  BYTES(OP_DEF_CFA_EXPRESSION, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24,
		0x1c),
	  { .cfa = CFI_CFA_UNSUPPORTED } },
	{ "after it",
	  BYTES(OP_DEF_CFA_EXPRESSION, 1, 0x30, OP_DEF_CFA, 7, 24),
	  { CFI_CFA_SP, 0, CFI_AT_CFA, 0, 24, 0, -8 } },
	/* Broken programs. */
	{ "unknown", BYTES(0x3f), { .cfa = CFI_CFA_UNSUPPORTED } },
	{ "of another CPU", BYTES(OP_NEGATE_RA_STATE), { .cfa = CFI_CFA_UNSUPPORTED } },
	{ "nothing remembered", BYTES(OP_RESTORE_STATE), { .cfa = CFI_CFA_UNSUPPORTED } },
	{ "offset of an expression",
	  BYTES(OP_DEF_CFA_EXPRESSION, 1, 0x30, OP_DEF_CFA_OFFSET, 8),
	  { .cfa = CFI_CFA_UNSUPPORTED } },
	{ "block too long", BYTES(OP_EXPRESSION, 6, 0xff, 0x01), { .cfa = CFI_CFA_UNSUPPORTED } },
	{ "endless number",
	  BYTES(OP_DEF_CFA_OFFSET, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff),
	  { .cfa = CFI_CFA_UNSUPPORTED } },
	{ "backwards", BYTES(OP_SET_LOC, 0, 0, 0xc0, 0xff), { .cfa = CFI_CFA_UNSUPPORTED } },
	{ "remembered nine deep",
	  BYTES(OP_REMEMBER, OP_REMEMBER, OP_REMEMBER, OP_REMEMBER, OP_REMEMBER, OP_REMEMBER,
		OP_REMEMBER, OP_REMEMBER, OP_REMEMBER),
	  { .cfa = CFI_CFA_UNSUPPORTED } },
};

static void test_programs(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(programs); i++) {
		CLEANUP_BUILDER struct builder b = { .n = 0 };

		build_x86_cie(&b);
		build_fde_start(&b, START, SIZE);
		build_raw(&b, BYTES(OP_ADVANCE | 16).bytes, 1);
		build_raw(&b, programs[i].program.bytes, programs[i].program.n);
		build_end(&b);
		check_rule(rule_at(&b, START + 15), at_entry, programs[i].what);
		check_rule(rule_at(&b, START + SIZE - 1), programs[i].rule, programs[i].what);
	}
}

static void test_remember(void)
{
	CLEANUP_BUILDER struct builder b = { .n = 0 };

	build_x86_cie(&b);
	build_fde(&b, START, SIZE,
		  BYTES(OP_DEF_CFA_OFFSET, 16, OP_REMEMBER, OP_ADVANCE | 1, OP_DEF_CFA_OFFSET, 24,
			OP_REMEMBER, OP_ADVANCE | 1, OP_DEF_CFA_OFFSET, 32, OP_ADVANCE | 1,
			OP_RESTORE_STATE, OP_ADVANCE | 1, OP_RESTORE_STATE));
	for (size_t i = 0; i < 5; i++) {
		static const int32_t offsets[] = { 16, 24, 32, 24, 16 };

		CHECK_INT(rule_at(&b, START + i).cfa_offset, offsets[i]);
	}
}

static void test_advance(void)
{
	CLEANUP_BUILDER struct builder b = { .arch = REGS_AARCH64 };

	build_cie(&b, "zR", 4, -8, 30, BYTES(0x1b), BYTES(OP_DEF_CFA, 31, 0));
	build_fde(&b, START, 0x1000000,
		  BYTES(OP_ADVANCE1, 2, OP_DEF_CFA_OFFSET, 1, OP_ADVANCE2, 0, 1, OP_DEF_CFA_OFFSET,
			2, OP_ADVANCE4, 0, 0, 1, 0, OP_DEF_CFA_OFFSET, 3, OP_ADVANCE8, 0, 0, 2, 0,
			0, 0, 0, 0, OP_DEF_CFA_OFFSET, 4, OP_ADVANCE8, 0, 0, 0, 0, 0, 0, 0, 0xff));
	CHECK_INT(rule_at(&b, START + 7).cfa_offset, 0);
	CHECK_INT(rule_at(&b, START + 8).cfa_offset, 1);
	CHECK_INT(rule_at(&b, START + 8 + 0x3ff).cfa_offset, 1);
	CHECK_INT(rule_at(&b, START + 8 + 0x400).cfa_offset, 2);
	CHECK_INT(rule_at(&b, START + 8 + 0x400 + 0x40000).cfa_offset, 3);
	CHECK_INT(rule_at(&b, START + 8 + 0x400 + 0x40000 + 0x80000).cfa, CFI_CFA_UNSUPPORTED);
}

static void test_set_loc(void)
{
	CLEANUP_BUILDER struct builder b = { .arch = REGS_X86_64 };

	build_cie(&b, "", 1, -8, 16, NO_BYTES, BYTES(OP_DEF_CFA, 7, 8));
	build_fde(&b, START, SIZE,
		  BYTES(OP_SET_LOC, 0x20, 0x10, 0, 0, 0, 0, 0, 0, OP_DEF_CFA_OFFSET, 16));
	CHECK_INT(rule_at(&b, START + 0x1f).cfa_offset, 8);
	CHECK_INT(rule_at(&b, START + 0x20).cfa_offset, 16);
}

static void test_encodings(void)
{
	static const uint8_t good[] = { 0x00, 0x01, 0x02, 0x03, 0x04, 0x08, 0x09, 0x0a,
					0x0b, 0x0c, 0x10, 0x18, 0x1b, 0x1c, 0x1a, 0x13 };
	static const uint8_t bad[] = { 0x05, 0x0d, 0x60, 0x9b };

	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		CLEANUP_BUILDER struct builder b = { .arch = REGS_X86_64 };
		uint64_t start = (good[i] & 0x70) == 0x10 ? BUILD_ADDRESS + 0x1000 : START;

		build_cie(&b, "zR", 1, -8, 16, BYTES(good[i]), BYTES(OP_DEF_CFA, 7, 8));
		build_fde(&b, start, SIZE, NO_BYTES);
		if (!check_rule(rule_at(&b, start + SIZE - 1), at_entry, "encoding"))
			printf("# encoding 0x%x\n", good[i]);
		check_rule(rule_at(&b, start + SIZE), none, "encoding");
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		CLEANUP_BUILDER struct builder b = { .arch = REGS_X86_64 };

		build_cie(&b, "zR", 1, -8, 16, BYTES(bad[i]), BYTES(OP_DEF_CFA, 7, 8));
		build_fde(&b, START, SIZE, BYTES(0, 0, 0, 0, 0, 0, 0, 0));
		check_rule(rule_at(&b, START), none, "bad encoding");
	}
}

/* The encodings textrel, datarel, funcrel and aligned, which linkers never produce. */
static void test_relations(void)
{
	static const uint8_t encodings[] = { 0x23, 0x33, 0x43, 0x50 };
	static const uint64_t starts[] = { 0x71000, 0x81000, 0x1000, 0x1000 };

	for (size_t i = 0; i < ARRAY_SIZE(encodings); i++) {
		CLEANUP_BUILDER struct builder b = { .arch = REGS_X86_64 };
		struct cfi_section section;
		struct cfi_reader reader;
		struct cfi_rule rule;

		build_cie(&b, "zR", 1, -8, 16, BYTES(encodings[i]), BYTES(OP_DEF_CFA, 7, 8));
		build_fde(&b, START, SIZE, NO_BYTES);
		section = build_section(&b);
		section.text_base = 0x70000;
		section.data_base = 0x80000;
		cfi_reader_init(&reader, &section);
		cfi_get_rule(&reader, starts[i] + 1, &rule);
		check_rule(rule, at_entry, "relation");
	}
}

static void test_augmentations(void)
{
	CLEANUP_BUILDER struct builder b = { .arch = REGS_X86_64 };
	struct cfi_rule signal = at_entry;

	build_cie(&b, "zPLR", 1, -8, 16, BYTES(0x9b, 1, 2, 3, 4, 0x1b, 0x1b),
		  BYTES(OP_DEF_CFA, 7, 8));
	b.encoding = 0x1b;
	build_fde(&b, START, SIZE, NO_BYTES);
	check_rule(rule_at(&b, START), at_entry, "zPLR");
	build_cie(&b, "zRS", 1, -8, 16, BYTES(0x1b), BYTES(OP_DEF_CFA, 7, 8));
	build_fde(&b, START + SIZE, SIZE, NO_BYTES);
	signal.flags = CFI_SIGNAL;
	check_rule(rule_at(&b, START + SIZE), signal, "zRS");
	build_cie(&b, "zR?", 1, -8, 16, BYTES(0x1b), BYTES(OP_DEF_CFA, 7, 8));
	build_fde(&b, START + 2 * SIZE, SIZE, NO_BYTES);
	check_rule(rule_at(&b, START + 2 * SIZE), none, "unknown letter");
	build_cie(&b, "eh", 1, -8, 16, NO_BYTES, BYTES(OP_DEF_CFA, 7, 8));
	build_fde(&b, START + 3 * SIZE, SIZE, NO_BYTES);
	check_rule(rule_at(&b, START + 3 * SIZE), none, "gcc 2");
	build_cie(&b, "zRRRRRRRRR", 1, -8, 16, BYTES(0x1b), BYTES(OP_DEF_CFA, 7, 8));
	build_fde(&b, START + 4 * SIZE, SIZE, NO_BYTES);
	check_rule(rule_at(&b, START + 4 * SIZE), none, "too many letters");
	build_cie(&b, "zPR", 1, -8, 16, BYTES(0xff, 0x1b), BYTES(OP_DEF_CFA, 7, 8));
	b.encoding = 0x1b;
	build_fde(&b, START + 5 * SIZE, SIZE, NO_BYTES);
	check_rule(rule_at(&b, START + 5 * SIZE), at_entry, "no personality");
	build_cie(&b, "zPR", 1, -8, 16, BYTES(0x50, 0, 0, 0, 0, 0), BYTES(OP_DEF_CFA, 7, 8));
	build_fde(&b, START + 6 * SIZE, SIZE, NO_BYTES);
	check_rule(rule_at(&b, START + 6 * SIZE), none, "data too short");
}

static void test_bad_cies(void)
{
	static const struct {
		uint8_t version;
		uint64_t code_align, ra;
	} cies[] = { { 0, 1, 16 }, { 2, 1, 16 }, { 4, 1, 16 }, { 1, 0, 16 }, { 1, 1, 3 } };
	CLEANUP_BUILDER struct builder b = { .arch = REGS_X86_64 };

	for (size_t i = 0; i < ARRAY_SIZE(cies); i++) {
		build_cie_start(&b, cies[i].version, "zR", cies[i].code_align, -8, cies[i].ra,
				BYTES(0x1b));
		b.encoding = 0x1b;
		build_raw(&b, BYTES(OP_DEF_CFA, 7, 8).bytes, 3);
		build_end(&b);
		build_fde(&b, START + i * SIZE, SIZE, NO_BYTES);
		check_rule(rule_at(&b, START + i * SIZE), none, "bad CIE");
	}
	/* A CIE must not advance, its program must be valid, and an FDE must refer to a CIE. */
	build_cie(&b, "zR", 1, -8, 16, BYTES(0x1b), BYTES(OP_ADVANCE | 1));
	build_fde(&b, 0x8000, SIZE, NO_BYTES);
	check_rule(rule_at(&b, 0x8000), none, "moving CIE");
	build_cie(&b, "zR", 1, -8, 16, BYTES(0x1b), BYTES(0x3f));
	build_fde(&b, 0x8000, SIZE, NO_BYTES);
	check_rule(rule_at(&b, 0x8000), none, "broken CIE");
	b.cie_at = b.record_at;
	build_fde(&b, 0x8000, SIZE, NO_BYTES);
	check_rule(rule_at(&b, 0x8000), none, "an FDE for a CIE");
	b.cie_at = b.n + 1000;
	build_fde(&b, 0x8000, SIZE, NO_BYTES);
	check_rule(rule_at(&b, 0x8000), none, "no CIE");
	build_x86_cie(&b);
	build_fde(&b, 0x8000, SIZE, NO_BYTES);
	check_rule(rule_at(&b, 0x8000), at_entry, "after all of them");
}

/* Many FDEs alternate between CIEs with long programs. Every second program is too long. */
static void test_costly_cies(void)
{
	CLEANUP_BUILDER struct builder b = { .arch = REGS_X86_64 };
	size_t cies[64], at = 0, n = 0;
	struct cfi_section section;
	struct cfi_reader reader;
	struct cfi_fde fde;

	for (size_t i = 0; i < ARRAY_SIZE(cies); i++) {
		uint8_t program[200] = { OP_DEF_CFA, 7, 8 };

		build_cie(&b, "zR", 1, -8, 16, BYTES(0x1b),
			  (struct build_bytes){ program, i % 2 ? 200 : 100 });
		cies[i] = b.cie_at;
	}
	for (size_t i = 0; i < 100000; i++) {
		b.cie_at = cies[i % ARRAY_SIZE(cies)];
		build_fde(&b, START + i * 4, 4, NO_BYTES);
	}
	section = build_section(&b);
	cfi_reader_init(&reader, &section);
	while (cfi_reader_next(&reader, &at, &fde))
		n++;
	CHECK_INT(n, 50000);
}

static void test_ranges(void)
{
	CLEANUP_BUILDER struct builder b = { .arch = REGS_X86_64 };

	build_cie(&b, "", 1, -8, 16, NO_BYTES, BYTES(OP_DEF_CFA, 7, 8));
	build_fde(&b, START, 0, NO_BYTES);
	build_fde(&b, UINT64_MAX - 15, 17, NO_BYTES);
	check_rule(rule_at(&b, START), none, "empty");
	check_rule(rule_at(&b, UINT64_MAX - 1), none, "wrapped");
	build_fde(&b, UINT64_MAX - 15, 15, NO_BYTES);
	check_rule(rule_at(&b, UINT64_MAX - 1), at_entry, "the last");
	/* If FDEs overlap, the one with the higher start is used; with equal starts, the first
	 * one. */
	build_fde(&b, START, SIZE, NO_BYTES);
	build_fde(&b, START + 16, 16, BYTES(OP_DEF_CFA_OFFSET, 16));
	build_fde(&b, START + 16, 64, BYTES(OP_DEF_CFA_OFFSET, 24));
	CHECK_INT(rule_at(&b, START + 15).cfa_offset, 8);
	CHECK_INT(rule_at(&b, START + 31).cfa_offset, 16);
	check_rule(rule_at(&b, START + 32), none, "behind the inner one");
}

static void test_debug_frame(void)
{
	for (size_t i = 0; i < 4; i++) {
		CLEANUP_BUILDER struct builder b = { .arch = REGS_X86_64,
						     .is_debug_frame = true,
						     .is_long = i % 2 };

		build_cie_start(&b, i < 2 ? 4 : 3, "", 1, -8, 16, NO_BYTES);
		build_raw(&b, BYTES(OP_DEF_CFA, 7, 8).bytes, 3);
		build_end(&b);
		build_fde(&b, START, SIZE, BYTES(OP_ADVANCE | 4, OP_DEF_CFA_OFFSET, 16));
		check_rule(rule_at(&b, START), at_entry, "debug_frame");
		CHECK_INT(rule_at(&b, START + 4).cfa_offset, 16);
	}
}

static void test_long_records(void)
{
	CLEANUP_BUILDER struct builder b = { .is_long = true };

	build_x86_cie(&b);
	build_number(&b, 0, 4); /* a terminator, as at the end of one of the linker's input files */
	build_fde(&b, START, SIZE, NO_BYTES);
	check_rule(rule_at(&b, START), at_entry, "64-bit .eh_frame");
}

/* Every prefix of a section is read without reads past its end. */
static void test_prefixes(void)
{
	CLEANUP_BUILDER struct builder b = { .n = 0 };

	build_x86_cie(&b);
	build_fde(&b, START, SIZE, BYTES(OP_ADVANCE1, 1, OP_DEF_CFA_OFFSET, 16));
	for (size_t n = 0; n <= b.n; n++) {
		CLEANUP_FREE uint8_t *copy = malloc(MAX_OF(n, (size_t)1));
		struct builder prefix = b;

		REQUIRE(copy != NULL);
		memcpy(copy, b.bytes, n);
		prefix.bytes = copy;
		prefix.n = n;
		check_rule(rule_at(&prefix, START), n == b.n ? at_entry : none, "prefix");
	}
}

static void test_lr(void)
{
	CLEANUP_BUILDER struct builder b = { .arch = REGS_AARCH64 };
	struct cfi_rule rule = { .cfa = CFI_CFA_SP, .ra = CFI_SAME };

	build_cie(&b, "zRB", 4, -8, 30, BYTES(0x1b), BYTES(OP_DEF_CFA, 31, 0));
	build_fde(&b, START, SIZE,
		  BYTES(OP_ADVANCE | 1, OP_NEGATE_RA_STATE, OP_ADVANCE | 1, OP_DEF_CFA_OFFSET, 32,
			OP_OFFSET | 29, 4, OP_OFFSET | 30, 3, OP_ADVANCE | 1, OP_NEGATE_RA_STATE));
	check_rule(rule_at(&b, START), rule, "leaf");
	rule.flags = CFI_RA_SIGNED;
	check_rule(rule_at(&b, START + 4), rule, "signed");
	rule = (struct cfi_rule){ CFI_CFA_SP, CFI_AT_CFA, CFI_AT_CFA, CFI_RA_SIGNED, 32, -32, -24 };
	check_rule(rule_at(&b, START + 8), rule, "saved");
	rule.flags = 0;
	check_rule(rule_at(&b, START + 12), rule, "authenticated");
}

/* ppc64le: while r0 has a copy of lr, the return address is in lr. Copies in other registers are
 * not recognized. */
static void test_lr_copy(void)
{
	CLEANUP_BUILDER struct builder b = { .arch = REGS_PPC64LE };
	struct cfi_rule rule = { .cfa = CFI_CFA_SP, .ra = CFI_SAME };

	build_cie(&b, "zR", 4, -8, 65, BYTES(0x1b), BYTES(OP_DEF_CFA, 1, 0));
	build_fde(&b, START, SIZE,
		  BYTES(OP_ADVANCE | 1, OP_REGISTER, 65, 0, OP_ADVANCE | 1, OP_OFFSET_EXTENDED_SF,
			65, 0x7e, OP_ADVANCE | 1, OP_REGISTER, 65, 12));
	check_rule(rule_at(&b, START), rule, "leaf");
	check_rule(rule_at(&b, START + 4), rule, "in r0");
	rule.ra = CFI_AT_CFA;
	rule.ra_offset = 16;
	check_rule(rule_at(&b, START + 8), rule, "saved");
	check_rule(rule_at(&b, START + 12), (struct cfi_rule){ .cfa = CFI_CFA_UNSUPPORTED },
		   "in r12");
}

static void test_header(void)
{
	CLEANUP_BUILDER struct builder b = { .n = 0 }, header = { .n = 0 };
	const uint64_t address = 0x500000;
	struct cfi_section section;
	struct cfi_reader reader;
	struct cfi_rule rule;
	size_t fdes[3];

	build_x86_cie(&b);
	for (size_t i = 0; i < ARRAY_SIZE(fdes); i++) {
		fdes[i] = b.n;
		build_fde(&b, START + i * SIZE, SIZE - 16 * i,
			  (struct build_bytes){
				  (uint8_t[]){ OP_DEF_CFA_OFFSET, (uint8_t)(8 + 8 * i) }, 2 });
	}
	build_raw(&header, BYTES(1, 0x1b, 0x03, 0x3b, 0, 0, 0, 0, 3, 0, 0, 0).bytes, 12);
	for (size_t i = 0; i < ARRAY_SIZE(fdes); i++) {
		build_number(&header, START + i * SIZE - address, 4);
		build_number(&header, BUILD_ADDRESS + fdes[i] - address, 4);
	}
	section = build_section(&b);
	section.header = header.bytes;
	section.header_size = header.n;
	section.header_address = address;
	cfi_reader_init(&reader, &section);
	for (uint64_t pc = START - 2; pc < START + 3 * SIZE + 2; pc++) {
		cfi_get_rule(&reader, pc, &rule);
		check_rule(rule, rule_at(&b, pc), "by header");
	}
	/* A header that has an unknown format or is too short is not used. With a wrong pointer in
	 * the header, no FDE is found. */
	header.bytes[3] = 0x1b;
	cfi_get_rule(&reader, START, &rule);
	check_rule(rule, at_entry, "unknown header");
	header.bytes[3] = 0x3b;
	store_le32(header.bytes + 16, 0x7fffffff);
	cfi_get_rule(&reader, START, &rule);
	check_rule(rule, none, "lying header");
	section.header_size = 30;
	cfi_get_rule(&reader, START, &rule);
	check_rule(rule, at_entry, "short header");
}

int main(void)
{
	RUN(test_rows);
	RUN(test_programs);
	RUN(test_remember);
	RUN(test_advance);
	RUN(test_set_loc);
	RUN(test_encodings);
	RUN(test_relations);
	RUN(test_augmentations);
	RUN(test_bad_cies);
	RUN(test_costly_cies);
	RUN(test_ranges);
	RUN(test_debug_frame);
	RUN(test_long_records);
	RUN(test_prefixes);
	RUN(test_lr);
	RUN(test_lr_copy);
	RUN(test_header);
	return test_end();
}
