/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Ring arena - the engine's side makes the memory that a process gets its rings from
 *
 * A memfd: sized, all of its pages there, then sealed, so that nobody meets a SIGBUS for what the other one did, and a target
 * that is out of memory does not meet one in malloc().
 * Invariants: (1) whoever has the fd cannot change its size         [test-ring: arena]
 *             (2) no two rings overlap                              [test-ring: arena]
 */
#include "libcollector/ring-arena.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U /* linux/memfd.h, 6.3 */
#endif

static uint64_t up(uint64_t value, uint64_t unit)
{
	return (value + unit - 1) / unit * unit;
}

static bool is_good_size(const struct ring_arena_size *size, uint64_t before)
{
	return size->data_bytes >= RING_MIN_BYTES && size->data_bytes <= RING_MAX_BYTES &&
	       (size->data_bytes & (size->data_bytes - 1)) == 0 && size->data_bytes >= before &&
	       size->n <= RING_MAX_RINGS;
}

/* How many rings, and how many bytes with all headers. */
static int measure(const struct ring_arena_sizes *sizes, uint32_t *ret_n, uint64_t *ret_data,
		   uint64_t *ret_bytes)
{
	uint64_t bytes = 0, before = 0;
	uint32_t n = 0;

	for (size_t i = 0; i < RING_ARENA_MAX_SIZES && sizes->sizes[i].n > 0; i++) {
		const struct ring_arena_size *size = &sizes->sizes[i];

		if (!is_good_size(size, before))
			return -EINVAL;
		before = size->data_bytes;
		bytes += size->n * size->data_bytes;
		n += size->n;
	}
	*ret_data =
		up(up(sizeof(struct ring_arena_header) + n * sizeof(struct ring_place), RING_LINE) +
			   n * sizeof(struct ring_header),
		   RING_PAGE);
	if (n == 0 || n > RING_MAX_RINGS || bytes > RING_ARENA_MAX_BYTES - *ret_data)
		return -EINVAL;
	*ret_n = n;
	*ret_bytes = *ret_data + bytes;
	return 0;
}

static void fill(const struct ring_arena_sizes *sizes, struct ring_arena_memory *memory,
		 uint64_t data)
{
	struct ring_arena_header *header = (void *)memory->base;
	uint64_t at = up(sizeof(*header) + memory->n_rings * sizeof(struct ring_place), RING_LINE);
	uint32_t place = 0;

	*header = (struct ring_arena_header){
		.magic = RING_MAGIC,
		.version = RING_VERSION,
		.header_bytes = sizeof(*header),
		.arena_bytes = memory->bytes,
		.n_rings = memory->n_rings,
		.directory_offset = sizeof(*header),
		.clock = RING_CLOCK_MONOTONIC,
		.n_types = RING_N_TYPES,
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
			at += sizeof(*ring);
			data += sizes->sizes[i].data_bytes;
		}
	memcpy(memory->base + sizeof(*header), memory->places,
	       memory->n_rings * sizeof(struct ring_place));
}

static int make_file(uint64_t bytes, int *ret_fd)
{
	unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
	CLEANUP_CLOSE int fd = memfd_create("prof-arena", flags | MFD_NOEXEC_SEAL);

	if (fd < 0 && errno == EINVAL)
		fd = memfd_create("prof-arena", flags);
	if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0 || fallocate(fd, 0, 0, (off_t)bytes) < 0 ||
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
	uint64_t data;
	int r;

	r = measure(sizes, &memory.n_rings, &data, &memory.bytes);
	if (r == 0)
		r = make_file(memory.bytes, &fd);
	if (r < 0)
		return r;
	memory.places = calloc(memory.n_rings, sizeof(*memory.places));
	if (!memory.places)
		return -ENOMEM;
	memory.base = mmap(NULL, memory.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory.base == MAP_FAILED) {
		r = -errno;
		free(memory.places);
		return r;
	}
	fill(sizes, &memory, data);
	*ret_memory = memory;
	*ret_fd = steal_fd(&fd);
	return 0;
}

void ring_arena_offer_ticks(struct ring_arena_memory *memory)
{
	((struct ring_arena_header *)(void *)memory->base)->compat |= RING_COMPAT_TICKS;
}

void ring_arena_memory_done(struct ring_arena_memory *memory)
{
	if (memory->base)
		munmap(memory->base, memory->bytes);
	free(memory->places);
	*memory = (struct ring_arena_memory){ 0 };
}
