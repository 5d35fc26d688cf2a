/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Names - what the ids of a capture mean
 *
 * Ids are valid in one epoch, so a tool that reads a whole capture needs two things: the
 * dictionaries of the epoch whose rows it is reading (names_load() loads them; names_epoch() keeps
 * two epochs, plus those that names_each_batch() is reading), and numbers that mean the same image,
 * process and thread in all epochs ("indexes" below, into names->images, ->processes and
 * ->threads). Index 0 is "none", index 1 is "<lost>": an id that the capture does not define. A
 * lookup with that result is counted in names->lost and is never an error.
 *
 * Identity: image = (build-id, dev, inode, path, kind, process instance if anonymous), and the size
 *           if there is no build-id. Device and inode may be unknown: an image with only build-id
 *           and path is identified with the first file that has both;
 *           process = (pid, start time, exec generation); thread = (process, tid, start time);
 *           text = its bytes.
 * For one thread.
 */
#pragma once

#include "arch/base.h"
#include "libcapture/prof-capture.h"

#include <glib.h>

#define NAMES_NONE 0u
#define NAMES_LOST 1u
#define NAMES_LOST_TEXT "<lost>"

struct redactor;

struct names_image {
	const char *path;     /* NULL = none */
	const char *build_id; /* lower-case hex, NULL = none */
	uint64_t size, dev, inode;
	int64_t ctime_ns; /* not part of the identity */
	uint32_t kind;    /* enum prof_image_kind */
	uint32_t process; /* index; only for anonymous and JIT memory */
	uint64_t id;      /* id in `epoch`, from the last row with a size, else from the last row */
	uint32_t epoch;
};

struct names_process {
	uint64_t pid, ppid, start_time, exec_generation, uid;
	const char *exe, *cgroup; /* NULL = none */
};

struct names_thread {
	uint64_t tid, start_time;
	uint32_t process; /* index */
	const char *comm; /* the last one; NULL: none */
};

enum names_table {
	NAMES_STRING,
	NAMES_IMAGE,
	NAMES_FRAME,
	NAMES_STACK,
	NAMES_PROCESS,
	NAMES_THREAD,
	NAMES_TABLES
};

struct names_epoch {
	uint32_t epoch;
	unsigned int pins; /* running names_take_batch calls; above 0, the epoch stays loaded */
	struct names *names;
	struct prof_dictionary *tables[NAMES_TABLES]; /* NULL = not loaded */
	bool loaded[NAMES_TABLES];
	const char **texts; /* indexed by row of the table string; NULL: not looked up yet */
	/* for image, process and thread: index by row; NAMES_NONE: not looked up yet */
	uint32_t *indexes[NAMES_TABLES];
	/* used by functions.c: by row of the table frame; freed with g_free() */
	void *frame_functions;
};

struct names {
	const struct prof_reader *reader;
	const char *file;        /* name of the capture in messages; NULL: not named */
	GPtrArray *epochs;       /* struct names_epoch; the most recently used one is last */
	uint64_t removed_epochs; /* number of epochs that have been freed */
	uint64_t lost;           /* number of lookups with the result "<lost>" */
	/* returns the text to use in place of each text; NULL: use texts as they are */
	char *(*redact)(const struct redactor *redactor, const char *text);
	const struct redactor *redactor;
	/* show the interpreter's own frames in the stacks of interpreted programs */
	bool interpreter_frames;
	/* leave the interpreted functions out of stacks */
	bool native_frames;
	bool of_system;    /* the capture is of the whole system, not of one program */
	GHashTable *texts; /* set of interned strings */
	GArray *images;    /* struct names_image */
	GArray *processes; /* struct names_process */
	GArray *threads;   /* struct names_thread */
	GHashTable *keys;  /* index by identity, for images, processes and threads */
};

struct names *names_new(const struct prof_reader *reader); /* borrows the reader */
void names_free(struct names *names);

/* Returns an epoch, valid until two other epochs have been requested. Its strings, images,
 * processes and threads are loaded, but no other table. */
struct names_epoch *names_epoch(struct names *names, uint32_t epoch, GError **error);

/* Loads a table of the epoch if needed. ->tables[table] stays NULL if the capture lacks it. */
bool names_load(struct names_epoch *epoch, enum names_table table, GError **error);

/* Returns the row of an id in a loaded table. If it has none, returns -1, and counts a loss unless
 * the id is 0. */
ssize_t names_row(struct names_epoch *epoch, enum names_table table, uint64_t id);

/* Gets a value from a loaded table. `column`: position in the schema of version 1. Returns false if
 * the value is null or missing. */
bool names_number(const struct names_epoch *epoch, enum names_table table, unsigned column,
		  size_t row, uint64_t *ret_value);

/* Calls `take` for each batch of a table, with the identities of its epoch loaded, until `take`
 * returns false. The epoch stays valid while `take` runs, even if `take` uses other epochs. A
 * missing table has no batches. */
typedef bool names_take_batch(struct names_epoch *epoch, const struct prof_batch *batch, void *data,
			      GError **error);
bool names_each_batch(struct names *names, const struct prof_cursor_options *options,
		      names_take_batch *take, void *data, GError **error);
/* The options to read these columns of all rows of a table. */
#define NAMES_COLUMNS(id, ...) NAMES_COLUMNS_OF(id, ((const uint16_t[]){ __VA_ARGS__ }))
#define NAMES_COLUMNS_OF(id, array)                               \
	(&(const struct prof_cursor_options){ .table = (id),      \
					      .columns = (array), \
					      .n_columns = sizeof(array) / sizeof(uint16_t) })

/* Returns the text of an id: NULL for id 0, NAMES_LOST_TEXT for an undefined id. The text is valid
 * as long as `names`. NUL bytes are replaced by spaces. */
const char *names_text(struct names_epoch *epoch, uint64_t id);
const char *names_intern(struct names *names, const void *bytes, size_t length);
/* Returns the text in a column of texts; NULL if the chunk lacks the column. */
const char *names_text_at(struct names *names, const struct prof_array *column, size_t row);
/* Returns the displayed name of a function, without clone suffixes; NULL for NULL. */
const char *names_function(struct names *names, const char *name);

/* Return the index of an id. */
uint32_t names_image(struct names_epoch *epoch, uint64_t id);
uint32_t names_process(struct names_epoch *epoch, uint64_t id);
uint32_t names_thread(struct names_epoch *epoch, uint64_t id);

/* Returns the number of identities. names_forget() drops them all, which invalidates every index;
 * it is for callers that keep no index from one epoch to the next. */
size_t names_identities(const struct names *names);
void names_forget(struct names *names);

static inline const struct names_image *names_image_at(const struct names *names, uint32_t index)
{
	return &((const struct names_image *)(void *)names->images->data)[index];
}

static inline const struct names_process *names_process_at(const struct names *names,
							   uint32_t index)
{
	return &((const struct names_process *)(void *)names->processes->data)[index];
}

static inline const struct names_thread *names_thread_at(const struct names *names, uint32_t index)
{
	return &((const struct names_thread *)(void *)names->threads->data)[index];
}

/* Gets a number of a batch or dictionary column. Returns false if it is null, or if the chunk does
 * not have the column. */
static inline bool array_number(const struct prof_array *array, size_t row, uint64_t *ret_value)
{
	if (!array->numbers || (array->nulls && array->nulls[row]))
		return false;
	*ret_value = array->numbers[row];
	return true;
}

static inline uint64_t array_number_or(const struct prof_array *array, size_t row,
				       uint64_t otherwise)
{
	(void)array_number(array, row, &otherwise);
	return otherwise;
}
