/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Invariants: (1) a file is opened once, and an offset is looked up once  [test-symbolize: named]
 *             (2) the capture is not written if there is nothing to add  [test-symbolize: twice]
 *             (3) a row is written before the rows that refer to it  [test-symbolize: named]
 * Several threads read files, at most two files per CPU ahead of the thread that writes names.
 * The output does not depend on the number of threads.
 */
#include "config.h"

#include "tools/symbols/symbolize.h"

#include "arch/jit-dump.h"
#include "base/each.h"
#include "tools/common/budget.h"
#include "tools/common/capture-error.h"
#include "tools/common/sorted.h"
#include "tools/symbols/code-names.h"
#include "tools/symbols/jit-names.h"
#include "tools/symbols/symbol-rows.h"
#include "tools/symbols/symbols.h"

#include <fcntl.h>
#include <glib/gi18n.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_ROOTS 64
#define CHUNK_ROWS (64u << 10)

/* Offsets in one image that need names. */
struct wanted {
	GArray *offsets; /* uint64_t; the first `settled` are sorted and unique */
	guint settled;
};

void symbolize_result_done(struct symbolize_result *result)
{
	g_clear_pointer(&result->changed, g_ptr_array_unref);
	g_clear_pointer(&result->missing, g_ptr_array_unref);
	*result = (struct symbolize_result){ 0 };
}

/* ---- the epoch that is added ----------------------------------------------------------------- */

/* Rows that are added to a capture form a new epoch after the existing ones. After the first error
 * no row is written: epoch_ok() and finish_epoch() return the error. */
struct added_epoch {
	struct prof_writer *writer; /* NULL: not begun */
	int fd;                     /* borrowed */
	off_t size;                 /* the file's previous size; -1: do not restore the size */
	struct prof_block *blocks[PROF_TABLE_LAST + 1]; /* indexed by table; NULL: no rows yet */
	GHashTable *texts;                              /* text → id */
	GStringChunk *kept;                             /* owns the keys of `texts` */
	uint64_t next_ids[PROF_TABLE_LAST + 1];
	int result; /* first result of libprofcapture that is not 0 */
};

/* In writing order: a table precedes the tables that refer to it. */
static const enum prof_table tables[] = { PROF_TABLE_STRING, PROF_TABLE_IMAGE, PROF_TABLE_PROCESS,
					  PROF_TABLE_SYMBOL, PROF_TABLE_LINE,  PROF_TABLE_JIT };

/* Begins the epoch unless it has begun already. */
static bool begin_epoch(struct added_epoch *added, int fd, GError **error)
{
	const struct prof_writer_options options = { .mode = PROF_WRITE_EXTEND };
	off_t size;
	int r;

	if (added->writer)
		return true;
	size = lseek(fd, 0, SEEK_END);
	r = prof_writer_new(fd, &options, &added->writer);
	added->fd = fd;
	/* If prof_writer_new() failed, another process may be writing the file, so do not
	 * truncate it. */
	added->size = added->writer ? size : -1;

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(tables); i++) {
		r = prof_block_new(prof_table_v1(tables[i]), &added->blocks[tables[i]]);
		added->next_ids[tables[i]] = 1;
		if (r == 0)
			prof_block_set_epoch(added->blocks[tables[i]],
					     prof_writer_first_epoch(added->writer));
	}
	if (r != 0)
		return capture_error(error, r, _("cannot add symbols to the capture"));
	added->texts = g_hash_table_new(g_str_hash, g_str_equal);
	added->kept = g_string_chunk_new(64 << 10);
	return true;
}

/* Restores the file to its previous state, unless finish_epoch() has succeeded. */
static void end_epoch(struct added_epoch *added)
{
	/* Fails if the file system has become read-only. */
	if (added->writer && added->size >= 0 && ftruncate(added->fd, added->size) < 0)
		g_debug("the rows that were added cannot be removed");
	for (size_t i = 0; i < ARRAY_SIZE(added->blocks); i++)
		prof_block_free(added->blocks[i]);
	prof_writer_free(added->writer);
	g_clear_pointer(&added->texts, g_hash_table_unref);
	g_clear_pointer(&added->kept, g_string_chunk_free);
}

