/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Kernel-types - finds members of structures in the kernel's type information (BTF)
 *
 * The kernel describes the format in Documentation/bpf/btf.rst: after a header, there are types,
 * whose ids count from 1, and names. A type's members follow it.
 * Invariants: (1) nothing outside of the bytes is read  [fuzz_kernel_types]
 *             (2) libbpf finds the same offsets  [test-kernel-types: kernel]
 */
#include "daemon/broker/kernel-types.h"

#include "arch/base.h"

#include <bpf/btf.h>
#include <glib.h>

#define SUFFIX "___kernel"
#define MAX_STRUCTURES 16u
#define MAX_UNNAMED 4096u
#define STRIDE 128u
#define MAGIC 0xeb9f
#define NOT_FOUND UINT32_MAX

struct types {
	uint8_t *at;
	size_t bytes;
	const char *names;
	size_t names_bytes;
};

struct structure {
	struct btf_type *type;
	const char *name;
	size_t length; /* length of `name`, without SUFFIX */
};

/* A structure or union without a name, in a structure of the kernel. */
struct unnamed {
	const struct structure *in;
	uint32_t id, bits;
};

struct search {
	struct types own, kernel;
	struct structure structures[MAX_STRUCTURES];
	unsigned n_structures;
	/* size_t: the places of the kernel's first type, and of each STRIDEth type after it */
	GArray *places;
	GArray *unnamed; /* struct unnamed */
};

/* Returns false if the bytes have no valid header, or lack the parts that the header describes. */
static bool open_types(struct types *types, void *bytes, size_t n)
{
	const struct btf_header *header = bytes;

	if (n < sizeof(*header) || header->magic != MAGIC || header->hdr_len > n ||
	    header->hdr_len % 4 != 0 || header->type_off % 4 != 0)
		return false;
	n -= header->hdr_len;
	if (header->type_off > n || header->type_len > n - header->type_off ||
	    header->str_off > n || header->str_len > n - header->str_off || header->str_len == 0)
		return false;
	*types = (struct types){
		.at = (uint8_t *)bytes + header->hdr_len + header->type_off,
		.bytes = header->type_len,
		.names = (const char *)bytes + header->hdr_len + header->str_off,
		.names_bytes = header->str_len,
	};
	return types->names[types->names_bytes - 1] == '\0';
}

/* Returns the type at *place, and sets *place to the place of the next type. Returns NULL if the
 * type is not valid, or of an unknown kind. */
static struct btf_type *next_type(const struct types *types, size_t *place)
{
	struct btf_type *type = (struct btf_type *)(types->at + *place);
	size_t bytes = sizeof(*type);

	if (types->bytes - *place < bytes || type->name_off >= types->names_bytes)
		return NULL;
	switch (btf_kind(type)) {
	case BTF_KIND_INT:
	case BTF_KIND_VAR:
	case BTF_KIND_DECL_TAG:
		bytes += 4;
		break;
	case BTF_KIND_ARRAY:
		bytes += sizeof(struct btf_array);
		break;
	case BTF_KIND_ENUM:
	case BTF_KIND_FUNC_PROTO:
		bytes += 8 * btf_vlen(type);
		break;
	case BTF_KIND_STRUCT:
	case BTF_KIND_UNION:
	case BTF_KIND_DATASEC:
	case BTF_KIND_ENUM64:
		bytes += 12 * btf_vlen(type);
		break;
	case BTF_KIND_PTR:
	case BTF_KIND_FWD:
	case BTF_KIND_TYPEDEF:
	case BTF_KIND_VOLATILE:
	case BTF_KIND_CONST:
	case BTF_KIND_RESTRICT:
	case BTF_KIND_FUNC:
	case BTF_KIND_FLOAT:
	case BTF_KIND_TYPE_TAG:
		break;
	default:
		return NULL;
	}
	if (types->bytes - *place < bytes)
		return NULL;
	*place += bytes;
	return type;
}

/* Collects the structures of `own`, and marks their members as not found. */
static bool find_own(struct search *search)
{
	struct structure *structure;
	struct btf_type *type;

	for (size_t place = 0; place < search->own.bytes;) {
		type = next_type(&search->own, &place);
		if (!type)
			return false;
		if (!btf_is_struct(type) ||
		    !g_str_has_suffix(search->own.names + type->name_off, SUFFIX))
			continue;
		if (search->n_structures == MAX_STRUCTURES)
			return false;
		structure = &search->structures[search->n_structures++];
		structure->type = type;
		structure->name = search->own.names + type->name_off;
		structure->length = strlen(structure->name) - strlen(SUFFIX);
		for (unsigned i = 0; i < btf_vlen(type); i++)
			btf_members(type)[i].offset = NOT_FOUND;
	}
	return true;
}

