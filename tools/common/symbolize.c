/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Symbolize - gives a capture the names of what it hit
 *
 * Invariants: (1) a file is asked for once, a place is looked up once             [test-symbolize: named]
 *             (2) the capture is not written when there is nothing to add          [test-symbolize: twice]
 *             (3) rows that are named are written before the rows that name them
 */
#include "config.h"

#include "tools/common/symbolize.h"

#include "tools/common/capture-error.h"
#include "tools/common/symbol-rows.h"
#include "tools/common/symbols.h"

#include <glib/gi18n.h>
#include <string.h>

#define CHUNK_ROWS (64u << 10)

/* What is wanted of one image. */
struct wanted {
	GArray *offsets; /* uint64_t; sorted and unique up to `settled` */
	guint settled;
};

/* The epoch that is added. */
struct added {
	struct prof_writer *writer;
	struct prof_block *strings, *images, *symbols;
	GHashTable *texts;  /* text of a struct symbols or of names → id */
	GStringChunk *kept; /* owns the texts that are keys */
	uint64_t next_string, next_image, next_symbol;
};

void symbolize_result_done(struct symbolize_result *result)
{
	if (result->changed)
		g_ptr_array_unref(result->changed);
	if (result->missing)
		g_ptr_array_unref(result->missing);
	*result = (struct symbolize_result){ 0 };
}

/* ---- which places have no name -------------------------------------------------------------------- */

static void wanted_free(gpointer wanted)
{
	if (!wanted)
		return;
	g_array_unref(((struct wanted *)wanted)->offsets);
	g_free(wanted);
}

static gint compare_offsets(gconstpointer left, gconstpointer right)
{
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

	return a < b ? -1 : a > b;
}

static void settle(struct wanted *wanted)
{
	uint64_t *at = (uint64_t *)(void *)wanted->offsets->data;
	guint kept = 0;

	g_array_sort(wanted->offsets, compare_offsets);
	for (guint i = 0; i < wanted->offsets->len; i++)
		if (kept == 0 || at[kept - 1] != at[i])
			at[kept++] = at[i];
	g_array_set_size(wanted->offsets, kept);
	wanted->settled = kept;
}

static void want(GPtrArray *images, uint32_t image, uint64_t offset)
{
	struct wanted *wanted;

	if (images->len <= image)
		g_ptr_array_set_size(images, (gint)image + 1);
	wanted = images->pdata[image];
	if (!wanted) {
		images->pdata[image] = wanted = g_new0(struct wanted, 1);
		wanted->offsets = g_array_new(FALSE, FALSE, sizeof(uint64_t));
	}
	g_array_append_val(wanted->offsets, offset);
	/* Each epoch names the same places again. */
	if (wanted->offsets->len > 2 * wanted->settled + 4096)
		settle(wanted);
}

static bool has_file(const struct names_image *image)
{
	return image->kind == PROF_IMAGE_FILE || image->kind == PROF_IMAGE_VDSO;
}

static void look_at_frame(struct names_epoch *epoch, const struct symbol_rows *known, size_t row,
			  GPtrArray *images)
{
	uint64_t id = 0, offset = 0, kind = PROF_FRAME_EXACT;
	uint32_t image;

	if (!names_number(epoch, NAMES_FRAME, PROF_FRAME_IMAGE, row, &id) ||
	    !names_number(epoch, NAMES_FRAME, PROF_FRAME_OFFSET, row, &offset))
		return;
	(void)names_number(epoch, NAMES_FRAME, PROF_FRAME_KIND, row, &kind);
	image = names_image(epoch, id);
	offset -= kind == PROF_FRAME_RETURN && offset > 0;
	if (image > NAMES_LOST && has_file(names_image_at(epoch->names, image)) &&
	    !symbol_rows_find(known, image, offset))
		want(images, image, offset);
}

