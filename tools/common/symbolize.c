/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Symbolize - gives a capture the names and lines of what it hit
 *
 * Invariants: (1) a file is asked for once, a place is looked up once             [test-symbolize: named]
 *             (2) the capture is not written when there is nothing to add          [test-symbolize: twice]
 *             (3) rows that are named are written before the rows that name them
 * Files are read on several threads, a few ahead of the one that is written; what is written is the same however many
 * there are.
 */
#include "config.h"

#include "tools/common/symbolize.h"

#include "tools/common/capture-error.h"
#include "tools/common/line-rows.h"
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
	struct prof_block *strings, *images, *symbols, *lines;
	GHashTable *texts;  /* text of a struct symbols or of names → id */
	GStringChunk *kept; /* owns the texts that are keys */
	uint64_t next_string, next_image, next_symbol, next_line;
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

static void look_at_frame(struct names_epoch *epoch, const struct line_rows *known, size_t row,
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
	    !line_rows_find(known, image, offset))
		want(images, image, offset);
}

static bool look_at_epoch(struct names *names, const struct line_rows *known, uint32_t number,
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

static bool find_places(struct names *names, const struct line_rows *known, GPtrArray *images,
			GError **error)
{
	g_autoptr(GHashTable) epochs = g_hash_table_new(NULL, NULL);
	struct prof_chunks *chunks = NULL;
	struct prof_chunk chunk;
	bool ok = true;
	int r = prof_chunks_new(names->reader, PROF_TABLE_FRAME, &chunks);

	while (ok && !r && !(r = prof_chunks_next(chunks, &chunk)))
		if (g_hash_table_add(epochs, GUINT_TO_POINTER(chunk.epoch)))
			ok = look_at_epoch(names, known, chunk.epoch, images, error);
	if (ok && r != PROF_END)
		ok = capture_error(error, r, _("cannot read the capture"));
	prof_chunks_free(chunks);
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
	if (r == 0)
		r = prof_block_new(prof_table_v1(PROF_TABLE_LINE), &added->lines);
	if (r != 0)
		return capture_error(error, r, _("cannot add symbols to the capture"));
	prof_block_set_epoch(added->strings, prof_writer_first_epoch(added->writer));
	prof_block_set_epoch(added->images, prof_writer_first_epoch(added->writer));
	prof_block_set_epoch(added->symbols, prof_writer_first_epoch(added->writer));
	prof_block_set_epoch(added->lines, prof_writer_first_epoch(added->writer));
	added->texts = g_hash_table_new(g_str_hash, g_str_equal);
	added->kept = g_string_chunk_new(64 << 10);
	added->next_string = added->next_image = added->next_symbol = added->next_line = 1;
	return true;
}

static void add_done(struct added *added)
{
	prof_block_free(added->strings);
	prof_block_free(added->images);
	prof_block_free(added->symbols);
	prof_block_free(added->lines);
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
	if (r == 0)
		r = write_block(added, added->symbols);
	return r ? r : write_block(added, added->lines);
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

static int add_line(struct added *added, uint64_t image, uint64_t first_symbol,
		    const struct symbol_line *line)
{
	struct prof_value values[PROF_LINE_COLUMNS] = { 0 };
	uint64_t file;
	int r = add_text(added, line->file, &file);

	if (r != 0)
		return r;
	values[PROF_LINE_ID] = PROF_NUMBER(added->next_line++);
	values[PROF_LINE_IMAGE] = PROF_NUMBER(image);
	values[PROF_LINE_START] = PROF_NUMBER(line->start);
	values[PROF_LINE_LENGTH] = PROF_NUMBER(line->length);
	values[PROF_LINE_FILE] = PROF_NUMBER(file);
	values[PROF_LINE_LINE] = PROF_NUMBER(line->line);
	if (line->symbol != SYMBOLS_NONE)
		values[PROF_LINE_SYMBOL] = PROF_NUMBER(first_symbol + line->symbol);
	return put(added, added->lines, values);
}

/* ---- one image ---------------------------------------------------------------------------------- */

struct run {
	const struct symbolize_sources *sources;
	struct names *names;
	struct symbol_rows *known;
	struct line_rows *known_lines;
	struct added added; /* writer NULL: nothing was added yet */
	int fd;
	struct symbolize_result *result;
	GThreadPool *threads;
	GMutex lock; /* of `done` of all jobs */
	GCond ended;
};

/* An image whose file is read by one of the threads. */
struct job {
	struct run *run;
	uint32_t image;
	const struct wanted *wanted;
	GByteArray *build_id;
	struct symbols_image identity;
	int fd;
	struct symbols *symbols; /* NULL = the file cannot be read */
	bool started, done;
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

static const struct names_image *image_of(const struct job *job)
{
	return names_image_at(job->run->names, job->image);
}

static int write_symbols(struct job *job)
{
	const struct symbols *symbols = job->symbols;
	struct added *added = &job->run->added;
	uint64_t image_id, first_id = added->next_symbol;
	int r = add_image(added, image_of(job), job->build_id, &image_id);

	for (size_t i = 0; r == 0 && i < symbols->n_rows; i++)
		r = add_symbol(added, image_id, first_id, &symbols->rows[i]);
	for (size_t i = 0; r == 0 && i < symbols->n_lines; i++)
		r = add_line(added, image_id, first_id, &symbols->lines[i]);
	job->run->result->symbols += symbols->n_rows;
	job->run->result->lines += symbols->n_lines;
	return r;
}

static void note_state(struct symbolize_result *result, const struct names_image *image,
		       enum symbols_state state)
{
	GPtrArray *list = state == SYMBOLS_CHANGED ? result->changed : result->missing;

	if (state != SYMBOLS_READ && image->path)
		g_ptr_array_add(list, g_strdup(image->path));
}

/* Counts what had no name, and what of it has one now; writes where there is anything new. */
static bool take_result(struct job *job, GError **error)
{
	struct run *run = job->run;
	const uint64_t *offsets = (const uint64_t *)(void *)job->wanted->offsets->data;
	uint64_t named = 0;
	int r;

	run->result->images++;
	/* A file that cannot be read costs its names only. */
	note_state(run->result, image_of(job),
		   job->symbols ? job->symbols->state : SYMBOLS_NO_FILE);
	for (guint i = 0; i < job->wanted->offsets->len; i++) {
		if (symbol_rows_find(run->known, job->image, offsets[i]))
			continue;
		run->result->places++;
		named += job->symbols && job->symbols->row_of[i] != SYMBOLS_NONE;
	}
	run->result->named += named;
	if (!job->symbols || (named == 0 && job->symbols->n_lines == 0))
		return true;
	if (!run->added.writer && !add_init(&run->added, run->fd, error))
		return false;
	r = write_symbols(job);
	return r == 0 || capture_error(error, r, _("cannot add symbols to the capture"));
}

static void read_image(gpointer data, gpointer unused)
{
	struct job *job = data;
	g_autoptr(GError) unreadable = NULL;

	(void)unused;
	(void)symbols_read(&job->identity, job->fd,
			   (const uint64_t *)(void *)job->wanted->offsets->data,
			   job->wanted->offsets->len, &job->symbols, &unreadable);
	g_mutex_lock(&job->run->lock);
	job->done = true;
	g_cond_broadcast(&job->run->ended);
	g_mutex_unlock(&job->run->lock);
}

static void start(struct job *job)
{
	const struct names_image *image = image_of(job);

	job->build_id = build_id_bytes(image->build_id);
	job->identity = (struct symbols_image){
		.path = image->path,
		.build_id = job->build_id->data,
		.build_id_size = job->build_id->len,
		.dev = image->dev,
		.inode = image->inode,
		.size = image->size,
		.kind = (enum prof_image_kind)image->kind,
		.debug_files = job->run->sources->debug_files,
	};
	job->fd = job->run->sources->open(image, job->run->sources->data);
	job->started = true;
	g_thread_pool_push(job->run->threads, job, NULL);
}

static void finish_job(struct job *job)
{
	if (!job->started)
		return;
	g_mutex_lock(&job->run->lock);
	while (!job->done)
		g_cond_wait(&job->run->ended, &job->run->lock);
	g_mutex_unlock(&job->run->lock);
	if (job->fd >= 0)
		close(job->fd);
	job->fd = -1;
}

static void job_clear(gpointer data)
{
	struct job *job = data;

	finish_job(job);
	symbols_free(job->symbols);
	job->symbols = NULL;
	if (job->build_id)
		g_byte_array_unref(job->build_id);
	job->build_id = NULL;
	job->started = false;
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

/* Each file is asked for where its turn comes near, so that few are open at a time. */
static bool read_images(struct run *run, GArray *jobs, GError **error)
{
	guint ahead = 2 * g_get_num_processors(), started = 0;
	bool ok = true;

	run->threads =
		g_thread_pool_new(read_image, NULL, (gint)g_get_num_processors(), FALSE, NULL);
	for (guint i = 0; ok && i < jobs->len; i++) {
		struct job *job = &g_array_index(jobs, struct job, i);

		for (; started < jobs->len && started <= i + ahead; started++)
			start(&g_array_index(jobs, struct job, started));
		finish_job(job);
		ok = take_result(job, error);
		job_clear(job);
	}
	g_thread_pool_free(run->threads, FALSE, TRUE);
	return ok;
}

static bool name_images(struct run *run, GError **error)
{
	g_autoptr(GPtrArray) images = g_ptr_array_new_with_free_func(wanted_free);
	g_autoptr(GArray) jobs = g_array_new(FALSE, FALSE, sizeof(struct job));
	bool ok = find_places(run->names, run->known_lines, images, error);

	g_array_set_clear_func(jobs, job_clear);
	for (guint i = 0; ok && i < images->len; i++) {
		const struct job job = {
			.run = run, .image = i, .wanted = images->pdata[i], .fd = -1
		};

		if (job.wanted)
			g_array_append_val(jobs, job);
	}
	return ok && read_images(run, jobs, error) && finish(run, error);
}

bool symbolize_capture(int fd, const struct symbolize_sources *sources,
		       struct symbolize_result *ret_result, GError **error)
{
	struct symbolize_result result = {
		.changed = g_ptr_array_new_with_free_func(g_free),
		.missing = g_ptr_array_new_with_free_func(g_free),
	};
	struct run run = { .fd = fd, .sources = sources, .result = &result };
	struct prof_reader *reader;
	bool ok;
	int r = prof_reader_open(fd, &reader);

	if (r != 0) {
		symbolize_result_done(&result);
		return capture_error(error, r, _("cannot read the capture"));
	}
	g_mutex_init(&run.lock);
	g_cond_init(&run.ended);
	run.names = names_new(reader);
	run.known = symbol_rows_load(run.names, error);
	run.known_lines = run.known ? line_rows_load(run.names, error) : NULL;
	ok = run.known_lines && name_images(&run, error);
	add_done(&run.added);
	line_rows_free(run.known_lines);
	symbol_rows_free(run.known);
	names_free(run.names);
	prof_reader_free(reader);
	g_cond_clear(&run.ended);
	g_mutex_clear(&run.lock);
	if (ok)
		*ret_result = result;
	else
		symbolize_result_done(&result);
	return ok;
}
