/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Interp-elf - the exported symbols of an ELF file by which interpreters are found
 *
 * Invariants: (1) memory and work are bounded, whatever the file contains  [fuzz_interp_runtime]
 * Pure functions of the file.
 */
#include "daemon/engine/interp/interp-elf.h"

#include "arch/base.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SYMBOLS (1u << 19)
#define MAX_NAMES_BYTES (32u << 20)
#define MAX_RELOCATIONS (1u << 20)
#define ENTRIES_AT_ONCE 1024u
#define MAX_TEXT_BYTES (64u << 20)
#define TEXT_AT_ONCE (64u << 10)
/* Names of musl's library; the second is Alpine's. glibc's is libc.so.6. */
#define MUSL "\0libc.so"
#define MUSL_OF_MACHINE "\0libc.musl-"

/* Sorted by name. A name that ends with "_" is a prefix: its rest differs between versions. */
static const struct symbol_name {
	const char *name;
	enum interp_symbol symbol;
} names[] = {
	{ "PL_curinterp", PERL_FIRST },
	{ "PL_interp_size", PERL_STATE_BYTES },
	{ "PL_ppaddr", PERL_OPERATIONS },
	{ "PL_thr_key", PERL_KEY },
	{ "PL_version", PERL_VERSION_MINOR },
	{ "Perl_amagic_call", PERL_CALL_OPERATOR },
	{ "Perl_call_sv", PERL_CALL },
	{ "Perl_runops_standard", PERL_RUNOPS },
	{ "PyCode_Type", PYTHON_CODE_TYPE },
	{ "PyConfig_InitPythonConfig", PYTHON_SINCE_3_8 },
	{ "PyObject_CallNoArgs", PYTHON_SINCE_3_9 },
	{ "Py_IsTrue", PYTHON_SINCE_3_10 },
	{ "Py_Version", PYTHON_VERSION },
	{ "_PyEval_EvalFrameDefault", PYTHON_EVAL },
	{ "_PyRuntime", PYTHON_RUNTIME },
	{ "_ZN2v87Isolate13TryGetCurrentEv", V8_CURRENT },
	{ "_ZN2v88internal18g_current_isolate_E", V8_ISOLATE },
	{ "_ZN2v88internal7Isolate12isolate_key_E", V8_ISOLATE_KEY },
	{ "_ZN2v88internal7Version6major_E", V8_MAJOR_NUMBER },
	{ "_ZN2v88internal7Version6minor_E", V8_MINOR_NUMBER },
	{ "execute_ex", PHP_EXECUTE },
	{ "executor_globals", PHP_GLOBALS },
	{ "executor_globals_offset", PHP_GLOBALS_OFFSET },
	{ "perl_run", PERL_RUN },
	{ "rb_errinfo", RUBY_ERRINFO },
	{ "rb_iseq_eval", RUBY_ISEQ_EVAL },
	{ "rb_iseq_eval_main", RUBY_ISEQ_EVAL_MAIN },
	{ "rb_vm_exec", RUBY_VM_EXEC },
	{ "ruby_api_version", RUBY_API_VERSION },
	{ "ruby_current_ec", RUBY_CURRENT_EC },
	{ "tsrm_get_ls_cache_tcb_offset", PHP_POINTER },
	{ "v8dbg_FirstNonstringType", V8_TYPES_OF_STRINGS },
	{ "v8dbg_TaggedSize", V8_TAGGED_SIZE },
	{ "v8dbg_class_ConsString__first__String", V8_STRING_FIRST },
	{ "v8dbg_class_ConsString__second__String", V8_STRING_SECOND },
	{ "v8dbg_class_JSFunction__shared__SharedFunctionInfo", V8_FUNCTION_INFO },
	{ "v8dbg_class_Map__instance_type__uint16_t", V8_MAP_TYPE },
	{ "v8dbg_class_Script__name__Object", V8_SCRIPT_NAME },
	{ "v8dbg_class_Script__source__Object", V8_SCRIPT_SOURCE },
	{ "v8dbg_class_SeqOneByteString__chars__char", V8_STRING_BYTES },
	{ "v8dbg_class_SharedFunctionInfo__flags__int", V8_INFO_FLAGS },
	{ "v8dbg_class_SharedFunctionInfo__name_or_scope_info_", V8_INFO_NAME },
	{ "v8dbg_class_SharedFunctionInfo__script_", V8_INFO_SCRIPT },
	{ "v8dbg_class_SlicedString__offset__SMI", V8_STRING_OFFSET },
	{ "v8dbg_class_SlicedString__parent__String", V8_STRING_PARENT },
	{ "v8dbg_class_String__length__int32_t", V8_STRING_LENGTH },
	{ "v8dbg_frametype_BuiltinExitFrame", V8_BUILTIN_EXIT },
	{ "v8dbg_frametype_ConstructEntryFrame", V8_CONSTRUCT_ENTRY },
	{ "v8dbg_frametype_EntryFrame", V8_ENTRY },
	{ "v8dbg_off_fp_context_or_frame_type", V8_FRAME_TYPE },
	{ "v8dbg_off_fp_function", V8_FRAME_FUNCTION },
	{ "v8dbg_type_DebugInfo__DEBUG_INFO_TYPE", V8_TYPE_DEBUG_INFO },
	{ "v8dbg_type_Oddball__ODDBALL_TYPE", V8_TYPE_ODDBALL },
	{ "v8dbg_type_ScopeInfo__SCOPE_INFO_TYPE", V8_TYPE_SCOPE_INFO },
	{ "v8dbg_type_Script__SCRIPT_TYPE", V8_TYPE_SCRIPT },
	{ "v8dbg_type_SharedFunctionInfo__SHARED_FUNCTION_INFO_TYPE", V8_TYPE_FUNCTION_INFO },
};
static_assert(ARRAY_SIZE(names) == INTERP_SYMBOLS, "each symbol has a name");

