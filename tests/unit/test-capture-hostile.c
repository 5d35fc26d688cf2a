/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Captures made by an attacker: every checksum is valid, but the contents are not
 *
 * Each case writes a small file with absurd claims, and reads all of it in a child limited to 512
 * MiB and 20 seconds. The names of some cases are followed by the numbers of the conditions in
 * docs/format.md that they violate.
 *
 * Promises:
 * - a chunk with more rows, items or compressed bytes than allowed is dropped [rows items frames:
 *   C9 G6 G7]
 * - an index cannot make a reader accept chunks that the file does not have [lying_index: C6 K5 K7]
 * - links and nested chunks do not make a reader read the same bytes forever [links nested]
 * - large counts in checkpoints use neither much memory nor quadratic time [segments gaps schemas]
 * - a dictionary ignores a row with id 0, but not the other rows [ids: D1]
 * - additions of later versions are skipped [later_versions]
 * - input that would be misread is refused [refused: F3]
 */
#include "config.h"

#include "libcapture/checkpoint.h"
#include "tests/tools/chunks.h"
#include "tests/unit/test.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zstd.h>

#define MEMORY_BYTES (512ul << 20)
#define SECONDS 20
#define SALT UINT64_C(0x5eed)

/* ---- making files ---------------------------------------------------------------------------- */

struct forge {
	struct buffer file;
	uint64_t sequence, last_checkpoint;
};

static const struct prof_column_def columns[] = {
	{ .id = 0, .name = "id", .type = PROF_TYPE_UINT },
	{ .id = 1, .name = "text", .type = PROF_TYPE_TEXT },
	{ .id = 2, .name = "list", .type = PROF_TYPE_UINT, .flags = PROF_COLUMN_LIST },
};
static const struct prof_table_def table = {
	.name = "names",
	.columns = columns,
	.n_columns = ARRAY_SIZE(columns),
	.id = PROF_TABLE_FIRST_FOREIGN,
	.flags = PROF_TABLE_DICTIONARY,
};

static void must(int r)
{
	if (r != 0)
		abort();
}

static void put(struct buffer *buffer, const void *data, size_t size)
{
	must(buffer_add(buffer, data, size));
}

static void put_u32(struct buffer *buffer, uint32_t v)
{
	uint8_t bytes[4];

	store_le32(bytes, v);
	put(buffer, bytes, sizeof(bytes));
}

static void put_u64(struct buffer *buffer, uint64_t v)
{
	uint8_t bytes[8];

	store_le64(bytes, v);
	put(buffer, bytes, sizeof(bytes));
}

static void forge_start(struct forge *forge)
{
	const struct file_header header = { .version = FORMAT_VERSION, .salt = SALT };
	uint8_t bytes[FILE_HEADER_BYTES];

	*forge = (struct forge){ 0 };
	file_header_encode(&header, bytes);
	put(&forge->file, bytes, sizeof(bytes));
}

static void forge_done(struct forge *forge)
{
	buffer_done(&forge->file);
}

/* Fills in lengths, checksum and sequence, and appends the chunk. Returns the header's offset. */
static uint64_t forge_chunk(struct forge *forge, struct chunk_header header,
			    const struct buffer *payload)
{
	uint64_t offset = forge->file.size;
	uint8_t bytes[CHUNK_HEADER_BYTES];

	header.stored = payload->size;
	header.sequence = forge->sequence++;
	header.segment = header.segment ? header.segment : 1;
	header.checksum = format_checksum(payload->data, payload->size, SALT);
	chunk_header_encode(&header, SALT, bytes);
	put(&forge->file, bytes, sizeof(bytes));
	put(&forge->file, payload->data, payload->size);
	must(buffer_pad8(&forge->file));
	return offset;
}

/* Appends a group's header and descriptors. The stored bytes of all parts must follow. */
static void put_group(struct buffer *payload, uint32_t rows, const struct codec_part *parts,
		      uint32_t n)
{
	uint32_t stored = 0;

	for (uint32_t i = 0; i < n; i++)
		stored += parts[i].stored;
	put_u32(payload, rows);
	put_u32(payload, n);
	put_u32(payload, stored);
	put_u32(payload, 0);
	put_u64(payload, 0);
	put_u64(payload, 0);
	for (uint32_t i = 0; i < n; i++) {
		uint8_t bytes[DESCRIPTOR_BYTES];

		codec_part_store(&parts[i], bytes);
		put(payload, bytes, sizeof(bytes));
	}
}

