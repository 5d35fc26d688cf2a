/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Images - the files, and other sources such as the vdso, that code was executed from
 *
 * The kernel's records identify a mapped file either by build-id or by device, inode and
 * generation, as requested. The key of an image is this identity and the path. The rest of a file's
 * identity comes from the broker, which opens the file when a sample first hits it. So a file that
 * was mapped before the recording and is mapped again may be two images with one identity; readers
 * merge them. Code in memory without a file, or in a shared mapping of a file that exists only in
 * memory (memfd), belongs to one process. The process keeps the image of such code, and offsets in
 * that image are addresses.
 * Invariants: (1) a key has one image for the whole session  [test-engine-tasks: images]
 *             (2) a replaced file is another image                     [test-engine-tasks: images]
 *             (3) if a file could not be opened through a process, it is not requested through
 *                 that process again, until MAX_FAILED processes have failed
 *                 [test-engine-unwind: failed_requests]
 * Runs on the drain thread only.
 */
#include "daemon/engine/model/images.h"

#include "arch/jit-dump.h"
#include "daemon/engine/model/vdso.h"

#include <string.h>

#define MAX_REFUSED 4   /* after this many refused processes, the file is not requested again */
#define MAX_FAILED 1024 /* maximum number of pids that are kept for each file */
#define MANY_ENDED 100  /* after this many ended processes, stacks do not wait for the file */

static const char deleted[] = " (deleted)";

static void write_image(struct row *row, struct output *output)
{
	struct image *image = (struct image *)row;

	if (image->process)
		output_need(output, image->process);
	output_add(output, PROF_TABLE_IMAGE,
		   (const struct prof_value[]){
			   [PROF_IMAGE_ID] = PROF_NUMBER(row->id),
			   [PROF_IMAGE_PATH] = PROF_NUMBER(output_text(output, image->path)),
			   [PROF_IMAGE_BUILD_ID] =
				   PROF_BYTES(image->opened.build_id, image->opened.build_id_bytes),
			   [PROF_IMAGE_SIZE] = PROF_NUMBER(image->size),
			   [PROF_IMAGE_DEV] = PROF_NUMBER(image->opened.dev),
			   [PROF_IMAGE_INODE] = PROF_NUMBER(image->opened.inode),
			   [PROF_IMAGE_KIND] = PROF_NUMBER(image->kind),
			   [PROF_IMAGE_CTIME] = PROF_NUMBER(image->ctime_ns),
			   [PROF_IMAGE_PROCESS] =
				   PROF_NUMBER(image->process ? image->process->id : 0),
		   });
}

static void free_image(struct row *row)
{
	struct image *image = (struct image *)row;

	row_unref(image->process);
	g_clear_pointer(&image->failed, g_hash_table_unref);
	g_free(image->path);
	g_free(image);
}

static guint hash_key(gconstpointer data)
{
	const struct image *image = data;
	guint hash = g_str_hash(image->path);
	uint32_t word = 0;

	if (image->mapped.build_id_bytes)
		memcpy(&word, image->mapped.build_id, sizeof(word));
	else
		word = image->mapped.inode * 31 + image->mapped.dev;
	return hash ^ word;
}

static gboolean same_key(gconstpointer a, gconstpointer b)
{
	const struct image_file *x = &((const struct image *)a)->mapped;
	const struct image_file *y = &((const struct image *)b)->mapped;

	if (strcmp(((const struct image *)a)->path, ((const struct image *)b)->path) != 0 ||
	    x->build_id_bytes != y->build_id_bytes)
		return FALSE;
	/* A container's library may have the path and build-id of the host's library (from the same
	 * package), but is another file. */
	return memcmp(x->build_id, y->build_id, x->build_id_bytes) == 0 && x->dev == y->dev &&
	       x->inode == y->inode && x->inode_generation == y->inode_generation;
}

void images_init(struct images *images)
{
	*images = (struct images){
		.by_key = g_hash_table_new(hash_key, same_key),
		.by_id = g_hash_table_new_full(g_direct_hash, g_direct_equal, NULL,
					       (GDestroyNotify)row_unref),
	};
	images->vdso.build_id_bytes =
		vdso_read_build_id(images->vdso.build_id, sizeof(images->vdso.build_id));
}

void images_done(struct images *images)
{
	g_clear_pointer(&images->by_key, g_hash_table_destroy);
	g_clear_pointer(&images->by_id, g_hash_table_destroy);
	*images = (struct images){ 0 };
}

struct image *images_new(struct images *images, enum prof_image_kind kind, const char *path,
			 struct row *process)
{
	struct image *image = g_new0(struct image, 1);

	row_init(&image->row, ++images->last_id, write_image, free_image);
	image->kind = kind;
	image->path = g_strdup(path);
	image->process = process ? row_ref(process) : NULL;
	image->is_jit_dump = kind == PROF_IMAGE_FILE && jit_dump_pid_of_path(path) > 0;
	return image;
}

