/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * ELF frames - where the functions of an ELF file begin and end, by its call frame information
 *
 * .eh_frame_hdr (Linux Standard Base Core 5.0, 10.6.2) is a sorted table of {function start, FDE
 * address}, made by every linker. It is read whole and searched; of .eh_frame only the matching FDE
 * and its CIE are read. If a file has no table, its .eh_frame is walked once.
 * Invariants: (1) a range is used only if the FDE itself covers the address, whatever the table
 *                 says  [test-symbols: lying table]
 *             (2) a record is parsed in a copy of at most RECORD_BYTES bytes; reading past it fails
 *                 [fuzz_symbols_elf]
 *             (3) work and memory are bounded by MAX_TABLE_BYTES and MAX_RECORDS
 *                 [fuzz_symbols_elf]
 * Not thread safe: caches the last CIE. Does not read .debug_frame.
 */
#include "tools/common/elf-frames.h"

#include "arch/base.h"

#include <dwarf.h>
#include <stdlib.h>

#define RECORD_BYTES 128
#define MAX_TABLE_BYTES (64u << 20)
#define MAX_RECORDS (4u << 20)
#define FORMAT_MASK 0x0f
#define RELATION_MASK 0x70

/* A copy of a piece of the file; `failed` is set by a read past its end. */
struct piece {
	uint8_t bytes[RECORD_BYTES];
	uint64_t address;
	size_t size;
	size_t at;
	bool failed;
};

struct elf_frames {
	const struct elf_image *image;
	uint8_t *table; /* {start, FDE} pairs as encoded in the file */
	size_t n_entries;
	size_t entry_size;
	uint64_t table_address;
	uint8_t table_encoding;
	struct elf_range *functions; /* of a file without a table, by address */
	size_t n_functions;
	uint64_t cie_address; /* 0 = none yet */
	uint8_t cie_encoding;
};

static void read_piece(const struct elf_image *image, uint64_t address, struct piece *ret_piece)
{
	ret_piece->address = address;
	ret_piece->at = 0;
	ret_piece->failed = false;
	ret_piece->size =
		elf_image_read(image, address, ret_piece->bytes, sizeof(ret_piece->bytes));
}

static const uint8_t *take(struct piece *piece, size_t size)
{
	const uint8_t *bytes = piece->bytes + piece->at;

	if (piece->failed || size > piece->size - piece->at) {
		piece->failed = true;
		return NULL;
	}
	piece->at += size;
	return bytes;
}

static uint8_t take_u8(struct piece *piece)
{
	const uint8_t *bytes = take(piece, 1);

	return bytes ? *bytes : 0;
}

static uint32_t take_u32(struct piece *piece)
{
	const uint8_t *bytes = take(piece, 4);

	return bytes ? load_le32(bytes) : 0;
}

static uint64_t take_u64(struct piece *piece)
{
	const uint8_t *bytes = take(piece, 8);

	return bytes ? load_le64(bytes) : 0;
}

/* Reads either kind of LEB128; bits past 64 are dropped. */
static uint64_t take_leb128(struct piece *piece, bool is_signed)
{
	uint64_t value = 0;
	unsigned int shift = 0;
	uint8_t byte;

	do {
		byte = take_u8(piece);
		if (shift < 64)
			value |= (uint64_t)(byte & 0x7f) << shift;
		shift += 7;
	} while ((byte & 0x80) && !piece->failed);
	if (is_signed && (byte & 0x40) && shift < 64)
		value |= UINT64_MAX << shift;
	return value;
}

/* Reads a number in one of the DW_EH_PE formats (LSB 10.5.1), ignoring its relation. */
static uint64_t take_number(struct piece *piece, uint8_t encoding, bool is_64)
{
	const uint8_t *bytes;

	switch (encoding & FORMAT_MASK) {
	case DW_EH_PE_absptr:
		return is_64 ? take_u64(piece) : take_u32(piece);
	case DW_EH_PE_uleb128:
		return take_leb128(piece, false);
	case DW_EH_PE_sleb128:
		return take_leb128(piece, true);
	case DW_EH_PE_udata2:
		bytes = take(piece, 2);
		return bytes ? load_le16(bytes) : 0;
	case DW_EH_PE_sdata2:
		bytes = take(piece, 2);
		return bytes ? (uint64_t)(int64_t)(int16_t)load_le16(bytes) : 0;
	case DW_EH_PE_udata4:
		return take_u32(piece);
	case DW_EH_PE_sdata4:
		return (uint64_t)(int64_t)(int32_t)take_u32(piece);
	case DW_EH_PE_udata8:
	case DW_EH_PE_sdata8:
		return take_u64(piece);
	default:
		piece->failed = true;
		return 0;
	}
}

