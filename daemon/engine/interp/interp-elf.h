/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Interp-elf - the exported symbols of an ELF file by which interpreters are found
 *
 * The file's bytes are not trusted.
 */
#pragma once

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define INTERP_ELF_MAX_SEGMENTS 64u
#define INTERP_ELF_MAX_SECTIONS 1024u
#define INTERP_ELF_MAX_RELOCATIONS 16u
#define INTERP_ELF_MAX_CODE 1024u
#define INTERP_ELF_MAX_BLOCK \
	(UINT64_C(1) << 30) /* size limit for a file's thread-local variables */

/* The symbols that are looked up. Python before 3.11 has no Py_Version: its version is
 * recognized by the symbols that each version added (PYTHON_SINCE_*). */
enum interp_symbol {
	PYTHON_RUNTIME,
	PYTHON_CODE_TYPE,
	PYTHON_EVAL,
	PYTHON_VERSION,
	PYTHON_SINCE_3_8,
	PYTHON_SINCE_3_9,
	PYTHON_SINCE_3_10,
	RUBY_CURRENT_EC,
	RUBY_API_VERSION,
	RUBY_VM_EXEC,
	RUBY_ERRINFO,
	RUBY_ISEQ_EVAL,
	RUBY_ISEQ_EVAL_MAIN,
	PHP_GLOBALS,
	PHP_GLOBALS_OFFSET, /* only in builds with thread safety */
	PHP_POINTER,        /* function that returns the place of the thread-local pointer */
	PHP_EXECUTE,
	PERL_VERSION_MINOR,
	PERL_STATE_BYTES,
	PERL_KEY, /* only in builds with threads */
	PERL_FIRST,
	PERL_OPERATIONS,
	PERL_RUNOPS,
	PERL_RUN,
	PERL_CALL,
	PERL_CALL_OPERATOR,
	V8_ISOLATE,     /* thread-local variable that points to the thread's isolate */
	V8_ISOLATE_KEY, /* V8 up to 10.2: the pthread key of each thread's isolate */
	V8_CURRENT,     /* function that returns the isolate */
	V8_MAJOR_NUMBER,
	V8_MINOR_NUMBER,
	V8_TAGGED_SIZE, /* from here on, constants of V8 for debuggers */
	V8_FRAME_TYPE,
	V8_FRAME_FUNCTION,
	V8_ENTRY,
	V8_CONSTRUCT_ENTRY,
	V8_BUILTIN_EXIT,
	V8_MAP_TYPE,
	V8_TYPE_FUNCTION_INFO,
	V8_TYPE_SCRIPT,
	V8_TYPE_SCOPE_INFO,
	V8_TYPE_DEBUG_INFO,
	V8_TYPE_ODDBALL,
	V8_TYPES_OF_STRINGS,
	V8_FUNCTION_INFO,
	V8_INFO_NAME,
	V8_INFO_SCRIPT,
	V8_INFO_FLAGS,
	V8_SCRIPT_SOURCE,
	V8_SCRIPT_NAME,
	V8_STRING_LENGTH,
	V8_STRING_BYTES,
	V8_STRING_FIRST,
	V8_STRING_SECOND,
	V8_STRING_PARENT,
	V8_STRING_OFFSET,
	INTERP_SYMBOLS
};

struct interp_elf {
	int fd;
	bool is_x86_64;
	bool needs_musl; /* the file needs musl, or another C library of the same name; false if no
			  * symbol of an interpreter was found */
	size_t n_segments, n_relocations;
	Elf64_Phdr segments[INTERP_ELF_MAX_SEGMENTS];
	Elf64_Shdr relocations[INTERP_ELF_MAX_RELOCATIONS]; /* sections of kind RELA */
	Elf64_Sym found[INTERP_SYMBOLS];                    /* st_shndx SHN_UNDEF: not found */
	uint32_t indexes[INTERP_SYMBOLS];                   /* indexes in the symbol table */
	/* file offset of the symbol table, and the number of its entries */
	uint64_t symbols_offset, n_symbols;
};

/* Returns false if the file cannot be read, is not a 64-bit little-endian ELF file, or has no
 * dynamic symbols that may be an interpreter's. */
bool interp_elf_read(struct interp_elf *elf, int fd);
bool interp_elf_has(const struct interp_elf *elf, enum interp_symbol symbol);
/* Reads bytes of the file by their address. */
bool interp_elf_address(const struct interp_elf *elf, void *to, size_t size, uint64_t address);
/* Reads the code of a function. Returns its size; 0: the code cannot be read or does not fit. */
size_t interp_elf_code(const struct interp_elf *elf, enum interp_symbol symbol,
		       uint8_t ret_code[INTERP_ELF_MAX_CODE]);
/* Returns the difference between address and file offset in the segment that contains `address`; 0:
 * unknown. */
uint64_t interp_elf_code_bias(const struct interp_elf *elf, uint64_t address);
/* Reads the bytes after the first occurrence of a text in the read-only segments. Returns false if
 * the text is not found, or if fewer bytes follow it. */
bool interp_elf_after_text(const struct interp_elf *elf, const char *text, void *to, size_t size);
/* Returns a segment of this type, or NULL. */
const Elf64_Phdr *interp_elf_segment(const struct interp_elf *elf, uint32_t type);
/* Returns the address of a relocation of this type for the symbol or, if the symbol has none, of a
 * relocation without a symbol. Returns 0 if the file has neither. */
uint64_t interp_elf_relocation(const struct interp_elf *elf, enum interp_symbol symbol,
			       uint32_t type);
/* The location of a thread-local variable: an offset from the thread pointer, or from the start of
 * a module's block of such variables. */
struct interp_thread_local {
	uint64_t of_module; /* address of the word that has the module's number; 0: no module */
	uint64_t of_offset; /* address of the word that has the offset; 0: see `offset` */
	uint64_t offset;
};
/* Finds an exported thread-local variable. Returns false if its location cannot be determined. */
bool interp_elf_thread_local(const struct interp_elf *elf, enum interp_symbol symbol,
			     struct interp_thread_local *ret_variable);
/* Returns whether there is a relocation of this type at the address. */
bool interp_elf_is_relocated(const struct interp_elf *elf, uint64_t address, uint32_t type);
/* Returns the target, as an address of the file, of the pointer that is at `address` once the file
 * is loaded; 0: no pointer is there, or it points into another file. */
uint64_t interp_elf_pointer(const struct interp_elf *elf, uint64_t address);
/* Returns the end of the function that begins at the address: the start of the next function. 0: no
 * function with unwind tables begins there, or none follows. */
uint64_t interp_elf_function_end(const struct interp_elf *elf, uint64_t address);
