/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Live - the samples of the last seconds of a running recording
 *
 * Invariants: (1) a sample counts in its own second only, and seconds before the window are dropped
 *                 [test-live: window]
 *             (2) a place has the same number in all epochs  [test-live: epochs]
 *             (3) undefined ids and invalid rows map to number 0 [test-live: hostile]
 *             (4) memory is bounded: if too much is stored, all data is dropped at the next epoch,
 *                 which defines all rows again  [test-live: forgets]
 */
#include "config.h"

#include "tools/profctl/live.h"

#include "arch/base.h"
#include "tools/common/sorted.h"
#include "tools/common/text.h"
#include "tools/profile/function-names.h"
#include "tools/symbols/clone-suffix.h"

#include <inttypes.h>
#include <string.h>

#define NS_PER_SECOND UINT64_C(1000000000)
#define MAX_KNOWN (1u << 20) /* maximum number of nodes, places or keys */
#define MAX_TEXT 4096        /* maximum bytes of a name */

/* ---- Numbers --------------------------------------------------------------------------------- */

static void image_clear(void *data)
{
	struct live_image *image = data;

	g_clear_pointer(&image->symbols, g_array_unref);
	g_clear_pointer(&image->build_id, g_bytes_unref);
}

static const struct {
	size_t offset, item_bytes;
	bool has_none; /* number 0 is "none" */
} arrays[] = {
	{ offsetof(struct live, images), sizeof(struct live_image), true },
	{ offsetof(struct live, functions), sizeof(struct live_function), true },
	{ offsetof(struct live, places), sizeof(struct live_place), true },
	{ offsetof(struct live, processes), sizeof(struct live_process), true },
	{ offsetof(struct live, threads), sizeof(struct live_thread), true },
	{ offsetof(struct live, nodes), sizeof(struct live_node), true },
	{ offsetof(struct live, callers), sizeof(uint32_t), true },
	{ offsetof(struct live, unnamed), sizeof(uint32_t), false },
	{ offsetof(struct live, plain), sizeof(uint32_t), false },
};

static GArray **array_at(struct live *live, size_t i)
{
	return (GArray **)(void *)((char *)live + arrays[i].offset);
}

static void init(struct live *live)
{
	struct live_image *none;

	live->chunk = g_string_chunk_new(16384);
	live->keys = g_hash_table_new(g_str_hash, g_str_equal);
	live->texts = g_ptr_array_new();
	for (size_t i = 0; i < ARRAY_SIZE(arrays); i++)
		*array_at(live, i) = g_array_set_size(
			g_array_new(FALSE, TRUE, (guint)arrays[i].item_bytes), arrays[i].has_none);
	g_array_set_clear_func(live->images, image_clear);
	g_ptr_array_add(live->texts, (void *)"");
	none = LIVE_AT(live->images, live_image, 0);
	none->path = "";
	none->symbols = g_array_new(FALSE, FALSE, sizeof(struct live_symbol));
	*LIVE_AT(live->functions, live_function, 0) =
		(struct live_function){ .name = "[no stack]", .shown = "[no stack]" };
	LIVE_AT(live->processes, live_process, 0)->comm = "?";
	LIVE_AT(live->threads, live_thread, 0)->comm = "?";
	number_map_init(&live->place_numbers);
	number_map_init(&live->node_numbers);
	for (unsigned i = 0; i < LIVE_ID_KINDS; i++)
		number_map_init(&live->ids[i]);
	for (unsigned i = 0; i < live->n_slices; i++) {
		number_map_init(&live->slices[i].counts);
		live->slices[i].amounts = g_array_new(FALSE, TRUE, sizeof(struct amount));
	}
}

static void clear(struct live *live)
{
	live->pending = 0;
	for (unsigned i = 0; i < live->n_slices; i++) {
		number_map_done(&live->slices[i].counts);
		g_array_unref(live->slices[i].amounts);
	}
	for (unsigned i = 0; i < LIVE_ID_KINDS; i++)
		number_map_done(&live->ids[i]);
	number_map_done(&live->node_numbers);
	number_map_done(&live->place_numbers);
	for (size_t i = 0; i < ARRAY_SIZE(arrays); i++)
		g_array_unref(*array_at(live, i));
	g_ptr_array_unref(live->texts);
	g_hash_table_unref(live->keys);
	g_string_chunk_free(live->chunk);
}

