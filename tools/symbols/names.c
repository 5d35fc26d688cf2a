/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Invariants: (1) no id of the file is used as an index: prof_dictionary_find() turns it into a row
 *                 [test-names: hostile]
 *             (2) memory holds the dictionaries of two epochs and of each nested
 *                 names_each_batch(), and one entry for each identity since names_forget()
 *                 [test-names: epochs]
 *             (3) using another epoch never frees the epoch whose batch is being processed
 *                 [test-names: each_batch]
 *             (4) references go at most image → process → string, so no cycle is possible
 *                 [test-names: hostile]
 * symbol-rows.c handles symbols.
 */
#include "config.h"

#include "tools/symbols/names.h"

#include "base/each.h"
#include "tools/common/capture-error.h"
#include "tools/common/text.h"
#include "tools/symbols/clone-suffix.h"

#include <glib/gi18n.h>
#include <inttypes.h>
#include <string.h>

/* Columns to load: always the first ones, so that their positions are the column ids. */
static const uint16_t columns[] = { 0, 1, 2, 3, 4, 5, 6, 7, 8 };
static const struct {
	enum prof_table table;
	uint16_t n_columns;
} sources[NAMES_TABLES] = {
	[NAMES_STRING] = { PROF_TABLE_STRING, PROF_STRING_TEXT + 1 },
	[NAMES_IMAGE] = { PROF_TABLE_IMAGE, PROF_IMAGE_PROCESS + 1 },
	[NAMES_FRAME] = { PROF_TABLE_FRAME, PROF_FRAME_KIND + 1 },
	[NAMES_STACK] = { PROF_TABLE_STACK, PROF_STACK_FRAME + 1 },
	[NAMES_PROCESS] = { PROF_TABLE_PROCESS, PROF_PROCESS_UID + 1 },
	[NAMES_THREAD] = { PROF_TABLE_THREAD, PROF_THREAD_COMM + 1 },
};

static void epoch_free(void *data)
{
	struct names_epoch *epoch = data;

	for (size_t i = 0; i < NAMES_TABLES; i++) {
		prof_dictionary_free(epoch->tables[i]);
		g_free(epoch->indexes[i]);
	}
	g_free(epoch->texts);
	g_free(epoch->frame_functions);
	g_free(epoch);
}

/* Adds the fixed entries "none" and "<lost>". */
static void add_first(struct names *names)
{
	const struct names_image images[2] = { [NAMES_LOST] = { .path = NAMES_LOST_TEXT } };
	const struct names_process processes[2] = { 0 };
	const struct names_thread threads[2] = { [NAMES_LOST] = { .comm = NAMES_LOST_TEXT,
								  .process = NAMES_LOST } };

	g_array_append_vals(names->images, images, 2);
	g_array_append_vals(names->processes, processes, 2);
	g_array_append_vals(names->threads, threads, 2);
}

struct names *names_new(const struct prof_reader *reader)
{
	struct names *names = g_new0(struct names, 1);

	names->reader = reader;
	names->epochs = g_ptr_array_new_with_free_func(epoch_free);
	names->texts = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
	names->keys = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
	names->images = g_array_new(FALSE, FALSE, sizeof(struct names_image));
	names->processes = g_array_new(FALSE, FALSE, sizeof(struct names_process));
	names->threads = g_array_new(FALSE, FALSE, sizeof(struct names_thread));
	add_first(names);
	return names;
}

size_t names_identities(const struct names *names)
{
	return names->images->len + names->processes->len + names->threads->len;
}

void names_forget(struct names *names)
{
	POINTER_EACH(struct names_epoch, epoch, names->epochs) {
		for (size_t j = 0; j < NAMES_TABLES; j++)
			g_clear_pointer(&epoch->indexes[j], g_free);
		g_clear_pointer(&epoch->frame_functions, g_free);
	}
	g_hash_table_remove_all(names->keys);
	g_array_set_size(names->images, 0);
	g_array_set_size(names->processes, 0);
	g_array_set_size(names->threads, 0);
	add_first(names);
}

void names_free(struct names *names)
{
	if (!names)
		return;
	g_ptr_array_unref(names->epochs);
	g_array_unref(names->images);
	g_array_unref(names->processes);
	g_array_unref(names->threads);
	g_hash_table_unref(names->keys);
	g_hash_table_unref(names->texts);
	g_free(names);
}

static bool load_identities(struct names_epoch *epoch, GError **error)
{
	return names_load(epoch, NAMES_STRING, error) && names_load(epoch, NAMES_IMAGE, error) &&
	       names_load(epoch, NAMES_PROCESS, error) && names_load(epoch, NAMES_THREAD, error);
}