static void write_table(struct added_epoch *added, enum prof_table table)
{
	struct prof_block *block = added->blocks[table];

	if (added->result == 0 && prof_block_rows(block))
		added->result = prof_writer_write(added->writer, block);
	prof_block_reset(block);
}

static void write_all(struct added_epoch *added)
{
	for (size_t i = 0; i < ARRAY_SIZE(tables); i++)
		write_table(added, tables[i]);
}

static bool epoch_ok(const struct added_epoch *added, GError **error)
{
	return added->result == 0 ||
	       capture_error(error, added->result, _("cannot add symbols to the capture"));
}

/* Writes the remaining rows, and marks the capture as finished again. */
static bool finish_epoch(struct added_epoch *added, GError **error)
{
	if (!added->writer)
		return true;
	write_all(added);
	if (added->result == 0)
		added->result = prof_writer_finish(added->writer);
	if (added->result == 0)
		added->size = -1;
	return epoch_ok(added, error);
}

/* Adds a row. A full block is written first, after the tables that it refers to. */
static void put(struct added_epoch *added, enum prof_table table, const struct prof_value *values)
{
	struct prof_block *block = added->blocks[table];
	int r = prof_block_rows(block) < CHUNK_ROWS ? prof_block_add(block, values) : PROF_LIMIT;

	if (r == PROF_LIMIT) {
		if (table == PROF_TABLE_STRING)
			write_table(added, table);
		else
			write_all(added);
		r = prof_block_add(block, values);
	}
	if (added->result == 0)
		added->result = r;
}

static struct prof_value add_text(struct added_epoch *added, const char *text)
{
	gpointer known = text ? g_hash_table_lookup(added->texts, text) : NULL;
	struct prof_value values[PROF_STRING_COLUMNS];
	uint64_t id;

	if (!text || known)
		return PROF_NUMBER(GPOINTER_TO_SIZE(known));
	id = added->next_ids[PROF_TABLE_STRING]++;
	g_hash_table_insert(added->texts, g_string_chunk_insert(added->kept, text),
			    GSIZE_TO_POINTER(id));
	values[PROF_STRING_ID] = PROF_NUMBER(id);
	values[PROF_STRING_TEXT] = PROF_BYTES(text, strlen(text));
	put(added, PROF_TABLE_STRING, values);
	return PROF_NUMBER(id);
}

/* Adds an image. `process`: id, in this epoch, of the process that owns the image; 0: none. */
static uint64_t add_image(struct added_epoch *added, const struct names_image *image,
			  const GByteArray *build_id, uint64_t process)
{
	uint64_t id = added->next_ids[PROF_TABLE_IMAGE]++;
	const struct prof_value values[PROF_IMAGE_COLUMNS] = {
		[PROF_IMAGE_ID] = PROF_NUMBER(id),
		[PROF_IMAGE_PATH] = add_text(added, image->path),
		[PROF_IMAGE_BUILD_ID] = PROF_BYTES(build_id->data, build_id->len),
		[PROF_IMAGE_SIZE] = PROF_NUMBER(image->size),
		[PROF_IMAGE_DEV] = PROF_NUMBER(image->dev),
		[PROF_IMAGE_INODE] = PROF_NUMBER(image->inode),
		[PROF_IMAGE_KIND] = PROF_NUMBER(image->kind),
		[PROF_IMAGE_PROCESS] = PROF_NUMBER(process),
		[PROF_IMAGE_CTIME] = PROF_NUMBER(image->ctime_ns),
	};

	put(added, PROF_TABLE_IMAGE, values);
	return id;
}

