/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Live names - names for the places that a live recording hits, while it runs
 *
 * A thread reads one file at a time: that of the image with the most places without a name. profd
 * passes the file as it was mapped. The symbols found also name later places, so few requests
 * remain after a short time. When all places have names, it reads which functions are inlined at
 * them, which takes longer. The thread's time is limited: some seconds at first, then a hundredth
 * of a core. Names of the kernel come with the recording. Names of generated code are in the files
 * that its program writes, and stay valid as long as the place is kept.
 */
#include "config.h"

#include "tools/profctl/live-names.h"

#include "arch/base.h"
#include "arch/jit-dump.h"
#include "tools/profctl/worker.h"
#include "tools/symbols/jit-names.h"
#include "tools/symbols/symbols.h"

#include <gio/gio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FIRST_CREDIT_US (3 * G_USEC_PER_SEC)
#define EARNED_PART 100         /* of the elapsed time */
#define AGAIN_US G_USEC_PER_SEC /* before an image is requested again */

/* A request to the thread, and its result. */
struct question {
	struct live_names *names;
	uint32_t generation, image;
	uint64_t id;
	char *path;
	GBytes *build_id;
	struct symbols_image of;
	GArray *places;  /* numbers */
	GArray *offsets; /* of the places, in the same order */
	struct symbols *answer;
	gint64 took_us; /* CPU time */
	bool wants_inlined;
	/* for the memory of a process */
	bool is_generated;
	struct jit_process process;
	char *dump;        /* of the process; NULL = none */
	GArray *generated; /* of struct jit_name; NULL = unknown */
	GStringChunk *texts;
};

struct live_names {
	struct live *live;
	struct client *client;
	struct debug_files *debug_files;
	GArray *asked_us; /* time of the last request by image, of this generation: gint64 */
	uint32_t generation;
	gint64 credit_us, earned_us; /* time left for the thread; when credit was last added */
	bool asking;
	bool closing;
};

struct live_names *live_names_new(struct live *live, struct client *client)
{
	struct live_names *names = g_new0(struct live_names, 1);

	names->live = live;
	names->client = client;
	names->debug_files = debug_files_new(NULL, NULL);
	names->asked_us = g_array_new(FALSE, TRUE, sizeof(gint64));
	names->credit_us = FIRST_CREDIT_US;
	names->earned_us = g_get_monotonic_time();
	return names;
}

void live_names_free(struct live_names *names)
{
	if (!names)
		return;
	names->closing = true;
	while (names->asking)
		g_main_context_iteration(NULL, TRUE);
	g_array_unref(names->asked_us);
	debug_files_free(names->debug_files);
	g_free(names);
}

static void question_free(struct question *question)
{
	symbols_free(question->answer);
	g_clear_pointer(&question->generated, g_array_unref);
	g_clear_pointer(&question->texts, g_string_chunk_free);
	g_free(question->dump);
	g_array_unref(question->offsets);
	g_array_unref(question->places);
	g_bytes_unref(question->build_id);
	g_free(question->path);
	g_free(question);
}

/* ---- The answer ------------------------------------------------------------------------------ */

/* A place that gets no name keeps the name of its program's memory. */
static void take_generated(struct live *live, const struct question *question)
{
	struct number_map loads; /* address → row + 1 */

	number_map_init(&loads);
	for (guint i = 0; question->generated && i < question->generated->len; i++) {
		const struct jit_name *row =
			&g_array_index(question->generated, struct jit_name, i);
		guint of = row->event == PROF_JIT_MOVE ? number_map_get(&loads, row->from) : i + 1;

		if (of == 0)
			continue;
		*number_map_at(&loads, row->address) = of;
		live_add_symbol(live, question->image, row->address,
				g_array_index(question->generated, struct jit_name, of - 1).size,
				g_array_index(question->generated, struct jit_name, of - 1).name,
				g_array_index(question->generated, struct jit_name, of - 1).name);
	}
	number_map_done(&loads);
	for (guint i = 0; i < question->places->len; i++)
		live_name(live, g_array_index(question->places, uint32_t, i));
}

