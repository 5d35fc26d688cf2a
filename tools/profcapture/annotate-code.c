/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Annotate-code - the instructions and source lines of a function, and the samples of each
 *
 * The instructions come from the file that ran, which is found by its build-id; if it is missing,
 * the sampled places are shown without instructions. A sample counts for the instruction at which
 * its innermost frame was interrupted; a return address counts only in the total of its line.
 * Generated code has only lines, counted as by a report by line.
 * Invariants: (1) the self counts of the instructions, and those of the lines, sum up to the
 *                 function's  [test_annotate: sums; test_jit: annotate]
 *             (2) no code of a different file is shown  [test_annotate: other file]
 */
#include "config.h"

#include "tools/profcapture/annotate.h"

#include "tools/common/symbols-source.h"
#include "tools/profcapture/disassembly.h"

#include <glib/gi18n.h>
#include <string.h>

/* First entity of the counts by place; the tally reserves the smaller ones. */
#define PLACE_FIRST 2u

#define TIMEOUT_MS 20000

static struct annotate_instruction *instruction_at(const struct annotate *annotate, guint index)
{
	return &g_array_index(annotate->instructions, struct annotate_instruction, index);
}

static struct annotate_line *line_at(const struct annotate *annotate, guint index)
{
	return &g_array_index(annotate->lines, struct annotate_line, index);
}

/* ---- samples by place ------------------------------------------------------------------------ */

struct places {
	struct annotate *annotate;
	GHashTable *by_offset; /* offset → index of offsets */
	GArray *offsets;       /* uint64_t */
};

/* Returns the offset and kind of a frame of the function; false for all other frames. */
static bool is_inside(const struct annotate *annotate, struct names_epoch *epoch, size_t row,
		      uint64_t *ret_offset, bool *ret_returns)
{
	uint64_t id = 0, offset = 0, kind = PROF_FRAME_EXACT;

	if (!names_number(epoch, NAMES_FRAME, PROF_FRAME_IMAGE, row, &id) ||
	    !names_number(epoch, NAMES_FRAME, PROF_FRAME_OFFSET, row, &offset) ||
	    names_image(epoch, id) != annotate_function(annotate)->image)
		return false;
	(void)names_number(epoch, NAMES_FRAME, PROF_FRAME_KIND, row, &kind);
	*ret_returns = kind == PROF_FRAME_RETURN;
	*ret_offset = offset - (*ret_returns && offset > 0);
	return *ret_offset >= annotate->start && *ret_offset < annotate->end;
}

static uint32_t place_of(struct names_epoch *epoch, size_t row, void *data)
{
	struct places *places = data;
	uint64_t offset;
	gpointer known;
	bool returns;

	if (!is_inside(places->annotate, epoch, row, &offset, &returns) || returns)
		return NAMES_NONE;
	if (g_hash_table_lookup_extended(places->by_offset, GSIZE_TO_POINTER(offset), NULL, &known))
		return PLACE_FIRST + GPOINTER_TO_UINT(known);
	g_hash_table_insert(places->by_offset, GSIZE_TO_POINTER(offset),
			    GUINT_TO_POINTER(places->offsets->len));
	g_array_append_val(places->offsets, offset);
	return PLACE_FIRST + places->offsets->len - 1;
}

static bool count_by(struct annotate *annotate,
		     uint32_t (*place)(struct names_epoch *epoch, size_t row, void *data),
		     void *data, struct tally *ret_tally, GError **error)
{
	*ret_tally = (struct tally){ .by = TALLY_IMAGE, .place_of = place, .place_data = data };
	return tally_run(ret_tally, &annotate->reader, error);
}

/* ---- lines ----------------------------------------------------------------------------------- */

static guint line_hash(gconstpointer key)
{
	const struct annotate_line *line = key;

	return g_direct_hash(line->function) ^ g_direct_hash(line->file) * 31 ^
	       line->line * 0x9e3779b1u;
}

static gboolean line_equal(gconstpointer left, gconstpointer right)
{
	const struct annotate_line *a = left, *b = right;

	return a->function == b->function && a->file == b->file && a->line == b->line &&
	       a->is_inlined == b->is_inlined;
}

static const char *intern(const struct annotate *annotate, const char *text)
{
	return text ? names_intern(annotate->reader.capture->names, text, strlen(text)) : NULL;
}

