/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Symbolize - adds the names and lines of sampled places to a capture
 *
 * Invariants: (1) a file is opened once, a place is looked up once  [test-symbolize: named]
 *             (2) the capture is not written when there is nothing to add  [test-symbolize: twice]
 * Several threads read files, a few ahead of the one being written. The output does not depend on
 * the number of threads.
 */
#include "config.h"

#include "tools/common/symbolize.h"

#include "arch/jit-dump.h"
#include "tools/common/added-epoch.h"
#include "tools/common/budget.h"
#include "tools/common/capture-error.h"
#include "tools/common/code-names.h"
#include "tools/common/other-roots.h"
#include "tools/common/sorted.h"
#include "tools/common/symbol-rows.h"
#include "tools/common/symbols.h"

#include <glib/gi18n.h>
#include <string.h>

/* The wanted places of one image. */
struct wanted {
	GArray *offsets; /* uint64_t; sorted and unique up to `settled` */
	guint settled;
};

void symbolize_result_done(struct symbolize_result *result)
{
	if (result->changed)
		g_ptr_array_unref(result->changed);
	if (result->missing)
		g_ptr_array_unref(result->missing);
	*result = (struct symbolize_result){ 0 };
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
	sorted_settle(wanted->offsets, sorted_compare);
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
	/* Sorts now and then, because each epoch repeats the same places. */
	if (wanted->offsets->len > 2 * wanted->settled + 4096)
		settle(wanted);
}

static bool has_file(const struct names_image *image)
{
	return image->kind == PROF_IMAGE_FILE || image->kind == PROF_IMAGE_VDSO;
}

/* Anonymous memory into which a process put code; its offsets are addresses. */
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

/* Records a jit-PID.dump that a program has mapped: PID → path, interned. */
static void look_at_image(struct names_epoch *epoch, size_t row, GHashTable *dumps)
{
	uint64_t path = 0, pid;
	const char *text;

	(void)names_number(epoch, NAMES_IMAGE, PROF_IMAGE_PATH, row, &path);
	text = names_text(epoch, path);
	pid = jit_dump_pid_of_path(text);
	if (pid)
		g_hash_table_insert(dumps, g_memdup2(&pid, sizeof(pid)), (char *)text);
}

/* Registers the process in `names`. */
static void look_at_process(struct names_epoch *epoch, size_t row)
{
	uint64_t id = 0;

	(void)names_number(epoch, NAMES_PROCESS, PROF_PROCESS_ID, row, &id);
	(void)names_process(epoch, id);
}

static bool look_at_epoch(struct names *names, const struct symbol_rows *known, uint32_t number,
			  GPtrArray *images, GHashTable *dumps, GError **error)
{
	struct names_epoch *epoch = names_epoch(names, number, error);
	size_t rows;

	if (!epoch || !names_load_identities(epoch, error) ||
	    !names_load(epoch, NAMES_FRAME, error))
		return false;
	rows = epoch->tables[NAMES_FRAME] ? prof_dictionary_rows(epoch->tables[NAMES_FRAME]) : 0;
	for (size_t row = 0; row < rows; row++)
		look_at_frame(epoch, known, row, images);
	rows = epoch->tables[NAMES_IMAGE] ? prof_dictionary_rows(epoch->tables[NAMES_IMAGE]) : 0;
	for (size_t row = 0; row < rows; row++)
		look_at_image(epoch, row, dumps);
	rows = epoch->tables[NAMES_PROCESS] ? prof_dictionary_rows(epoch->tables[NAMES_PROCESS])
					    : 0;
	for (size_t row = 0; row < rows; row++)
		look_at_process(epoch, row);
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
	GStringChunk *texts; /* of generated code */
	GThreadPool *threads;
	GMutex lock; /* of `done` of all jobs */
	GCond ended;
};

/* An image whose file one of the threads reads. */
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
	struct added_epoch *added = &job->run->added;
	uint64_t image_id, first_id = added_epoch_next_symbol(added);
	int r = added_epoch_image(added, image_of(job), job->build_id, 0, &image_id);

	for (size_t i = 0; r == 0 && i < symbols->n_rows; i++)
		r = added_epoch_symbol(added, image_id, first_id, &symbols->rows[i]);
	for (size_t i = 0; r == 0 && i < symbols->n_lines; i++)
		r = added_epoch_line(added, image_id, first_id, &symbols->lines[i]);
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