/* Adds a symbol of an image of this epoch. first_id: id of symbol number 0. */
static void add_symbol(struct added_epoch *added, uint64_t image, uint64_t first_id,
		       const struct symbol *symbol)
{
	uint64_t parent = symbol->inline_parent == SYMBOLS_NONE ? 0
								: first_id + symbol->inline_parent;
	struct prof_value values[PROF_SYMBOL_COLUMNS] = {
		[PROF_SYMBOL_ID] = PROF_NUMBER(added->next_ids[PROF_TABLE_SYMBOL]++),
		[PROF_SYMBOL_IMAGE] = PROF_NUMBER(image),
		[PROF_SYMBOL_START] = PROF_NUMBER(symbol->start),
		[PROF_SYMBOL_LENGTH] = PROF_NUMBER(symbol->length),
		[PROF_SYMBOL_LINE] = PROF_NUMBER(symbol->line),
		[PROF_SYMBOL_INLINE_PARENT] = PROF_NUMBER(parent),
		[PROF_SYMBOL_DECLARED_LINE] = PROF_NUMBER(symbol->declared_line),
	};

	/* Not in the initializer: C does not define its order of evaluation, so the ids of new
	 * strings would depend on the compiler. */
	values[PROF_SYMBOL_NAME] = add_text(added, symbol->name);
	values[PROF_SYMBOL_RAW_NAME] = add_text(added, symbol->raw_name);
	values[PROF_SYMBOL_FILE] = add_text(added, symbol->file);
	values[PROF_SYMBOL_DECLARED_FILE] = add_text(added, symbol->declared_file);
	put(added, PROF_TABLE_SYMBOL, values);
}

static void add_line(struct added_epoch *added, uint64_t image, uint64_t first_symbol,
		     const struct symbol_line *line)
{
	uint64_t symbol = line->symbol == SYMBOLS_NONE ? 0 : first_symbol + line->symbol;
	const struct prof_value values[PROF_LINE_COLUMNS] = {
		[PROF_LINE_ID] = PROF_NUMBER(added->next_ids[PROF_TABLE_LINE]++),
		[PROF_LINE_IMAGE] = PROF_NUMBER(image),
		[PROF_LINE_START] = PROF_NUMBER(line->start),
		[PROF_LINE_LENGTH] = PROF_NUMBER(line->length),
		[PROF_LINE_FILE] = add_text(added, line->file),
		[PROF_LINE_LINE] = PROF_NUMBER(line->line),
		[PROF_LINE_SYMBOL] = PROF_NUMBER(symbol),
	};

	put(added, PROF_TABLE_LINE, values);
}

static uint64_t add_process(struct added_epoch *added, const struct names_process *process)
{
	uint64_t id = added->next_ids[PROF_TABLE_PROCESS]++;
	const struct prof_value values[PROF_PROCESS_COLUMNS] = {
		[PROF_PROCESS_ID] = PROF_NUMBER(id),
		[PROF_PROCESS_PID] = PROF_NUMBER(process->pid),
		[PROF_PROCESS_PPID] = PROF_NUMBER(process->ppid),
		[PROF_PROCESS_START_TIME] = PROF_NUMBER(process->start_time),
		[PROF_PROCESS_EXEC_GENERATION] = PROF_NUMBER(process->exec_generation),
		[PROF_PROCESS_UID] = PROF_NUMBER(process->uid),
	};

	put(added, PROF_TABLE_PROCESS, values);
	return id;
}

static void add_jit(struct added_epoch *added, uint64_t process, const struct jit_name *name)
{
	const struct prof_value values[PROF_JIT_COLUMNS] = {
		[PROF_JIT_TIME] = PROF_NUMBER(name->time_ns),
		[PROF_JIT_PROCESS] = PROF_NUMBER(process),
		[PROF_JIT_EVENT] = PROF_NUMBER(name->event),
		[PROF_JIT_ADDRESS] = PROF_NUMBER(name->address),
		[PROF_JIT_SIZE] = PROF_NUMBER(name->size),
		[PROF_JIT_NAME] = add_text(added, *name->name ? name->name : NULL),
		[PROF_JIT_FROM] = name->event == PROF_JIT_MOVE ? PROF_NUMBER(name->from)
							       : PROF_NULL,
	};

	put(added, PROF_TABLE_JIT, values);
}

/* ---- places without names -------------------------------------------------------------------- */

static void wanted_free(gpointer wanted)
{
	if (!wanted)
		return;
	g_array_unref(((struct wanted *)wanted)->offsets);
	g_free(wanted);
}

