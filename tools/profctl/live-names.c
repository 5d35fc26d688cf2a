/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Live-names - finds names for the code that a running recording hits
 *
 * A thread reads one file at a time, that of the image with the most unnamed places. profd passes a
 * descriptor of the file that was mapped. The file's symbols also name later places, so soon there
 * are few requests. When all places have names, the thread reads inlined calls, which takes longer.
 * The thread's CPU time is limited: a few seconds at first, then a hundredth of a core. The
 * recording itself has the kernel's names. Names of generated code come from files that the program
 * writes, and are kept as long as their places.
 */
#include "config.h"

#include "tools/profctl/live-names.h"

#include "arch/base.h"
#include "arch/jit-dump.h"
#include "tools/common/sorted.h"
#include "tools/profctl/worker.h"
#include "tools/symbols/jit-names.h"
#include "tools/symbols/symbols.h"

#include <gio/gio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FIRST_CREDIT_US (3 * G_USEC_PER_SEC)
#define EARNED_PART 100         /* the thread earns 1 / EARNED_PART of the elapsed time as credit */
#define AGAIN_US G_USEC_PER_SEC /* time until an image may be requested again */

/* A request to the thread, with its result. */
struct name_request {
	struct live_names *names;
	uint32_t generation, image;
	uint64_t id;
	char *path;
	GBytes *build_id;
	struct symbols_image of;
	GArray *places;  /* numbers of places */
	GArray *offsets; /* offsets of the places, in the same order */
	struct symbols *symbols;
	gint64 took_us; /* CPU time */
	bool wants_inlined;
	/* for generated code */
	bool is_generated;
	struct jit_process process;
	char *dump;        /* path of the process's dump; NULL = none */
	GArray *generated; /* struct jit_name; NULL = unknown */
	GStringChunk *texts;
};

struct live_names {
	struct live *live;
	struct client *client;
	struct debug_files *debug_files;
	GArray *requested_us; /* gint64 by image: time of the last request in this generation */
	uint32_t generation;
	gint64 credit_us, earned_us; /* CPU time left for the thread; when credit was last added */
	bool is_busy;
	bool closing;
};

struct live_names *live_names_new(struct live *live, struct client *client)
{
	struct live_names *names = g_new0(struct live_names, 1);

	names->live = live;
	names->client = client;
	names->debug_files = debug_files_new(NULL, NULL);
	names->requested_us = g_array_new(FALSE, TRUE, sizeof(gint64));
	names->credit_us = FIRST_CREDIT_US;
	names->earned_us = g_get_monotonic_time();
	return names;
}

void live_names_free(struct live_names *names)
{
	if (!names)
		return;
	names->closing = true;
	while (names->is_busy)
		g_main_context_iteration(NULL, TRUE);
	g_array_unref(names->requested_us);
	debug_files_free(names->debug_files);
	g_free(names);
}

static void name_request_free(struct name_request *request)
{
	symbols_free(request->symbols);
	g_clear_pointer(&request->generated, g_array_unref);
	g_clear_pointer(&request->texts, g_string_chunk_free);
	g_free(request->dump);
	g_array_unref(request->offsets);
	g_array_unref(request->places);
	g_bytes_unref(request->build_id);
	g_free(request->path);
	g_free(request);
}

/* ---- The result ------------------------------------------------------------------------------ */

/* Names places of generated code. A place without a name keeps the name of its memory. */
static void name_generated(struct live *live, const struct name_request *request)
{
	struct number_map loads; /* address → row + 1 */

	number_map_init(&loads);
	for (guint i = 0; request->generated && i < request->generated->len; i++) {
		const struct jit_name *row = &g_array_index(request->generated, struct jit_name, i);
		guint of = row->event == PROF_JIT_MOVE ? number_map_get(&loads, row->from) : i + 1;

		if (of == 0)
			continue;
		*number_map_at(&loads, row->address) = of--;
		live_add_symbol(live, request->image, row->address,
				g_array_index(request->generated, struct jit_name, of).size,
				g_array_index(request->generated, struct jit_name, of).name,
				g_array_index(request->generated, struct jit_name, of).name);
	}
	number_map_done(&loads);
	for (guint i = 0; i < request->places->len; i++)
		live_name(live, g_array_index(request->places, uint32_t, i));
}

static void name_file(struct live *live, const struct name_request *request)
{
	const struct symbols *symbols = request->symbols;

	for (size_t i = 0; symbols && symbols->state == SYMBOLS_READ && i < symbols->n_rows; i++)
		if (symbols->rows[i].inline_depth == 0)
			live_add_symbol(live, request->image, symbols->rows[i].start,
					symbols->rows[i].length, symbols->rows[i].name,
					symbols->rows[i].raw_name);
	for (guint i = 0; i < request->places->len; i++)
		if (!live_name(live, g_array_index(request->places, uint32_t, i)))
			live_name_by_offset(live, g_array_index(request->places, uint32_t, i));
}