static bool look_at_epoch(struct names *names, const struct symbol_rows *known, uint32_t number,
			  GPtrArray *images, GError **error)
{
	struct names_epoch *epoch = names_epoch(names, number, error);
	size_t rows;

	if (!epoch || !names_load_identities(epoch, error) ||
	    !names_load(epoch, NAMES_FRAME, error))
		return false;
	rows = epoch->tables[NAMES_FRAME] ? prof_dictionary_rows(epoch->tables[NAMES_FRAME]) : 0;
	for (size_t row = 0; row < rows; row++)
		look_at_frame(epoch, known, row, images);
	return true;
}

static bool find_places(struct names *names, GPtrArray *images, GError **error)
{
	struct symbol_rows *known = symbol_rows_load(names, error);
	g_autoptr(GHashTable) epochs = g_hash_table_new(NULL, NULL);
	struct prof_chunks *chunks = NULL;
	struct prof_chunk chunk;
	bool ok = known != NULL;
	int r = ok ? prof_chunks_new(names->reader, PROF_TABLE_FRAME, &chunks) : PROF_END;

	while (ok && !r && !(r = prof_chunks_next(chunks, &chunk)))
		if (g_hash_table_add(epochs, GUINT_TO_POINTER(chunk.epoch)))
			ok = look_at_epoch(names, known, chunk.epoch, images, error);
	if (ok && r != PROF_END)
		ok = capture_error(error, r, _("cannot read the capture"));
	prof_chunks_free(chunks);
	symbol_rows_free(known);
	for (guint i = 0; i < images->len; i++)
		if (images->pdata[i])
			settle(images->pdata[i]);
	return ok;
}

/* ---- the epoch that is added ---------------------------------------------------------------------- */

static bool add_init(struct added *added, int fd, GError **error)
{
	const struct prof_writer_options options = { .mode = PROF_WRITE_EXTEND };
	int r = prof_writer_new(fd, &options, &added->writer);

	if (r == 0)
		r = prof_block_new(prof_table_v1(PROF_TABLE_STRING), &added->strings);
	if (r == 0)
		r = prof_block_new(prof_table_v1(PROF_TABLE_IMAGE), &added->images);
	if (r == 0)
		r = prof_block_new(prof_table_v1(PROF_TABLE_SYMBOL), &added->symbols);
	if (r != 0)
		return capture_error(error, r, _("cannot add symbols to the capture"));
	prof_block_set_epoch(added->strings, prof_writer_first_epoch(added->writer));
	prof_block_set_epoch(added->images, prof_writer_first_epoch(added->writer));
	prof_block_set_epoch(added->symbols, prof_writer_first_epoch(added->writer));
	added->texts = g_hash_table_new(g_str_hash, g_str_equal);
	added->kept = g_string_chunk_new(64 << 10);
	added->next_string = added->next_image = added->next_symbol = 1;
	return true;
}

static void add_done(struct added *added)
{
	prof_block_free(added->strings);
	prof_block_free(added->images);
	prof_block_free(added->symbols);
	prof_writer_free(added->writer);
	if (added->texts)
		g_hash_table_unref(added->texts);
	if (added->kept)
		g_string_chunk_free(added->kept);
}

static int write_block(struct added *added, struct prof_block *block)
{
	int r = prof_block_rows(block) ? prof_writer_write(added->writer, block) : 0;

	prof_block_reset(block);
	return r;
}

static int write_all(struct added *added)
{
	int r = write_block(added, added->strings);

	if (r == 0)
		r = write_block(added, added->images);
	return r ? r : write_block(added, added->symbols);
}

/* Adds a row; a block that is full is written first, behind what it names. */
static int put(struct added *added, struct prof_block *block, const struct prof_value *values)
{
	int r = prof_block_rows(block) < CHUNK_ROWS ? prof_block_add(block, values) : PROF_LIMIT;

	if (r != PROF_LIMIT)
		return r;
	r = block == added->strings ? write_block(added, block) : write_all(added);
	return r ? r : prof_block_add(block, values);
}