static void settle(struct wanted *wanted)
{
	sorted_finalize(wanted->offsets, sorted_compare);
	wanted->settled = wanted->offsets->len;
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
	/* Drop duplicates from time to time, because each epoch repeats the same offsets. */
	if (wanted->offsets->len > 2 * wanted->settled + 4096)
		settle(wanted);
}

static bool has_file(const struct names_image *image)
{
	return image->kind == PROF_IMAGE_FILE || image->kind == PROF_IMAGE_VDSO;
}

/* Returns whether the image is anonymous memory into which a process put code. Its offsets are
 * addresses. */
static bool is_generated(const struct names_image *image)
{
	return image->kind == PROF_IMAGE_ANON && image->process > NAMES_LOST && image->path &&
	       strcmp(image->path, "//anon") == 0;
}

static void look_at_frame(struct names_epoch *epoch, const struct symbol_rows *known, size_t row,
			  GPtrArray *images)
{
	uint64_t id = 0, offset = 0, kind = PROF_FRAME_EXACT;
	const struct names_image *of;
	uint32_t image;

	if (!names_number(epoch, NAMES_FRAME, PROF_FRAME_IMAGE, row, &id) ||
	    !names_number(epoch, NAMES_FRAME, PROF_FRAME_OFFSET, row, &offset))
		return;
	(void)names_number(epoch, NAMES_FRAME, PROF_FRAME_KIND, row, &kind);
	image = names_image(epoch, id);
	offset -= kind == PROF_FRAME_RETURN && offset > 0;
	if (image <= NAMES_LOST)
		return;
	of = names_image_at(epoch->names, image);
	if (is_generated(of) || (has_file(of) && !symbol_rows_line(known, image, offset)))
		want(images, image, offset);
}

static size_t rows_of(const struct names_epoch *epoch, enum names_table table)
{
	return epoch->tables[table] ? prof_dictionary_rows(epoch->tables[table]) : 0;
}

/* Collects the offsets in the epoch's frames that may need names, and the jit-PID.dump files that
 * programs have mapped: PID → path, interned. Registers all processes in `names`. */
static bool look_at_epoch(struct names *names, const struct symbol_rows *known, uint32_t number,
			  GPtrArray *images, GHashTable *dumps, GError **error)
{
	struct names_epoch *epoch = names_epoch(names, number, error);
	uint64_t id = 0;

	if (!epoch || !names_load(epoch, NAMES_FRAME, error))
		return false;
	for (size_t row = 0; row < rows_of(epoch, NAMES_FRAME); row++)
		look_at_frame(epoch, known, row, images);
	for (size_t row = 0; row < rows_of(epoch, NAMES_IMAGE); row++) {
		const char *path = names_number(epoch, NAMES_IMAGE, PROF_IMAGE_PATH, row, &id)
					   ? names_text(epoch, id)
					   : NULL;
		uint64_t pid = jit_dump_pid_of_path(path);

		if (pid)
			g_hash_table_insert(dumps, g_memdup2(&pid, sizeof(pid)), (char *)path);
	}
	for (size_t row = 0; row < rows_of(epoch, NAMES_PROCESS); row++)
		if (names_number(epoch, NAMES_PROCESS, PROF_PROCESS_ID, row, &id))
			(void)names_process(epoch, id);
	return true;
}

static bool find_places(struct names *names, const struct symbol_rows *known, GPtrArray *images,
			GHashTable *dumps, GError **error)
{
	g_autoptr(GHashTable) epochs = g_hash_table_new(NULL, NULL);
	struct prof_chunks *chunks = NULL;
	struct prof_chunk chunk;
	bool ok = true;
	int r = prof_chunks_new(names->reader, PROF_TABLE_FRAME, &chunks);

	while (ok && !r && !(r = prof_chunks_next(chunks, &chunk)))
		if (g_hash_table_add(epochs, GUINT_TO_POINTER(chunk.epoch)))
			ok = look_at_epoch(names, known, chunk.epoch, images, dumps, error);
	if (ok && r != PROF_END)
		ok = capture_error(error, r, _("cannot read the capture"));
	prof_chunks_free(chunks);
	for (guint i = 0; i < images->len; i++)
		if (images->pdata[i])
			settle(images->pdata[i]);
	return ok;
}

