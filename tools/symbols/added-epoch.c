/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Added epoch - the rows that a capture gets after its recording
 *
 * Invariant: a row is written before the rows that refer to it [test-symbolize: named]
 */
#include "config.h"

#include "tools/symbols/added-epoch.h"

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

bool added_epoch_ok(const struct added_epoch *added, GError **error)
{
	return added->result == 0 ||
	       capture_error(error, added->result, _("cannot add symbols to the capture"));
}

bool added_epoch_finish(struct added_epoch *added, GError **error)
{
	if (!added->writer)
		return true;
	write_all(added);
	if (added->result == 0)
		added->result = prof_writer_finish(added->writer);
	if (added->result == 0)
		added->size = -1;
	return added_epoch_ok(added, error);
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

uint64_t added_epoch_next_symbol(const struct added_epoch *added)
{
	return added->next_ids[PROF_TABLE_SYMBOL];
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

uint64_t added_epoch_image(struct added_epoch *added, const struct names_image *image,
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

void added_epoch_symbol(struct added_epoch *added, uint64_t image, uint64_t first_id,
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
	};

	/* In the order of the ids. */
	values[PROF_SYMBOL_NAME] = add_text(added, symbol->name);
	values[PROF_SYMBOL_RAW_NAME] = add_text(added, symbol->raw_name);
	values[PROF_SYMBOL_FILE] = add_text(added, symbol->file);
	put(added, PROF_TABLE_SYMBOL, values);
}

void added_epoch_line(struct added_epoch *added, uint64_t image, uint64_t first_symbol,
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

uint64_t added_epoch_process(struct added_epoch *added, const struct names_process *process)
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

void added_epoch_jit(struct added_epoch *added, uint64_t process, const struct jit_name *name)
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
