/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of tools/symbols on generated files: which of several symbols is used, symbols without a
 * size, stripped code, files that are not the recorded ones, and invalid tables. test-symbols-real
 * reads real files.
 */
#include "tests/unit/elf-builder.h"
#include "tests/unit/test.h"
#include "tools/symbols/symbols-source.h"

#include <gio/gio.h>
#include <sys/auxv.h>
#include <sys/stat.h>

#define TEXT (BUILD_TEXT_OFFSET + BUILD_CODE_BIAS)
#define FINI (BUILD_FINI_OFFSET + BUILD_CODE_BIAS)
#define OFFSET(at) (BUILD_TEXT_OFFSET + (at))

static const struct symbols_image file_image = { .path = "/usr/lib/libx.so.1",
						 .kind = PROF_IMAGE_FILE };

static void free_symbols(struct symbols **symbols)
{
	symbols_free(*symbols);
}
#define CLEANUP_SYMBOLS CLEANUP(free_symbols)

static struct symbols *read_all(const struct symbols_image *image, int fd, const uint64_t *offsets,
				size_t n)
{
	g_autoptr(GError) error = NULL;
	struct symbols *symbols = NULL;

	if (!CHECK(symbols_read(image, fd, offsets, n, &symbols, &error)))
		abort();
	return symbols;
}

static const struct symbol *row_at(const struct symbols *symbols, size_t i)
{
	return symbols->row_of[i] == SYMBOLS_NONE ? NULL : &symbols->rows[symbols->row_of[i]];
}

/* Checks name, start and length of the symbol at one offset; name NULL: there is no symbol. */
static void check_place(const struct build *build, uint64_t offset, const char *name,
			uint64_t start, uint64_t length)
{
	CLEANUP_CLOSE int fd = build_elf(build);
	CLEANUP_SYMBOLS struct symbols *symbols = read_all(&file_image, fd, &offset, 1);
	const struct symbol *row = row_at(symbols, 0);

	CHECK_INT(symbols->state, SYMBOLS_READ);
	CHECK_STR(row ? row->name : NULL, name);
	if (!row || !name)
		return;
	CHECK_INT(row->start, start);
	CHECK_INT(row->length, length);
	CHECK(row->file == NULL && row->line == 0 && row->inline_parent == SYMBOLS_NONE);
}

static void test_preference(void)
{
	static const struct build_symbol symbols[] = {
		{ TEXT + 0x10, 0x10, "local", STT_FUNC, STB_LOCAL },
		{ TEXT + 0x10, 0x10, "__global", STT_FUNC, STB_GLOBAL },
		{ TEXT + 0x10, 0x10, "_global", STT_FUNC, STB_GLOBAL },
		{ TEXT + 0x10, 0x10, "weak", STT_FUNC, STB_WEAK },
		{ TEXT + 0x10, 0, "unsized", STT_FUNC, STB_GLOBAL },
		{ TEXT + 0x10, 0x10, "label", STT_NOTYPE, STB_GLOBAL },
		{ TEXT + 0x20, 0x10, "same", STT_FUNC, STB_GLOBAL },
		{ TEXT + 0x20, 0x10, "same_but_longer", STT_FUNC, STB_GLOBAL, true },
		{ TEXT + 0x30, 0x10, "data", STT_OBJECT, STB_GLOBAL },
		{ TEXT + 0x40, 0x10, "resolver", STT_GNU_IFUNC, STB_GLOBAL, true },
		{ TEXT + 0x50, 0x10, "versioned@@LIB_2.0", STT_FUNC, STB_GLOBAL },
		{ TEXT + 0x60, 0x10, "_ZN3foo3barEi@LIB_1", STT_FUNC, STB_GLOBAL },
		{ TEXT + 0x70, 0x10, "cfree@LIB_1", STT_FUNC, STB_GLOBAL },
		{ TEXT + 0x70, 0x10, "free@@LIB_1", STT_FUNC, STB_WEAK },
	};
	const struct build build = { .symbols = symbols, .n_symbols = ARRAY_SIZE(symbols) };
	CLEANUP_CLOSE int fd = build_elf(&build);
	const uint64_t offsets[] = { OFFSET(0x50), OFFSET(0x61) };
	CLEANUP_SYMBOLS struct symbols *names = read_all(&file_image, fd, offsets, 2);

	check_place(&build, OFFSET(0x10), "_global", OFFSET(0x10), 0x10);
	check_place(&build, OFFSET(0x1f), "_global", OFFSET(0x10), 0x10);
	check_place(&build, OFFSET(0x20), "same_but_longer", OFFSET(0x20), 0x10);
	check_place(&build, OFFSET(0x30), NULL, 0, 0);
	check_place(&build, OFFSET(0x0f), NULL, 0, 0);
	check_place(&build, OFFSET(0x4f), "resolver", OFFSET(0x40), 0x10);
	check_place(&build, OFFSET(0x70), "free", OFFSET(0x70), 0x10);
	REQUIRE(names->n_rows == 2);
	CHECK_STR(names->rows[0].name, "versioned");
	CHECK_STR(names->rows[0].raw_name, "versioned@@LIB_2.0");
	CHECK_STR(names->rows[1].name, "foo::bar(int)");
	CHECK_STR(names->rows[1].raw_name, "_ZN3foo3barEi@LIB_1");
}

