/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Fuzz target of daemon/engine/perf/event-source.c: the description of a tracepoint's field, then a
 * record of this tracepoint. The description may be anything that the broker's message can hold.
 */
#include "daemon/engine/perf/event-source.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint64_t sum;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct message_field field;
	char text[EVENT_TEXT_MAX];
	uint8_t *raw;

	if (size < sizeof(field))
		return 0;
	memcpy(&field, data, sizeof(field));
	field.name[sizeof(field.name) - 1] = field.type[sizeof(field.type) - 1] = 0;
	data += sizeof(field);
	size -= sizeof(field);
	raw = malloc(size + 1);
	if (!raw)
		abort();
	memcpy(raw, data, size);
	for (size_t bytes = size > 64 ? size - 64 : 0; bytes <= size; bytes++) {
		uint64_t value = 0;
		int length = event_field_decode(&field, raw, bytes, &value, text);

		if (length > EVENT_TEXT_MAX)
			abort();
		for (int i = 0; i < length; i++)
			sum += (uint8_t)text[i];
		sum += value;
	}
	free(raw);
	return 0;
}
