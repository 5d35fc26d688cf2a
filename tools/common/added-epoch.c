/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Added epoch - the rows that a capture gets after its recording
 *
 * Invariant: a row is written before the rows that refer to it [test-symbolize: named]
 */
#include "config.h"

#include "tools/common/added-epoch.h"

#include "tools/common/capture-error.h"

#include <glib/gi18n.h>
#include <string.h>
#include <unistd.h>

#define CHUNK_ROWS (64u << 10)

/* In writing order: a table comes before those that refer to it. */
static const enum prof_table tables[] = { PROF_TABLE_STRING, PROF_TABLE_IMAGE, PROF_TABLE_PROCESS,
					  PROF_TABLE_SYMBOL, PROF_TABLE_LINE,  PROF_TABLE_JIT };

bool added_epoch_begin(struct added_epoch *added, int fd, GError **error)
{
	const struct prof_writer_options options = { .mode = PROF_WRITE_EXTEND };
	off_t size = lseek(fd, 0, SEEK_END);
	int r = prof_writer_new(fd, &options, &added->writer);

	added->fd = fd;
	/* If prof_writer_new() failed, another process may be writing the file. */
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

void added_epoch_done(struct added_epoch *added)
{
	/* Fails if the file system has become read-only. */
	if (added->writer && added->size >= 0 && ftruncate(added->fd, added->size) < 0)
		g_debug("the rows that were added cannot be removed");
	for (size_t i = 0; i < ARRAY_SIZE(added->blocks); i++)
		prof_block_free(added->blocks[i]);
	prof_writer_free(added->writer);
	if (added->texts)
		g_hash_table_unref(added->texts);
	if (added->kept)
		g_string_chunk_free(added->kept);
}

static int write_table(struct added_epoch *added, enum prof_table table)
{
	struct prof_block *block = added->blocks[table];
	int r = prof_block_rows(block) ? prof_writer_write(added->writer, block) : 0;

	prof_block_reset(block);
	return r;
}

static int write_all(struct added_epoch *added)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(tables); i++)
		r = write_table(added, tables[i]);
	return r;
}

bool added_epoch_finish(struct added_epoch *added, GError **error)
{
	int r;

	if (!added->writer)
		return true;
	r = write_all(added);
	if (r == 0)
		r = prof_writer_finish(added->writer);
	if (r == 0)
		added->size = -1;
	return r == 0 || capture_error(error, r, _("cannot add symbols to the capture"));
}

/* Adds a row. A full block is written first, after the tables that it refers to. */
static int put(struct added_epoch *added, enum prof_table table, const struct prof_value *values)
{
	struct prof_block *block = added->blocks[table];
	int r = prof_block_rows(block) < CHUNK_ROWS ? prof_block_add(block, values) : PROF_LIMIT;

	if (r != PROF_LIMIT)
		return r;
	r = table == PROF_TABLE_STRING ? write_table(added, table) : write_all(added);
	return r ? r : prof_block_add(block, values);
}

uint64_t added_epoch_next_symbol(const struct added_epoch *added)
{
	return added->next_ids[PROF_TABLE_SYMBOL];
}

static int add_text(struct added_epoch *added, const char *text, uint64_t *ret_id)
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
	*ret_id = added->next_ids[PROF_TABLE_STRING]++;
	g_hash_table_insert(added->texts, g_string_chunk_insert(added->kept, text),
			    GSIZE_TO_POINTER(*ret_id));
	values[PROF_STRING_ID] = PROF_NUMBER(*ret_id);
	values[PROF_STRING_TEXT] = PROF_BYTES(text, strlen(text));
	return put(added, PROF_TABLE_STRING, values);
}

int added_epoch_image(struct added_epoch *added, const struct names_image *image,
		      const GByteArray *build_id, uint64_t process, uint64_t *ret_id)
{
	struct prof_value values[PROF_IMAGE_COLUMNS] = { 0 };
	uint64_t path;
	int r = add_text(added, image->path, &path);

	if (r != 0)
		return r;
	*ret_id = added->next_ids[PROF_TABLE_IMAGE]++;
	values[PROF_IMAGE_ID] = PROF_NUMBER(*ret_id);
	values[PROF_IMAGE_PATH] = PROF_NUMBER(path);
	values[PROF_IMAGE_BUILD_ID] = PROF_BYTES(build_id->data, build_id->len);
	values[PROF_IMAGE_SIZE] = PROF_NUMBER(image->size);
	values[PROF_IMAGE_DEV] = PROF_NUMBER(image->dev);
	values[PROF_IMAGE_INODE] = PROF_NUMBER(image->inode);
	values[PROF_IMAGE_KIND] = PROF_NUMBER(image->kind);
	values[PROF_IMAGE_PROCESS] = PROF_NUMBER(process);
	values[PROF_IMAGE_CTIME] = PROF_NUMBER(image->ctime_ns);
	return put(added, PROF_TABLE_IMAGE, values);
}

