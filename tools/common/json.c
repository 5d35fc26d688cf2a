/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Json - streaming writer of JSON, ndjson and CSV
 *
 * Invariants: (1) the output is valid JSON whatever bytes the strings hold
 *                 [test-json: strings]
 *             (2) a CSV record has as many fields as the header  [test-json: csv]
 * Misuse (a key in an array, a column that was not announced) is our bug and asserted.
 */
#include "tools/common/json.h"

#include "tools/common/text.h"

#include <math.h>
#include <unistd.h>

#define HAS_ELEMENT 0x80

static bool json_is_object(char level)
{
	return ((unsigned char)level & ~HAS_ELEMENT) == '{';
}

void json_init(struct json *json, struct out *out)
{
	*json = (struct json){ .out = out,
			       .nesting = g_string_new(NULL),
			       .is_terminal = out->fd >= 0 && isatty(out->fd) };
}

void json_done(struct json *json)
{
	if (json->nesting)
		g_string_free(json->nesting, TRUE);
	if (json->row)
		g_string_free(json->row, TRUE);
	g_free(json->cells);
	*json = (struct json){ 0 };
}

static void json_put(struct json *json, const char *text, size_t length)
{
	if (json->cell)
		out_append(json->row, text, length);
	else
		out_write(json->out, text, length);
}

static void json_puts(struct json *json, const char *text)
{
	json_put(json, text, strlen(text));
}

/* Returns the length in bytes of the character at `bytes` (valid UTF-8) if it controls a terminal
 * (C0, DEL, C1) or reorders the text around it (bidi controls, line separators), else 0. */
static size_t json_is_control(const char *bytes)
{
	unsigned char c = (unsigned char)bytes[0];
	gunichar wide;

	if (c < 0x20 || c == 0x7f)
		return 1;
	/* the lead bytes of U+0080 to 00BF, U+0600 to 063F and U+2000 to 2FFF */
	if (c != 0xc2 && c != 0xd8 && c != 0xe2)
		return 0;
	wide = g_utf8_get_char(bytes);
	if (wide < 0xa0 || wide == 0x61c)
		return 2;
	return wide == 0x200e || wide == 0x200f || (wide >= 0x2028 && wide <= 0x202e) ||
			       (wide >= 0x2066 && wide <= 0x2069)
		       ? 3
		       : 0;
}

/* A vector of bytes, compared at once, because large tables spend most of their time here. */
typedef int8_t json_block __attribute__((vector_size(16)));

/* Returns 0 for each byte that is printable ASCII and needs no escape, else -1. Non-ASCII bytes are
 * negative, so they are below ' '. */
static json_block json_find_special(json_block bytes)
{
	return (bytes < ' ') | (bytes == 127) | (bytes == '"') | (bytes == '\\');
}

static json_block json_load(const char *first, const char *second)
{
	json_block block;

	memcpy(&block, first, sizeof(block) / 2);
	memcpy((char *)&block + sizeof(block) / 2, second, sizeof(block) / 2);
	return block;
}

/* Returns a word with all bytes of a text of 1 to 7 bytes. The other bytes are copies or spaces. */
static uint64_t json_short_word(const char *bytes, size_t length)
{
	const unsigned char *byte = (const unsigned char *)bytes;
	uint32_t low, high;

	if (length < sizeof(low)) {
		low = byte[0] | (uint32_t)byte[length / 2] << 8 | (uint32_t)byte[length - 1] << 16;
		return low | UINT64_C(0x2020202020) << 24;
	}
	memcpy(&low, bytes, sizeof(low));
	memcpy(&high, bytes + length - sizeof(high), sizeof(high));
	return (uint64_t)high << 32 | low;
}

/* Returns whether a text consists of printable ASCII that needs no escape, as most do. */
static bool json_is_plain(const char *bytes, size_t length)
{
	const char *end = bytes + length;
	json_block found = { 0 };
	uint64_t halves[2], few;

	if (length == 0)
		return true;
	if (length < sizeof(few)) {
		few = json_short_word(bytes, length);
		found = json_find_special(json_load((char *)&few, (char *)&few));
	} else {
		for (; end - bytes > (ptrdiff_t)sizeof(found); bytes += sizeof(found))
			found |= json_find_special(json_load(bytes, bytes + sizeof(few)));
		found |= json_find_special(json_load(
			length < sizeof(found) ? bytes : end - sizeof(found), end - sizeof(few)));
	}
	memcpy(halves, &found, sizeof(halves));
	return (halves[0] | halves[1]) == 0;
}

