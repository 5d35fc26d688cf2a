/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Export-pprof - pprof's protocol buffers: perftools.profiles.Profile (proto/profile.proto)
 *
 * A location is a place in a function, because stacks are merged by place. The first line of a
 * location is the innermost call inlined there. Ids of mappings and functions are indexes plus 1.
 */
#include "config.h"

#include "base/bytes.h"
#include "base/each.h"
#include "tools/profcapture/export-allocations.h"

#include <math.h>
#include <string.h>

/* Field numbers, by message. */
enum {
	PPROF_SAMPLE_TYPE = 1,
	PPROF_SAMPLE,
	PPROF_MAPPING,
	PPROF_LOCATION,
	PPROF_FUNCTION,
	PPROF_STRING,
	PPROF_TIME = 9,
	PPROF_DURATION,
	PPROF_PERIOD_TYPE,
	PPROF_PERIOD,
	PPROF_COMMENT,
	PPROF_DEFAULT_TYPE
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
	struct export_strings strings; /* index 0 is "" */
	GArray *locations;             /* struct location; index 0 is unused */
	/* location that inlines the frame (0: not inlined), and frame → index in locations */
	struct number_map location_of;
};

struct location {
	uint32_t frame;  /* the innermost frame */
	uint32_t caller; /* if `frame` is inlined: the location without that frame; else 0 */
	bool is_used;
};

/* ---- protocol buffers ------------------------------------------------------------------------ */

