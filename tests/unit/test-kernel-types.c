/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of daemon/broker/kernel-types.c. The test's argument is the object file of the BPF
 * programs that read the frames of interpreters.
 */
#include "tests/unit/test.h"

#include "daemon/broker/kernel-types.h"

#include <bpf/btf.h>
#include <glib.h>

static const char *programs;

/* The types that most cases begin with: two structures of the program, a union of the kernel. */
struct fixture {
	struct btf *own, *kernel;
	int number, nested;
};

static struct fixture fixture_new(void)
{
	struct fixture f = { btf__new_empty(), btf__new_empty() };
	int number = btf__add_int(f.own, "int", 4, BTF_INT_SIGNED);

	btf__add_struct(f.own, "thing___kernel", 8);
	btf__add_field(f.own, "first", number, 0, 0);
	btf__add_field(f.own, "second", number, 32, 0);
	btf__add_struct(f.own, "thing", 4);
	btf__add_field(f.own, "second", number, 0, 0);

	f.number = btf__add_int(f.kernel, "int", 4, BTF_INT_SIGNED);
	f.nested = btf__add_union(f.kernel, NULL, 4);
	btf__add_field(f.kernel, "second", f.number, 0, 0);
	btf__add_field(f.kernel, "other", f.number, 0, 0);
	return f;
}

/* Adds a structure `thing`, with `first` at this offset. */
static void add_thing(struct fixture *f, unsigned first_bits, unsigned first_size)
{
	btf__add_struct(f->kernel, "thing", 64);
	btf__add_field(f->kernel, "first", f->number, first_bits, first_size);
}

static void add_second(struct fixture *f)
{
	btf__add_field(f->kernel, NULL, f->nested, 96, 0);
}

/* Returns the offsets that were found, as text; NULL: none */
static char *apply(struct fixture *f)
{
	uint32_t own_bytes, kernel_bytes;
	const void *own = btf__raw_data(f->own, &own_bytes);
	const void *kernel = btf__raw_data(f->kernel, &kernel_bytes);
	g_autofree void *copy = g_memdup2(own, own_bytes);
	const struct btf_type *type, *same;
	char *found = NULL;
	struct btf *result;

	if (kernel_types_apply(copy, own_bytes, kernel, kernel_bytes)) {
		result = btf__new(copy, own_bytes);
		type = btf__type_by_id(result, 2);
		same = btf__type_by_id(result, 3);
		found = g_strdup_printf("%u %u, %u", btf_members(type)[0].offset,
					btf_members(type)[1].offset, btf_members(same)[0].offset);
		btf__free(result);
	}
	btf__free(f->own);
	btf__free(f->kernel);
	return found;
}

static void test_nested(void)
{
	struct fixture f = fixture_new();
	g_autofree char *found = NULL;

	/* add more types before the structure than are between two remembered places, and one after
	 * it */
	for (int i = 0; i < 300; i++)
		btf__add_ptr(f.kernel, f.number);
	add_thing(&f, 64, 0);
	add_second(&f);
	btf__add_struct(f.kernel, "things", 4);
	btf__add_field(f.kernel, "first", f.number, 0, 0);
	found = apply(&f);
	CHECK_STR(found, "64 96, 0");
}

static void test_nested_later(void)
{
	struct fixture f = fixture_new();
	g_autofree char *found = NULL;
	int outer;

	add_thing(&f, 0, 0);
	outer = btf__type_cnt(f.kernel) + 299;
	btf__add_field(f.kernel, NULL, outer, 128, 0);
	for (int i = 0; i < 299; i++)
		btf__add_ptr(f.kernel, f.number);
	CHECK_INT(btf__add_struct(f.kernel, NULL, 8), outer);
	btf__add_field(f.kernel, NULL, f.nested, 32, 0);
	found = apply(&f);
	CHECK_STR(found, "0 160, 0");
}

static void test_same_again(void)
{
	struct fixture f = fixture_new();
	g_autofree char *found = NULL;

	add_thing(&f, 64, 0);
	add_thing(&f, 64, 0);
	add_second(&f);
	found = apply(&f);
	CHECK_STR(found, "64 96, 0");
}

