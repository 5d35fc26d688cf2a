/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Event source - a sampled event
 */
#include "daemon/engine/perf/event-source.h"

static void write_source(struct row *row, struct output *output)
{
	const struct message_source *message = &((struct event_source *)row)->message;
	const char *unit = message->name; /* unit of the samples' weight */

	if (message->counts_ns)
		unit = "ns";
	else if (message->kind == PROF_SOURCE_TRACEPOINT || message->kind == PROF_SOURCE_DYNAMIC)
		unit = "events";
	output_add(output, PROF_TABLE_SOURCE,
		   (const struct prof_value[]){
			   [PROF_SOURCE_ID] = PROF_NUMBER(row->id),
			   [PROF_SOURCE_NAME] = PROF_NUMBER(output_text(output, message->name)),
			   [PROF_SOURCE_KIND] = PROF_NUMBER(message->kind),
			   [PROF_SOURCE_UNIT] = PROF_NUMBER(output_text(output, unit)),
			   [PROF_SOURCE_PERIOD] = PROF_NUMBER(message->period),
			   [PROF_SOURCE_FREQUENCY] = PROF_NUMBER(message->frequency),
		   });
}

static void free_source(struct row *row)
{
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
