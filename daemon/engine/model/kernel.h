/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/model/images.h"
#include "daemon/engine/out/output.h"

#include <glib.h>

/* Kernel code outside the kernel image: modules, BPF programs, trampolines. */
struct kernel_region {
	uint64_t start, end;
	struct image *image;
};

struct kernel {
	struct images *images;
	uint64_t text_start,
		text_end; /* _stext, and an upper bound of the image's end; 0: unknown */
	GArray *regions;  /* struct kernel_region, sorted; they do not overlap */
	struct image *image, *unknown;
	GHashTable *requested;     /* addresses, as pointers, whose symbols are to be looked up */
	GHashTable *written;       /* start addresses of written symbols, as pointers */
	uint64_t next_ns, wait_ns; /* next time and interval of kernel_write_symbols_soon() */
};

void kernel_init(struct kernel *kernel, struct images *images);
void kernel_done(struct kernel *kernel);
/* Sets the address of _stext. */
void kernel_set_text(struct kernel *kernel, uint64_t start);
void kernel_add_region(struct kernel *kernel, enum prof_image_kind kind, const char *name,
		       size_t name_bytes, uint64_t start, uint64_t length);
void kernel_remove_region(struct kernel *kernel, uint64_t start);
/* Returns the image that contains the address, never NULL, and the offset in it. */
struct image *kernel_find(struct kernel *kernel, uint64_t address, uint64_t *ret_offset);
/* Requests the symbol of a frame; kernel_write_symbols() writes it. */
void kernel_request(struct kernel *kernel, uint64_t address, enum prof_frame_kind kind);
/* Sets the address of _stext from kallsyms, unless addresses are hidden. */
void kernel_read_text(struct kernel *kernel, int kallsyms);
/* Looks up the requested addresses in kallsyms, and writes their symbols unless already written. */
void kernel_write_symbols(struct kernel *kernel, int kallsyms, struct output *output);
/* Like kernel_write_symbols(), at intervals, because reading kallsyms takes about 50 ms. The
 * intervals are longer without `is_read_live`: then, names are needed before the end only if the
 * recording is killed. */
void kernel_write_symbols_soon(struct kernel *kernel, int kallsyms, struct output *output,
			       bool is_read_live, uint64_t now_ns);
