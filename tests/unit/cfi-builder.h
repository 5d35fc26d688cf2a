/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * CFI-builder - writes valid or broken .eh_frame and .debug_frame sections, for tests
 *
 *     build_cie(&b, "zR", 1, -8, 16, BYTES(0x1b), BYTES(OP_DEF_CFA, 7, 8));
 *     build_fde(&b, 0x1000, 0x20, BYTES(OP_ADVANCE | 1, OP_DEF_CFA_OFFSET, 16));
 *
 * An FDE refers to the last CIE and uses the encoding of that CIE.
 */
#pragma once

#include "arch/base.h"
#include "arch/cfi.h"

#include <assert.h>

#define BUILD_ADDRESS 0x400000u

struct build_bytes {
	const uint8_t *bytes;
	size_t n;
};
#define BYTES(...)                                               \
	((struct build_bytes){ (const uint8_t[]){ __VA_ARGS__ }, \
			       sizeof((const uint8_t[]){ __VA_ARGS__ }) })
#define NO_BYTES ((struct build_bytes){ NULL, 0 })

struct builder {
	uint8_t *bytes;
	size_t n, allocated;
	size_t record_at;
	size_t cie_at;
	uint8_t encoding; /* encoding of pointers in the last CIE */
	bool has_data;
	bool is_debug_frame;
	bool is_long; /* 64-bit DWARF */
	enum regs_arch arch;
};

/* DW_CFA_* operations that tests use. */
enum {
	OP_NOP = 0x00,
	OP_SET_LOC = 0x01,
	OP_ADVANCE1 = 0x02,
	OP_ADVANCE2 = 0x03,
	OP_ADVANCE4 = 0x04,
	OP_OFFSET_EXTENDED = 0x05,
	OP_RESTORE_EXTENDED = 0x06,
	OP_UNDEFINED = 0x07,
	OP_SAME_VALUE = 0x08,
	OP_REGISTER = 0x09,
	OP_REMEMBER = 0x0a,
	OP_RESTORE_STATE = 0x0b,
	OP_DEF_CFA = 0x0c,
	OP_DEF_CFA_REGISTER = 0x0d,
	OP_DEF_CFA_OFFSET = 0x0e,
	OP_DEF_CFA_EXPRESSION = 0x0f,
	OP_EXPRESSION = 0x10,
	OP_OFFSET_EXTENDED_SF = 0x11,
	OP_DEF_CFA_SF = 0x12,
	OP_DEF_CFA_OFFSET_SF = 0x13,
	OP_VAL_OFFSET = 0x14,
	OP_VAL_OFFSET_SF = 0x15,
	OP_VAL_EXPRESSION = 0x16,
	OP_ADVANCE8 = 0x1d,
	OP_NEGATE_RA_STATE = 0x2d,
	OP_ARGS_SIZE = 0x2e,
	OP_NEGATIVE_OFFSET = 0x2f,
	OP_ADVANCE = 0x40,
	OP_OFFSET = 0x80,
	OP_RESTORE = 0xc0,
};

static inline void build_free(struct builder *b)
{
	free(b->bytes);
}
#define CLEANUP_BUILDER CLEANUP(build_free)

static inline void build_raw(struct builder *b, const void *bytes, size_t n)
{
	if (b->n + n > b->allocated) {
		b->allocated = (b->n + n) * 2 + 256;
		b->bytes = realloc(b->bytes, b->allocated);
		assert(b->bytes);
	}
	if (n > 0)
		memcpy(b->bytes + b->n, bytes, n);
	b->n += n;
}

static inline void build_number(struct builder *b, uint64_t value, size_t size)
{
	uint8_t bytes[8];

	store_le64(bytes, value);
	build_raw(b, bytes, size);
}

static inline void build_uleb(struct builder *b, uint64_t value)
{
	do {
		build_number(b, (value & 0x7f) | (value > 0x7f ? 0x80 : 0), 1);
		value >>= 7;
	} while (value > 0);
}

static inline void build_sleb(struct builder *b, int64_t value)
{
	bool more;

	do {
		uint8_t byte = value & 0x7f;

		value >>= 7;
		more = value != (byte & 0x40 ? -1 : 0);
		build_number(b, byte | (more ? 0x80 : 0), 1);
	} while (more);
}