struct names_epoch *names_epoch(struct names *names, uint32_t number, GError **error)
{
	GPtrArray *epochs = names->epochs;
	struct names_epoch *epoch = NULL;
	bool keep = true; /* do not free the most recently used epoch that is not pinned */

	if (epochs->len > 0)
		epoch = epochs->pdata[epochs->len - 1];
	if (epoch && epoch->epoch == number) /* the usual case */
		return load_identities(epoch, error) ? epoch : NULL;
	epoch = NULL;
	for (guint i = epochs->len; !epoch && i-- > 0;)
		if (((struct names_epoch *)epochs->pdata[i])->epoch == number)
			epoch = g_ptr_array_steal_index(epochs, i);
	for (guint i = epochs->len; !epoch && i-- > 0;) {
		if (((struct names_epoch *)epochs->pdata[i])->pins > 0)
			continue;
		if (!keep) {
			g_ptr_array_remove_index(epochs, i);
			names->removed_epochs++;
		}
		keep = false;
	}
	if (!epoch) {
		epoch = g_new0(struct names_epoch, 1);
		epoch->epoch = number;
		epoch->names = names;
	}
	g_ptr_array_add(epochs, epoch);
	return load_identities(epoch, error) ? epoch : NULL;
}

bool names_load(struct names_epoch *epoch, enum names_table table, GError **error)
{
	int r;

	if (epoch->loaded[table])
		return true;
	r = prof_dictionary_load(epoch->names->reader, sources[table].table, epoch->epoch, columns,
				 sources[table].n_columns, &epoch->tables[table]);
	if (r != 0 && r != PROF_NO_TABLE)
		return capture_error(error, r, "cannot read the names of the capture");
	epoch->loaded[table] = true;
	return true;
}

ssize_t names_row(struct names_epoch *epoch, enum names_table table, uint64_t id)
{
	ssize_t row;

	if (id == 0)
		return -1;
	row = epoch->tables[table] ? prof_dictionary_find(epoch->tables[table], id) : -1;
	if (row < 0)
		epoch->names->lost++;
	return row;
}

bool names_number(const struct names_epoch *epoch, enum names_table table, unsigned column,
		  size_t row, uint64_t *ret_value)
{
	return array_number(prof_dictionary_column(epoch->tables[table], column), row, ret_value);
}

static uint64_t number_or_0(const struct names_epoch *epoch, enum names_table table,
			    unsigned column, size_t row)
{
	return array_number_or(prof_dictionary_column(epoch->tables[table], column), row, 0);
}

const char *names_intern(struct names *names, const void *bytes, size_t length)
{
	char *text = g_malloc(length + 1);
	char *known;

	for (size_t i = 0; i < length; i++)
		text[i] = ((const char *)bytes)[i] ? ((const char *)bytes)[i] : ' ';
	text[length] = '\0';
	if (names->redact) {
		char *whole = text;

		text = names->redact(names->redactor, whole);
		g_free(whole);
	}
	if (g_hash_table_lookup_extended(names->texts, text, (gpointer *)&known, NULL)) {
		g_free(text);
		return known;
	}
	g_hash_table_add(names->texts, text);
	return text;
}

const char *names_text_at(struct names *names, const struct prof_array *column, size_t row)
{
	if (!column->bytes || !column->offsets)
		return NULL;
	return names_intern(names, column->bytes + column->offsets[row],
			    column->offsets[row + 1] - column->offsets[row]);
}

const char *names_function(struct names *names, const char *name)
{
	size_t length = name ? clone_suffix_skip_shown(name) : 0;

	return name && name[length] ? names_intern(names, name, length) : name;
}

/* Allocates one slot for each row of a table. */
static void *rows_of(struct names_epoch *epoch, enum names_table table, size_t bytes)
{
	size_t rows = epoch->tables[table] ? prof_dictionary_rows(epoch->tables[table]) : 0;

	return g_malloc0_n(rows ? rows : 1, bytes);
}

const char *names_text(struct names_epoch *epoch, uint64_t id)
{
	const char *text;
	ssize_t row = names_row(epoch, NAMES_STRING, id);

	if (row < 0)
		return id ? NAMES_LOST_TEXT : NULL;
	if (!epoch->texts)
		epoch->texts = rows_of(epoch, NAMES_STRING, sizeof(*epoch->texts));
	if (epoch->texts[row])
		return epoch->texts[row];
	text = names_text_at(epoch->names,
			     prof_dictionary_column(epoch->tables[NAMES_STRING], PROF_STRING_TEXT),
			     (size_t)row);
	if (!text)
		return NAMES_LOST_TEXT;
	epoch->texts[row] = text;
	return text;
}

