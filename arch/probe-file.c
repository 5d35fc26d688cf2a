/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Probe file - finds the functions and static probes (USDT) of an untrusted ELF file
 *
 * A note of a static probe (.note.stapsdt, type 3) has three addresses and three strings:
 *
 *     place  link-time address of .stapsdt.base  semaphore  "provider\0" "name\0" "arguments\0"
 *
 * If .stapsdt.base moved after the note was written (prelink), place and semaphore moved with it.
 * Invariants: (1) a place is in an executable segment, at the start of a function or at an
 *                 instruction that a note names  [test-probe-file: find]
 *             (2) the file's numbers are checked before they are used  [test-probe-file: hostile]
 * Reads with pread() only. Pure otherwise; opens nothing.
 */
#include "arch/probe-file.h"

#include "arch/base.h"
#include "arch/regs.h"
#include "base/bytes.h"

#include <elf.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_HEADERS 65536u
#define MAX_SECTION_BYTES (UINT64_C(256) << 20)
#define MAX_BUILD_ID 64
#define NOTE_STATIC_PROBE 3
#define MAX_DESCRIPTION 4096 /* bytes that describe the arguments of a static probe */
#define NEAR_NAMES 3
#define SYMBOL_IS_HIDDEN 0x8000 /* in .gnu.version: not the default version */

struct probe_section {
	uint8_t *bytes;
	uint64_t size;
};

struct symbol_table {
	struct probe_section symbols, names, versions;
};

struct probe_file {
	int fd;
	uint64_t file_bytes;
	Elf64_Phdr *segments;
	unsigned n_segments;
	struct symbol_table tables[3]; /* .symtab, .dynsym, and .symtab of the debug file */
	struct probe_section notes;
	uint64_t base; /* address of .stapsdt.base; 0: none */
	uint8_t build_id[MAX_BUILD_ID];
	unsigned build_id_bytes;
	bool is_go;
	bool lacks_symbols; /* a table of symbols could not be read */
};

/* Appends as much of `more` to `text` as fits into `size` bytes. Returns whether all of it fits. */
static bool append(char *text, size_t size, const char *more)
{
	size_t used = strlen(text), length = strlen(more), left = size - used - 1;

	memcpy(text + used, more, MIN_OF(length, left));
	text[used + MIN_OF(length, left)] = '\0';
	return length <= left;
}

/* ---- Reading --------------------------------------------------------------------------------- */

/* Returns malloc()ed bytes followed by a NUL; NULL if the file lacks some of them, or if they are
 * too many. */
static uint8_t *read_at(int fd, uint64_t offset, uint64_t size)
{
	uint8_t *bytes;
	uint64_t done = 0;
	ssize_t n;

	if (size > MAX_SECTION_BYTES || offset > INT64_MAX - size)
		return NULL;
	bytes = malloc(size + 1);
	while (bytes && done < size) {
		n = pread(fd, bytes + done, size - done, (off_t)(offset + done));
		if (n <= 0) {
			free(bytes);
			return NULL;
		}
		done += (uint64_t)n;
	}
	if (bytes)
		bytes[size] = '\0';
	return bytes;
}

static bool read_section(int fd, const Elf64_Shdr *header, struct probe_section *section)
{
	struct stat status;

	/* Allocate nothing for a section that the file is too small for. */
	if (section->bytes || header->sh_type == SHT_NOBITS || fstat(fd, &status) < 0 ||
	    header->sh_size > (uint64_t)status.st_size)
		return false;
	section->bytes = read_at(fd, header->sh_offset, header->sh_size);
	section->size = section->bytes ? header->sh_size : 0;
	return section->bytes != NULL;
}