static int add_text(struct added *added, const char *text, uint64_t *ret_id)
{
	gpointer known = text ? g_hash_table_lookup(added->texts, text) : NULL;
	struct prof_value values[PROF_STRING_COLUMNS];

	*ret_id = 0;
	if (!text)
		return 0;
	if (known) {
		*ret_id = GPOINTER_TO_SIZE(known);
		return 0;
	}
	*ret_id = added->next_string++;
	g_hash_table_insert(added->texts, g_string_chunk_insert(added->kept, text),
			    GSIZE_TO_POINTER(*ret_id));
	values[PROF_STRING_ID] = PROF_NUMBER(*ret_id);
	values[PROF_STRING_TEXT] = PROF_BYTES(text, strlen(text));
	return put(added, added->strings, values);
}

static int add_image(struct added *added, const struct names_image *image,
		     const GByteArray *build_id, uint64_t *ret_id)
{
	struct prof_value values[PROF_IMAGE_COLUMNS] = { 0 };
	uint64_t path;
	int r = add_text(added, image->path, &path);

	if (r != 0)
		return r;
	*ret_id = added->next_image++;
	values[PROF_IMAGE_ID] = PROF_NUMBER(*ret_id);
	values[PROF_IMAGE_PATH] = PROF_NUMBER(path);
	values[PROF_IMAGE_BUILD_ID] = PROF_BYTES(build_id->data, build_id->len);
	values[PROF_IMAGE_SIZE] = PROF_NUMBER(image->size);
	values[PROF_IMAGE_DEV] = PROF_NUMBER(image->dev);
	values[PROF_IMAGE_INODE] = PROF_NUMBER(image->inode);
	values[PROF_IMAGE_KIND] = PROF_NUMBER(image->kind);
	values[PROF_IMAGE_CTIME] = PROF_NUMBER(image->ctime_ns);
	return put(added, added->images, values);
}

static int add_symbol(struct added *added, uint64_t image, uint64_t first_id,
		      const struct symbol *symbol)
{
	struct prof_value values[PROF_SYMBOL_COLUMNS] = { 0 };
	uint64_t name, raw_name, file;
	int r = add_text(added, symbol->name, &name);

	if (r == 0)
		r = add_text(added, symbol->raw_name, &raw_name);
	if (r == 0)
		r = add_text(added, symbol->file, &file);
	if (r != 0)
		return r;
	values[PROF_SYMBOL_ID] = PROF_NUMBER(added->next_symbol++);
	values[PROF_SYMBOL_IMAGE] = PROF_NUMBER(image);
	values[PROF_SYMBOL_START] = PROF_NUMBER(symbol->start);
	values[PROF_SYMBOL_LENGTH] = PROF_NUMBER(symbol->length);
	values[PROF_SYMBOL_NAME] = PROF_NUMBER(name);
	values[PROF_SYMBOL_RAW_NAME] = PROF_NUMBER(raw_name);
	values[PROF_SYMBOL_FILE] = PROF_NUMBER(file);
	values[PROF_SYMBOL_LINE] = PROF_NUMBER(symbol->line);
	if (symbol->inline_parent != SYMBOLS_NONE)
		values[PROF_SYMBOL_INLINE_PARENT] = PROF_NUMBER(first_id + symbol->inline_parent);
	return put(added, added->symbols, values);
}

/* ---- one image ---------------------------------------------------------------------------------- */

struct run {
	struct names *names;
	struct added added; /* writer NULL: nothing was added yet */
	int fd;
	symbolize_open *open;
	void *data;
	struct symbolize_result *result;
};

static GByteArray *build_id_bytes(const char *hex)
{
	GByteArray *bytes = g_byte_array_new();

	for (; hex && hex[0] && hex[1]; hex += 2) {
		uint8_t byte =
			(uint8_t)(g_ascii_xdigit_value(hex[0]) << 4 | g_ascii_xdigit_value(hex[1]));

		g_byte_array_append(bytes, &byte, 1);
	}
	return bytes;
}