static void put_section(struct buffer *payload, enum section_tag tag, const struct buffer *content)
{
	put_u32(payload, tag);
	put_u32(payload, content->size);
	put(payload, content->data, content->size);
	must(buffer_pad8(payload));
}

static void put_segment(struct buffer *segments, uint32_t number)
{
	static const uint8_t zeros[40];

	put(segments, zeros, sizeof(zeros));
	put_u32(segments, number);
	put_u32(segments, 1);
}

/* The sections of a checkpoint. NULL: a valid section; but no section for `gaps` and `later`. */
struct sections {
	const struct buffer *segments, *schema, *entries, *gaps;
	const struct buffer *later; /* has a tag that version 1 does not define */
};

static uint64_t forge_checkpoint(struct forge *forge, const struct sections *sections,
				 uint16_t flags)
{
	CLEANUP(buffer_done)
	struct buffer segments = { 0 }, section = { 0 }, entries = { 0 }, payload = { 0 };
	CLEANUP(schema_done) struct schema schema = { 0 };
	const struct chunk_header header = { .kind = CHUNK_CHECKPOINT,
					     .flags = flags,
					     .link = forge->last_checkpoint };

	put_segment(&segments, 1);
	must(schema_add(&schema, &table));
	must(checkpoint_encode_schema(&schema, &section));
	put_u64(&entries, 0);
	put_section(&payload, SECTION_SEGMENTS,
		    sections->segments ? sections->segments : &segments);
	put_section(&payload, SECTION_SCHEMA, sections->schema ? sections->schema : &section);
	put_section(&payload, SECTION_ENTRIES, sections->entries ? sections->entries : &entries);
	if (sections->gaps)
		put_section(&payload, SECTION_GAPS, sections->gaps);
	if (sections->later)
		put_section(&payload, 77, sections->later);
	forge->last_checkpoint = forge_chunk(forge, header, &payload);
	return forge->last_checkpoint;
}

static void forge_trailer(struct forge *forge)
{
	const struct chunk_header header = { .kind = CHUNK_TRAILER,
					     .link = forge->last_checkpoint };

	forge_chunk(forge, header, &(struct buffer){ 0 });
}

static const struct sections usual;

/* Appends a valid chunk with ids from 1 on and empty texts. */
static uint64_t forge_good_chunk(struct forge *forge, uint32_t rows)
{
	CLEANUP(buffer_done) struct buffer payload = { 0 };
	const struct codec_part parts[] = {
		{ .column = 0,
		  .part = PART_VALUES,
		  .order = PROF_ORDER_DELTA,
		  .base = 1,
		  .step = 1 },
		{ .column = 1, .part = PART_LENGTHS, .base = 0 },
		{ .column = 1, .part = PART_BYTES, .width = 1 },
	};
	const struct chunk_header header = { .kind = CHUNK_DATA,
					     .table = table.id,
					     .epoch = 1,
					     .rows = rows,
					     .groups = 1,
					     .link = 1 };

	put_group(&payload, rows, parts, ARRAY_SIZE(parts));
	return forge_chunk(forge, header, &payload);
}

/* ---- reading them ---------------------------------------------------------------------------- */

struct outcome {
	int opened;
	enum prof_state state;
	size_t chunks, segments;
	uint64_t rows, sum, lost_rows;
	ssize_t found_0, found_1;
	bool indexed;
};

static void read_rows(const struct prof_reader *reader, struct outcome *outcome)
{
	const struct prof_cursor_options options = { .table = table.id };
	struct prof_cursor *cursor;
	struct prof_batch batch;
	uint64_t chunks;

	if (prof_cursor_new(reader, &options, &cursor) != 0)
		return;
	while (prof_cursor_next(cursor, &batch) == 0) {
		outcome->rows += batch.rows;
		for (size_t i = 0; batch.columns[0].numbers && i < batch.rows; i++)
			outcome->sum += batch.columns[0].numbers[i];
	}
	prof_cursor_lost(cursor, &chunks, &outcome->lost_rows);
	prof_cursor_free(cursor);
}

