/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * make-dense - writes a small capture whose rows make a reader allocate much memory
 *
 *     make-dense KIND FILE     writes a capture; `make-dense --list` prints kinds, one per line
 *
 * A column whose numbers are constant, or increase by one, takes about 30 bytes per row group, for
 * any number of rows. So a file of a few hundred kilobytes has millions of valid, distinct rows.
 * Each kind targets one data structure of a reader.
 */
#include "arch/base.h"
#include "libcapture/prof-capture.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define START UINT64_C(5000000000000)
#define DICTIONARY_ROWS (PROF_MAX_DICTIONARY_ROWS - 16)
#define MANY (12u << 20)
#define TEXT_BYTES (15u << 20)

enum rule_value {
	RULE_NONE,
	RULE_CONSTANT, /* n */
	RULE_RISING,   /* row number + n */
	RULE_CYCLE,    /* row number % n + 1 */
	RULE_TEXT,     /* n bytes */
};

struct rule {
	uint16_t column;
	uint8_t value;
	uint64_t n;
};

/* Rows of a table. Columns without a rule: references are 1, ids and times increase, texts and
 * lists are empty, all others are 0. */
struct part {
	uint16_t table;
	uint32_t rows;
	struct rule rules[8];
};

struct kind {
	const char *name;
	struct part parts[6]; /* written after one row of each dictionary table */
	uint32_t epochs;      /* 0: one */
};

#define RISING(column)                 \
	{                              \
		column, RULE_RISING, 1 \
	}