/* Returns the section headers; NULL: none, or invalid. */
static Elf64_Shdr *read_headers(int fd, const Elf64_Ehdr *elf, unsigned *ret_n)
{
	Elf64_Shdr *first, *all;
	uint64_t n = elf->e_shnum;

	if (elf->e_shoff == 0 || elf->e_shentsize != sizeof(*first))
		return NULL;
	first = (Elf64_Shdr *)(void *)read_at(fd, elf->e_shoff, sizeof(*first));
	if (!first || n)
		free(first);
	if (!first)
		return NULL;
	if (!n) {
		n = first->sh_size;
		free(first);
	}
	if (n == 0 || n > MAX_HEADERS)
		return NULL;
	all = (Elf64_Shdr *)(void *)read_at(fd, elf->e_shoff, n * sizeof(*all));
	*ret_n = all ? (unsigned)n : 0;
	return all;
}

/* Calls `visit` for each note, until it returns false or a note is invalid. */
static void each_note(const struct probe_section *notes,
		      bool (*visit)(uint32_t type, const char *owner, struct byte_reader desc,
				    void *data),
		      void *data)
{
	struct byte_reader reader = { .at = notes->bytes };

	if (!notes->bytes)
		return;
	reader.end = notes->bytes + notes->size;
	while (byte_reader_left(&reader) >= 12) {
		uint32_t name_bytes = byte_reader_u32(&reader);
		uint32_t desc_bytes = byte_reader_u32(&reader);
		uint32_t type = byte_reader_u32(&reader);
		const char *name = (const char *)byte_reader_read(&reader, name_bytes);
		struct byte_reader desc;

		byte_reader_read(&reader,
				 MIN_OF((size_t)(-name_bytes & 3), byte_reader_left(&reader)));
		desc.at = byte_reader_read(&reader, desc_bytes);
		desc.end = desc.at ? desc.at + desc_bytes : NULL;
		desc.failed = false;
		if (reader.failed || !name || !desc.at || name_bytes == 0 || name[name_bytes - 1] ||
		    !visit(type, name, desc, data))
			return;
		byte_reader_read(&reader,
				 MIN_OF((size_t)(-desc_bytes & 3), byte_reader_left(&reader)));
	}
}

static bool take_build_id(uint32_t type, const char *owner, struct byte_reader desc, void *data)
{
	struct probe_file *file = data;
	size_t bytes = byte_reader_left(&desc);

	if (type != NT_GNU_BUILD_ID || strcmp(owner, "GNU") != 0 || bytes > MAX_BUILD_ID)
		return true;
	memcpy(file->build_id, desc.at, bytes);
	file->build_id_bytes = (unsigned)bytes;
	return false;
}

/* Reads a table of symbols with its names and, for .dynsym, versions. */
static void read_symbols(struct probe_file *file, int fd, const Elf64_Shdr *headers, unsigned n,
			 unsigned index, struct symbol_table *table)
{
	const Elf64_Shdr *header = &headers[index];

	if (table->symbols.bytes || header->sh_type == SHT_NOBITS)
		return;
	if (header->sh_link >= n || !read_section(fd, &headers[header->sh_link], &table->names) ||
	    !read_section(fd, header, &table->symbols))
		file->lacks_symbols = true;
	for (unsigned i = 0; i < n; i++)
		if (headers[i].sh_type == SHT_GNU_versym && headers[i].sh_link == index)
			read_section(fd, &headers[i], &table->versions);
}

static void read_sections(struct probe_file *file, int fd, const Elf64_Ehdr *elf, bool is_debug)
{
	struct probe_section names = { NULL, 0 };
	unsigned n = 0;
	Elf64_Shdr *headers = read_headers(fd, elf, &n);

	if (n > 0 && elf->e_shstrndx < n)
		read_section(fd, &headers[elf->e_shstrndx], &names);
	for (unsigned i = 0; i < n; i++) {
		const Elf64_Shdr *header = &headers[i];
		const char *name = header->sh_name < names.size
					   ? (const char *)names.bytes + header->sh_name
					   : "";

		if (header->sh_type == SHT_SYMTAB)
			read_symbols(file, fd, headers, n, i, &file->tables[is_debug ? 2 : 0]);
		if (is_debug)
			continue;
		if (header->sh_type == SHT_DYNSYM)
			read_symbols(file, fd, headers, n, i, &file->tables[1]);
		else if (strcmp(name, ".note.stapsdt") == 0 && header->sh_type == SHT_NOTE)
			read_section(fd, header, &file->notes);
		else if (strcmp(name, ".stapsdt.base") == 0)
			file->base = header->sh_addr;
		else if (strcmp(name, ".gopclntab") == 0 || strcmp(name, ".go.buildinfo") == 0)
			file->is_go = true;
	}
	free(names.bytes);
	free(headers);
}

