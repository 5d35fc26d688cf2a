/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/output.h"
#include "daemon/engine/record.h"
#include "daemon/protocol.h"

#include <glib.h>

/* The file that a mapping names: by what of these the kernel told. */
struct image_file {
	uint8_t build_id[RECORD_BUILD_ID_MAX];
	uint32_t build_id_bytes;
	uint64_t dev, inode, inode_generation; /* generation 0: unknown */
};

struct unwind_file;

/* Whether frames in the image can be walked through by its CFI. */
enum image_unwind {
	IMAGE_UNWIND_UNASKED, /* the file was not asked for, or a table is not wanted */
	IMAGE_UNWIND_WAITING, /* the broker or the worker has it */
	IMAGE_UNWIND_READY,
	IMAGE_UNWIND_NONE, /* the file cannot be had, or has no usable CFI */
};

/* What kind of program the file is, where that was asked for. */
enum image_program {
	IMAGE_PROGRAM_UNKNOWN,
	IMAGE_PROGRAM_DYNAMIC,
	IMAGE_PROGRAM_STATIC,     /* it names no dynamic linker */
	IMAGE_PROGRAM_OTHER_LIBC, /* it names one that is not glibc's */
	IMAGE_PROGRAM_OTHER_ARCH,
	IMAGE_PROGRAM_NONE, /* the file cannot be had, or is none */
};

struct jit_frames;

struct image {
	struct row row;
	enum prof_image_kind kind;
	char *path;
	struct image_file mapped; /* the key: does not change */
	struct image_file opened; /* what the broker found, over it */
	uint64_t size;
	int64_t ctime_ns;
	uint32_t owner, rights; /* as in struct message_image */
	enum image_program program;
	struct row *process; /* anon: whose addresses these are; referenced */
	bool requested;      /* the broker was asked to open it */
	enum image_unwind unwind_state;
	const struct unwind_file *unwind; /* when ready; lives as long as the session's tables */
	bool is_jit_dump; /* by its name: what a program writes of the code that it generates */
	struct jit_frames *jit; /* the same, when ready and if it is one */
};

struct images {
	GHashTable *by_key; /* struct image, by build-id or file, and path */
	GHashTable *by_id;
	uint32_t last_id;
	struct image_file vdso; /* of 64-bit processes */
};

/* What a mapping tells about the file behind it. */
struct image_key {
	const char *path; /* not NUL-terminated */
	size_t path_bytes;
	const uint8_t *build_id;
	uint32_t build_id_bytes;
	uint64_t dev, inode, inode_generation;
	bool is_shared; /* MAP_SHARED */
	uint64_t start; /* where it is mapped: the vdso of a 32-bit process is another one */
};

/* Without what the kernel says behind the name of a file that was deleted. */
size_t image_key_path_bytes(const struct image_key *key);
void images_init(struct images *images);
void images_done(struct images *images);
/* The image of a mapping; NULL when it is anonymous memory, whose image belongs to its process. */
struct image *images_of_mapping(struct images *images, const struct image_key *key);
struct image *images_by_id(const struct images *images, uint64_t id);
/* Takes what the broker found over what the mapping said. */
void image_opened(struct image *image, const struct message_image *answer);
/* An image that is found by its holder only. `path` is copied. The caller has the first
 * reference. */
struct image *images_new(struct images *images, enum prof_image_kind kind, const char *path,
			 struct row *process);