static const struct kind kinds[] = {
	{ "open-spans",
	  { { PROF_TABLE_MARK,
	      MANY,
	      { { PROF_MARK_KIND, RULE_CONSTANT, PROF_MARK_BEGIN }, RISING(PROF_MARK_ID) } } },
	  0 },
	{ "spans",
	  { { PROF_TABLE_MARK,
	      MANY,
	      { { PROF_MARK_KIND, RULE_CONSTANT, PROF_MARK_COMPLETE },
		{ PROF_MARK_DURATION, RULE_CYCLE, 7 } } } },
	  0 },
	{ "mark-names",
	  { { PROF_TABLE_STRING, DICTIONARY_ROWS, { { PROF_STRING_TEXT, RULE_TEXT, 1 } } },
	    { PROF_TABLE_MARK, DICTIONARY_ROWS, { RISING(PROF_MARK_NAME) } } },
	  0 },
	{ "live-blocks",
	  { { PROF_TABLE_ALLOC,
	      MANY,
	      { RISING(PROF_ALLOC_BLOCK), { PROF_ALLOC_SIZE, RULE_CONSTANT, 16 } } } },
	  0 },
	{ "unknown-frees",
	  { { PROF_TABLE_FREE, MANY, { { PROF_FREE_BLOCK, RULE_RISING, 1u << 30 } } } },
	  0 },
	{ "live-rows",
	  { { PROF_TABLE_HEAP,
	      1,
	      { { PROF_HEAP_EVENT, RULE_CONSTANT, PROF_HEAP_CHECKPOINT },
		{ PROF_HEAP_TIME, RULE_CONSTANT, START } } },
	    { PROF_TABLE_LIVE,
	      MANY,
	      { { PROF_LIVE_TIME, RULE_CONSTANT, START },
		RISING(PROF_LIVE_BLOCK),
		{ PROF_LIVE_SIZE, RULE_CONSTANT, 16 } } } },
	  0 },
	{ "heaps",
	  { { PROF_TABLE_PROCESS, DICTIONARY_ROWS, { RISING(PROF_PROCESS_PID) } },
	    { PROF_TABLE_HEAP,
	      DICTIONARY_ROWS,
	      { RISING(PROF_HEAP_PROCESS), { PROF_HEAP_EVENT, RULE_CONSTANT, PROF_HEAP_END } } } },
	  0 },
	{ "strings",
	  { { PROF_TABLE_STRING, DICTIONARY_ROWS, { { PROF_STRING_TEXT, RULE_TEXT, 60 } } },
	    { PROF_TABLE_SAMPLE, 1000, { { 0 } } } },
	  0 },
	{ "images",
	  { { PROF_TABLE_IMAGE, DICTIONARY_ROWS, { { 0 } } },
	    { PROF_TABLE_FRAME, DICTIONARY_ROWS, { RISING(PROF_FRAME_IMAGE) } },
	    { PROF_TABLE_STACK,
	      DICTIONARY_ROWS,
	      { RISING(PROF_STACK_FRAME), { PROF_STACK_PARENT, RULE_CONSTANT, 0 } } },
	    { PROF_TABLE_SAMPLE, DICTIONARY_ROWS, { RISING(PROF_SAMPLE_STACK) } } },
	  0 },
	{ "frames",
	  { { PROF_TABLE_FRAME, DICTIONARY_ROWS, { RISING(PROF_FRAME_OFFSET) } },
	    { PROF_TABLE_STACK,
	      DICTIONARY_ROWS,
	      { RISING(PROF_STACK_FRAME), { PROF_STACK_PARENT, RULE_CONSTANT, 0 } } },
	    { PROF_TABLE_SAMPLE, DICTIONARY_ROWS, { RISING(PROF_SAMPLE_STACK) } } },
	  0 },
	{ "deep-stacks",
	  { { PROF_TABLE_FRAME, DICTIONARY_ROWS, { RISING(PROF_FRAME_OFFSET) } },
	    { PROF_TABLE_STACK,
	      DICTIONARY_ROWS,
	      { { PROF_STACK_PARENT, RULE_RISING, 0 }, RISING(PROF_STACK_FRAME) } },
	    { PROF_TABLE_SAMPLE,
	      1000,
	      { { PROF_SAMPLE_STACK, RULE_CONSTANT, DICTIONARY_ROWS } } } },
	  0 },
	{ "alloc-stacks",
	  { { PROF_TABLE_FRAME, DICTIONARY_ROWS, { RISING(PROF_FRAME_OFFSET) } },
	    { PROF_TABLE_STACK,
	      DICTIONARY_ROWS,
	      { RISING(PROF_STACK_FRAME), { PROF_STACK_PARENT, RULE_CONSTANT, 0 } } },
	    { PROF_TABLE_ALLOC,
	      DICTIONARY_ROWS,
	      { RISING(PROF_ALLOC_BLOCK),
		RISING(PROF_ALLOC_STACK),
		{ PROF_ALLOC_SIZE, RULE_CONSTANT, 16 } } } },
	  0 },
	{ "symbols",
	  { { PROF_TABLE_SYMBOL,
	      DICTIONARY_ROWS,
	      { RISING(PROF_SYMBOL_START), { PROF_SYMBOL_LENGTH, RULE_CONSTANT, 1 } } },
	    { PROF_TABLE_SAMPLE, 1000, { { 0 } } } },
	  0 },
	{ "lines",
	  { { PROF_TABLE_LINE,
	      DICTIONARY_ROWS,
	      { RISING(PROF_LINE_START), { PROF_LINE_LENGTH, RULE_CONSTANT, 1 } } },
	    { PROF_TABLE_SAMPLE, 1000, { { 0 } } } },
	  0 },
	{ "jit",
	  { { PROF_TABLE_JIT,
	      MANY,
	      { RISING(PROF_JIT_ADDRESS), { PROF_JIT_SIZE, RULE_CONSTANT, 1 } } },
	    { PROF_TABLE_IMAGE,
	      1,
	      { { PROF_IMAGE_KIND, RULE_CONSTANT, PROF_IMAGE_JIT },
		{ PROF_IMAGE_PROCESS, RULE_CONSTANT, 1 } } },
	    { PROF_TABLE_SAMPLE, 1000, { { PROF_SAMPLE_TIME, RULE_RISING, START + MANY } } } },
	  0 },
	{ "processes",
	  { { PROF_TABLE_PROCESS, DICTIONARY_ROWS, { RISING(PROF_PROCESS_PID) } },
	    { PROF_TABLE_THREAD,
	      DICTIONARY_ROWS,
	      { RISING(PROF_THREAD_PROCESS), RISING(PROF_THREAD_TID) } },
	    { PROF_TABLE_SAMPLE, DICTIONARY_ROWS, { RISING(PROF_SAMPLE_THREAD) } } },
	  0 },
	{ "threads",
	  { { PROF_TABLE_THREAD, DICTIONARY_ROWS, { RISING(PROF_THREAD_TID) } },
	    { PROF_TABLE_SAMPLE, DICTIONARY_ROWS, { RISING(PROF_SAMPLE_THREAD) } } },
	  0 },
	{ "switches",
	  { { PROF_TABLE_THREAD, DICTIONARY_ROWS, { RISING(PROF_THREAD_TID) } },
	    { PROF_TABLE_SWITCH,
	      DICTIONARY_ROWS,
	      { RISING(PROF_SWITCH_THREAD), { PROF_SWITCH_START, RULE_RISING, START - 10 } } } },
	  0 },
	{ "waits",
	  { { PROF_TABLE_THREAD, DICTIONARY_ROWS, { RISING(PROF_THREAD_TID) } },
	    { PROF_TABLE_FRAME, DICTIONARY_ROWS, { RISING(PROF_FRAME_OFFSET) } },
	    { PROF_TABLE_STACK,
	      DICTIONARY_ROWS,
	      { RISING(PROF_STACK_FRAME), { PROF_STACK_PARENT, RULE_CONSTANT, 0 } } },
	    { PROF_TABLE_WAIT,
	      DICTIONARY_ROWS,
	      { RISING(PROF_WAIT_THREAD),
		RISING(PROF_WAIT_STACK),
		RISING(PROF_WAIT_ARGUMENT),
		{ PROF_WAIT_WAKER, RULE_CONSTANT, PROF_WAKER_THREAD },
		RISING(PROF_WAIT_WAKER_STACK),
		RISING(PROF_WAIT_WAKER_ARGUMENT),
		{ PROF_WAIT_DURATION, RULE_CYCLE, 7 },
		{ PROF_WAIT_STATE, RULE_CYCLE, 4 } } } },
	  0 },
	/* a thread that is its own predecessor at each exec, and threads that wake each other while
	 * they wait */
	{ "wait-chains",
	  { { PROF_TABLE_THREAD, 1000, { RISING(PROF_THREAD_TID) } },
	    { PROF_TABLE_TASK, 1, { { PROF_TASK_EVENT, RULE_CONSTANT, PROF_TASK_EXISTS } } },
	    { PROF_TABLE_TASK, 1000, { { PROF_TASK_EVENT, RULE_CONSTANT, PROF_TASK_EXEC } } },
	    { PROF_TABLE_SWITCH, 100000, { { PROF_SWITCH_THREAD, RULE_CYCLE, 1000 } } },
	    { PROF_TABLE_WAIT,
	      100000,
	      { { PROF_WAIT_THREAD, RULE_CYCLE, 3 },
		{ PROF_WAIT_WAKER, RULE_CONSTANT, PROF_WAKER_THREAD },
		{ PROF_WAIT_WAKER_THREAD, RULE_CYCLE, 2 },
		{ PROF_WAIT_DURATION, RULE_CYCLE, 7 } } } },
	  0 },
	{ "task-names",
	  { { PROF_TABLE_STRING, 3, { { PROF_STRING_TEXT, RULE_TEXT, 3 } } },
	    { PROF_TABLE_TASK,
	      MANY,
	      { { PROF_TASK_EVENT, RULE_CONSTANT, PROF_TASK_COMM_CHANGE },
		{ PROF_TASK_COMM, RULE_CYCLE, 2 } } },
	    { PROF_TABLE_SAMPLE, 1000, { { PROF_SAMPLE_TIME, RULE_RISING, START + MANY } } } },
	  0 },
	{ "exits",
	  { { PROF_TABLE_PROCESS, DICTIONARY_ROWS, { RISING(PROF_PROCESS_PID) } },
	    { PROF_TABLE_THREAD,
	      DICTIONARY_ROWS,
	      { RISING(PROF_THREAD_PROCESS), RISING(PROF_THREAD_TID) } },
	    { PROF_TABLE_TASK,
	      DICTIONARY_ROWS,
	      { { PROF_TASK_EVENT, RULE_CONSTANT, PROF_TASK_EXIT }, RISING(PROF_TASK_THREAD) } } },
	  0 },
	{ "interpreters",
	  { { PROF_TABLE_IMAGE,
	      1u << 18,
	      { { PROF_IMAGE_KIND, RULE_CONSTANT, PROF_IMAGE_INTERPRETER },
		RISING(PROF_IMAGE_INODE) } },
	    { PROF_TABLE_FRAME, 1u << 18, { RISING(PROF_FRAME_IMAGE) } },
	    { PROF_TABLE_STACK, 1u << 18, { RISING(PROF_STACK_FRAME) } },
	    { PROF_TABLE_SAMPLE, 1u << 18, { RISING(PROF_SAMPLE_STACK) } } },
	  0 },
	{ "mappings",
	  { { PROF_TABLE_MAPPING,
	      MANY,
	      { { PROF_MAPPING_START, RULE_RISING, 1u << 20 },
		{ PROF_MAPPING_LENGTH, RULE_CONSTANT, 1 } } },
	    { PROF_TABLE_SAMPLE, 1000, { { PROF_SAMPLE_TIME, RULE_RISING, START + MANY } } } },
	  0 },
	{ "samples", { { PROF_TABLE_SAMPLE, 2 * MANY, { { 0 } } } }, 0 },
	{ "sources",
	  { { PROF_TABLE_SOURCE, DICTIONARY_ROWS, { { 0 } } },
	    { PROF_TABLE_SAMPLE, DICTIONARY_ROWS, { RISING(PROF_SAMPLE_SOURCE) } } },
	  0 },
	{ "counters",
	  { { PROF_TABLE_COUNTER, DICTIONARY_ROWS, { { PROF_COUNTER_PROCESS, RULE_RISING, 1 } } },
	    { PROF_TABLE_COUNTER_VALUE, DICTIONARY_ROWS, { RISING(PROF_COUNTER_VALUE_COUNTER) } } },
	  0 },
	{ "counter-values",
	  { { PROF_TABLE_COUNTER_VALUE, MANY, { { PROF_COUNTER_VALUE_VALUE, RULE_CYCLE, 5 } } } },
	  0 },
	{ "losses",
	  { { PROF_TABLE_LOSS,
	      MANY,
	      { { PROF_LOSS_STREAM, RULE_TEXT, 1 }, { PROF_LOSS_COUNT, RULE_CONSTANT, 1 } } } },
	  0 },
	{ "metadata",
	  { { PROF_TABLE_METADATA,
	      12,
	      { { PROF_METADATA_KEY, RULE_TEXT, 0 },
		{ PROF_METADATA_VALUE, RULE_TEXT, TEXT_BYTES } } } },
	  0 },
	{ "logs",
	  { { PROF_TABLE_LOG, 12, { { PROF_LOG_TEXT, RULE_TEXT, TEXT_BYTES } } },
	    { PROF_TABLE_LOG, MANY, { { 0 } } } },
	  0 },
	{ "epochs",
	  { { PROF_TABLE_THREAD, 1u << 16, { RISING(PROF_THREAD_TID) } },
	    { PROF_TABLE_SAMPLE, 1u << 16, { RISING(PROF_SAMPLE_THREAD) } } },
	  64 },
};

