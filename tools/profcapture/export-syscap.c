/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Export-syscap - samples, allocations, marks, logs, counters, processes and mappings, in the
 * format of Sysprof's captures
 *
 * Sysprof calls each record of the file a frame. Frames are not in time order, so that each table
 * is copied in one pass; times are those of the first segment's CLOCK_MONOTONIC. Each function has
 * a unique address, for which a JITMAP frame at the end of the file defines the name. So Sysprof
 * needs neither the binaries nor their symbols, and inlined functions are possible. For
 * allocations, Sysprof up to 3.46 does not read JITMAP names, but an embedded file of symbols by
 * process, so the file has that, too.
 *
 * The format has no weights or thread names, and no threads in marks and logs. Thread names are
 * written as metadata. Texts in fields have a fixed width, so a mark's group or name that does not
 * fit is repeated in its message. A stack keeps its MOST_ADDRESSES innermost frames, because
 * Sysprof ignores deeper stacks.
 */
#include "config.h"

#include "arch/sysprof-format.h"
#include "base/order.h"
#include "tools/profcapture/counter-values.h"
#include "tools/profcapture/export-allocations.h"
#include "tools/profcapture/spans.h"

#include <glib/gi18n.h>
#include <inttypes.h>
#include <string.h>

#define MOST_ADDRESSES 1024u
#define MOST_COUNTERS (1u << 24)

struct syscap {
	struct export *export;
	struct out *out;
	uint64_t start_ns; /* start of the first segment */
	struct memory_tree tree;
	struct memory_heaps heaps;
	struct counter_values counters;
	GByteArray *has_counter; /* by counter: true if it is defined */
	GArray *symbols;         /* uint64_t: pid and function of frames in stacks of allocations */
	struct number_map known_nodes, known_symbols; /* keys: pid and node; pid and function */
	uint64_t addresses[MOST_ADDRESSES];
};

/* ---- frames ---------------------------------------------------------------------------------- */

static struct sysprof_frame header_of(const struct syscap *syscap, uint8_t type, int64_t time_ns,
				      uint32_t process)
{
	const struct names *names = syscap->export->reader.capture->names;

	return (struct sysprof_frame){
		.type = type,
		.cpu = -1,
		.pid = (int32_t)names_process_at(names, process)->pid,
		.time_ns = (int64_t)(syscap->start_ns + (uint64_t)time_ns),
	};
}

static struct sysprof_frame header_of_thread(const struct syscap *syscap, uint8_t type,
					     int64_t time_ns, uint32_t thread)
{
	const struct names *names = syscap->export->reader.capture->names;

	return header_of(syscap, type, time_ns, names_thread_at(names, thread)->process);
}

static int32_t tid_of(const struct syscap *syscap, uint32_t thread)
{
	return (int32_t)names_thread_at(syscap->export->reader.capture->names, thread)->tid;
}

/* Writes a frame: the fixed part, which begins with the header, then the body. */
static void put_frame(struct syscap *syscap, void *fixed, size_t n_fixed, const void *body,
		      size_t n_body)
{
	static const uint8_t padding[8];
	struct sysprof_frame *header = fixed;
	size_t n = (n_fixed + n_body + 7) / 8 * 8;

	header->bytes = (uint16_t)n;
	out_write(syscap->out, fixed, n_fixed);
	out_write(syscap->out, body, n_body);
	out_write(syscap->out, padding, n - n_fixed - n_body);
}

/* Returns how many bytes of a valid text to keep: at most `most`, and only whole characters. */
static size_t bytes_of(const char *text, size_t most)
{
	size_t n = strlen(text);

	for (n = MIN_OF(n, most); (text[n] & 0xc0) == 0x80; n--)
		;
	return n;
}

static void put_text(struct syscap *syscap, void *fixed, size_t n_fixed, const char *text)
{
	g_autofree char *escaped = text_escape_utf8(text ? text : "", text ? strlen(text) : 0);

	escaped[bytes_of(escaped, SYSPROF_FRAME_MOST - n_fixed - 1)] = '\0';
	put_frame(syscap, fixed, n_fixed, escaped, strlen(escaped) + 1);
}

