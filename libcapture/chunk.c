/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Chunk - the payload of a data chunk: row groups to and from blocks and arrays
 *
 * docs/format.md, section 5, defines the bytes. A column becomes up to three parts, each encoded by
 * codec.c.
 *
 * Invariants: (1) a group decodes to exactly the rows that its header states, or fails as a whole
 *                                                            [test-capture-codec: hostile payloads]
 *             (2) memory of a decoded group <= PROF_MAX_GROUP_ROWS x columns x 17 bytes +
 *                 PROF_MAX_PAYLOAD
 *             (3) every offset of an array lies inside its items
 *                 [test-capture-codec: hostile payloads]
 * load.c has checked a payload's checksum, but its content is still untrusted.
 */
#include "libcapture/chunk.h"

enum group_field {
	GROUP_ROWS = 0,
	GROUP_PARTS = 4,
	GROUP_STORED = 8,
	GROUP_RESERVED = 12,
	GROUP_T_MIN = 16,
	GROUP_T_MAX = 24,
};
static_assert(GROUP_T_MAX + 8 == GROUP_HEADER_BYTES, "32 bytes");

/* ---- Times ----------------------------------------------------------------------------------- */

/* Extends the range by the times of one column. A null has no time; 0 is a valid time only in the
 * first column. */
static void column_times(const struct prof_column_def *column, const struct prof_array *array,
			 const uint64_t *ends, size_t rows, uint64_t *t_min, uint64_t *t_max)
{
	uint64_t min = *t_min, max = *t_max;

	if (column->type == PROF_TYPE_TIME && array->numbers == ends) {
		for (size_t i = 0; i < rows; i++) {
			min = MIN_OF(min, ends[i]);
			max = MAX_OF(max, ends[i]);
		}
	} else if (column->type == PROF_TYPE_TIME) {
		for (size_t i = 0; i < rows; i++) {
			uint64_t t = array->nulls && array->nulls[i] ? 0 : array->numbers[i];

			min = t ? MIN_OF(min, t) : min;
			max = MAX_OF(max, t);
		}
	} else {
		for (size_t i = 0; i < rows; i++) {
			/* a duration that is longer than its end time is invalid */
			if ((!array->nulls || !array->nulls[i]) && array->numbers[i] <= ends[i])
				min = MIN_OF(min, ends[i] - array->numbers[i]);
		}
	}
	*t_min = min;
	*t_max = max;
}

void chunk_times(const struct prof_table_def *def, const struct prof_array *arrays, size_t rows,
		 uint64_t *t_min, uint64_t *t_max)
{
	if (!(def->flags & PROF_TABLE_TIMED) || !arrays[0].numbers)
		return;
	for (size_t i = 0; i < def->n_columns; i++) {
		const struct prof_column_def *column = &def->columns[i];

		if (column->flags & PROF_COLUMN_LIST || !arrays[i].numbers)
			continue;
		/* In a timed table, a number of nanoseconds that is not a time is a duration: the
		 * event ended at `time`. */
		if (column->type == PROF_TYPE_TIME ||
		    (column->type == PROF_TYPE_UINT && column->unit == PROF_UNIT_NS))
			column_times(column, &arrays[i], arrays[0].numbers, rows, t_min, t_max);
	}
}

/* ---- Encoding -------------------------------------------------------------------------------- */

/* The rows of a block that become one group. */
struct group_rows {
	const struct prof_block *block;
	size_t first, rows;
	/* id of the first row; NULL: no dictionary, or ids do not rise by one from row to row */
	const uint64_t *first_id;
};

struct group_writer {
	struct codec_encoder *encoder;
	struct buffer *out;
	size_t descriptor; /* position of the next descriptor in `out` */
	uint32_t n_parts;
};

static int put_part(struct group_writer *writer, uint16_t column, enum part kind,
		    struct codec_part *part)
{
	part->column = column;
	part->part = kind;
	codec_part_store(part, writer->out->data + writer->descriptor);
	writer->descriptor += DESCRIPTOR_BYTES;
	writer->n_parts++;
	return 0;
}

static int put_numbers(struct group_writer *writer, const struct prof_column_def *def,
		       enum part kind, const uint64_t *values, size_t n, const uint64_t *first_id)
{
	unsigned int order = kind == PART_VALUES ? def->order : PROF_ORDER_OFFSET;
	struct codec_part part;
	int r = codec_encode_numbers(writer->encoder, values, n, order, first_id, writer->out,
				     &part);