static void check(int r, const char *what)
{
	if (r == 0)
		return;
	fprintf(stderr, "make-dense: %s: %s\n", what, prof_strerror(r));
	exit(1);
}

static uint64_t default_number(const struct prof_column_def *column, uint64_t row)
{
	if (column->type == PROF_TYPE_TIME)
		return START + row;
	if (column->type == PROF_TYPE_REF)
		return 1;
	return column->id == 0 ? row + 1 : 0;
}

static struct prof_value value_of(const struct prof_column_def *column, const struct rule *rule,
				  uint64_t row)
{
	static char text[TEXT_BYTES];
	uint64_t n = rule ? rule->n : 0;

	if (text[0] == 0)
		memset(text, 'x', sizeof(text));
	if (column->type == PROF_TYPE_TEXT || column->type == PROF_TYPE_BINARY)
		return PROF_BYTES(text, n);
	if (column->flags & PROF_COLUMN_LIST)
		return PROF_BYTES(text, 0);
	if (!rule)
		return PROF_NUMBER(default_number(column, row));
	if (rule->value == RULE_CYCLE)
		return PROF_NUMBER(row % n + 1);
	return PROF_NUMBER(rule->value == RULE_RISING ? row + n : n);
}

static const struct rule *rule_of(const struct part *part, uint16_t column)
{
	for (size_t i = 0; i < ARRAY_SIZE(part->rules) && part->rules[i].value != RULE_NONE; i++)
		if (part->rules[i].column == column)
			return &part->rules[i];
	return NULL;
}