/* Fills in a field. Its bytes must be 0. Returns whether the whole text fits. */
static bool set_field(char *field, size_t width, const char *text)
{
	g_autofree char *escaped = text_escape_utf8(text ? text : "", text ? strlen(text) : 0);
	size_t n = bytes_of(escaped, width - 1);

	memcpy(field, escaped, n);
	return escaped[n] == '\0';
}

static void put_metadata(struct syscap *syscap, const char *id, const char *value)
{
	struct sysprof_metadata metadata = { header_of(syscap, SYSPROF_FRAME_METADATA, 0,
						       NAMES_NONE) };

	(void)set_field(metadata.id, sizeof(metadata.id), id);
	if (value)
		put_text(syscap, &metadata, sizeof(metadata), value);
}

static bool in_range(const struct syscap *syscap, int64_t time_ns)
{
	return time_ns >= syscap->export->reader.from_ns && time_ns <= syscap->export->reader.to_ns;
}

/* ---- stacks ---------------------------------------------------------------------------------- */

static uint64_t address_of(uint32_t function)
{
	return SYSPROF_NAMED | ((uint64_t)function + 1);
}

static void put_samples(struct syscap *syscap)
{
	const struct profile *profile = &syscap->export->profile;
	const struct profile_node *nodes = (void *)profile->tree.nodes->data;

	for (guint i = 0; i < profile->each->len && !out_failed(syscap->out); i++) {
		const struct profile_sample *at =
			&g_array_index(profile->each, struct profile_sample, i);
		struct sysprof_sample sample = { header_of_thread(syscap, SYSPROF_FRAME_SAMPLE,
								  at->time_ns, at->thread),
						 .tid = tid_of(syscap, at->thread) };

		if (at->cpu <= INT16_MAX)
			sample.header.cpu = (int16_t)at->cpu;
		for (uint32_t node = at->node; node && sample.n < MOST_ADDRESSES;
		     node = nodes[node].parent)
			syscap->addresses[sample.n++] = address_of(nodes[node].entity);
		put_frame(syscap, &sample, sizeof(sample), syscap->addresses,
			  sample.n * sizeof(uint64_t));
	}
}

/* Lists the functions from a node to the root, once for each process. */
static void list_symbols(struct syscap *syscap, uint32_t pid, uint32_t node)
{
	for (; node; node = memory_node_at(&syscap->tree, node)->parent) {
		uint64_t symbol = (uint64_t)pid << 32 |
				  memory_node_at(&syscap->tree, node)->function;
		uint32_t *known = number_map_at(&syscap->known_nodes, (uint64_t)pid << 32 | node);

		if (*known)
			break;
		*known = true;
		known = number_map_at(&syscap->known_symbols, symbol);
		if (*known == 0)
			g_array_append_val(syscap->symbols, symbol);
		*known = true;
	}
}

/* Leaves out blocks of zero bytes, which would be frees in this format. */
static void put_allocation(struct syscap *syscap, const struct memory_live *live, int64_t time_ns,
			   uint32_t thread, bool is_free)
{
	struct sysprof_allocation allocation = {
		header_of(syscap, SYSPROF_FRAME_ALLOCATION, time_ns,
			  memory_heap_at(&syscap->heaps, live->heap)->process),
		.address = (uint64_t)(live->heap + 1) << 44 | live->block.number,
		.size = is_free ? 0 : (int64_t)MIN_OF(live->block.size, (uint64_t)INT64_MAX),
		.tid = tid_of(syscap, thread),
	};

	if (live->block.size == 0)
		return;
	for (uint32_t node = is_free ? 0 : live->block.node; node && allocation.n < MOST_ADDRESSES;
	     node = memory_node_at(&syscap->tree, node)->parent)
		syscap->addresses[allocation.n++] =
			address_of(memory_node_at(&syscap->tree, node)->function);
	if (!is_free)
		list_symbols(syscap, (uint32_t)allocation.header.pid, live->block.node);
	put_frame(syscap, &allocation, sizeof(allocation), syscap->addresses,
		  allocation.n * sizeof(uint64_t));
}

