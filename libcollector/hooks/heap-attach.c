/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Heap attach - the process's end of attach.h: activates a dormant collector on request
 *
 * The hook that finds the request registers the process in the same way as the first record of a
 * process with PROF_CONTROL: with all signals blocked, and within the same time limits. Blocks that
 * were allocated earlier are unknown; their release is recorded anyway. After the session, the
 * process is dormant again, and can be attached to again. A child of vfork() shares this memory, so
 * it leaves the request to its parent. In a process with a seccomp filter, the hook refuses the
 * request, because the filter could kill the process for registering.
 *
 * Invariants: (1) a request is answered once, whatever is written meanwhile
 *                 [test_attach: again, forks, forked_meanwhile]
 *             (2) a process with a session keeps it  [test_attach: recorded_already]
 *             (3) a process with a seccomp filter is refused  [test_attach: filtered]
 */
#include "libcollector/hooks/heap-attach.h"

#include "libcollector/hooks/heap-next.h"
#include "libcollector/prof-collector.h"
#include "libcollector/register/register.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

static_assert(HEAP_ATTACH == ATTACH_REQUESTED, "requested");

/* Other processes write here, so the compiler must not assume the initial values. */
static struct attach_request request
	__attribute__((used, aligned(ATTACH_ALIGNMENT), section(".data"))) = {
		.magic = ATTACH_MAGIC,
		.version = ATTACH_VERSION,
		.bytes = sizeof(struct attach_request),
		.mode = &heap_mode,
	};

/* Used only by the answering thread. */
static char control[ATTACH_CONTROL_BYTES], settings[ATTACH_SETTINGS_BYTES];

static void copy(char *to, const volatile char *from, size_t n_bytes)
{
	for (size_t i = 0; i < n_bytes; i++)
		to[i] = from[i];
	to[n_bytes - 1] = 0;
}

static int join(void)
{
	int r;

	if (register_is_filtered())
		return -EACCES;
	if (register_is_recorded())
		return -EALREADY;
	copy(control, request.control, sizeof(control));
	copy(settings, request.settings, sizeof(settings));
	if (!heap_next_choose(settings))
		return -ENOTSUP;
	r = register_connect(control);
	if (r != 0)
		return r;
	heap_next_warn("allocations are recorded only since it was joined, while it ran: ",
		       "blocks that it had before are not known");
	heap_next_warn_of_unseen();
	return 0;
}

void heap_attach_answer(void)
{
	int error = errno;
	uint64_t before;
	uint32_t requested;

	if (register_is_own()) {
		before = register_block_signals();
		if (register_begin_answer()) {
			/* If another request arrives meanwhile, the end of this one clears the
			 * ATTACH_REQUESTED bit of the other. So repeat until all are answered. */
			while ((requested =
					__atomic_load_n(&request.requested, __ATOMIC_ACQUIRE)) !=
			       request.received) {
				heap_next_update_mode();
				request.status = join();
				__atomic_store_n(&request.received, requested, __ATOMIC_RELEASE);
			}
			heap_next_update_mode();
			register_end_answer();
		}
		register_restore_signals(before);
	}
	errno = error;
}