/* ---- one image ------------------------------------------------------------------------------- */

struct run {
	const struct symbolize_sources *sources;
	struct prof_reader *reader;
	struct names *names;
	struct symbol_rows *known;
	struct added_epoch added;
	int fd;
	struct symbolize_result *result;
	GStringChunk *texts; /* names of generated code */
	GThreadPool *threads;
	GMutex lock; /* protects `done` of all jobs */
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
	struct symbols *symbols; /* NULL: the file cannot be read */
	bool started, done;
};

static GByteArray *hex_bytes(const char *hex)
{
	GByteArray *bytes = g_byte_array_new();

	for (; hex && hex[0] && hex[1]; hex += *hex == '-' ? 1 : 2) {
		/* If *hex is '-', this is not a byte, and is not appended. */
		uint8_t byte =
			(uint8_t)(g_ascii_xdigit_value(hex[0]) * 16 + g_ascii_xdigit_value(hex[1]));

		if (*hex != '-')
			g_byte_array_append(bytes, &byte, 1);
	}
	return bytes;
}

static const struct names_image *image_of(const struct job *job)
{
	return names_image_at(job->run->names, job->image);
}

/* Counts the offsets that had no name and those that now have one. Writes new names and lines. */
static bool take_result(struct job *job, GError **error)
{
	struct run *run = job->run;
	const struct symbols *symbols = job->symbols;
	const char *path = image_of(job)->path;
	const uint64_t *offsets = (const uint64_t *)(void *)job->wanted->offsets->data;
	uint64_t named = 0, image_id, first_id;

	run->result->images++;
	/* If a file is unreadable, only its own names are missing. */
	if (path && (!symbols || symbols->state != SYMBOLS_READ))
		g_ptr_array_add(symbols && symbols->state == SYMBOLS_CHANGED ? run->result->changed
									     : run->result->missing,
				g_strdup(path));
	for (guint i = 0; i < job->wanted->offsets->len; i++) {
		if (symbol_rows_find(run->known, job->image, offsets[i]))
			continue;
		run->result->places++;
		named += symbols && symbols->row_of[i] != SYMBOLS_NONE;
	}
	run->result->named += named;
	if (!symbols || (named == 0 && symbols->n_lines == 0))
		return true;
	if (!begin_epoch(&run->added, run->fd, error))
		return false;
	first_id = run->added.next_ids[PROF_TABLE_SYMBOL];
	image_id = add_image(&run->added, image_of(job), job->build_id, 0);
	for (size_t i = 0; i < symbols->n_rows; i++)
		add_symbol(&run->added, image_id, first_id, &symbols->rows[i]);
	for (size_t i = 0; i < symbols->n_lines; i++)
		add_line(&run->added, image_id, first_id, &symbols->lines[i]);
	run->result->symbols += symbols->n_rows;
	run->result->lines += symbols->n_lines;
	return epoch_ok(&run->added, error);
}

static void read_image(gpointer data, gpointer unused)
{
	struct job *job = data;
	g_autoptr(GError) unreadable = NULL;

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

	job->build_id = hex_bytes(image->build_id);
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
	g_clear_pointer(&job->symbols, symbols_free);
	g_clear_pointer(&job->build_id, g_byte_array_unref);
	job->started = false;
}

/* Opens a file only shortly before it is needed, so that few are open at a time. */
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

/* ---- generated code -------------------------------------------------------------------------- */

/* Returns the last segment if it was recorded in this machine's current boot, else NULL. */
static const struct prof_segment *last_segment(const struct prof_reader *reader)
{
	size_t n;
	const struct prof_segment *last = prof_reader_segments(reader, &n);
	g_autoptr(GByteArray) id = NULL;
	g_autofree char *text = NULL;

	if (n == 0 || !g_file_get_contents("/proc/sys/kernel/random/boot_id", &text, NULL, NULL))
		return NULL;
	last += n - 1;
	id = hex_bytes(g_strchomp(text));
	return id->len == sizeof(last->boot_id) && memcmp(last->boot_id, id->data, id->len) == 0
		       ? last
		       : NULL;
}