static bool read_at(int fd, void *to, size_t size, uint64_t offset)
{
	size_t done = 0;
	ssize_t n = 0;

	if (offset > INT64_MAX - size)
		return false;
	while (done < size) {
		n = pread(fd, (char *)to + done, size - done, (off_t)(offset + done));
		if (n == 0 || (n < 0 && errno != EINTR))
			return false;
		done += n > 0 ? (size_t)n : 0;
	}
	return true;
}

bool interp_elf_has(const struct interp_elf *elf, enum interp_symbol symbol)
{
	return elf->found[symbol].st_shndx != SHN_UNDEF;
}

bool interp_elf_address(const struct interp_elf *elf, void *to, size_t size, uint64_t address)
{
	for (size_t i = 0; i < elf->n_segments; i++) {
		const Elf64_Phdr *segment = &elf->segments[i];

		if (segment->p_type == PT_LOAD && address >= segment->p_vaddr &&
		    address - segment->p_vaddr <= segment->p_filesz &&
		    size <= segment->p_filesz - (address - segment->p_vaddr))
			return read_at(elf->fd, to, size,
				       segment->p_offset + (address - segment->p_vaddr));
	}
	return false;
}

size_t interp_elf_code(const struct interp_elf *elf, enum interp_symbol symbol,
		       uint8_t ret_code[INTERP_ELF_MAX_CODE])
{
	const Elf64_Sym *function = &elf->found[symbol];

	return interp_elf_has(elf, symbol) && function->st_size <= INTERP_ELF_MAX_CODE &&
			       interp_elf_address(elf, ret_code, function->st_size,
						  function->st_value)
		       ? function->st_size
		       : 0;
}

/* Returns the file offset of a text in the `bytes` bytes from `offset` on; 0: not found. */
static uint64_t find_text(int fd, const char *text, uint64_t offset, uint64_t bytes)
{
	const size_t length = strlen(text);
	CLEANUP_FREE char *part = malloc(TEXT_AT_ONCE);

	while (part && bytes >= length) {
		const size_t n = MIN_OF(bytes, (uint64_t)TEXT_AT_ONCE);
		const char *at;

		if (!read_at(fd, part, n, offset))
			return 0;
		at = memmem(part, n, text, length);
		if (at)
			return offset + (uint64_t)(at - part);
		/* The text may begin in one part and end in the next. */
		offset += n - length + 1;
		bytes -= n - length + 1;
	}
	return 0;
}

