/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Sysprof ring - makes and reads rings in the format of sysprof's library
 *
 * A ring is a memfd. The first words of its first page are the reader's position, the writer's
 * position, and the offset and length of the body, which follows the page. The writer maps the body
 * twice in a row, so that a frame may cross its end. Both positions are below the body's length;
 * they are equal if the ring is empty. There is no doorbell, no count of dropped frames, and no
 * field that names the writer. The writer is not trusted, and there may be two: a forked child
 * shares its parent's ring. So each word is loaded once, and frames are copied before they are
 * parsed, and then erased: even if a position goes backward or a lap too far, old frames are not
 * read as new ones. The engine allocates pages before the writer reaches them, so that the kernel
 * charges them to the engine, not to the writer: some at once, the others as the ring fills,
 * because most programs never need them.
 * Invariants: (1) the peer cannot change a ring's size  [test-engine-sysprof: ring]
 *             (2) no frame is read twice                              [test-engine-sysprof: back]
 */
#include "daemon/engine/peers/sysprof-ring.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

struct shared_header {
	uint32_t head; /* the reader's position */
	uint32_t tail;
	uint32_t body_offset;
	uint32_t body_bytes;
};

/* more than a writer fills between two checks of the ring */
#define AHEAD_BYTES (8u << 20)

static int populate(struct sysprof_ring *ring, uint32_t end)
{
	/* Mappings of a memfd share its page cache, so the writer gets these pages too. */
	int r = madvise(ring->shared + ring->page + ring->populated, end - ring->populated,
			MADV_POPULATE_WRITE);

	if (r < 0)
		return -errno;
	ring->populated = end;
	return 0;
}

int sysprof_ring_make(uint32_t n_bytes, struct sysprof_ring *ret_ring,
		      struct ring_arena_memory *ret_memory, int *ret_fd)
{
	uint32_t page = (uint32_t)sysconf(_SC_PAGESIZE);
	size_t bytes = (size_t)page + n_bytes;
	CLEANUP_CLOSE int fd = memfd_create("prof-sysprof-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	void *base;
	int r;

	if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		return -errno;
	base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED)
		return -errno;
	*(struct shared_header *)base =
		(struct shared_header){ .body_offset = page, .body_bytes = n_bytes };
	*ret_ring = (struct sysprof_ring){ .shared = base, .size = n_bytes, .page = page };
	r = populate(ret_ring, MIN_OF(n_bytes, AHEAD_BYTES / 2));
	if (r == -EINVAL) {
		/* Kernels before 5.14 lack MADV_POPULATE_WRITE. */
		r = fallocate(fd, 0, 0, (off_t)bytes) < 0 ? -errno : 0;
		ret_ring->populated = n_bytes;
	}
	if (r < 0) {
		munmap(base, bytes);
		return r;
	}
	*ret_memory = (struct ring_arena_memory){
		.base = base, .bytes = bytes, .n_rings = 1, .n_places = 1
	};
	*ret_fd = steal_fd(&fd);
	return 0;
}

void sysprof_ring_populate(struct sysprof_ring *ring)
{
	const struct shared_header *shared = (const void *)ring->shared;
	uint32_t tail = __atomic_load_n(&shared->tail, __ATOMIC_RELAXED);

	/* On failure, the writer allocates the pages itself. */
	if (tail < ring->size && ring->populated < ring->size &&
	    ring->populated < (uint64_t)tail + AHEAD_BYTES)
		(void)populate(ring, (uint32_t)MIN_OF(ring->size,
						      (uint64_t)ring->populated + AHEAD_BYTES));
}

bool sysprof_ring_fill(const struct sysprof_ring *ring, uint32_t *ret_fill)
{
	const struct shared_header *shared = (const void *)ring->shared;
	/* Pairs with the exchange that publishes a frame. */
	uint32_t tail = __atomic_load_n(&shared->tail, __ATOMIC_ACQUIRE);

	if (tail >= ring->size || tail % 8 != 0)
		return false;
	*ret_fill = tail >= ring->head ? tail - ring->head : ring->size - ring->head + tail;
	return true;
}

void sysprof_ring_copy(const struct sysprof_ring *ring, uint8_t *buffer, uint32_t n)
{
	const uint8_t *body = ring->shared + ring->page;
	uint32_t first = MIN_OF(n, ring->size - ring->head);

	memcpy(buffer, body + ring->head, first);
	memcpy(buffer + first, body, n - first);
}

void sysprof_ring_skip(struct sysprof_ring *ring, uint32_t n)
{
	struct shared_header *shared = (void *)ring->shared;
	uint8_t *body = ring->shared + ring->page;
	uint32_t first = MIN_OF(n, ring->size - ring->head);

	memset(body + ring->head, 0, first);
	memset(body, 0, n - first);
	ring->head = (uint32_t)(((uint64_t)ring->head + n) % ring->size);
	/* Pairs with the load of the writer's check for room. */
	__atomic_store_n(&shared->head, ring->head, __ATOMIC_RELEASE);
}
