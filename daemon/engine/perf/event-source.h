/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/out/output.h"
#include "daemon/protocol.h"

/* A sampled event, as a row. */
struct event_source {
	struct row row;
	struct message_source message;
	struct message_field *fields; /* n_fields; NULL: none */
	size_t n_fields;
};

struct event_source *event_source_new(const struct message_source *message, uint32_t id);
/* Sets the fields, once, before the source's first sample. */
void event_source_set_fields(struct event_source *source, const struct message_field *fields,
			     size_t n);

#define EVENT_TEXT_MAX 4096
/* Decodes a field of a record. Stores a number in *ret_value. Stores in `text`, without a NUL, a
 * text, the printed items of an array, or the reason why an argument of a static probe is unknown.
 * Returns the length of the text, or -1 if the field is invalid or not in the record. */
int event_field_decode(const struct message_field *field, const uint8_t *raw, size_t raw_bytes,
		       uint64_t *ret_value, char text[EVENT_TEXT_MAX]);
/* Decodes all fields of a record, and interns the texts. Returns the number of fields: 0 if the
 * source has none, or if one of them is not in the record. */
size_t event_source_values(const struct event_source *source, struct output *output,
			   const uint8_t *raw, size_t raw_bytes,
			   uint64_t ret_values[ENGINE_MAX_FIELDS],
			   uint64_t ret_texts[ENGINE_MAX_FIELDS]);