static bool has_prefix(const struct image_key *key, const char *prefix)
{
	size_t n = strlen(prefix);

	return key->path_bytes >= n && memcmp(key->path, prefix, n) == 0;
}

size_t image_key_path_bytes(const struct image_key *key)
{
	size_t n = sizeof(deleted) - 1;

	if (key->path_bytes > n && memcmp(key->path + key->path_bytes - n, deleted, n) == 0)
		return key->path_bytes - n;
	return key->path_bytes;
}

struct image *images_of_mapping(struct images *images, const struct image_key *key)
{
	bool vdso = key->path_bytes == 6 && has_prefix(key, "[vdso]");
	struct image sought = { 0 };
	struct image_file *file = &sought.mapped;
	struct image *image;
	g_autofree char *path = NULL;

	/* These are the kernel's names for mappings without a file on disk (fs/proc/task_mmu.c,
	 * kernel/events/core.c). A private mapping of a memfd counts as a file. A shared one does
	 * not: compilers map a memfd in this way to write the code that they generate. */
	if (!vdso && (key->path_bytes == 0 || key->path[0] != '/' || has_prefix(key, "//anon") ||
		      (has_prefix(key, "/memfd:") && key->is_shared) ||
		      has_prefix(key, "/dev/zero") || has_prefix(key, "/SYSV") ||
		      has_prefix(key, "/anon_hugepage") || has_prefix(key, "/[aio]")))
		return NULL;
	sought.path = path = g_strndup(key->path, image_key_path_bytes(key));
	if (!vdso) {
		/* Snapshots of /proc may have a build-id as well as device and inode; perf records
		 * have one or the other. */
		file->dev = key->dev;
		file->inode = key->inode;
		file->inode_generation = key->inode_generation;
		if (key->build_id_bytes > 0 && key->build_id_bytes <= sizeof(file->build_id)) {
			memcpy(file->build_id, key->build_id, key->build_id_bytes);
			file->build_id_bytes = key->build_id_bytes;
		}
	} else if (key->start > UINT32_MAX) {
		*file = images->vdso;
	}
	image = g_hash_table_lookup(images->by_key, &sought);
	if (!image) {
		image = images_new(images, vdso ? PROF_IMAGE_VDSO : PROF_IMAGE_FILE, path, NULL);
		image->mapped = image->opened = *file;
		g_hash_table_add(images->by_key, image);
		g_hash_table_insert(images->by_id, GUINT_TO_POINTER(image->row.id), image);
	}
	return image;
}

enum image_failure image_failure(const struct image *image, int32_t pid)
{
	return image->failed
		       ? GPOINTER_TO_INT(g_hash_table_lookup(image->failed, GINT_TO_POINTER(pid)))
		       : IMAGE_FAILED_NOT;
}

bool image_is_given_up(const struct image *image, int32_t pid)
{
	return image->unwind_state == IMAGE_UNWIND_NONE ||
	       (image->unwind_state == IMAGE_UNWIND_UNREQUESTED &&
		(image->n_ended >= MANY_ENDED || image_failure(image, pid) == IMAGE_REFUSED));
}

void image_request_failed(struct image *image, enum image_failure failure)
{
	if (!image->failed)
		image->failed = g_hash_table_new(g_direct_hash, g_direct_equal);
	/* Bounds the table. The kernel may have reused the old pids anyway. */
	if (g_hash_table_size(image->failed) >= MAX_FAILED)
		g_hash_table_remove_all(image->failed);
	g_hash_table_insert(image->failed, GINT_TO_POINTER(image->requested_pid),
			    GINT_TO_POINTER(failure));
	if (failure == IMAGE_REFUSED)
		image->n_refused++;
	else if (image->n_ended < UINT8_MAX)
		image->n_ended++;
	image->requested = image->n_refused == MAX_REFUSED;
	if (!image->requested)
		return;
	image->unwind_state = IMAGE_UNWIND_NONE;
	image->program = IMAGE_PROGRAM_NONE;
}

struct image *images_by_id(const struct images *images, uint64_t id)
{
	if (id > images->last_id)
		return NULL;
	return g_hash_table_lookup(images->by_id, GUINT_TO_POINTER((guint)id));
}

void image_opened(struct image *image, const struct message_image *answer)
{
	image->opened.dev = answer->dev;
	image->opened.inode = answer->inode;
	image->size = answer->size;
	image->ctime_ns = answer->ctime_ns;
	image->owner = answer->owner;
	image->rights = answer->rights;
	if (answer->build_id_size == 0 || answer->build_id_size > sizeof(image->opened.build_id))
		return;
	memcpy(image->opened.build_id, answer->build_id, answer->build_id_size);
	image->opened.build_id_bytes = answer->build_id_size;
}
