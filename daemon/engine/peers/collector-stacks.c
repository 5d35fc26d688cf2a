/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Collector stacks - turns a producer's images and stacks into rows of the tables image, frame and
 * stack
 *
 * The frames of each stack are kept, so that every epoch that uses the stack can write it again. If
 * the side band has the same image at the same address of the process, that image is used.
 * Otherwise the image has only what the process announced, and no file is requested, because a
 * process could name any file. The address of a frame without an image is looked up in the file
 * mappings of the side band and of the process; if none matches, it is an address of the process's
 * own memory.
 * Invariants: (1) an id in a ring refers only to its producer's images and stacks
 *                 [test-engine-collectors-stacks: stack_ids]
 *             (2) the data kept for a process is bounded, and the excess is counted as lost
 *                 [test-engine-collectors-stacks: endless_stacks]
 *             (3) a stack needs neither the side band nor a live process
 *                 [test-engine-collectors-stacks: stacks]
 * Runs on the drain thread only.
 */
#include "daemon/engine/peers/collector-stacks.h"

#include "arch/base.h"

struct announced_image {
	struct image *image; /* NULL: not a file; its frames are addresses */
	uint64_t start, file_offset;
};

struct announced_stack {
	uint32_t n;
	uint32_t epoch, id; /* last epoch that has the stack, and its id there */
	struct output_place places[];
};

static void free_stack(gpointer data)
{
	struct announced_stack *stack = data;

	for (uint32_t i = 0; i < stack->n; i++)
		row_unref(stack->places[i].image);
	g_free(stack);
}

static int64_t bytes_of(uint32_t n)
{
	return (int64_t)(COLLECTOR_HEAP_BYTES + n * sizeof(struct output_place));
}

void collector_stacks_init(struct collector_stacks *stacks, struct collector_process *process)
{
	stacks->process = process;
	stacks->images = g_hash_table_new_full(g_direct_hash, g_direct_equal, NULL, g_free);
	stacks->stacks = g_hash_table_new_full(g_direct_hash, g_direct_equal, NULL, free_stack);
}

void collector_stacks_done(struct collector_stacks *stacks)
{
	GHashTableIter iter;
	gpointer value;

	g_hash_table_iter_init(&iter, stacks->stacks);
	while (g_hash_table_iter_next(&iter, NULL, &value))
		collector_process_charge(stacks->process,
					 -bytes_of(((struct announced_stack *)value)->n));
	collector_process_charge(stacks->process, -(int64_t)COLLECTOR_HEAP_BYTES *
							  g_hash_table_size(stacks->images));
	g_hash_table_destroy(stacks->stacks);
	g_hash_table_destroy(stacks->images);
}

static void refuse(const struct collector_stacks *stacks, uint64_t time_ns)
{
	loss_stream_add(&stacks->process->losses, PROF_LOSS_RING_REFUSED, 1, time_ns, time_ns);
}

/* ---- Images ---------------------------------------------------------------------------------- */

/* Compares path, build-id and inode. Ignores a build-id or inode that either side lacks. */
static bool is_same_file(const struct image *image, const struct image_key *key)
{
	const uint32_t n = image->mapped.build_id_bytes;
	const size_t n_path = image_key_path_bytes(key);

	return image->kind != PROF_IMAGE_ANON && strlen(image->path) == n_path &&
	       memcmp(image->path, key->path, n_path) == 0 &&
	       (n == 0 || key->build_id_bytes == 0 ||
		(n == key->build_id_bytes &&
		 memcmp(image->mapped.build_id, key->build_id, n) == 0)) &&
	       (image->mapped.inode == 0 || key->inode == 0 || image->mapped.inode == key->inode);
}

/* Returns the image of an announced mapping: the side band's if it is the same file, otherwise an
 * image with only what was announced. Returns NULL for anonymous memory. */