	return r ? r : put_part(writer, def->id, kind, &part);
}

/* Writes nulls as a part with the numbers 0 and 1. A group without nulls has no such part. */
static int put_nulls(struct group_writer *writer, const struct prof_column_def *def,
		     const uint8_t *nulls, size_t n)
{
	CLEANUP_FREE uint64_t *wide = NULL;

	if (!memchr(nulls, 1, n))
		return 0;
	wide = malloc(n * sizeof(*wide));
	if (!wide)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		wide[i] = nulls[i];
	return put_numbers(writer, def, PART_NULLS, wide, n, NULL);
}

/* Writes a column. *item: index of this group's first item; advanced to the next group's. */
static int put_column(struct group_writer *writer, const struct group_rows *group, size_t i,
		      size_t *item)
{
	const struct prof_column_def *def = &group->block->def->columns[i];
	const struct block_column *column = &group->block->columns[i];
	size_t items = 0;
	int r;

	if (column->n_nulls > 0) {
		r = put_nulls(writer, def, column->nulls + group->first, group->rows);
		if (r)
			return r;
	}
	if (column->form == FORM_SCALAR)
		return put_numbers(writer, def, PART_VALUES, column->numbers + group->first,
				   group->rows, group->first_id);
	for (size_t row = 0; row < group->rows; row++)
		items += column->lengths[group->first + row];
	r = put_numbers(writer, def, PART_LENGTHS, column->lengths + group->first, group->rows,
			NULL);
	if (r)
		return r;
	/* If a column has no items, its arrays are NULL, and NULL + 0 is undefined. */
	if (column->form == FORM_LIST) {
		r = put_numbers(writer, def, PART_VALUES,
				items ? column->numbers + *item : column->numbers, items, NULL);
	} else {
		struct codec_part part;

		r = codec_encode_bytes(writer->encoder,
				       items ? column->bytes + *item : column->bytes, items,
				       writer->out, &part);
		if (!r)
			r = put_part(writer, def->id, PART_BYTES, &part);
	}
	*item += items;
	return r;
}

/* Returns the number of parts of all columns. The caller must know it before it writes a part,
 * because the descriptors of all parts precede the bytes of the parts. */
static size_t count_parts(const struct group_rows *group)
{
	size_t n = 0;

	for (size_t i = 0; i < group->block->def->n_columns; i++) {
		const struct block_column *column = &group->block->columns[i];

		n += column->form == FORM_SCALAR ? 1 : 2;
		if (column->n_nulls > 0 && memchr(column->nulls + group->first, 1, group->rows))
			n++;
	}
	return n;
}

static int encode_group(struct codec_encoder *encoder, const struct group_rows *group,
			size_t *items, struct buffer *out, struct chunk_extent *extent)
{
	size_t header = out->size, n_parts = count_parts(group);
	size_t head_bytes = GROUP_HEADER_BYTES + n_parts * DESCRIPTOR_BYTES;
	struct group_writer writer = { .encoder = encoder,
				       .out = out,
				       .descriptor = header + GROUP_HEADER_BYTES };
	struct prof_array arrays[PROF_MAX_COLUMNS];
	bool timed = group->block->def->flags & PROF_TABLE_TIMED;
	uint64_t t_min = timed ? UINT64_MAX : 0, t_max = 0;
	int r = buffer_reserve(out, head_bytes);

	if (r)
		return r;
	out->size += head_bytes;
	for (size_t i = 0; i < group->block->def->n_columns; i++) {
		const struct block_column *column = &group->block->columns[i];

		r = put_column(&writer, group, i, &items[i]);
		if (r)
			return r;
		arrays[i] = (struct prof_array){ 0 };
		if (column->form != FORM_SCALAR)
			continue;
		arrays[i].numbers = column->numbers + group->first;
		arrays[i].nulls = column->n_nulls > 0 ? column->nulls + group->first : NULL;
	}
	assert(writer.n_parts == n_parts);
	chunk_times(group->block->def, arrays, group->rows, &t_min, &t_max);
	store_le32(out->data + header + GROUP_ROWS, group->rows);
	store_le32(out->data + header + GROUP_PARTS, n_parts);
	store_le32(out->data + header + GROUP_STORED, out->size - header - head_bytes);
	store_le32(out->data + header + GROUP_RESERVED, 0);
	store_le64(out->data + header + GROUP_T_MIN, t_min);
	store_le64(out->data + header + GROUP_T_MAX, t_max);
	extent->groups++;
	extent->t_min = MIN_OF(extent->t_min, t_min);
	extent->t_max = MAX_OF(extent->t_max, t_max);
	return 0;
}