static int pass_over(const struct prof_damage *damage, void *data)
{
	return 0;
}

static void read_everything(int fd, struct outcome *outcome)
{
	struct prof_dictionary *dictionary;
	struct prof_reader *reader;
	uint64_t chunks, good;

	outcome->opened = prof_reader_open(fd, &reader);
	if (outcome->opened != 0)
		return;
	outcome->state = prof_reader_info(reader)->state;
	outcome->indexed = prof_reader_info(reader)->indexed;
	outcome->chunks = chunks_count(reader);
	(void)prof_reader_segments(reader, &outcome->segments);
	read_rows(reader, outcome);
	(void)!prof_reader_verify(reader, pass_over, NULL, &chunks, &good);
	outcome->found_0 = outcome->found_1 = -2;
	if (prof_dictionary_load(reader, table.id, 1, NULL, 0, &dictionary) == 0) {
		outcome->found_0 = prof_dictionary_find(dictionary, 0);
		outcome->found_1 = prof_dictionary_find(dictionary, 1);
		prof_dictionary_free(dictionary);
	}
	prof_reader_free(reader);
}

/* Reads the file in a child, within the limits of memory and time. */
static bool read_limited(const struct forge *forge, struct outcome *ret_outcome)
{
	CLEANUP_CLOSE int fd = memfd_create("hostile", MFD_CLOEXEC);
	struct outcome *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
				      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	const struct rlimit limit = { .rlim_cur = MEMORY_BYTES, .rlim_max = MEMORY_BYTES };
	int status = -1;
	pid_t pid;

	if (!CHECK(shared != MAP_FAILED) ||
	    !CHECK(write(fd, forge->file.data, forge->file.size) == (ssize_t)forge->file.size))
		return false;
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		/* a sanitizer's shadow occupies terabytes of addresses */
		if (!PROF_SANITIZED && setrlimit(RLIMIT_AS, &limit) < 0)
			_exit(2);
		alarm(PROF_SANITIZED ? 5 * SECONDS : SECONDS);
		read_everything(fd, shared);
		_exit(shared->opened < 0);
	}
	if (!CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0))
		printf("# status %#x, opened %d\n", (unsigned int)status, shared->opened);
	*ret_outcome = *shared;
	munmap(shared, sizeof(*shared));
	return status == 0;
}

/* ---- cases ----------------------------------------------------------------------------------- */

/* The header claims 131 million rows, and 2,000 groups of constants confirm it. */
static void rows(void)
{
	CLEANUP(forge_done) struct forge forge;
	CLEANUP(buffer_done) struct buffer payload = { 0 };
	const struct codec_part part = { .column = 0, .part = PART_VALUES, .base = 7 };
	const struct chunk_header header = { .kind = CHUNK_DATA,
					     .table = table.id,
					     .epoch = 1,
					     .rows = 2000 * PROF_MAX_GROUP_ROWS,
					     .groups = 2000 };
	struct outcome outcome;

	forge_start(&forge);
	forge_checkpoint(&forge, &usual, 0);
	for (size_t i = 0; i < 2000; i++)
		put_group(&payload, PROF_MAX_GROUP_ROWS, &part, 1);
	forge_chunk(&forge, header, &payload);
	forge_good_chunk(&forge, 3);
	REQUIRE(read_limited(&forge, &outcome));
	CHECK_INT(outcome.rows, 3);
	CHECK_INT(outcome.sum, 1 + 2 + 3);
	CHECK(outcome.lost_rows > 0);
}

