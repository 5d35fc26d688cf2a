/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of json-copy: JSON from a file is copied unchanged, anything else becomes null.
 */
#include "tests/unit/test.h"
#include "tools/common/json-copy.h"

static void check(const char *text, const char *want, const char *file, int line)
{
	struct out out;
	struct json json;

	out = out_buffer();
	json_init(&json, &out);
	json_begin_object(&json, NULL);
	json_copy(&json, "v", text);
	json_end(&json);
	test_check_str(out.text->str, want, file, line, text ? text : "NULL");
	json_done(&json);
	out_done(&out);
}
#define COPIES(text, want) check((text), "{\"v\":" want "}\n", __FILE__, __LINE__)

static void test_values(void)
{
	COPIES("{\"a\":[1,-2,1.5,true,false,null,\"x\"],\"b\":{}}",
	       "{\"a\":[1,-2,1.5,true,false,null,\"x\"],\"b\":{}}");
	COPIES(" [ ] ", "[]");
	COPIES("18446744073709551615", "18446744073709551615");
	COPIES("\"\\u00e9\\ud83d\\ude00\\n\\\"\"", "\"é😀\\n\\\"\"");
	COPIES("\"\\ud83d\"", "\"\xef\xbf\xbd\"");
}

static void test_refused(void)
{
	static const char *const texts[] = {
		NULL,         "",          "{",
		"[1,",        "[1 2]",     "{\"a\"}",
		"{\"a\":}",   "{1:2}",     "nul",
		"\"\\x\"",    "\"\\u12\"", "\"open",
		"1 2",        "[1]]",      "--",
		"+1",         "1e999x",    "\"\n\"",
		"{\"a\":1,}", "[,]",       "\"\\ud83d\\u0041\"",
	};
	char deep[200];

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		COPIES(texts[i], "null");
	memset(deep, '[', 100);
	memset(deep + 100, ']', 99);
	deep[199] = '\0';
	COPIES(deep, "null");
}

int main(void)
{
	RUN(test_values);
	RUN(test_refused);
	return test_end();
}