static void loaded(const struct memory_live *live, void *data)
{
	struct syscap *syscap = data;

	put_allocation(syscap, live, MAX_OF(syscap->export->reader.from_ns, INT64_C(0)),
		       live->block.thread, false);
}

static void allocated(const struct memory_event *event, const struct memory_live *live, void *data)
{
	put_allocation(data, live, event->time_ns, event->thread, false);
}

static void released(const struct memory_event *event, const struct memory_live *live,
		     enum memory_release how, void *data)
{
	put_allocation(data, live, event->time_ns, event->thread, true);
}

static bool put_allocations(struct syscap *syscap, GError **error)
{
	static const struct memory_ops ops = { .loaded = loaded,
					       .allocated = allocated,
					       .released = released };
	struct memory_replay replay = { .ops = &ops, .data = syscap, .wants_nodes = true };

	if (!syscap->export->wants_rows)
		return true;
	if (memory_most_setting(syscap->export->reader.capture, MEMORY_SAMPLE_BYTES,
				&(bool){ false }) > 0) {
		cli_warning(_(
			"allocations are left out: Sysprof's format needs every one, and this capture has samples of them. Use --to massif or --to pprof"));
		return true;
	}
	return allocations_open(syscap->export, &syscap->tree, &syscap->heaps, error) &&
	       allocations_replay(syscap->export, &syscap->heaps, &replay, error);
}

/* Defines the addresses of functions. Each frame has as many as fit. */
static void put_functions(struct syscap *syscap)
{
	const struct functions *functions = syscap->export->profile.functions;
	g_autoptr(GByteArray) body = g_byte_array_new();
	struct {
		struct sysprof_frame header;
		uint32_t n;
	} map = { header_of(syscap, SYSPROF_FRAME_JITMAP, 0, NAMES_NONE), 0 };
	/* not sizeof(map): the body begins in the padding */
	const size_t n_fixed = SYSPROF_FRAME_BYTES + sizeof(map.n);
	const size_t most = SYSPROF_FRAME_MOST - n_fixed;

	for (uint32_t i = 0; i < functions->all->len; i++) {
		const char *name = functions_at(functions, i)->name;
		g_autofree char *escaped = text_escape_utf8(name, strlen(name));
		uint64_t address = address_of(i);
		size_t n;

		escaped[bytes_of(escaped, most - sizeof(address) - 1)] = '\0';
		n = sizeof(address) + strlen(escaped) + 1;
		if (body->len + n > most) {
			put_frame(syscap, &map, n_fixed, body->data, body->len);
			g_byte_array_set_size(body, 0);
			map.n = 0;
		}
		g_byte_array_append(body, (const void *)&address, sizeof(address));
		g_byte_array_append(body, (const void *)escaped, (guint)strlen(escaped) + 1);
		map.n++;
	}
	put_frame(syscap, &map, n_fixed, body->data, body->len);
}

COMPARE_BY(compare_symbols, uint64_t, ORDER(*a, *b))

