/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * .eh_frame_hdr (Linux Standard Base Core 5.0, 10.6.2) is a sorted table of {function start, FDE
 * address}, which linkers write by default. The table is read whole and searched; of .eh_frame only
 * the matching FDE and its CIE are read. If a file has no table, its .eh_frame is walked once.
 * arch/cfi.h is for a whole section of a supported CPU; this file reads pieces, for any CPU and for
 * 32-bit files, too.
 * Invariants: (1) a range is used only if the FDE itself covers the address, whatever the table
 *                 says  [test-symbols: lying table]
 *             (2) a record is parsed in a copy of at most RECORD_BYTES bytes; reading past it fails
 *                 [fuzz_symbols_elf]
 *             (3) work and memory are bounded by MAX_TABLE_BYTES and MAX_RECORDS
 *                 [fuzz_symbols_elf]
 * Not thread safe, because it caches the last CIE. Does not read .debug_frame.
 */
#include "tools/symbols/elf-frames.h"

#include "arch/base.h"
#include "arch/cfi.h"
#include "base/bytes.h"
#include "tools/common/sorted.h"

#include <dwarf.h>

#define RECORD_BYTES 128
#define MAX_TABLE_BYTES (64u << 20)
#define MAX_RECORDS (4u << 20)
#define FORMAT_MASK 0x0f

/* A copy of a piece of the file. */
struct piece {
	uint8_t copy[RECORD_BYTES];
	struct cfi_section section; /* the copy */
	struct byte_reader bytes;   /* unread rest of the copy */
};

struct elf_frames {
	const struct elf_image *image;
	struct cfi_section table; /* {start, FDE} pairs as encoded in the file; owned */
	uint8_t encoding;         /* encoding of the table's numbers */
	size_t n_entries, entry_size;
	GArray *functions;    /* struct elf_range, sorted by address, if the file has no table */
	uint64_t cie_address; /* 0 = none yet */
	uint8_t cie_encoding;
};

static void read_piece(const struct elf_frames *frames, uint64_t address, struct piece *ret_piece)
{
	size_t size =
		elf_image_read(frames->image, address, ret_piece->copy, sizeof(ret_piece->copy));

	ret_piece->section =
		(struct cfi_section){ .bytes = ret_piece->copy, .size = size, .address = address };
	ret_piece->bytes = (struct byte_reader){ ret_piece->copy, ret_piece->copy + size, false };
}

static uint64_t address_of(const struct piece *piece)
{
	return piece->section.address + (uint64_t)(piece->bytes.at - piece->copy);
}

/* Reads a number in one of the DW_EH_PE formats (LSB 10.5.1). */
static uint64_t take(const struct elf_frames *frames, const struct cfi_section *section,
		     struct byte_reader *bytes, uint8_t encoding)
{
	uint64_t value;

	if (!frames->image->is_64 && (encoding & FORMAT_MASK) == DW_EH_PE_absptr)
		encoding |= DW_EH_PE_udata4;
	value = cfi_read_pointer(section, bytes, encoding, 0);
	return frames->image->is_64 ? value : (uint32_t)value;
}

/* Like take(), but returns the number as stored, without adding its base address. */
static uint64_t take_number(const struct elf_frames *frames, struct piece *piece, uint8_t encoding)
{
	return take(frames, &piece->section, &piece->bytes, encoding & FORMAT_MASK);
}

/* Returns the length of the record at the piece's start, without the length field. 0 ends the
 * section. */
static uint64_t take_length(struct piece *piece)
{
	uint64_t length = byte_reader_u32(&piece->bytes);

	return length == UINT32_MAX ? byte_reader_u64(&piece->bytes) : length;
}

/* Reads how the FDEs of a CIE encode addresses: augmentation 'R', after the data of earlier
 * letters. Returns false if the CIE is invalid or has an unknown augmentation. */
static bool read_cie(const struct elf_frames *frames, uint64_t address, uint8_t *ret_encoding)
{
	struct piece piece;
	struct byte_reader *bytes = &piece.bytes;
	const char *letters;
	uint8_t version;

	read_piece(frames, address, &piece);
	if (take_length(&piece) == 0 || byte_reader_u32(bytes) != 0)
		return false;
	version = byte_reader_u8(bytes);
	letters = (const char *)bytes->at;
	if ((version != 1 && version != 3) || !memchr(letters, '\0', byte_reader_left(bytes)) ||
	    (*letters && *letters != 'z'))
		return false;
	while (byte_reader_u8(bytes))
		;
	byte_reader_uleb(bytes);
	byte_reader_sleb(bytes);
	if (version == 1)
		byte_reader_u8(bytes);
	else
		byte_reader_uleb(bytes);
	*ret_encoding = DW_EH_PE_absptr;
	if (*letters)
		byte_reader_uleb(bytes);
	for (; *letters; letters++)
		switch (*letters) {
		case 'R':
			*ret_encoding = byte_reader_u8(bytes);
			return !bytes->failed;
		case 'L':
			byte_reader_u8(bytes);
			break;
		case 'P':
			take_number(frames, &piece, byte_reader_u8(bytes));
			break;
		case 'z':
		case 'S': /* a signal frame */
		case 'B': /* return addresses signed with key B (aarch64) */
		case 'G': /* tagged memory (aarch64) */
			break;
		default:
			return false;
		}
	return !bytes->failed;
}

