/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Event source - a sampled event, and the fields of its records
 *
 * The kernel writes the fields of a tracepoint as the broker's message describes them; the engine
 * itself writes the fields of a static probe. The message is not trusted: whatever it contains,
 * nothing outside a record is read.
 * Invariants: (1) decoding reads only [raw, raw + raw_bytes)  [fuzz_event_fields]
 */
#include "daemon/engine/perf/event-source.h"

#include "arch/base.h"

#include <stdio.h>
#include <string.h>

#define MAX_ITEMS 64 /* printed items of an array; the others are cut */

static void write_source(struct row *row, struct output *output)
{
	const struct message_source *message = &((struct event_source *)row)->message;
	const struct event_source *source = (const struct event_source *)row;
	uint64_t names[ENGINE_MAX_FIELDS], kinds[ENGINE_MAX_FIELDS], types[ENGINE_MAX_FIELDS];
	const char *unit = message->name; /* unit of the samples' weight */

	for (size_t i = 0; i < source->n_fields; i++) {
		names[i] = output_text(output, source->fields[i].name);
		kinds[i] = source->fields[i].kind;
		types[i] = output_text(output, source->fields[i].type);
	}

	if (message->counts_ns)
		unit = "ns";
	else if (message->kind == PROF_SOURCE_TRACEPOINT || message->kind == PROF_SOURCE_DYNAMIC ||
		 message->kind == PROF_SOURCE_PROBE)
		unit = "events";
	output_add(output, PROF_TABLE_SOURCE,
		   (const struct prof_value[]){
			   [PROF_SOURCE_ID] = PROF_NUMBER(row->id),
			   [PROF_SOURCE_NAME] = PROF_NUMBER(output_text(output, message->name)),
			   [PROF_SOURCE_KIND] = PROF_NUMBER(message->kind),
			   [PROF_SOURCE_UNIT] = PROF_NUMBER(output_text(output, unit)),
			   [PROF_SOURCE_PERIOD] = PROF_NUMBER(message->period),
			   [PROF_SOURCE_FREQUENCY] = PROF_NUMBER(message->frequency),
			   [PROF_SOURCE_FIELDS] = PROF_BYTES(names, source->n_fields),
			   [PROF_SOURCE_FIELD_KINDS] = PROF_BYTES(kinds, source->n_fields),
			   [PROF_SOURCE_FIELD_TYPES] = PROF_BYTES(types, source->n_fields),
		   });
}

static void free_source(struct row *row)
{
	g_free(((struct event_source *)row)->fields);
	g_free(row);
}

struct event_source *event_source_new(const struct message_source *message, uint32_t id)
{
	struct event_source *source = g_new0(struct event_source, 1);

	row_init(&source->row, id, write_source, free_source);
	source->message = *message;
	source->message.name[sizeof(source->message.name) - 1] = 0;
	return source;
}

void event_source_set_fields(struct event_source *source, const struct message_field *fields,
			     size_t n)
{
	g_free(source->fields);
	source->n_fields = MIN_OF(n, (size_t)ENGINE_MAX_FIELDS);
	source->fields = g_memdup2(fields, source->n_fields * sizeof(*fields));
	for (size_t i = 0; i < source->n_fields; i++) {
		struct message_field *field = &source->fields[i];

		field->name[sizeof(field->name) - 1] = field->type[sizeof(field->type) - 1] = 0;
	}
}

/* Reads a number of 1, 2, 4 or 8 bytes, in the CPU's byte order. */
static uint64_t read_number(const uint8_t *at, size_t bytes, bool is_signed)
{
	uint64_t u64;
	uint32_t u32;
	uint16_t u16;

	switch (bytes) {
	case 1:
		return is_signed ? (uint64_t)(int8_t)*at : *at;
	case 2:
		memcpy(&u16, at, sizeof(u16));
		return is_signed ? (uint64_t)(int16_t)u16 : u16;
	case 4:
		memcpy(&u32, at, sizeof(u32));
		return is_signed ? (uint64_t)(int32_t)u32 : u32;
	default:
		memcpy(&u64, at, sizeof(u64));
		return u64;
	}
}

static bool is_power(size_t bytes)
{
	return bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8;
}

/* Prints the items of an array, with commas. */
static int print_items(const struct message_field *field, const uint8_t *at, size_t bytes,
		       char text[EVENT_TEXT_MAX])
{
	size_t n = bytes / field->element;
	int used = 0;

	for (size_t i = 0; i < MIN_OF(n, (size_t)MAX_ITEMS); i++) {
		uint64_t item =
			read_number(at + i * field->element, field->element, field->is_signed);

		used += snprintf(text + used, (size_t)(EVENT_TEXT_MAX - used),
				 field->is_signed ? "%s%" G_GINT64_FORMAT : "%s%" G_GUINT64_FORMAT,
				 i ? "," : "", item);
	}
	if (n > MAX_ITEMS)
		used += snprintf(text + used, (size_t)(EVENT_TEXT_MAX - used), ",...");
	return used;
}

int event_field_decode(const struct message_field *field, const uint8_t *raw, size_t raw_bytes,
		       uint64_t *ret_value, char text[EVENT_TEXT_MAX])
{
	size_t offset = field->offset, size = field->size, end = offset + size;

	if (end > raw_bytes)
		return -1;
	if (field->place == FIELD_ARGUMENT) {
		struct probe_value argument;
		const char *reason;

		if (size != sizeof(argument))
			return -1;
		memcpy(&argument, raw + offset, sizeof(argument));
		*ret_value = argument.value;
		reason = probe_unread_text(argument.unread);
		return reason ? snprintf(text, EVENT_TEXT_MAX, "%s", reason) : 0;
	}
	if (field->place != FIELD_HERE) {
		uint64_t place;

		if (size != 4)
			return -1;
		place = read_number(raw + offset, 4, false);
		offset = (place & 0xffff) + (field->place == FIELD_BEHIND ? end : 0);
		size = place >> 16;
		if (offset + size > raw_bytes)
			return -1;
	}
	if (field->element == 0) {
		if (!is_power(size))
			return -1;
		*ret_value = read_number(raw + offset, size, field->is_signed);
		return 0;
	}
	*ret_value = 0;
	if (!is_power(field->element))
		return -1;
	if (field->element > 1 || !strstr(field->type, "char") || strstr(field->type, "unsigned"))
		return print_items(field, raw + offset, size, text);
	size = strnlen((const char *)raw + offset, size);
	memcpy(text, raw + offset, MIN_OF(size, (size_t)EVENT_TEXT_MAX));
	if (size > EVENT_TEXT_MAX)
		memcpy(text + EVENT_TEXT_MAX - 3, "...", 3);
	return (int)MIN_OF(size, (size_t)EVENT_TEXT_MAX);
}

size_t event_source_values(const struct event_source *source, struct output *output,
			   const uint8_t *raw, size_t raw_bytes,
			   uint64_t ret_values[ENGINE_MAX_FIELDS],
			   uint64_t ret_texts[ENGINE_MAX_FIELDS])
{
	char text[EVENT_TEXT_MAX];

	for (size_t i = 0; i < source->n_fields; i++) {
		int length = event_field_decode(&source->fields[i], raw, raw_bytes, &ret_values[i],
						text);

		if (length < 0)
			return 0;
		ret_texts[i] = output_string(output, text, (size_t)length);
	}
	return source->n_fields;
}