static void append_varint(GByteArray *to, uint64_t value)
{
	uint8_t bytes[BYTES_MAX_LEB];

	g_byte_array_append(to, bytes, bytes_put_uleb(bytes, value));
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

static void write_bytes(struct pprof *pprof, unsigned field, const void *bytes, size_t length)
{
	g_autoptr(GByteArray) message = g_byte_array_new();

	append_bytes(message, field, bytes, length);
	out_write(pprof->out, message->data, message->len);
}

static void write_number(struct pprof *pprof, unsigned field, uint64_t value)
{
	g_autoptr(GByteArray) bytes = g_byte_array_new();

	append_number(bytes, field, value);
	out_write(pprof->out, bytes->data, bytes->len);
}

static void append_text(struct pprof *pprof, GByteArray *to, unsigned field, const char *text)
{
	append_number(to, field, export_string(&pprof->strings, text));
}

/* ---- the messages ---------------------------------------------------------------------------- */

static void write_type(struct pprof *pprof, unsigned field, const char *type, const char *unit)
{
	g_autoptr(GByteArray) message = g_byte_array_new();

	append_text(pprof, message, VALUE_TYPE, type);
	append_text(pprof, message, VALUE_UNIT, unit);
	write_bytes(pprof, field, message->data, message->len);
}

static void append_label(struct pprof *pprof, GByteArray *to, const char *key, const char *text,
			 uint64_t number)
{
	g_autoptr(GByteArray) message = g_byte_array_new();

	append_text(pprof, message, LABEL_KEY, key);
	append_text(pprof, message, LABEL_STRING, text);
	append_number(message, LABEL_NUMBER, number);
	append_bytes(to, SAMPLE_LABEL, message->data, message->len);
}

static struct location *location_at(const struct pprof *pprof, uint32_t index)
{
	return &g_array_index(pprof->locations, struct location, index);
}

static uint32_t location_of(struct pprof *pprof, uint32_t caller, uint32_t frame)
{
	uint32_t *known = number_map_at(&pprof->location_of, (uint64_t)caller << 32 | frame);
	struct location location = { .frame = frame, .caller = caller };

	if (*known == 0) {
		*known = pprof->locations->len;
		g_array_append_val(pprof->locations, location);
	}
	return *known;
}

/* Replaces the frames of `path`, which starts at the root, by their locations. */
static void to_locations(struct pprof *pprof, GArray *path)
{
	const struct functions *functions = pprof->export->profile.functions;
	guint n = 0;
	uint32_t before = 0;

	for (guint i = 0; i < path->len; i++) {
		uint32_t frame = g_array_index(path, uint32_t, i);
		uint32_t depth = functions_at(functions, frame)->depth;
		bool is_inlined = n > 0 && depth > 0 &&
				  depth == functions_at(functions, before)->depth + 1;
		uint32_t location = location_of(
			pprof, is_inlined ? g_array_index(path, uint32_t, n - 1) : 0, frame);

		n += !is_inlined;
		g_array_index(path, uint32_t, n - 1) = location;
		before = frame;
	}
	g_array_set_size(path, n);
	for (guint i = 0; i < n; i++)
		location_at(pprof, g_array_index(path, uint32_t, i))->is_used = true;
}

/* Values of a sample, in order: samples, their weight, allocated objects and bytes, live objects
 * and bytes. */
enum { MOST_VALUES = 6 };

static void write_sample(struct pprof *pprof, uint32_t of_thread, const char *name, uint32_t node,
			 const uint64_t *values, size_t n, GArray *path)
{
	const struct export *export = pprof->export;
	const struct names *names = export->reader.capture->names;
	const struct names_thread *thread = names_thread_at(names, of_thread);
	g_autoptr(GByteArray) message = g_byte_array_new();
	g_autoptr(GByteArray) packed = g_byte_array_new();

	export_path(export, node, path);
	to_locations(pprof, path);
	for (guint i = path->len; i > 0; i--)
		append_varint(packed, g_array_index(path, uint32_t, i - 1));
	append_bytes(message, SAMPLE_LOCATION, packed->data, packed->len);
	g_byte_array_set_size(packed, 0);
	for (size_t i = 0; i < n; i++)
		append_varint(packed, values[i]);
	append_bytes(message, SAMPLE_VALUE, packed->data, packed->len);
	append_label(pprof, message, "thread", name, 0);
	append_label(pprof, message, "pid", NULL, names_process_at(names, thread->process)->pid);
	append_label(pprof, message, "tid", NULL, thread->tid);
	write_bytes(pprof, PPROF_SAMPLE, message->data, message->len);
}

/* Returns whether the capture records the weight of samples. */
static bool has_weights(const struct export *export)
{
	return export->profile.event && export->profile.event->unit;
}

/* Returns the type of the weight: pprof's term "cpu" for CPU time, else the name of the weight. */
static const char *weight_type(const struct export *export)
{
	return export_is_time(export) && !export_counts_waits(export) ? "cpu"
								      : export_weight_name(export);
}

static void write_weight_type(struct pprof *pprof, unsigned field)
{
	write_type(pprof, field, weight_type(pprof->export),
		   export_is_time(pprof->export) ? "nanoseconds" : "count");
}

static void write_samples(struct pprof *pprof)
{
	const struct export *export = pprof->export;
	const struct allocations *allocations = export->allocations;
	size_t n = 1 + has_weights(export), all = n + (allocations ? 4 : 0);
	g_autoptr(GArray) stacks = export_stacks(export);
	g_autoptr(GArray) path = g_array_new(FALSE, FALSE, sizeof(uint32_t));

	ARRAY_EACH(const struct export_stack, stack, stacks) {
		uint64_t values[MOST_VALUES] = { stack->amount.samples };

		if (has_weights(export))
			values[1] = stack->amount.weight;
		write_sample(pprof, (uint32_t)stack->thread, stack->name, stack->node, values, all,
			     path);
	}
	for (guint i = 0; allocations && i < allocations->sums->len; i++) {
		const struct allocation_sum *sum =
			&g_array_index(allocations->sums, struct allocation_sum, i);
		uint64_t values[MOST_VALUES] = { 0 };

		values[n] = (uint64_t)llround(sum->objects);
		values[n + 1] = (uint64_t)llround(sum->bytes);
		values[n + 2] = (uint64_t)llround(sum->live_objects);
		values[n + 3] = (uint64_t)llround(sum->live_bytes);
		write_sample(pprof, sum->thread, export_thread_name(export, sum->thread), sum->node,
			     values, all, path);
	}
}

/* Writes the types of the values. Allocations have the types of Go's heap profiles. If there are
 * allocations, the default type is that of samples, or inuse_space if there are no samples. */
static void write_types(struct pprof *pprof)
{
	const struct export *export = pprof->export;
	const char *first = has_weights(export) ? weight_type(export) : export_sample_name(export);

	write_type(pprof, PPROF_SAMPLE_TYPE, export_sample_name(export), "count");
	if (has_weights(export))
		write_weight_type(pprof, PPROF_SAMPLE_TYPE);
	if (!export->allocations)
		return;
	write_type(pprof, PPROF_SAMPLE_TYPE, "alloc_objects", "count");
	write_type(pprof, PPROF_SAMPLE_TYPE, "alloc_space", "bytes");
	write_type(pprof, PPROF_SAMPLE_TYPE, "inuse_objects", "count");
	write_type(pprof, PPROF_SAMPLE_TYPE, "inuse_space", "bytes");
	write_number(pprof, PPROF_DEFAULT_TYPE,
		     export_string(&pprof->strings,
				   export->profile.each->len ? first : "inuse_space"));
}

/* Writes an image as the mapping that its functions are in. */
static void write_mapping(struct pprof *pprof, uint32_t image)
{
	const struct names_image *at = names_image_at(pprof->export->reader.capture->names, image);
	g_autoptr(GByteArray) message = g_byte_array_new();

	append_number(message, MAPPING_ID, (uint64_t)image + 1);
	append_text(pprof, message, MAPPING_FILE, at->path);
	append_text(pprof, message, MAPPING_BUILD_ID, at->build_id);
	/* the profile has all names, so pprof need not look for them */
	append_number(message, MAPPING_HAS_FUNCTIONS, 1);
	append_number(message, MAPPING_HAS_FILES, 1);
	append_number(message, MAPPING_HAS_LINES, 1);
	write_bytes(pprof, PPROF_MAPPING, message->data, message->len);
}

static void write_function(struct pprof *pprof, uint32_t index)
{
	const struct function *function = functions_at(pprof->export->profile.functions, index);
	g_autoptr(GByteArray) message = g_byte_array_new();

	append_number(message, FUNCTION_ID, (uint64_t)index + 1);
	append_text(pprof, message, FUNCTION_NAME, function->name);
	append_text(pprof, message, FUNCTION_SYSTEM_NAME, function->raw_name);
	append_text(pprof, message, FUNCTION_FILE, pprof->export->files[index]);
	append_number(message, FUNCTION_START, function->line);
	write_bytes(pprof, PPROF_FUNCTION, message->data, message->len);
}

/* Writes the location, with its innermost line first. */
static void write_location(struct pprof *pprof, uint32_t index)
{
	const struct export *export = pprof->export;
	const struct function *function =
		functions_at(export->profile.functions, location_at(pprof, index)->frame);
	g_autoptr(GByteArray) message = g_byte_array_new();
	g_autoptr(GByteArray) line = g_byte_array_new();

	append_number(message, LOCATION_ID, index);
	if (function->image > NAMES_LOST) {
		append_number(message, LOCATION_MAPPING, (uint64_t)function->image + 1);
		append_number(message, LOCATION_ADDRESS, function->offset);
	}
	for (uint32_t at = index; at; at = location_at(pprof, at)->caller) {
		uint32_t frame = location_at(pprof, at)->frame;

		g_byte_array_set_size(line, 0);
		append_number(line, LINE_FUNCTION, (uint64_t)export_function(export, frame) + 1);
		append_number(line, LINE_LINE, export_line(export, frame));
		append_bytes(message, LOCATION_LINE, line->data, line->len);
	}
	write_bytes(pprof, PPROF_LOCATION, message->data, message->len);
}

/* Returns the image with the most weight among those that are files. */
static uint32_t main_image(const struct pprof *pprof)
{
	const struct profile *profile = &pprof->export->profile;
	const struct names *names = pprof->export->reader.capture->names;
	g_autofree uint64_t *weights = g_new0(uint64_t, names->images->len);
	uint32_t most = NAMES_NONE;

	for (guint i = 0; i < profile->functions->all->len; i++) {
		uint32_t image = functions_at(profile->functions, i)->image;

		weights[image] += profile_count_at(profile->counts, i).self.weight;
		if (image > NAMES_LOST && weights[image] > weights[most] &&
		    names_image_at(names, image)->kind == PROF_IMAGE_FILE)
			most = image;
	}
	return most;
}

static void write_functions(struct pprof *pprof)
{
	const struct functions *functions = pprof->export->profile.functions;
	uint32_t first = main_image(pprof);
	g_autofree bool *known = g_new0(bool, pprof->export->reader.capture->names->images->len);

	/* pprof names a profile after its first mapping */
	if (first > NAMES_LOST)
		write_mapping(pprof, first);
	known[first] = true;
	for (guint i = 0; i < functions->all->len; i++) {
		uint32_t image = functions_at(functions, i)->image;

		if (image > NAMES_LOST && !known[image])
			write_mapping(pprof, image);
		known[image] = true;
		if (export_function(pprof->export, i) == i)
			write_function(pprof, i);
	}
	for (guint i = 1; i < pprof->locations->len; i++)
		if (location_at(pprof, i)->is_used)
			write_location(pprof, i);
}

static void write_times(struct pprof *pprof)
{
	const struct capture *capture = pprof->export->reader.capture;

	if (capture->n_segments)
		write_number(pprof, PPROF_TIME, (uint64_t)MAX_OF(capture->segments[0].wall_ns, 0));
	write_number(pprof, PPROF_DURATION, (uint64_t)MAX_OF(capture->duration_ns, 0));
	if (has_weights(pprof->export)) {
		uint64_t period = pprof->export->profile.period_ns;

		write_weight_type(pprof, PPROF_PERIOD_TYPE);
		/* the period of an event that is not a clock is 0 if the kernel adapts it */
		write_number(pprof, PPROF_PERIOD,
			     period ? period : pprof->export->profile.event->period);
	}
}

bool export_pprof(struct export *export, struct out *out, GError **error)
{
	struct pprof pprof = {
		.export = export,
		.out = out,
		.locations = g_array_new(FALSE, FALSE, sizeof(struct location)),
	};
	static const struct location none;

	number_map_init(&pprof.location_of);
	g_array_append_val(pprof.locations, none);
	export_strings_init(&pprof.strings);
	(void)export_string(&pprof.strings, "");
	write_types(&pprof);
	write_samples(&pprof);
	write_functions(&pprof);
	write_times(&pprof);
	for (guint i = 0; i < pprof.strings.all->len; i++) {
		const char *text = pprof.strings.all->pdata[i];
		/* go tool pprof prints strings to a terminal without escaping them */
		g_autofree char *escaped = text_escape_utf8(text, strlen(text));

		write_bytes(&pprof, PPROF_STRING, escaped, strlen(escaped));
	}
	number_map_done(&pprof.location_of);
	g_array_unref(pprof.locations);
	export_strings_done(&pprof.strings);
	return true;
}