static struct image *find_image(struct collector_process *process,
				const struct ring_image *announced, const struct image_key *key)
{
	struct collector_rows *rows = process->rows;
	const struct mapping *mapping = maps_find(process->process->maps, announced->start);
	uint32_t last = rows->images->last_id;
	struct image *image = mapping ? mapping->image : NULL;

	if (image &&
	    mapping->file_offset - mapping->start == announced->file_offset - announced->start &&
	    is_same_file(image, key)) {
		if (image->kind == PROF_IMAGE_FILE && rows->request_image &&
		    image_may_request(image, process->pid)) {
			image->requested = true;
			rows->request_image(image, mapping, process->pid, rows->request_data);
		}
		return image;
	}
	image = images_of_mapping(rows->images, key);
	process->n_images += rows->images->last_id - last;
	rows->n_images += rows->images->last_id - last;
	return image;
}

enum ring_fault collector_stacks_add_image(struct collector_stacks *stacks,
					   const struct ring_image *announced, const char *path,
					   size_t n_path, uint64_t time_ns)
{
	struct collector_process *process = stacks->process;
	const struct image_key key = {
		.path = path,
		.path_bytes = strnlen(path ? path : "", MIN_OF(n_path, (size_t)OUTPUT_MAX_PATH)),
		.build_id = (const uint8_t *)(announced + 1),
		.build_id_bytes = announced->n_build_id_bytes,
		.dev = announced->dev,
		.inode = announced->inode,
		.start = announced->start,
	};
	gpointer id = GUINT_TO_POINTER(announced->id);
	struct mapping mapping = {
		.start = announced->start,
		.end = announced->end,
		.file_offset = announced->file_offset,
	};
	struct announced_image *kept;

	if (announced->start >= announced->end)
		return RING_FAULT_PAYLOAD;
	if (announced->id == 0)
		return RING_FAULT_NONE;
	if (g_hash_table_size(stacks->images) >= COLLECTOR_MAX_IDS ||
	    process->n_images >= COLLECTOR_MAX_IMAGES ||
	    process->rows->n_images >= COLLECTOR_ALL_IMAGES ||
	    process->code->n >= COLLECTOR_MAX_IMAGES ||
	    (!g_hash_table_contains(stacks->images, id) &&
	     !collector_process_reserve(process, COLLECTOR_HEAP_BYTES))) {
		refuse(stacks, time_ns);
		return RING_FAULT_NONE;
	}
	mapping.image = find_image(process, announced, &key);
	kept = g_new(struct announced_image, 1);
	*kept = (struct announced_image){ mapping.image, mapping.start, mapping.file_offset };
	g_hash_table_replace(stacks->images, id, kept);
	/* Later frames without an image are looked up in this mapping. */
	maps_insert(&process->code, &mapping);
	return RING_FAULT_NONE;
}

/* ---- Stacks ---------------------------------------------------------------------------------- */

struct image *collector_lost_image(struct collector_rows *rows)
{
	if (!rows->lost_image)
		rows->lost_image = images_new(rows->images, PROF_IMAGE_ANON, "<lost>", NULL);
	return rows->lost_image;
}

struct image *collector_cut_image(struct collector_rows *rows)
{
	if (!rows->cut_image)
		rows->cut_image = images_new(rows->images, PROF_IMAGE_ANON, "<cut>", NULL);
	return rows->cut_image;
}

struct image *collector_unread_image(struct collector_rows *rows)
{
	if (!rows->unread_image)
		rows->unread_image =
			images_new(rows->images, PROF_IMAGE_ANON, "<functions not read>", NULL);
	return rows->unread_image;
}

static const struct mapping *find_mapping(struct collector_process *process, uint64_t address)
{
	const struct mapping *mapping = maps_find(process->process->maps, address);

	return mapping ? mapping : maps_find(process->code, address);
}

struct image *collector_stacks_image(struct collector_stacks *stacks, uint64_t address)
{
	const struct mapping *mapping = find_mapping(stacks->process, address);

	return mapping ? mapping->image : NULL;
}

static struct output_place place_of_address(struct collector_process *process, uint64_t address,
					    uint32_t kind)
{
	uint64_t byte = address - (kind & RING_FRAME_RETURN ? 1 : 0);
	const struct mapping *mapping = NULL;

	if (!(kind & RING_FRAME_NO_FILE))
		mapping = find_mapping(process, byte);
	if (mapping && mapping->image)
		return (struct output_place){
			.image = &mapping->image->row,
			.offset = address - mapping->start + mapping->file_offset,
		};
	return (struct output_place){
		.image = &process_anon_image(process->process, process->rows->images)->row,
		.offset = address,
	};
}