void live_init(struct live *live, unsigned window)
{
	*live = (struct live){ .n_slices = window };
	live->slices = g_new0(struct live_slice, window);
	init(live);
}

void live_done(struct live *live)
{
	clear(live);
	g_free(live->slices);
}

/* Returns the number of a key. Adds the key if it is missing. */
static uint32_t key_number(struct live *live, const char *key, GArray *array, bool *ret_is_new)
{
	uint32_t number = GPOINTER_TO_UINT(g_hash_table_lookup(live->keys, key));

	*ret_is_new = !number;
	if (number)
		return number;
	g_hash_table_insert(live->keys, g_string_chunk_insert(live->chunk, key),
			    GUINT_TO_POINTER(array->len));
	g_array_set_size(array, array->len + 1);
	return array->len - 1;
}

/* Returns the number of a function, which its clones share. `full_raw_name`: `full_name` if not
 * mangled. */
static uint32_t function_number(struct live *live, uint32_t image, const char *full_name,
				const char *full_raw_name)
{
	g_autofree char *name = g_strndup(full_name, clone_suffix_skip_shown(full_name));
	g_autofree char *raw_name = g_strndup(full_raw_name, clone_suffix_skip(full_raw_name));
	g_autofree char *shown = NULL, *escaped = NULL;
	g_autofree char *key = g_strdup_printf("f%u %s", image, name);
	bool is_new;
	uint32_t number = key_number(live, key, live->functions, &is_new);
	struct live_function *function;

	if (!is_new)
		return number;
	function = LIVE_AT(live->functions, live_function, number);
	shown = function_name_for_people(name, raw_name);
	escaped = text_escape(shown);
	function->name = g_string_chunk_insert(live->chunk, name);
	function->shown = g_string_chunk_insert(live->chunk, escaped);
	function->image = image;
	return number;
}

/* ---- Names ----------------------------------------------------------------------------------- */

/* Returns the function at an offset; 0: none. If functions nest, the innermost one starts last. */
static uint32_t symbol_at(struct live_image *image, uint64_t offset)
{
	const struct live_symbol *symbols;
	size_t n;

	if (!image->sorted)
		g_array_sort(image->symbols, sorted_compare);
	image->sorted = true;
	symbols = (const struct live_symbol *)(const void *)image->symbols->data;
	n = sorted_array_upto(image->symbols, sizeof(*symbols), offset);
	for (size_t i = n, tries = 8; i > 0 && tries > 0; i--, tries--)
		if (offset < symbols[i - 1].end)
			return symbols[i - 1].function;
	return 0;
}

void live_add_symbol(struct live *live, uint32_t image, uint64_t start, uint64_t length,
		     const char *name, const char *raw_name)
{
	struct live_symbol symbol = { .start = start, .end = UINT64_MAX };
	struct live_image *of;

	if (image == 0 || image >= live->images->len)
		return;
	if (length && length < UINT64_MAX - start)
		symbol.end = start + length;
	symbol.function = function_number(live, image, name, raw_name);
	of = LIVE_AT(live->images, live_image, image);
	g_array_append_val(of->symbols, symbol);
	of->sorted = false;
}

void live_name_by_offset(struct live *live, uint32_t number)
{
	struct live_place *place = LIVE_AT(live->places, live_place, number);
	const struct live_image *image = LIVE_AT(live->images, live_image, place->image);
	g_autofree char *base = g_path_get_basename(image->path);
	g_autofree char *name = g_strdup_printf("%s+0x%" PRIx64, base, place->offset);

	place->function = function_number(live, place->image, name, name);
}

bool live_name(struct live *live, uint32_t number)
{
	struct live_place *place = LIVE_AT(live->places, live_place, number);
	struct live_image *image = LIVE_AT(live->images, live_image, place->image);
	uint32_t function = symbol_at(image, place->offset);

	if (!function)
		return false;
	place->function = function;
	if (image->kind == PROF_IMAGE_FILE && !image->lacks_lines && !live->no_inline)
		g_array_append_val(live->plain, number);
	return true;
}