static void read_build_id(struct probe_file *file, int fd)
{
	for (unsigned i = 0; i < file->n_segments && !file->build_id_bytes; i++) {
		struct probe_section notes = { NULL, file->segments[i].p_filesz };

		if (file->segments[i].p_type != PT_NOTE || notes.size > file->file_bytes)
			continue;
		notes.bytes = read_at(fd, file->segments[i].p_offset, notes.size);
		each_note(&notes, take_build_id, file);
		free(notes.bytes);
	}
}

static const char *read_elf(struct probe_file *file, int fd, bool is_debug)
{
	Elf64_Ehdr *elf = (Elf64_Ehdr *)(void *)read_at(fd, 0, sizeof(*elf));
	const char *reason = NULL;
	struct stat status = { 0 };

	if (fstat(fd, &status) < 0 || !S_ISREG(status.st_mode))
		reason = "it is not a regular file";
	else if (!elf || memcmp(elf->e_ident, ELFMAG, SELFMAG) != 0)
		reason = "it is no program or library (ELF)";
	else if (elf->e_ident[EI_CLASS] != ELFCLASS64)
		reason = "it is a 32-bit file, whose probes are not supported";
	else if (elf->e_ident[EI_DATA] != ELFDATA2LSB || REGS_NATIVE == REGS_NONE ||
		 elf->e_machine != regs_get(REGS_NATIVE)->elf_machine)
		reason = "it is for another kind of CPU";
	else if (elf->e_type != ET_EXEC && elf->e_type != ET_DYN)
		reason = "it is no program or library";
	else if (!is_debug && (elf->e_phentsize != sizeof(Elf64_Phdr) || elf->e_phnum == 0))
		reason = "it has no segments";
	file->file_bytes = (uint64_t)status.st_size;
	if (!reason && elf->e_phentsize == sizeof(Elf64_Phdr)) {
		file->segments = (Elf64_Phdr *)(void *)read_at(fd, elf->e_phoff,
							       elf->e_phnum * sizeof(Elf64_Phdr));
		file->n_segments = file->segments ? elf->e_phnum : 0;
	}
	if (!reason && !is_debug && file->n_segments == 0)
		reason = "it is cut off";
	if (!reason) {
		read_build_id(file, fd);
		read_sections(file, fd, elf, is_debug);
	}
	free(elf);
	return reason;
}

struct probe_file *probe_file_new(int fd, const char **ret_reason)
{
	struct probe_file *file = calloc(1, sizeof(*file));
	const char *reason = "there is no memory";

	if (file) {
		file->fd = fd;
		reason = read_elf(file, fd, false);
	}
	if (!reason)
		return file;
	*ret_reason = reason;
	probe_file_free(file);
	return NULL;
}

static void free_table(struct symbol_table *table)
{
	free(table->symbols.bytes);
	free(table->names.bytes);
	free(table->versions.bytes);
}

void probe_file_free(struct probe_file *file)
{
	if (!file)
		return;
	for (size_t i = 0; i < ARRAY_SIZE(file->tables); i++)
		free_table(&file->tables[i]);
	free(file->segments);
	free(file->notes.bytes);
	free(file);
}

void probe_file_add_symbols(struct probe_file *file, int debug_fd)
{
	struct probe_file *debug = calloc(1, sizeof(*debug));

	if (debug && !read_elf(debug, debug_fd, true) && file->build_id_bytes > 0 &&
	    debug->build_id_bytes == file->build_id_bytes &&
	    memcmp(debug->build_id, file->build_id, file->build_id_bytes) == 0) {
		free_table(&file->tables[2]);
		file->tables[2] = debug->tables[2];
		debug->tables[2] = (struct symbol_table){ { NULL, 0 }, { NULL, 0 }, { NULL, 0 } };
	}
	probe_file_free(debug);
}