static int compare_line(const void *key, const void *item)
{
	const uint64_t *offset = key;
	const struct symbol_line *line = item;

	return *offset < line->start ? -1 : *offset - line->start >= line->length;
}

static void name_inlined(struct live *live, const struct name_request *request)
{
	const struct symbols *symbols = request->symbols;

	LIVE_AT(live->images, live_image, request->image)->lacks_lines = !symbols ||
									 symbols->n_lines == 0;
	for (guint i = 0; symbols && symbols->n_lines > 0 && i < request->places->len; i++) {
		uint32_t place = g_array_index(request->places, uint32_t, i);
		const struct symbol_line *line =
			bsearch(&LIVE_AT(live->places, live_place, place)->offset, symbols->lines,
				symbols->n_lines, sizeof(*line), compare_line);
		uint32_t row = line ? line->symbol : SYMBOLS_NONE;

		if (row == SYMBOLS_NONE || symbols->rows[row].inline_depth == 0)
			continue;
		for (bool is_first = true; row != SYMBOLS_NONE; is_first = false) {
			live_add_inlined(live, place, symbols->rows[row].name,
					 symbols->rows[row].raw_name, is_first);
			row = symbols->rows[row].inline_parent;
		}
	}
}

static void on_result(void *data)
{
	struct name_request *request = data;
	struct live_names *names = request->names;
	bool is_wanted = !names->closing && request->generation == names->live->generation;

	names->is_busy = false;
	names->credit_us -= request->took_us;
	if (is_wanted)
		(request->is_generated    ? name_generated
		 : request->wants_inlined ? name_inlined
					  : name_file)(names->live, request);
	name_request_free(request);
	if (!is_wanted)
		return;
	live_name_all(names->live);
	live_names_request(names);
}

static gint64 thread_us(void)
{
	struct timespec time;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
	return time.tv_sec * G_USEC_PER_SEC + time.tv_nsec / 1000;
}

/* Runs on the thread: reads the current names of a process's generated code, or those of a file. */
static void work(void *data)
{
	struct name_request *request = data;
	const struct prof_segment now = {
		.start_monotonic_ns = (uint64_t)g_get_monotonic_time() * 1000,
		.wall_ns = g_get_real_time() * 1000,
	};
	const uint64_t *offsets = (const uint64_t *)(const void *)request->offsets->data;
	gint64 begin_us = thread_us();
	int fd = -1;

	if (request->is_generated) {
		request->process.segment = &now;
		request->process.end_ns = now.start_monotonic_ns;
		request->process.dump = request->dump;
		request->texts = g_string_chunk_new(4096);
		g_array_sort(request->offsets, sorted_compare);
		request->generated = jit_names_find(&request->process, offsets,
						    request->offsets->len, request->texts);
	} else {
		if (request->of.kind == PROF_IMAGE_FILE)
			fd = client_open_image(request->names->client, request->id);
		if (request->of.kind == PROF_IMAGE_FILE && fd < 0)
			fd = debug_files_open_path(request->names->debug_files, request->path);
		if (!symbols_read(&request->of, fd, offsets, request->offsets->len,
				  &request->symbols, NULL))
			request->symbols = NULL;
		if (fd >= 0)
			close(fd);
	}
	request->took_us = thread_us() - begin_us;
}

/* ---- The request ---------------------------------------------------------------------------- */

/* Returns whether the image is anonymous memory with a process's code. Its offsets are
 * addresses. */
static bool is_generated(const struct live_image *image)
{
	return image->kind == PROF_IMAGE_ANON && image->process != 0 &&
	       strcmp(image->path, "//anon") == 0;
}

