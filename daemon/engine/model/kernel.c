/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Kernel - finds the kernel image, module or BPF program of an address
 *
 * Frames in the kernel's own text are stored as offsets from _stext, frames in a module as offsets
 * from its start, so that they remain valid after a reboot. PERF_RECORD_KSYMBOL reports BPF
 * programs and trampolines as they come and go; each is an image named after its symbol. If
 * kallsyms hides addresses, frames in the text keep absolute addresses.
 * Invariants: (1) regions are sorted and do not overlap  [test-engine-samples: regions]
 * Runs on the drain thread only.
 */
#include "daemon/engine/model/kernel.h"

#include "arch/base.h"

#define IMAGE_SPACE (UINT64_C(1) << 30) /* size and alignment of x86's range for the image */
/* Minimum size that is assumed, because on other architectures the image may begin anywhere. */
#define IMAGE_LEAST (UINT64_C(256) << 20)

void kernel_init(struct kernel *kernel, struct images *images)
{
	*kernel = (struct kernel){
		.images = images,
		.regions = g_array_new(FALSE, FALSE, sizeof(struct kernel_region)),
		.requested = g_hash_table_new(g_direct_hash, g_direct_equal),
		.written = g_hash_table_new(g_direct_hash, g_direct_equal),
		.image = images_new(images, PROF_IMAGE_KERNEL, "[kernel]", NULL),
		.unknown = images_new(images, PROF_IMAGE_KERNEL, "[unknown kernel]", NULL),
	};
}

static void release_region(struct kernel *kernel, guint i)
{
	row_unref(&g_array_index(kernel->regions, struct kernel_region, i).image->row);
	g_array_remove_index(kernel->regions, i);
}

void kernel_done(struct kernel *kernel)
{
	if (!kernel->regions)
		return;
	while (kernel->regions->len)
		release_region(kernel, kernel->regions->len - 1);
	g_array_free(kernel->regions, TRUE);
	g_hash_table_destroy(kernel->written);
	g_hash_table_destroy(kernel->requested);
	row_unref(&kernel->image->row);
	row_unref(&kernel->unknown->row);
	*kernel = (struct kernel){ 0 };
}

void kernel_set_text(struct kernel *kernel, uint64_t start)
{
	uint64_t space_end = (start | (IMAGE_SPACE - 1)) + 1;

	kernel->text_start = start;
	kernel->text_end = space_end - start < IMAGE_LEAST ? start + IMAGE_LEAST : space_end;
}

/* Returns the index of the first region that ends above the address. */
static guint lower_bound(const struct kernel *kernel, uint64_t address)
{
	guint low = 0, high = kernel->regions->len, middle;

	while (low < high) {
		middle = low + (high - low) / 2;
		if (g_array_index(kernel->regions, struct kernel_region, middle).end > address)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

void kernel_add_region(struct kernel *kernel, enum prof_image_kind kind, const char *name,
		       size_t name_bytes, uint64_t start, uint64_t length)
{
	struct kernel_region region = { .start = start };
	g_autofree char *path = g_strndup(name, name_bytes);
	guint i = lower_bound(kernel, start);

	if (length == 0 || !add_u64(start, length, &region.end))
		return;
	while (i < kernel->regions->len &&
	       g_array_index(kernel->regions, struct kernel_region, i).start < region.end)
		release_region(kernel, i);
	region.image = images_new(kernel->images, kind, path, NULL);
	g_array_insert_val(kernel->regions, i, region);
}

void kernel_remove_region(struct kernel *kernel, uint64_t start)
{
	guint i = lower_bound(kernel, start);

	if (i < kernel->regions->len &&
	    g_array_index(kernel->regions, struct kernel_region, i).start == start)
		release_region(kernel, i);
}

struct image *kernel_find(struct kernel *kernel, uint64_t address, uint64_t *ret_offset)
{
	const struct kernel_region *region;
	guint i = lower_bound(kernel, address);

	if (i < kernel->regions->len) {
		region = &g_array_index(kernel->regions, struct kernel_region, i);
		if (address >= region->start) {
			*ret_offset = address - region->start;
			return region->image;
		}
	}
	if (kernel->text_start && address >= kernel->text_start && address < kernel->text_end) {
		*ret_offset = address - kernel->text_start;
		return kernel->image;
	}
	*ret_offset = address;
	return kernel->unknown;
}

void kernel_request(struct kernel *kernel, uint64_t address, enum prof_frame_kind kind)
{
	g_hash_table_add(kernel->requested,
			 GSIZE_TO_POINTER(address - (kind == PROF_FRAME_RETURN)));
}