/* Sets the offsets of those members of `in` that the kernel's `type` has. `bits`: offset of `type`
 * in the kernel's structure, in bits; `type` may be that of a member without a name. */
static bool take_members(struct search *search, const struct btf_type *type,
			 const struct structure *in, uint32_t bits)
{
	const struct btf_member *theirs = btf_members(type);
	struct btf_member *ours = btf_members(in->type);

	for (unsigned i = 0; i < btf_vlen(type); i++) {
		const uint32_t at = bits + btf_member_bit_offset(type, i);

		if (theirs[i].name_off >= search->kernel.names_bytes)
			return false;
		if (!search->kernel.names[theirs[i].name_off]) {
			const struct unnamed unnamed = { .in = in,
							 .id = theirs[i].type,
							 .bits = at };

			if (search->unnamed->len == MAX_UNNAMED)
				return false;
			g_array_append_val(search->unnamed, unnamed);
			continue;
		}
		for (unsigned k = 0; k < btf_vlen(in->type); k++) {
			if (ours[k].name_off >= search->own.names_bytes ||
			    strcmp(search->own.names + ours[k].name_off,
				   search->kernel.names + theirs[i].name_off) != 0)
				continue;
			if (btf_member_bitfield_size(type, i) != 0 ||
			    (ours[k].offset != NOT_FOUND && ours[k].offset != at))
				return false;
			ours[k].offset = at;
		}
	}
	return true;
}

/* Finds members among the kernel's types, and notes the places of some types. */
static bool read_kernel(struct search *search)
{
	const struct structure *structure;
	const struct btf_type *type;
	const char *name;
	uint32_t n = 0;

	for (size_t place = 0; place < search->kernel.bytes; n++) {
		if (n % STRIDE == 0)
			g_array_append_val(search->places, place);
		type = next_type(&search->kernel, &place);
		if (!type)
			return false;
		if (!btf_is_struct(type))
			continue;
		name = search->kernel.names + type->name_off;
		for (unsigned i = 0; i < search->n_structures; i++) {
			structure = &search->structures[i];
			if (strncmp(name, structure->name, structure->length) == 0 &&
			    !name[structure->length] && !take_members(search, type, structure, 0))
				return false;
		}
	}
	return true;
}

/* Returns the kernel's type with this id; NULL if the kernel has no such type. */
static const struct btf_type *find_type(const struct search *search, uint32_t id)
{
	const struct btf_type *type = NULL;
	size_t place;

	if (id == 0 || (id - 1) / STRIDE >= search->places->len)
		return NULL;
	place = g_array_index(search->places, size_t, (id - 1) / STRIDE);
	for (uint32_t n = 0; n <= (id - 1) % STRIDE; n++)
		if (place == search->kernel.bytes || !(type = next_type(&search->kernel, &place)))
			return NULL;
	return type;
}

static bool search_all(struct search *search)
{
	const struct btf_type *type;

	if (!find_own(search) || !read_kernel(search))
		return false;
	/* take_members() may append to the list. */
	for (unsigned i = 0; i < search->unnamed->len; i++) {
		const struct unnamed unnamed = g_array_index(search->unnamed, struct unnamed, i);

		type = find_type(search, unnamed.id);
		if (type && btf_is_composite(type) &&
		    !take_members(search, type, unnamed.in, unnamed.bits))
			return false;
	}
	for (unsigned i = 0; i < search->n_structures; i++) {
		type = search->structures[i].type;
		for (unsigned k = 0; k < btf_vlen(type); k++)
			if (btf_members(type)[k].offset == NOT_FOUND)
				return false;
	}
	return true;
}

bool kernel_types_apply(void *own, size_t own_bytes, const void *kernel, size_t kernel_bytes)
{
	struct search search = { 0 };
	bool ok;

	if (!open_types(&search.own, own, own_bytes) ||
	    !open_types(&search.kernel, (void *)kernel, kernel_bytes))
		return false;
	search.places = g_array_new(FALSE, FALSE, sizeof(size_t));
	search.unnamed = g_array_new(FALSE, FALSE, sizeof(struct unnamed));
	ok = search_all(&search);
	g_array_unref(search.places);
	g_array_unref(search.unnamed);
	return ok;
}
