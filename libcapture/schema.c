/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Schema - table definitions: checked, encoded and decoded
 *
 * docs/format.md, section 7, defines the bytes of an encoded schema.
 *
 * Invariants: (1) a decoded definition satisfies schema_table_valid()
 *                 [test-capture-schema: hostile]
 *             (2) decode reads no byte outside [data, data + size)  [test-capture-schema: cut]
 *             (3) memory is bounded by a constant times the encoded size
 *                 [by construction of decode_one()]
 */
#include "libcapture/schema.h"

#include <assert.h>

/* The encoded length of a name is one byte. Besides the name, decoding allocates at most a pointer
 * and a NUL for it. */
static_assert(PROF_MAX_NAME < 256 && PROF_MAX_ENUM < 256, "lengths are bytes");

/* The rest of the encoded schema. `bad`: it is invalid, or ended too early. */
struct input {
	const uint8_t *at;
	const uint8_t *end;
	bool bad;
};

static const uint8_t *input_read(struct input *in, size_t size)
{
	const uint8_t *at = in->at;

	if (in->bad || (size_t)(in->end - at) < size) {
		in->bad = true;
		return NULL;
	}
	in->at += size;
	return at;
}

static uint8_t input_u8(struct input *in)
{
	const uint8_t *at = input_read(in, 1);

	return at ? *at : 0;
}

static uint16_t input_u16(struct input *in)
{
	const uint8_t *at = input_read(in, 2);

	return at ? load_le16(at) : 0;
}

enum column_form schema_column_form(const struct prof_column_def *column)
{
	bool list = column->flags & PROF_COLUMN_LIST;

	if (column->flags & ~(PROF_COLUMN_LIST | PROF_COLUMN_NULLABLE))
		return FORM_NONE;
	switch (column->type) {
	case PROF_TYPE_UINT:
	case PROF_TYPE_INT:
	case PROF_TYPE_BOOL:
	case PROF_TYPE_ENUM:
	case PROF_TYPE_TIME:
	case PROF_TYPE_REF:
	case PROF_TYPE_FLOAT:
		return list ? FORM_LIST : FORM_SCALAR;
	case PROF_TYPE_TEXT:
	case PROF_TYPE_BINARY:
		return list ? FORM_NONE : FORM_BYTES;
	default:
		return FORM_NONE;
	}
}

static bool name_valid(const char *name)
{
	size_t length = name ? strnlen(name, PROF_MAX_NAME + 1) : 0;

	return length > 0 && length <= PROF_MAX_NAME;
}

static bool column_valid(const struct prof_column_def *column)
{
	size_t n = 0;

	if (!name_valid(column->name) || column->type == 0)
		return false;
	if ((column->type == PROF_TYPE_ENUM) != (column->values != NULL))
		return false;
	if (column->type != PROF_TYPE_ENUM)
		return true;
	while (column->values[n]) {
		if (n == PROF_MAX_ENUM || !name_valid(column->values[n]))
			return false;
		n++;
	}
	return true;
}

/* The first column of a timed table is its time, the first one of a dictionary its id. Both are
 * numbers that are never null. */
static bool first_column_valid(const struct prof_table_def *def)
{
	const struct prof_column_def *first = def->columns;

	if (!(def->flags & (PROF_TABLE_TIMED | PROF_TABLE_DICTIONARY)))
		return true;
	if (schema_column_form(first) != FORM_SCALAR || first->flags & PROF_COLUMN_NULLABLE)
		return false;
	if (def->flags & PROF_TABLE_TIMED && first->type != PROF_TYPE_TIME)
		return false;
	return !(def->flags & PROF_TABLE_DICTIONARY) || first->type == PROF_TYPE_UINT;
}

bool schema_table_valid(const struct prof_table_def *def)
{
	if (!name_valid(def->name) || def->id == 0 || def->n_columns == 0 ||
	    def->n_columns > PROF_MAX_COLUMNS)
		return false;
	for (size_t i = 0; i < def->n_columns; i++) {
		if (!column_valid(&def->columns[i]))
			return false;
		if (i > 0 && def->columns[i].id <= def->columns[i - 1].id)
			return false;
	}
	return first_column_valid(def);
}

static bool values_agree(const char *const *a, const char *const *b)
{
	if (!a || !b)
		return a == b;
	for (; *a && *b; a++, b++)
		if (strcmp(*a, *b) != 0)
			return false;
	return true;
}

bool schema_tables_agree(const struct prof_table_def *a, const struct prof_table_def *b)
{
	size_t i = 0, j = 0;

	if (a == b)
		return true;
	if (a->id != b->id || a->flags != b->flags || strcmp(a->name, b->name) != 0)
		return false;
	while (i < a->n_columns && j < b->n_columns) {
		const struct prof_column_def *x = &a->columns[i], *y = &b->columns[j];

		if (x->id == y->id &&
		    (x->type != y->type || x->unit != y->unit || x->flags != y->flags ||
		     x->ref != y->ref || strcmp(x->name, y->name) != 0 ||
		     !values_agree(x->values, y->values)))
			return false;
		i += x->id <= y->id;
		j += y->id <= x->id;
	}
	return a->columns[0].id == b->columns[0].id;
}

