/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * CFI - the records of .eh_frame and .debug_frame
 *
 * A section is a sequence of records: FDEs, one for each function, and CIEs, each with the data
 * that several FDEs share. An FDE has the distance to its CIE. This file finds and reads the
 * records; cfi-program.c runs the programs in them.
 * Invariants: (1) nothing outside of the section's bytes is read          [fuzz_cfi]
 *             (2) an FDE's end is after its start, and does not wrap   [test-cfi: ranges; fuzz_cfi]
 *             (3) reading a whole section costs time linear in its size: records do not overlap,
 *                 and a CIE, which any number of FDEs may share, is unusable if its program has
 *                 more than MAX_INITIAL bytes
 *                 [test-cfi: costly CIEs]
 * Addresses wrap at 64 bits, because the pointers of position-independent code do.
 * Not supported: 32-bit address space, big endian, and indirect pointers to code, which no compiler
 * generates.
 */
#include "arch/cfi.h"

#include "arch/cfi-program.h"
#include "base/bytes.h"

#define MAX_INITIAL 128
#define MAX_AUGMENTATION 8

/* DW_EH_PE_*, LSB 10.5.1 */
#define PE_FORMAT 0x0f
#define PE_RELATION 0x70
#define PE_INDIRECT 0x80
#define PE_OMIT 0xff

enum pe_format {
	PE_ABSPTR = 0x00,
	PE_ULEB128 = 0x01,
	PE_UDATA2 = 0x02,
	PE_UDATA4 = 0x03,
	PE_UDATA8 = 0x04,
	PE_SIGNED = 0x08,
	PE_SLEB128 = 0x09,
	PE_SDATA2 = 0x0a,
	PE_SDATA4 = 0x0b,
	PE_SDATA8 = 0x0c,
};

enum pe_relation {
	PE_PCREL = 0x10,
	PE_TEXTREL = 0x20,
	PE_DATAREL = 0x30,
	PE_FUNCREL = 0x40,
	PE_ALIGNED = 0x50,
};

struct record {
	size_t at;
	struct byte_reader body; /* the bytes after `link` */
	size_t link_at;
	uint64_t link; /* a CIE's mark, or an FDE's reference to its CIE */
	bool is_cie;
};

static uint64_t address_of(const struct cfi_section *section, const uint8_t *byte)
{
	return section->address + (uint64_t)(byte - section->bytes);
}

static uint64_t read_number(struct byte_reader *bytes, uint8_t encoding)
{
	switch (encoding & PE_FORMAT) {
	case PE_ABSPTR:
	case PE_UDATA8:
	case PE_SIGNED:
	case PE_SDATA8:
		return byte_reader_u64(bytes);
	case PE_ULEB128:
		return byte_reader_uleb(bytes);
	case PE_SLEB128:
		return (uint64_t)byte_reader_sleb(bytes);
	case PE_UDATA2:
		return byte_reader_u16(bytes);
	case PE_SDATA2:
		return (uint64_t)(int64_t)(int16_t)byte_reader_u16(bytes);
	case PE_UDATA4:
		return byte_reader_u32(bytes);
	case PE_SDATA4:
		return (uint64_t)(int64_t)(int32_t)byte_reader_u32(bytes);
	default:
		bytes->failed = true;
		return 0;
	}
}

static void align_bytes(const struct cfi_section *section, struct byte_reader *bytes)
{
	byte_reader_read(bytes, -address_of(section, bytes->at) & 7);
}

uint64_t cfi_read_pointer(const struct cfi_section *section, struct byte_reader *bytes,
			  uint8_t encoding, uint64_t function)
{
	uint64_t base = 0;

	switch (encoding & (PE_RELATION | PE_INDIRECT)) {
	case 0:
		break;
	case PE_PCREL:
		base = address_of(section, bytes->at);
		break;
	case PE_TEXTREL:
		base = section->text_base;
		break;
	case PE_DATAREL:
		base = section->data_base;
		break;
	case PE_FUNCREL:
		base = function;
		break;
	case PE_ALIGNED:
		align_bytes(section, bytes);
		break;
	default:
		bytes->failed = true;
	}
	return base + read_number(bytes, encoding);
}

/* Reads the record at `at`. Returns false if there is no whole record. A record of length 0, which
 * ends an input file, counts as empty, because linkers leave it in the middle of their output. */
