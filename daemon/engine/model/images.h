/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/out/output.h"
#include "daemon/protocol.h"

#include <glib.h>

#define IMAGE_BUILD_ID_MAX 20

/* The identity of a mapped file, as far as it is known. */
struct image_file {
	uint8_t build_id[IMAGE_BUILD_ID_MAX];
	uint32_t build_id_bytes;
	uint64_t dev, inode, inode_generation; /* generation 0: unknown */
};

struct unwind_file;

/* State of the image's CFI, from which its frames are unwound. */
enum image_unwind {
	IMAGE_UNWIND_UNREQUESTED, /* the file was not requested, or no table is needed */
	IMAGE_UNWIND_WAITING,     /* the broker or the worker is busy with the file */
	IMAGE_UNWIND_READY,
	IMAGE_UNWIND_NONE, /* the file is not available, or has no usable CFI */
};

/* The kind of a program's file; UNKNOWN until the broker answers. */
enum image_program {
	IMAGE_PROGRAM_UNKNOWN,
	IMAGE_PROGRAM_DYNAMIC,
	IMAGE_PROGRAM_STATIC,     /* names no dynamic linker */
	IMAGE_PROGRAM_OTHER_LIBC, /* names a dynamic linker other than glibc's */
	IMAGE_PROGRAM_OTHER_ARCH,
	IMAGE_PROGRAM_NONE, /* the file is not available, or is not a program */
};

/* Why the broker could not open a file through a process that maps it. */
enum image_failure {
	IMAGE_FAILED_NOT, /* the file was opened, or not requested through this process */
	IMAGE_ENDED,      /* the process has ended */
	IMAGE_REFUSED,    /* for example, another user's process, or the mapping was replaced */
};

struct jit_frames;
struct interp_runtime;

struct image {
	struct row row;
	enum prof_image_kind kind;
	char *path;
	struct image_file
		mapped; /* as the kernel described it; constant; the key is this and `path` */
	struct image_file opened; /* `mapped`, updated with the broker's findings */
	uint64_t size;
	int64_t ctime_ns;
	uint32_t owner, rights; /* as in struct message_image */
	enum image_program program;
	struct row *process;   /* anonymous memory: the process that it belongs to; referenced */
	bool requested;        /* a request is pending, succeeded, or must not be repeated */
	int32_t requested_pid; /* the process through which the file was requested last */
	/* pid through which the file could not be opened → enum image_failure; NULL: none */
	GHashTable *failed;
	uint8_t n_refused; /* number of processes that were refused so far */
	uint8_t n_ended;   /* number of processes that had ended; at most UINT8_MAX */
	enum image_unwind unwind_state;
	const struct unwind_file *unwind; /* when READY; lives as long as the session's tables */
	bool is_jit_dump;                 /* has the name of a dump that describes generated code */
	struct jit_frames *jit;           /* the dump's tables, once it is open and valid */
	const struct interp_runtime *runtime; /* the interpreter in the file; NULL: none is known */
};

struct images {
	GHashTable *by_key; /* struct image, by path and `mapped` */
	GHashTable *by_id;
	uint32_t last_id;
	struct image_file vdso; /* build-id of the vdso of 64-bit processes */
};

/* A mapping's description of its file. */
struct image_key {
	const char *path; /* not NUL-terminated */
	size_t path_bytes;
	const uint8_t *build_id;
	uint32_t build_id_bytes;
	uint64_t dev, inode, inode_generation;
	bool is_shared; /* MAP_SHARED */
	uint64_t start; /* start of the mapping; a vdso up to UINT32_MAX is a 32-bit process's */
};

/* Returns the length of the path without the kernel's suffix for a deleted file. */
size_t image_key_path_bytes(const struct image_key *key);
void images_init(struct images *images);
void images_done(struct images *images);
/* Returns the image of a mapping; NULL for anonymous memory, whose image its process keeps. */
struct image *images_of_mapping(struct images *images, const struct image_key *key);
struct image *images_by_id(const struct images *images, uint64_t id);
/* Returns why the file could not be opened through the process with this pid. */
enum image_failure image_failure(const struct image *image, int32_t pid);
/* Returns whether the file may be requested through the process with this pid: no request is
 * pending or has succeeded, and none through this process has failed. */
static inline bool image_may_request(const struct image *image, int32_t pid)
{
	return !image->requested && image_failure(image, pid) == IMAGE_FAILED_NOT;
}
/* Notes that the file could not be opened through the process `requested_pid`. The file may be
 * requested again through another process, unless too many processes were refused. */
void image_request_failed(struct image *image, enum image_failure failure);
/* Returns whether a process's stacks are walked without the file's table, instead of waiting until
 * the file is open: the file has no table, this process was refused, or many processes had ended
 * before the file was opened. */
bool image_is_given_up(const struct image *image, int32_t pid);
/* Updates the image with the broker's findings. */
void image_opened(struct image *image, const struct message_image *answer);
/* Makes an image that is not in the tables. `path` is copied. The caller owns the first
 * reference. */
struct image *images_new(struct images *images, enum prof_image_kind kind, const char *path,
			 struct row *process);