/* Begins a CIE or an FDE, whose length build_end() stores. */
static inline void build_begin(struct builder *b)
{
	b->record_at = b->n;
	build_number(b, b->is_long ? UINT32_MAX : 0, 4);
	if (b->is_long)
		build_number(b, 0, 8);
}

static inline void build_end(struct builder *b)
{
	size_t header = b->is_long ? 12 : 4;

	while ((b->n - b->record_at) % 8 != 0)
		build_number(b, OP_NOP, 1);
	if (b->is_long)
		store_le64(b->bytes + b->record_at + 4, b->n - b->record_at - header);
	else
		store_le32(b->bytes + b->record_at, (uint32_t)(b->n - b->record_at - header));
}

static inline void build_cie_start(struct builder *b, uint8_t version, const char *augmentation,
				   uint64_t code_align, int64_t data_align, uint64_t ra,
				   struct build_bytes data)
{
	b->cie_at = b->n;
	build_begin(b);
	build_number(b, b->is_debug_frame ? UINT64_MAX : 0,
		     b->is_long && b->is_debug_frame ? 8 : 4);
	build_number(b, version, 1);
	build_raw(b, augmentation, strlen(augmentation) + 1);
	if (version >= 4)
		build_number(b, 8, 2);
	build_uleb(b, code_align);
	build_sleb(b, data_align);
	build_uleb(b, ra);
	b->has_data = augmentation[0] == 'z';
	if (b->has_data) {
		build_uleb(b, data.n);
		build_raw(b, data.bytes, data.n);
	}
}

/* Writes a CIE. The encoding is the byte of `data` for 'R'; without 'R', addresses are absolute. */
static inline void build_cie(struct builder *b, const char *augmentation, uint64_t code_align,
			     int64_t data_align, uint64_t ra, struct build_bytes data,
			     struct build_bytes program)
{
	const char *letter = strchr(augmentation, 'R');

	build_cie_start(b, 1, augmentation, code_align, data_align, ra, data);
	b->encoding = letter ? data.bytes[letter - augmentation - 1] : 0;
	build_raw(b, program.bytes, program.n);
	build_end(b);
}

/* Writes a CIE with CFA = rsp + 8 initially, as after a call. */
static inline void build_x86_cie(struct builder *b)
{
	b->arch = REGS_X86_64;
	build_cie(b, "zR", 1, -8, 16, BYTES(0x1b), BYTES(OP_DEF_CFA, 7, 8, OP_OFFSET | 16, 1));
}

static inline void build_pointer(struct builder *b, uint64_t value, uint8_t encoding)
{
	static const uint8_t sizes[16] = { 8, 0, 2, 4, 8, 0, 0, 0, 8, 0, 2, 4, 8 };

	if ((encoding & 0x70) == 0x10)
		value -= BUILD_ADDRESS + b->n;
	if ((encoding & 0x0f) == 1)
		build_uleb(b, value);
	else if ((encoding & 0x0f) == 9)
		build_sleb(b, (int64_t)value);
	else
		build_number(b, value, sizes[encoding & 0x0f]);
}

static inline void build_fde_start(struct builder *b, uint64_t start, uint64_t size)
{
	size_t link_at;

	build_begin(b);
	link_at = b->n;
	build_number(b, b->is_debug_frame ? b->cie_at : link_at - b->cie_at,
		     b->is_long && b->is_debug_frame ? 8 : 4);
	build_pointer(b, start, b->encoding);
	build_pointer(b, size, b->encoding & 0x0f);
	if (b->has_data)
		build_uleb(b, 0);
}

static inline void build_fde(struct builder *b, uint64_t start, uint64_t size,
			     struct build_bytes program)
{
	build_fde_start(b, start, size);
	build_raw(b, program.bytes, program.n);
	build_end(b);
}

static inline struct cfi_section build_section(const struct builder *b)
{
	return (struct cfi_section){
		.bytes = b->bytes,
		.size = b->n,
		.address = BUILD_ADDRESS,
		.arch = b->arch,
		.is_debug_frame = b->is_debug_frame,
	};
}