static uint64_t take_pointer(struct piece *piece, uint8_t encoding, uint64_t data_base, bool is_64)
{
	uint64_t here = piece->address + piece->at;
	uint64_t value = take_number(piece, encoding, is_64);

	switch (encoding & (uint8_t)~FORMAT_MASK) {
	case DW_EH_PE_absptr:
		break;
	case DW_EH_PE_pcrel:
		value += here;
		break;
	case DW_EH_PE_datarel:
		value += data_base;
		break;
	default: /* text- or function-relative, aligned, indirect: no linker uses them here */
		piece->failed = true;
	}
	return is_64 ? value : (uint32_t)value;
}

/* Returns the length of the record at the piece's start, without the length field; 0 ends the
 * section. */
static uint64_t take_length(struct piece *piece)
{
	uint64_t length = take_u32(piece);

	return length == UINT32_MAX ? take_u64(piece) : length;
}

/* Skips the CIE's augmentation data before 'R', then reads R's value. */
static bool take_augmentation(struct piece *piece, const char *letters, bool is_64,
			      uint8_t *ret_encoding)
{
	for (; *letters; letters++) {
		switch (*letters) {
		case 'R':
			*ret_encoding = take_u8(piece);
			return !piece->failed;
		case 'L':
			take_u8(piece);
			break;
		case 'P':
			take_number(piece, take_u8(piece), is_64);
			break;
		case 'S': /* a signal frame */
		case 'B': /* return addresses signed with key B (aarch64) */
		case 'G': /* tagged memory (aarch64) */
			break;
		default:
			return false;
		}
	}
	*ret_encoding = DW_EH_PE_absptr;
	return !piece->failed;
}

/* Returns how the FDEs of a CIE encode addresses. */
static bool read_cie(const struct elf_image *image, uint64_t address, uint8_t *ret_encoding)
{
	char letters[8] = "";
	struct piece piece;
	uint8_t version;

	read_piece(image, address, &piece);
	if (take_length(&piece) == 0 || take_u32(&piece) != 0)
		return false;
	version = take_u8(&piece);
	if (version != 1 && version != 3)
		return false;
	for (size_t i = 0; (letters[i] = (char)take_u8(&piece)) != 0; i++)
		if (i == sizeof(letters) - 1)
			return false;
	take_leb128(&piece, false);
	take_leb128(&piece, true);
	if (version == 1)
		take_u8(&piece);
	else
		take_leb128(&piece, false);
	if (letters[0] == 'z')
		take_leb128(&piece, false);
	else if (letters[0] != '\0')
		return false;
	return take_augmentation(&piece, letters[0] ? letters + 1 : letters, image->is_64,
				 ret_encoding);
}

static bool get_encoding(struct elf_frames *frames, uint64_t cie_address, uint8_t *ret_encoding)
{
	if (frames->cie_address != cie_address) {
		frames->cie_address = 0;
		if (!read_cie(frames->image, cie_address, &frames->cie_encoding))
			return false;
		frames->cie_address = cie_address;
	}
	*ret_encoding = frames->cie_encoding;
	return true;
}

/* Returns the range of the FDE in the piece; false if it is invalid or a CIE. */
static bool take_fde(struct elf_frames *frames, struct piece *piece, struct elf_range *ret_function)
{
	uint64_t here = piece->address + piece->at;
	uint32_t distance = take_u32(piece);
	uint64_t start, length;
	uint8_t encoding;

	if (piece->failed || distance == 0 || !get_encoding(frames, here - distance, &encoding))
		return false;
	start = take_pointer(piece, encoding, 0, frames->image->is_64);
	length = take_number(piece, encoding, frames->image->is_64);
	if (piece->failed || length == 0 || !add_u64(start, length, &length))
		return false;
	*ret_function = (struct elf_range){ start, length };
	return true;
}

/* ---- The table ---- */

static size_t number_size(uint8_t encoding)
{
	switch (encoding & FORMAT_MASK) {
	case DW_EH_PE_udata4:
	case DW_EH_PE_sdata4:
		return 4;
	case DW_EH_PE_udata8:
	case DW_EH_PE_sdata8:
		return 8;
	default:
		return 0;
	}
}

static uint64_t entry_number(const struct elf_frames *frames, size_t entry, bool fde)
{
	size_t at = entry * frames->entry_size + (fde ? frames->entry_size / 2 : 0);
	const uint8_t *bytes = frames->table + at;
	uint64_t value;

	if (frames->entry_size == 16)
		value = load_le64(bytes);
	else if ((frames->table_encoding & FORMAT_MASK) == DW_EH_PE_sdata4)
		value = (uint64_t)(int64_t)(int32_t)load_le32(bytes);
	else
		value = load_le32(bytes);
	switch (frames->table_encoding & RELATION_MASK) {
	case DW_EH_PE_datarel:
		value += frames->image->frame_header.start;
		break;
	case DW_EH_PE_pcrel:
		value += frames->table_address + at;
		break;
	}
	return frames->image->is_64 ? value : (uint32_t)value;
}

