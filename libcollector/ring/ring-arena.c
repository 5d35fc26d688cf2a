/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Ring arena - the engine's side: makes the memory for a process's rings
 *
 * The arena is a memfd. It is sized, populated, then sealed, so that neither side can raise SIGBUS
 * in the other, and a target that is out of memory gets that error only in malloc(). Rings that
 * most processes never need are populated later. Until then their state is closed, so that no
 * thread claims them.
 * Invariants: (1) a holder of the fd cannot change its size         [test-ring: arena]
 *             (2) no two rings overlap                              [test-ring: arena]
 *             (3) all pages of a claimable ring are populated [test-ring: grow]
 */
#include "libcollector/ring/ring-arena.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U /* linux/memfd.h, 6.3 */
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* linux/mman.h, 5.14 */
#endif

#define MAX_PAGE UINT64_C(65536) /* largest page size of any machine */

struct layout {
	uint32_t n_rings, n_places;
	uint64_t data_offset;
	/* sizes with all headers: of the part that is populated now, and of the whole arena */
	uint64_t ready_bytes, bytes;
};

static uint64_t up(uint64_t value, uint64_t unit)
{
	return (value + unit - 1) / unit * unit;
}

static uint32_t count_sizes(const struct ring_arena_sizes *sizes)
{
	uint32_t n = 0;

	while (n < RING_ARENA_MAX_SIZES && sizes->sizes[n].n > 0)
		n++;
	return n;
}

static int measure(const struct ring_arena_sizes *sizes, struct layout *ret_layout)
{
	uint32_t n = count_sizes(sizes), n_ready = n;
	uint64_t before = 0, bytes = 0;
	struct layout layout = { 0 };

	/* If the kernel cannot populate pages later, populate rings of all sizes now. */
	if (madvise(NULL, 0, MADV_POPULATE_WRITE) == 0 && sizes->n_later < n)
		n_ready = n - sizes->n_later;

	for (uint32_t i = 0; i < n; i++) {
		const struct ring_arena_size *size = &sizes->sizes[i];

		if (size->data_bytes < RING_MIN_BYTES || size->data_bytes > RING_MAX_BYTES ||
		    (size->data_bytes & (size->data_bytes - 1)) != 0 || size->data_bytes < before ||
		    size->n > RING_MAX_RINGS)
			return -EINVAL;
		before = size->data_bytes;
		bytes += size->n * size->data_bytes;
		layout.n_places += size->n;
		if (i < n_ready) {
			layout.n_rings = layout.n_places;
			layout.ready_bytes = bytes;
		}
	}
	layout.data_offset = up(up(sizeof(struct ring_arena_header) +
					   layout.n_places * sizeof(struct ring_place),
				   RING_LINE) +
					layout.n_places * sizeof(struct ring_header),
				RING_PAGE);
	if (layout.n_places == 0 || layout.n_places > RING_MAX_RINGS ||
	    bytes > RING_ARENA_MAX_BYTES - layout.data_offset)
		return -EINVAL;
	layout.ready_bytes += layout.data_offset;
	layout.bytes = layout.data_offset + bytes;
	*ret_layout = layout;
	return 0;
}

static void fill(const struct ring_arena_sizes *sizes, struct ring_arena_memory *memory,
		 uint64_t data)
{
	struct ring_arena_header *header = (void *)memory->base;
	uint64_t at = up(sizeof(*header) + memory->n_places * sizeof(struct ring_place), RING_LINE);
	uint32_t place = 0;

	*header = (struct ring_arena_header){
		.magic = RING_MAGIC,
		.version = RING_VERSION,
		.header_bytes = sizeof(*header),
		.arena_bytes = memory->bytes,
		.n_rings = memory->n_places,
		.directory_offset = sizeof(*header),
		.clock = RING_CLOCK_MONOTONIC,
		.n_types = sizes->n_types ? sizes->n_types : RING_N_TYPES,
	};
	for (size_t i = 0; i < RING_ARENA_MAX_SIZES && sizes->sizes[i].n > 0; i++)
		for (uint32_t j = 0; j < sizes->sizes[i].n; j++, place++) {
			struct ring_header *ring = (void *)(memory->base + at);

			memory->places[place] = (struct ring_place){
				.header_offset = at,
				.data_offset = data,
				.data_bytes = sizes->sizes[i].data_bytes,
			};
			ring->policy = (uint32_t)sizes->sizes[i].policy;
			ring->state = place < memory->n_rings ? RING_FREE : RING_CLOSED;
			at += sizeof(*ring);
			data += sizes->sizes[i].data_bytes;
		}
	memcpy(memory->base + sizeof(*header), memory->places,
	       memory->n_places * sizeof(struct ring_place));
}

static int make_file(const struct layout *layout, int *ret_fd)
{
	unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
	CLEANUP_CLOSE int fd = memfd_create("prof-arena", flags | MFD_NOEXEC_SEAL);

	if (fd < 0 && errno == EINVAL)
		fd = memfd_create("prof-arena", flags);
	if (fd < 0 || ftruncate(fd, (off_t)layout->bytes) < 0 ||
	    fallocate(fd, 0, 0, (off_t)layout->ready_bytes) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		return -errno;
	*ret_fd = steal_fd(&fd);
	return 0;
}

int ring_arena_make(const struct ring_arena_sizes *sizes, struct ring_arena_memory *ret_memory,
		    int *ret_fd)
{
	struct ring_arena_memory memory = { 0 };
	CLEANUP_CLOSE int fd = -1;
	struct layout layout;
	int r;

	r = measure(sizes, &layout);
	if (r == 0)
		r = make_file(&layout, &fd);
	if (r < 0)
		return r;
	memory.n_rings = layout.n_rings;
	memory.n_places = layout.n_places;
	memory.ready_bytes = layout.ready_bytes;
	memory.bytes = layout.bytes;
	memory.places = calloc(memory.n_places, sizeof(*memory.places));
	if (!memory.places)
		return -ENOMEM;
	memory.base = mmap(NULL, memory.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory.base == MAP_FAILED) {
		r = -errno;
		free(memory.places);
		return r;
	}
	fill(sizes, &memory, layout.data_offset);
	*ret_memory = memory;
	*ret_fd = steal_fd(&fd);
	return 0;
}

void ring_arena_offer_ticks(struct ring_arena_memory *memory)
{
	((struct ring_arena_header *)(void *)memory->base)->compat |= RING_COMPAT_TICKS;
}

void ring_arena_grow(struct ring_arena_memory *memory)
{
	const struct ring_place *next = &memory->places[memory->n_rings];
	uint64_t from = memory->ready_bytes / MAX_PAGE * MAX_PAGE, end, to;

	if (memory->n_rings == memory->n_places)
		return;
	end = next->data_offset + next->data_bytes;
	to = MIN_OF(end, memory->ready_bytes + RING_ARENA_PIECE);
	if (madvise(memory->base + from, to - from, MADV_POPULATE_WRITE) < 0) {
		memory->n_places = memory->n_rings;
		return;
	}
	memory->ready_bytes = to;
	memory->n_rings += to == end;
}

void ring_arena_memory_done(struct ring_arena_memory *memory)
{
	if (memory->base)
		munmap(memory->base, memory->bytes);
	free(memory->places);
	*memory = (struct ring_arena_memory){ 0 };
}