/* The sum of the lengths exceeds the limit, or wraps to a small number. */
static void items(void)
{
	static const uint64_t lengths[] = { UINT64_MAX, UINT64_MAX / 2 + 1, UINT64_C(1) << 61,
					    PROF_MAX_PAYLOAD, PROF_MAX_PAYLOAD / 8 };

	for (size_t i = 0; i < 2 * ARRAY_SIZE(lengths); i++) {
		CLEANUP(forge_done) struct forge forge;
		CLEANUP(buffer_done) struct buffer payload = { 0 };
		bool list = i % 2;
		const struct codec_part parts[] = {
			{ .column = list ? 2 : 1, .part = PART_LENGTHS, .base = lengths[i / 2] },
			{ .column = list ? 2 : 1,
			  .part = list ? PART_VALUES : PART_BYTES,
			  .width = !list },
		};
		const struct chunk_header header = {
			.kind = CHUNK_DATA, .table = table.id, .epoch = 1, .rows = 16, .groups = 1
		};
		struct outcome outcome;

		forge_start(&forge);
		forge_checkpoint(&forge, &usual, 0);
		put_group(&payload, 16, parts, ARRAY_SIZE(parts));
		forge_chunk(&forge, header, &payload);
		REQUIRE(read_limited(&forge, &outcome));
		CHECK_INT(outcome.rows, 0);
		CHECK_INT(outcome.lost_rows, 16);
	}
}

/* The zstd frames in a part and in a schema are larger than declared, or a schema declares more
 * than is allowed. */
static void frames(void)
{
	CLEANUP(forge_done) struct forge forge;
	CLEANUP(buffer_done) struct buffer payload = { 0 }, schema = { 0 };
	size_t size = 64u << 20, bound = ZSTD_compressBound(size), n;
	CLEANUP_FREE uint8_t *zeros = calloc(1, size), *frame = malloc(bound);
	struct codec_part part = { .column = 0, .part = PART_VALUES, .width = 1 };
	const struct chunk_header header = {
		.kind = CHUNK_DATA, .table = table.id, .epoch = 1, .rows = 60000, .groups = 1
	};
	struct outcome outcome;

	REQUIRE(zeros && frame);
	n = ZSTD_compress(frame, bound, zeros, size, 1);
	REQUIRE(n < 60000);
	part.stored = n;
	put_group(&payload, 60000, &part, 1);
	put(&payload, frame, n);
	put_u32(&schema, FORMAT_MAX_SCHEMA);
	put_u32(&schema, 0);
	put(&schema, frame, n);
	forge_start(&forge);
	forge_checkpoint(&forge, &usual, 0);
	forge_chunk(&forge, header, &payload);
	forge_checkpoint(&forge, &(struct sections){ .schema = &schema }, 0);
	store_le32(schema.data, UINT32_MAX);
	forge_checkpoint(&forge, &(struct sections){ .schema = &schema }, 0);
	forge_good_chunk(&forge, 3);
	REQUIRE(read_limited(&forge, &outcome));
	CHECK_INT(outcome.rows, 3);
	CHECK_INT(outcome.lost_rows, 60000);
	CHECK_INT(outcome.state, PROF_STATE_DAMAGED);
}

/* An index entry for a chunk. Any field may be false. */
struct lie {
	uint64_t offset;
	uint32_t stored, rows, epoch;
	uint16_t table;
	uint64_t sequence;
};

static void put_entries(struct buffer *entries, const struct lie *lies, uint32_t n)
{
	struct prof_block *block;
	CLEANUP(buffer_done) struct buffer groups = { 0 };
	CLEANUP(codec_encoder_done) struct codec_encoder encoder = { 0 };
	struct chunk_extent extent;
	uint64_t end = FILE_HEADER_BYTES;

	must(prof_block_new(&entry_table, &block));
	must(codec_encoder_init(&encoder, 1));
	for (uint32_t i = 0; i < n; i++) {
		const struct entry entry = {
			.chunk = { .offset = lies[i].offset,
				   .sequence = lies[i].sequence,
				   .stored_bytes = lies[i].stored,
				   .rows = lies[i].rows,
				   .epoch = lies[i].epoch,
				   .table = lies[i].table,
				   .first_id = lies[i].table ? 1 : 0,
				   .segment = 1 },
			.kind = lies[i].table ? CHUNK_DATA : CHUNK_CHECKPOINT,
		};

		must(entry_block_add(block, &entry, end));
		end = entry_end(&entry);
	}
	must(chunk_encode(&encoder, block, PROF_MAX_GROUP_ROWS, &groups, &extent));
	put_u32(entries, n);
	put_u32(entries, extent.groups);
	put(entries, groups.data, groups.size);
	prof_block_free(block);
}