static struct name_request *name_request_new(struct live_names *names, uint32_t number,
					     bool wants_inlined)
{
	const struct live *live = names->live;
	const struct live_image *image = LIVE_AT(live->images, live_image, number);
	const struct live_process *process = LIVE_AT(live->processes, live_process, image->process);
	struct name_request *request = g_new0(struct name_request, 1);

	*request = (struct name_request){
		.names = names,
		.generation = live->generation,
		.image = number,
		.id = image->id,
		.path = g_strdup(image->path),
		.build_id = g_bytes_ref(image->build_id),
		.places = g_array_new(FALSE, FALSE, sizeof(uint32_t)),
		.offsets = g_array_new(FALSE, FALSE, sizeof(uint64_t)),
		.wants_inlined = wants_inlined,
		.is_generated = is_generated(image),
		.process = { .pid = process->pid,
			     .uid = process->uid,
			     .start_ns = process->start_ns },
	};
	request->of = (struct symbols_image){
		.path = request->path,
		.build_id = g_bytes_get_data(request->build_id, NULL),
		.build_id_size = g_bytes_get_size(request->build_id),
		.dev = image->dev,
		.inode = image->inode,
		.size = image->size,
		.kind = image->kind,
		.debug_files = names->debug_files,
		.names_only = !wants_inlined,
	};
	for (guint i = 1; request->is_generated && !request->dump && i < live->images->len; i++) {
		const char *path = LIVE_AT(live->images, live_image, i)->path;

		if (jit_dump_pid_of_path(path) == process->pid)
			request->dump = g_strdup(path);
	}
	return request;
}

/* Moves the image's places to the request. */
static void move_places(struct live *live, GArray *numbers, struct name_request *request)
{
	guint left = 0;

	for (guint i = 0; i < numbers->len; i++) {
		uint32_t number = g_array_index(numbers, uint32_t, i);
		const struct live_place *place = LIVE_AT(live->places, live_place, number);

		if (place->image == request->image) {
			g_array_append_val(request->places, number);
			g_array_append_val(request->offsets, place->offset);
		} else {
			g_array_index(numbers, uint32_t, left++) = number;
		}
	}
	g_array_set_size(numbers, left);
}

/* Drops places that cannot get a better name than that of their memory: code that a collector
 * reports, and anonymous memory for which is_generated() is false. */
static void leave_unknown(struct live *live)
{
	guint left = 0;

	for (guint i = 0; i < live->unnamed->len; i++) {
		uint32_t number = g_array_index(live->unnamed, uint32_t, i);
		const struct live_place *place = LIVE_AT(live->places, live_place, number);
		const struct live_image *image = LIVE_AT(live->images, live_image, place->image);

		if (is_generated(image) ||
		    (image->kind != PROF_IMAGE_ANON && image->kind != PROF_IMAGE_JIT))
			g_array_index(live->unnamed, uint32_t, left++) = number;
	}
	g_array_set_size(live->unnamed, left);
}

/* Returns, of the images that may be requested now, the one with the most places in `numbers`; 0:
 * none. */
static uint32_t next_image(struct live_names *names, const GArray *numbers, gint64 now_us)
{
	const struct live *live = names->live;
	g_autofree guint *places = g_new0(guint, live->images->len);
	uint32_t best = 0;

	for (guint i = 0; i < numbers->len; i++) {
		uint32_t number = g_array_index(numbers, uint32_t, i);

		places[LIVE_AT(live->places, live_place, number)->image]++;
	}
	for (uint32_t image = 1; image < live->images->len; image++) {
		const struct live_image *of = LIVE_AT(live->images, live_image, image);
		gint64 requested_us = g_array_index(names->requested_us, gint64, image);

		/* not the kernel, whose names the recording itself has */
		if (places[image] > places[best] &&
		    (of->kind == PROF_IMAGE_FILE || of->kind == PROF_IMAGE_VDSO ||
		     is_generated(of)) &&
		    (requested_us == 0 || now_us - requested_us >= AGAIN_US))
			best = image;
	}
	return best;
}

void live_names_request(struct live_names *names)
{
	struct live *live = names->live;
	GArray *numbers = live->unnamed;
	gint64 now_us = g_get_monotonic_time();
	struct name_request *request;
	uint32_t image;

	live_name_all(live);
	leave_unknown(live);
	if (names->generation != live->generation)
		g_array_set_size(names->requested_us, 0);
	names->generation = live->generation;
	g_array_set_size(names->requested_us, live->images->len);
	names->credit_us += (now_us - names->earned_us) / EARNED_PART;
	names->credit_us = MIN(names->credit_us, FIRST_CREDIT_US);
	names->earned_us = now_us;
	if (names->is_busy || names->closing || names->credit_us <= 0)
		return;
	image = next_image(names, numbers, now_us);
	if (!image) {
		numbers = live->plain;
		image = next_image(names, numbers, now_us);
	}
	if (!image)
		return;
	g_array_index(names->requested_us, gint64, image) = now_us;
	request = name_request_new(names, image, numbers == live->plain);
	move_places(live, numbers, request);
	names->is_busy = worker_start(work, on_result, request, NULL);
	if (names->is_busy)
		return;
	/* request them again later */
	g_array_append_vals(numbers, request->places->data, request->places->len);
	name_request_free(request);
}
