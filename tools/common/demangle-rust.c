/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Demangle Rust - readable names of Rust symbols, both schemes
 *
 * Legacy: _ZN, identifiers with their lengths, the last one a hash "17h" and 16 hex digits, E; what is no letter is
 * written $..$. v0 (Rust RFC 2603): _R and a grammar of paths, types and constants; B refers back to an earlier
 * position, which is parsed again. Printed as rustc-demangle prints with {:#}: no hashes, no types of constants.
 * Of a suffix of the compiler (.llvm.123.cold) the .llvm.123 is dropped and the rest kept.
 * Invariants: (1) recursion ends at MAX_DEPTH, a name at the buffer's end, and all work at MAX_STEPS: a name that
 *                 exceeds one of them fails as a whole             [fuzz_demangle_rust, test-demangle: limits]
 *             (2) a back reference points backwards only                        [fuzz_demangle_rust]
 *             (3) what is printed is valid UTF-8 if the input is ASCII, and other input is refused
 *                                                                               [fuzz_demangle_rust]
 * No allocation, no state, no recursion but in the grammar of v0.
 */
#include "arch/base.h"
#include "tools/common/demangle.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#define MAX_DEPTH 128
#define MAX_STEPS 65536
#define MAX_PUNYCODE 256 /* code points of one identifier */
#define HASH_DIGITS 16

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

static void print_path(struct rust *rust, bool in_value);
static void print_type(struct rust *rust);
static void print_const(struct rust *rust);
static void print_inner_const(struct rust *rust);

/* ---- Output ---- */

static void put_bytes(struct rust *rust, const char *text, size_t length)
{
	if (rust->quiet || rust->failed)
		return;
	if (length >= rust->out_size - rust->out_at) {
		rust->failed = true;
		return;
	}
	memcpy(rust->out + rust->out_at, text, length);
	rust->out_at += length;
	rust->out[rust->out_at] = '\0';
}

static void put(struct rust *rust, const char *text)
{
	put_bytes(rust, text, strlen(text));
}

PRINTF_LIKE(2, 3) static void put_format(struct rust *rust, const char *format, ...)
{
	char text[64];
	va_list arguments;
	int n;

	va_start(arguments, format);
	n = vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	if (n < 0 || (size_t)n >= sizeof(text))
		rust->failed = true;
	else
		put_bytes(rust, text, (size_t)n);
}

/* A code point as UTF-8. */
static void put_char(struct rust *rust, uint32_t c)
{
	char bytes[4];
	size_t n;

	if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) {
		rust->failed = true;
		return;
	}
	n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
	for (size_t i = n; i-- > 1; c >>= 6)
		bytes[i] = (char)(0x80 | (c & 0x3f));
	bytes[0] = (char)(n == 1 ? c : (0xf00u >> n & 0xf0u) | c);
	put_bytes(rust, bytes, n);
}

/* ---- Input ---- */

static char peek(const struct rust *rust)
{
	return rust->at < rust->length ? rust->name[rust->at] : '\0';
}

static bool take(struct rust *rust, char c)
{
	if (rust->failed || peek(rust) != c)
		return false;
	rust->at++;
	return true;
}

static char take_any(struct rust *rust)
{
	char c = peek(rust);

	if (c == '\0' || rust->failed) {
		rust->failed = true;
		return '\0';
	}
	rust->at++;
	return c;
}

static uint64_t take_decimal(struct rust *rust)
{
	uint64_t value = 0;

	if (!isdigit((unsigned char)peek(rust)))
		rust->failed = true;
	if (take(rust, '0'))
		return 0;
	while (!rust->failed && isdigit((unsigned char)peek(rust))) {
		if (!mul_u64(value, 10, &value) ||
		    !add_u64(value, (uint64_t)(take_any(rust) - '0'), &value))
			rust->failed = true;
	}
	return value;
}

static int base_62_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'Z')
		return c - 'A' + 36;
	return -1;
}

