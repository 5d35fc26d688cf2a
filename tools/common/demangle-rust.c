/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Demangle Rust - readable names of Rust symbols, both schemes
 *
 * Legacy: _ZN, identifiers with their lengths, the last one a hash "17h" and 16 hex digits, E; what
 * is no letter is written $..$. v0 (Rust RFC 2603): _R and a grammar of paths, types and constants;
 * B refers back to an earlier position, which is parsed again. Printed as rustc-demangle prints
 * with {:#}: no hashes, no types of constants. Of a suffix of the compiler (.llvm.123.cold) the
 * .llvm.123 is dropped and the rest kept.
 * Invariants: (1) recursion ends at RUST_MAX_DEPTH, a name at the buffer's end, and all work at
 *                 RUST_MAX_STEPS: a name that exceeds one of them fails as a whole
 *                 [fuzz_demangle_rust, test-demangle: limits]
 *             (2) a back reference points backwards only  [fuzz_demangle_rust]
 *             (3) what is printed is valid UTF-8 if the input is ASCII, and other input is refused
 *                                                                              [fuzz_demangle_rust]
 * No allocation, no state, no recursion but in the grammar of v0. Here: whole names and the legacy
 * scheme; the grammar of v0 is in demangle-rust-types.c, its constants in demangle-rust-const.c,
 * what both schemes read and print in demangle-rust-text.c.
 */
#include "tools/common/demangle-rust-own.h"
#include "tools/common/demangle.h"

#include <ctype.h>

#define HASH_DIGITS 16

/* What the compiler's back end appends, as of the first dot outside of the grammar. */
static void put_suffix(struct rust *rust, const char *suffix, size_t length)
{
	size_t skip = 0;

	if (length >= 6 && memcmp(suffix, ".llvm.", 6) == 0)
		for (skip = 6; skip < length && suffix[skip] != '.';)
			skip++;
	rust_put_bytes(rust, suffix + skip, length - skip);
}

static bool demangle_v0(struct rust *rust)
{
	const char *dot = memchr(rust->name, '.', rust->length);
	size_t length = rust->length;

	if (dot)
		rust->length = (size_t)(dot - rust->name);
	/* A digit would be the version of a later scheme. */
	if (!isupper((unsigned char)rust_peek(rust)))
		return false;
	rust_print_path(rust, true);
	if (!rust->failed && rust->at < rust->length) { /* the crate that instantiated it */
		rust->quiet++;
		rust_print_path(rust, false);
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
		c = c << 4 | (uint32_t)rust_base_62_digit(code[i]);
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
			rust_put(rust, escapes[i].text);
			return true;
		}
	c = decode_escape(code, length);
	if (c != 0)
		rust_put_char(rust, c);
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
			rust_put(rust, "::");
			at += 2;
		} else {
			rust_put_bytes(rust, at++, 1);
		}
	}
	rust_put_bytes(rust, at, (size_t)(end - at));
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

	while (!rust_take(rust, 'E')) {
		struct identifier next;

		if (!isdigit((unsigned char)rust_peek(rust)))
			return false;
		next.length = rust_take_decimal(rust);
		next.text = rust->name + rust->at;
		if (rust->failed || next.length > rust->length - rust->at)
			return false;
		rust->at += next.length;
		if (identifier.length > 0) {
			rust_put(rust, first ? "" : "::");
			put_legacy_identifier(rust, &identifier);
			first = false;
		}
		identifier = next;
	}
	if (rust->failed || first || !is_hash(&identifier) ||
	    (rust->at < rust->length && rust_peek(rust) != '.'))
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