bool interp_elf_after_text(const struct interp_elf *elf, const char *text, void *to, size_t size)
{
	uint64_t left = MAX_TEXT_BYTES, at = 0;

	for (size_t i = 0; at == 0 && i < elf->n_segments; i++) {
		const Elf64_Phdr *segment = &elf->segments[i];
		const uint64_t bytes = MIN_OF(segment->p_filesz, left);

		if (segment->p_type != PT_LOAD || segment->p_flags & PF_W)
			continue;
		left -= bytes;
		at = find_text(elf->fd, text, segment->p_offset, bytes);
	}
	return at != 0 && read_at(elf->fd, to, size, at + strlen(text));
}

uint64_t interp_elf_code_bias(const struct interp_elf *elf, uint64_t address)
{
	for (size_t i = 0; i < elf->n_segments; i++) {
		const Elf64_Phdr *segment = &elf->segments[i];

		if (segment->p_type == PT_LOAD && address >= segment->p_vaddr &&
		    address - segment->p_vaddr < segment->p_memsz)
			return segment->p_vaddr - segment->p_offset;
	}
	return 0;
}

const Elf64_Phdr *interp_elf_segment(const struct interp_elf *elf, uint32_t type)
{
	for (size_t i = 0; i < elf->n_segments; i++)
		if (elf->segments[i].p_type == type)
			return &elf->segments[i];
	return NULL;
}

/* Returns the relocation of this type at `address`. If `address` is 0, returns one for the symbol
 * with this index or, if the symbol has no relocation, one without a symbol. If no relocation
 * matches, all members of the result are 0. */
static Elf64_Rela find_relocation(const struct interp_elf *elf, uint32_t type, uint64_t address,
				  uint32_t symbol)
{
	CLEANUP_FREE Elf64_Rela *entries = malloc(ENTRIES_AT_ONCE * sizeof(*entries));
	Elf64_Rela of_none = { 0 };
	size_t left = MAX_RELOCATIONS;

	for (size_t i = 0; entries && i < elf->n_relocations; i++) {
		const Elf64_Shdr *section = &elf->relocations[i];
		const size_t n = MIN_OF(section->sh_size / sizeof(*entries), left);

		left -= n;
		for (size_t done = 0; done < n;) {
			const size_t part = MIN_OF(n - done, (size_t)ENTRIES_AT_ONCE);

			if (!read_at(elf->fd, entries, part * sizeof(*entries),
				     section->sh_offset + done * sizeof(*entries)))
				break;
			for (size_t j = 0; j < part; j++) {
				if (ELF64_R_TYPE(entries[j].r_info) != type)
					continue;
				if (address ? entries[j].r_offset == address
					    : ELF64_R_SYM(entries[j].r_info) == symbol)
					return entries[j];
				if (!address && ELF64_R_SYM(entries[j].r_info) == 0)
					of_none = entries[j];
			}
			done += part;
		}
	}
	return of_none;
}

uint64_t interp_elf_relocation(const struct interp_elf *elf, enum interp_symbol symbol,
			       uint32_t type)
{
	return find_relocation(elf, type, 0, elf->indexes[symbol]).r_offset;
}

bool interp_elf_thread_local(const struct interp_elf *elf, enum interp_symbol symbol,
			     struct interp_thread_local *ret_variable)
{
	const uint64_t value = elf->found[symbol].st_value;
	const Elf64_Phdr *block = interp_elf_segment(elf, PT_TLS);

	if (!interp_elf_has(elf, symbol) || !block || block->p_memsz > INTERP_ELF_MAX_BLOCK ||
	    value >= block->p_memsz || block->p_align > INTERP_ELF_MAX_BLOCK ||
	    (block->p_align & (block->p_align - 1)) != 0)
		return false;
	*ret_variable = (struct interp_thread_local){
		.of_module = interp_elf_relocation(elf, symbol, R_X86_64_DTPMOD64),
		.offset = value,
	};
	if (ret_variable->of_module != 0)
		return true;
	/* A program's block of thread-local variables ends at the thread pointer. */
	if (interp_elf_segment(elf, PT_INTERP)) {
		const uint64_t align = MAX_OF(block->p_align, UINT64_C(1));

		ret_variable->offset -= (block->p_memsz + align - 1) & -align;
		return true;
	}
	ret_variable->offset = 0;
	ret_variable->of_offset = interp_elf_relocation(elf, symbol, R_X86_64_TPOFF64);
	return ret_variable->of_offset != 0;
}

bool interp_elf_is_relocated(const struct interp_elf *elf, uint64_t address, uint32_t type)
{
	return address != 0 && find_relocation(elf, type, address, 0).r_offset != 0;
}