static uint64_t end_of(const struct prof_reader *reader, const struct prof_segment *segment)
{
	uint64_t end_ns = segment->start_monotonic_ns;
	struct prof_chunks *chunks = NULL;
	struct prof_chunk chunk;

	if (prof_chunks_new(reader, PROF_TABLE_SAMPLE, &chunks) != 0)
		return end_ns;
	while (prof_chunks_next(chunks, &chunk) == 0)
		if (chunk.segment == segment->number)
			end_ns = MAX_OF(end_ns, chunk.t_max);
	prof_chunks_free(chunks);
	return end_ns;
}

static void write_names(struct run *run, const struct names_image *image, const GArray *rows,
			const GArray *lines)
{
	g_autoptr(GByteArray) no_build_id = g_byte_array_new();
	struct added_epoch *added = &run->added;
	uint64_t process = add_process(added, names_process_at(run->names, image->process));
	uint64_t id;

	for (guint i = 0; i < rows->len; i++)
		add_jit(added, process, &g_array_index(rows, struct jit_name, i));
	run->result->symbols += rows->len;
	if (!lines)
		return;
	id = add_image(added, image, no_build_id, process);
	ARRAY_EACH(const struct jit_line, from, lines) {
		const struct symbol_line line = { .start = from->address,
						  .length = 1,
						  .file = from->file,
						  .line = from->line,
						  .symbol = SYMBOLS_NONE };

		add_line(added, id, 0, &line);
	}
	run->result->lines += lines->len;
}

static bool name_process(struct run *run, const struct names_image *image,
			 struct jit_process *where, const struct wanted *wanted, GHashTable *dumps,
			 GError **error)
{
	const struct names_process *process = names_process_at(run->names, image->process);
	g_autoptr(GArray) rows = NULL, lines = NULL;

	where->pid = process->pid;
	where->uid = process->uid;
	where->start_ns = process->start_time;
	where->dump = g_hash_table_lookup(dumps, &process->pid);
	where->lines = &lines;
	rows = jit_names_find(where, (const uint64_t *)(void *)wanted->offsets->data,
			      wanted->offsets->len, run->texts);
	if (!rows || rows->len == 0)
		return true;
	if (!begin_epoch(&run->added, run->fd, error))
		return false;
	write_names(run, image, rows, lines);
	return epoch_ok(&run->added, error);
}

/* Names only code of the last segment, which is the new one after an append. Skips processes whose
 * code already has names, from a collector or an earlier run. */
static bool name_generated(struct run *run, const GPtrArray *images, GHashTable *dumps,
			   const struct code_names *codes, GError **error)
{
	struct jit_process where = { 0 };
	bool ok = true;

	where.segment = last_segment(run->names->reader);
	if (!where.segment)
		return true;
	where.end_ns = end_of(run->names->reader, where.segment);
	for (guint i = 0; ok && i < images->len; i++) {
		const struct names_image *image = names_image_at(run->names, i);

		if (images->pdata[i] && is_generated(image) &&
		    !code_names_has(codes, image->process))
			ok = name_process(run, image, &where, images->pdata[i], dumps, error);
	}
	return ok;
}

/* ---- other roots ----------------------------------------------------------------------------- */

/* A process's root: a folder in a mount namespace. Two roots are equal only if both the folder and
 * the namespace are. */
struct root {
	uint64_t dev, inode, mounts;
};

/* Queries only the kernel, because a file system may not answer. */
static bool look_at(const char *process, const char *name, struct statx *ret_status)
{
	g_autofree char *path = g_strdup_printf("/proc/%s/%s", process, name);

	return statx(AT_FDCWD, path, AT_STATX_DONT_SYNC, STATX_INO, ret_status) == 0;
}