static void put_symbols(struct syscap *syscap)
{
	const struct functions *functions = syscap->export->profile.functions;
	g_autofree uint32_t *places = g_new0(uint32_t, functions->all->len);
	g_autoptr(GByteArray) file = g_byte_array_new(), texts = g_byte_array_new();
	struct sysprof_symbol symbol = { 0 };
	size_t n_table = (syscap->symbols->len + 1) * sizeof(symbol);
	struct sysprof_part part = { header_of(syscap, SYSPROF_FRAME_FILE, 0, NAMES_NONE),
				     .path = SYSPROF_SYMBOLS };

	g_array_sort(syscap->symbols, compare_symbols);
	for (guint i = 0; i < syscap->symbols->len; i++) {
		uint64_t of = g_array_index(syscap->symbols, uint64_t, i);
		uint32_t function = (uint32_t)of;
		const char *name = functions_at(functions, function)->name;

		if (places[function] == 0) {
			g_autofree char *escaped = text_escape_utf8(name, strlen(name));

			places[function] = (uint32_t)(n_table + texts->len);
			g_byte_array_append(texts, (void *)escaped, (guint)strlen(escaped) + 1);
		}
		symbol.first = symbol.last = address_of(function);
		symbol.pid = (uint32_t)(of >> 32);
		symbol.name = places[function];
		g_byte_array_append(file, (void *)&symbol, sizeof(symbol));
	}
	symbol = (struct sysprof_symbol){ 0 };
	g_byte_array_append(file, (void *)&symbol, sizeof(symbol));
	g_byte_array_append(file, texts->data, texts->len);
	for (guint at = 0; texts->len > 0 && at < file->len; at += part.n) {
		part.n = (uint16_t)MIN_OF(file->len - at, SYSPROF_FRAME_MOST - SYSPROF_PART_BYTES);
		part.is_last = at + part.n == file->len;
		put_frame(syscap, &part, SYSPROF_PART_BYTES, file->data + at, part.n);
	}
}

/* ---- processes and mappings ------------------------------------------------------------------ */

enum { TASK_TIME, TASK_THREAD, TASK_EVENT, TASK_PARENT, N_TASK };
static const uint16_t task_columns[N_TASK] = { PROF_TASK_TIME, PROF_TASK_THREAD, PROF_TASK_EVENT,
					       PROF_TASK_PARENT };

static bool put_tasks(struct names_epoch *epoch, const struct prof_batch *batch, void *data,
		      GError **error)
{
	struct syscap *syscap = data;
	const struct capture *capture = syscap->export->reader.capture;
	const struct prof_array *c = batch->columns;

	for (size_t i = 0; i < batch->rows; i++) {
		uint32_t thread = names_thread(epoch, array_number_or(&c[TASK_THREAD], i, 0));
		uint32_t parent = names_thread(epoch, array_number_or(&c[TASK_PARENT], i, 0));
		uint32_t process = names_thread_at(capture->names, thread)->process;
		int64_t time_ns =
			capture_time(capture, batch->segment, array_number_or(&c[TASK_TIME], i, 0));
		struct {
			struct sysprof_frame header;
			int32_t child;
		} fork = { header_of_thread(syscap, SYSPROF_FRAME_FORK, time_ns, parent),
			   (int32_t)names_process_at(capture->names, process)->pid };

		if (array_number_or(&c[TASK_EVENT], i, PROF_TASK_COMM) == PROF_TASK_FORK &&
		    parent > NAMES_LOST &&
		    names_thread_at(capture->names, parent)->process != process)
			put_frame(syscap, &fork, SYSPROF_FRAME_BYTES + sizeof(fork.child), NULL, 0);
	}
	return true;
}

static void put_exit(uint32_t process, int64_t time_ns, void *data)
{
	struct sysprof_frame frame = header_of(data, SYSPROF_FRAME_EXIT, time_ns, process);

	put_frame(data, &frame, sizeof(frame), NULL, 0);
}

enum { MAP_TIME, MAP_PROCESS, MAP_START, MAP_LENGTH, MAP_OFFSET, MAP_IMAGE, N_MAP };
static const uint16_t map_columns[N_MAP] = { PROF_MAPPING_TIME,        PROF_MAPPING_PROCESS,
					     PROF_MAPPING_START,       PROF_MAPPING_LENGTH,
					     PROF_MAPPING_FILE_OFFSET, PROF_MAPPING_IMAGE };