/* Writes names of any length after the end of the file. `table`: position of its symbols; the null
 * symbol comes first. */
static void rename_symbols(int fd, off_t table, char *const *names, size_t n)
{
	uint32_t at = 1;

	for (size_t i = 0; i < n; i++) {
		size_t size = strlen(names[i]) + 1;

		CHECK(pwrite(fd, &at, sizeof(at), table + (off_t)((i + 1) * sizeof(Elf64_Sym))) >
		      0);
		CHECK(pwrite(fd, names[i], size, (off_t)BUILD_FILE_BYTES + at) == (ssize_t)size);
		at += (uint32_t)size;
	}
	for (off_t section = BUILD_SECTIONS_OFFSET;; section += (off_t)sizeof(Elf64_Shdr)) {
		Elf64_Shdr header;

		REQUIRE(pread(fd, &header, sizeof(header), section) == sizeof(header));
		if (header.sh_type != SHT_STRTAB)
			continue;
		header.sh_offset = BUILD_FILE_BYTES;
		header.sh_size = at;
		CHECK(pwrite(fd, &header, sizeof(header), section) > 0);
		return;
	}
}

static void test_long_names(void)
{
	static char longest[16384 + 1], longer[40000], wide[40000];
	static char *const names[] = { longest, longer, wide };
	static const struct build_symbol symbols[] = {
		{ TEXT + 0x10, 0x10, "a", STT_FUNC, STB_GLOBAL },
		{ TEXT + 0x20, 0x10, "b", STT_FUNC, STB_GLOBAL },
		{ TEXT + 0x30, 0x10, "c", STT_FUNC, STB_GLOBAL },
	};
	const struct build build = { .symbols = symbols, .n_symbols = ARRAY_SIZE(symbols) };
	const uint64_t offsets[] = { OFFSET(0x10), OFFSET(0x20), OFFSET(0x30) };
	CLEANUP_CLOSE int fd = build_elf(&build);

	memset(longest, 'a', sizeof(longest) - 1);
	memset(longer, 'b', sizeof(longer) - 1);
	for (size_t i = 0; i + 2 < sizeof(wide); i += 2)
		memcpy(wide + i, "\u00e9", 2);
	rename_symbols(fd, 0x3000, names, ARRAY_SIZE(names));
	CLEANUP_SYMBOLS struct symbols *read = read_all(&file_image, fd, offsets, 3);

	REQUIRE(read->n_rows == 3);
	CHECK_STR(read->rows[0].name, longest);
	CHECK_INT(strlen(read->rows[1].name), 16384);
	CHECK(memcmp(read->rows[1].name, longer, 16381) == 0);
	CHECK_STR(read->rows[1].name + 16381, "...");
	/* not cut within a character */
	CHECK_INT(strlen(read->rows[2].name), 16383);
	CHECK(memcmp(read->rows[2].name, wide, 16380) == 0);
}

