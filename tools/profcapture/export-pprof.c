/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Export-pprof - perftools.profiles.Profile (pprof's proto/profile.proto), as protocol buffers
 *
 * A function is a location, since stacks are merged by function. Ids are an index plus 1.
 */
#include "config.h"

#include "tools/profcapture/export.h"

#include <string.h>

/* The numbers of fields, by message. */
enum {
	PROFILE_SAMPLE_TYPE = 1,
	PROFILE_SAMPLE,
	PROFILE_MAPPING,
	PROFILE_LOCATION,
	PROFILE_FUNCTION,
	PROFILE_STRING,
	PROFILE_TIME = 9,
	PROFILE_DURATION,
	PROFILE_PERIOD_TYPE,
	PROFILE_PERIOD,
	PROFILE_COMMENT,
	PROFILE_DEFAULT_TYPE
};
enum { VALUE_TYPE = 1, VALUE_UNIT };
enum { SAMPLE_LOCATION = 1, SAMPLE_VALUE, SAMPLE_LABEL };
enum { LABEL_KEY = 1, LABEL_STRING, LABEL_NUMBER };
enum {
	MAPPING_ID = 1,
	MAPPING_FILE = 5,
	MAPPING_BUILD_ID,
	MAPPING_HAS_FUNCTIONS,
	MAPPING_HAS_FILES,
	MAPPING_HAS_LINES
};
enum { LOCATION_ID = 1, LOCATION_MAPPING, LOCATION_ADDRESS, LOCATION_LINE };
enum { LINE_FUNCTION = 1, LINE_LINE };
enum { FUNCTION_ID = 1, FUNCTION_NAME, FUNCTION_SYSTEM_NAME, FUNCTION_FILE, FUNCTION_START };

struct pprof {
	const struct export *export;
	struct out *out;
	GHashTable *index;  /* text → index + 1 */
	GPtrArray *strings; /* UTF-8, in the order of their indexes */
};

/* ---- protocol buffers --------------------------------------------------------------------------- */

static void append_varint(GByteArray *to, uint64_t value)
{
	uint8_t bytes[10];
	guint n = 0;

	do {
		bytes[n] = (uint8_t)(value | 0x80);
		value >>= 7;
	} while (++n < sizeof(bytes) && value);
	bytes[n - 1] &= 0x7f;
	g_byte_array_append(to, bytes, n);
}

static void append_number(GByteArray *to, unsigned field, uint64_t value)
{
	if (value == 0)
		return;
	append_varint(to, field << 3);
	append_varint(to, value);
}

static void append_bytes(GByteArray *to, unsigned field, const void *bytes, size_t length)
{
	append_varint(to, field << 3 | 2);
	append_varint(to, length);
	g_byte_array_append(to, bytes, (guint)length);
}

static void write_message(struct pprof *pprof, unsigned field, const GByteArray *message)
{
	g_autoptr(GByteArray) head = g_byte_array_new();

	append_varint(head, field << 3 | 2);
	append_varint(head, message->len);
	out_write(pprof->out, head->data, head->len);
	out_write(pprof->out, message->data, message->len);
}

static void write_number(struct pprof *pprof, unsigned field, uint64_t value)
{
	g_autoptr(GByteArray) bytes = g_byte_array_new();

	append_number(bytes, field, value);
	out_write(pprof->out, bytes->data, bytes->len);
}

/* Strings have to be UTF-8. NULL is the empty one. */
static uint64_t string_index(struct pprof *pprof, const char *text)
{
	gpointer known = text ? g_hash_table_lookup(pprof->index, text) : NULL;
	GString *valid;

	if (!text || !*text)
		return 0;
	if (known)
		return GPOINTER_TO_UINT(known) - 1;
	valid = g_string_new(NULL);
	text_append_valid(valid, text, strlen(text));
	g_ptr_array_add(pprof->strings, g_string_free(valid, FALSE));
	g_hash_table_insert(pprof->index, g_strdup(text), GUINT_TO_POINTER(pprof->strings->len));
	return pprof->strings->len - 1;
}

/* ---- the messages ------------------------------------------------------------------------------- */

static void write_type(struct pprof *pprof, unsigned field, const char *type, const char *unit)
{
	g_autoptr(GByteArray) message = g_byte_array_new();

	append_number(message, VALUE_TYPE, string_index(pprof, type));
	append_number(message, VALUE_UNIT, string_index(pprof, unit));
	write_message(pprof, field, message);
}

static void append_label(struct pprof *pprof, GByteArray *to, const char *key, const char *text,
			 uint64_t number)
{
	g_autoptr(GByteArray) message = g_byte_array_new();

	append_number(message, LABEL_KEY, string_index(pprof, key));
	append_number(message, LABEL_STRING, string_index(pprof, text));
	append_number(message, LABEL_NUMBER, number);
	append_bytes(to, SAMPLE_LABEL, message->data, message->len);
}

static void write_sample(struct pprof *pprof, const struct export_stack *stack, GArray *path)
{
	const struct export *export = pprof->export;
	const struct names *names = export->reader.capture->names;
	const struct names_thread *thread = names_thread_at(names, stack->thread);
	g_autoptr(GByteArray) message = g_byte_array_new();
	g_autoptr(GByteArray) packed = g_byte_array_new();

	export_path(export, stack->node, path);
	for (guint i = path->len; i > 0; i--)
		append_varint(packed, (uint64_t)g_array_index(path, uint32_t, i - 1) + 1);
	append_bytes(message, SAMPLE_LOCATION, packed->data, packed->len);
	g_byte_array_set_size(packed, 0);
	append_varint(packed, stack->samples);
	if (export_period(export))
		append_varint(packed, stack->samples * export_period(export));
	append_bytes(message, SAMPLE_VALUE, packed->data, packed->len);
	append_label(pprof, message, "thread", export_thread_name(export, stack->thread), 0);
	append_label(pprof, message, "pid", NULL, names_process_at(names, thread->process)->pid);
	append_label(pprof, message, "tid", NULL, thread->tid);
	write_message(pprof, PROFILE_SAMPLE, message);
}

/* Of an image that a function is in. */
static void write_mapping(struct pprof *pprof, uint32_t image)
{
	const struct names_image *at = names_image_at(pprof->export->reader.capture->names, image);
	g_autoptr(GByteArray) message = g_byte_array_new();

	append_number(message, MAPPING_ID, (uint64_t)image + 1);
	append_number(message, MAPPING_FILE, string_index(pprof, at->path));
	append_number(message, MAPPING_BUILD_ID, string_index(pprof, at->build_id));
	/* names are all here: nobody has to look for them */
	append_number(message, MAPPING_HAS_FUNCTIONS, 1);
	append_number(message, MAPPING_HAS_FILES, 1);
	append_number(message, MAPPING_HAS_LINES, 1);
	write_message(pprof, PROFILE_MAPPING, message);
}

static void write_function(struct pprof *pprof, uint32_t index)
{
	const struct function *function = functions_at(pprof->export->tally.functions, index);
	g_autoptr(GByteArray) message = g_byte_array_new();
	g_autoptr(GByteArray) line = g_byte_array_new();

	append_number(message, FUNCTION_ID, (uint64_t)index + 1);
	append_number(message, FUNCTION_NAME, string_index(pprof, function->name));
	append_number(message, FUNCTION_SYSTEM_NAME, string_index(pprof, function->raw_name));
	append_number(message, FUNCTION_FILE, string_index(pprof, function->file));
	append_number(message, FUNCTION_START, function->line);
	write_message(pprof, PROFILE_FUNCTION, message);

	g_byte_array_set_size(message, 0);
	append_number(line, LINE_FUNCTION, (uint64_t)index + 1);
	append_number(line, LINE_LINE, function->line);
	append_number(message, LOCATION_ID, (uint64_t)index + 1);
	if (function->image > NAMES_LOST) {
		append_number(message, LOCATION_MAPPING, (uint64_t)function->image + 1);
		append_number(message, LOCATION_ADDRESS, function->offset);
	}
	append_bytes(message, LOCATION_LINE, line->data, line->len);
	write_message(pprof, PROFILE_LOCATION, message);
}

/* The image with the most samples that is a file. */
static uint32_t main_image(const struct pprof *pprof)
{
	const struct tally *tally = &pprof->export->tally;
	const struct names *names = pprof->export->reader.capture->names;
	g_autofree uint64_t *samples = g_new0(uint64_t, names->images->len);
	uint32_t most = NAMES_NONE;

	for (guint i = 0; i < tally->functions->all->len; i++) {
		uint32_t image = functions_at(tally->functions, i)->image;

		samples[image] += tally_count_at(tally->counts, i).self;
		if (image > NAMES_LOST && samples[image] > samples[most] &&
		    names_image_at(names, image)->kind == PROF_IMAGE_FILE)
			most = image;
	}
	return most;
}

static void write_functions(struct pprof *pprof)
{
	const struct functions *functions = pprof->export->tally.functions;
	uint32_t first = main_image(pprof);
	g_autofree bool *known = g_new0(bool, pprof->export->reader.capture->names->images->len);

	/* pprof calls a profile by its first mapping */
	if (first > NAMES_LOST)
		write_mapping(pprof, first);
	known[first] = true;
	for (guint i = 0; i < functions->all->len; i++) {
		uint32_t image = functions_at(functions, i)->image;

		if (image > NAMES_LOST && !known[image])
			write_mapping(pprof, image);
		known[image] = true;
		write_function(pprof, i);
	}
}

static void write_times(struct pprof *pprof)
{
	const struct capture *capture = pprof->export->reader.capture;

	if (capture->n_segments)
		write_number(pprof, PROFILE_TIME,
			     (uint64_t)MAX_OF(capture->segments[0].wall_ns, 0));
	write_number(pprof, PROFILE_DURATION, (uint64_t)MAX_OF(capture->duration_ns, 0));
	if (export_period(pprof->export)) {
		write_type(pprof, PROFILE_PERIOD_TYPE, "cpu", "nanoseconds");
		write_number(pprof, PROFILE_PERIOD, export_period(pprof->export));
	}
}

bool export_pprof(struct export *export, struct out *out, GError **error)
{
	struct pprof pprof = {
		.export = export,
		.out = out,
		.index = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL),
		.strings = g_ptr_array_new_with_free_func(g_free),
	};
	g_autoptr(GArray) stacks = export_stacks(export);
	g_autoptr(GArray) path = g_array_new(FALSE, FALSE, sizeof(uint32_t));

	g_ptr_array_add(pprof.strings, g_strdup(""));
	write_type(&pprof, PROFILE_SAMPLE_TYPE, "samples", "count");
	if (export_period(export))
		write_type(&pprof, PROFILE_SAMPLE_TYPE, "cpu", "nanoseconds");
	for (guint i = 0; i < stacks->len; i++)
		write_sample(&pprof, &g_array_index(stacks, struct export_stack, i), path);
	write_functions(&pprof);
	write_times(&pprof);
	for (guint i = 0; i < pprof.strings->len; i++) {
		const char *text = pprof.strings->pdata[i];
		g_autoptr(GByteArray) head = g_byte_array_new();

		append_varint(head, PROFILE_STRING << 3 | 2);
		append_varint(head, strlen(text));
		out_write(out, head->data, head->len);
		out_text(out, text);
	}
	g_hash_table_unref(pprof.index);
	g_ptr_array_unref(pprof.strings);
	return true;
}