bool names_each_batch(struct names *names, const struct prof_cursor_options *options,
		      names_take_batch *take, void *data, GError **error)
{
	const struct prof_table_def *table;
	struct prof_cursor *cursor = NULL;
	struct prof_batch batch;
	bool ok = true;
	int r = prof_cursor_new(names->reader, options, &cursor);

	while (ok && r == 0 && (r = prof_cursor_next(cursor, &batch)) == 0) {
		struct names_epoch *epoch = names_epoch(names, batch.epoch, error);

		ok = epoch != NULL;
		if (!ok)
			break;
		epoch->pins++;
		ok = take(epoch, &batch, data, error);
		epoch->pins--;
	}
	prof_cursor_free(cursor);
	if (!ok || r == PROF_END || r == PROF_NO_TABLE)
		return ok;
	table = prof_reader_table(names->reader, options->table);
	if (!table || !names->file)
		return capture_error(error, r, _("cannot read the capture"));
	return capture_error(error, r, _("cannot read table '%s' of '%s'"), table->name,
			     names->file);
}

/* Adds or replaces the entry of an identity, and returns its index. Takes ownership of `key`. */
static uint32_t identify(struct names *names, GArray *entries, char *key, const void *entry)
{
	const size_t size = g_array_get_element_size(entries);
	uint32_t index = GPOINTER_TO_UINT(g_hash_table_lookup(names->keys, key));

	if (index) {
		memcpy(entries->data + index * size, entry, size);
		g_free(key);
		return index;
	}
	g_array_append_vals(entries, entry, 1);
	g_hash_table_insert(names->keys, key, GUINT_TO_POINTER(entries->len - 1));
	return entries->len - 1;
}

/* Returns the slot for the index of an id. For an id without a row, returns `none`, which is set to
 * NAMES_NONE or NAMES_LOST. */
static uint32_t *slot_of(struct names_epoch *epoch, enum names_table table, uint64_t id,
			 uint32_t *none)
{
	ssize_t row = names_row(epoch, table, id);

	*none = id ? NAMES_LOST : NAMES_NONE;
	if (row < 0)
		return none;
	if (!epoch->indexes[table])
		epoch->indexes[table] = rows_of(epoch, table, sizeof(uint32_t));
	return &epoch->indexes[table][row];
}

static const char *text_at(struct names_epoch *epoch, enum names_table table, unsigned column,
			   size_t row)
{
	return names_text(epoch, number_or_0(epoch, table, column, row));
}

static const char *build_id_text(struct names_epoch *epoch, size_t row)
{
	const struct prof_array *column =
		prof_dictionary_column(epoch->tables[NAMES_IMAGE], PROF_IMAGE_BUILD_ID);
	g_autofree char *hex = NULL;

	if (!column->bytes || !column->offsets || (column->nulls && column->nulls[row]) ||
	    column->offsets[row] == column->offsets[row + 1])
		return NULL;
	hex = text_hex(column->bytes + column->offsets[row],
		       column->offsets[row + 1] - column->offsets[row]);
	return names_intern(epoch->names, hex, strlen(hex));
}

uint32_t names_process(struct names_epoch *epoch, uint64_t id)
{
	uint32_t none, *slot = slot_of(epoch, NAMES_PROCESS, id, &none);
	struct names_process process;
	size_t row;

	if (slot == &none || *slot)
		return *slot;
	row = (size_t)(slot - epoch->indexes[NAMES_PROCESS]);
	process = (struct names_process){
		.pid = number_or_0(epoch, NAMES_PROCESS, PROF_PROCESS_PID, row),
		.ppid = number_or_0(epoch, NAMES_PROCESS, PROF_PROCESS_PPID, row),
		.start_time = number_or_0(epoch, NAMES_PROCESS, PROF_PROCESS_START_TIME, row),
		.exec_generation =
			number_or_0(epoch, NAMES_PROCESS, PROF_PROCESS_EXEC_GENERATION, row),
		.uid = number_or_0(epoch, NAMES_PROCESS, PROF_PROCESS_UID, row),
		.exe = text_at(epoch, NAMES_PROCESS, PROF_PROCESS_EXE, row),
		.cgroup = text_at(epoch, NAMES_PROCESS, PROF_PROCESS_CGROUP, row),
	};
	return *slot = identify(epoch->names, epoch->names->processes,
				g_strdup_printf("p%" PRIu64 ":%" PRIu64 ":%" PRIu64, process.pid,
						process.start_time, process.exec_generation),
				&process);
}

