/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * symbols_read() compares the file with the image, turns offsets into places (sorted ELF
 * addresses), and queries each source in turn for the places that have no name yet. For each place
 * that it can name, a source calls symbols_query_add(), which checks and demangles the name, and
 * stores each row once. To add a source, add a line to `sources`. Without a file, the vdso is this
 * process's copy: the kernel maps the same image into every process, and the build-id differs if
 * the capture is from another machine or kernel.
 * Invariants: (1) no name comes from a file that is not the recorded one  [test-symbols: changed]
 *             (2) a row covers every place that maps to it  [test-symbols: overlapping]
 *             (3) names are valid UTF-8 without control characters, and never empty
 *                 [test-symbols: garbage]
 *             (4) an inlined row comes after the row into which it is inlined
 *                 [test_symbolize_lines]
 * No global state: several threads can read images. Names of kernel code are in the capture (the
 * engine reads kallsyms); names of anonymous memory are those that the process gave it
 * (code-names.h).
 */
#include "tools/symbols/symbols.h"

#include "arch/base.h"
#include "arch/go-table.h"
#include "base/order.h"
#include "tools/common/sorted.h"
#include "tools/common/text.h"
#include "tools/symbols/clone-suffix.h"
#include "tools/symbols/demangle.h"
#include "tools/symbols/symbols-source.h"

#include <errno.h>
#include <gio/gio.h>
#include <glib/gi18n.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define MAX_NAME_BYTES 16384

void symbols_free(struct symbols *symbols)
{
	if (!symbols)
		return;
	g_free(symbols->rows);
	g_free(symbols->row_of);
	g_free(symbols->lines);
	g_clear_pointer(&symbols->strings, g_string_chunk_free);
	g_free(symbols);
}

char *symbols_offset_name(const struct symbols_image *image, uint64_t offset)
{
	g_autofree char *valid = NULL;
	const char *path = image->path && image->path[0] ? image->path : "?";
	const char *slash = strrchr(path, '/');

	valid = g_utf8_make_valid(slash && slash[1] ? slash + 1 : path, -1);
	return g_strdup_printf("%s+0x%" G_GINT64_MODIFIER "x", valid, offset);
}

/* ---- Rows ---- */

static guint hash_row(const void *key)
{
	const struct symbol *row = key;

	return g_str_hash(row->raw_name) ^ (guint)(row->start * 0x9e3779b1u) ^ (guint)row->length ^
	       row->inline_parent * 31 ^ (row->inline_parent == SYMBOLS_NONE ? 0 : row->line);
}

static gboolean same_row(const void *a, const void *b)
{
	const struct symbol *left = a, *right = b;

	return left->start == right->start && left->length == right->length &&
	       left->inline_parent == right->inline_parent &&
	       (left->inline_parent == SYMBOLS_NONE || left->line == right->line) &&
	       strcmp(left->raw_name, right->raw_name) == 0;
}

/* Returns how many bytes of a long name are kept; does not cut within a character. */
static size_t length_of_cut(const char *name)
{
	size_t length = MAX_NAME_BYTES - 3;

	while (length > 1 && (name[length] & 0xc0) == 0x80)
		length--;
	return length;
}

static bool is_printable(const char *name, size_t length)
{
	if (!g_utf8_validate(name, (gssize)length, NULL))
		return false;
	for (size_t i = 0; i < length; i++)
		if ((unsigned char)name[i] < ' ' || name[i] == 0x7f)
			return false;
	return true;
}

/* Returns the stored form of a name; NULL if `name` is NULL or empty. An ELF file may name a
 * function with any bytes: bytes that are not printable are escaped, as in names of generated code.
 * Names that are too long end in "...". */
static const char *take_name(struct symbols_query *query, const char *name)
{
	size_t length = name ? strnlen(name, MAX_NAME_BYTES + 1) : 0;
	g_autofree char *printable = NULL, *cut = NULL;

	if (length == 0)
		return NULL;
	/* A long name is cut, so only the bytes before the cut must be printable. */
	if (!is_printable(name, length) &&
	    !(length > MAX_NAME_BYTES && is_printable(name, length_of_cut(name)))) {
		printable = text_escape_utf8(name, length);
		name = g_string_chunk_insert_const(query->result->strings, printable);
		length = strnlen(name, MAX_NAME_BYTES + 1);
	}
	if (length > MAX_NAME_BYTES) {
		cut = g_strdup_printf("%.*s...", (int)length_of_cut(name), name);
		name = g_string_chunk_insert_const(query->result->strings, cut);
	}
	return name;
}