static void take(struct live *live, const struct question *question)
{
	const struct symbols *answer = question->answer;

	for (size_t i = 0; answer && answer->state == SYMBOLS_READ && i < answer->n_rows; i++)
		if (answer->rows[i].inline_depth == 0)
			live_add_symbol(live, question->image, answer->rows[i].start,
					answer->rows[i].length, answer->rows[i].name,
					answer->rows[i].raw_name);
	for (guint i = 0; i < question->places->len; i++)
		if (!live_name(live, g_array_index(question->places, uint32_t, i)))
			live_give_up(live, g_array_index(question->places, uint32_t, i));
}

static int compare_line(const void *key, const void *item)
{
	const uint64_t *offset = key;
	const struct symbol_line *line = item;

	return *offset < line->start ? -1 : *offset - line->start >= line->length;
}

static void take_inlined(struct live *live, const struct question *question)
{
	const struct symbols *answer = question->answer;

	LIVE_AT(live->images, live_image, question->image)->lacks_lines = !answer ||
									  answer->n_lines == 0;
	for (guint i = 0; answer && answer->n_lines > 0 && i < question->places->len; i++) {
		uint32_t place = g_array_index(question->places, uint32_t, i);
		const struct symbol_line *line =
			bsearch(&LIVE_AT(live->places, live_place, place)->offset, answer->lines,
				answer->n_lines, sizeof(*line), compare_line);
		uint32_t row = line ? line->symbol : SYMBOLS_NONE;

		if (row == SYMBOLS_NONE || answer->rows[row].inline_depth == 0)
			continue;
		for (bool is_first = true; row != SYMBOLS_NONE; is_first = false) {
			live_add_inlined(live, place, answer->rows[row].name,
					 answer->rows[row].raw_name, is_first);
			row = answer->rows[row].inline_parent;
		}
	}
}

static void on_answer(void *data)
{
	struct question *question = data;
	struct live_names *names = question->names;
	bool is_wanted = !names->closing && question->generation == names->live->generation;

	names->asking = false;
	names->credit_us -= question->took_us;
	if (is_wanted)
		(question->is_generated    ? take_generated
		 : question->wants_inlined ? take_inlined
					   : take)(names->live, question);
	question_free(question);
	if (!is_wanted)
		return;
	live_settle(names->live);
	live_names_ask(names);
}

static gint64 thread_us(void)
{
	struct timespec time;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
	return time.tv_sec * G_USEC_PER_SEC + time.tv_nsec / 1000;
}

static gint compare_offsets(gconstpointer left, gconstpointer right)
{
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

	return (a > b) - (a < b);
}

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Reads the current names of the process's code. */
static void read_generated(struct question *question)
{
	const struct prof_segment now = { .start_monotonic_ns = clock_ns(CLOCK_MONOTONIC),
					  .wall_ns = (int64_t)clock_ns(CLOCK_REALTIME) };

	question->process.segment = &now;
	question->process.end_ns = now.start_monotonic_ns;
	question->process.dump = question->dump;
	question->texts = g_string_chunk_new(4096);
	g_array_sort(question->offsets, compare_offsets);
	question->generated = jit_names_find(
		&question->process, (const uint64_t *)(const void *)question->offsets->data,
		question->offsets->len, question->texts);
}

static void read_file(struct question *question)
{
	g_autoptr(GError) error = NULL;
	int fd = -1;

	if (question->of.kind == PROF_IMAGE_FILE &&
	    !client_open_image(question->names->client, question->id, &fd, NULL))
		fd = debug_files_open_path(question->names->debug_files, question->path);
	if (!symbols_read(&question->of, fd,
			  (const uint64_t *)(const void *)question->offsets->data,
			  question->offsets->len, &question->answer, &error))
		question->answer = NULL;
	if (fd >= 0)
		close(fd);
}

static void answer(void *data)
{
	struct question *question = data;
	gint64 begin_us = thread_us();

	if (question->is_generated)
		read_generated(question);
	else
		read_file(question);
	question->took_us = thread_us() - begin_us;
}

/* ---- The question ---------------------------------------------------------------------------- */

/* Returns whether it is anonymous memory into which a process put code; its offsets are
 * addresses. */
static bool is_generated(const struct live_image *image)
{
	return image->kind == PROF_IMAGE_ANON && image->process != 0 &&
	       strcmp(image->path, "//anon") == 0;
}

/* Returns the jitdump that the process has mapped; NULL: none. */
static const char *find_dump(const struct live *live, uint64_t pid)
{
	for (guint i = 1; i < live->images->len; i++) {
		const char *path = LIVE_AT(live->images, live_image, i)->path;

		if (jit_dump_pid_of_path(path) == pid)
			return path;
	}
	return NULL;
}