static bool load_table(struct elf_frames *frames, uint64_t address, uint64_t n_entries)
{
	size_t size;

	n_entries = MIN_OF(n_entries, MAX_TABLE_BYTES / frames->entry_size);
	n_entries = MIN_OF(n_entries, frames->image->file_size / frames->entry_size);
	frames->table = malloc(n_entries * frames->entry_size + 1);
	if (!frames->table)
		return false;
	size = elf_image_read(frames->image, address, frames->table,
			      n_entries * frames->entry_size);
	frames->table_address = address;
	frames->n_entries = size / frames->entry_size;
	return frames->n_entries > 0;
}

static bool read_table(struct elf_frames *frames)
{
	const struct elf_range *header = &frames->image->frame_header;
	uint8_t version, pointer, count;
	struct piece piece;
	uint64_t n_entries;

	if (header->start == header->end)
		return false;
	read_piece(frames->image, header->start, &piece);
	version = take_u8(&piece);
	pointer = take_u8(&piece);
	count = take_u8(&piece);
	frames->table_encoding = take_u8(&piece);
	if (version != 1 || pointer == DW_EH_PE_omit || count == DW_EH_PE_omit ||
	    (frames->table_encoding & DW_EH_PE_indirect))
		return false;
	take_number(&piece, pointer, frames->image->is_64);
	n_entries = take_number(&piece, count, frames->image->is_64);
	frames->entry_size = 2 * number_size(frames->table_encoding);
	if (piece.failed || frames->entry_size == 0)
		return false;
	return load_table(frames, header->start + piece.at, n_entries);
}

static size_t count_functions(const struct elf_frames *frames)
{
	return frames->n_entries > 0 ? frames->n_entries : frames->n_functions;
}

static uint64_t start_of(const struct elf_frames *frames, size_t i)
{
	return frames->n_entries > 0 ? entry_number(frames, i, false) : frames->functions[i].start;
}

/* Returns the first function that starts after the address. */
static size_t search(const struct elf_frames *frames, uint64_t address)
{
	size_t low = 0, high = count_functions(frames);

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (start_of(frames, middle) <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool get_function(struct elf_frames *frames, size_t i, struct elf_range *ret_function)
{
	struct piece piece;

	if (frames->n_entries == 0) {
		*ret_function = frames->functions[i];
		return true;
	}
	read_piece(frames->image, entry_number(frames, i, true), &piece);
	return take_length(&piece) > 0 && take_fde(frames, &piece, ret_function);
}

/* ---- Without a table ---- */

static int compare_functions(const void *a, const void *b)
{
	const struct elf_range *left = a, *right = b;

	return (left->start > right->start) - (left->start < right->start);
}

static bool add_function(struct elf_frames *frames, size_t *capacity,
			 const struct elf_range *function)
{
	if (frames->n_functions == *capacity) {
		size_t larger = *capacity ? *capacity * 2 : 1024;
		void *moved = reallocarray(frames->functions, larger, sizeof(*frames->functions));

		if (!moved)
			return false;
		frames->functions = moved;
		*capacity = larger;
	}
	frames->functions[frames->n_functions++] = *function;
	return true;
}

static void walk_records(struct elf_frames *frames)
{
	uint64_t address, end, length;
	size_t capacity = 0;
	GElf_Shdr section;

	if (!elf_image_get_section(frames->image, ".eh_frame", &section) ||
	    !add_u64(section.sh_addr, section.sh_size, &end))
		return;
	address = section.sh_addr;
	for (size_t i = 0; i < MAX_RECORDS && address < end; i++) {
		struct elf_range function;
		struct piece piece;

		read_piece(frames->image, address, &piece);
		length = take_length(&piece);
		if (piece.failed || length == 0)
			break;
		address += piece.at;
		if (take_fde(frames, &piece, &function) &&
		    !add_function(frames, &capacity, &function))
			break;
		if (!add_u64(address, length, &address))
			break;
	}
	if (frames->n_functions > 0)
		qsort(frames->functions, frames->n_functions, sizeof(*frames->functions),
		      compare_functions);
}

struct elf_frames *elf_frames_new(const struct elf_image *image)
{
	struct elf_frames *frames = calloc(1, sizeof(*frames));

	if (!frames)
		return NULL;
	frames->image = image;
	if (!read_table(frames))
		walk_records(frames);
	return frames;
}

void elf_frames_free(struct elf_frames *frames)
{
	if (!frames)
		return;
	free(frames->table);
	free(frames->functions);
	free(frames);
}

bool elf_frames_get(struct elf_frames *frames, uint64_t address, struct elf_range *ret_function)
{
	size_t next = search(frames, address);
	struct elf_range function = { 0, 0 };
	bool is_known = next > 0 && get_function(frames, next - 1, &function);

	if (is_known && address >= function.start && address < function.end) {
		*ret_function = function;
		return true;
	}
	ret_function->start = is_known && function.end <= address ? function.end : 0;
	ret_function->end = next < count_functions(frames) ? start_of(frames, next) : UINT64_MAX;
	return false;
}