bool probe_file_debug_path(const struct probe_file *file, char *ret_path, size_t size)
{
	static const char digits[] = "0123456789abcdef";
	char hex[2 * MAX_BUILD_ID + 2] = "";

	if (file->build_id_bytes < 2)
		return false;
	for (unsigned i = 0, at = 0; i < file->build_id_bytes; i++) {
		hex[at++] = digits[file->build_id[i] >> 4];
		hex[at++] = digits[file->build_id[i] & 15];
		if (i == 0)
			hex[at++] = '/';
	}
	*ret_path = '\0';
	return append(ret_path, size, "/usr/lib/debug/.build-id/") && append(ret_path, size, hex) &&
	       append(ret_path, size, ".debug");
}

/* ---- Visiting -------------------------------------------------------------------------------- */

struct visitor {
	const struct probe_file *file;
	void (*visit)(const struct probe_point *point, void *data);
	void *data;
};

/* Returns the next string of the reader; NULL if it has no NUL, or is longer than max - 1 bytes. */
static const char *take_string(struct byte_reader *reader, size_t max)
{
	size_t left = byte_reader_left(reader);
	size_t length = strnlen((const char *)reader->at, left);

	if (length == left || length >= max)
		return NULL;
	return (const char *)byte_reader_read(reader, length + 1);
}

static bool visit_note(uint32_t type, const char *owner, struct byte_reader desc, void *data)
{
	const struct visitor *visitor = data;
	struct probe_point point = { .address = byte_reader_u64(&desc) };
	uint64_t base = byte_reader_u64(&desc), moved = 0;

	if (type != NOTE_STATIC_PROBE || strcmp(owner, "stapsdt") != 0)
		return true;
	if (visitor->file->base && base)
		moved = visitor->file->base - base;
	point.semaphore = byte_reader_u64(&desc);
	point.address += moved;
	if (point.semaphore)
		point.semaphore += moved;
	point.provider = take_string(&desc, PROBE_MAX_NAME);
	point.name = point.provider ? take_string(&desc, PROBE_MAX_NAME) : NULL;
	point.arguments = point.name ? take_string(&desc, MAX_DESCRIPTION) : NULL;
	if (!desc.failed && point.arguments && *point.provider && *point.name)
		visitor->visit(&point, visitor->data);
	return true;
}

/* Copies an entry, which may not be aligned in a hostile file. Returns false at the end. */
static bool get_symbol(const struct symbol_table *table, size_t index, Elf64_Sym *ret_symbol)
{
	if (index >= table->symbols.size / sizeof(*ret_symbol))
		return false;
	memcpy(ret_symbol, table->symbols.bytes + index * sizeof(*ret_symbol), sizeof(*ret_symbol));
	return true;
}

/* Returns "" for names that are too long for an event, so that long names of a hostile file cost no
 * time. */
static const char *name_of(const struct symbol_table *table, const Elf64_Sym *symbol)
{
	const char *name = "";

	if (symbol->st_name < table->names.size)
		name = (const char *)table->names.bytes + symbol->st_name;
	return strnlen(name, PROBE_MAX_NAME) < PROBE_MAX_NAME ? name : "";
}

/* Returns whether the symbol is a version for old programs, such as the older one of two symbols
 * "memcpy". */
static bool is_old_version(const struct symbol_table *table, size_t index)
{
	return index < table->versions.size / 2 &&
	       load_le16(table->versions.bytes + index * 2) & SYMBOL_IS_HIDDEN;
}