static void json_put_quoted(struct json *json, const char *bytes, size_t length)
{
	g_autoptr(GString) valid = NULL;
	size_t start = 0, n;

	if (json_is_plain(bytes, length)) {
		json_puts(json, "\"");
		json_put(json, bytes, length);
		json_puts(json, "\"");
		return;
	}
	if (!g_utf8_validate(bytes, (gssize)length, NULL)) {
		valid = g_string_sized_new(length + 16);
		text_append_valid(valid, bytes, length);
		bytes = valid->str;
		length = valid->len;
	}
	json_puts(json, "\"");
	for (size_t i = 0; i < length; i++) {
		char c = bytes[i], escaped[8];

		n = json_is_control(bytes + i);
		if (n == 0 && c != '"' && c != '\\')
			continue;
		json_put(json, bytes + start, i - start);
		if (n == 0)
			g_snprintf(escaped, sizeof(escaped), "\\%c", c);
		else if (c == '\n')
			g_strlcpy(escaped, "\\n", sizeof(escaped));
		else
			g_snprintf(escaped, sizeof(escaped), "\\u%04x", g_utf8_get_char(bytes + i));
		json_puts(json, escaped);
		i += n > 0 ? n - 1 : 0;
		start = i + 1;
	}
	json_put(json, bytes + start, length - start);
	json_puts(json, "\"");
}

/* Returns whether the next value is a CSV cell, outside of any array or object in its row. */
static bool json_at_cell(const struct json *json)
{
	return json->columns && json->nesting->len == 1;
}

/* Searches from the column after the last one found, because columns nearly always come in
 * order. */
static struct json_cell *json_find_cell(struct json *json, const char *key)
{
	for (unsigned i = 0, column = json->next_column; i < json->n_columns; i++, column++) {
		if (column >= json->n_columns)
			column = 0;
		if (json->columns[column] == key || strcmp(json->columns[column], key) == 0) {
			json->next_column = column + 1;
			return &json->cells[column];
		}
	}
	g_error("CSV column '%s' was not announced", key);
}

static void json_begin_value(struct json *json, const char *key)
{
	char *level;

	if (json_at_cell(json)) {
		g_assert(key);
		json->cell = json_find_cell(json, key);
		json->cell->start = json->row->len;
		return;
	}
	if (json->nesting->len == 0) {
		g_assert(!key);
		return;
	}
	level = &json->nesting->str[json->nesting->len - 1];
	g_assert((key != NULL) == json_is_object(*level));
	if (*level & HAS_ELEMENT)
		json_puts(json, ",");
	*level = (char)(*level | HAS_ELEMENT);
	if (key) {
		json_put_quoted(json, key, strlen(key));
		json_puts(json, ":");
	}
}

static void json_end_value(struct json *json)
{
	if (json_at_cell(json)) {
		json->cell->length = json->row->len - json->cell->start;
		json->cell = NULL;
	} else if (json->nesting->len == 0) {
		json_puts(json, "\n");
	}
}

/* Writes a value, with its key and quotes if any, in one step, because tables have millions of
 * values. Returns false, and writes nothing, at the top level, in a CSV cell, or if the key needs
 * escapes. Text in quotes must be plain. */
static bool json_put_usual(struct json *json, const char *key, const char *text, size_t length,
			   bool is_quoted)
{
	size_t key_length = key ? strlen(key) : 0;
	GString *to = json->cell ? json->row : json->out->text;
	char *level, *start, *at;

	if (json->nesting->len == 0 || json_at_cell(json) ||
	    (key && !json_is_plain(key, key_length)))
		return false;
	level = &json->nesting->str[json->nesting->len - 1];
	g_assert((key != NULL) == json_is_object(*level));
	start = at = out_room(to, key_length + length + 6);
	if (*level & HAS_ELEMENT)
		*at++ = ',';
	*level = (char)(*level | HAS_ELEMENT);
	if (key) {
		*at++ = '"';
		at = mempcpy(at, key, key_length);
		*at++ = '"';
		*at++ = ':';
	}
	if (is_quoted)
		*at++ = '"';
	at = mempcpy(at, text, length);
	if (is_quoted)
		*at++ = '"';
	if (json->cell) {
		to->len += (gsize)(at - start);
		*at = '\0';
	} else {
		out_added(json->out, (size_t)(at - start));
	}
	return true;
}

static void json_begin(struct json *json, const char *key, char bracket)
{
	json_begin_value(json, key);
	json_put(json, &bracket, 1);
	g_string_append_c(json->nesting, bracket);
}

