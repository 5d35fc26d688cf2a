/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Fuzz target of daemon/broker/event-format.c: the text of a tracepoint's description.
 */
#include "daemon/broker/event-format.h"
#include "daemon/protocol.h"
#include "libcapture/prof-capture.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	g_autofree char *text = g_strndup((const char *)data, size);
	g_autoptr(GArray) fields = event_format_parse(text);

	if (fields->len > ENGINE_MAX_FIELDS)
		abort();
	for (unsigned i = 0; i < fields->len; i++) {
		const struct message_field *field = &g_array_index(fields, struct message_field, i);

		if (!memchr(field->name, 0, sizeof(field->name)) || !field->name[0] ||
		    !memchr(field->type, 0, sizeof(field->type)) ||
		    field->kind > PROF_ARGUMENT_ADDRESS || field->place > FIELD_BEHIND ||
		    field->offset + field->size > UINT16_MAX)
			abort();
	}
	return 0;
}