static uint32_t index_of_line(struct annotate *annotate, struct annotate_line *line,
			      uint64_t offset)
{
	gpointer known;

	line->function = intern(annotate, line->function);
	line->file = intern(annotate, line->file);
	line->first = offset;
	if (g_hash_table_lookup_extended(annotate->known_lines, line, NULL, &known))
		return GPOINTER_TO_UINT(known);
	g_hash_table_insert(annotate->known_lines, g_memdup2(line, sizeof(*line)),
			    GUINT_TO_POINTER(annotate->lines->len));
	g_array_append_val(annotate->lines, *line);
	return annotate->lines->len - 1;
}

static const struct symbol_line *line_in_file(const struct symbols *symbols, uint64_t offset)
{
	size_t low = 0, high = symbols->n_lines;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (symbols->lines[middle].start <= offset)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == 0 || offset - symbols->lines[low - 1].start >= symbols->lines[low - 1].length)
		return NULL;
	return &symbols->lines[low - 1];
}

/* Returns the index of the line of an offset. */
static uint32_t line_of(struct annotate *annotate, uint64_t offset)
{
	struct annotate_line line = { .function = annotate_function(annotate)->name };
	const struct symbol_line *in_file;
	const struct line_row *in_capture;
	const struct symbol *symbol;

	if (annotate->symbols) {
		in_file = line_in_file(annotate->symbols, offset);
		symbol = in_file && in_file->symbol != SYMBOLS_NONE
				 ? &annotate->symbols->rows[in_file->symbol]
				 : NULL;
		line.is_inlined = symbol && symbol->inline_depth > 0;
		line.function = line.is_inlined ? symbol->name : line.function;
		line.file = in_file ? in_file->file : NULL;
		line.line = in_file ? in_file->line : 0;
		return index_of_line(annotate, &line, offset);
	}
	in_capture = line_rows_find(annotate->tally.functions->lines,
				    annotate_function(annotate)->image, offset);
	line.is_inlined = in_capture && in_capture->call;
	if (line.is_inlined)
		line.function =
			line_rows_call(annotate->tally.functions->lines, in_capture->call)->name;
	line.file = in_capture ? in_capture->file : NULL;
	line.line = in_capture ? in_capture->line : 0;
	return index_of_line(annotate, &line, offset);
}

static uint32_t line_place(struct names_epoch *epoch, size_t row, void *data)
{
	struct annotate *annotate = data;
	uint64_t offset;
	bool returns;

	if (!is_inside(annotate, epoch, row, &offset, &returns))
		return NAMES_NONE;
	return PLACE_FIRST + line_of(annotate, offset);
}

static bool count_totals(struct annotate *annotate, GError **error)
{
	struct tally tally;
	bool ok = count_by(annotate, line_place, annotate, &tally, error);

	for (guint i = 0; ok && i < annotate->lines->len; i++)
		line_at(annotate, i)->total = tally_count_at(tally.counts, PLACE_FIRST + i).total;
	tally_done(&tally);
	return ok;
}

/* ---- the file that ran ----------------------------------------------------------------------- */

static GByteArray *bytes_of_hex(const char *hex)
{
	GByteArray *bytes = g_byte_array_new();

	for (; hex && hex[0] && hex[1]; hex += 2) {
		uint8_t byte =
			(uint8_t)(g_ascii_xdigit_value(hex[0]) << 4 | g_ascii_xdigit_value(hex[1]));

		g_byte_array_append(bytes, &byte, 1);
	}
	return bytes;
}

static const char *why_no_file(enum symbols_state state)
{
	switch (state) {
	case SYMBOLS_CHANGED:
		return _(
			"the file is not the one that ran: its build-id differs, or it was changed");
	case SYMBOLS_UNKNOWN_FORMAT:
		return _("the file is not a readable ELF file");
	default:
		return _(
			"the file is not here; --sysroot says where the files of the recorded machine are");
	}
}

static int open_image(const struct annotate *annotate, const struct names_image *image)
{
	return image->kind == PROF_IMAGE_VDSO
		       ? symbols_vdso_open()
		       : debug_files_open_path(annotate->debug_files, image->path);
}

/* Returns what the file has for these offsets; NULL if it is not the file that ran, with
 * why_no_code set. */
static struct symbols *ask_file(struct annotate *annotate, int fd, const GArray *offsets)
{
	const struct names_image *image =
		names_image_at(annotate->reader.capture->names, annotate_function(annotate)->image);
	g_autoptr(GByteArray) build_id = bytes_of_hex(image->build_id);
	const struct symbols_image identity = {
		.path = image->path,
		.build_id = build_id->data,
		.build_id_size = build_id->len,
		.dev = image->dev,
		.inode = image->inode,
		.size = image->size,
		.kind = (enum prof_image_kind)image->kind,
		.debug_files = annotate->debug_files,
	};
	g_autoptr(GError) unreadable = NULL;
	struct symbols *symbols = NULL;