void live_add_inlined(struct live *live, uint32_t number, const char *name, const char *raw_name,
		      bool is_first)
{
	static const uint32_t end = 0;
	struct live_place *place = LIVE_AT(live->places, live_place, number);
	uint32_t function = function_number(live, place->image, name, raw_name);

	if (is_first) {
		place->function = function;
		place->callers = 0;
		return;
	}
	/* remove the 0 at the end of the place's list, which is the last list in `callers` */
	if (place->callers)
		g_array_set_size(live->callers, live->callers->len - 1);
	else
		place->callers = live->callers->len;
	g_array_append_val(live->callers, function);
	g_array_append_val(live->callers, end);
}

void live_name_all(struct live *live)
{
	uint32_t *numbers = (uint32_t *)(void *)live->unnamed->data;
	guint left = 0;

	for (guint i = 0; i < live->unnamed->len; i++) {
		const struct live_place *place = LIVE_AT(live->places, live_place, numbers[i]);
		const struct live_image *image = LIVE_AT(live->images, live_image, place->image);

		if (place->function == image->pending && !live_name(live, numbers[i]))
			numbers[left++] = numbers[i];
	}
	g_array_set_size(live->unnamed, left);
}

/* ---- Rows ------------------------------------------------------------------------------------ */

static uint64_t number(const struct prof_array *array, size_t row)
{
	return array->numbers && !array->offsets && !(array->nulls && array->nulls[row])
		       ? array->numbers[row]
		       : 0;
}

/* Returns the number of the row that a reference refers to; 0: undefined. */
static uint32_t refer(const struct live *live, enum live_ids kind, const struct prof_array *array,
		      size_t row)
{
	return number_map_get(&live->ids[kind], number(array, row));
}

static void define(struct live *live, enum live_ids kind, const struct prof_array *array,
		   size_t row, uint32_t index)
{
	*number_map_at(&live->ids[kind], number(array, row)) = index;
}

static const char *text(const struct live *live, const struct prof_array *array, size_t row)
{
	return g_ptr_array_index(live->texts, refer(live, LIVE_STRINGS, array, row));
}

static void add_string(struct live *live, const struct prof_batch *batch, size_t row)
{
	const struct prof_array *array = &batch->columns[PROF_STRING_TEXT];
	g_autofree char *copy = NULL;
	uint64_t from, size;

	if (!array->bytes)
		return;
	from = array->offsets[row];
	size = MIN_OF(array->offsets[row + 1] - from, (uint64_t)MAX_TEXT);
	copy = text_escape_n((const char *)array->bytes + from, size);
	define(live, LIVE_STRINGS, &batch->columns[PROF_STRING_ID], row, live->texts->len);
	g_ptr_array_add(live->texts, g_string_chunk_insert_const(live->chunk, copy));
}

static void add_image(struct live *live, const struct prof_batch *batch, size_t row)
{
	const struct prof_array *columns = batch->columns;
	struct live_image image = {
		.path = text(live, &columns[PROF_IMAGE_PATH], row),
		.size = number(&columns[PROF_IMAGE_SIZE], row),
		.dev = number(&columns[PROF_IMAGE_DEV], row),
		.inode = number(&columns[PROF_IMAGE_INODE], row),
		.id = number(&columns[PROF_IMAGE_ID], row),
		.kind = (uint32_t)number(&columns[PROF_IMAGE_KIND], row),
		.process = refer(live, LIVE_PROCESSES, &columns[PROF_IMAGE_PROCESS], row),
	};
	const struct prof_array *build_ids = &columns[PROF_IMAGE_BUILD_ID];
	g_autoptr(GBytes) build_id =
		build_ids->bytes
			? g_bytes_new(build_ids->bytes + build_ids->offsets[row],
				      build_ids->offsets[row + 1] - build_ids->offsets[row])
			: g_bytes_new(NULL, 0);
	g_autofree char *id_text =
		g_base64_encode(g_bytes_get_data(build_id, NULL), g_bytes_get_size(build_id));
	/* A file that replaced another file of the same path is a different image. Anonymous memory
	 * is a different image for each process. */
	g_autofree char *key = g_strdup_printf("i%s %s %u %u %" PRIu64 " %" PRIu64 " %" PRIu64,
					       image.path, id_text, image.kind, image.process,
					       image.dev, image.inode, image.size);
	bool is_new;
	uint32_t index = key_number(live, key, live->images, &is_new);

	if (is_new) {
		g_autofree char *base = g_path_get_basename(image.path);

		image.path = g_string_chunk_insert(live->chunk, image.path);
		image.build_id = g_steal_pointer(&build_id);
		image.symbols = g_array_new(FALSE, FALSE, sizeof(struct live_symbol));
		image.pending = function_number(live, index, base, base);
		if (live->pending == 0)
			live->pending = function_number(live, 0, "[names are being read]", "");
		*LIVE_AT(live->images, live_image, index) = image;
	}
	LIVE_AT(live->images, live_image, index)->id = image.id;
	*number_map_at(&live->ids[LIVE_IMAGES], image.id) = index;
}