/* Returns the lowest id of a dictionary's block, and whether ids rise by one from row to row. */
static uint64_t block_first_id(const struct prof_block *block, bool *ret_contiguous)
{
	const uint64_t *ids = block->columns[0].numbers;
	uint64_t first = ids[0];
	bool contiguous = true;

	for (size_t i = 1; i < block->rows; i++) {
		contiguous = contiguous && ids[i] == ids[i - 1] + 1;
		first = MIN_OF(first, ids[i]);
	}
	*ret_contiguous = contiguous;
	return first;
}

int chunk_encode(struct codec_encoder *encoder, const struct prof_block *block, size_t group_rows,
		 struct buffer *out, struct chunk_extent *ret_extent)
{
	size_t items[PROF_MAX_COLUMNS] = { 0 };
	bool timed = block->def->flags & PROF_TABLE_TIMED;
	struct chunk_extent extent = { .raw = block->item_bytes, .t_min = timed ? UINT64_MAX : 0 };
	bool contiguous = false;

	for (size_t i = 0; i < block->def->n_columns; i++)
		if (block->columns[i].form == FORM_SCALAR)
			extent.raw += sizeof(uint64_t) * block->rows;

	if (block->def->flags & PROF_TABLE_DICTIONARY)
		extent.first_id = block_first_id(block, &contiguous);
	for (size_t first = 0; first < block->rows; first += group_rows) {
		uint64_t id = contiguous ? block->columns[0].numbers[first] : 0;
		const struct group_rows group = {
			.block = block,
			.first = first,
			.rows = MIN_OF(group_rows, block->rows - first),
			.first_id = contiguous ? &id : NULL,
		};
		int r = encode_group(encoder, &group, items, out, &extent);

		if (r)
			return r;
	}
	*ret_extent = extent;
	return 0;
}

/* ---- Decoding -------------------------------------------------------------------------------- */

bool chunk_group_next(const uint8_t **at, const uint8_t *end, struct chunk_group *ret_group)
{
	const uint8_t *header = *at;
	size_t left = end - header;
	uint64_t stored, total = 0;
	uint32_t n_parts, rows;

	if (left < GROUP_HEADER_BYTES)
		return false;
	rows = load_le32(header + GROUP_ROWS);
	n_parts = load_le32(header + GROUP_PARTS);
	stored = load_le32(header + GROUP_STORED);
	left -= GROUP_HEADER_BYTES;
	if (rows == 0 || rows > PROF_MAX_GROUP_ROWS || n_parts > PROF_MAX_COLUMNS * (size_t)PARTS ||
	    left < (size_t)n_parts * DESCRIPTOR_BYTES)
		return false;
	left -= (size_t)n_parts * DESCRIPTOR_BYTES;
	for (uint32_t i = 0; i < n_parts; i++)
		total += load_le32(header + GROUP_HEADER_BYTES + (size_t)i * DESCRIPTOR_BYTES + 4);
	if (stored > left || total != stored)
		return false;
	*ret_group = (struct chunk_group){
		.rows = rows,
		.n_parts = n_parts,
		.t_min = load_le64(header + GROUP_T_MIN),
		.t_max = load_le64(header + GROUP_T_MAX),
		.descriptors = header + GROUP_HEADER_BYTES,
		.stored = header + GROUP_HEADER_BYTES + (size_t)n_parts * DESCRIPTOR_BYTES,
	};
	*at = ret_group->stored + stored;
	return true;
}

bool chunk_groups_valid(const uint8_t *payload, size_t size, uint32_t groups, uint32_t rows)
{
	const uint8_t *at = payload, *end = payload + size;
	struct chunk_group group;
	uint64_t total = 0;
	uint32_t n = 0;

	while (at < end) {
		if (!chunk_group_next(&at, end, &group))
			return false;
		total += group.rows;
		n++;
	}
	return n == groups && total == rows;
}