/* Stores and returns the name to show: "foo" for "foo@@GLIBC_2.2" and "foo.isra.0", with the suffix
 * of the origin. Returns NULL if the name to show equals raw_name. */
static const char *add_shown_name(struct symbols_query *query, const char *raw_name,
				  enum symbols_origin origin)
{
	g_autofree char *base = NULL, *readable = NULL, *shown = NULL;
	const char *name;
	const char *at = origin == SYMBOLS_FROM_FDE ? NULL : strchr(raw_name, '@');

	base = at && at > raw_name ? g_strndup(raw_name, (gsize)(at - raw_name))
				   : g_strdup(raw_name);
	if (origin != SYMBOLS_FROM_FDE)
		base[clone_suffix_skip(base)] = '\0';
	readable = origin == SYMBOLS_FROM_FDE ? NULL : demangle_get(base);
	name = take_name(query, readable);
	shown = g_strconcat(name ? name : base,
			    origin == SYMBOLS_FROM_PLT ? "@plt"
			    : origin == SYMBOLS_BEYOND ? "+?"
						       : "",
			    NULL);
	return strcmp(shown, raw_name) == 0 ? NULL
					    : g_string_chunk_insert(query->result->strings, shown);
}

const char *symbols_query_add_text(struct symbols_query *query, const char *text)
{
	const char *name = take_name(query, text);

	return name ? g_string_chunk_insert_const(query->result->strings, name) : NULL;
}

uint32_t symbols_query_add_row(struct symbols_query *query, const struct symbol *symbol)
{
	struct symbol kept = *symbol, *row;
	void *known;

	kept.raw_name = take_name(query, symbol->raw_name);
	if (!kept.raw_name)
		return SYMBOLS_NONE;
	known = g_hash_table_lookup(query->row_by_key, &kept);
	if (known)
		return GPOINTER_TO_UINT(known) - 1;
	row = g_memdup2(&kept, sizeof(kept));
	row->raw_name = g_string_chunk_insert(query->result->strings, kept.raw_name);
	row->file = symbols_query_add_text(query, symbol->file);
	row->declared_file = symbols_query_add_text(query, symbol->declared_file);
	row->declared_line = row->declared_file ? symbol->declared_line : 0;
	row->name = add_shown_name(query, row->raw_name, symbol->origin);
	if (!row->name)
		row->name = row->raw_name;
	g_ptr_array_add(query->rows, row);
	g_hash_table_insert(query->row_by_key, row, GUINT_TO_POINTER(query->rows->len));
	return query->rows->len - 1;
}

void symbols_query_add(struct symbols_query *query, const struct symbols_place *place,
		       uint64_t start, uint64_t end, const char *raw_name,
		       enum symbols_origin origin)
{
	struct symbol symbol = {
		.length = end - start,
		.raw_name = raw_name,
		.inline_parent = SYMBOLS_NONE,
		.origin = origin,
	};
	uint64_t offset = query->offsets[place->index];

	/* Start and place must have the same distance in the file as in memory, else they are in
	 * different segments. */
	if (place->address >= start && place->address < end &&
	    elf_image_get_offset(query->elf, start, &symbol.start) && symbol.start <= offset &&
	    offset - symbol.start == place->address - start)
		query->result->row_of[place->index] = symbols_query_add_row(query, &symbol);
}

struct elf_frames *symbols_query_frames(struct symbols_query *query)
{
	if (!query->frames)
		query->frames = elf_frames_new(query->elf);
	return query->frames;
}

COMPARE_AT(compare_row_pointers, struct symbol, ORDER(a->inline_depth, b->inline_depth),
	   ORDER(a->start, b->start), ORDER(b->length, a->length))

