/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Reader - an open capture
 *
 * Opens the file (copying a pipe into a temporary file first), finds its chunks through index.c,
 * and determines its state.
 *
 * Invariants: (1) every prefix of a capture with a whole file header opens and has all complete
 *                 chunks  [test-capture-reader: prefixes]
 *             (2) damage to headers, schema, index and checkpoints loses no row
 *                 [test-capture-reader: flips]
 *             (3) after open only the list of losses changes, and it has a lock, so threads may
 *                 share a reader  [test-capture-threads]
 */
#include "libcapture/reader.h"
#include "base/order.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#define SPOOL_BYTES (256u << 10)

/* ---- Lists ----------------------------------------------------------------------------------- */

void damage_list_done(struct damage_list *list)
{
	free(list->items);
	*list = (struct damage_list){ 0 };
}

int damage_list_add(struct damage_list *list, const struct prof_damage *damage)
{
	if (list->n == list->capacity) {
		size_t capacity = MAX_OF((size_t)16, list->capacity * 2);
		struct prof_damage *items = reallocarray(list->items, capacity, sizeof(*items));

		if (!items)
			return -ENOMEM;
		list->items = items;
		list->capacity = capacity;
	}
	list->items[list->n++] = *damage;
	return 0;
}

void epoch_set_done(struct epoch_set *set)
{
	free(set->items);
	*set = (struct epoch_set){ 0 };
}

COMPARE_BY(compare_u32, uint32_t, ORDER(*a, *b))

static void epoch_set_sort(struct epoch_set *set)
{
	size_t n = 0;

	if (set->n > 0)
		qsort(set->items, set->n, sizeof(*set->items), compare_u32);
	for (size_t i = 0; i < set->n; i++)
		if (n == 0 || set->items[n - 1] != set->items[i])
			set->items[n++] = set->items[i];
	set->n = n;
}

/* Adds an epoch. When the array is full, removes duplicates, and grows the array unless more than
 * half were duplicates. */
int epoch_set_add(struct epoch_set *set, uint32_t epoch)
{
	size_t capacity = MAX_OF((size_t)64, set->capacity * 2);
	uint32_t *items;

	if (set->n > 0 && set->items[set->n - 1] == epoch)
		return 0;
	if (set->n == set->capacity) {
		epoch_set_sort(set);
		if (set->n >= set->capacity / 2) {
			items = reallocarray(set->items, capacity, sizeof(*items));
			if (!items)
				return -ENOMEM;
			set->items = items;
			set->capacity = capacity;
		}
	}
	set->items[set->n++] = epoch;
	return 0;
}

int reader_add_damage(struct prof_reader *reader, uint64_t offset, uint64_t bytes,
		      uint64_t sequence, enum prof_damage_reason reason)
{
	const struct prof_damage damage = {
		.offset = offset, .bytes = bytes, .sequence = sequence, .reason = reason
	};

	return damage_list_add(&reader->damage, &damage);
}

bool damage_is_stretch(const struct prof_reader *reader, const struct prof_damage *damage)
{
	if (damage->offset < FILE_HEADER_BYTES ||
	    (reader->info.second_at && damage->offset >= reader->info.second_at))
		return false;
	return damage->reason == PROF_DAMAGE_ORDER ||
	       (damage->reason == PROF_DAMAGE_HEADER && damage->bytes > 0);
}

/* ---- Results --------------------------------------------------------------------------------- */

/* Adds the library's definitions of tables of version 1 that have data, but whose own definitions
 * are lost with the checkpoints. */
static int reader_assume_tables(struct prof_reader *reader)
{
	for (unsigned int id = 1; id <= PROF_TABLE_LAST; id++) {
		const struct prof_table_def *def =
			reader->v1_tables & UINT64_C(1) << id ? prof_table_v1(id) : NULL;
		int r;

		if (!def || schema_find(&reader->schema, id))
			continue;
		r = schema_add(&reader->schema, def);
		if (r)
			return r;
	}
	return 0;
}

/* Adds damaged copies of the file header at the front of the list of damage. */
static int reader_note_header(struct prof_reader *reader)
{
	for (unsigned int copy = 0; copy < 2; copy++) {
		int r;

		if (!(reader->bad_header_copies & 1u << copy))
			continue;
		r = reader_add_damage(reader, copy * FILE_RECORD_BYTES, FILE_RECORD_BYTES,
				      UINT64_MAX, PROF_DAMAGE_HEADER);
		if (r)
			return r;
		memmove(&reader->damage.items[1], &reader->damage.items[0],
			(reader->damage.n - 1) * sizeof(*reader->damage.items));
		reader->damage.items[0] = (struct prof_damage){
			.offset = copy * FILE_RECORD_BYTES,
			.bytes = FILE_RECORD_BYTES,
			.sequence = UINT64_MAX,
			.reason = PROF_DAMAGE_HEADER,
		};
	}
	return 0;
}

