/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Demangle Rust types - the grammar of v0 names: paths, types, lifetimes
 *
 * Each path, type and constant is a step, one within the other; a back reference repeats one that
 * stands before it.
 * Invariants: (1) recursion and work are bounded  [fuzz_demangle_rust, test-demangle: limits]
 *             (2) a back reference points backwards only  [fuzz_demangle_rust]
 */
#include "tools/common/demangle-rust-own.h"

#include <ctype.h>
#include <inttypes.h>

/* ---- Steps ---- */

void rust_print_back_reference(struct rust *rust, void (*print)(struct rust *rust))
{
	size_t tag = rust->at - 1;
	uint64_t target = rust_take_base_62(rust);
	size_t behind = rust->at;

	if (rust->failed || target >= tag) {
		rust->failed = true;
		return;
	}
	if (rust->quiet)
		return;
	rust->at = target;
	if (rust_enter(rust))
		print(rust);
	rust_leave(rust);
	rust->at = behind;
}

size_t rust_print_list(struct rust *rust, void (*print)(struct rust *rust))
{
	size_t n = 0;

	while (!rust->failed && !rust_take(rust, 'E')) {
		if (n > 0)
			rust_put(rust, ", ");
		print(rust);
		n++;
	}
	return n;
}

void rust_print_tuple(struct rust *rust, void (*print)(struct rust *rust))
{
	rust_put(rust, "(");
	rust_put(rust, rust_print_list(rust, print) == 1 ? ",)" : ")");
}

/* ---- Lifetimes ---- */

/* Index 1 is the innermost bound lifetime, 0 the erased one. */
static void put_lifetime(struct rust *rust, uint64_t index)
{
	uint64_t depth;

	if (index == 0) {
		rust_put(rust, "'_");
		return;
	}
	if (index > rust->bound_lifetimes) {
		rust->failed = true;
		return;
	}
	depth = rust->bound_lifetimes - index;
	if (depth < 26)
		rust_put_format(rust, "'%c", (char)('a' + depth));
	else
		rust_put_format(rust, "'_%" PRIu64, depth);
}

/* [for<'a, 'b> ] and then what is inside of it. */
static void print_bound(struct rust *rust, void (*print)(struct rust *rust))
{
	uint64_t n = rust_take_tagged(rust, 'G');

	if (rust->failed || n > RUST_MAX_STEPS) {
		rust->failed = true;
		return;
	}
	if (n > 0)
		rust_put(rust, "for<");
	for (uint64_t i = 0; i < n && !rust->failed; i++) {
		rust_put(rust, i > 0 ? ", " : "");
		rust->bound_lifetimes++;
		put_lifetime(rust, 1);
		if (++rust->steps > RUST_MAX_STEPS)
			rust->failed = true;
	}
	if (n > 0)
		rust_put(rust, "> ");
	print(rust);
	if (!rust->failed)
		rust->bound_lifetimes -= n;
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
	if (rust_take(rust, 'L'))
		put_lifetime(rust, rust_take_base_62(rust));
	else if (rust_take(rust, 'K'))
		rust_print_const(rust);
	else
		rust_print_type(rust);
}

/* The path of a trait in dyn, its < left open for associated types; *ret_open says whether there
 * was one. */
static void print_open_path(struct rust *rust, bool *ret_open)
{
	*ret_open = false;
	if (rust_take(rust, 'B')) {
		size_t tag = rust->at - 1, behind;
		uint64_t target = rust_take_base_62(rust);

		behind = rust->at;
		if (target >= tag)
			rust->failed = true;
		if (rust->failed || rust->quiet)
			return;
		rust->at = target;
		if (rust_enter(rust))
			print_open_path(rust, ret_open);
		rust_leave(rust);
		rust->at = behind;
	} else if (rust_take(rust, 'I')) {
		rust_print_path(rust, false);
		rust_put(rust, "<");
		rust_print_list(rust, print_generic_argument);
		*ret_open = true;
	} else {
		rust_print_path(rust, false);
	}
}

static void print_dyn_trait(struct rust *rust)
{
	bool open;

	print_open_path(rust, &open);
	while (rust_take(rust, 'p')) {
		struct identifier name = rust_take_identifier(rust);

		rust_put(rust, open ? ", " : "<");
		open = true;
		rust_put_identifier(rust, &name);
		rust_put(rust, " = ");
		rust_print_type(rust);
	}
	if (open)
		rust_put(rust, ">");
}

static void print_dyn_traits(struct rust *rust)
{
	for (size_t n = 0; !rust->failed && !rust_take(rust, 'E'); n++) {
		if (n > 0)
			rust_put(rust, " + ");
		print_dyn_trait(rust);
	}
}

static void print_dyn(struct rust *rust)
{
	uint64_t lifetime;

	rust_put(rust, "dyn ");
	print_bound(rust, print_dyn_traits);
	if (!rust_take(rust, 'L'))
		rust->failed = true;
	lifetime = rust_take_base_62(rust);
	if (lifetime != 0 && !rust->failed) {
		rust_put(rust, " + ");
		put_lifetime(rust, lifetime);
	}
}