void json_begin_object(struct json *json, const char *key)
{
	json_begin(json, key, '{');
}

void json_begin_array(struct json *json, const char *key)
{
	json_begin(json, key, '[');
}

void json_end(struct json *json)
{
	gsize depth = json->nesting->len;

	g_assert(depth > 0);
	json_puts(json, json_is_object(json->nesting->str[depth - 1]) ? "}" : "]");
	g_string_truncate(json->nesting, depth - 1);
	json_end_value(json);
}

/* `is_number`: the text has only digits, letters, signs and points */
static void json_put_cell(struct json *json, const char *text, size_t length, bool is_number)
{
	if (is_number) {
		out_append(json->row, text, length);
		json->cell->is_plain = true;
	} else if (json_is_plain(text, length)) {
		out_append(json->row, text, length);
		json->cell->is_plain = !memchr(text, ',', length);
	} else {
		text_append_valid(json->row, text, length);
	}
}

static void json_put_raw(struct json *json, const char *key, const char *text, size_t length,
			 bool is_number)
{
	if (json_put_usual(json, key, text, length, false))
		return;
	json_begin_value(json, key);
	if (json_at_cell(json))
		json_put_cell(json, text, length, is_number);
	else
		json_put(json, text, length);
	json_end_value(json);
}

void json_raw(struct json *json, const char *key, const char *text)
{
	json_put_raw(json, key, text, strlen(text), false);
}

/* In a CSV cell, text that begins like a formula gets a ' before it, for spreadsheets, and control
 * characters are escaped if the output is a terminal. */
void json_string_n(struct json *json, const char *key, const char *value, size_t length)
{
	g_autofree char *escaped = NULL;

	if (!json_at_cell(json) && json_is_plain(value, length) &&
	    json_put_usual(json, key, value, length, true))
		return;
	json_begin_value(json, key);
	if (!json_at_cell(json)) {
		json_put_quoted(json, value, length);
	} else {
		if (length > 0 && value[0] && strchr("=+-@\t\r", value[0]))
			g_string_append_c(json->row, '\'');
		if (json->is_terminal)
			escaped = text_escape_n(value, length);
		json_put_cell(json, escaped ? escaped : value, escaped ? strlen(escaped) : length,
			      false);
	}
	json_end_value(json);
}

void json_string(struct json *json, const char *key, const char *value)
{
	if (value)
		json_string_n(json, key, value, strlen(value));
	else
		json_null(json, key);
}

/* Printing is a large part of the time for tables of millions of rows, so printf() is not used. */
static void json_number(struct json *json, const char *key, bool is_negative, uint64_t value)
{
	char text[24], *end = text + sizeof(text), *at = end;

	do
		*--at = (char)('0' + value % 10);
	while (value /= 10);
	if (is_negative)
		*--at = '-';
	json_put_raw(json, key, at, (size_t)(end - at), true);
}

void json_uint(struct json *json, const char *key, uint64_t value)
{
	json_number(json, key, false, value);
}

void json_uint_if(struct json *json, const char *key, bool is_known, uint64_t value)
{
	if (is_known)
		json_uint(json, key, value);
	else
		json_null(json, key);
}

void json_int(struct json *json, const char *key, int64_t value)
{
	json_number(json, key, value < 0, value < 0 ? -(uint64_t)value : (uint64_t)value);
}

void json_double(struct json *json, const char *key, double value)
{
	static const char *const formats[] = { "%.15g", "%.16g", "%.17g" };
	char text[G_ASCII_DTOSTR_BUF_SIZE];

	if (!isfinite(value)) {
		json_null(json, key);
		return;
	}
	for (unsigned i = 0; i < ARRAY_SIZE(formats); i++) {
		g_ascii_formatd(text, sizeof(text), formats[i], value);
		if (g_ascii_strtod(text, NULL) == value)
			break;
	}
	json_raw(json, key, text);
}

void json_bool(struct json *json, const char *key, bool value)
{
	json_put_raw(json, key, value ? "true" : "false", value ? 4 : 5, true);
}

void json_null(struct json *json, const char *key)
{
	json_put_raw(json, key, "null", json_at_cell(json) ? 0 : strlen("null"), true);
}

void json_hex(struct json *json, const char *key, uint64_t value)
{
	static const char digits[] = "0123456789abcdef";
	char text[24], *at = text + sizeof(text) - 1;

	*at = '\0';
	do
		*--at = digits[value & 15];
	while (value >>= 4);
	*--at = 'x';
	*--at = '0';
	json_string_n(json, key, at, (size_t)(text + sizeof(text) - 1 - at));
}