/* Counts the places that had no name and those that have one now; writes new names and lines. */
static bool take_result(struct job *job, GError **error)
{
	struct run *run = job->run;
	const uint64_t *offsets = (const uint64_t *)(void *)job->wanted->offsets->data;
	uint64_t named = 0;
	int r;

	run->result->images++;
	/* An unreadable file costs only its own names. */
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
	if (!run->added.writer && !added_epoch_begin(&run->added, run->fd, error))
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

/* A file is opened only shortly before its turn, so that few are open at a time. */
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

static bool is_this_boot(const struct prof_segment *segment)
{
	static const uint8_t unknown[16];
	g_autofree char *text = NULL;
	uint8_t id[16];
	size_t n = 0;

	if (memcmp(segment->boot_id, unknown, sizeof(unknown)) == 0 ||
	    !g_file_get_contents("/proc/sys/kernel/random/boot_id", &text, NULL, NULL))
		return false;
	for (const char *at = text; n < sizeof(id) && at[0] && at[1]; at += *at == '-' ? 1 : 2)
		if (*at != '-')
			id[n++] = (uint8_t)(g_ascii_xdigit_value(at[0]) << 4 |
					    g_ascii_xdigit_value(at[1]));
	return n == sizeof(id) && memcmp(segment->boot_id, id, sizeof(id)) == 0;
}

/* The last segment, if this boot of this machine was recorded in it; else NULL. */
static const struct prof_segment *last_segment(const struct prof_reader *reader)
{
	size_t n;
	const struct prof_segment *segments = prof_reader_segments(reader, &n);

	return n > 0 && is_this_boot(&segments[n - 1]) ? &segments[n - 1] : NULL;
}

/* Returns the time of the last sample of a segment. */
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

static int write_jit_lines(struct run *run, const struct names_image *image, uint64_t process,
			   const GArray *lines)
{
	g_autoptr(GByteArray) no_build_id = g_byte_array_new();
	uint64_t id = 0;
	int r = lines ? added_epoch_image(&run->added, image, no_build_id, process, &id) : 0;

	for (guint i = 0; r == 0 && lines && i < lines->len; i++) {
		const struct jit_line *from = &g_array_index(lines, struct jit_line, i);
		const struct symbol_line line = { .start = from->address,
						  .length = 1,
						  .file = from->file,
						  .line = from->line,
						  .symbol = SYMBOLS_NONE };

		r = added_epoch_line(&run->added, id, 0, &line);
	}
	run->result->lines += lines ? lines->len : 0;
	return r;
}

static int write_names(struct run *run, const struct names_image *image, const GArray *rows,
		       const GArray *lines)
{
	uint64_t id;
	int r = added_epoch_process(&run->added, names_process_at(run->names, image->process), &id);

	for (guint i = 0; r == 0 && i < rows->len; i++)
		r = added_epoch_jit(&run->added, id, &g_array_index(rows, struct jit_name, i));
	return r ? r : write_jit_lines(run, image, id, lines);
}

static bool name_process(struct run *run, const struct names_image *image,
			 struct jit_process *where, const struct wanted *wanted, GHashTable *dumps,
			 GError **error)
{
	const struct names_process *process = names_process_at(run->names, image->process);
	g_autoptr(GArray) rows = NULL, lines = NULL;
	int r;

	where->pid = process->pid;
	where->uid = process->uid;
	where->start_ns = process->start_time;
	where->dump = g_hash_table_lookup(dumps, &process->pid);
	where->lines = &lines;
	rows = jit_names_find(where, (const uint64_t *)(void *)wanted->offsets->data,
			      wanted->offsets->len, run->texts);
	if (!rows || rows->len == 0)
		return true;
	if (!run->added.writer && !added_epoch_begin(&run->added, run->fd, error))
		return false;
	run->result->symbols += rows->len;
	r = write_names(run, image, rows, lines);
	return r == 0 || capture_error(error, r, _("cannot add symbols to the capture"));
}

/* Names code of the last segment only, the one that an append adds. Processes whose code already
 * has names, from a collector or an earlier run, are skipped. */
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
		other_roots_add(run->names, run->sources->debug_files);
	/* Memory for debug files is not charged to the capture. */
	prof_reader_set_guard(run->reader, NULL, NULL);
	ok = ok && read_images(run, jobs, error) &&
	     name_generated(run, images, dumps, codes, error) &&
	     added_epoch_finish(&run->added, error);
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
	struct prof_reader *reader;
	bool ok;
	int r = prof_reader_open(fd, &reader);

	if (r != 0) {
		symbolize_result_done(&result);
		return capture_error(error, r, _("cannot read the capture"));
	}
	budget_add_capture(reader, sources->file);
	g_mutex_init(&run.lock);
	g_cond_init(&run.ended);
	run.reader = reader;
	run.names = names_new(reader);
	run.texts = g_string_chunk_new(4096);
	run.known = symbol_rows_load(run.names, error);
	ok = run.known && name_images(&run, error);
	added_epoch_done(&run.added);
	g_string_chunk_free(run.texts);
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