static int reader_finalize_state(struct prof_reader *reader)
{
	const struct entry *last = reader->entries.n > 0 ? &reader->entries.last : NULL;
	bool finished = reader->info.state == PROF_STATE_FINISHED;
	bool damaged = false;
	int r = 0;

	/* Reports an invalid trailer if nothing else is wrong. */
	if (!finished && reader->damage.n == 0 && last && last->kind == CHUNK_TRAILER)
		r = reader_add_damage(reader, last->chunk.first_id, 0, UINT64_MAX,
				      PROF_DAMAGE_INDEX);
	if (!r)
		r = reader_note_header(reader);
	if (r)
		return r;
	for (size_t i = 0; i < reader->damage.n; i++)
		damaged = damaged || reader->damage.items[i].reason != PROF_DAMAGE_CUT;
	reader->info.state = damaged    ? PROF_STATE_DAMAGED
			     : finished ? PROF_STATE_FINISHED
					: PROF_STATE_UNFINISHED;
	reader->info.cut_at = finished ? UINT64_MAX : reader->end;
	return 0;
}

/*
 * Finds a second capture that cat(1) appended to the first. The chunks of the second capture do not
 * belong to this file, because their salt differs or their sequence goes back. So the second header
 * is in a skipped range, or inside the last chunk of a first capture that was cut.
 */
static int reader_find_second(struct prof_reader *reader)
{
	int r = PROF_END;

	for (size_t i = 0; r == PROF_END && i < reader->damage.n; i++) {
		const struct prof_damage *damage = &reader->damage.items[i];
		uint64_t end = damage->offset + damage->bytes, from = damage->offset;

		if (from < FILE_HEADER_BYTES || damage->bytes == 0)
			continue;
		if (end == reader->size && reader->entries.n > 0)
			from = MIN_OF(from, reader->entries.last.chunk.offset);
		r = find_file_header(reader, from, end, &reader->info.second_at);
	}
	return r == PROF_END ? 0 : r;
}

static int reader_load(struct prof_reader *reader)
{
	int r;

	reader->info.state = PROF_STATE_UNFINISHED;
	r = index_find_chunks(reader);
	if (!r)
		r = reader_assume_tables(reader);
	if (r)
		return r;
	epoch_set_sort(&reader->epochs);
	reader->info.epochs = reader->epochs.n;
	epoch_set_done(&reader->epochs);
	reader->info.chunks = reader->entries.n_data;
	r = reader_find_second(reader);
	return r ? r : reader_finalize_state(reader);
}

/* ---- The file -------------------------------------------------------------------------------- */

/* Fills `data` until it is full or the pipe ends. */
static int read_pipe(int fd, uint8_t *data, size_t size, size_t *ret_size)
{
	size_t done = 0;

	while (done < size) {
		ssize_t n = read(fd, data + done, size - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		done += n;
	}
	*ret_size = done;
	return 0;
}

static int write_spool(int file, const uint8_t *data, size_t size)
{
	while (size > 0) {
		ssize_t n = write(file, data, size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		data += n;
		size -= n;
	}
	return 0;
}

/* Opens a file without a name in TMPDIR, or in /tmp. */
static int open_spool(int *ret_fd)
{
	const char *directory = getenv("TMPDIR");
	CLEANUP_FREE char *name = NULL;
	int fd;

	if (!directory || !*directory)
		directory = "/tmp";
	fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	/* Make a file and remove its name, if the file system has no files without names, or if the
	 * kernel ignores O_TMPFILE and sees O_DIRECTORY. */
	if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR)) {
		if (asprintf(&name, "%s/profd-XXXXXX", directory) < 0) {
			name = NULL;
			return -ENOMEM;
		}
		fd = mkostemp(name, O_CLOEXEC);
		if (fd >= 0)
			unlink(name);
	}
	if (fd < 0)
		return -errno;
	*ret_fd = fd;
	return 0;
}

/* Limits the copy to half of the free space, because even a pipe that begins with a valid capture
 * header may be endless. */
static int check_room(int file, uint64_t copied)
{
	struct statvfs vfs;

	if (fstatvfs(file, &vfs) < 0 || vfs.f_blocks == 0 || vfs.f_frsize == 0)
		return 0; /* unknown; writes fail when the disk is full */
	return vfs.f_bavail < copied / vfs.f_frsize ? -ENOSPC : 0;
}