static void test_overlapping(void)
{
	static const struct build_symbol symbols[] = {
		{ TEXT + 0x100, 0x100, "outer", STT_FUNC, STB_GLOBAL },
		{ TEXT + 0x120, 0x10, "inner", STT_FUNC, STB_LOCAL },
		{ TEXT + 0x1f0, 0x100, "across", STT_FUNC, STB_GLOBAL },
		{ TEXT + 0x7f0, UINT64_MAX, "endless", STT_FUNC, STB_GLOBAL },
	};
	const struct build build = { .symbols = symbols, .n_symbols = ARRAY_SIZE(symbols) };
	const uint64_t offsets[] = { OFFSET(0x100), OFFSET(0x120), OFFSET(0x12f), OFFSET(0x130),
				     OFFSET(0x1f0), OFFSET(0x2f0), OFFSET(0x7f8), OFFSET(0x800) };
	static const char *const names[] = { "outer",  "inner", "inner",   "outer",
					     "across", NULL,    "endless", NULL };
	CLEANUP_CLOSE int fd = build_elf(&build);
	CLEANUP_SYMBOLS struct symbols *read =
		read_all(&file_image, fd, offsets, ARRAY_SIZE(offsets));

	for (size_t i = 0; i < ARRAY_SIZE(offsets); i++) {
		const struct symbol *row = row_at(read, i);

		CHECK_STR(row ? row->name : NULL, names[i]);
		CHECK(!row || (row->start <= offsets[i] && offsets[i] - row->start < row->length));
	}
	REQUIRE(read->n_rows == 4); /* the outer function has only one row */
	for (size_t i = 1; i < read->n_rows; i++)
		CHECK(read->rows[i - 1].start < read->rows[i].start);
	CHECK_INT(read->rows[3].length, 0x10); /* cut at the end of the section */
}

static void test_without_size(void)
{
	static const struct build_symbol symbols[] = {
		{ TEXT + 0x10, 0, "entry", STT_NOTYPE, STB_LOCAL },
		{ TEXT + 0x40, 0x10, "sized", STT_FUNC, STB_GLOBAL },
		{ TEXT + 0x100, 0, "framed", STT_FUNC, STB_GLOBAL },
		{ TEXT + 0x200, 0, "_ZN5plain4codeEv", STT_FUNC, STB_GLOBAL },
		{ TEXT + 0x7f0, 0, "last", STT_FUNC, STB_GLOBAL },
		{ FINI, 0, "_fini", STT_FUNC, STB_GLOBAL, true },
		{ FINI + 0x40, 0, "$x", STT_NOTYPE, STB_LOCAL },
		{ FINI + 0x48, 0, ".Llabel", STT_NOTYPE, STB_LOCAL },
	};
	static const struct build_fde fdes[] = { { TEXT + 0x100, 0x20 },
						 { TEXT + 0x140, 0x20 },
						 { TEXT + 0x240, 0x10 } };
	struct build build = { .symbols = symbols,
			       .n_symbols = ARRAY_SIZE(symbols),
			       .fdes = fdes,
			       .n_fdes = ARRAY_SIZE(fdes) };

	for (int i = 0; i < 2; i++) {
		build.no_table = i == 1;
		check_place(&build, OFFSET(0x08), NULL, 0, 0);
		check_place(&build, OFFSET(0x10), "entry", OFFSET(0x10), 0x30);
		check_place(&build, OFFSET(0x3f), "entry", OFFSET(0x10), 0x30);
		check_place(&build, OFFSET(0x50), NULL, 0, 0);
		check_place(&build, OFFSET(0x110), "framed", OFFSET(0x100), 0x20);
		check_place(&build, OFFSET(0x130), "framed+?", OFFSET(0x120), 0x20);
		check_place(&build, OFFSET(0x150), "libx.so.1+0x1140", OFFSET(0x140), 0x20);
		check_place(&build, OFFSET(0x170), "framed+?", OFFSET(0x160), 0xa0);
		check_place(&build, OFFSET(0x230), "plain::code()", OFFSET(0x200), 0x40);
		check_place(&build, OFFSET(0x245), "libx.so.1+0x1240", OFFSET(0x240), 0x10);
		check_place(&build, OFFSET(0x250), "plain::code()+?", OFFSET(0x250), 0x5a0);
		check_place(&build, OFFSET(0x7ff), "last", OFFSET(0x7f0), 0x10);
		check_place(&build, BUILD_FINI_OFFSET + 0x50, "_fini", BUILD_FINI_OFFSET,
			    BUILD_FINI_BYTES);
	}
}

