/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Demangle Rust own - a name that is being read and printed; for the files demangle-rust*.c
 *
 * Where one of these functions fails it sets rust->failed: then nothing more is read or printed.
 */
#pragma once

#include "arch/base.h"

#define RUST_MAX_DEPTH 128
#define RUST_MAX_STEPS 65536

struct rust {
	const char *name; /* behind _R: back references count from here */
	size_t length;
	size_t at;
	char *out;
	size_t out_size;
	size_t out_at;
	unsigned int depth;
	unsigned int steps;
	uint64_t bound_lifetimes; /* of the for<…> around */
	unsigned int quiet;       /* > 0: parse, print nothing */
	bool failed;
};

struct identifier {
	const char *text;
	size_t length;
	bool punycode;
};

/* ---- demangle-rust-text.c ---- */

void rust_put_bytes(struct rust *rust, const char *text, size_t length);
PRINTF_LIKE(2, 3) void rust_put_format(struct rust *rust, const char *format, ...);
/* A code point as UTF-8. */
void rust_put_char(struct rust *rust, uint32_t c);

static inline void rust_put(struct rust *rust, const char *text)
{
	rust_put_bytes(rust, text, strlen(text));
}

static inline char rust_peek(const struct rust *rust)
{
	return rust->at < rust->length ? rust->name[rust->at] : '\0';
}

static inline bool rust_take(struct rust *rust, char c)
{
	if (rust->failed || rust_peek(rust) != c)
		return false;
	rust->at++;
	return true;
}

static inline char rust_take_any(struct rust *rust)
{
	char c = rust_peek(rust);

	if (c == '\0' || rust->failed) {
		rust->failed = true;
		return '\0';
	}
	rust->at++;
	return c;
}

int rust_base_62_digit(char c);
uint64_t rust_take_decimal(struct rust *rust);
/* "_" is 0, "0_" 1, "1_" 2 … */
uint64_t rust_take_base_62(struct rust *rust);
/* An optional number behind a tag: 0 where the tag is missing, else one more than the number. */
uint64_t rust_take_tagged(struct rust *rust, char tag);
struct identifier rust_take_identifier(struct rust *rust);
void rust_put_identifier(struct rust *rust, const struct identifier *identifier);

/* ---- demangle-rust-types.c ---- */

/* Begins a step of the grammar; false where the limits are reached. Ends with rust_leave(). */
static inline bool rust_enter(struct rust *rust)
{
	rust->depth++;
	if (rust->depth > RUST_MAX_DEPTH || ++rust->steps > RUST_MAX_STEPS)
		rust->failed = true;
	return !rust->failed;
}

static inline void rust_leave(struct rust *rust)
{
	rust->depth--;
}

/* Prints what stands at an earlier position. Not followed where nothing is printed: it was
 * parsed there already. */
void rust_print_back_reference(struct rust *rust, void (*print)(struct rust *rust));
/* Prints until E, separated by commas; returns how many there were. */
size_t rust_print_list(struct rust *rust, void (*print)(struct rust *rust));
void rust_print_tuple(struct rust *rust, void (*print)(struct rust *rust));
void rust_print_type(struct rust *rust);
void rust_print_path(struct rust *rust, bool in_value);

/* ---- demangle-rust-const.c ---- */

void rust_print_const(struct rust *rust);