uint64_t interp_elf_pointer(const struct interp_elf *elf, uint64_t address)
{
	const Elf64_Rela relative = address ? find_relocation(elf, R_X86_64_RELATIVE, address, 0)
					    : (Elf64_Rela){ 0 };
	const Elf64_Rela of_symbol = address ? find_relocation(elf, R_X86_64_64, address, 0)
					     : (Elf64_Rela){ 0 };
	const uint32_t index = (uint32_t)ELF64_R_SYM(of_symbol.r_info);
	uint64_t pointer = 0;
	Elf64_Sym symbol;

	if (relative.r_offset != 0)
		return (uint64_t)relative.r_addend;
	if (of_symbol.r_offset != 0)
		return index < elf->n_symbols &&
				       read_at(elf->fd, &symbol, sizeof(symbol),
					       elf->symbols_offset + index * sizeof(symbol)) &&
				       symbol.st_shndx != SHN_UNDEF
			       ? symbol.st_value + (uint64_t)of_symbol.r_addend
			       : 0;
	return interp_elf_address(elf, &pointer, sizeof(pointer), address) ? pointer : 0;
}

/* The header of the unwind tables (Linux Standard Base, .eh_frame_hdr) has the start of each
 * function, relative to the header's address, in ascending order. */
uint64_t interp_elf_function_end(const struct interp_elf *elf, uint64_t address)
{
	static const uint8_t version_and_encodings[] = { 1, 0x1b, 0x03, 0x3b };
	const Elf64_Phdr *segment = interp_elf_segment(elf, PT_GNU_EH_FRAME);
	uint8_t head[12], entry[16];
	uint32_t first = 0, n;
	uint64_t end;

	if (!segment || !interp_elf_address(elf, head, sizeof(head), segment->p_vaddr) ||
	    memcmp(head, version_and_encodings, sizeof(version_and_encodings)) != 0)
		return 0;
	n = load_le32(head + 8);
	/* The table has {start, entry} for each function. Find the last start up to the address. */
	while (n > 1) {
		const uint32_t half = n / 2;

		if (!interp_elf_address(elf, entry, 4,
					segment->p_vaddr + sizeof(head) +
						8 * ((uint64_t)first + half)))
			return 0;
		if (segment->p_vaddr + (uint64_t)(int64_t)(int32_t)load_le32(entry) <= address) {
			first += half;
			n -= half;
		} else {
			n = half;
		}
	}
	if (!interp_elf_address(elf, entry, sizeof(entry),
				segment->p_vaddr + sizeof(head) + 8 * (uint64_t)first) ||
	    first + 1 >= load_le32(head + 8) ||
	    segment->p_vaddr + (uint64_t)(int64_t)(int32_t)load_le32(entry) != address)
		return 0;
	end = segment->p_vaddr + (uint64_t)(int64_t)(int32_t)load_le32(entry + 8);
	return end > address ? end : 0;
}

static int compare_names(const void *symbol, const void *entry)
{
	const char *a = symbol, *b = ((const struct symbol_name *)entry)->name;

	while (*b && *a == *b) {
		a++;
		b++;
	}
	return !*b && b[-1] == '_' ? 0 : (uint8_t)*a - (uint8_t)*b;
}

/* Stores the symbol if its name is in `names`. Returns whether it was stored. */
static bool take_symbol(struct interp_elf *elf, const Elf64_Sym *symbol, size_t index,
			const char *strings, size_t size)
{
	const struct symbol_name *found;

	/* The last byte of `strings` is 0. */
	if (symbol->st_name >= size || symbol->st_shndx == SHN_UNDEF)
		return false;
	found = bsearch(strings + symbol->st_name, names, ARRAY_SIZE(names), sizeof(names[0]),
			compare_names);
	if (!found)
		return false;
	elf->found[found->symbol] = *symbol;
	elf->indexes[found->symbol] = (uint32_t)index;
	return true;
}