static void visit_symbols(const struct visitor *visitor, const struct symbol_table *table)
{
	Elf64_Sym symbol;

	for (size_t i = 0; get_symbol(table, i, &symbol); i++) {
		unsigned type = ELF64_ST_TYPE(symbol.st_info);
		struct probe_point point = {
			.name = name_of(table, &symbol),
			.address = symbol.st_value,
			.size = symbol.st_size,
			.indirect = type == STT_GNU_IFUNC,
		};

		if ((type == STT_FUNC || type == STT_GNU_IFUNC) && symbol.st_shndx != SHN_UNDEF &&
		    *point.name && !is_old_version(table, i))
			visitor->visit(&point, visitor->data);
	}
}

void probe_file_each(const struct probe_file *file, bool functions,
		     void (*visit)(const struct probe_point *point, void *data), void *data)
{
	struct visitor visitor = { file, visit, data };

	each_note(&file->notes, visit_note, &visitor);
	for (size_t i = 0; functions && i < ARRAY_SIZE(file->tables); i++)
		visit_symbols(&visitor, &file->tables[i]);
}

/* ---- Finding --------------------------------------------------------------------------------- */

/* Returns the file offset of an address; 0 if it is in no segment with these flags. */
static uint64_t offset_of(const struct probe_file *file, uint64_t address, uint32_t flags)
{
	for (unsigned i = 0; i < file->n_segments; i++) {
		const Elf64_Phdr *segment = &file->segments[i];

		if (segment->p_type == PT_LOAD && (segment->p_flags & flags) == flags &&
		    address >= segment->p_vaddr && address - segment->p_vaddr < segment->p_filesz &&
		    segment->p_offset < file->file_bytes &&
		    address - segment->p_vaddr < file->file_bytes - segment->p_offset)
			return address - segment->p_vaddr + segment->p_offset;
	}
	return 0;
}

struct search {
	const char *provider; /* NULL: a function */
	const char *name;
	struct probe_point found[PROBE_MAX_PLACES];
	unsigned n, others; /* others: number of places that did not fit */
	/* the most similar names, and how similar they are */
	const char *near[NEAR_NAMES];
	const char *near_providers[NEAR_NAMES];
	size_t likeness[NEAR_NAMES];
};

/* Returns whether names are equal up to the version of a symbol, as in "memcpy@@GLIBC_2.14". */
static bool is_name(const char *candidate, const char *wanted)
{
	size_t n = strlen(wanted);

	return strncmp(candidate, wanted, n) == 0 && (candidate[n] == '\0' || candidate[n] == '@');
}

/* Returns how many bytes two names share at their start and end, minus the difference in length; at
 * least 1 if `a` contains `b`. */
static size_t likeness(const char *a, const char *b)
{
	size_t n = strlen(a), m = strlen(b), least = MIN_OF(n, m), front = 0, back = 0;
	size_t longer = MAX_OF(n, m) - least;

	while (front < least && a[front] == b[front])
		front++;
	while (back < least - front && a[n - 1 - back] == b[m - 1 - back])
		back++;
	return front + back > longer ? front + back - longer : strstr(a, b) ? 1 : 0;
}

static void keep_near(struct search *search, const struct probe_point *point)
{
	size_t like = likeness(point->name, search->name);
	unsigned at = NEAR_NAMES;

	for (unsigned i = 0; i < NEAR_NAMES; i++)
		if (search->near[i] && strcmp(search->near[i], point->name) == 0)
			return;
	while (at > 0 && like > search->likeness[at - 1])
		at--;
	if (at == NEAR_NAMES || strlen(point->name) >= PROBE_REASON_BYTES / (NEAR_NAMES + 2))
		return;
	for (unsigned i = NEAR_NAMES - 1; i > at; i--) {
		search->near[i] = search->near[i - 1];
		search->near_providers[i] = search->near_providers[i - 1];
		search->likeness[i] = search->likeness[i - 1];
	}
	search->near[at] = point->name;
	search->near_providers[at] = point->provider;
	search->likeness[at] = like;
}