/* Copies all of a pipe into a temporary file without a name. */
static int spool(int fd, int *ret_fd)
{
	CLEANUP_FREE uint8_t *data = malloc(SPOOL_BYTES);
	CLEANUP_CLOSE int file = -1;
	struct file_header header;
	unsigned int bad_copies;
	uint64_t copied = 0;
	size_t n;
	int r;

	if (!data)
		return -ENOMEM;
	r = open_spool(&file);
	if (r)
		return r;
	do {
		r = read_pipe(fd, data, SPOOL_BYTES, &n);
		/* A stream that is not a capture may be endless. */
		if (!r && copied)
			r = check_room(file, copied + n);
		else if (!r && n >= FILE_HEADER_BYTES)
			r = file_header_decode(data, &header, &bad_copies);
		if (!r)
			r = write_spool(file, data, n);
		copied += n;
	} while (!r && n == SPOOL_BYTES);
	if (r)
		return r;
	*ret_fd = steal_fd(&file);
	return 0;
}

static int reader_open_file(struct prof_reader *reader, int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (S_ISREG(st.st_mode)) {
		reader->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
		if (reader->fd < 0)
			return -errno;
	} else {
		int r = spool(fd, &reader->fd);

		if (r)
			return r;
		if (fstat(reader->fd, &st) < 0)
			return -errno;
	}
	reader->size = st.st_size;
	return 0;
}

static int reader_load_header(struct prof_reader *reader)
{
	uint8_t bytes[FILE_HEADER_BYTES];
	size_t n;
	int r = read_at(reader->fd, 0, bytes, sizeof(bytes), &n);

	if (r)
		return r;
	if (n < sizeof(bytes))
		return file_magic_matches(bytes, n) ? PROF_TOO_SHORT : PROF_NOT_CAPTURE;
	r = file_header_decode(bytes, &reader->header, &reader->bad_header_copies);
	if (r)
		return r;
	memcpy(reader->info.uuid, reader->header.uuid, sizeof(reader->info.uuid));
	reader->info.compat = reader->header.compat;
	reader->info.incompat = reader->header.incompat;
	reader->info.bytes = reader->size;
	reader->end = FILE_HEADER_BYTES;
	return 0;
}

PROF_PUBLIC int prof_reader_open(int fd, struct prof_reader **ret_reader)
{
	struct prof_reader *reader = calloc(1, sizeof(*reader));
	int r;

	if (!reader)
		return -ENOMEM;
	reader->fd = -1;
	r = lost_new(&reader->lost);
	if (!r)
		r = reader_open_file(reader, fd);
	if (!r)
		r = reader_load_header(reader);
	if (!r)
		r = reader_load(reader);
	if (r) {
		prof_reader_free(reader);
		return r;
	}
	*ret_reader = reader;
	return 0;
}

PROF_PUBLIC void prof_reader_free(struct prof_reader *reader)
{
	if (!reader)
		return;
	index_forget(reader);
	lost_free(reader->lost);
	if (reader->fd >= 0)
		close(reader->fd);
	free(reader);
}

PROF_PUBLIC void prof_reader_set_guard(struct prof_reader *reader,
				       int (*guard)(unsigned int table, void *data), void *data)
{
	reader->guard = guard;
	reader->guard_data = data;
}

/* ---- Queries --------------------------------------------------------------------------------- */

PROF_PUBLIC const struct prof_reader_info *prof_reader_info(const struct prof_reader *reader)
{
	return &reader->info;
}

PROF_PUBLIC const struct prof_table_def *const *prof_reader_tables(const struct prof_reader *reader,
								   size_t *ret_n)
{
	*ret_n = reader->schema.n_tables;
	return reader->schema.tables;
}

PROF_PUBLIC const struct prof_segment *prof_reader_segments(const struct prof_reader *reader,
							    size_t *ret_n)
{
	*ret_n = reader->n_segments;
	return reader->segments;
}

PROF_PUBLIC const struct prof_damage *prof_reader_damage(const struct prof_reader *reader,
							 size_t *ret_n)
{
	*ret_n = reader->damage.n;
	return reader->damage.items;
}

PROF_PUBLIC void prof_reader_lost(const struct prof_reader *reader, unsigned int table,
				  struct prof_lost *ret_lost)
{
	struct prof_lost lost = { 0 };

	lost_sum(reader->lost, table, &lost);
	for (size_t i = 0; i < reader->damage.n; i++)
		lost.stretches += damage_is_stretch(reader, &reader->damage.items[i]);
	*ret_lost = lost;
}

PROF_PUBLIC const struct prof_table_def *prof_reader_table(const struct prof_reader *reader,
							   unsigned int id)
{
	return schema_find(&reader->schema, id);
}

PROF_PUBLIC const struct prof_table_def *prof_reader_table_by_name(const struct prof_reader *reader,
								   const char *name)
{
	for (size_t i = 0; i < reader->schema.n_tables; i++)
		if (strcmp(reader->schema.tables[i]->name, name) == 0)
			return reader->schema.tables[i];
	return NULL;
}