static void write_block(struct prof_writer *writer, struct prof_block *block)
{
	check(prof_writer_write(writer, block), "cannot write");
	prof_block_reset(block);
}

static void write_part(struct prof_writer *writer, const struct part *part, uint32_t epoch)
{
	const struct prof_table_def *def = prof_table_v1(part->table);
	struct prof_value values[PROF_MAX_COLUMNS];
	struct prof_block *block;

	check(prof_block_new(def, &block), "no block");
	prof_block_set_epoch(block, epoch);
	for (uint64_t row = 0; row < part->rows; row++) {
		int r;

		for (uint16_t c = 0; c < def->n_columns; c++)
			values[c] = value_of(&def->columns[c], rule_of(part, c), row);
		r = prof_block_add(block, values);
		if (r == PROF_LIMIT) {
			write_block(writer, block);
			r = prof_block_add(block, values);
		}
		check(r, def->name);
	}
	write_block(writer, block);
	prof_block_free(block);
}

static void write_epoch(struct prof_writer *writer, const struct kind *kind, uint32_t epoch)
{
	for (uint16_t id = 1; id < PROF_TABLE_SAMPLE; id++)
		if (prof_table_v1(id))
			write_part(writer, &(struct part){ .table = id, .rows = 1 }, epoch);
	for (size_t i = 0; i < ARRAY_SIZE(kind->parts) && kind->parts[i].rows; i++)
		write_part(writer, &kind->parts[i], epoch);
}