static bool put_maps(struct names_epoch *epoch, const struct prof_batch *batch, void *data,
		     GError **error)
{
	struct syscap *syscap = data;
	const struct capture *capture = syscap->export->reader.capture;
	const struct prof_array *c = batch->columns;

	for (size_t i = 0; i < batch->rows; i++) {
		uint32_t process = names_process(epoch, array_number_or(&c[MAP_PROCESS], i, 0));
		const struct names_image *image = names_image_at(
			capture->names, names_image(epoch, array_number_or(&c[MAP_IMAGE], i, 0)));
		struct sysprof_map map = {
			header_of(syscap, SYSPROF_FRAME_MAP,
				  capture_time(capture, batch->segment,
					       array_number_or(&c[MAP_TIME], i, 0)),
				  process),
			.start = array_number_or(&c[MAP_START], i, 0),
			.offset = array_number_or(&c[MAP_OFFSET], i, 0),
			.inode = image->inode,
		};

		map.end = map.start + array_number_or(&c[MAP_LENGTH], i, 0);
		put_text(syscap, &map, sizeof(map), image->path);
	}
	return true;
}

/* ---- marks, logs and counters ---------------------------------------------------------------- */

static void put_mark(const struct span *span, void *data)
{
	static const char *const notes[] = {
		[SPAN_NO_END] = "no end", [SPAN_NO_BEGIN] = "no begin"
	};
	struct syscap *syscap = data;
	struct reader *reader = &syscap->export->reader;
	struct sysprof_mark mark = {
		header_of_thread(syscap, SYSPROF_FRAME_MARK, span->start_ns, span->thread),
		.duration_ns = (int64_t)((uint64_t)span->end_ns - (uint64_t)span->start_ns)
	};
	g_autoptr(GString) message = g_string_new(NULL);

	if (span->end_ns < reader->from_ns || span->start_ns > reader->to_ns ||
	    !reader_wants_thread_at(reader, span->thread, span->start_ns))
		return;
	if (!set_field(mark.group, sizeof(mark.group), span->group))
		g_string_append_printf(message, "%s: ", span->group);
	if (!set_field(mark.name, sizeof(mark.name), span->name) || message->len > 0)
		g_string_append(message, span->name ? span->name : "");
	if (tid_of(syscap, span->thread) != mark.header.pid)
		g_string_append_printf(message, "%sthread %d", message->len ? ", " : "",
				       tid_of(syscap, span->thread));
	if (span->kind == SPAN_NO_END || span->kind == SPAN_NO_BEGIN)
		g_string_append_printf(message, "%s%s", message->len ? ", " : "",
				       notes[span->kind]);
	put_text(syscap, &mark, sizeof(mark), message->str);
}

enum { LOG_TIME, LOG_THREAD, LOG_LEVEL, LOG_DOMAIN, LOG_TEXT, N_LOG };
static const uint16_t log_columns[N_LOG] = { PROF_LOG_TIME, PROF_LOG_THREAD, PROF_LOG_LEVEL,
					     PROF_LOG_DOMAIN, PROF_LOG_TEXT };

static bool put_logs(struct names_epoch *epoch, const struct prof_batch *batch, void *data,
		     GError **error)
{
	/* GLogLevelFlags by level: emergency, alert and critical are "error" */
	static const uint16_t levels[] = { 4, 4, 4, 8, 16, 32, 64, 128 };
	struct syscap *syscap = data;
	struct reader *reader = &syscap->export->reader;
	const struct prof_array *c = batch->columns, *texts = &c[LOG_TEXT];

	for (size_t i = 0; i < batch->rows; i++) {
		uint32_t thread = names_thread(epoch, array_number_or(&c[LOG_THREAD], i, 0));
		int64_t time_ns = capture_time(reader->capture, batch->segment,
					       array_number_or(&c[LOG_TIME], i, 0));
		uint64_t level = array_number_or(&c[LOG_LEVEL], i, 6);
		struct sysprof_log log = { header_of_thread(syscap, SYSPROF_FRAME_LOG, time_ns,
							    thread),
					   .level = levels[MIN_OF(level, UINT64_C(7))] };
		g_autofree char *text =
			texts->bytes ? g_strndup((const char *)texts->bytes + texts->offsets[i],
						 texts->offsets[i + 1] - texts->offsets[i])
				     : NULL;

		if (!in_range(syscap, time_ns) || !reader_wants_thread_at(reader, thread, time_ns))
			continue;
		(void)set_field(log.domain, sizeof(log.domain),
				names_text(epoch, array_number_or(&c[LOG_DOMAIN], i, 0)));
		put_text(syscap, &log, sizeof(log), text);
	}
	return true;
}