void json_hex_bytes(struct json *json, const char *key, const void *bytes, size_t length)
{
	static const char digits[] = "0123456789abcdef";
	const unsigned char *byte = bytes;
	g_autofree char *text = g_malloc(2 * length + 1);

	for (size_t i = 0; i < length; i++) {
		text[2 * i] = digits[byte[i] >> 4];
		text[2 * i + 1] = digits[byte[i] & 15];
	}
	text[2 * length] = '\0';
	json_string(json, key, length > 0 ? text : NULL);
}

void json_strings(struct json *json, const char *key, const char *const *values)
{
	if (!values) {
		json_null(json, key);
		return;
	}
	json_begin_array(json, key);
	for (; *values; values++)
		json_string(json, NULL, *values);
	json_end(json);
}

/* Writes a cell as RFC 4180 requires: quotes a cell with a quote, comma or line break, and doubles
 * quotes in it. */
static void rows_put_cell(struct out *out, const char *text, size_t length)
{
	bool is_quoted = memchr(text, '"', length) || memchr(text, ',', length) ||
			 memchr(text, '\n', length) || memchr(text, '\r', length);
	char *start = out_room(out->text, 2 * length + 2), *at = start;
	const char *quote;

	if (is_quoted)
		*at++ = '"';
	for (; (quote = memchr(text, '"', length)); text = quote + 1) {
		at = mempcpy(at, text, (size_t)(quote + 1 - text));
		*at++ = '"';
		length -= (size_t)(quote + 1 - text);
	}
	at = mempcpy(at, text, length);
	if (is_quoted)
		*at++ = '"';
	out_added(out, (size_t)(at - start));
}

/* Writes the cells as a record that ends with CRLF, and empties them. */
static void rows_put_record(struct json *json)
{
	for (unsigned i = 0; i < json->n_columns; i++) {
		struct json_cell *cell = &json->cells[i];
		const char *text = json->row->str + cell->start;
		char *at;

		if (cell->is_plain) {
			at = out_room(json->out->text, cell->length + 1);
			*at = ',';
			memcpy(at + (i > 0), text, cell->length);
			out_added(json->out, cell->length + (i > 0));
		} else {
			if (i > 0)
				out_char(json->out, ',');
			rows_put_cell(json->out, text, cell->length);
		}
		*cell = (struct json_cell){ 0 };
	}
	g_string_truncate(json->row, 0);
	out_text(json->out, "\r\n");
}

void rows_open(struct json *json, enum json_format format, const char *const *columns)
{
	rows_open_as(json, format, "rows", columns);
}

void rows_open_as(struct json *json, enum json_format format, const char *key,
		  const char *const *columns)
{
	json->rows = format;
	if (format == JSON_FORMAT_JSON)
		json_begin_array(json, key);
	if (format != JSON_FORMAT_CSV)
		return;
	g_assert(json->nesting->len == 0 && !json->columns);
	json->columns = columns;
	json->n_columns = g_strv_length((char **)columns);
	json->cells = g_new0(struct json_cell, json->n_columns);
	json->row = g_string_new(NULL);
	for (unsigned i = 0; columns[i]; i++) {
		json->cells[i] = (struct json_cell){ json->row->len, strlen(columns[i]), false };
		g_string_append(json->row, columns[i]);
	}
	rows_put_record(json);
}

void rows_begin(struct json *json)
{
	if (json->rows != JSON_FORMAT_CSV) {
		json_begin_object(json, NULL);
		return;
	}
	g_string_append_c(json->nesting, '{');
	json->next_column = 0;
}

void rows_end(struct json *json)
{
	if (json->rows != JSON_FORMAT_CSV) {
		json_end(json);
		return;
	}
	g_assert(json->nesting->len == 1);
	g_string_truncate(json->nesting, 0);
	rows_put_record(json);
}

void rows_close(struct json *json)
{
	if (json->rows == JSON_FORMAT_JSON)
		json_end(json);
	json->columns = NULL;
	g_clear_pointer(&json->cells, g_free);
	if (json->row)
		g_string_free(json->row, TRUE);
	json->row = NULL;
}

void json_begin_envelope(struct json *json, const char *schema)
{
	json_begin_object(json, NULL);
	json_string(json, "schema", schema);
	json_null(json, "capture");
	json_bool(json, "truncated", false);
	json_begin_object(json, "data");
}

void json_end_envelope(struct json *json)
{
	json_end(json);
	json_end(json);
}
