/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Memory-warnings - reads the warnings that the preloaded library logged in a program, about data
 * that it does not record
 */
#include "config.h"

#include "tools/profcapture/memory.h"

#define DOMAIN "profd"
#define MOST 16u /* limit for different texts, because any program can log in this domain */

enum { THREAD, LEVEL, SAYS_WHO, TEXT, N_COLUMNS };

struct log_reading {
	struct memory *memory;
	struct number_map known; /* (index of a text, process) → 1 */
};

static void add_row(struct log_reading *reading, struct names_epoch *names,
		    const struct prof_array *c, size_t row)
{
	GArray *warnings = reading->memory->warnings;
	uint32_t thread = names_thread(names, array_number_or(&c[THREAD], row, 0));
	uint32_t process = names_thread_at(names->names, thread)->process, *is_known;
	const char *domain = names_text(names, array_number_or(&c[SAYS_WHO], row, 0));
	struct memory_warning warning = { 0 };
	guint i = 0;

	if (g_strcmp0(domain, DOMAIN) != 0 ||
	    array_number_or(&c[LEVEL], row, PROF_LOG_DEBUG) != PROF_LOG_WARNING || !c[TEXT].bytes ||
	    !reader_wants_thread(&reading->memory->reader, thread))
		return;
	warning.text = names_text_at(names->names, &c[TEXT], row);
	while (i < warnings->len &&
	       g_array_index(warnings, struct memory_warning, i).text != warning.text)
		i++;
	if (i == MOST)
		return;
	if (i == warnings->len)
		g_array_append_val(warnings, warning);
	is_known = number_map_at(&reading->known, (uint64_t)i << 32 | process);
	g_array_index(warnings, struct memory_warning, i).processes += *is_known == 0;
	*is_known = 1;
}

static bool add_rows(struct names_epoch *names, const struct prof_batch *batch, void *data,
		     GError **error)
{
	for (size_t i = 0; i < batch->rows; i++)
		add_row(data, names, batch->columns, i);
	return true;
}

bool memory_read_warnings(struct memory *memory, GError **error)
{
	static const uint16_t columns[] = {
		[THREAD] = PROF_LOG_THREAD,
		[LEVEL] = PROF_LOG_LEVEL,
		[SAYS_WHO] = PROF_LOG_DOMAIN,
		[TEXT] = PROF_LOG_TEXT,
	};
	struct log_reading reading = { .memory = memory };
	bool ok;

	number_map_init(&reading.known);
	ok = names_each_batch(memory->reader.capture->names,
			      NAMES_COLUMNS_OF(PROF_TABLE_LOG, columns), add_rows, &reading, error);
	number_map_done(&reading.known);
	return ok;
}