	if (!symbols_read(&identity, fd, (const uint64_t *)(void *)offsets->data, offsets->len,
			  &symbols, &unreadable)) {
		annotate->why_no_code = intern(annotate, unreadable->message);
		return NULL;
	}
	if (symbols->state == SYMBOLS_READ)
		return symbols;
	annotate->why_no_code = why_no_file(symbols->state);
	symbols_free(symbols);
	return NULL;
}

static bool add_instructions(struct annotate *annotate, struct elf_image *elf,
			     const GArray *disassembly)
{
	struct annotate_instruction instruction = { 0 };

	for (guint i = 0; i < disassembly->len; i++) {
		struct disassembly_line *line =
			&g_array_index(disassembly, struct disassembly_line, i);

		if (!elf_image_get_offset(elf, line->address, &instruction.offset))
			return false;
		instruction.address = line->address;
		instruction.text = g_steal_pointer(&line->text);
		g_array_append_val(annotate->instructions, instruction);
	}
	return disassembly->len > 0;
}

static void disassemble(struct annotate *annotate, int fd)
{
	struct elf_image *elf = elf_image_open(fd);
	g_autoptr(GError) error = NULL;
	g_autoptr(GArray) found = NULL;
	uint64_t start, last;

	if (!elf || !elf_image_get_address(elf, annotate->start, &start) ||
	    !elf_image_get_address(elf, annotate->end - 1, &last)) {
		annotate->why_no_code = _("the file does not have the code");
	} else {
		found = disassembly_read(fd, start, last + 1, TIMEOUT_MS, &error);
		if (!found)
			annotate->why_no_code = intern(annotate, error->message);
		else if (!add_instructions(annotate, elf, found))
			annotate->why_no_code = _("objdump finds no code there");
	}
	elf_image_free(elf);
}

/* ---- generated code -------------------------------------------------------------------------- */

static uint32_t process_of(const struct annotate *annotate, const struct function *function)
{
	return names_image_at(annotate->reader.capture->names, function->image)->process;
}

/* Returns whether it is a line of the shown function. Names are interned. Equal names in a process
 * are one function, wherever its code is. */
static bool is_line_of_it(const struct annotate *annotate, const struct function *line)
{
	const struct function *shown = annotate_function(annotate);

	return line->is_line && line->length && line->name == shown->name &&
	       process_of(annotate, line) == process_of(annotate, shown);
}

static bool read_generated(struct annotate *annotate, GError **error)
{
	struct tally tally = { .by = TALLY_LINE };
	bool ok = tally_run(&tally, &annotate->reader, error);

	annotate->why_no_code = _("code that a program made is in no file");
	for (uint32_t i = FUNCTION_LOST + 1; ok && i < tally.functions->all->len; i++) {
		const struct function *at = functions_at(tally.functions, i);
		struct tally_count count = tally_count_at(tally.counts, i);
		struct annotate_line line = { .function = at->name,
					      .file = at->file,
					      .line = at->line };
		struct annotate_line *known;

		if (count.total.samples == 0 || !is_line_of_it(annotate, at))
			continue;
		known = line_at(annotate, index_of_line(annotate, &line, at->offset));
		amount_add(&known->self, count.self);
		if (annotate->wants_total)
			amount_add(&known->total, count.total);
		amount_add(&annotate->self, count.self);
	}
	tally_done(&tally);
	return ok;
}

/* ---- all ------------------------------------------------------------------------------------- */

static gint compare_instructions(gconstpointer left, gconstpointer right)
{
	const struct annotate_instruction *a = left, *b = right;

	return a->offset < b->offset ? -1 : a->offset > b->offset;
}

/* Returns the instruction that holds an offset; adds one if none is known. */
static uint32_t instruction_of(struct annotate *annotate, uint64_t offset, guint n_known)
{
	struct annotate_instruction place = { .offset = offset, .address = offset };
	guint low = 0, high = n_known;

	while (low < high) {
		guint middle = low + (high - low) / 2;

		if (instruction_at(annotate, middle)->offset <= offset)
			low = middle + 1;
		else
			high = middle;
	}
	if (low > 0)
		return low - 1;
	g_array_append_val(annotate->instructions, place);
	return annotate->instructions->len - 1;
}