/* Reads a finished capture with two chunks, whose index was changed by `tell`. */
static bool read_lie(void (*tell)(struct lie *lies), struct outcome *ret_outcome)
{
	CLEANUP(forge_done) struct forge forge;
	CLEANUP(buffer_done) struct buffer entries = { 0 };
	struct lie lies[3] = { { .sequence = 0 }, { .sequence = 1 }, { .sequence = 2 } };

	forge_start(&forge);
	lies[0].offset = forge_checkpoint(&forge, &usual, 0);
	for (size_t i = 1; i < 3; i++) {
		lies[i] = (struct lie){ .offset = forge_good_chunk(&forge, i + 1),
					.rows = i + 1,
					.epoch = 1,
					.table = table.id,
					.sequence = i };
	}
	for (size_t i = 0; i < 3; i++)
		lies[i].stored = load_le32(forge.file.data + lies[i].offset + 64);
	tell(lies);
	put_entries(&entries, lies, 3);
	forge_checkpoint(&forge, &(struct sections){ .entries = &entries }, CHUNK_FULL_INDEX);
	forge_trailer(&forge);
	return read_limited(&forge, ret_outcome);
}

static void tell_truth(struct lie *lies)
{
}

static void tell_rows(struct lie *lies)
{
	lies[1].rows = 200000;
}

static void tell_epoch(struct lie *lies)
{
	lies[2].epoch = 2;
}

static void tell_swapped(struct lie *lies)
{
	const struct lie first = lies[1];

	lies[1].offset = lies[2].offset;
	lies[2].offset = first.offset;
}

static void tell_twice(struct lie *lies)
{
	lies[2].offset = lies[1].offset;
}

static void tell_inside(struct lie *lies)
{
	lies[1].offset += 8;
	lies[1].stored -= 8;
}

static void tell_far(struct lie *lies)
{
	lies[2].offset = UINT64_MAX - 7;
}