/* Reads the range of the FDE in the piece. Returns false if the record is invalid, or is a CIE. */
static bool take_fde(struct elf_frames *frames, struct piece *piece, struct elf_range *ret_function)
{
	uint64_t cie = address_of(piece), start, end;
	uint32_t distance = byte_reader_u32(&piece->bytes);

	if (piece->bytes.failed || distance == 0)
		return false;
	cie -= distance;
	if (frames->cie_address != cie) {
		frames->cie_address = 0;
		if (!read_cie(frames, cie, &frames->cie_encoding))
			return false;
		frames->cie_address = cie;
	}
	start = take(frames, &piece->section, &piece->bytes, frames->cie_encoding);
	end = take_number(frames, piece, frames->cie_encoding);
	if (piece->bytes.failed || end == 0 || !add_u64(start, end, &end))
		return false;
	*ret_function = (struct elf_range){ start, end };
	return true;
}

/* ---- The table ---- */

static bool read_table(struct elf_frames *frames)
{
	const struct elf_range *header = &frames->image->frame_header;
	uint8_t version, pointer, count, *table;
	struct piece piece;
	uint64_t n;

	if (header->start == header->end)
		return false;
	read_piece(frames, header->start, &piece);
	version = byte_reader_u8(&piece.bytes);
	pointer = byte_reader_u8(&piece.bytes);
	count = byte_reader_u8(&piece.bytes);
	frames->encoding = byte_reader_u8(&piece.bytes);
	if (version != 1 || pointer == DW_EH_PE_omit || count == DW_EH_PE_omit ||
	    (frames->encoding & DW_EH_PE_indirect))
		return false;
	take_number(frames, &piece, pointer);
	n = take_number(frames, &piece, count);
	/* 0x03 and 0x0b: numbers of 4 bytes; 0x04 and 0x0c: of 8 bytes */
	frames->entry_size = (frames->encoding & 7) == DW_EH_PE_udata4   ? 8
			     : (frames->encoding & 7) == DW_EH_PE_udata8 ? 16
									 : 0;
	if (piece.bytes.failed || frames->entry_size == 0)
		return false;
	n = MIN_OF(n, MIN_OF((uint64_t)MAX_TABLE_BYTES, frames->image->file_size) /
			      frames->entry_size);
	table = g_malloc(n * frames->entry_size + 1);
	frames->table.bytes = table;
	frames->table.address = address_of(&piece);
	frames->table.data_base = header->start;
	frames->table.size =
		elf_image_read(frames->image, frames->table.address, table, n * frames->entry_size);
	frames->n_entries = frames->table.size / frames->entry_size;
	return frames->n_entries > 0;
}

static uint64_t entry_number(const struct elf_frames *frames, size_t entry, bool fde)
{
	size_t at = entry * frames->entry_size + (fde ? frames->entry_size / 2 : 0);
	struct byte_reader bytes = { frames->table.bytes + at,
				     frames->table.bytes + frames->table.size, false };

	return take(frames, &frames->table, &bytes, frames->encoding);
}

static size_t count_functions(const struct elf_frames *frames)
{
	return frames->n_entries > 0 ? frames->n_entries : frames->functions->len;
}

static uint64_t start_of(const struct elf_frames *frames, size_t i)
{
	return frames->n_entries > 0 ? entry_number(frames, i, false)
				     : g_array_index(frames->functions, struct elf_range, i).start;
}

/* Returns the index of the first function that starts after the address. */
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

/* ---- Without a table ---- */

static void walk_records(struct elf_frames *frames)
{
	uint64_t address, end, length;
	GElf_Shdr section;

	if (!elf_image_get_section(frames->image, ".eh_frame", &section) ||
	    !add_u64(section.sh_addr, section.sh_size, &end))
		return;
	address = section.sh_addr;
	for (size_t i = 0; i < MAX_RECORDS && address < end; i++) {
		struct elf_range function;
		struct piece piece;

		read_piece(frames, address, &piece);
		length = take_length(&piece);
		if (piece.bytes.failed || length == 0)
			break;
		address = address_of(&piece);
		if (take_fde(frames, &piece, &function))
			g_array_append_val(frames->functions, function);
		if (!add_u64(address, length, &address))
			break;
	}
	g_array_sort(frames->functions, sorted_compare);
}

struct elf_frames *elf_frames_new(const struct elf_image *image)
{
	struct elf_frames *frames = g_new0(struct elf_frames, 1);

	frames->image = image;
	frames->functions = g_array_new(FALSE, FALSE, sizeof(struct elf_range));
	if (!read_table(frames))
		walk_records(frames);
	return frames;
}

void elf_frames_free(struct elf_frames *frames)
{
	if (!frames)
		return;
	g_free((void *)(uintptr_t)frames->table.bytes);
	g_array_unref(frames->functions);
	g_free(frames);
}

bool elf_frames_get(struct elf_frames *frames, uint64_t address, struct elf_range *ret_function)
{
	size_t next = search(frames, address);
	struct elf_range function = { 0, 0 };
	struct piece piece;
	bool is_known = next > 0;

	if (is_known && frames->n_entries == 0) {
		function = g_array_index(frames->functions, struct elf_range, next - 1);
	} else if (is_known) {
		read_piece(frames, entry_number(frames, next - 1, true), &piece);
		is_known = take_length(&piece) > 0 && take_fde(frames, &piece, &function);
	}
	if (is_known && address >= function.start && address < function.end) {
		*ret_function = function;
		return true;
	}
	ret_function->start = is_known && function.end <= address ? function.end : 0;
	ret_function->end = next < count_functions(frames) ? start_of(frames, next) : UINT64_MAX;
	return false;
}