static struct output_place place_of(struct collector_stacks *stacks, const struct ring_frame *frame)
{
	struct collector_process *process = stacks->process;
	const struct announced_image *announced;

	if (frame->image == 0)
		return place_of_address(process, frame->offset, frame->kind);
	announced = g_hash_table_lookup(stacks->images, GUINT_TO_POINTER(frame->image));
	if (!announced)
		return (struct output_place){ .image = &collector_lost_image(process->rows)->row,
					      .offset = frame->offset };
	if (!announced->image)
		return place_of_address(process,
					frame->offset - announced->file_offset + announced->start,
					frame->kind | RING_FRAME_NO_FILE);
	return (struct output_place){ .image = &announced->image->row, .offset = frame->offset };
}

struct output_place collector_stacks_place(struct collector_stacks *stacks,
					   const struct ring_frame *frame)
{
	struct output_place place = place_of(stacks, frame);

	place.kind = frame->kind & RING_FRAME_RETURN ? PROF_FRAME_RETURN : PROF_FRAME_EXACT;
	return place;
}

enum ring_fault collector_stacks_add(struct collector_stacks *stacks,
				     const struct ring_stack *announced, uint64_t time_ns)
{
	const struct ring_frame *frames = (const void *)(announced + 1);
	const struct announced_stack *before;
	struct announced_stack *kept;

	for (uint32_t i = 0; i < announced->n_frames; i++)
		if (frames[i].kind & ~(RING_FRAME_RETURN | RING_FRAME_NO_FILE))
			return RING_FAULT_PAYLOAD;
	if (announced->id == 0)
		return RING_FAULT_NONE;
	before = g_hash_table_lookup(stacks->stacks, GUINT_TO_POINTER(announced->id));
	if (before)
		collector_process_charge(stacks->process, -bytes_of(before->n));
	g_hash_table_remove(stacks->stacks, GUINT_TO_POINTER(announced->id));
	if (g_hash_table_size(stacks->stacks) >= COLLECTOR_MAX_IDS ||
	    !collector_process_reserve(stacks->process, (uint64_t)bytes_of(announced->n_frames))) {
		refuse(stacks, time_ns);
		return RING_FAULT_NONE;
	}
	kept = g_malloc0(sizeof(*kept) + announced->n_frames * sizeof(*kept->places));
	kept->n = announced->n_frames;
	for (uint32_t i = 0; i < kept->n; i++) {
		struct output_place *place = &kept->places[kept->n - 1 - i];

		*place = collector_stacks_place(stacks, &frames[i]);
		row_ref(place->image);
	}
	g_hash_table_insert(stacks->stacks, GUINT_TO_POINTER(announced->id), kept);
	return RING_FAULT_NONE;
}

uint32_t collector_stacks_id(struct collector_stacks *stacks, uint32_t id, uint64_t time_ns)
{
	struct collector_rows *rows = stacks->process->rows;
	struct output *output = rows->output;
	struct announced_stack *stack;

	if (id == 0)
		return 0;
	stack = g_hash_table_lookup(stacks->stacks, GUINT_TO_POINTER(id));
	if (!stack) {
		loss_stream_add(&stacks->process->losses, PROF_LOSS_RING_CORRUPT, 1, time_ns,
				time_ns);
		return 0;
	}
	if (stack->epoch == output->epoch || stack->n == 0)
		return stack->id;
	output_frames(output, stack->places, stack->n, rows->frames, rows->added);
	output_stacks(output, 0, rows->frames, stack->n, rows->stacks);
	stack->id = rows->stacks[stack->n - 1];
	stack->epoch = output->epoch;
	return stack->id;
}

uint32_t collector_stacks_node(struct collector_stacks *stacks, uint32_t id,
			       struct call_nodes *nodes)
{
	const struct announced_stack *stack =
		g_hash_table_lookup(stacks->stacks, GUINT_TO_POINTER(id));
	uint32_t node = 0;

	for (uint32_t i = 0; stack && i < stack->n; i++) {
		uint32_t called = call_nodes_add(nodes, node, &stack->places[i]);

		if (!called)
			break;
		node = called;
	}
	return node;
}