static void lying_index(void)
{
	static const struct {
		void (*tell)(struct lie *lies);
		/* true: the index is accepted, so chunks with false entries are lost; false: the
		 * reader searches for headers */
		bool indexed;
		uint64_t rows;
	} cases[] = {
		{ tell_truth, true, 5 },    { tell_rows, true, 3 },   { tell_epoch, true, 2 },
		{ tell_swapped, false, 5 }, { tell_twice, false, 5 }, { tell_inside, false, 5 },
		{ tell_far, false, 5 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct outcome outcome;

		printf("# lie %zu\n", i);
		REQUIRE(read_lie(cases[i].tell, &outcome));
		CHECK_INT(outcome.indexed, cases[i].indexed);
		CHECK_INT(outcome.rows, cases[i].rows);
		CHECK_INT(outcome.chunks, 2);
		CHECK_INT(outcome.state,
			  cases[i].indexed ? PROF_STATE_FINISHED : PROF_STATE_DAMAGED);
	}
}

/* Links to the checkpoint itself, forward, to a data chunk, and into a chunk. */
static void links(void)
{
	for (size_t i = 0; i < 4; i++) {
		CLEANUP(forge_done) struct forge forge;
		struct outcome outcome;
		uint64_t first, chunk;

		forge_start(&forge);
		first = forge_checkpoint(&forge, &usual, 0);
		chunk = forge_good_chunk(&forge, 4);
		forge.last_checkpoint =
			(uint64_t[]){ forge.file.size, forge.file.size + 8, chunk, first + 8 }[i];
		forge_checkpoint(&forge, &usual, 0);
		forge_trailer(&forge);
		REQUIRE(read_limited(&forge, &outcome));
		CHECK_INT(outcome.rows, 4);
		CHECK(!outcome.indexed);
	}
}

#define NEST_BYTES (PROF_SANITIZED ? 1u << 20 : 8u << 20)

/* The file has headers within headers, each with a wrong checksum and a payload up to the same end,
 * and then only magic numbers. */
static void nested(void)
{
	CLEANUP(forge_done) struct forge forge;
	struct outcome outcome;
	struct chunk_header header = {
		.kind = CHUNK_DATA, .table = 1, .segment = 1, .rows = 1, .groups = 1
	};
	uint8_t bytes[CHUNK_HEADER_BYTES];

	forge_start(&forge);
	forge_checkpoint(&forge, &usual, 0);
	for (header.sequence = 1; forge.file.size < NEST_BYTES; header.sequence++) {
		header.stored = NEST_BYTES + 4096 - forge.file.size;
		chunk_header_encode(&header, SALT, bytes);
		put(&forge.file, bytes, sizeof(bytes));
	}
	while (forge.file.size < 2 * NEST_BYTES)
		put(&forge.file, bytes, 8);
	REQUIRE(read_limited(&forge, &outcome));
	CHECK_INT(outcome.opened, 0);
	CHECK_INT(outcome.rows, 0);
}

/* Lists the maximum number of segments, repeatedly and backwards, and finally one segment more. */
static void segments(void)
{
	CLEANUP(forge_done) struct forge forge;
	CLEANUP(buffer_done) struct buffer records = { 0 };
	struct outcome outcome;

	forge_start(&forge);
	for (uint32_t i = FORMAT_MAX_SEGMENTS; i > 0; i--)
		put_segment(&records, i);
	for (size_t i = 0; i < 8; i++)
		forge_checkpoint(&forge, &(struct sections){ .segments = &records }, 0);
	put_segment(&records, 1u << 20);
	forge_checkpoint(&forge, &(struct sections){ .segments = &records }, 0);
	forge_good_chunk(&forge, 2);
	REQUIRE(read_limited(&forge, &outcome));
	CHECK_INT(outcome.segments, FORMAT_MAX_SEGMENTS);
	CHECK_INT(outcome.rows, 2);
}

/* Lists the maximum number of gaps. The file has many other holes. */
static void gaps(void)
{
	CLEANUP(forge_done) struct forge forge;
	CLEANUP(buffer_done) struct buffer records = { 0 };
	static const uint8_t hole[8];
	struct outcome outcome;

	forge_start(&forge);
	for (uint64_t i = 0; i < FORMAT_MAX_GAPS; i++) {
		put_u64(&records, i % 2 ? 8 * i : UINT64_MAX - i);
		put_u64(&records, i % 3 ? i : UINT64_MAX);
	}
	forge_checkpoint(&forge, &(struct sections){ .gaps = &records }, 0);
	for (size_t i = 0; i < 20000; i++) {
		forge_good_chunk(&forge, 1);
		put(&forge.file, hole, sizeof(hole));
	}
	REQUIRE(read_limited(&forge, &outcome));
	CHECK_INT(outcome.rows, 20000);
}

/* Adds a schema of many tables that compresses to almost nothing. Larger `n_values` extend the
 * tables' enums. */
static void put_schema(struct buffer *section, unsigned int n_values)
{
	CLEANUP(buffer_done) struct buffer raw = { 0 };
	size_t bound, n;

	put(&raw, "\0\1", 2); /* 256 tables */
	for (unsigned int t = 0; t < PROF_MAX_TABLES; t++) {
		uint8_t head[] = { t, 0x40, 0, 0, 31, 0, 1, 't' };

		put(&raw, head, sizeof(head));
		for (unsigned int c = 0; c < 31; c++) {
			unsigned int values = n_values > 64 * c ? MIN_OF(n_values - 64 * c, 64u)
								: 0;
			uint8_t column[] = { c, 0, 0, 0, PROF_TYPE_ENUM, 0, 0, 0, 1, 'c', values };

			put(&raw, column, sizeof(column));
			for (unsigned int v = 0; v < values; v++)
				put(&raw, "\1v", 2);
		}
	}
	bound = ZSTD_compressBound(raw.size);
	put_u32(section, raw.size);
	put_u32(section, 0);
	must(buffer_reserve(section, bound));
	n = ZSTD_compress(section->data + section->size, bound, raw.data, raw.size, 1);
	section->size += n;
}

static void schemas(void)
{
	CLEANUP(forge_done) struct forge forge;
	struct outcome outcome;

	forge_start(&forge);
	forge_checkpoint(&forge, &usual, 0);
	for (unsigned int i = 1; i < 1600; i += 2) {
		CLEANUP(buffer_done) struct buffer section = { 0 };

		put_schema(&section, i);
		forge_checkpoint(&forge, &(struct sections){ .schema = &section }, 0);
	}
	forge_good_chunk(&forge, 2);
	printf("# %zu bytes\n", forge.file.size);
	REQUIRE(read_limited(&forge, &outcome));
	CHECK_INT(outcome.rows, 2);
}

/* An index claims 328 million entries, and 5,000 groups of constants confirm it. */
static void entries(void)
{
	CLEANUP(forge_done) struct forge forge;
	CLEANUP(buffer_done) struct buffer section = { 0 };
	struct codec_part parts[14];
	struct outcome outcome;

	for (uint16_t i = 0; i < ARRAY_SIZE(parts); i++)
		parts[i] = (struct codec_part){ .column = i, .part = PART_VALUES, .base = 1 };
	parts[1].order = PROF_ORDER_DELTA;
	parts[1].step = 1;
	put_u32(&section, 5000 * PROF_MAX_GROUP_ROWS);
	put_u32(&section, 5000);
	for (size_t i = 0; i < 5000; i++)
		put_group(&section, PROF_MAX_GROUP_ROWS, parts, ARRAY_SIZE(parts));
	forge_start(&forge);
	forge_checkpoint(&forge, &usual, 0);
	forge_good_chunk(&forge, 2);
	forge_checkpoint(&forge, &(struct sections){ .entries = &section }, CHUNK_FULL_INDEX);
	forge_trailer(&forge);
	REQUIRE(read_limited(&forge, &outcome));
	CHECK_INT(outcome.rows, 2);
	CHECK(!outcome.indexed);
}

static void ids(void)
{
	CLEANUP(forge_done) struct forge forge;
	CLEANUP(buffer_done) struct buffer payload = { 0 };
	const struct codec_part part = {
		.column = 0, .part = PART_VALUES, .order = PROF_ORDER_DELTA, .base = 0, .step = 1
	};
	const struct chunk_header header = {
		.kind = CHUNK_DATA, .table = table.id, .epoch = 1, .rows = 2, .groups = 1
	};
	struct outcome outcome;

	forge_start(&forge);
	forge_checkpoint(&forge, &usual, 0);
	put_group(&payload, 2, &part, 1);
	forge_chunk(&forge, header, &payload);
	REQUIRE(read_limited(&forge, &outcome));
	CHECK_INT(outcome.rows, 2);
	CHECK_INT(outcome.found_0, -1);
	CHECK_INT(outcome.found_1, 1);
}

/* ---- what later versions may add (docs/format.md, section 14) -------------------------------- */

static const struct prof_column_def later_columns[] = {
	{ .id = 0, .name = "id", .type = PROF_TYPE_UINT, .unit = 200 },
	{ .id = 1, .name = "type", .type = 77 },
	{ .id = 2, .name = "flag", .type = PROF_TYPE_UINT, .flags = 0x40 },
	{ .id = 3, .name = "order", .type = PROF_TYPE_UINT },
	{ .id = 4, .name = "part", .type = PROF_TYPE_TEXT },
	{ .id = 5, .name = "descriptor", .type = PROF_TYPE_UINT },
	{ .id = 6, .name = "known", .type = PROF_TYPE_UINT },
};
static const struct prof_table_def later_table = {
	.name = "later",
	.columns = later_columns,
	.n_columns = ARRAY_SIZE(later_columns),
	.id = PROF_TABLE_FIRST_FOREIGN + 1,
	.flags = PROF_TABLE_DICTIONARY | 0x80,
};

/* Writes three rows, of which version 1 can read only the columns 0 and 6. Column 99 is in no
 * schema. */
static void forge_later(struct forge *forge)
{
	CLEANUP(buffer_done) struct buffer section = { 0 }, future = { 0 }, payload = { 0 };
	CLEANUP(schema_done) struct schema schema = { 0 };
	const struct codec_part parts[] = {
		{ .column = 0, .part = PART_VALUES, .base = 5 },
		{ .column = 1, .part = PART_VALUES, .base = 5 },
		{ .column = 2, .part = PART_VALUES, .base = 5 },
		{ .column = 3, .part = PART_VALUES, .order = 15 },
		{ .column = 4, .part = PART_LENGTHS },
		{ .column = 4, .part = PART_BYTES, .width = 1 },
		{ .column = 4, .part = 9 },
		{ .column = 5, .part = PART_VALUES, .flags = 8 },
		{ .column = 6, .part = PART_VALUES, .base = 9 },
		{ .column = 99, .part = PART_VALUES },
	};
	const struct chunk_header data = { .kind = CHUNK_DATA,
					   .table = later_table.id,
					   .flags = 0x8000,
					   .epoch = 1,
					   .rows = 3,
					   .groups = 1,
					   .link = 5 };

	must(schema_add(&schema, &later_table));
	must(checkpoint_encode_schema(&schema, &section));
	put(&future, "whatever", 8);
	forge_checkpoint(forge, &(struct sections){ .schema = &section, .later = &future }, 0);
	put_group(&payload, 3, parts, ARRAY_SIZE(parts));
	forge_chunk(forge, data, &payload);
	forge_chunk(forge, (struct chunk_header){ .kind = 9, .rows = 7 }, &future);
}

static void later_versions(void)
{
	CLEANUP(forge_done) struct forge forge;
	CLEANUP_CLOSE int fd = memfd_create("later", MFD_CLOEXEC);
	const struct prof_cursor_options options = { .table = later_table.id };
	struct prof_reader *reader;
	struct prof_cursor *cursor;
	struct prof_batch batch;

	forge_start(&forge);
	forge_later(&forge);
	REQUIRE(write(fd, forge.file.data, forge.file.size) == (ssize_t)forge.file.size);
	REQUIRE(prof_reader_open(fd, &reader) == 0);
	CHECK_INT(prof_reader_info(reader)->state, PROF_STATE_UNFINISHED);
	CHECK_INT(prof_reader_info(reader)->cut_at, forge.file.size);
	CHECK_INT(chunks_count(reader), 1);
	REQUIRE(prof_cursor_new(reader, &options, &cursor) == 0);
	REQUIRE(prof_cursor_next(cursor, &batch) == 0);
	CHECK_INT(batch.rows, 3);
	for (size_t i = 0; i < later_table.n_columns; i++)
		CHECK((batch.columns[i].numbers || batch.columns[i].bytes) == (i == 0 || i == 6));
	CHECK_INT(batch.columns[6].numbers[2], 9);
	CHECK_INT(prof_cursor_next(cursor, &batch), PROF_END);
	prof_cursor_free(cursor);
	prof_reader_free(reader);
}

/* Files with an unknown incompat bit (also the bit from before version 1 was final) or an unknown
 * version are refused. A compat bit is accepted. */
static void refused(void)
{
	static const struct file_header headers[] = {
		{ .version = FORMAT_VERSION, .incompat = 1 },
		{ .version = FORMAT_VERSION, .incompat = UINT64_C(1) << 63 },
		{ .version = FORMAT_VERSION + 1 },
		{ .version = FORMAT_VERSION, .compat = 6 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(headers); i++) {
		CLEANUP_CLOSE int fd = memfd_create("refused", MFD_CLOEXEC);
		struct prof_reader *reader = NULL;
		uint8_t bytes[FILE_HEADER_BYTES];

		file_header_encode(&headers[i], bytes);
		REQUIRE(write(fd, bytes, sizeof(bytes)) == sizeof(bytes));
		CHECK_INT(prof_reader_open(fd, &reader), i < 3 ? PROF_UNSUPPORTED : 0);
		prof_reader_free(reader);
	}
}

int main(void)
{
	RUN(rows);
	RUN(items);
	RUN(frames);
	RUN(lying_index);
	RUN(links);
	RUN(nested);
	RUN(segments);
	RUN(gaps);
	RUN(schemas);
	RUN(entries);
	RUN(ids);
	RUN(later_versions);
	RUN(refused);
	return test_end();
}