/* "_" is 0, "0_" 1, "1_" 2 … */
static uint64_t take_base_62(struct rust *rust)
{
	uint64_t value = 0;

	if (take(rust, '_'))
		return 0;
	while (!rust->failed && !take(rust, '_')) {
		int digit = base_62_digit(take_any(rust));

		if (digit < 0 || !mul_u64(value, 62, &value) ||
		    !add_u64(value, (uint64_t)digit, &value))
			rust->failed = true;
	}
	if (!add_u64(value, 1, &value))
		rust->failed = true;
	return value;
}

/* An optional number behind a tag: 0 where the tag is missing, else one more than the number. */
static uint64_t take_tagged(struct rust *rust, char tag)
{
	uint64_t value;

	if (!take(rust, tag))
		return 0;
	value = take_base_62(rust);
	if (!add_u64(value, 1, &value))
		rust->failed = true;
	return value;
}

static struct identifier take_identifier(struct rust *rust)
{
	struct identifier identifier = { .text = "", .punycode = take(rust, 'u') };
	uint64_t length = take_decimal(rust);

	take(rust, '_');
	if (rust->failed || length > rust->length - rust->at) {
		rust->failed = true;
		return identifier;
	}
	identifier.text = rust->name + rust->at;
	identifier.length = length;
	rust->at += length;
	return identifier;
}

/* Begins a step of the grammar; false where the limits are reached. Ends with leave(). */
static bool enter(struct rust *rust)
{
	rust->depth++;
	if (rust->depth > MAX_DEPTH || ++rust->steps > MAX_STEPS)
		rust->failed = true;
	return !rust->failed;
}

static void leave(struct rust *rust)
{
	rust->depth--;
}

/* Prints what stands at an earlier position. Not followed where nothing is printed: it was parsed there already. */
static void print_back_reference(struct rust *rust, void (*print)(struct rust *rust))
{
	size_t tag = rust->at - 1;
	uint64_t target = take_base_62(rust);
	size_t behind = rust->at;

	if (rust->failed || target >= tag) {
		rust->failed = true;
		return;
	}
	if (rust->quiet)
		return;
	rust->at = target;
	if (enter(rust))
		print(rust);
	leave(rust);
	rust->at = behind;
}

/* ---- Identifiers ---- */

/* RFC 3492, 6.1 */
static uint32_t adapt(uint32_t delta, uint32_t n, bool first)
{
	uint32_t k = 0;

	delta = first ? delta / 700 : delta / 2;
	delta += delta / n;
	for (; delta > (36 - 1) * 26 / 2; k += 36)
		delta /= 36 - 1;
	return k + (36 - 1 + 1) * delta / (delta + 38);
}

/* One generalized variable-length integer of RFC 3492, 6.2, added to *i. */
static bool decode_delta(const char **at, const char *end, uint32_t bias, uint32_t *i)
{
	uint64_t value = *i, weight = 1;

	for (uint32_t k = 36;; k += 36) {
		uint32_t threshold = k <= bias ? 1 : k >= bias + 26 ? 26 : k - bias;
		uint32_t digit;

		if (*at == end)
			return false;
		digit = islower((unsigned char)**at) ? (uint32_t)(**at - 'a')
						     : (uint32_t)(**at - '0' + 26);
		(*at)++;
		if (digit >= 36)
			return false;
		value += digit * weight;
		if (value > UINT32_MAX / 2)
			return false;
		if (digit < threshold)
			break;
		weight *= 36 - threshold;
	}
	*i = (uint32_t)value;
	return true;
}

static bool decode_punycode(const char *at, const char *end, uint32_t *points, size_t *n)
{
	uint32_t c = 128, bias = 72, i = 0;

	while (at < end) {
		uint32_t before = i;

		if (*n == MAX_PUNYCODE || !decode_delta(&at, end, bias, &i))
			return false;
		bias = adapt(i - before, (uint32_t)*n + 1, before == 0 && c == 128);
		c += i / ((uint32_t)*n + 1);
		i %= (uint32_t)*n + 1;
		memmove(points + i + 1, points + i, (*n - i) * sizeof(*points));
		points[i++] = c;
		(*n)++;
	}
	return true;
}