static bool read_record(const struct cfi_section *section, size_t at, struct record *ret_record)
{
	struct byte_reader bytes = { section->bytes + MIN_OF(at, section->size),
				     section->bytes + section->size, false };
	uint64_t length = byte_reader_u32(&bytes), mark = UINT32_MAX;
	bool is_long = length == UINT32_MAX;
	const uint8_t *body;

	if (is_long)
		length = byte_reader_u64(&bytes);
	body = byte_reader_read(&bytes, length);
	if (bytes.failed)
		return false;
	ret_record->at = at;
	ret_record->body = (struct byte_reader){ body, body + length, false };
	ret_record->link_at = (size_t)(body - section->bytes);
	/* In .eh_frame, the link has four bytes even in long records (LSB 10.6.1). */
	if (is_long && section->is_debug_frame)
		mark = UINT64_MAX;
	ret_record->link = mark == UINT64_MAX ? byte_reader_u64(&ret_record->body)
					      : byte_reader_u32(&ret_record->body);
	ret_record->is_cie = ret_record->link == (section->is_debug_frame ? mark : 0);
	return true;
}

/* Reads the data of the letters after 'z'. Returns false if a letter is unknown. */
static bool parse_augmentation(const struct cfi_section *section, struct byte_reader *bytes,
			       const uint8_t *letters, struct cfi_cie *cie)
{
	uint8_t encoding;

	for (; *letters; letters++) {
		switch (*letters) {
		case 'L':
			byte_reader_u8(bytes);
			break;
		case 'P': /* skip the pointer */
			encoding = byte_reader_u8(bytes);
			if (encoding == PE_OMIT)
				break;
			if ((encoding & PE_RELATION) == PE_ALIGNED)
				align_bytes(section, bytes);
			read_number(bytes, encoding);
			break;
		case 'R':
			cie->encoding = byte_reader_u8(bytes);
			break;
		case 'S':
			cie->is_signal = true;
			break;
		case 'B': /* signed with key B (aarch64) */
		case 'G': /* tagged memory (aarch64) */
			break;
		default:
			return false;
		}
	}
	return !bytes->failed;
}

/* Parses a CIE. Returns false also if its return address column is not the architecture's. */
static bool parse_cie(const struct cfi_reader *reader, struct byte_reader *bytes,
		      struct cfi_cie *cie)
{
	const struct cfi_section *section = reader->section;
	uint8_t version = byte_reader_u8(bytes);
	const uint8_t *letters = bytes->at, *end, *data;
	uint64_t ra, size;

	end = memchr(letters, 0, MIN_OF(byte_reader_left(bytes), (size_t)MAX_AUGMENTATION));
	if (!end || (version != 1 && version != 3 && (version != 4 || !section->is_debug_frame)))
		return false;
	bytes->at = end + 1;
	if (version == 4 && (byte_reader_u8(bytes) != 8 || byte_reader_u8(bytes) != 0))
		return false; /* unsupported size of addresses or of segment numbers */
	cie->code_align = byte_reader_uleb(bytes);
	cie->data_align = byte_reader_sleb(bytes);
	ra = version == 1 ? byte_reader_u8(bytes) : byte_reader_uleb(bytes);
	if (bytes->failed || cie->code_align == 0 || ra != reader->regs->ra)
		return false;
	if (*letters != 'z')
		return *letters == '\0';
	cie->has_data = true;
	size = byte_reader_uleb(bytes);
	data = byte_reader_read(bytes, size);
	if (!data)
		return false;
	return parse_augmentation(section, &(struct byte_reader){ data, data + size, false },
				  letters + 1, cie);
}

void cfi_reader_init(struct cfi_reader *reader, const struct cfi_section *section)
{
	reader->section = section;
	reader->regs = section->regs ? section->regs : regs_get(section->arch);
	assert(reader->regs);
	for (size_t i = 0; i < CFI_READER_CIES; i++)
		reader->cies[i].at = SIZE_MAX;
}

