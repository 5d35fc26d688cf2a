/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Event format - parses the kernel's description of a tracepoint's records
 *
 *     field:char prev_comm[16];        offset:8;   size:16;  signed:0;   text
 *     field:pid_t prev_pid;            offset:24;  size:4;   signed:1;   number
 *     field:const char * filename;     offset:24;  size:8;   signed:0;   address
 *     field:__data_loc char[] name;    offset:8;   size:4;   signed:0;   text elsewhere
 *     field:__u8 saddr[4];             offset:20;  size:4;   signed:0;   array
 * The records of system calls have a whole register for each argument: "int dfd" has size 8, and
 * only the low half counts.
 * Invariants: (1) a field ends within 64 KiB, and has 1, 2, 4 or 8 bytes unless it is an array
 *                 [test-events: format]
 *             (2) names are plain identifiers  [test-events: format_hostile]
 * Pure.
 */
#include "config.h"

#include "daemon/broker/event-format.h"

#include "arch/base.h"
#include "daemon/protocol.h"
#include "libcapture/prof-capture.h"

#include <string.h>

/* Types of array items, without "unsigned", "const" and the underscores of __u8. */
static const struct {
	const char *type;
	uint8_t bytes;
} items[] = {
	{ "char", 1 },       { "u8", 1 },  { "s8", 1 },   { "bool", 1 }, { "short", 2 },
	{ "u16", 2 },        { "s16", 2 }, { "le16", 2 }, { "be16", 2 }, { "int", 4 },
	{ "u32", 4 },        { "s32", 4 }, { "le32", 4 }, { "be32", 4 }, { "long", sizeof(long) },
	{ "u64", 8 },        { "s64", 8 }, { "le64", 8 }, { "be64", 8 }, { "size_t", sizeof(long) },
	{ "dma_addr_t", 8 },
};

static uint8_t item_bytes(const char *type)
{
	static const char *const prefixes[] = { "const ", "unsigned ", "__" };

	for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++)
		if (g_str_has_prefix(type, prefixes[i]))
			type += strlen(prefixes[i]);
	for (size_t i = 0; i < ARRAY_SIZE(items); i++)
		if (strcmp(type, items[i].type) == 0)
			return items[i].bytes;
	return 1;
}

/* Reads the number after `key`. Returns false if it is missing or needs more than 16 bits. */
static bool read_number(const char *line, const char *key, uint16_t *ret_number)
{
	const char *at = strstr(line, key);
	char *end;
	uint64_t number;

	if (!at)
		return false;
	number = g_ascii_strtoull(at + strlen(key), &end, 10);
	if (end == at + strlen(key) || *end != ';' || number > UINT16_MAX)
		return false;
	*ret_number = (uint16_t)number;
	return true;
}

/* Splits "const char * name[16]" into type and name. Returns the number of items in brackets: 0
 * without brackets, -1 if the declaration cannot be parsed. */
static int split(char *declaration, struct message_field *field)
{
	char *bracket = declaration[0] ? strrchr(declaration, '[') : NULL, *name, *end;
	uint64_t count = 0;

	/* "char[] name" has its brackets in the type. */
	if (bracket && g_str_has_suffix(bracket, "]") && !strchr(bracket, ' ')) {
		count = g_ascii_strtoull(bracket + 1, &end, 10);
		if (end == bracket + 1 || *end != ']' || count == 0 || count > UINT16_MAX)
			return -1;
		*bracket = '\0';
	}
	name = declaration + strlen(declaration);
	while (name > declaration && (g_ascii_isalnum(name[-1]) || name[-1] == '_'))
		name--;
	if (name == declaration || g_ascii_isdigit(*name) ||
	    g_strlcpy(field->name, name, sizeof(field->name)) >= sizeof(field->name))
		return -1;
	*name = '\0';
	g_strlcpy(field->type, g_strstrip(declaration), sizeof(field->type));
	return field->name[0] && field->type[0] ? (int)count : -1;
}

static void set_array(struct message_field *field, uint8_t bytes)
{
	field->kind = PROF_ARGUMENT_STRING;
	field->element = bytes;
}

/* Sets how to read the field's value. Returns false if the field cannot be recorded. */
static bool classify(struct message_field *field, int count)
{
	static const char data_loc[] = "__data_loc ", rel_loc[] = "__rel_loc ";
	char *type = field->type, *brackets;
	bool is_integer = strcmp(type, "int") == 0 || strcmp(type, "unsigned int") == 0;

	if (g_str_has_prefix(type, data_loc) || g_str_has_prefix(type, rel_loc)) {
		field->place = type[2] == 'd' ? FIELD_AT_OFFSET : FIELD_BEHIND;
		memmove(type, strchr(type, ' ') + 1, strlen(strchr(type, ' ')));
		brackets = strchr(type, '[');
		if (brackets)
			*brackets = '\0';
		set_array(field, item_bytes(type));
		return field->size == 4;
	}
	if (count > 0) {
		set_array(field, field->size % count ? 1 : (uint8_t)MIN_OF(field->size / count, 8));
		return field->size > 0 && strchr("\1\2\4\10", field->element) != NULL;
	}
	/* an argument of a system call: only its low half counts */
	if (is_integer && field->size == 8) {
		field->offset += G_BYTE_ORDER == G_BIG_ENDIAN ? 4 : 0;
		field->size = 4;
		field->is_signed = type[0] == 'i';
	}
	if (field->size != 1 && field->size != 2 && field->size != 4 && field->size != 8) {
		set_array(field, 1);
		return field->size > 0;
	}
	field->kind = g_str_has_suffix(type, "*") ? PROF_ARGUMENT_ADDRESS
		      : field->is_signed          ? PROF_ARGUMENT_S64
						  : PROF_ARGUMENT_U64;
	return true;
}

static bool parse_line(char *line, struct message_field *field)
{
	static const char start[] = "field:";
	char *declaration = g_strchug(line), *end = strchr(line, ';');
	uint16_t is_signed;
	int count;

	if (!g_str_has_prefix(declaration, start) || !end ||
	    !read_number(end, "offset:", &field->offset) ||
	    !read_number(end, "size:", &field->size) || !read_number(end, "signed:", &is_signed) ||
	    field->offset + field->size > UINT16_MAX)
		return false;
	field->is_signed = is_signed != 0;
	*end = '\0';
	count = split(declaration + strlen(start), field);
	return count >= 0 && classify(field, count) && !g_str_has_prefix(field->name, "common_");
}

GArray *event_format_parse(const char *text)
{
	GArray *fields = g_array_new(FALSE, FALSE, sizeof(struct message_field));

	while (*text && fields->len < ENGINE_MAX_FIELDS) {
		size_t length = strcspn(text, "\n");
		g_autofree char *line = g_strndup(text, length);
		struct message_field field = { 0 };

		if (parse_line(line, &field))
			g_array_append_val(fields, field);
		text += length + (text[length] == '\n');
	}
	return fields;
}
