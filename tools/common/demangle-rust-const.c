/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Demangle Rust const - the constants among the generic arguments of a v0 name
 *
 * Numbers, characters and strings are hex digits. Printed as Rust would write the value, without
 * its type.
 * Invariant: UTF-8 that is not valid fails the name                         [fuzz_demangle_rust]
 */
#include "tools/common/demangle-rust-own.h"

#include <ctype.h>
#include <inttypes.h>

static void print_inner_const(struct rust *rust);

/* ---- Constants ---- */

static struct identifier take_hex(struct rust *rust)
{
	struct identifier digits = { .text = rust->name + rust->at };

	while (!rust_take(rust, '_')) {
		char c = rust_take_any(rust);

		if (rust->failed)
			break;
		if (!isdigit((unsigned char)c) && (c < 'a' || c > 'f'))
			rust->failed = true;
		digits.length++;
	}
	return digits;
}

static bool hex_value(const struct identifier *digits, uint64_t *ret_value)
{
	uint64_t value = 0;

	if (digits->length > 16)
		return false;
	for (size_t i = 0; i < digits->length; i++)
		value = value << 4 | (uint64_t)rust_base_62_digit(digits->text[i]);
	*ret_value = value;
	return true;
}

static void print_number(struct rust *rust)
{
	struct identifier digits = take_hex(rust);
	uint64_t value;

	if (rust->failed)
		return;
	if (hex_value(&digits, &value)) {
		rust_put_format(rust, "%" PRIu64, value);
	} else {
		rust_put(rust, "0x");
		rust_put_bytes(rust, digits.text, digits.length);
	}
}

static void print_bool(struct rust *rust)
{
	struct identifier digits = take_hex(rust);
	uint64_t value;

	if (rust->failed || !hex_value(&digits, &value) || value > 1)
		rust->failed = true;
	else
		rust_put(rust, value ? "true" : "false");
}

/* As Rust's escape_debug, but that everything outside of ASCII is printed as it is. */
static void put_escaped(struct rust *rust, uint32_t c, char quote)
{
	if (c == '\t')
		rust_put(rust, "\\t");
	else if (c == '\n')
		rust_put(rust, "\\n");
	else if (c == '\r')
		rust_put(rust, "\\r");
	else if (c == '\0')
		rust_put(rust, "\\0");
	else if (c < ' ' || c == 0x7f)
		rust_put_format(rust, "\\u{%x}", c);
	else if (c == '\\' || c == (unsigned char)quote)
		rust_put_format(rust, "\\%c", (char)c);
	else
		rust_put_char(rust, c);
}

static void print_char(struct rust *rust)
{
	struct identifier digits = take_hex(rust);
	uint64_t value;

	if (rust->failed || !hex_value(&digits, &value) || value > 0x10ffff) {
		rust->failed = true;
		return;
	}
	rust_put(rust, "'");
	put_escaped(rust, (uint32_t)value, '\'');
	rust_put(rust, "'");
}

static uint32_t take_byte(struct rust *rust, struct identifier *digits)
{
	uint32_t byte;

	if (digits->length < 2) {
		rust->failed = true;
		return 0;
	}
	byte = (uint32_t)(rust_base_62_digit(digits->text[0]) << 4 |
			  rust_base_62_digit(digits->text[1]));
	digits->text += 2;
	digits->length -= 2;
	return byte;
}

/* One character of UTF-8 in hex digits. */
static uint32_t take_utf8(struct rust *rust, struct identifier *digits)
{
	static const uint32_t lowest[] = { 0, 0x80, 0x800, 0x10000 };
	uint32_t c = take_byte(rust, digits);
	unsigned int more = c < 0x80 ? 0 : c < 0xe0 ? 1 : c < 0xf0 ? 2 : 3;

	if (more == 0)
		return c;
	if (c < 0xc0 || c >= 0xf8)
		rust->failed = true;
	c &= 0x3fu >> more;
	for (unsigned int i = 0; i < more; i++) {
		uint32_t byte = take_byte(rust, digits);

		if ((byte & 0xc0) != 0x80)
			rust->failed = true;
		c = c << 6 | (byte & 0x3f);
	}
	if (c < lowest[more])
		rust->failed = true;
	return c;
}

static void print_string(struct rust *rust)
{
	struct identifier digits = take_hex(rust);

	rust_put(rust, "\"");
	while (digits.length > 0 && !rust->failed)
		put_escaped(rust, take_utf8(rust, &digits), '"');
	rust_put(rust, "\"");
}

static void print_field(struct rust *rust)
{
	struct identifier name;

	rust_take_tagged(rust, 's');
	name = rust_take_identifier(rust);
	rust_put_identifier(rust, &name);
	rust_put(rust, ": ");
	print_inner_const(rust);
}

static void print_variant(struct rust *rust)
{
	rust_print_path(rust, true);
	switch (rust_take_any(rust)) {
	case 'U':
		break;
	case 'T':
		rust_put(rust, "(");
		rust_print_list(rust, print_inner_const);
		rust_put(rust, ")");
		break;
	case 'S':
		rust_put(rust, " { ");
		rust_print_list(rust, print_field);
		rust_put(rust, " }");
		break;
	default:
		rust->failed = true;
	}
}

/* A constant that is written as an expression. */
static void print_expression(struct rust *rust, char tag)
{
	switch (tag) {
	case 'e':
		rust_put(rust, "*");
		print_string(rust);
		break;
	case 'R':
	case 'Q':
		rust_put(rust, tag == 'R' ? "&" : "&mut ");
		print_inner_const(rust);
		break;
	case 'A':
		rust_put(rust, "[");
		rust_print_list(rust, print_inner_const);
		rust_put(rust, "]");
		break;
	case 'T':
		rust_print_tuple(rust, print_inner_const);
		break;
	case 'V':
		print_variant(rust);
		break;
	default:
		rust->failed = true;
	}
}

/* `inner`: inside of an expression already, which is in braces where it is a generic argument. */
static void print_const_body(struct rust *rust, bool inner)
{
	char tag = rust_take_any(rust);

	if (tag == '\0')
		return;
	if (strchr("aslxni", tag) && rust_take(rust, 'n'))
		rust_put(rust, "-");
	if (strchr("aslxnihtmyoj", tag)) {
		print_number(rust);
	} else if (tag == 'p') {
		rust_put(rust, "_");
	} else if (tag == 'b') {
		print_bool(rust);
	} else if (tag == 'c') {
		print_char(rust);
	} else if (tag == 'R' && rust_take(rust, 'e')) {
		print_string(rust);
	} else if (tag == 'B') {
		rust_print_back_reference(rust, inner ? print_inner_const : rust_print_const);
	} else {
		rust_put(rust, inner ? "" : "{");
		print_expression(rust, tag);
		rust_put(rust, inner ? "" : "}");
	}
}

void rust_print_const(struct rust *rust)
{
	if (rust_enter(rust))
		print_const_body(rust, false);
	rust_leave(rust);
}

static void print_inner_const(struct rust *rust)
{
	if (rust_enter(rust))
		print_const_body(rust, true);
	rust_leave(rust);
}
