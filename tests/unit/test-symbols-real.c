/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of tools/symbols on files of this machine, compared with binutils: nm has the same name at
 * the start of each symbol, and a stripped function equals an FDE in readelf's output. Skips files
 * that are not installed; libc always is. Prints time and memory for each file.
 */
#include "arch/base.h"
#include "tests/unit/test.h"
#include "tools/symbols/elf-image.h"
#include "tools/symbols/symbols.h"

#include <fcntl.h>
#include <time.h>

#define PLACES 2000

static const char *const files[] = {
	"/lib/x86_64-linux-gnu/libc.so.6",
	"/lib/aarch64-linux-gnu/libc.so.6",
	"/usr/bin/python3",
	"/usr/bin/git",
	"/usr/lib/gcc/x86_64-linux-gnu/12/cc1",
	"/usr/bin/node",
	"/proc/self/exe",
};

struct known {
	uint64_t address;
	uint64_t length; /* length of an FDE */
	char *name;      /* name of a symbol */
};

static uint64_t now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static void free_symbols(struct symbols **symbols)
{
	symbols_free(*symbols);
}

static void free_elf(struct elf_image **image)
{
	elf_image_free(*image);
}

static void close_pipe(FILE **file)
{
	if (*file)
		pclose(*file);
}

static void clear_known(void *data)
{
	free(((struct known *)data)->name);
}

static int compare_known(const void *a, const void *b)
{
	const struct known *left = a, *right = b;

	return (left->address > right->address) - (left->address < right->address);
}

/* Picks offsets that are spread over the code. */
static size_t pick_offsets(const struct elf_image *elf, uint64_t *offsets)
{
	uint64_t total = 0, step, at = 0;
	size_t n = 0;

	for (size_t i = 0; i < elf->n_code; i++)
		total += elf->code[i].end - elf->code[i].start;
	step = total / PLACES + 1;
	for (size_t i = 0; i < elf->n_code; i++) {
		uint64_t size = elf->code[i].end - elf->code[i].start;

		for (; at < size && n < PLACES; at += step)
			if (elf_image_get_offset(elf, elf->code[i].start + at, &offsets[n]))
				n++;
		at -= MIN_OF(at, size);
	}
	return n;
}

/* Reads lines "ADDRESS TYPE NAME" of nm; code symbols only. */
static void read_nm(const char *path, const char *option, GArray *known)
{
	g_autofree char *command = g_strdup_printf("nm %s %s 2>/dev/null", option, path);
	CLEANUP(close_pipe) FILE *file = popen(command, "re");
	static char line[1 << 16];

	while (file && fgets(line, sizeof(line), file)) {
		struct known symbol;
		char type;
		int at;

		if (sscanf(line, "%" SCNx64 " %c %n", &symbol.address, &type, &at) < 2 ||
		    !strchr("tTwWiVu", type))
			continue;
		line[strcspn(line, "\n")] = '\0';
		symbol.name = strdup(line + at);
		g_array_append_val(known, symbol);
	}
}

/* Reads lines such as "… FDE cie=00000000 pc=0000000000026000..0000000000026360". */
static void read_fdes(const char *path, GArray *known)
{
	g_autofree char *command =
		g_strdup_printf("readelf --wide --debug-dump=frames %s 2>/dev/null", path);
	CLEANUP(close_pipe) FILE *file = popen(command, "re");
	char line[4096];

	while (file && fgets(line, sizeof(line), file)) {
		struct known fde = { .name = NULL };
		const char *range = strstr(line, " pc=");
		uint64_t end;

		if (!range || sscanf(range, " pc=%" SCNx64 "..%" SCNx64, &fde.address, &end) != 2)
			continue;
		fde.length = end - fde.address;
		g_array_append_val(known, fde);
	}
}

