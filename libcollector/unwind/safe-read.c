/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Safe read - reads memory of this process that may not be mapped
 *
 * The kernel reads: process_vm_readv() on this process fails where a load would fault. If that call
 * is refused, or a seccomp filter could kill the thread for it, memory is probed: rt_sigprocmask()
 * copies the mask before it checks its other arguments, so EINVAL means readable. No filter that
 * lets a program run refuses rt_sigprocmask(). A load faults only if memory is unmapped after its
 * probe.
 * Invariants: (1) except in that case, nothing faults, whatever the address
 *                 [test-self-unwind: corrupt, memory]
 *             (2) with a seccomp filter, only calls that every program needs are made: prctl(),
 *                 getpid(), rt_sigprocmask()  [test-self-unwind: seccomp]
 * Later changes of memory are not detected.
 */
#include "libcollector/unwind/safe-read.h"

#include <errno.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define MASK_BYTES 8   /* size of the kernel's sigset_t */
#define NO_SUCH_HOW 77 /* differs from SIG_BLOCK, SIG_UNBLOCK and SIG_SETMASK */
#define SECCOMP_FILTERED 2
#define BATCH 16 /* small, because the stack may be small */

/* ---- By probe ---- */

static bool is_readable(uint64_t address)
{
	/* The first page cannot be probed, because the kernel takes NULL to mean that there is no
	 * mask. */
	return address >= SAFE_READ_PAGE &&
	       syscall(SYS_rt_sigprocmask, NO_SUCH_HOW, address & ~UINT64_C(7), NULL, MASK_BYTES) <
		       0 &&
	       errno == EINVAL;
}

/* Returns false if probing does not work, because an emulator checks the arguments in another
 * order. */
static bool can_probe(void)
{
	return !is_readable(UINT64_MAX - SAFE_READ_PAGE);
}

/* Loads whole words, so that a concurrent store is not torn. Volatile keeps the compiler from using
 * memcpy(). */
__attribute__((no_sanitize("address", "undefined"))) static void load(uint64_t address,
								      uint8_t *buffer, size_t size)
{
	const volatile uint8_t *from = (const volatile uint8_t *)(uintptr_t)address;
	size_t i = 0;

	for (; address % 8 == 0 && i + 8 <= size; i += 8) {
		uint64_t word = *(const volatile uint64_t *)(from + i);

		memcpy(buffer + i, &word, 8);
	}
	for (; i < size; i++)
		buffer[i] = from[i];
}

static bool read_by_probe(uint64_t address, void *buffer, size_t size)
{
	uint64_t last = address + size - 1;

	if (last < address || !can_probe())
		return false;
	for (uint64_t page = address & -(uint64_t)SAFE_READ_PAGE; page <= last;
	     page += SAFE_READ_PAGE)
		if (!is_readable(page))
			return false;
	load(address, buffer, size);
	return true;
}

/* ---- By the kernel ---- */

static void choose_way(struct safe_read *memory)
{
	if (memory->way != SAFE_READ_UNKNOWN)
		return;
	memory->pid = (int32_t)syscall(SYS_getpid);
	memory->way = syscall(SYS_prctl, PR_GET_SECCOMP, 0, 0, 0, 0) == SECCOMP_FILTERED
			      ? SAFE_READ_BY_PROBE
			      : SAFE_READ_BY_KERNEL;
}

/* Returns the number of bytes before the first unreadable one. If the kernel refuses the call,
 * later reads use probes. */
static size_t read_by_kernel(struct safe_read *memory, void *buffer, size_t size,
			     const struct iovec *remote, size_t n)
{
	struct iovec local = { buffer, size };
	/* The sixth argument is on the stack; it must be a long, because syscall() reads a whole
	 * word. */
	long got = syscall(SYS_process_vm_readv, memory->pid, &local, 1UL, remote, n, 0UL);

	if (got < 0 && errno != EFAULT && errno != EINVAL)
		memory->way = SAFE_READ_BY_PROBE;
	return got < 0 ? 0 : (size_t)got;
}

bool safe_read(struct safe_read *memory, uint64_t address, void *buffer, size_t size)
{
	struct iovec remote = { (void *)(uintptr_t)address, size };

	choose_way(memory);
	if (memory->way == SAFE_READ_BY_KERNEL) {
		bool done = read_by_kernel(memory, buffer, size, &remote, 1) == size;

		if (done || memory->way == SAFE_READ_BY_KERNEL)
			return done;
	}
	return read_by_probe(address, buffer, size);
}

size_t safe_read_ranges(struct safe_read *memory, const struct iovec *ranges, size_t n,
			void *buffer, size_t size)
{
	choose_way(memory);
	return memory->way == SAFE_READ_BY_KERNEL ? read_by_kernel(memory, buffer, size, ranges, n)
						  : 0;
}

size_t safe_read_count_below(struct safe_read *memory, uint64_t end, size_t n)
{
	struct iovec remote[BATCH];
	uint8_t bytes[BATCH];
	size_t done = 0;

	choose_way(memory);
	n = MIN_OF(n, end / SAFE_READ_PAGE);
	while (done < n && memory->way == SAFE_READ_BY_KERNEL) {
		size_t part = MIN_OF(n - done, (size_t)BATCH), got;

		for (size_t i = 0; i < part; i++)
			remote[i] = (struct iovec){
				(void *)(uintptr_t)(end - (done + i + 1) * SAFE_READ_PAGE), 1
			};
		got = read_by_kernel(memory, bytes, part, remote, part);
		done += got;
		if (got < part && memory->way == SAFE_READ_BY_KERNEL)
			return done;
	}
	while (can_probe() && done < n && is_readable(end - (done + 1) * SAFE_READ_PAGE))
		done++;
	return done;
}