/* Returns false if the process has exited or access is denied. */
static bool read_root(const char *process, struct root *ret_root)
{
	struct statx root, mounts;

	if (!look_at(process, "root", &root) || !look_at(process, "ns/mnt", &mounts))
		return false;
	*ret_root = (struct root){ .dev = (uint64_t)root.stx_dev_major << 32 | root.stx_dev_minor,
				   .inode = root.stx_ino,
				   .mounts = mounts.stx_ino };
	return true;
}

/* Adds the roots of live and accessible processes of the capture, each once. A pid may have been
 * reused, but files below the root are compared with the recorded ones anyway. */
static void add_other_roots(const struct names *names, struct debug_files *files)
{
	g_autoptr(GArray) known = g_array_new(FALSE, FALSE, sizeof(struct root));
	struct root root;

	if (!read_root("self", &root))
		return;
	g_array_append_val(known, root);
	for (guint i = NAMES_LOST + 1; i < names->processes->len && known->len <= MAX_ROOTS; i++) {
		g_autofree char *pid = g_strdup_printf("%" PRIu64, names_process_at(names, i)->pid);
		g_autofree char *folder = g_strdup_printf("/proc/%s/root", pid);
		struct debug_files *other;
		guint at = 0;

		if (!read_root(pid, &root))
			continue;
		while (at < known->len &&
		       memcmp(&g_array_index(known, struct root, at), &root, sizeof(root)) != 0)
			at++;
		if (at < known->len)
			continue;
		g_array_append_val(known, root);
		other = debug_files_new(folder, NULL);
		if (other)
			debug_files_add_other(files, other);
	}
}

/* ---- the capture ----------------------------------------------------------------------------- */

static bool name_images(struct run *run, GError **error)
{
	g_autoptr(GPtrArray) images = g_ptr_array_new_with_free_func(wanted_free);
	g_autoptr(GArray) jobs = g_array_new(FALSE, FALSE, sizeof(struct job));
	g_autoptr(GHashTable)
		dumps = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
	struct code_names *codes = NULL;
	bool ok = find_places(run->names, run->known, images, dumps, error) &&
		  (codes = code_names_load(run->names, error));

	g_array_set_clear_func(jobs, job_clear);
	for (guint i = 0; ok && i < images->len; i++) {
		const struct job job = {
			.run = run, .image = i, .wanted = images->pdata[i], .fd = -1
		};

		if (job.wanted && has_file(names_image_at(run->names, i)))
			g_array_append_val(jobs, job);
	}
	if (ok && run->sources->debug_files && last_segment(run->names->reader))
		add_other_roots(run->names, run->sources->debug_files);
	/* Memory for debug files does not count towards the capture's budget. */
	prof_reader_set_guard(run->reader, NULL, NULL);
	ok = ok && read_images(run, jobs, error) &&
	     name_generated(run, images, dumps, codes, error) && finish_epoch(&run->added, error);
	code_names_free(codes);
	return ok;
}

bool symbolize_capture(int fd, const struct symbolize_sources *sources,
		       struct symbolize_result *ret_result, GError **error)
{
	struct symbolize_result result = {
		.changed = g_ptr_array_new_with_free_func(g_free),
		.missing = g_ptr_array_new_with_free_func(g_free),
	};
	struct run run = { .fd = fd, .sources = sources, .result = &result };
	bool ok;
	int r = prof_reader_open(fd, &run.reader);

	if (r != 0) {
		symbolize_result_done(&result);
		return capture_error(error, r, _("cannot read the capture"));
	}
	budget_add_capture(run.reader, sources->file);
	g_mutex_init(&run.lock);
	g_cond_init(&run.ended);
	run.names = names_new(run.reader);
	run.texts = g_string_chunk_new(4096);
	run.known = symbol_rows_load(run.names, error);
	ok = run.known && name_images(&run, error);
	end_epoch(&run.added);
	g_string_chunk_free(run.texts);
	symbol_rows_free(run.known);
	names_free(run.names);
	prof_reader_free(run.reader);
	g_cond_clear(&run.ended);
	g_mutex_clear(&run.lock);
	if (ok)
		*ret_result = result;
	else
		symbolize_result_done(&result);
	return ok;
}