static void make(const struct kind *kind, const char *path)
{
	const struct prof_writer_options options = {
		.segment = { .boot_id = { 0xb0, 0x07 },
			     .start_monotonic_ns = START,
			     .wall_ns = INT64_C(1700000000000000000) },
		.group_rows = PROF_MAX_GROUP_ROWS,
	};
	int fd = open(path, O_RDWR | O_CLOEXEC | O_CREAT | O_TRUNC, 0666);
	struct prof_writer *writer;

	check(fd < 0 ? -errno : 0, path);
	check(prof_writer_new(fd, &options, &writer), path);
	for (uint32_t i = 0; i < MAX_OF(kind->epochs, 1u); i++)
		write_epoch(writer, kind, prof_writer_first_epoch(writer) + i);
	check(prof_writer_finish(writer), "cannot finish");
	prof_writer_free(writer);
	close(fd);
}

int main(int argc, char **argv)
{
	bool list = argc == 2 && strcmp(argv[1], "--list") == 0;

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		if (list)
			puts(kinds[i].name);
		if (argc != 3 || strcmp(argv[1], kinds[i].name) != 0)
			continue;
		make(&kinds[i], argv[2]);
		return 0;
	}
	if (!list)
		fputs("Usage: make-dense KIND FILE | make-dense --list\n", stderr);
	return list ? 0 : 2;
}
