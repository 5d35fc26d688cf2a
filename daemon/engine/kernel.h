/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/images.h"
#include "daemon/engine/output.h"

#include <glib.h>

/* Code of the kernel that is not in its image: modules, BPF programs, trampolines. */
struct kernel_region {
	uint64_t start, end;
	struct image *image;
};

struct kernel {
	struct images *images;
	uint64_t text_start,
		text_end; /* _stext and what nothing of the image is above; 0 = unknown */
	GArray *regions;  /* struct kernel_region, sorted and apart */
	struct image *image, *unknown;
	GHashTable
		*wanted; /* addresses of frames, as pointers, whose symbols are to be looked up */
	GHashTable *written;       /* where the symbols start that were written, as pointers */
	uint64_t next_ns, wait_ns; /* kernel_write_symbols_soon() */
};

void kernel_init(struct kernel *kernel, struct images *images);
void kernel_done(struct kernel *kernel);
/* Where _stext is. */
void kernel_set_text(struct kernel *kernel, uint64_t start);
void kernel_add_region(struct kernel *kernel, enum prof_image_kind kind, const char *name,
		       size_t name_bytes, uint64_t start, uint64_t length);
void kernel_remove_region(struct kernel *kernel, uint64_t start);
/* The image that an address belongs to, and where in it. Never NULL. */
struct image *kernel_find(struct kernel *kernel, uint64_t address, uint64_t *ret_offset);
/* A frame lies there: its symbol will be wanted. */
void kernel_want(struct kernel *kernel, uint64_t address, enum prof_frame_kind kind);
/* kernel-symbols.c. Finds _stext; stays without it where addresses are hidden. */
void kernel_read_text(struct kernel *kernel, int kallsyms);
/* Looks the wanted addresses up in kallsyms and writes those of their symbols that were not
 * written yet. */
void kernel_write_symbols(struct kernel *kernel, int kallsyms, struct output *output);
/* The same, for who reads the capture while it is written: now and then, as reading kallsyms
 * takes some 50 ms. */
void kernel_write_symbols_soon(struct kernel *kernel, int kallsyms, struct output *output,
			       uint64_t now_ns);