static void put_counter(const struct counter_value *value, void *data)
{
	struct syscap *syscap = data;
	const struct counter *counter = counter_at(&syscap->counters, value->counter);
	struct {
		struct sysprof_list list;
		struct sysprof_values values;
	} set = { { header_of(syscap, SYSPROF_FRAME_VALUES, value->time_ns, counter->process),
		    .n = 1 },
		  { .ids = { value->counter + 1 } } };
	struct {
		struct sysprof_list list;
		struct sysprof_counter counter;
	} define = { { header_of(syscap, SYSPROF_FRAME_COUNTERS, value->time_ns, counter->process),
		       .n = 1 },
		     { .id_and_type = (value->counter + 1) | SYSPROF_COUNTER_DOUBLE } };
	g_autofree char *name = NULL;

	if (value->counter + 1 >= MOST_COUNTERS || !in_range(syscap, value->time_ns) ||
	    !counter_is_wanted(counter, &syscap->export->reader))
		return;
	if (!*memory_byte_at(syscap->has_counter, value->counter)) {
		*memory_byte_at(syscap->has_counter, value->counter) = true;
		name = counter->process > NAMES_LOST
			       ? g_strdup_printf("%s (%d)", counter->name ? counter->name : "",
						 define.list.header.pid)
			       : g_strdup(counter->name);
		(void)set_field(define.counter.category, sizeof(define.counter.category),
				counter->group);
		(void)set_field(define.counter.name, sizeof(define.counter.name), name);
		(void)set_field(define.counter.description, sizeof(define.counter.description),
				counter->unit);
		put_frame(syscap, &define, sizeof(define), NULL, 0);
	}
	memcpy(&set.values.values[0], &value->value, sizeof(value->value));
	put_frame(syscap, &set, sizeof(set), NULL, 0);
}

/* ---- the file -------------------------------------------------------------------------------- */

static void put_header(struct syscap *syscap)
{
	const struct capture *capture = syscap->export->reader.capture;
	int64_t wall_ns = capture->n_segments ? capture->segments[0].wall_ns : 0;
	g_autoptr(GDateTime) wall = g_date_time_new_from_unix_utc(wall_ns / 1000000000);
	g_autofree char *wall_text = g_date_time_format_iso8601(wall);
	g_autofree char *title = export_title(syscap->export);
	g_autofree char *lost = g_strdup_printf("%" PRIu64, capture->lost);
	struct sysprof_file file = {
		.magic = SYSPROF_MAGIC,
		.version = 1,
		.is_little_endian = 1,
		.start_ns = (int64_t)syscap->start_ns,
		.end_ns = (int64_t)(syscap->start_ns + (uint64_t)capture->duration_ns),
	};

	(void)set_field(file.wall_time, sizeof(file.wall_time), wall_text);
	out_write(syscap->out, &file, sizeof(file));
	put_metadata(syscap, "exporter", "profcapture " PROF_VERSION);
	put_metadata(syscap, "command", title);
	put_metadata(syscap, "event", profile_event_name(&syscap->export->profile));
	put_metadata(syscap, "host", capture_metadata(capture, "host"));
	put_metadata(syscap, "kernel", capture_metadata(capture, "kernel"));
	put_metadata(syscap, "lost records", capture->lost ? lost : NULL);
}