void schema_done(struct schema *schema)
{
	for (size_t i = 0; i < schema->n_owned; i++)
		free(schema->owned[i]);
	free(schema->owned);
	free(schema->tables);
	*schema = (struct schema){ 0 };
}

/* Returns the position of the table with this id, or where to insert it. */
static size_t schema_position(const struct schema *schema, unsigned int id)
{
	size_t low = 0, high = schema->n_tables;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (schema->tables[middle]->id < id)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

const struct prof_table_def *schema_find(const struct schema *schema, unsigned int id)
{
	size_t i = schema_position(schema, id);

	return i < schema->n_tables && schema->tables[i]->id == id ? schema->tables[i] : NULL;
}

/* Returns the size of a definition: its columns and enum values. schema_add() keeps the larger of
 * two definitions that agree. */
static size_t table_weight(const struct prof_table_def *def)
{
	size_t weight = 0;

	for (size_t i = 0; i < def->n_columns; i++) {
		weight++;
		for (size_t v = 0; def->columns[i].values && def->columns[i].values[v]; v++)
			weight++;
	}
	return weight;
}

int schema_add(struct schema *schema, const struct prof_table_def *def)
{
	size_t i = schema_position(schema, def->id);
	const struct prof_table_def **tables;

	if (!schema_table_valid(def))
		return -EINVAL;
	if (i < schema->n_tables && schema->tables[i]->id == def->id) {
		if (!schema_tables_agree(schema->tables[i], def))
			return SCHEMA_CONFLICT;
		if (table_weight(def) > table_weight(schema->tables[i]))
			schema->tables[i] = def;
		return 0;
	}
	if (schema->n_tables == PROF_MAX_TABLES)
		return PROF_LIMIT;
	tables = realloc(schema->tables, (schema->n_tables + 1) * sizeof(*tables));
	if (!tables)
		return -ENOMEM;
	memmove(&tables[i + 1], &tables[i], (schema->n_tables - i) * sizeof(*tables));
	tables[i] = def;
	schema->tables = tables;
	schema->n_tables++;
	return 0;
}

static int encode_u8(struct buffer *buffer, uint8_t v)
{
	return buffer_add(buffer, &v, 1);
}

static int encode_u16(struct buffer *buffer, uint16_t v)
{
	uint8_t bytes[2];

	store_le16(bytes, v);
	return buffer_add(buffer, bytes, sizeof(bytes));
}

static int encode_name(struct buffer *buffer, const char *name)
{
	size_t length = strlen(name);
	int r = encode_u8(buffer, length);

	return r ? r : buffer_add(buffer, name, length);
}

static int encode_column(struct buffer *buffer, const struct prof_column_def *column)
{
	const uint8_t fixed[] = { column->type, column->unit, column->order, column->flags };
	uint8_t n = 0;
	int r;

	if ((r = encode_u16(buffer, column->id)) || (r = encode_u16(buffer, column->ref)) ||
	    (r = buffer_add(buffer, fixed, sizeof(fixed))) ||
	    (r = encode_name(buffer, column->name)))
		return r;
	if (column->type != PROF_TYPE_ENUM)
		return 0;
	while (column->values[n])
		n++;
	r = encode_u8(buffer, n);
	for (uint8_t i = 0; !r && i < n; i++)
		r = encode_name(buffer, column->values[i]);
	return r;
}

int schema_encode(const struct schema *schema, struct buffer *buffer)
{
	int r = encode_u16(buffer, schema->n_tables);

	for (size_t i = 0; !r && i < schema->n_tables; i++) {
		const struct prof_table_def *def = schema->tables[i];

		if ((r = encode_u16(buffer, def->id)) || (r = encode_u16(buffer, def->flags)) ||
		    (r = encode_u16(buffer, def->n_columns)) ||
		    (r = encode_name(buffer, def->name)))
			return r;
		for (size_t c = 0; !r && c < def->n_columns; c++)
			r = encode_column(buffer, &def->columns[c]);
	}
	return r;
}

/* A definition during decoding, in one allocation: the definition, its columns, pointers to names,
 * names. */
struct builder {
	struct prof_table_def *def;
	struct prof_column_def *columns;
	const char **values;
	char *text;
};

/* Stores a name and returns it. Without a builder, only adds its size to *text_bytes. */
static const char *decode_name(struct input *in, struct builder *builder, size_t *text_bytes)
{
	uint8_t length = input_u8(in);
	const uint8_t *name = input_read(in, length);
	char *text;

	if (!name || length == 0 || length > PROF_MAX_NAME || memchr(name, 0, length)) {
		in->bad = true;
		return NULL;
	}
	*text_bytes += length + 1u;
	if (!builder)
		return NULL;
	text = builder->text;
	memcpy(text, name, length);
	text[length] = 0;
	builder->text += length + 1;
	return text;
}

static void decode_values(struct input *in, struct builder *builder, size_t *text_bytes,
			  size_t *n_values)
{
	uint8_t n = input_u8(in);

	if (n > PROF_MAX_ENUM)
		in->bad = true;
	for (uint8_t i = 0; !in->bad && i < n; i++) {
		const char *name = decode_name(in, builder, text_bytes);

		if (builder)
			*builder->values++ = name;
	}
	if (builder)
		*builder->values++ = NULL;
	*n_values += n + 1u;
}

static void decode_column(struct input *in, struct builder *builder, struct prof_column_def *column,
			  size_t *text_bytes, size_t *n_values)
{
	column->id = input_u16(in);
	column->ref = input_u16(in);
	column->type = input_u8(in);
	column->unit = input_u8(in);
	column->order = input_u8(in);
	column->flags = input_u8(in);
	column->name = decode_name(in, builder, text_bytes);
	if (column->type != PROF_TYPE_ENUM)
		return;
	if (builder)
		column->values = builder->values;
	decode_values(in, builder, text_bytes, n_values);
}

/* Reads one table. Without a builder, only counts; with a builder, fills it. */
static void decode_table(struct input *in, struct builder *builder, size_t *ret_columns,
			 size_t *ret_text, size_t *ret_values)
{
	struct prof_table_def def = { 0 };
	size_t text_bytes = 0, n_values = 0;

	def.id = input_u16(in);
	def.flags = input_u16(in);
	def.n_columns = input_u16(in);
	if (def.n_columns > PROF_MAX_COLUMNS)
		in->bad = true;
	def.name = decode_name(in, builder, &text_bytes);
	for (size_t i = 0; !in->bad && i < def.n_columns; i++) {
		struct prof_column_def column = { 0 };

		decode_column(in, builder, &column, &text_bytes, &n_values);
		if (builder)
			builder->columns[i] = column;
	}
	if (builder) {
		def.columns = builder->columns;
		*builder->def = def;
	}
	*ret_columns = def.n_columns;
	*ret_text = text_bytes;
	*ret_values = n_values;
}

/* Frees a definition that was replaced, because a file may extend a table in each checkpoint. */
static void schema_disown(struct schema *schema, const struct prof_table_def *def)
{
	for (size_t i = 0; i < schema->n_owned; i++) {
		if (schema->owned[i] != def)
			continue;
		free(schema->owned[i]);
		schema->owned[i] = schema->owned[--schema->n_owned];
		return;
	}
}

static int decode_one(struct schema *schema, struct input *in)
{
	struct input ahead = *in;
	CLEANUP_FREE void *memory = NULL;
	size_t columns, text, values;
	const struct prof_table_def *before;
	struct prof_table_def **owned;
	struct builder builder;
	int r;

	decode_table(&ahead, NULL, &columns, &text, &values);
	if (ahead.bad)
		return PROF_DAMAGED;
	memory = calloc(1, sizeof(*builder.def) + columns * sizeof(*builder.columns) +
				   values * sizeof(*builder.values) + text);
	if (!memory)
		return -ENOMEM;
	builder.def = memory;
	builder.columns = (struct prof_column_def *)(builder.def + 1);
	builder.values = (const char **)(builder.columns + columns);
	builder.text = (char *)(builder.values + values);
	decode_table(in, &builder, &columns, &text, &values);
	if (!schema_table_valid(builder.def))
		return PROF_DAMAGED;
	/* Reserve before the table is added, so that taking ownership of it cannot fail. */
	owned = reallocarray(schema->owned, schema->n_owned + 1, sizeof(*owned));
	if (!owned)
		return -ENOMEM;
	schema->owned = owned;
	before = schema_find(schema, builder.def->id);
	r = schema_add(schema, builder.def);
	if (!r && schema_find(schema, builder.def->id) == builder.def) {
		schema_disown(schema, before);
		schema->owned[schema->n_owned++] = steal_ptr(&memory);
	}
	return r;
}

int schema_decode(struct schema *schema, const uint8_t *data, size_t size)
{
	struct input in = { .at = data, .end = data + size };
	uint16_t n = input_u16(&in);
	bool conflict = false;

	if (n > PROF_MAX_TABLES)
		return PROF_LIMIT;
	for (uint16_t i = 0; i < n; i++) {
		int r = decode_one(schema, &in);

		if (r == SCHEMA_CONFLICT)
			conflict = true;
		else if (r)
			return r;
	}
	if (in.bad || in.at != in.end)
		return PROF_DAMAGED;
	return conflict ? SCHEMA_CONFLICT : 0;
}