static void test_two_structures(void)
{
	struct fixture f = fixture_new();

	add_thing(&f, 64, 0);
	add_second(&f);
	add_thing(&f, 128, 0);
	CHECK(!apply(&f));
}

static void test_missing(void)
{
	struct fixture f = fixture_new();

	add_thing(&f, 64, 0);
	CHECK(!apply(&f));
}

static void test_bit_field(void)
{
	struct fixture f = fixture_new();

	add_thing(&f, 64, 3);
	add_second(&f);
	CHECK(!apply(&f));
}

/* The kernel's types are refused if they are truncated anywhere. */
static void test_cut(void)
{
	struct fixture f = fixture_new();
	uint32_t own_bytes, bytes;
	const void *own = btf__raw_data(f.own, &own_bytes), *kernel;
	g_autofree void *copy = g_memdup2(own, own_bytes);
	void *part;

	add_thing(&f, 64, 0);
	add_second(&f);
	kernel = btf__raw_data(f.kernel, &bytes);
	for (uint32_t n = 0; n < bytes; n++) {
		part = g_memdup2(kernel, n);
		CHECK(!kernel_types_apply(copy, own_bytes, part, n));
		g_free(part);
	}
	CHECK(kernel_types_apply(copy, own_bytes, kernel, bytes));
	btf__free(f.own);
	btf__free(f.kernel);
}

/* Returns the offset in bits of the member with this name, found with libbpf; -1: no such
 * member. */
static int64_t find_member(const struct btf *btf, const struct btf_type *type, const char *name)
{
	const struct btf_type *nested;
	int64_t bits;

	for (unsigned i = 0; i < btf_vlen(type); i++) {
		const struct btf_member *member = &btf_members(type)[i];

		if (strcmp(btf__name_by_offset(btf, member->name_off), name) == 0)
			return btf_member_bit_offset(type, i);
		nested = btf__type_by_id(btf, member->type);
		if (member->name_off || !btf_is_composite(nested))
			continue;
		bits = find_member(btf, nested, name);
		if (bits >= 0)
			return bits + btf_member_bit_offset(type, i);
	}
	return -1;
}

static void test_kernel(void)
{
	struct btf *kernel = btf__parse("/sys/kernel/btf/vmlinux", NULL);
	struct btf *own = btf__parse(programs, NULL), *found;
	uint32_t own_bytes, bytes;
	const void *data;
	g_autofree void *copy = NULL;
	unsigned n = 0;

	if (!kernel)
		SKIP("the kernel has no type information");
	REQUIRE(own);
	data = btf__raw_data(own, &own_bytes);
	copy = g_memdup2(data, own_bytes);
	data = btf__raw_data(kernel, &bytes);
	REQUIRE(kernel_types_apply(copy, own_bytes, data, bytes));
	found = btf__new(copy, own_bytes);
	for (unsigned id = 1; id < btf__type_cnt(found); id++) {
		const struct btf_type *type = btf__type_by_id(found, id), *theirs;
		g_auto(GStrv)
			parts = g_strsplit(btf__name_by_offset(found, type->name_off), "___", 2);

		if (!btf_is_struct(type) || g_strcmp0(parts[0] ? parts[1] : NULL, "kernel") != 0)
			continue;
		theirs = btf__type_by_id(kernel,
					 btf__find_by_name_kind(kernel, parts[0], BTF_KIND_STRUCT));
		REQUIRE(theirs);
		for (unsigned i = 0; i < btf_vlen(type); i++, n++)
			CHECK_INT(btf_members(type)[i].offset,
				  find_member(kernel, theirs,
					      btf__name_by_offset(found,
								  btf_members(type)[i].name_off)));
	}
	CHECK(n >= 14);
	btf__free(found);
	btf__free(own);
	btf__free(kernel);
}

int main(int argc, char **argv)
{
	programs = argv[1];
	RUN(test_nested);
	RUN(test_nested_later);
	RUN(test_same_again);
	RUN(test_two_structures);
	RUN(test_missing);
	RUN(test_bit_field);
	RUN(test_cut);
	RUN(test_kernel);
	return test_end();
}