static bool read_symbols(struct interp_elf *elf, const Elf64_Shdr *table, const Elf64_Shdr *strings)
{
	const size_t n = table->sh_size / sizeof(Elf64_Sym);
	CLEANUP_FREE Elf64_Sym *symbols = NULL;
	CLEANUP_FREE char *text = NULL;
	bool has_any = false;

	elf->n_symbols = n;
	elf->symbols_offset = table->sh_offset;
	if (n > MAX_SYMBOLS || strings->sh_size == 0 || strings->sh_size > MAX_NAMES_BYTES)
		return false;
	symbols = malloc(ENTRIES_AT_ONCE * sizeof(*symbols));
	text = malloc(strings->sh_size);
	if (!symbols || !text || !read_at(elf->fd, text, strings->sh_size, strings->sh_offset))
		return false;
	text[strings->sh_size - 1] = '\0';
	for (size_t done = 0; done < n;) {
		const size_t part = MIN_OF(n - done, (size_t)ENTRIES_AT_ONCE);

		if (!read_at(elf->fd, symbols, part * sizeof(*symbols),
			     table->sh_offset + done * sizeof(*symbols)))
			return false;
		for (size_t i = 0; i < part; i++)
			has_any |= take_symbol(elf, &symbols[i], done + i, text, strings->sh_size);
		done += part;
	}
	/* The names of the needed libraries are in the string table of the symbols. */
	elf->needs_musl = has_any && (memmem(text, strings->sh_size, MUSL, sizeof(MUSL)) ||
				      memmem(text, strings->sh_size, MUSL_OF_MACHINE,
					     sizeof(MUSL_OF_MACHINE) - 1));
	return true;
}

/* Returns whether the file may export the name, according to the Bloom filter of its hash table
 * (.gnu.hash). */
static bool may_export(const struct interp_elf *elf, const Elf64_Shdr *table, const char *name)
{
	struct {
		uint32_t n_buckets, first, n_words, shift;
	} header;
	uint32_t hash = 5381;
	uint64_t word;

	for (const char *at = name; *at; at++)
		hash = hash * 33 + (uint8_t)*at;
	if (!read_at(elf->fd, &header, sizeof(header), table->sh_offset) || header.n_words == 0 ||
	    !read_at(elf->fd, &word, sizeof(word),
		     table->sh_offset + sizeof(header) +
			     sizeof(word) * (hash / 64 % header.n_words)))
		return true;
	return word >> hash % 64 & word >> (hash >> header.shift % 32) % 64 & 1;
}

/* Returns whether the file may export one of the symbols that identify interpreters. */
static bool may_have_interpreter(const struct interp_elf *elf, const Elf64_Shdr *table)
{
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		switch (names[i].symbol) {
		case PYTHON_RUNTIME:
		case RUBY_API_VERSION:
		case PHP_EXECUTE:
		case PERL_RUNOPS:
		case V8_MAJOR_NUMBER:
			if (may_export(elf, table, names[i].name))
				return true;
			break;
		default:
			break;
		}
	return false;
}

bool interp_elf_read(struct interp_elf *elf, int fd)
{
	CLEANUP_FREE Elf64_Shdr *sections = NULL;
	Elf64_Ehdr header;

	*elf = (struct interp_elf){ .fd = fd };
	if (!read_at(elf->fd, &header, sizeof(header), 0) ||
	    memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
	    header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
	    header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum > INTERP_ELF_MAX_SEGMENTS ||
	    header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shnum > INTERP_ELF_MAX_SECTIONS)
		return false;
	elf->is_x86_64 = header.e_machine == EM_X86_64;
	elf->n_segments = header.e_phnum;
	sections = malloc((header.e_shnum + 1) * sizeof(*sections));
	if (!sections ||
	    !read_at(elf->fd, elf->segments, elf->n_segments * sizeof(elf->segments[0]),
		     header.e_phoff) ||
	    !read_at(elf->fd, sections, header.e_shnum * sizeof(*sections), header.e_shoff))
		return false;
	for (size_t i = 0; i < header.e_shnum; i++) {
		if (sections[i].sh_type == SHT_GNU_HASH && !may_have_interpreter(elf, &sections[i]))
			return false;
		if (sections[i].sh_type == SHT_RELA &&
		    elf->n_relocations < INTERP_ELF_MAX_RELOCATIONS)
			elf->relocations[elf->n_relocations++] = sections[i];
	}
	for (size_t i = 0; i < header.e_shnum; i++)
		if (sections[i].sh_type == SHT_DYNSYM && sections[i].sh_link < header.e_shnum)
			return read_symbols(elf, &sections[i], &sections[sections[i].sh_link]);
	return false;
}
