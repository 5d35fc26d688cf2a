/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "tests/unit/test.h"
#include "tools/common/json.h"

#include <locale.h>
#include <math.h>
#include <string.h>

static struct out out;
static struct json json;

static void setup(void)
{
	out = out_buffer();
	json_init(&json, &out);
}

static void check_text(const char *want)
{
	CHECK_STR(out.text->str, want);
	json_done(&json);
	out_done(&out);
}

static void test_structure(void)
{
	static const char *const words[] = { "a", "b", NULL };

	setup();
	json_begin_object(&json, NULL);
	json_begin_object(&json, "empty");
	json_end(&json);
	json_begin_array(&json, "list");
	json_uint(&json, NULL, UINT64_MAX);
	json_int(&json, NULL, INT64_MIN);
	json_begin_array(&json, NULL);
	json_end(&json);
	json_begin_object(&json, NULL);
	json_bool(&json, "yes", true);
	json_end(&json);
	json_end(&json);
	json_null(&json, "nothing");
	json_string(&json, "none", NULL);
	json_strings(&json, "words", words);
	json_strings(&json, "no_words", NULL);
	json_hex(&json, "address", 0x1f);
	json_hex_bytes(&json, "build_id", "\x01\xff", 2);
	json_hex_bytes(&json, "no_build_id", "", 0);
	json_end(&json);
	check_text("{\"empty\":{},\"list\":[18446744073709551615,-9223372036854775808,[],"
		   "{\"yes\":true}],\"nothing\":null,\"none\":null,\"words\":[\"a\",\"b\"],"
		   "\"no_words\":null,\"address\":\"0x1f\",\"build_id\":\"01ff\","
		   "\"no_build_id\":null}\n");
}

static void test_strings(void)
{
	setup();
	json_begin_array(&json, NULL);
	json_string(&json, NULL, "a\"b\\c\n\t\033");
	json_string(&json, NULL, "x\377y");
	json_string_n(&json, NULL, "n\0l", 3);
	json_string(&json, NULL, "\344\270\255");
	json_end(&json);
	check_text(
		"[\"a\\\"b\\\\c\\n\\u0009\\u001b\",\"x\357\277\275y\",\"n\\u0000l\",\"\344\270\255\"]\n");
}

/* Characters are escaped at any place in the text. */
static void test_places(void)
{
	for (int c = 0; c < 0x80; c++) {
		char escaped[8];

		if (c == '"' || c == '\\')
			(void)g_snprintf(escaped, sizeof(escaped), "\\%c", c);
		else if (c == '\n')
			(void)g_snprintf(escaped, sizeof(escaped), "\\n");
		else
			(void)g_snprintf(escaped, sizeof(escaped),
					 c < ' ' || c == 0x7f ? "\\u%04x" : "%c", c);
		for (size_t length = 1; length <= 18; length++) {
			for (size_t at = 0; at < length; at++) {
				g_autoptr(GString) want = g_string_new("\"");
				char text[18];

				memset(text, 'a' + (int)at, sizeof(text));
				text[at] = (char)c;
				g_string_append_len(want, text, (gssize)at);
				g_string_append(want, escaped);
				g_string_append_len(want, text + at + 1, (gssize)(length - at - 1));
				g_string_append(want, "\"\n");
				setup();
				json_string_n(&json, NULL, text, length);
				check_text(want->str);
			}
		}
	}
}

/* The decimal comma of the locale must not appear in the output. */
static void test_doubles(void)
{
	setlocale(LC_ALL, "de_DE.UTF-8");
	setup();
	json_begin_array(&json, NULL);
	json_double(&json, NULL, 0.1);
	json_double(&json, NULL, 1.0 / 3);
	json_double(&json, NULL, 100);
	json_double(&json, NULL, NAN);
	json_double(&json, NULL, -INFINITY);
	json_end(&json);
	check_text("[0.1,0.3333333333333333,100,null,null]\n");
	setlocale(LC_ALL, "C");
}

static void test_deep(void)
{
	enum { DEPTH = 100000 };

	setup();
	for (unsigned i = 0; i < DEPTH; i++)
		json_begin_array(&json, NULL);
	for (unsigned i = 0; i < DEPTH; i++)
		json_end(&json);
	CHECK_INT(out.text->len, 2 * DEPTH + 1);
	json_done(&json);
	out_done(&out);
}

static const char *const columns[] = { "name", "count", "share", "frames", NULL };

static void write_rows(enum json_format format)
{
	rows_open(&json, format, columns);
	rows_begin(&json);
	json_string(&json, "name", "a,\"b\"\nc");
	json_uint(&json, "count", 7);
	json_null(&json, "share");
	json_begin_array(&json, "frames");
	json_begin_object(&json, NULL);
	json_string(&json, "name", "f");
	json_end(&json);
	json_end(&json);
	rows_end(&json);
	rows_begin(&json);
	json_double(&json, "share", 1.5);
	json_string(&json, "name", "plain\377");
	rows_end(&json);
	rows_close(&json);
}

static void test_csv(void)
{
	setup();
	write_rows(JSON_FORMAT_CSV);
	check_text("name,count,share,frames\r\n"
		   "\"a,\"\"b\"\"\nc\",7,,\"[{\"\"name\"\":\"\"f\"\"}]\"\r\n"
		   "plain\357\277\275,,1.5,\r\n");
	setup();
	rows_open(&json, JSON_FORMAT_CSV, columns);
	rows_close(&json);
	check_text("name,count,share,frames\r\n");
}

static void test_ndjson(void)
{
	setup();
	json_begin_object(&json, NULL);
	json_string(&json, "schema", "x/1");
	json_end(&json);
	write_rows(JSON_FORMAT_NDJSON);
	check_text(
		"{\"schema\":\"x/1\"}\n"
		"{\"name\":\"a,\\\"b\\\"\\nc\",\"count\":7,\"share\":null,\"frames\":[{\"name\":\"f\"}]}\n"
		"{\"share\":1.5,\"name\":\"plain\357\277\275\"}\n");
}

static void test_rows_in_json(void)
{
	setup();
	json_begin_object(&json, NULL);
	rows_open(&json, JSON_FORMAT_JSON, columns);
	rows_begin(&json);
	json_uint(&json, "count", 1);
	rows_end(&json);
	rows_begin(&json);
	rows_end(&json);
	rows_close(&json);
	json_uint(&json, "after", 2);
	json_end(&json);
	check_text("{\"rows\":[{\"count\":1},{}],\"after\":2}\n");
}

int main(void)
{
	RUN(test_structure);
	RUN(test_strings);
	RUN(test_places);
	RUN(test_doubles);
	RUN(test_deep);
	RUN(test_csv);
	RUN(test_ndjson);
	RUN(test_rows_in_json);
	return test_end();
}