static void search_point(const struct probe_point *point, void *data)
{
	struct search *search = data;

	if (!point->provider != !search->provider)
		return;
	if (!(search->provider ? strcmp(point->name, search->name) == 0 &&
					 strcmp(point->provider, search->provider) == 0
			       : is_name(point->name, search->name))) {
		keep_near(search, point);
		return;
	}
	for (unsigned i = 0; i < search->n; i++)
		if (search->found[i].address == point->address)
			return;
	if (search->n < PROBE_MAX_PLACES)
		search->found[search->n++] = *point;
	else
		search->others++;
}

struct start_search {
	uint64_t address;
	bool found;
};

static void search_start(const struct probe_point *point, void *data)
{
	struct start_search *start = data;

	start->found |= !point->provider && point->address == start->address;
}

static void append_name(char *reason, const char *provider, const char *name)
{
	if (provider) {
		append(reason, PROBE_REASON_BYTES, provider);
		append(reason, PROBE_REASON_BYTES, ":");
	}
	append(reason, PROBE_REASON_BYTES, name);
}

static void fail_unknown(const struct probe_file *file, const struct search *search, char *reason)
{
	append(reason, PROBE_REASON_BYTES,
	       search->provider ? "it has no probe \"" : "it has no function \"");
	append_name(reason, search->provider, search->name);
	append(reason, PROBE_REASON_BYTES, "\"");
	for (unsigned i = 0; i < NEAR_NAMES && search->near[i]; i++) {
		append(reason, PROBE_REASON_BYTES, i ? ", " : "; near names: ");
		append_name(reason, search->near_providers[i], search->near[i]);
	}
	if (file->lacks_symbols)
		append(reason, PROBE_REASON_BYTES,
		       "; not all of its symbols could be read: a table is damaged, or larger "
		       "than 256 MiB");
}

/* Returns whether the file defines or imports a symbol with this name. `imported`: ignores symbols
 * that the file defines. */
static bool mentions(const struct probe_file *file, const char *name, bool imported)
{
	Elf64_Sym symbol;

	for (size_t t = 0; t < ARRAY_SIZE(file->tables); t++)
		for (size_t i = 0; get_symbol(&file->tables[t], i, &symbol); i++)
			if ((!imported || symbol.st_shndx == SHN_UNDEF) &&
			    is_name(name_of(&file->tables[t], &symbol), name))
				return true;
	return false;
}

/* Returns whether the function keeps its caller's address for later. Checks every name, because a
 * function may have several names, also with versions. */
static bool keeps_caller(const struct probe_file *file, uint64_t address)
{
	static const char *const keepers[] = { "setjmp",      "_setjmp",     "__setjmp",
					       "sigsetjmp",   "__sigsetjmp", "getcontext",
					       "swapcontext", "vfork",       "__vfork",
					       "longjmp",     "siglongjmp",  "setcontext" };
	Elf64_Sym symbol;

	for (size_t t = 0; t < ARRAY_SIZE(file->tables); t++)
		for (size_t i = 0; get_symbol(&file->tables[t], i, &symbol); i++)
			for (size_t k = 0; symbol.st_value == address && k < ARRAY_SIZE(keepers);
			     k++)
				if (is_name(name_of(&file->tables[t], &symbol), keepers[k]))
					return true;
	return false;
}

/* A probe of a function's return replaces the return address on the stack with the kernel's own.
 * Returns why this would harm the program, or NULL. */
static const char *refuse_return(const struct probe_file *file, uint64_t address)
{
	static const char *const throwers[] = { "__cxa_throw", "_Unwind_RaiseException",
						"__gxx_personality_v0", "rust_eh_personality" };

	if (file->is_go)
		return "a probe of a function's return ends a Go program, which reads its own stacks";
	if (keeps_caller(file, address))
		return "it keeps its caller's address for later, which a probe of its return "
		       "replaces";
	/* A file in C imports this symbol if it cleans up when a thread ends by pthread_exit() or
	 * pthread_cancel(). libc itself only defines the symbol, for other files. */
	if (mentions(file, "__gcc_personality_v0", true))
		return "a probe of a function's return stops the cleanup of a thread that ends in "
		       "that function, and this file cleans up (C with -fexceptions); its entry can "
		       "be probed";
	for (size_t i = 0; i < ARRAY_SIZE(throwers); i++)
		if (mentions(file, throwers[i], false))
			return "a probe of a function's return ends the program if an exception "
			       "passes that function, and this file uses exceptions (C++ or Rust); "
			       "its entry can be probed";
	return NULL;
}