/* Plain characters, the last '_', then the others: as Punycode, with '_' for '-'. */
static void put_punycode(struct rust *rust, const struct identifier *identifier)
{
	const char *split = memrchr(identifier->text, '_', identifier->length);
	const char *end = identifier->text + identifier->length;
	uint32_t points[MAX_PUNYCODE + 1];
	size_t n = 0;

	for (const char *at = identifier->text; split && at < split && n < MAX_PUNYCODE; at++)
		points[n++] = (unsigned char)*at;
	if (!decode_punycode(split ? split + 1 : identifier->text, end, points, &n)) {
		rust->failed = true;
		return;
	}
	for (size_t i = 0; i < n; i++)
		put_char(rust, points[i]);
}

static void put_identifier(struct rust *rust, const struct identifier *identifier)
{
	if (identifier->punycode)
		put_punycode(rust, identifier);
	else
		put_bytes(rust, identifier->text, identifier->length);
}

/* ---- Lifetimes ---- */

/* Index 1 is the innermost bound lifetime, 0 the erased one. */
static void put_lifetime(struct rust *rust, uint64_t index)
{
	uint64_t depth;

	if (index == 0) {
		put(rust, "'_");
		return;
	}
	if (index > rust->bound_lifetimes) {
		rust->failed = true;
		return;
	}
	depth = rust->bound_lifetimes - index;
	if (depth < 26)
		put_format(rust, "'%c", (char)('a' + depth));
	else
		put_format(rust, "'_%" PRIu64, depth);
}

/* [for<'a, 'b> ] and then what is inside of it. */
static void print_bound(struct rust *rust, void (*print)(struct rust *rust))
{
	uint64_t n = take_tagged(rust, 'G');

	if (rust->failed || n > MAX_STEPS) {
		rust->failed = true;
		return;
	}
	if (n > 0)
		put(rust, "for<");
	for (uint64_t i = 0; i < n && !rust->failed; i++) {
		put(rust, i > 0 ? ", " : "");
		rust->bound_lifetimes++;
		put_lifetime(rust, 1);
		if (++rust->steps > MAX_STEPS)
			rust->failed = true;
	}
	if (n > 0)
		put(rust, "> ");
	print(rust);
	if (!rust->failed)
		rust->bound_lifetimes -= n;
}

/* ---- Constants ---- */

static struct identifier take_hex(struct rust *rust)
{
	struct identifier digits = { .text = rust->name + rust->at };

	while (!take(rust, '_')) {
		char c = take_any(rust);

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
		value = value << 4 | (uint64_t)base_62_digit(digits->text[i]);
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
		put_format(rust, "%" PRIu64, value);
	} else {
		put(rust, "0x");
		put_bytes(rust, digits.text, digits.length);
	}
}

static void print_bool(struct rust *rust)
{
	struct identifier digits = take_hex(rust);
	uint64_t value;

	if (rust->failed || !hex_value(&digits, &value) || value > 1)
		rust->failed = true;
	else
		put(rust, value ? "true" : "false");
}

/* As Rust's escape_debug, but that everything outside of ASCII is printed as it is. */
static void put_escaped(struct rust *rust, uint32_t c, char quote)
{
	if (c == '\t')
		put(rust, "\\t");
	else if (c == '\n')
		put(rust, "\\n");
	else if (c == '\r')
		put(rust, "\\r");
	else if (c == '\0')
		put(rust, "\\0");
	else if (c < ' ' || c == 0x7f)
		put_format(rust, "\\u{%x}", c);
	else if (c == '\\' || c == (unsigned char)quote)
		put_format(rust, "\\%c", (char)c);
	else
		put_char(rust, c);
}

static void print_char(struct rust *rust)
{
	struct identifier digits = take_hex(rust);
	uint64_t value;

	if (rust->failed || !hex_value(&digits, &value) || value > 0x10ffff) {
		rust->failed = true;
		return;
	}
	put(rust, "'");
	put_escaped(rust, (uint32_t)value, '\'');
	put(rust, "'");
}