static void test_stripped(void)
{
	static const struct build_fde fdes[] = { { TEXT, 0x10 },
						 { TEXT + 0x20, 0x30 },
						 { TEXT + 0x100, 0x100 } };
	struct build build = { .fdes = fdes, .n_fdes = ARRAY_SIZE(fdes) };

	for (int i = 0; i < 4; i++) {
		build.no_table = i & 1;
		build.no_sections = i == 2;
		check_place(&build, OFFSET(0), "libx.so.1+0x1000", OFFSET(0), 0x10);
		check_place(&build, OFFSET(0x10), NULL, 0, 0);
		check_place(&build, OFFSET(0x4f), "libx.so.1+0x1020", OFFSET(0x20), 0x30);
		check_place(&build, OFFSET(0x1ff), "libx.so.1+0x1100", OFFSET(0x100), 0x100);
		check_place(&build, OFFSET(0x200), NULL, 0, 0);
	}
}

static void test_lying_table(void)
{
	static const struct build_fde fdes[] = { { TEXT, 0x10 }, { TEXT + 0x20, 0x30 } };
	const struct build build = { .fdes = fdes,
				     .n_fdes = ARRAY_SIZE(fdes),
				     .lying_table = true };

	check_place(&build, OFFSET(0x04), "libx.so.1+0x1000", OFFSET(0), 0x10);
	check_place(&build, OFFSET(0x24), NULL, 0, 0);
}

static void test_garbage(void)
{
	static const struct build_symbol symbols[] = {
		{ TEXT + 0x00, 0x10, "doorbell\a", STT_FUNC, STB_GLOBAL },
		{ TEXT + 0x10, 0x10, "\377\376", STT_FUNC, STB_GLOBAL },
		{ TEXT + 0x20, 0x10, "caf\303\251", STT_FUNC, STB_GLOBAL },
		{ TEXT + 0x30, 0x10, "\033[2J", STT_FUNC, STB_GLOBAL },
		{ TEXT + 0x40, 0x10, "@", STT_FUNC, STB_GLOBAL },
		{ TEXT + 0x50, 0x10, "", STT_FUNC, STB_GLOBAL },
	};
	static const struct build_fde fdes[] = { { TEXT, 0x10 } };
	const struct build build = {
		.symbols = symbols, .n_symbols = ARRAY_SIZE(symbols), .fdes = fdes, .n_fdes = 1
	};

	check_place(&build, OFFSET(0x00), "doorbell\\x07", OFFSET(0), 0x10);
	check_place(&build, OFFSET(0x10), "\357\277\275\357\277\275", OFFSET(0x10), 0x10);
	check_place(&build, OFFSET(0x20), "caf\303\251", OFFSET(0x20), 0x10);
	check_place(&build, OFFSET(0x30), "\\x1b[2J", OFFSET(0x30), 0x10);
	check_place(&build, OFFSET(0x40), "@", OFFSET(0x40), 0x10);
	check_place(&build, OFFSET(0x50), NULL, 0, 0);
}