/* Returns why a probe at this place would harm the program, or NULL. The kernel replaces a 5-byte
 * nop with a call, which writes below the stack pointer. Except at its start, a function may have
 * data there. */
static const char *refuse_place(const struct probe_file *file, uint64_t address, uint64_t offset,
				bool optimizes_nops)
{
	static const uint8_t nop5[] = { 0x0f, 0x1f, 0x44, 0x00, 0x00 };
	struct start_search start = { .address = address };
	uint8_t *code = read_at(file->fd, offset, sizeof(nop5));
	bool is_nop5 = code && memcmp(code, nop5, sizeof(nop5)) == 0;

	free(code);
	if (REGS_NATIVE != REGS_X86_64 || !optimizes_nops || !is_nop5)
		return NULL;
	probe_file_each(file, true, search_start, &start);
	return start.found
		       ? NULL
		       : "this kernel (6.18 or later) replaces the 5-byte nop at the probe by a "
			 "call, which overwrites data of functions that use the red zone below "
			 "the stack";
}

unsigned probe_file_find(const struct probe_file *file, const char *name, bool optimizes_nops,
			 struct probe_place ret_places[PROBE_MAX_PLACES],
			 char ret_reason[PROBE_REASON_BYTES])
{
	char copy[PROBE_MAX_NAME];
	size_t length = strlen(name), suffix = strlen(PROBE_RETURN);
	struct search search = { .name = copy };
	const char *refusal = NULL;
	bool is_return = length > suffix && strcmp(name + length - suffix, PROBE_RETURN) == 0;

	*ret_reason = '\0';
	if (length >= sizeof(copy)) {
		append(ret_reason, PROBE_REASON_BYTES, "the name is too long");
		return 0;
	}
	memcpy(copy, name, length + 1);
	if (is_return)
		copy[length - suffix] = '\0';
	if (strchr(copy, ':')) {
		search.provider = copy;
		search.name = strchr(copy, ':') + 1;
		copy[search.name - copy - 1] = '\0';
	}
	probe_file_each(file, !search.provider, search_point, &search);
	if (search.n == 0) {
		fail_unknown(file, &search, ret_reason);
		return 0;
	}
	if (search.provider && is_return)
		refusal = "only functions have a return";
	else if (search.others)
		refusal = "it has more places than can be recorded as one event";
	else if (!search.provider && search.n > 1)
		refusal =
			"the file has several functions of this name, and it is not known which is "
			"meant";
	else if (search.found[0].indirect)
		refusal = "it only chooses one of several functions for this CPU, once "
			  "(IFUNC); one of those can be probed";
	else if (is_return)
		refusal = refuse_return(file, search.found[0].address);
	for (unsigned i = 0; i < search.n && !refusal; i++) {
		const struct probe_point *point = &search.found[i];

		ret_places[i] = (struct probe_place){
			.offset = offset_of(file, point->address, PF_R | PF_X),
			.semaphore = point->semaphore
					     ? offset_of(file, point->semaphore, PF_R | PF_W)
					     : 0,
		};
		if (point->arguments)
			ret_places[i].n_arguments = probe_arguments_parse(
				REGS_NATIVE, point->arguments, ret_places[i].arguments);
		if (!ret_places[i].offset)
			refusal = "it is not in the file's code";
		else if (point->semaphore &&
			 (!ret_places[i].semaphore || ret_places[i].semaphore > UINT32_MAX))
			refusal = "the counter of its users (semaphore) is not in the file's data";
		else
			refusal = refuse_place(file, point->address, ret_places[i].offset,
					       optimizes_nops);
	}
	if (!refusal)
		return search.n;
	append(ret_reason, PROBE_REASON_BYTES, refusal);
	return 0;
}