static uint32_t take_byte(struct rust *rust, struct identifier *digits)
{
	uint32_t byte;

	if (digits->length < 2) {
		rust->failed = true;
		return 0;
	}
	byte = (uint32_t)(base_62_digit(digits->text[0]) << 4 | base_62_digit(digits->text[1]));
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

	put(rust, "\"");
	while (digits.length > 0 && !rust->failed)
		put_escaped(rust, take_utf8(rust, &digits), '"');
	put(rust, "\"");
}

/* Prints until E, separated by commas; returns how many there were. */
static size_t print_list(struct rust *rust, void (*print)(struct rust *rust))
{
	size_t n = 0;

	while (!rust->failed && !take(rust, 'E')) {
		if (n > 0)
			put(rust, ", ");
		print(rust);
		n++;
	}
	return n;
}

static void print_tuple(struct rust *rust, void (*print)(struct rust *rust))
{
	put(rust, "(");
	put(rust, print_list(rust, print) == 1 ? ",)" : ")");
}

static void print_field(struct rust *rust)
{
	struct identifier name;

	take_tagged(rust, 's');
	name = take_identifier(rust);
	put_identifier(rust, &name);
	put(rust, ": ");
	print_inner_const(rust);
}

static void print_variant(struct rust *rust)
{
	print_path(rust, true);
	switch (take_any(rust)) {
	case 'U':
		break;
	case 'T':
		put(rust, "(");
		print_list(rust, print_inner_const);
		put(rust, ")");
		break;
	case 'S':
		put(rust, " { ");
		print_list(rust, print_field);
		put(rust, " }");
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
		put(rust, "*");
		print_string(rust);
		break;
	case 'R':
	case 'Q':
		put(rust, tag == 'R' ? "&" : "&mut ");
		print_inner_const(rust);
		break;
	case 'A':
		put(rust, "[");
		print_list(rust, print_inner_const);
		put(rust, "]");
		break;
	case 'T':
		print_tuple(rust, print_inner_const);
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
	char tag = take_any(rust);

	if (tag == '\0')
		return;
	if (strchr("aslxni", tag) && take(rust, 'n'))
		put(rust, "-");
	if (strchr("aslxnihtmyoj", tag)) {
		print_number(rust);
	} else if (tag == 'p') {
		put(rust, "_");
	} else if (tag == 'b') {
		print_bool(rust);
	} else if (tag == 'c') {
		print_char(rust);
	} else if (tag == 'R' && take(rust, 'e')) {
		print_string(rust);
	} else if (tag == 'B') {
		print_back_reference(rust, inner ? print_inner_const : print_const);
	} else {
		put(rust, inner ? "" : "{");
		print_expression(rust, tag);
		put(rust, inner ? "" : "}");
	}
}

static void print_const(struct rust *rust)
{
	if (enter(rust))
		print_const_body(rust, false);
	leave(rust);
}

static void print_inner_const(struct rust *rust)
{
	if (enter(rust))
		print_const_body(rust, true);
	leave(rust);
}

/* ---- Types ---- */

static const char *const basic_types[26] = {
	['a' - 'a'] = "i8",    ['b' - 'a'] = "bool", ['c' - 'a'] = "char", ['d' - 'a'] = "f64",
	['e' - 'a'] = "str",   ['f' - 'a'] = "f32",  ['h' - 'a'] = "u8",   ['i' - 'a'] = "isize",
	['j' - 'a'] = "usize", ['l' - 'a'] = "i32",  ['m' - 'a'] = "u32",  ['n' - 'a'] = "i128",
	['o' - 'a'] = "u128",  ['p' - 'a'] = "_",    ['s' - 'a'] = "i16",  ['t' - 'a'] = "u16",
	['u' - 'a'] = "()",    ['v' - 'a'] = "...",  ['x' - 'a'] = "i64",  ['y' - 'a'] = "u64",
	['z' - 'a'] = "!",
};

static void print_generic_argument(struct rust *rust)
{
	if (take(rust, 'L'))
		put_lifetime(rust, take_base_62(rust));
	else if (take(rust, 'K'))
		print_const(rust);
	else
		print_type(rust);
}

/* The path of a trait in dyn, its < left open for associated types; *ret_open says whether there was one. */
static void print_open_path(struct rust *rust, bool *ret_open)
{
	*ret_open = false;
	if (take(rust, 'B')) {
		size_t tag = rust->at - 1, behind;
		uint64_t target = take_base_62(rust);

		behind = rust->at;
		if (target >= tag)
			rust->failed = true;
		if (rust->failed || rust->quiet)
			return;
		rust->at = target;
		if (enter(rust))
			print_open_path(rust, ret_open);
		leave(rust);
		rust->at = behind;
	} else if (take(rust, 'I')) {
		print_path(rust, false);
		put(rust, "<");
		print_list(rust, print_generic_argument);
		*ret_open = true;
	} else {
		print_path(rust, false);
	}
}

static void print_dyn_trait(struct rust *rust)
{
	bool open;

	print_open_path(rust, &open);
	while (take(rust, 'p')) {
		struct identifier name = take_identifier(rust);

		put(rust, open ? ", " : "<");
		open = true;
		put_identifier(rust, &name);
		put(rust, " = ");
		print_type(rust);
	}
	if (open)
		put(rust, ">");
}

static void print_dyn_traits(struct rust *rust)
{
	for (size_t n = 0; !rust->failed && !take(rust, 'E'); n++) {
		if (n > 0)
			put(rust, " + ");
		print_dyn_trait(rust);
	}
}

static void print_dyn(struct rust *rust)
{
	uint64_t lifetime;

	put(rust, "dyn ");
	print_bound(rust, print_dyn_traits);
	if (!take(rust, 'L'))
		rust->failed = true;
	lifetime = take_base_62(rust);
	if (lifetime != 0 && !rust->failed) {
		put(rust, " + ");
		put_lifetime(rust, lifetime);
	}
}

static void print_abi(struct rust *rust)
{
	struct identifier abi = { .text = "C", .length = 1 };

	if (!take(rust, 'C'))
		abi = take_identifier(rust);
	if (abi.punycode)
		rust->failed = true;
	put(rust, "extern \"");
	for (size_t i = 0; i < abi.length; i++)
		put_bytes(rust, abi.text[i] == '_' ? "-" : abi.text + i, 1);
	put(rust, "\" ");
}

static void print_signature(struct rust *rust)
{
	if (take(rust, 'U'))
		put(rust, "unsafe ");
	if (take(rust, 'K'))
		print_abi(rust);
	put(rust, "fn(");
	print_list(rust, print_type);
	put(rust, ")");
	if (!take(rust, 'u')) {
		put(rust, " -> ");
		print_type(rust);
	}
}

static void print_reference(struct rust *rust, bool mutable)
{
	put(rust, "&");
	if (take(rust, 'L')) {
		uint64_t lifetime = take_base_62(rust);

		if (lifetime != 0) {
			put_lifetime(rust, lifetime);
			put(rust, " ");
		}
	}
	put(rust, mutable ? "mut " : "");
	print_type(rust);
}

static void print_array(struct rust *rust, bool sized)
{
	put(rust, "[");
	print_type(rust);
	if (sized) {
		put(rust, "; ");
		print_const(rust);
	}
	put(rust, "]");
}

static void print_type_body(struct rust *rust)
{
	char tag = take_any(rust);

	if (tag >= 'a' && tag <= 'z') {
		if (basic_types[tag - 'a'])
			put(rust, basic_types[tag - 'a']);
		else
			rust->failed = true;
		return;
	}
	switch (tag) {
	case 'R':
	case 'Q':
		print_reference(rust, tag == 'Q');
		break;
	case 'P':
	case 'O':
		put(rust, tag == 'P' ? "*const " : "*mut ");
		print_type(rust);
		break;
	case 'A':
	case 'S':
		print_array(rust, tag == 'A');
		break;
	case 'T':
		print_tuple(rust, print_type);
		break;
	case 'F':
		print_bound(rust, print_signature);
		break;
	case 'D':
		print_dyn(rust);
		break;
	case 'B':
		print_back_reference(rust, print_type);
		break;
	default: /* a path: it reads its tag itself */
		if (!rust->failed) {
			rust->at--;
			print_path(rust, false);
		}
	}
}

static void print_type(struct rust *rust)
{
	if (enter(rust))
		print_type_body(rust);
	leave(rust);
}

/* ---- Paths ---- */

static void print_crate(struct rust *rust)
{
	struct identifier name;

	take_tagged(rust, 's');
	name = take_identifier(rust);
	put_identifier(rust, &name);
}

/* {closure#0}, {shim:vtable#0}, or a plain name */
static void print_nested(struct rust *rust, bool in_value)
{
	char space = take_any(rust);
	struct identifier name;
	uint64_t number;

	if (!isalpha((unsigned char)space))
		rust->failed = true;
	print_path(rust, in_value);
	number = take_tagged(rust, 's');
	name = take_identifier(rust);
	if (islower((unsigned char)space)) {
		put(rust, name.length > 0 ? "::" : "");
		put_identifier(rust, &name);
		return;
	}
	put(rust, "::{");
	if (space == 'C')
		put(rust, "closure");
	else if (space == 'S')
		put(rust, "shim");
	else
		put_bytes(rust, &space, 1);
	put(rust, name.length > 0 ? ":" : "");
	put_identifier(rust, &name);
	put_format(rust, "#%" PRIu64 "}", number);
}

/* <T>, <T as Trait>: where the impl stands is not printed. */
static void print_impl(struct rust *rust, char tag)
{
	if (tag != 'Y') {
		take_tagged(rust, 's');
		rust->quiet++;
		print_path(rust, false);
		rust->quiet--;
	}
	put(rust, "<");
	print_type(rust);
	if (tag != 'M') {
		put(rust, " as ");
		print_path(rust, false);
	}
	put(rust, ">");
}

static void print_value_path(struct rust *rust)
{
	print_path(rust, true);
}

static void print_type_path(struct rust *rust)
{
	print_path(rust, false);
}

static void print_path_body(struct rust *rust, bool in_value)
{
	char tag = take_any(rust);

	switch (tag) {
	case 'C':
		print_crate(rust);
		break;
	case 'N':
		print_nested(rust, in_value);
		break;
	case 'M':
	case 'X':
	case 'Y':
		print_impl(rust, tag);
		break;
	case 'I':
		print_path(rust, in_value);
		put(rust, in_value ? "::<" : "<");
		print_list(rust, print_generic_argument);
		put(rust, ">");
		break;
	case 'B':
		print_back_reference(rust, in_value ? print_value_path : print_type_path);
		break;
	default:
		rust->failed = true;
	}
}

static void print_path(struct rust *rust, bool in_value)
{
	if (enter(rust))
		print_path_body(rust, in_value);
	leave(rust);
}

/* ---- Whole names ---- */

/* What the compiler's back end appends, as of the first dot outside of the grammar. */
static void put_suffix(struct rust *rust, const char *suffix, size_t length)
{
	size_t skip = 0;

	if (length >= 6 && memcmp(suffix, ".llvm.", 6) == 0)
		for (skip = 6; skip < length && suffix[skip] != '.';)
			skip++;
	put_bytes(rust, suffix + skip, length - skip);
}

static bool demangle_v0(struct rust *rust)
{
	const char *dot = memchr(rust->name, '.', rust->length);
	size_t length = rust->length;

	if (dot)
		rust->length = (size_t)(dot - rust->name);
	/* A digit would be the version of a later scheme. */
	if (!isupper((unsigned char)peek(rust)))
		return false;
	print_path(rust, true);
	if (!rust->failed && rust->at < rust->length) { /* the crate that instantiated it */
		rust->quiet++;
		print_path(rust, false);
		rust->quiet--;
	}
	if (rust->failed || rust->at != rust->length)
		return false;
	put_suffix(rust, rust->name + rust->length, length - rust->length);
	return !rust->failed;
}

static const struct {
	const char *code;
	const char *text;
} escapes[] = {
	{ "SP", "@" }, { "BP", "*" }, { "RF", "&" }, { "LT", "<" },
	{ "GT", ">" }, { "LP", "(" }, { "RP", ")" }, { "C", "," },
};

/* $u7e$: a code point; 0 = not one that may be printed. */
static uint32_t decode_escape(const char *code, size_t length)
{
	uint32_t c = 0;

	if (length < 2 || length > 7 || code[0] != 'u')
		return 0;
	for (size_t i = 1; i < length; i++) {
		if (!isxdigit((unsigned char)code[i]) || isupper((unsigned char)code[i]))
			return 0;
		c = c << 4 | (uint32_t)base_62_digit(code[i]);
	}
	return c < ' ' || c == 0x7f ? 0 : c;
}

/* What stands between two $; false where it is nothing known. */
static bool put_escape(struct rust *rust, const char *code, size_t length)
{
	uint32_t c;

	for (size_t i = 0; i < ARRAY_SIZE(escapes); i++)
		if (strlen(escapes[i].code) == length &&
		    memcmp(escapes[i].code, code, length) == 0) {
			put(rust, escapes[i].text);
			return true;
		}
	c = decode_escape(code, length);
	if (c != 0)
		put_char(rust, c);
	return c != 0;
}

static void put_legacy_identifier(struct rust *rust, const struct identifier *identifier)
{
	const char *at = identifier->text, *end = at + identifier->length, *close;

	if (identifier->length >= 2 && at[0] == '_' && at[1] == '$')
		at++;
	while (at < end && !rust->failed) {
		if (*at == '$') {
			close = memchr(at + 1, '$', (size_t)(end - at - 1));
			if (!close || !put_escape(rust, at + 1, (size_t)(close - at - 1)))
				break;
			at = close + 1;
		} else if (end - at >= 2 && at[0] == '.' && at[1] == '.') {
			put(rust, "::");
			at += 2;
		} else {
			put_bytes(rust, at++, 1);
		}
	}
	put_bytes(rust, at, (size_t)(end - at));
}

static bool is_hash(const struct identifier *identifier)
{
	if (identifier->length != 1 + HASH_DIGITS || identifier->text[0] != 'h')
		return false;
	for (size_t i = 1; i <= HASH_DIGITS; i++)
		if (!isxdigit((unsigned char)identifier->text[i]))
			return false;
	return true;
}

static bool demangle_legacy(struct rust *rust)
{
	struct identifier identifier = { .length = 0 };
	bool first = true;

	while (!take(rust, 'E')) {
		struct identifier next;

		if (!isdigit((unsigned char)peek(rust)))
			return false;
		next.length = take_decimal(rust);
		next.text = rust->name + rust->at;
		if (rust->failed || next.length > rust->length - rust->at)
			return false;
		rust->at += next.length;
		if (identifier.length > 0) {
			put(rust, first ? "" : "::");
			put_legacy_identifier(rust, &identifier);
			first = false;
		}
		identifier = next;
	}
	if (rust->failed || first || !is_hash(&identifier) ||
	    (rust->at < rust->length && peek(rust) != '.'))
		return false;
	put_suffix(rust, rust->name + rust->at, rust->length - rust->at);
	return !rust->failed;
}

bool demangle_rust(const char *raw_name, char *ret_name, size_t size)
{
	struct rust rust = { .out = ret_name, .out_size = size };
	bool v0 = raw_name[0] == '_' && raw_name[1] == 'R';

	if (size == 0 || (!v0 && strncmp(raw_name, "_ZN", 3) != 0))
		return false;
	rust.name = raw_name + (v0 ? 2 : 3);
	rust.length = strlen(rust.name);
	for (size_t i = 0; i < rust.length; i++)
		if ((unsigned char)rust.name[i] >= 0x7f || (unsigned char)rust.name[i] <= ' ')
			return false;
	ret_name[0] = '\0';
	if (v0 ? !demangle_v0(&rust) : !demangle_legacy(&rust))
		return false;
	return rust.out_at > 0;
}
