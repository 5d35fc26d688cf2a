/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Memory-warnings - warnings of the library in a program about data that it does not record
 */
#include "config.h"

#include "tools/common/capture-error.h"
#include "tools/profcapture/memory.h"

#include <glib/gi18n.h>

#define DOMAIN "profd"
#define MOST 16u /* texts at most; any program can log in this domain */

enum { THREAD, LEVEL, SAYS_WHO, TEXT, N_COLUMNS };

/* Returns the index of the text, or MOST if too many are listed. */
static uint32_t find(GArray *warnings, const char *text)
{
	struct memory_warning warning = { .text = text };
	guint i = 0;

	while (i < warnings->len && g_array_index(warnings, struct memory_warning, i).text != text)
		i++;
	if (i == warnings->len && i < MOST)
		g_array_append_val(warnings, warning);
	return i;
}

static void add_row(struct memory *memory, struct names_epoch *names, const struct prof_array *c,
		    size_t row, struct number_map *known)
{
	uint32_t thread = names_thread(names, array_number_or(&c[THREAD], row, 0));
	uint32_t process = names_thread_at(names->names, thread)->process;
	const char *domain = names_text(names, array_number_or(&c[SAYS_WHO], row, 0));
	const struct prof_array *text = &c[TEXT];
	uint32_t *is_known, index;

	if (g_strcmp0(domain, DOMAIN) != 0 ||
	    array_number_or(&c[LEVEL], row, PROF_LOG_DEBUG) != PROF_LOG_WARNING || !text->bytes ||
	    !text->offsets || !reader_wants_thread(&memory->reader, thread))
		return;
	index = find(memory->warnings, names_intern(names->names, text->bytes + text->offsets[row],
						    text->offsets[row + 1] - text->offsets[row]));
	if (index == MOST)
		return;
	is_known = number_map_at(known, (uint64_t)index << 32 | process);
	if (*is_known == 0)
		g_array_index(memory->warnings, struct memory_warning, index).processes++;
	*is_known = 1;
}

static bool read_rows(struct memory *memory, struct prof_cursor *cursor, struct number_map *known,
		      GError **error)
{
	struct capture *capture = memory->reader.capture;
	struct prof_batch batch;
	int r;

	while ((r = prof_cursor_next(cursor, &batch)) == 0) {
		struct names_epoch *names = names_epoch(capture->names, batch.epoch, error);

		if (!names || !names_load_identities(names, error))
			return false;
		for (size_t i = 0; i < batch.rows; i++)
			add_row(memory, names, batch.columns, i, known);
	}
	return r == PROF_END || capture_error(error, r, _("cannot read '%s'"), capture->file);
}

bool memory_read_warnings(struct memory *memory, GError **error)
{
	static const uint16_t columns[] = {
		[THREAD] = PROF_LOG_THREAD,
		[LEVEL] = PROF_LOG_LEVEL,
		[SAYS_WHO] = PROF_LOG_DOMAIN,
		[TEXT] = PROF_LOG_TEXT,
	};
	const struct prof_cursor_options options = { .table = PROF_TABLE_LOG,
						     .columns = columns,
						     .n_columns = N_COLUMNS };
	struct capture *capture = memory->reader.capture;
	struct prof_cursor *cursor;
	struct number_map known;
	int r = prof_cursor_new(capture->reader, &options, &cursor);
	bool ok;

	if (r == PROF_NO_TABLE)
		return true;
	if (r != 0)
		return capture_error(error, r, _("cannot read '%s'"), capture->file);
	number_map_init(&known);
	ok = read_rows(memory, cursor, &known, error);
	number_map_done(&known);
	prof_cursor_free(cursor);
	return ok;
}