int added_epoch_symbol(struct added_epoch *added, uint64_t image, uint64_t first_id,
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
	values[PROF_SYMBOL_ID] = PROF_NUMBER(added->next_ids[PROF_TABLE_SYMBOL]++);
	values[PROF_SYMBOL_IMAGE] = PROF_NUMBER(image);
	values[PROF_SYMBOL_START] = PROF_NUMBER(symbol->start);
	values[PROF_SYMBOL_LENGTH] = PROF_NUMBER(symbol->length);
	values[PROF_SYMBOL_NAME] = PROF_NUMBER(name);
	values[PROF_SYMBOL_RAW_NAME] = PROF_NUMBER(raw_name);
	values[PROF_SYMBOL_FILE] = PROF_NUMBER(file);
	values[PROF_SYMBOL_LINE] = PROF_NUMBER(symbol->line);
	if (symbol->inline_parent != SYMBOLS_NONE)
		values[PROF_SYMBOL_INLINE_PARENT] = PROF_NUMBER(first_id + symbol->inline_parent);
	return put(added, PROF_TABLE_SYMBOL, values);
}

int added_epoch_line(struct added_epoch *added, uint64_t image, uint64_t first_symbol,
		     const struct symbol_line *line)
{
	struct prof_value values[PROF_LINE_COLUMNS] = { 0 };
	uint64_t file;
	int r = add_text(added, line->file, &file);

	if (r != 0)
		return r;
	values[PROF_LINE_ID] = PROF_NUMBER(added->next_ids[PROF_TABLE_LINE]++);
	values[PROF_LINE_IMAGE] = PROF_NUMBER(image);
	values[PROF_LINE_START] = PROF_NUMBER(line->start);
	values[PROF_LINE_LENGTH] = PROF_NUMBER(line->length);
	values[PROF_LINE_FILE] = PROF_NUMBER(file);
	values[PROF_LINE_LINE] = PROF_NUMBER(line->line);
	if (line->symbol != SYMBOLS_NONE)
		values[PROF_LINE_SYMBOL] = PROF_NUMBER(first_symbol + line->symbol);
	return put(added, PROF_TABLE_LINE, values);
}

int added_epoch_process(struct added_epoch *added, const struct names_process *process,
			uint64_t *ret_id)
{
	struct prof_value values[PROF_PROCESS_COLUMNS] = { 0 };

	*ret_id = added->next_ids[PROF_TABLE_PROCESS]++;
	values[PROF_PROCESS_ID] = PROF_NUMBER(*ret_id);
	values[PROF_PROCESS_PID] = PROF_NUMBER(process->pid);
	values[PROF_PROCESS_PPID] = PROF_NUMBER(process->ppid);
	values[PROF_PROCESS_START_TIME] = PROF_NUMBER(process->start_time);
	values[PROF_PROCESS_EXEC_GENERATION] = PROF_NUMBER(process->exec_generation);
	values[PROF_PROCESS_UID] = PROF_NUMBER(process->uid);
	return put(added, PROF_TABLE_PROCESS, values);
}

int added_epoch_jit(struct added_epoch *added, uint64_t process, const struct jit_name *name)
{
	struct prof_value values[PROF_JIT_COLUMNS] = { 0 };
	uint64_t text;
	int r = add_text(added, *name->name ? name->name : NULL, &text);

	if (r != 0)
		return r;
	values[PROF_JIT_TIME] = PROF_NUMBER(name->time_ns);
	values[PROF_JIT_PROCESS] = PROF_NUMBER(process);
	values[PROF_JIT_EVENT] = PROF_NUMBER(name->event);
	values[PROF_JIT_ADDRESS] = PROF_NUMBER(name->address);
	values[PROF_JIT_SIZE] = PROF_NUMBER(name->size);
	values[PROF_JIT_NAME] = PROF_NUMBER(text);
	values[PROF_JIT_FROM] = name->event == PROF_JIT_MOVE ? PROF_NUMBER(name->from) : PROF_NULL;
	return put(added, PROF_TABLE_JIT, values);
}