static void test_changed(void)
{
	static const struct build_symbol symbols[] = { { TEXT, 0x10, "f", STT_FUNC, STB_GLOBAL } };
	struct build build = {
		.symbols = symbols, .n_symbols = 1, .build_id = { 1, 2, 3 }, .build_id_size = 20
	};
	struct symbols_image image = { .path = "x",
				       .build_id = build.build_id,
				       .build_id_size = 20 };
	CLEANUP_CLOSE int same = build_elf(&build);
	CLEANUP_CLOSE int other = -1, without = -1;
	const uint64_t offset = OFFSET(0);
	struct stat st;

	build.build_id[19] = 7;
	other = build_elf(&build);
	build.build_id[19] = 0;
	build.build_id_size = 0;
	without = build_elf(&build);
	REQUIRE(fstat(without, &st) == 0);
	for (int i = 0; i < 7; i++) {
		CLEANUP_SYMBOLS struct symbols *read = NULL;

		image.build_id_size = i < 3 ? 20 : 0;
		image.size = i == 4 ? 4711 : i > 4 ? (uint64_t)st.st_size : 0;
		image.inode = i == 5 ? st.st_ino + 1 : i == 6 ? st.st_ino : 0;
		read = read_all(&image, i == 0 ? same : i == 1 ? other : without, &offset, 1);
		CHECK_INT(read->state, i == 0 || i == 3 || i == 6 ? SYMBOLS_READ : SYMBOLS_CHANGED);
		CHECK_INT(read->row_of[0] != SYMBOLS_NONE, read->state == SYMBOLS_READ);
		CHECK_INT(read->n_rows, read->state == SYMBOLS_READ);
	}
}

static void test_no_file(void)
{
	const struct symbols_image kernel = { .path = "[kernel]", .kind = PROF_IMAGE_KERNEL };
	CLEANUP_CLOSE int text = memfd_create("text", MFD_CLOEXEC);
	CLEANUP_CLOSE int folder = open("/", O_RDONLY | O_CLOEXEC);
	g_autoptr(GError) error = NULL;
	const uint64_t offset = 64;
	CLEANUP_SYMBOLS struct symbols *missing = read_all(&file_image, -1, &offset, 1);
	CLEANUP_SYMBOLS struct symbols *of_kernel = read_all(&kernel, -1, &offset, 1);
	CLEANUP_SYMBOLS struct symbols *empty = read_all(&file_image, text, NULL, 0);
	struct symbols *failed = NULL;

	CHECK_INT(missing->state, SYMBOLS_NO_FILE);
	CHECK_INT(missing->row_of[0], SYMBOLS_NONE);
	CHECK_INT(of_kernel->state, SYMBOLS_NO_FILE);
	CHECK_INT(empty->state, SYMBOLS_UNKNOWN_FORMAT);
	CHECK_INT(empty->n_rows, 0);
	CHECK(!symbols_read(&file_image, folder, &offset, 1, &failed, &error));
	CHECK(failed == NULL);
	CHECK(g_error_matches(error, G_IO_ERROR, G_IO_ERROR_IS_DIRECTORY));
}