static bool write_symbols(struct run *run, const struct names_image *image,
			  const GByteArray *build_id, const struct symbols *symbols, GError **error)
{
	struct added *added = &run->added;
	uint64_t image_id, first_id;
	int r;

	if (symbols->n_rows == 0)
		return true;
	if (!added->writer && !add_init(added, run->fd, error))
		return false;
	first_id = added->next_symbol;
	r = add_image(added, image, build_id, &image_id);
	for (size_t i = 0; r == 0 && i < symbols->n_rows; i++)
		r = add_symbol(added, image_id, first_id, &symbols->rows[i]);
	if (r != 0)
		return capture_error(error, r, _("cannot add symbols to the capture"));
	run->result->symbols += symbols->n_rows;
	for (size_t i = 0; i < symbols->n_offsets; i++)
		run->result->named += symbols->row_of[i] != SYMBOLS_NONE;
	return true;
}

static void note_state(struct symbolize_result *result, const struct names_image *image,
		       enum symbols_state state)
{
	GPtrArray *list = state == SYMBOLS_CHANGED ? result->changed : result->missing;

	if (state != SYMBOLS_READ && image->path)
		g_ptr_array_add(list, g_strdup(image->path));
}

static bool name_image(struct run *run, const struct names_image *image,
		       const struct wanted *wanted, GError **error)
{
	g_autoptr(GByteArray) build_id = build_id_bytes(image->build_id);
	const struct symbols_image identity = {
		.path = image->path,
		.build_id = build_id->data,
		.build_id_size = build_id->len,
		.dev = image->dev,
		.inode = image->inode,
		.size = image->size,
		.kind = (enum prof_image_kind)image->kind,
	};
	CLEANUP_CLOSE int fd = run->open(image, run->data);
	struct symbols *symbols = NULL;
	g_autoptr(GError) unreadable = NULL;
	bool ok;

	run->result->images++;
	run->result->places += wanted->offsets->len;
	/* A file that cannot be read costs its names only. */
	if (!symbols_read(&identity, fd, (const uint64_t *)(void *)wanted->offsets->data,
			  wanted->offsets->len, &symbols, &unreadable)) {
		note_state(run->result, image, SYMBOLS_NO_FILE);
		return true;
	}
	note_state(run->result, image, symbols->state);
	ok = write_symbols(run, image, build_id, symbols, error);
	symbols_free(symbols);
	return ok;
}

static bool finish(struct run *run, GError **error)
{
	int r;

	if (!run->added.writer)
		return true;
	r = write_all(&run->added);
	if (r == 0)
		r = prof_writer_finish(run->added.writer);
	return r == 0 || capture_error(error, r, _("cannot add symbols to the capture"));
}

static bool name_images(struct run *run, GError **error)
{
	g_autoptr(GPtrArray) images = g_ptr_array_new_with_free_func(wanted_free);
	bool ok = find_places(run->names, images, error);

	for (guint i = 0; ok && i < images->len; i++)
		if (images->pdata[i])
			ok = name_image(run, names_image_at(run->names, i), images->pdata[i],
					error);
	return ok && finish(run, error);
}

bool symbolize_capture(int fd, symbolize_open *open, void *data,
		       struct symbolize_result *ret_result, GError **error)
{
	struct symbolize_result result = {
		.changed = g_ptr_array_new_with_free_func(g_free),
		.missing = g_ptr_array_new_with_free_func(g_free),
	};
	struct run run = { .fd = fd, .open = open, .data = data, .result = &result };
	struct prof_reader *reader;
	bool ok;
	int r = prof_reader_open(fd, &reader);

	if (r != 0) {
		symbolize_result_done(&result);
		return capture_error(error, r, _("cannot read the capture"));
	}
	run.names = names_new(reader);
	ok = name_images(&run, error);
	add_done(&run.added);
	names_free(run.names);
	prof_reader_free(reader);
	if (ok)
		*ret_result = result;
	else
		symbolize_result_done(&result);
	return ok;
}
