/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Demangle Rust text - what a mangled name is read as, and what is printed: characters, numbers,
 * identifiers
 *
 * An identifier that has others than ASCII is in Punycode (RFC 3492), with '_' for '-'.
 * Invariants: (1) nothing is read behind the name's end, nothing printed behind the buffer's
 *                 [fuzz_demangle_rust]
 *             (2) a code point that is printed is one that UTF-8 has  [fuzz_demangle_rust]
 */
#include "tools/common/demangle-rust-own.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>

#define MAX_PUNYCODE 256 /* code points of one identifier */

/* ---- Output ---- */

void rust_put_bytes(struct rust *rust, const char *text, size_t length)
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

void rust_put_format(struct rust *rust, const char *format, ...)
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
		rust_put_bytes(rust, text, (size_t)n);
}

void rust_put_char(struct rust *rust, uint32_t c)
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
	rust_put_bytes(rust, bytes, n);
}

/* ---- Input ---- */

uint64_t rust_take_decimal(struct rust *rust)
{
	uint64_t value = 0;

	if (!isdigit((unsigned char)rust_peek(rust)))
		rust->failed = true;
	if (rust_take(rust, '0'))
		return 0;
	while (!rust->failed && isdigit((unsigned char)rust_peek(rust))) {
		if (!mul_u64(value, 10, &value) ||
		    !add_u64(value, (uint64_t)(rust_take_any(rust) - '0'), &value))
			rust->failed = true;
	}
	return value;
}

int rust_base_62_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'Z')
		return c - 'A' + 36;
	return -1;
}

uint64_t rust_take_base_62(struct rust *rust)
{
	uint64_t value = 0;

	if (rust_take(rust, '_'))
		return 0;
	while (!rust->failed && !rust_take(rust, '_')) {
		int digit = rust_base_62_digit(rust_take_any(rust));

		if (digit < 0 || !mul_u64(value, 62, &value) ||
		    !add_u64(value, (uint64_t)digit, &value))
			rust->failed = true;
	}
	if (!add_u64(value, 1, &value))
		rust->failed = true;
	return value;
}

uint64_t rust_take_tagged(struct rust *rust, char tag)
{
	uint64_t value;

	if (!rust_take(rust, tag))
		return 0;
	value = rust_take_base_62(rust);
	if (!add_u64(value, 1, &value))
		rust->failed = true;
	return value;
}

struct identifier rust_take_identifier(struct rust *rust)
{
	struct identifier identifier = { .text = "", .punycode = rust_take(rust, 'u') };
	uint64_t length = rust_take_decimal(rust);

	rust_take(rust, '_');
	if (rust->failed || length > rust->length - rust->at) {
		rust->failed = true;
		return identifier;
	}
	identifier.text = rust->name + rust->at;
	identifier.length = length;
	rust->at += length;
	return identifier;
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
		rust_put_char(rust, points[i]);
}

void rust_put_identifier(struct rust *rust, const struct identifier *identifier)
{
	if (identifier->punycode)
		put_punycode(rust, identifier);
	else
		rust_put_bytes(rust, identifier->text, identifier->length);
}