int chunk_decoder_init(struct chunk_decoder *decoder, const struct prof_table_def *def,
		       const uint16_t *ids, size_t n_ids)
{
	size_t n = ids ? n_ids : def->n_columns;

	*decoder = (struct chunk_decoder){ .n_columns = n };
	decoder->defs = calloc(MAX_OF(n, (size_t)1), sizeof(*decoder->defs));
	decoder->columns = calloc(MAX_OF(n, (size_t)1), sizeof(*decoder->columns));
	decoder->arrays = calloc(MAX_OF(n, (size_t)1), sizeof(*decoder->arrays));
	if (!decoder->defs || !decoder->columns || !decoder->arrays) {
		chunk_decoder_done(decoder);
		return -ENOMEM;
	}
	for (size_t i = 0; i < n; i++)
		for (size_t j = 0; j < def->n_columns; j++)
			if (ids ? def->columns[j].id == ids[i] : i == j)
				decoder->defs[i] = &def->columns[j];
	return 0;
}

void chunk_decoder_done(struct chunk_decoder *decoder)
{
	for (size_t i = 0; decoder->columns && i < decoder->n_columns; i++) {
		free(decoder->columns[i].numbers);
		free(decoder->columns[i].offsets);
		free(decoder->columns[i].bytes);
		free(decoder->columns[i].nulls);
	}
	free(decoder->columns);
	free(decoder->arrays);
	free(decoder->defs);
	codec_decoder_done(&decoder->codec);
	*decoder = (struct chunk_decoder){ 0 };
}

/* Makes room for n items. Does not keep the old content. */
static int array_reserve(void *array, size_t *capacity, size_t n, size_t item_size)
{
	size_t wanted = MAX_OF(n, (size_t)64);
	void *grown;

	if (n <= *capacity && *capacity > 0)
		return 0;
	grown = malloc(wanted * item_size);
	if (!grown)
		return -ENOMEM;
	free(*(void **)array);
	*(void **)array = grown;
	*capacity = wanted;
	return 0;
}

struct column_parts {
	struct codec_part parts[PARTS];
	const uint8_t *stored[PARTS];
	bool present[PARTS];
};

/* Returns 0, PROF_DAMAGED, or PROF_END if this version cannot decode the column, which is then
 * absent. */
static int find_parts(const struct chunk_group *group, uint16_t column,
		      struct column_parts *ret_parts)
{
	const uint8_t *descriptor = group->descriptors, *stored = group->stored;

	memset(ret_parts->present, 0, sizeof(ret_parts->present));
	for (uint32_t i = 0; i < group->n_parts; i++, descriptor += DESCRIPTOR_BYTES) {
		if (load_le16(descriptor) == column) {
			struct codec_part part = codec_part_load(descriptor);

			if (!codec_part_known(&part))
				return PROF_END;
			if (ret_parts->present[part.part])
				return PROF_DAMAGED;
			ret_parts->parts[part.part] = part;
			ret_parts->stored[part.part] = stored;
			ret_parts->present[part.part] = true;
		}
		stored += load_le32(descriptor + 4);
	}
	return 0;
}

static int decode_nulls(struct chunk_decoder *decoder, struct chunk_column *column,
			const struct column_parts *parts, size_t rows)
{
	int r = array_reserve(&column->nulls, &column->nulls_capacity, rows, 1);

	column->same = 0; /* because `offsets` changes */
	if (!r)
		r = array_reserve(&column->offsets, &column->offsets_capacity, rows + 1,
				  sizeof(uint64_t));
	if (!r)
		r = codec_decode_numbers(&decoder->codec, &parts->parts[PART_NULLS],
					 parts->stored[PART_NULLS], rows, column->offsets);
	for (size_t i = 0; !r && i < rows; i++)
		column->nulls[i] = column->offsets[i] != 0;
	return r;
}

static bool is_constant(const struct codec_part *part)
{
	return part->width == 0 && part->order == PROF_ORDER_OFFSET && part->stored == 0;
}

/* Decodes numbers. Skips a constant that is still in the array from the previous group. */
static int decode_scalars(struct chunk_decoder *decoder, struct chunk_column *column,
			  const struct column_parts *parts, size_t rows, bool has_nulls)
{
	const struct codec_part *part = &parts->parts[PART_VALUES];
	bool constant = is_constant(part) && !has_nulls;
	int r;

	if (constant && column->same >= rows && column->constant == part->base)
		return 0;
	column->same = 0;
	r = array_reserve(&column->numbers, &column->numbers_capacity, rows, sizeof(uint64_t));
	if (!r)
		r = codec_decode_numbers(&decoder->codec, part, parts->stored[PART_VALUES], rows,
					 column->numbers);
	if (r)
		return r;
	for (size_t i = 0; has_nulls && i < rows; i++)
		if (column->nulls[i])
			column->numbers[i] = 0;
	if (constant) {
		column->constant = part->base;
		column->same = rows;
	}
	return 0;
}