/* Moves the rows into the result, sorted, and renumbers all references to them. */
static void finish_rows(struct symbols_query *query)
{
	g_autofree uint32_t *new_number = g_new(uint32_t, query->rows->len + 1);
	struct symbols *result = query->result;

	g_ptr_array_sort(query->rows, compare_row_pointers);
	result->n_rows = query->rows->len;
	result->rows = g_new(struct symbol, result->n_rows + 1);
	for (guint i = 0; i < query->rows->len; i++) {
		const struct symbol *row = g_ptr_array_index(query->rows, i);
		guint old = GPOINTER_TO_UINT(g_hash_table_lookup(query->row_by_key, row)) - 1;

		new_number[old] = i;
		result->rows[i] = *row;
	}
	for (size_t i = 0; i < result->n_offsets; i++)
		if (result->row_of[i] != SYMBOLS_NONE)
			result->row_of[i] = new_number[result->row_of[i]];
	for (size_t i = 0; i < result->n_rows; i++)
		if (result->rows[i].inline_parent != SYMBOLS_NONE)
			result->rows[i].inline_parent = new_number[result->rows[i].inline_parent];
	result->n_lines = query->lines->len;
	result->lines = (struct symbol_line *)(void *)g_array_steal(query->lines, NULL);
	for (size_t i = 0; i < result->n_lines; i++)
		if (result->lines[i].symbol != SYMBOLS_NONE)
			result->lines[i].symbol = new_number[result->lines[i].symbol];
}

/* ---- Places ---- */

void symbols_query_list_places(struct symbols_query *query, bool all)
{
	query->n_places = 0;
	for (size_t i = 0; i < query->result->n_offsets; i++) {
		struct symbols_place *place = &query->places[query->n_places];

		if ((!all && query->result->row_of[i] != SYMBOLS_NONE) ||
		    !elf_image_get_address(query->elf, query->offsets[i], &place->address))
			continue;
		place->index = (uint32_t)i;
		query->n_places++;
	}
	qsort(query->places, query->n_places, sizeof(*query->places), sorted_compare);
}

/* ---- The last sources ---- */

/*
 * Adds a row for each function, named by its start; otherwise each address of stripped code would
 * get its own row. The name has the image and the file offset of the function's first byte, so it
 * is the same in all recordings of the file.
 */
static void read_fdes(struct symbols_query *query)
{
	for (size_t i = 0; i < query->n_places; i++) {
		const struct symbols_place *place = &query->places[i];
		g_autofree char *name = NULL;
		struct elf_range function;
		uint64_t offset;

		if (!elf_frames_get(symbols_query_frames(query), place->address, &function) ||
		    !elf_image_get_offset(query->elf, function.start, &offset))
			continue;
		name = symbols_offset_name(query->image, offset);
		symbols_query_add(query, place, function.start, function.end, name,
				  SYMBOLS_FROM_FDE);
	}
}

/* Reads the names that a Go program keeps for its own stack traces. */
static void read_go_table(struct symbols_query *query)
{
	struct go_function function;
	struct go_table table;
	GElf_Shdr header;
	Elf_Scn *section = elf_image_get_section(query->elf, ".gopclntab", &header);
	Elf_Data *data;
	size_t text_at;

	if (!section)
		section = elf_image_get_section(query->elf, ".data.rel.ro.gopclntab", &header);
	data = section ? elf_image_get_data(query->elf, section) : NULL;
	if (!data || !go_table_init(&table, data->d_buf, data->d_size, &text_at))
		return;
	if (text_at > 0 && table.text == 0) {
		/* In a position-independent file, the address of the first function is in a
		 * relocation, or else it is the start of .text. */
		uint64_t address = header.sh_addr + text_at;

		section = elf_image_get_section(query->elf, ".rela.dyn", &header);
		data = section ? elf_image_get_data(query->elf, section) : NULL;
		if ((!data ||
		     !go_table_relocate(data->d_buf, data->d_size, address, &table.text)) &&
		    elf_image_get_section(query->elf, ".text", &header))
			table.text = header.sh_addr;
	}
	for (size_t i = 0; i < query->n_places; i++) {
		const struct symbols_place *place = &query->places[i];
		const char *name = go_table_find(&table, place->address, &function)
					   ? go_table_name(&table, &function)
					   : NULL;

		if (name)
			symbols_query_add(query, place, function.start, function.end, name,
					  SYMBOLS_FROM_GO);
	}
}

/* In the order of the queries. */
static void (*const sources[])(struct symbols_query *query) = {
	symbols_elf_read,
	symbols_plt_read,
	read_go_table,
	read_fdes,
};