static struct question *question_new(struct live_names *names, uint32_t number, bool wants_inlined)
{
	const struct live_image *image = LIVE_AT(names->live->images, live_image, number);
	struct question *question = g_new0(struct question, 1);

	question->names = names;
	question->generation = names->live->generation;
	question->image = number;
	question->id = image->id;
	question->path = g_strdup(image->path);
	question->build_id = g_bytes_ref(image->build_id);
	question->places = g_array_new(FALSE, FALSE, sizeof(uint32_t));
	question->offsets = g_array_new(FALSE, FALSE, sizeof(uint64_t));
	question->of = (struct symbols_image){
		.path = question->path,
		.build_id = g_bytes_get_data(question->build_id, &question->of.build_id_size),
		.dev = image->dev,
		.inode = image->inode,
		.size = image->size,
		.kind = image->kind,
		.debug_files = names->debug_files,
		.names_only = !wants_inlined,
	};
	question->wants_inlined = wants_inlined;
	question->of.build_id_size = g_bytes_get_size(question->build_id);
	question->is_generated = is_generated(image);
	if (question->is_generated) {
		const struct live_process *process =
			LIVE_AT(names->live->processes, live_process, image->process);

		question->process = (struct jit_process){
			.pid = process->pid,
			.uid = process->uid,
			.start_ns = process->start_ns,
		};
		question->dump = g_strdup(find_dump(names->live, process->pid));
	}
	return question;
}

/* Moves the image's places to the question. */
static void take_places(struct live *live, GArray *numbers, struct question *question)
{
	guint left = 0;

	for (guint i = 0; i < numbers->len; i++) {
		uint32_t number = g_array_index(numbers, uint32_t, i);
		const struct live_place *place = LIVE_AT(live->places, live_place, number);

		if (place->image == question->image) {
			g_array_append_val(question->places, number);
			g_array_append_val(question->offsets, place->offset);
		} else {
			g_array_index(numbers, uint32_t, left++) = number;
		}
	}
	g_array_set_size(numbers, left);
}

/* Drops places that get no better name than their memory's: code that a collector reports, and
 * memory without a process. */
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

/* The recording itself brings the kernel's names. */
static bool may_have_names(const struct live_image *image)
{
	return image->kind == PROF_IMAGE_FILE || image->kind == PROF_IMAGE_VDSO ||
	       is_generated(image);
}

/* Returns the image with the most of these places, of those that are due; 0: none. */
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
		gint64 asked_us = g_array_index(names->asked_us, gint64, image);

		if (places[image] > places[best] &&
		    may_have_names(LIVE_AT(live->images, live_image, image)) &&
		    (asked_us == 0 || now_us - asked_us >= AGAIN_US))
			best = image;
	}
	return best;
}

/* Returns whether the thread may start another request. */
static bool may_ask(struct live_names *names, gint64 now_us)
{
	names->credit_us += (now_us - names->earned_us) / EARNED_PART;
	names->credit_us = MIN(names->credit_us, FIRST_CREDIT_US);
	names->earned_us = now_us;
	return !names->asking && !names->closing && names->credit_us > 0;
}

void live_names_ask(struct live_names *names)
{
	struct live *live = names->live;
	GArray *numbers = live->unnamed;
	gint64 now_us = g_get_monotonic_time();
	struct question *question;
	uint32_t image;

	live_settle(live);
	leave_unknown(live);
	if (names->generation != live->generation)
		g_array_set_size(names->asked_us, 0);
	names->generation = live->generation;
	g_array_set_size(names->asked_us, live->images->len);
	if (!may_ask(names, now_us))
		return;
	image = next_image(names, numbers, now_us);
	if (!image) {
		numbers = live->plain;
		image = next_image(names, numbers, now_us);
	}
	if (!image)
		return;
	g_array_index(names->asked_us, gint64, image) = now_us;
	question = question_new(names, image, numbers == live->plain);
	take_places(live, numbers, question);
	names->asking = worker_start(answer, on_answer, question, NULL);
	if (names->asking)
		return;
	/* request them again later */
	g_array_append_vals(numbers, question->places->data, question->places->len);
	question_free(question);
}