static uint32_t place_number(struct live *live, uint32_t image, uint64_t offset)
{
	const struct live_place place = {
		.offset = offset,
		.image = image,
		.function = LIVE_AT(live->images, live_image, image)->pending,
	};
	uint64_t key = (uint64_t)image << 40 ^ offset;
	uint32_t *slot;

	/* places rarely have equal hashes; those that do get consecutive keys */
	while (*(slot = number_map_at(&live->place_numbers, key)) != 0) {
		const struct live_place *known = LIVE_AT(live->places, live_place, *slot);

		if (known->image == image && known->offset == offset)
			return *slot;
		key++;
	}
	*slot = live->places->len;
	g_array_append_val(live->places, place);
	g_array_append_val(live->unnamed, *slot);
	return *slot;
}

static void add_frame(struct live *live, const struct prof_batch *batch, size_t row)
{
	const struct prof_array *columns = batch->columns;
	uint32_t image = refer(live, LIVE_IMAGES, &columns[PROF_FRAME_IMAGE], row);
	uint64_t offset = number(&columns[PROF_FRAME_OFFSET], row);

	if (image == 0)
		return;
	if (number(&columns[PROF_FRAME_KIND], row) == PROF_FRAME_RETURN && offset > 0)
		offset--;
	define(live, LIVE_FRAMES, &columns[PROF_FRAME_ID], row, place_number(live, image, offset));
}

static void add_stack(struct live *live, const struct prof_batch *batch, size_t row)
{
	const struct prof_array *columns = batch->columns;
	uint32_t node = cct_child(live->nodes, &live->node_numbers,
				  refer(live, LIVE_STACKS, &columns[PROF_STACK_PARENT], row),
				  refer(live, LIVE_FRAMES, &columns[PROF_STACK_FRAME], row));

	define(live, LIVE_STACKS, &columns[PROF_STACK_ID], row, node);
}

static void add_process(struct live *live, const struct prof_batch *batch, size_t row)
{
	const struct prof_array *columns = batch->columns;
	uint64_t pid = number(&columns[PROF_PROCESS_PID], row);
	g_autofree char *key = g_strdup_printf("p%" PRIu64 " %" PRIu64 " %" PRIu64, pid,
					       number(&columns[PROF_PROCESS_START_TIME], row),
					       number(&columns[PROF_PROCESS_EXEC_GENERATION], row));
	bool is_new;
	uint32_t index = key_number(live, key, live->processes, &is_new);

	if (is_new) {
		*LIVE_AT(live->processes, live_process, index) = (struct live_process){
			.pid = pid,
			.uid = number(&columns[PROF_PROCESS_UID], row),
			.start_ns = number(&columns[PROF_PROCESS_START_TIME], row),
			.comm = "",
		};
	}
	define(live, LIVE_PROCESSES, &columns[PROF_PROCESS_ID], row, index);
}

/* Adds a thread. A later row of the same thread replaces the thread's name. */
static void add_thread(struct live *live, const struct prof_batch *batch, size_t row)
{
	const struct prof_array *columns = batch->columns;
	uint32_t of = refer(live, LIVE_PROCESSES, &columns[PROF_THREAD_PROCESS], row);
	struct live_process *process = LIVE_AT(live->processes, live_process, of);
	const struct live_thread thread = {
		.tid = number(&columns[PROF_THREAD_TID], row),
		.comm = text(live, &columns[PROF_THREAD_COMM], row),
		.process = of,
	};
	g_autofree char *key = g_strdup_printf("t%" PRIu64 " %u %" PRIu64, thread.tid, of,
					       number(&columns[PROF_THREAD_START_TIME], row));
	bool is_new;
	uint32_t index = key_number(live, key, live->threads, &is_new);

	*LIVE_AT(live->threads, live_thread, index) = thread;
	if (of && (thread.tid == process->pid || !*process->comm))
		process->comm = thread.comm;
	define(live, LIVE_THREADS, &columns[PROF_THREAD_ID], row, index);
}

