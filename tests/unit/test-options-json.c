/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "tests/unit/test.h"

#include "daemon/broker/options-json.h"

static char *json_of(const char *options)
{
	g_autoptr(GVariant)
		parsed = g_variant_parse(G_VARIANT_TYPE_VARDICT, options, NULL, NULL, NULL);

	return options_to_json(parsed);
}

static void test_types(void)
{
	g_autofree char *empty = json_of("{}");
	g_autofree char *all =
		json_of("{'system': <true>, 'frequency': <uint32 999>, 'policy': <'drop'>,"
			" 'max-bytes': <uint64 18446744073709551615>,"
			" 'events': <['cycles', 'faults']>, 'pids': <[uint32 1, 2]>}");

	CHECK_STR(empty, "{}");
	CHECK_STR(all, "{\"events\":[\"cycles\",\"faults\"],\"frequency\":999,"
		       "\"max-bytes\":18446744073709551615,\"pids\":[1,2],\"policy\":\"drop\","
		       "\"system\":true}");
}

static void test_strings(void)
{
	g_autofree char *hostile = json_of("{'policy': <'\"\\\\\\n\\u001b\u00e9'>}");

	CHECK_STR(hostile, "{\"policy\":\"\\\"\\\\\\u000a\\u001b\u00e9\"}");
}

static void test_others_are_left_out(void)
{
	g_autofree char *rest =
		json_of("{'command': <[b'ls']>, 'kernel': <false>, 'ratio': <1.5>}");

	CHECK_STR(rest, "{\"kernel\":false}");
}

int main(void)
{
	RUN(test_types);
	RUN(test_strings);
	RUN(test_others_are_left_out);
	return test_end();
}