uint32_t names_thread(struct names_epoch *epoch, uint64_t id)
{
	uint32_t none, *slot = slot_of(epoch, NAMES_THREAD, id, &none);
	struct names_thread thread;
	size_t row;

	if (slot == &none || *slot)
		return *slot;
	row = (size_t)(slot - epoch->indexes[NAMES_THREAD]);
	thread = (struct names_thread){
		.tid = number_or_0(epoch, NAMES_THREAD, PROF_THREAD_TID, row),
		.start_time = number_or_0(epoch, NAMES_THREAD, PROF_THREAD_START_TIME, row),
		.process = names_process(epoch, number_or_0(epoch, NAMES_THREAD,
							    PROF_THREAD_PROCESS, row)),
		.comm = text_at(epoch, NAMES_THREAD, PROF_THREAD_COMM, row),
	};
	return *slot = identify(epoch->names, epoch->names->threads,
				g_strdup_printf("t%u:%" PRIu64 ":%" PRIu64, thread.process,
						thread.tid, thread.start_time),
				&thread);
}

/* Returns the key of an image. Without `of_file` the key matches any file. */
static char *image_key(const struct names_image *image, bool of_file)
{
	/* the same build-id at the same path is the same file, even if one row lacks the size */
	const bool told = image->build_id != NULL;

	return g_strdup_printf("i%u:%u:%" PRIu64 ":%" PRIu64 ":%" PRIu64 ":%s:%s", image->kind,
			       image->process, of_file ? image->dev : 0, of_file ? image->inode : 0,
			       told ? 0 : image->size, told ? image->build_id : "",
			       image->path ? image->path : "");
}

static bool names_file(const struct names_image *image)
{
	return image->dev != 0 || image->inode != 0;
}

/* An image with only build-id and path is identified with the first file that has both, whichever
 * row comes first. */
static uint32_t identify_image(struct names *names, const struct names_image *image)
{
	g_autofree char *key = image_key(image, true), *any = image_key(image, false);
	uint32_t index = GPOINTER_TO_UINT(g_hash_table_lookup(names->keys, key));

	if (index)
		return index;
	index = image->build_id ? GPOINTER_TO_UINT(g_hash_table_lookup(names->keys, any)) : 0;
	if (!index || (names_file(image) && names_file(names_image_at(names, index)))) {
		g_array_append_vals(names->images, image, 1);
		if (!index && image->build_id && names_file(image))
			g_hash_table_insert(names->keys, g_steal_pointer(&any),
					    GUINT_TO_POINTER(names->images->len - 1));
		index = names->images->len - 1;
	}
	g_hash_table_insert(names->keys, g_steal_pointer(&key), GUINT_TO_POINTER(index));
	return index;
}

/* Completes a known image: a row with the size, or with device and inode, is preferred. */
static void update_image(struct names_image *known, const struct names_image *image)
{
	if (!names_file(known) && names_file(image)) {
		known->dev = image->dev;
		known->inode = image->inode;
	}
	if (image->size == 0 && known->size != 0)
		return;
	known->size = image->size;
	known->ctime_ns = image->ctime_ns;
	known->id = image->id;
	known->epoch = image->epoch;
}

uint32_t names_image(struct names_epoch *epoch, uint64_t id)
{
	uint32_t none, *slot = slot_of(epoch, NAMES_IMAGE, id, &none);
	size_t row;
	struct names_image image;
	uint32_t index;

	if (slot == &none || *slot)
		return *slot;
	row = (size_t)(slot - epoch->indexes[NAMES_IMAGE]);
	image = (struct names_image){
		.path = text_at(epoch, NAMES_IMAGE, PROF_IMAGE_PATH, row),
		.build_id = build_id_text(epoch, row),
		.size = number_or_0(epoch, NAMES_IMAGE, PROF_IMAGE_SIZE, row),
		.dev = number_or_0(epoch, NAMES_IMAGE, PROF_IMAGE_DEV, row),
		.inode = number_or_0(epoch, NAMES_IMAGE, PROF_IMAGE_INODE, row),
		.ctime_ns = (int64_t)number_or_0(epoch, NAMES_IMAGE, PROF_IMAGE_CTIME, row),
		.kind = (uint32_t)number_or_0(epoch, NAMES_IMAGE, PROF_IMAGE_KIND, row),
		.process = names_process(epoch,
					 number_or_0(epoch, NAMES_IMAGE, PROF_IMAGE_PROCESS, row)),
		.id = id,
		.epoch = epoch->epoch,
	};
	index = identify_image(epoch->names, &image);
	update_image(&g_array_index(epoch->names->images, struct names_image, index), &image);
	return *slot = index;
}