static void give_samples(struct annotate *annotate, const struct places *places,
			 const struct tally *tally)
{
	guint n_known = annotate->instructions->len;

	for (guint i = 0; i < places->offsets->len; i++) {
		uint64_t offset = g_array_index(places->offsets, uint64_t, i);
		struct amount self = tally_count_at(tally->counts, PLACE_FIRST + i).self;
		uint32_t at;

		if (self.samples == 0)
			continue;
		at = instruction_of(annotate, offset, n_known);
		amount_add(&instruction_at(annotate, at)->self, self);
		amount_add(&annotate->self, self);
	}
	g_array_sort(annotate->instructions, compare_instructions);
}

static void give_lines(struct annotate *annotate)
{
	for (guint i = 0; i < annotate->instructions->len; i++) {
		struct annotate_instruction *instruction = instruction_at(annotate, i);

		instruction->line = line_of(annotate, instruction->offset);
		amount_add(&line_at(annotate, instruction->line)->self, instruction->self);
	}
}

static void read_file(struct annotate *annotate, const struct places *places)
{
	const struct names_image *image =
		names_image_at(annotate->reader.capture->names, annotate_function(annotate)->image);
	g_autoptr(GArray) offsets = g_array_new(FALSE, FALSE, sizeof(uint64_t));
	CLEANUP_CLOSE int fd = -1;
	struct symbols *first;

	if (image->kind != PROF_IMAGE_FILE && image->kind != PROF_IMAGE_VDSO) {
		annotate->why_no_code =
			strcmp(annotate_function(annotate)->kind, "kernel") == 0
				? _("the kernel's code is in no file that can be read")
				: _("code that a program made is in no file");
		return;
	}
	fd = open_image(annotate, image);
	first = ask_file(annotate, fd, places->offsets);
	if (!first)
		return;
	symbols_free(first);
	disassemble(annotate, fd);
	g_array_append_vals(offsets, places->offsets->data, places->offsets->len);
	for (guint i = 0; i < annotate->instructions->len; i++)
		g_array_append_val(offsets, instruction_at(annotate, i)->offset);
	annotate->symbols = ask_file(annotate, fd, offsets);
	if (annotate->symbols && annotate->symbols->n_lines == 0) {
		symbols_free(annotate->symbols);
		annotate->symbols = NULL;
	}
}

static void clear_instruction(gpointer instruction)
{
	g_free(((struct annotate_instruction *)instruction)->text);
}

static void free_source(gpointer source)
{
	source_text_free(source);
}

static bool read_of_file(struct annotate *annotate, GError **error)
{
	struct places places = { .annotate = annotate };
	struct tally tally;
	bool ok;

	places.by_offset = g_hash_table_new(NULL, NULL);
	places.offsets = g_array_new(FALSE, FALSE, sizeof(uint64_t));
	ok = count_by(annotate, place_of, &places, &tally, error);
	if (ok) {
		read_file(annotate, &places);
		give_samples(annotate, &places, &tally);
		give_lines(annotate);
	}
	tally_done(&tally);
	g_hash_table_unref(places.by_offset);
	g_array_unref(places.offsets);
	return ok && (!annotate->wants_total || count_totals(annotate, error));
}

bool annotate_read_code(struct annotate *annotate, GError **error)
{
	annotate->instructions = g_array_new(FALSE, FALSE, sizeof(struct annotate_instruction));
	g_array_set_clear_func(annotate->instructions, clear_instruction);
	annotate->lines = g_array_new(FALSE, FALSE, sizeof(struct annotate_line));
	annotate->known_lines = g_hash_table_new_full(line_hash, line_equal, g_free, NULL);
	annotate->sources = g_hash_table_new_full(NULL, NULL, NULL, free_source);
	return annotate_is_generated(annotate) ? read_generated(annotate, error)
					       : read_of_file(annotate, error);
}

void annotate_code_done(struct annotate *annotate)
{
	symbols_free(annotate->symbols);
	if (!annotate->instructions)
		return;
	g_array_unref(annotate->instructions);
	g_array_unref(annotate->lines);
	g_hash_table_unref(annotate->known_lines);
	g_hash_table_unref(annotate->sources);
}

const struct source_text *annotate_source(struct annotate *annotate, const char *file)
{
	gpointer known;

	if (!file)
		return NULL;
	if (!g_hash_table_lookup_extended(annotate->sources, file, NULL, &known)) {
		known = source_text_find(annotate->debug_files, annotate->source_folders, file);
		g_hash_table_insert(annotate->sources, (gpointer)file, known);
	}
	return known;
}