/* Returns the index of the first entry that is not before an address. */
static guint find_known(const GArray *known, uint64_t address)
{
	guint low = 0, high = known->len;

	while (low < high) {
		guint middle = low + (high - low) / 2;

		if (g_array_index(known, struct known, middle).address < address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool is_known_symbol(const GArray *known, uint64_t address, const char *raw_name)
{
	size_t length = strcspn(raw_name, "@");

	for (guint i = find_known(known, address); i < known->len; i++) {
		const struct known *symbol = &g_array_index(known, struct known, i);

		if (symbol->address != address)
			break;
		if (strncmp(symbol->name, raw_name, length) == 0)
			return true;
	}
	return false;
}

/* Returns the FDE that readelf shows for an address. */
static const struct known *find_fde(const GArray *known, uint64_t address)
{
	guint at = find_known(known, address + 1);
	const struct known *fde = at > 0 ? &g_array_index(known, struct known, at - 1) : NULL;

	return fde && address - fde->address < fde->length ? fde : NULL;
}

static void check_row(const struct elf_image *elf, const struct symbol *row, const GArray *names,
		      const GArray *fdes)
{
	uint64_t address = 0;
	const struct known *fde;

	CHECK(elf_image_get_address(elf, row->start, &address));
	if (row->origin == SYMBOLS_FROM_TABLE) {
		if (!CHECK(is_known_symbol(names, address, row->raw_name)))
			printf("# %s at 0x%" PRIx64 "\n", row->raw_name, address);
	} else if (row->origin == SYMBOLS_FROM_FDE) {
		fde = find_fde(fdes, address);
		if (!CHECK(fde && fde->address == address && fde->length == row->length))
			printf("# %s at 0x%" PRIx64 "\n", row->name, address);
	} else if (row->origin == SYMBOLS_BEYOND) {
		CHECK(g_str_has_suffix(row->name, "+?") && find_fde(fdes, address) == NULL);
	} else {
		CHECK(g_str_has_suffix(row->name, "@plt"));
	}
}

/* If no source has a name for a place, no FDE contains it either. */
static void check_open(const struct elf_image *elf, uint64_t offset, const GArray *fdes)
{
	uint64_t address = 0;

	CHECK(elf_image_get_address(elf, offset, &address));
	if (!CHECK(find_fde(fdes, address) == NULL))
		printf("# 0x%" PRIx64 "\n", address);
}

static void check_all(const char *path, const struct elf_image *elf, const struct symbols *symbols,
		      const uint64_t *offsets)
{
	g_autoptr(GArray) names = g_array_new(FALSE, FALSE, sizeof(struct known));
	g_autoptr(GArray) fdes = g_array_new(FALSE, FALSE, sizeof(struct known));

	g_array_set_clear_func(names, clear_known);
	read_nm(path, "", names);
	read_nm(path, "-D", names);
	read_fdes(path, fdes);
	g_array_sort(names, compare_known);
	g_array_sort(fdes, compare_known);
	CHECK(names->len + fdes->len > 0);
	/* for names from DWARF, test_debug_places compares with addr2line */
	for (size_t i = 0; i < symbols->n_rows; i++)
		if (symbols->rows[i].origin != SYMBOLS_FROM_DWARF)
			check_row(elf, &symbols->rows[i], names, fdes);
	for (size_t i = 0; i < symbols->n_offsets; i++)
		if (symbols->row_of[i] == SYMBOLS_NONE)
			check_open(elf, offsets[i], fdes);
}

static void check_file(const char *path)
{
	CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
	CLEANUP(free_elf) struct elf_image *elf = fd < 0 ? NULL : elf_image_open(fd);
	CLEANUP(free_symbols) struct symbols *symbols = NULL;
	const void *id;
	struct symbols_image image = { .path = path };
	g_autoptr(GError) error = NULL;
	uint64_t offsets[PLACES], begin;
	size_t n, counts[SYMBOLS_FROM_FDE + 1] = { 0 };

	REQUIRE(elf != NULL);
	n = pick_offsets(elf, offsets);
	image.build_id_size = elf_image_get_build_id(elf, &id);
	image.build_id = id;
	begin = now_us();
	REQUIRE(symbols_read(&image, fd, offsets, n, &symbols, &error));
	begin = now_us() - begin;
	CHECK_INT(symbols->state, SYMBOLS_READ);
	for (size_t i = 0; i < n; i++)
		if (symbols->row_of[i] != SYMBOLS_NONE)
			counts[symbols->rows[symbols->row_of[i]].origin]++;
	printf("# %s: %zu places in %" PRIu64 " us: %zu by table, %zu by PLT, %zu by FDE\n", path,
	       n, begin, counts[SYMBOLS_FROM_TABLE], counts[SYMBOLS_FROM_PLT],
	       counts[SYMBOLS_FROM_FDE]);
	CHECK(counts[SYMBOLS_FROM_TABLE] + counts[SYMBOLS_FROM_PLT] + counts[SYMBOLS_FROM_FDE] >
	      n / 2);
	check_all(path, elf, symbols, offsets);
}

static void test_files(void)
{
	g_autofree char *self = g_file_read_link("/proc/self/exe", NULL);

	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		const char *path = strcmp(files[i], "/proc/self/exe") == 0 ? self : files[i];

		if (access(path, R_OK) == 0)
			check_file(path);
	}
}

int main(void)
{
	RUN(test_files);
	return test_end();
}