/* Writes each process once, with its last program, because Sysprof uses only the first name. */
static void put_processes(struct syscap *syscap)
{
	const struct capture *capture = syscap->export->reader.capture;
	const struct names *names = capture->names;
	uint32_t segment = capture->n_segments ? capture->segments[0].number : 0;
	g_autofree const char **comms = g_new0(const char *, names->processes->len);
	g_autoptr(GHashTable) last_of = g_hash_table_new(NULL, NULL); /* pid → last process */

	for (uint32_t i = NAMES_LOST + 1; i < names->threads->len; i++) {
		const struct names_thread *thread = names_thread_at(names, i);
		g_autofree char *id = g_strdup_printf("thread %" PRIu64, thread->tid);

		put_metadata(syscap, id, thread->comm);
		comms[thread->process] = thread->comm;
	}
	for (uint32_t i = NAMES_LOST + 1; i < names->processes->len; i++) {
		const struct names_process *process = names_process_at(names, i);
		gpointer pid = GUINT_TO_POINTER((guint)process->pid);
		uint32_t last = GPOINTER_TO_UINT(g_hash_table_lookup(last_of, pid));

		if (process->exec_generation >= names_process_at(names, last)->exec_generation)
			g_hash_table_insert(last_of, pid, GUINT_TO_POINTER(i));
	}
	for (uint32_t i = NAMES_LOST + 1; i < names->processes->len; i++) {
		const struct names_process *process = names_process_at(names, i);
		uint32_t last = GPOINTER_TO_UINT(
			g_hash_table_lookup(last_of, GUINT_TO_POINTER((guint)process->pid)));
		int64_t start_ns = capture_time(capture, segment, process->start_time);
		struct sysprof_frame frame =
			header_of(syscap, SYSPROF_FRAME_PROCESS,
				  MIN_OF(MAX_OF(start_ns, INT64_C(0)), capture->duration_ns), i);

		if (i == last || process->start_time != names_process_at(names, last)->start_time)
			put_text(syscap, &frame, sizeof(frame),
				 process->exe ? process->exe : comms[i]);
	}
}

bool export_syscap(struct export *export, struct out *out, GError **error)
{
	struct capture *capture = export->reader.capture;
	struct names *names = capture->names;
	struct syscap syscap = {
		.export = export,
		.out = out,
		.start_ns = capture->n_segments ? capture->segments[0].start_monotonic_ns : 0,
		.counters.capture = capture,
		.has_counter = g_byte_array_new(),
		.symbols = g_array_new(FALSE, FALSE, sizeof(uint64_t)),
	};
	bool ok;

	number_map_init(&syscap.known_nodes);
	number_map_init(&syscap.known_symbols);
	put_header(&syscap);
	ok = names_each_batch(names, NAMES_COLUMNS_OF(PROF_TABLE_TASK, task_columns), put_tasks,
			      &syscap, error) &&
	     capture_each_exit(capture, put_exit, &syscap, error) &&
	     names_each_batch(names, NAMES_COLUMNS_OF(PROF_TABLE_MAPPING, map_columns), put_maps,
			      &syscap, error) &&
	     spans_read(capture, put_mark, &syscap, error) &&
	     (export->reader.redacts ||
	      names_each_batch(names, NAMES_COLUMNS_OF(PROF_TABLE_LOG, log_columns), put_logs,
			       &syscap, error)) &&
	     counter_values_read(&syscap.counters, put_counter, &syscap, error);
	/* Sysprof reads allocations in one pass, so processes come first. */
	if (ok)
		put_processes(&syscap);
	ok = ok && put_allocations(&syscap, error);
	if (ok) {
		put_samples(&syscap);
		put_symbols(&syscap);
		put_functions(&syscap);
	}
	number_map_done(&syscap.known_nodes);
	number_map_done(&syscap.known_symbols);
	g_array_unref(syscap.symbols);
	memory_heaps_done(&syscap.heaps);
	memory_tree_done(&syscap.tree);
	counter_values_done(&syscap.counters);
	g_byte_array_unref(syscap.has_counter);
	return ok;
}