/* Decodes lengths, and converts them to offsets. *ret_items: number of items. Keeps the offsets if
 * all lengths are 0 and the offsets of the previous group are 0, too. */
static int decode_offsets(struct chunk_decoder *decoder, struct chunk_column *column,
			  const struct column_parts *parts, size_t rows, size_t item_size,
			  bool has_nulls, size_t *ret_items)
{
	const struct codec_part *part = &parts->parts[PART_LENGTHS];
	size_t items = 0, limit = decoder->budget / item_size;
	bool empty = is_constant(part) && part->base == 0 && !has_nulls;
	int r;

	*ret_items = 0;
	if (empty && column->same >= rows)
		return 0;
	column->same = 0;
	r = array_reserve(&column->offsets, &column->offsets_capacity, rows + 1, sizeof(uint64_t));
	if (r)
		return r;
	if (empty) {
		memset(column->offsets, 0, (rows + 1) * sizeof(uint64_t));
		column->same = rows;
		return 0;
	}
	r = codec_decode_numbers(&decoder->codec, part, parts->stored[PART_LENGTHS], rows,
				 column->offsets);
	if (r)
		return r;
	for (size_t i = 0; i < rows; i++) {
		uint64_t length = column->offsets[i];

		if (length > limit - items)
			return PROF_DAMAGED;
		column->offsets[i] = items;
		items += length;
	}
	column->offsets[rows] = items;
	decoder->budget -= items * item_size;
	*ret_items = items;
	return 0;
}

static int decode_items(struct chunk_decoder *decoder, struct chunk_column *column,
			const struct column_parts *parts, size_t rows, enum column_form form,
			bool has_nulls)
{
	enum part kind = form == FORM_LIST ? PART_VALUES : PART_BYTES;
	size_t item_size = form == FORM_LIST ? sizeof(uint64_t) : 1, items;
	int r = decode_offsets(decoder, column, parts, rows, item_size, has_nulls, &items);

	if (r)
		return r;
	if (form == FORM_LIST) {
		r = array_reserve(&column->numbers, &column->numbers_capacity, items, item_size);
		return r ? r
			 : codec_decode_numbers(&decoder->codec, &parts->parts[kind],
						parts->stored[kind], items, column->numbers);
	}
	r = array_reserve(&column->bytes, &column->bytes_capacity, items, item_size);
	return r ? r
		 : codec_decode_bytes(&decoder->codec, &parts->parts[kind], parts->stored[kind],
				      items, column->bytes);
}

static int decode_column(struct chunk_decoder *decoder, const struct chunk_group *group, size_t i)
{
	const struct prof_column_def *def = decoder->defs[i];
	struct chunk_column *column = &decoder->columns[i];
	struct prof_array *array = &decoder->arrays[i];
	enum column_form form = def ? schema_column_form(def) : FORM_NONE;
	struct column_parts parts;
	bool has_nulls;
	int r;

	*array = (struct prof_array){ 0 };
	if (form == FORM_NONE)
		return 0;
	r = find_parts(group, def->id, &parts);
	if (r)
		return r == PROF_END ? 0 : r;
	if (!parts.present[form == FORM_BYTES ? PART_BYTES : PART_VALUES] ||
	    (form != FORM_SCALAR && !parts.present[PART_LENGTHS]))
		return 0;
	has_nulls = parts.present[PART_NULLS] && def->flags & PROF_COLUMN_NULLABLE;
	r = has_nulls ? decode_nulls(decoder, column, &parts, group->rows) : 0;
	if (!r)
		r = form == FORM_SCALAR
			    ? decode_scalars(decoder, column, &parts, group->rows, has_nulls)
			    : decode_items(decoder, column, &parts, group->rows, form, has_nulls);
	if (r)
		return r;
	array->nulls = has_nulls ? column->nulls : NULL;
	array->numbers = form == FORM_BYTES ? NULL : column->numbers;
	array->bytes = form == FORM_BYTES ? column->bytes : NULL;
	array->offsets = form == FORM_SCALAR ? NULL : column->offsets;
	return 0;
}

int chunk_decode(struct chunk_decoder *decoder, const struct chunk_group *group)
{
	decoder->budget = PROF_MAX_PAYLOAD;
	for (size_t i = 0; i < decoder->n_columns; i++) {
		int r = decode_column(decoder, group, i);

		if (r)
			return r;
	}
	return 0;
}
