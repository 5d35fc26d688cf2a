/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Go frames - makes .debug_frame from .gopclntab
 *
 * Writes one CIE, and an FDE for each function, in DWARF 3. A Go function only moves the stack
 * pointer. Its return address is on the stack, above the frame (x86-64); or at sp once there is a
 * frame, and in lr before that (aarch64, riscv64, ppc64le). Go's linker writes the same
 * (writeframes() in cmd/link/internal/ld/dwarf.go).
 */
#include "daemon/engine/unwind/go-frames.h"

#include "arch/base.h"
#include "base/bytes.h"

#include <errno.h>
#include <stdlib.h>

#define CIE_ID 0xffffffffu
#define CIE_AT 0

/* DWARF 5, section 7.24 */
enum {
	DW_CFA_nop = 0x00,
	DW_CFA_advance_loc4 = 0x04,
	DW_CFA_undefined = 0x07,
	DW_CFA_same_value = 0x08,
	DW_CFA_def_cfa = 0x0c,
	DW_CFA_def_cfa_offset = 0x0e,
	DW_CFA_offset_extended_sf = 0x11,
};

struct frames {
	uint8_t *bytes;
	size_t size, capacity, max;
	int error;
};

/* Returns room for `size` more bytes. Returns NULL, and sets `error`, if memory is short or `max`
 * is exceeded. */
static uint8_t *reserve(struct frames *frames, size_t size)
{
	size_t capacity = MAX_OF(frames->capacity * 2, (size_t)4096);
	uint8_t *bytes;

	if (frames->error)
		return NULL;
	if (frames->capacity - frames->size < size) {
		bytes = capacity <= frames->max ? realloc(frames->bytes, capacity) : NULL;
		if (!bytes) {
			frames->error = capacity <= frames->max ? ENOMEM : E2BIG;
			return NULL;
		}
		frames->bytes = bytes;
		frames->capacity = capacity;
	}
	return frames->bytes + frames->size;
}

static void put(struct frames *frames, const void *bytes, size_t size)
{
	uint8_t *at = reserve(frames, size);

	if (at)
		memcpy(at, bytes, size);
	frames->size += at ? size : 0;
}

static void put_byte(struct frames *frames, uint8_t byte)
{
	put(frames, &byte, 1);
}

static void put_word(struct frames *frames, uint64_t value, size_t bytes)
{
	const uint64_t word = htole64(value);

	put(frames, &word, bytes);
}

static void put_uleb(struct frames *frames, uint64_t value)
{
	uint8_t bytes[BYTES_MAX_LEB];

	put(frames, bytes, bytes_put_uleb(bytes, value));
}

static void put_sleb(struct frames *frames, int64_t value)
{
	for (; value < -0x40 || value >= 0x40; value >>= 7)
		put_byte(frames, (uint8_t)(value | 0x80));
	put_byte(frames, (uint8_t)(value & 0x7f));
}

/* Pads the record that began at `start` and stores its length. Each FDE is a whole number of 8-byte
 * words, and so is the CIE without its length field. */
static void finish(struct frames *frames, size_t start)
{
	while (frames->size % 8 != 4 && !frames->error)
		put_byte(frames, DW_CFA_nop);
	if (!frames->error)
		store_le32(frames->bytes + start, (uint32_t)(frames->size - start - 4));
}

static void put_cie(struct frames *frames, const struct regs *regs, uint8_t quantum)
{
	static const uint8_t version_and_augmentation[] = { 3, 0 };

	put_word(frames, 0, 4);
	put_word(frames, CIE_ID, 4);
	put(frames, version_and_augmentation, sizeof(version_and_augmentation));
	put_uleb(frames, quantum);
	put_sleb(frames, 1);
	put_uleb(frames, regs->ra);
	put_byte(frames, DW_CFA_def_cfa);
	put_uleb(frames, regs->sp);
	put_uleb(frames, (uint64_t)-regs->ra_from_cfa);
	if (!regs->has_lr) {
		put_byte(frames, DW_CFA_offset_extended_sf);
		put_uleb(frames, regs->ra);
		put_sleb(frames, regs->ra_from_cfa);
	}
	finish(frames, CIE_AT);
}

/* `bytes`: the bytes of code since the start of the previous row; 0 for the first row. */
static void put_row(struct frames *frames, const struct regs *regs, const struct go_row *row,
		    uint64_t bytes, uint8_t quantum)
{
	if (bytes > 0) {
		put_byte(frames, DW_CFA_advance_loc4);
		put_word(frames, bytes / quantum, 4);
	}
	put_byte(frames, DW_CFA_def_cfa_offset);
	put_uleb(frames, (uint64_t)(row->distance - regs->ra_from_cfa));
	if (!regs->has_lr)
		return;
	put_byte(frames, row->distance > 0 ? DW_CFA_offset_extended_sf : DW_CFA_same_value);
	put_uleb(frames, regs->ra);
	if (row->distance > 0)
		put_sleb(frames, -row->distance);
}

static void put_fde(struct frames *frames, const struct regs *regs, const struct go_table *table,
		    const struct go_function *function)
{
	size_t start = frames->size;
	uint64_t at = function->start;
	struct go_rows rows;
	struct go_row row;

	put_word(frames, 0, 4);
	put_word(frames, CIE_AT, 4);
	put_word(frames, function->start, 8);
	put_word(frames, function->end - function->start, 8);
	if (go_table_is_outermost(table, function)) {
		put_byte(frames, DW_CFA_undefined);
		put_uleb(frames, regs->ra);
	}
	go_rows_init(&rows, table, function);
	while (!frames->error && go_rows_next(&rows, &row)) {
		/* Where calls push the return address, syscall.rawVforkSyscall() pops it. The
		 * distance of such a row is ra_from_cfa, which is negative. Only a damaged table
		 * has a lower distance. */
		if (row.distance < regs->ra_from_cfa)
			break;
		put_row(frames, regs, &row, row.start - at, table->quantum);
		at = row.start;
	}
	finish(frames, start);
}

int go_frames_build(const struct go_table *table, enum regs_arch arch, uint64_t max_bytes,
		    uint8_t **ret_bytes, uint64_t *ret_size)
{
	struct frames frames = { .max = MIN_OF(max_bytes, (uint64_t)INT32_MAX) };
	const struct regs *regs = regs_get(arch);
	struct go_function function;

	put_cie(&frames, regs, table->quantum);
	for (uint64_t i = 0; i < table->n_functions && !frames.error; i++)
		if (go_table_get(table, i, &function))
			put_fde(&frames, regs, table, &function);
	if (frames.error) {
		free(frames.bytes);
		return frames.error;
	}
	*ret_bytes = frames.bytes;
	*ret_size = frames.size;
	return 0;
}