static bool parse_fde(struct cfi_reader *reader, struct record *record, struct cfi_fde *ret_fde)
{
	const struct cfi_section *section = reader->section;
	uint64_t cie_at = section->is_debug_frame ? record->link : record->link_at - record->link;
	uint64_t start, size, end;
	struct cfi_cie *cie = &reader->cies[cie_at / 4 % CFI_READER_CIES];
	struct record about;

	if (record->is_cie || record->body.failed || cie_at >= section->size)
		return false;
	if (cie->at != cie_at) {
		*cie = (struct cfi_cie){ .at = cie_at };
		cie->usable = read_record(section, cie_at, &about) && about.is_cie &&
			      parse_cie(reader, &about.body, cie) &&
			      byte_reader_left(&about.body) <= MAX_INITIAL &&
			      cfi_program_initial(reader, cie, &about.body);
	}
	if (!cie->usable)
		return false;
	start = cfi_read_pointer(section, &record->body, cie->encoding, 0);
	size = read_number(&record->body, cie->encoding);
	if (cie->has_data)
		byte_reader_read(&record->body, byte_reader_uleb(&record->body));
	if (record->body.failed || size == 0 || !add_u64(start, size, &end))
		return false;
	ret_fde->at = record->at;
	ret_fde->start = start;
	ret_fde->end = end;
	ret_fde->program = record->body.at;
	ret_fde->program_end = record->body.end;
	ret_fde->cie = *cie;
	return true;
}

bool cfi_reader_get(struct cfi_reader *reader, size_t at, struct cfi_fde *ret_fde)
{
	struct record record;

	return read_record(reader->section, at, &record) && parse_fde(reader, &record, ret_fde);
}

bool cfi_reader_next(struct cfi_reader *reader, size_t *at, struct cfi_fde *ret_fde)
{
	struct record record;

	while (read_record(reader->section, *at, &record)) {
		*at = (size_t)(record.body.end - reader->section->bytes);
		if (parse_fde(reader, &record, ret_fde))
			return true;
	}
	return false;
}

/* ---- Lookup ---- */

struct header {
	const uint8_t *table; /* {start, FDE} as signed 32-bit distances from the header */
	size_t n;
};

/* Accepts only the kind of table that all linkers write. */
static bool read_header(const struct cfi_section *section, struct header *ret_header)
{
	struct byte_reader bytes = { section->header, section->header, false };
	uint8_t version, pointer, count, table;
	uint64_t n;

	if (!section->header)
		return false;
	bytes.end += section->header_size;
	version = byte_reader_u8(&bytes);
	pointer = byte_reader_u8(&bytes);
	count = byte_reader_u8(&bytes);
	table = byte_reader_u8(&bytes);
	if (version != 1 || pointer == PE_OMIT || count == PE_OMIT ||
	    table != (PE_DATAREL | PE_SDATA4))
		return false;
	read_number(&bytes, pointer);
	n = read_number(&bytes, count);
	if (bytes.failed || n == 0 || n > byte_reader_left(&bytes) / 8)
		return false;
	*ret_header = (struct header){ bytes.at, n };
	return true;
}

static uint64_t header_number(const struct cfi_section *section, const uint8_t *at)
{
	return section->header_address + (uint64_t)(int64_t)(int32_t)load_le32(at);
}

static bool find_by_header(struct cfi_reader *reader, const struct header *header, uint64_t pc,
			   struct cfi_fde *ret_fde)
{
	const struct cfi_section *section = reader->section;
	size_t low = 0, high = header->n;
	uint64_t at;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (header_number(section, header->table + middle * 8) <= pc)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == 0)
		return false;
	at = header_number(section, header->table + (low - 1) * 8 + 4) - section->address;
	return at < section->size && cfi_reader_get(reader, at, ret_fde);
}

static bool find_by_reading(struct cfi_reader *reader, uint64_t pc, struct cfi_fde *ret_fde)
{
	struct cfi_fde fde;
	bool found = false;
	size_t at = 0;

	while (cfi_reader_next(reader, &at, &fde)) {
		if (fde.start > pc || (found && fde.start <= ret_fde->start))
			continue;
		*ret_fde = fde;
		found = true;
	}
	return found;
}

bool cfi_find(struct cfi_reader *reader, uint64_t pc, struct cfi_fde *ret_fde)
{
	struct header header;
	struct cfi_fde fde;
	bool found = read_header(reader->section, &header)
			     ? find_by_header(reader, &header, pc, &fde)
			     : find_by_reading(reader, pc, &fde);

	if (!found || pc < fde.start || pc >= fde.end)
		return false;
	*ret_fde = fde;
	return true;
}