static void read_names(struct symbols_query *query)
{
	query->places = g_new(struct symbols_place, query->result->n_offsets + 1);
	query->rows = g_ptr_array_new_with_free_func(g_free);
	query->row_by_key = g_hash_table_new(hash_row, same_row);
	query->lines = g_array_new(FALSE, FALSE, sizeof(struct symbol_line));
	query->debug = debug_files_find(query->image->debug_files, query->elf, query->image->path,
					query->image->names_only);
	query->packed = debug_files_unpack(query->elf);
	for (size_t i = 0; i < ARRAY_SIZE(sources); i++) {
		symbols_query_list_places(query, false);
		if (query->n_places == 0)
			break;
		sources[i](query);
	}
	if (query->debug && query->debug->dwarf)
		symbols_dwarf_read(query);
	finish_rows(query);
	g_array_unref(query->lines);
	g_hash_table_unref(query->row_by_key);
	g_ptr_array_unref(query->rows);
	g_free(query->places);
	elf_frames_free(query->frames);
	debug_file_free(query->debug);
	elf_image_free(query->packed);
}

/* ---- Identity ---- */

/*
 * Returns whether the file is the recorded one. If the capture has a build-id, that decides; a vdso
 * without one never matches; otherwise inode and size must match if they are known. The device is
 * not compared, because overlay file systems show a different one in /proc/PID/maps than in stat().
 */
static bool is_recorded_file(const struct symbols_image *image, const struct elf_image *elf,
			     const struct stat *st)
{
	const void *id;

	if (image->build_id_size > 0)
		return elf_image_get_build_id(elf, &id) == image->build_id_size &&
		       memcmp(id, image->build_id, image->build_id_size) == 0;
	if (image->kind == PROF_IMAGE_VDSO)
		return false;
	return (image->size == 0 || image->size == (uint64_t)st->st_size) &&
	       (image->inode == 0 || image->inode == st->st_ino);
}

static bool read_file(struct symbols_query *query, int fd, GError **error)
{
	CLEANUP_ELF struct elf_image *elf = NULL;
	struct stat st;
	char first;

	if (fstat(fd, &st) < 0 || pread(fd, &first, 1, 0) < 0) {
		g_set_error(error, G_IO_ERROR, g_io_error_from_errno(errno),
			    _("cannot read the names in '%s': %s; its functions stay unnamed"),
			    query->image->path ? query->image->path : "?", g_strerror(errno));
		return false;
	}
	query->elf = elf = elf_image_open(fd);
	query->result->state = !elf                                       ? SYMBOLS_UNKNOWN_FORMAT
			       : is_recorded_file(query->image, elf, &st) ? SYMBOLS_READ
									  : SYMBOLS_CHANGED;
	if (query->result->state == SYMBOLS_READ)
		read_names(query);
	return true;
}

int symbols_vdso_open(void)
{
	CLEANUP_CLOSE int fd = memfd_create("vdso", MFD_CLOEXEC);
	const Elf64_Ehdr *vdso = (const void *)(uintptr_t)getauxval(AT_SYSINFO_EHDR);
	/* The image ends with the table of sections. */
	size_t size = vdso ? vdso->e_shoff + (size_t)vdso->e_shnum * vdso->e_shentsize : 0;

	if (fd < 0 || size == 0 || write(fd, vdso, size) != (ssize_t)size)
		return -1;
	return steal_fd(&fd);
}

bool symbols_read(const struct symbols_image *image, int fd, const uint64_t *offsets,
		  size_t n_offsets, struct symbols **ret_symbols, GError **error)
{
	struct symbols *symbols = g_new0(struct symbols, 1);
	struct symbols_query query = { .image = image, .offsets = offsets, .result = symbols };
	CLEANUP_CLOSE int own_fd = -1;

	symbols->state = SYMBOLS_NO_FILE;
	symbols->n_offsets = n_offsets;
	symbols->row_of = g_new(uint32_t, n_offsets + 1);
	for (size_t i = 0; i < n_offsets; i++)
		symbols->row_of[i] = SYMBOLS_NONE;
	symbols->strings = g_string_chunk_new(4096);
	if (fd < 0 && image->kind == PROF_IMAGE_VDSO)
		fd = own_fd = symbols_vdso_open();
	if (fd >= 0 && (image->kind == PROF_IMAGE_FILE || image->kind == PROF_IMAGE_VDSO) &&
	    !read_file(&query, fd, error)) {
		symbols_free(symbols);
		return false;
	}
	*ret_symbols = symbols;
	return true;
}