static void print_abi(struct rust *rust)
{
	struct identifier abi = { .text = "C", .length = 1 };

	if (!rust_take(rust, 'C'))
		abi = rust_take_identifier(rust);
	if (abi.punycode)
		rust->failed = true;
	rust_put(rust, "extern \"");
	for (size_t i = 0; i < abi.length; i++)
		rust_put_bytes(rust, abi.text[i] == '_' ? "-" : abi.text + i, 1);
	rust_put(rust, "\" ");
}

static void print_signature(struct rust *rust)
{
	if (rust_take(rust, 'U'))
		rust_put(rust, "unsafe ");
	if (rust_take(rust, 'K'))
		print_abi(rust);
	rust_put(rust, "fn(");
	rust_print_list(rust, rust_print_type);
	rust_put(rust, ")");
	if (!rust_take(rust, 'u')) {
		rust_put(rust, " -> ");
		rust_print_type(rust);
	}
}

static void print_reference(struct rust *rust, bool mutable)
{
	rust_put(rust, "&");
	if (rust_take(rust, 'L')) {
		uint64_t lifetime = rust_take_base_62(rust);

		if (lifetime != 0) {
			put_lifetime(rust, lifetime);
			rust_put(rust, " ");
		}
	}
	rust_put(rust, mutable ? "mut " : "");
	rust_print_type(rust);
}

static void print_array(struct rust *rust, bool sized)
{
	rust_put(rust, "[");
	rust_print_type(rust);
	if (sized) {
		rust_put(rust, "; ");
		rust_print_const(rust);
	}
	rust_put(rust, "]");
}

static void print_type_body(struct rust *rust)
{
	char tag = rust_take_any(rust);

	if (tag >= 'a' && tag <= 'z') {
		if (basic_types[tag - 'a'])
			rust_put(rust, basic_types[tag - 'a']);
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
		rust_put(rust, tag == 'P' ? "*const " : "*mut ");
		rust_print_type(rust);
		break;
	case 'A':
	case 'S':
		print_array(rust, tag == 'A');
		break;
	case 'T':
		rust_print_tuple(rust, rust_print_type);
		break;
	case 'F':
		print_bound(rust, print_signature);
		break;
	case 'D':
		print_dyn(rust);
		break;
	case 'B':
		rust_print_back_reference(rust, rust_print_type);
		break;
	default: /* a path: it reads its tag itself */
		if (!rust->failed) {
			rust->at--;
			rust_print_path(rust, false);
		}
	}
}

void rust_print_type(struct rust *rust)
{
	if (rust_enter(rust))
		print_type_body(rust);
	rust_leave(rust);
}

/* ---- Paths ---- */

static void print_crate(struct rust *rust)
{
	struct identifier name;

	rust_take_tagged(rust, 's');
	name = rust_take_identifier(rust);
	rust_put_identifier(rust, &name);
}

/* {closure#0}, {shim:vtable#0}, or a plain name */
static void print_nested(struct rust *rust, bool in_value)
{
	char space = rust_take_any(rust);
	struct identifier name;
	uint64_t number;

	if (!isalpha((unsigned char)space))
		rust->failed = true;
	rust_print_path(rust, in_value);
	number = rust_take_tagged(rust, 's');
	name = rust_take_identifier(rust);
	if (islower((unsigned char)space)) {
		rust_put(rust, name.length > 0 ? "::" : "");
		rust_put_identifier(rust, &name);
		return;
	}
	rust_put(rust, "::{");
	if (space == 'C')
		rust_put(rust, "closure");
	else if (space == 'S')
		rust_put(rust, "shim");
	else
		rust_put_bytes(rust, &space, 1);
	rust_put(rust, name.length > 0 ? ":" : "");
	rust_put_identifier(rust, &name);
	rust_put_format(rust, "#%" PRIu64 "}", number);
}

/* <T>, <T as Trait>: where the impl stands is not printed. */
static void print_impl(struct rust *rust, char tag)
{
	if (tag != 'Y') {
		rust_take_tagged(rust, 's');
		rust->quiet++;
		rust_print_path(rust, false);
		rust->quiet--;
	}
	rust_put(rust, "<");
	rust_print_type(rust);
	if (tag != 'M') {
		rust_put(rust, " as ");
		rust_print_path(rust, false);
	}
	rust_put(rust, ">");
}

static void print_value_path(struct rust *rust)
{
	rust_print_path(rust, true);
}

static void print_type_path(struct rust *rust)
{
	rust_print_path(rust, false);
}

static void print_path_body(struct rust *rust, bool in_value)
{
	char tag = rust_take_any(rust);

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
		rust_print_path(rust, in_value);
		rust_put(rust, in_value ? "::<" : "<");
		rust_print_list(rust, print_generic_argument);
		rust_put(rust, ">");
		break;
	case 'B':
		rust_print_back_reference(rust, in_value ? print_value_path : print_type_path);
		break;
	default:
		rust->failed = true;
	}
}

void rust_print_path(struct rust *rust, bool in_value)
{
	if (rust_enter(rust))
		print_path_body(rust, in_value);
	rust_leave(rust);
}
