/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of packages of split DWARF: an index of version 2, and false indexes.
 */
#include "arch/base.h"
#include "tests/unit/test.h"
#include "tools/symbols/debug-split.h"

#include <glib.h>
#include <string.h>
#include <sys/mman.h>

#define ID UINT64_C(0x1122334455667788)
#define SLOTS 4
#define COLUMNS 3

/* An index with one unit. Its table has COLUMNS sections. */
struct index {
	uint32_t version, columns, units, slots;
	uint64_t ids[SLOTS];
	uint32_t rows[SLOTS];
	uint32_t sections[COLUMNS], offsets[COLUMNS], sizes[COLUMNS];
} __attribute__((packed));

static const struct index good = {
	.version = 2,
	.columns = COLUMNS,
	.units = 1,
	.slots = SLOTS,
	.ids = { [ID % SLOTS] = ID },
	.rows = { [ID % SLOTS] = 1 },
	.sections = { 1, 3, 6 },
	.offsets = { 2, 0, 4 },
	.sizes = { 4, 2, 8 },
};

static int write_package(const struct index *index)
{
	static const uint32_t offsets[] = { 99, 4, 0 };
	const struct elf_section sections[] = {
		{ ".debug_cu_index", index, sizeof(*index) },
		{ ".debug_info.dwo", "..INFO", 6 },
		{ ".debug_abbrev.dwo", "AB", 2 },
		{ ".debug_str_offsets.dwo", offsets, sizeof(offsets) },
		{ ".debug_str.dwo", "one\0two", 8 },
	};
	g_autoptr(GByteArray) file = elf_sections_build(sections, ARRAY_SIZE(sections));
	int fd = memfd_create("package", MFD_CLOEXEC);

	CHECK(fd >= 0 && write(fd, file->data, file->len) == (ssize_t)file->len);
	return fd;
}

static GByteArray *extract(const struct index *index, uint64_t id)
{
	struct debug_package *package = debug_package_open(write_package(index));
	GByteArray *unit = package ? debug_package_extract(package, id) : NULL;

	debug_package_free(package);
	return unit;
}

static bool has(const GByteArray *unit, const void *bytes, size_t size)
{
	return memmem(unit->data, unit->len, bytes, size) != NULL;
}

static void test_extracted(void)
{
	/* "two", then "one", after an empty string */
	static const uint32_t offsets[] = { 1, 5 };
	g_autoptr(GByteArray) unit = extract(&good, ID);

	CHECK(unit != NULL);
	CHECK(has(unit, "INFO", 4) && !has(unit, "..INFO", 6) && has(unit, "AB", 2));
	CHECK(has(unit, "\0two\0one", 9) && has(unit, offsets, sizeof(offsets)));
	CHECK(extract(&good, ID + SLOTS) == NULL);
}

static bool is_refused(struct index index)
{
	g_autoptr(GByteArray) unit = extract(&index, ID);

	return unit == NULL;
}

static void test_hostile(void)
{
	static const uint32_t huge[] = { 0xffffffff, 0x7fffffff, 0x80000000, 1 << 28 };

	for (size_t i = 0; i < ARRAY_SIZE(huge); i++) {
		struct index columns = good, units = good, slots = good, offset = good, size = good,
			     row = good, version = good;

		columns.columns = units.units = slots.slots = huge[i];
		offset.offsets[0] = size.sizes[0] = row.rows[ID % SLOTS] = version.version =
			huge[i];
		CHECK(is_refused(columns) && is_refused(units) && is_refused(slots));
		CHECK(is_refused(offset) && is_refused(size) && is_refused(row));
		CHECK(is_refused(version));
	}
	CHECK(!is_refused(good));
	CHECK(debug_package_open(memfd_create("empty", MFD_CLOEXEC)) == NULL);
}

/* The table is full, but does not contain the id. */
static void test_full(void)
{
	struct index full = good;

	for (size_t i = 0; i < SLOTS; i++) {
		full.ids[i] = i;
		full.rows[i] = 1;
	}
	CHECK(extract(&full, ID) == NULL);
}

/* An offset beyond the strings becomes the offset of an empty string. */
static void test_strings(void)
{
	static const uint32_t offsets[] = { 0, 1 };
	struct index index = good;
	g_autoptr(GByteArray) unit = NULL;

	index.offsets[2] = 0;
	unit = extract(&index, ID);
	CHECK(unit != NULL && has(unit, offsets, sizeof(offsets)));
}

int main(void)
{
	RUN(test_extracted);
	RUN(test_hostile);
	RUN(test_full);
	RUN(test_strings);
	return test_end();
}