static void add_symbol_row(struct live *live, const struct prof_batch *batch, size_t row)
{
	const struct prof_array *columns = batch->columns;

	if (number(&columns[PROF_SYMBOL_INLINE_PARENT], row))
		return;
	live_add_symbol(live, refer(live, LIVE_IMAGES, &columns[PROF_SYMBOL_IMAGE], row),
			number(&columns[PROF_SYMBOL_START], row),
			number(&columns[PROF_SYMBOL_LENGTH], row),
			text(live, &columns[PROF_SYMBOL_NAME], row),
			text(live, &columns[PROF_SYMBOL_RAW_NAME], row));
}

static void add_sample(struct live *live, const struct prof_batch *batch, size_t row)
{
	const struct prof_array *columns = batch->columns;
	uint64_t second = number(&columns[PROF_SAMPLE_TIME], row) / NS_PER_SECOND;
	struct live_slice *slice = &live->slices[second % live->n_slices];
	uint32_t node = refer(live, LIVE_STACKS, &columns[PROF_SAMPLE_STACK], row);
	uint32_t thread = refer(live, LIVE_THREADS, &columns[PROF_SAMPLE_THREAD], row);
	uint32_t *index;

	live->samples++;
	if (second + live->n_slices <= live->last_second)
		return; /* before the window */
	live->last_second = MAX_OF(live->last_second, second);
	if (slice->second != second) {
		number_map_clear(&slice->counts);
		g_array_set_size(slice->amounts, 0);
	}
	slice->second = second;
	index = number_map_at(&slice->counts, (uint64_t)node << 32 | thread);
	if (*index == 0) {
		g_array_set_size(slice->amounts, slice->amounts->len + 1);
		*index = slice->amounts->len;
	}
	amount_add(&g_array_index(slice->amounts, struct amount, *index - 1),
		   (struct amount){
			   1, MAX_OF(number(&columns[PROF_SAMPLE_WEIGHT], row), UINT64_C(1)) });
}

static void add_loss(struct live *live, const struct prof_batch *batch, size_t row)
{
	if (number(&batch->columns[PROF_LOSS_CAUSE], row) != PROF_LOSS_TICKS_MISSED)
		/* a count of 0 means unknown, but at least one */
		live->lost += MAX_OF(number(&batch->columns[PROF_LOSS_COUNT], row), UINT64_C(1));
}

static void (*const adders[])(struct live *live, const struct prof_batch *batch, size_t row) = {
	[PROF_TABLE_STRING] = add_string,     [PROF_TABLE_IMAGE] = add_image,
	[PROF_TABLE_FRAME] = add_frame,       [PROF_TABLE_STACK] = add_stack,
	[PROF_TABLE_PROCESS] = add_process,   [PROF_TABLE_THREAD] = add_thread,
	[PROF_TABLE_SYMBOL] = add_symbol_row, [PROF_TABLE_SAMPLE] = add_sample,
	[PROF_TABLE_LOSS] = add_loss,
};

uint64_t live_tables(void)
{
	uint64_t tables = 0;

	for (unsigned table = 0; table < ARRAY_SIZE(adders); table++)
		tables |= adders[table] ? UINT64_C(1) << table : 0;
	return tables;
}

static void begin_epoch(struct live *live, uint32_t epoch)
{
	live->epoch = epoch;
	if (live->nodes->len > MAX_KNOWN || live->places->len > MAX_KNOWN ||
	    g_hash_table_size(live->keys) > MAX_KNOWN || live->texts->len > MAX_KNOWN) {
		clear(live);
		init(live);
		live->generation++;
	}
	for (unsigned i = 0; i < LIVE_ID_KINDS; i++)
		number_map_clear(&live->ids[i]);
	g_ptr_array_set_size(live->texts, 1);
}

void live_add(struct live *live, unsigned table, const struct prof_batch *batch)
{
	if (table >= ARRAY_SIZE(adders) || !adders[table])
		return;
	if (batch->epoch != live->epoch)
		begin_epoch(live, batch->epoch);
	for (size_t row = 0; row < batch->rows; row++)
		adders[table](live, batch, row);
}