static void test_offset_name(void)
{
	static const struct {
		const char *path;
		const char *name;
	} cases[] = {
		{ "/usr/lib/libc.so.6", "libc.so.6+0x1f" },
		{ "[vdso]", "[vdso]+0x1f" },
		{ "/a/", "/a/+0x1f" },
		{ "", "?+0x1f" },
		{ NULL, "?+0x1f" },
		{ "a\377b", "a\357\277\275b+0x1f" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const struct symbols_image image = { .path = cases[i].path };
		g_autofree char *name = symbols_offset_name(&image, 0x1f);

		CHECK_STR(name, cases[i].name);
	}
}

static void free_elf(struct elf_image **image)
{
	elf_image_free(*image);
}

static void test_round_trip(void)
{
	const struct build build = { .n_symbols = 0 };
	CLEANUP_CLOSE int fd = build_elf(&build);
	CLEANUP(free_elf) struct elf_image *elf = elf_image_open(fd);
	uint64_t address, offset;

	REQUIRE(elf != NULL);
	for (uint64_t i = 0; i < 0x3000; i += 0xfff) {
		REQUIRE(elf_image_get_address(elf, i, &address));
		REQUIRE(elf_image_get_offset(elf, address, &offset));
		CHECK_INT(offset, i);
	}
	CHECK(!elf_image_get_address(elf, 0x3000, &address));
	CHECK(!elf_image_get_offset(elf, 0, &offset));
}

/* A truncated file only loses names. Cuts the file at many lengths; the headers are those of the
 * complete file. */
static void test_truncated(void)
{
	static const struct build_symbol symbols[] = { { TEXT, 0x10, "f", STT_FUNC, STB_GLOBAL } };
	static const struct build_fde fdes[] = { { TEXT, 0x10 }, { TEXT + 0x20, 0x30 } };
	const struct build build = {
		.symbols = symbols, .n_symbols = 1, .fdes = fdes, .n_fdes = 2
	};
	const uint64_t offsets[] = { OFFSET(0), OFFSET(0x20), OFFSET(0x60) };

	for (off_t size = BUILD_FILE_BYTES; size >= 0; size -= size > 0x80 ? 0x40 : 1) {
		CLEANUP_CLOSE int fd = build_elf(&build);
		CLEANUP_SYMBOLS struct symbols *read = NULL;

		REQUIRE(ftruncate(fd, size) == 0);
		read = read_all(&file_image, fd, offsets, 3);
		CHECK(read->n_rows <= 2);
	}
}

static void test_vdso(void)
{
	CLEANUP_CLOSE int fd = symbols_vdso_open();
	CLEANUP(free_elf) struct elf_image *elf = fd < 0 ? NULL : elf_image_open(fd);
	uint8_t id[ELF_IMAGE_MAX_BUILD_ID];
	const void *own;
	struct symbols_image image = { .path = "[vdso]", .build_id = id, .kind = PROF_IMAGE_VDSO };
	CLEANUP_SYMBOLS struct symbols *right = NULL, *wrong = NULL, *unknown = NULL;
	static uint64_t offsets[4096];

	if (getauxval(AT_SYSINFO_EHDR) == 0)
		SKIP("no vdso");
	REQUIRE(elf != NULL);
	for (size_t i = 0; i < ARRAY_SIZE(offsets); i++)
		offsets[i] = i;
	unknown = read_all(&image, -1, offsets, ARRAY_SIZE(offsets));
	CHECK_INT(unknown->state, SYMBOLS_CHANGED);
	image.build_id_size = elf_image_get_build_id(elf, &own);
	REQUIRE(image.build_id_size > 0);
	memcpy(id, own, image.build_id_size);
	right = read_all(&image, -1, offsets, ARRAY_SIZE(offsets));
	CHECK_INT(right->state, SYMBOLS_READ);
	CHECK(right->n_rows > 0);
	for (size_t i = 0; i < right->n_rows; i++)
		CHECK(strstr(right->rows[i].name, "vdso") != NULL ||
		      right->rows[i].origin != SYMBOLS_FROM_FDE);
	id[0] ^= 1;
	wrong = read_all(&image, -1, offsets, ARRAY_SIZE(offsets));
	CHECK_INT(wrong->state, SYMBOLS_CHANGED);
}

/* Finds the innermost of many overlapping symbols, for many places. */
static void test_many_overlapping(void)
{
	static struct build_symbol symbols[80];
	static uint64_t offsets[BUILD_TEXT_BYTES];
	const struct build build = { .symbols = symbols, .n_symbols = ARRAY_SIZE(symbols) };
	CLEANUP_CLOSE int fd = -1;
	CLEANUP_SYMBOLS struct symbols *read = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(symbols); i++)
		symbols[i] = (struct build_symbol){ TEXT + i, BUILD_TEXT_BYTES - i, "f", STT_FUNC,
						    STB_GLOBAL };
	for (size_t i = 0; i < ARRAY_SIZE(offsets); i++)
		offsets[i] = OFFSET(ARRAY_SIZE(offsets) - 1 - i); /* in descending order */
	fd = build_elf(&build);
	read = read_all(&file_image, fd, offsets, ARRAY_SIZE(offsets));
	CHECK_INT(read->n_rows, ARRAY_SIZE(symbols));
	for (size_t i = 0; i < ARRAY_SIZE(offsets); i++)
		CHECK_INT(read->rows[read->row_of[i]].start,
			  OFFSET(MIN_OF(offsets[i] - OFFSET(0), ARRAY_SIZE(symbols) - 1)));
}

int main(void)
{
	RUN(test_preference);
	RUN(test_long_names);
	RUN(test_overlapping);
	RUN(test_without_size);
	RUN(test_stripped);
	RUN(test_lying_table);
	RUN(test_garbage);
	RUN(test_changed);
	RUN(test_no_file);
	RUN(test_offset_name);
	RUN(test_round_trip);
	RUN(test_truncated);
	RUN(test_vdso);
	RUN(test_many_overlapping);
	return test_end();
}
