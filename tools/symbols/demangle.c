/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * libiberty reads the names. A name of a few hundred bytes can request gigabytes by repeating its
 * own parts, so when a piece exceeds the buffer, longjmp() ends the demangler. That leaks nothing,
 * because the callback variants of libiberty's functions keep everything on the stack.
 * Rust's scheme v0 has one more way to request too much: see has_huge_binder().
 * Invariants: (1) no name costs more than DEMANGLE_MAX_BYTES of output  [test-demangle: bomb]
 *             (2) Rust is tried first, because its legacy names are C++ names, too
 *                                                              [test-demangle: cxx_is_not_rust]
 */
#include "tools/symbols/demangle.h"

#include "arch/base.h"

#include <ctype.h>
#include <libiberty/demangle.h>
#include <setjmp.h>

#define MAX_RAW_BYTES 8192

struct readable {
	jmp_buf too_long;
	size_t length;
	char name[DEMANGLE_MAX_BYTES];
};

static void add_piece(const char *text, size_t length, void *data)
{
	struct readable *readable = data;

	if (length >= sizeof(readable->name) - readable->length)
		longjmp(readable->too_long, 1);
	if (length > 0) /* if it is 0, `text` may be NULL */
		memcpy(readable->name + readable->length, text, length);
	readable->length += length;
}

/* Returns the index after a base-62 number and its '_' at `at`; 0 if no such number is there. */
static size_t skip_number(const char *name, size_t at)
{
	while (isalnum((unsigned char)name[at]))
		at++;
	return name[at] == '_' ? at + 1 : 0;
}

/* Returns the index after an identifier: its length, an optional '_', and that many bytes; 0 if it
 * is too long. */
static size_t skip_identifier(const char *name, size_t at, size_t end)
{
	size_t length = (size_t)(name[at++] - '0');

	if (length > 0)
		while (isdigit((unsigned char)name[at]) && length < end)
			length = length * 10 + (size_t)(name[at++] - '0');
	at += name[at] == '_';
	return length <= end - at ? at + length : 0;
}

/* Returns the index after the symbol at `at`; 0 if there is no symbol. 's' may be a type or the
 * start of a number: *ret_other is the index after the number. */
static size_t next_symbol(const char *name, size_t at, size_t end, size_t *ret_other)
{
	char next = name[at + 1];

	if (isdigit((unsigned char)name[at]))
		return skip_identifier(name, at, end);
	switch (name[at]) {
	case 's':
		*ret_other = skip_number(name, at + 1);
		return at + 1;
	case 'C': /* a crate, or the root of an impl; an 's' after it is not a type */
	case 'M':
	case 'X':
		return next == 's' ? skip_number(name, at + 2) : at + 1;
	case 'B':
	case 'G':
	case 'L':
		return skip_number(name, at + 1);
	case 'N': /* a path in the namespace that the next letter gives */
		return next ? at + 2 : 0;
	case 'K':
		if (next == 'C') /* an ABI */
			return at + 2;
		if (!islower((unsigned char)next) || next == 'p')
			return at + 1;
		/* a constant of this type, with hexadecimal digits */
		at += 2 + (name[at + 2] == 'n');
		while (isxdigit((unsigned char)name[at]))
			at++;
		return name[at] == '_' ? at + 1 : 0;
	default:
		return isalpha((unsigned char)name[at]) ? at + 1 : 0;
	}
}

/*
 * Returns whether a Rust name of scheme v0 may have a binder of more than 63 lifetimes. libiberty
 * counts them one by one, even if it prints nothing, so 19 bytes could keep it busy for years.
 * Checks each index where a symbol of the grammar may start: perhaps too many, never too few.
 */
static bool has_huge_binder(const char *name)
{
	bool starts[MAX_RAW_BYTES + 2] = { false };
	size_t end = strcspn(name, ".");

	starts[2] = true;
	for (size_t at = 2; at < end; at++) {
		size_t next, other = 0;

		if (!starts[at])
			continue;
		next = next_symbol(name, at, end, &other);
		if (name[at] == 'G' && next > at + 3)
			return true;
		starts[next] = starts[other] = true;
	}
	return false;
}

static bool read_rust(const char *raw_name, struct readable *readable)
{
	return (raw_name[1] != 'R' || !has_huge_binder(raw_name)) &&
	       rust_demangle_callback(raw_name, DMGL_PARAMS, add_piece, readable) != 0;
}

static bool read_cxx(const char *raw_name, struct readable *readable)
{
	return raw_name[1] == 'Z' && cplus_demangle_v3_callback(raw_name, DMGL_PARAMS | DMGL_TYPES,
								add_piece, readable) != 0;
}

static bool demangle(bool (*read)(const char *raw_name, struct readable *readable),
		     const char *raw_name, struct readable *readable)
{
	readable->length = 0;
	return setjmp(readable->too_long) == 0 && read(raw_name, readable) && readable->length > 0;
}

char *demangle_get(const char *raw_name)
{
	struct readable readable;

	if (raw_name[0] != '_' || strnlen(raw_name, MAX_RAW_BYTES) == MAX_RAW_BYTES ||
	    (!demangle(read_rust, raw_name, &readable) && !demangle(read_cxx, raw_name, &readable)))
		return NULL;
	return strndup(readable.name, readable.length);
}
