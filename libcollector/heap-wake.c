/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Heap wake - the process's end of wake.h: switches on a dormant collector on request
 *
 * The hook that finds the request registers the process like the first record in a process with
 * PROF_CONTROL: with all signals blocked, and within the same bounds. Existing blocks are unknown;
 * their end counts as that of a foreign block. When the session is over, the process is dormant
 * again, and can be asked again.
 * A child of vfork(), which shares this memory, leaves the request to the process. With a seccomp
 * filter, no system call is made that it could kill for.
 * Invariants: (1) a request is answered once, whatever is written meanwhile
 *                 [test_wake: again, forks, forked_meanwhile]
 *             (2) a process with a session keeps it  [test_wake: recorded_already]
 *             (3) a filtered process makes no additional system call         [test_wake: filtered]
 */
#include "libcollector/heap-wake.h"

#include "libcollector/heap-next.h"
#include "libcollector/prof-collector.h"
#include "libcollector/register.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

static_assert(HEAP_WAKE == WAKE_ASKED, "asked");

/* Other processes write here, so the compiler must not assume the initial values. */
static struct wake wake __attribute__((used, aligned(WAKE_ALIGNMENT), section(".data"))) = {
	.magic = WAKE_MAGIC,
	.version = WAKE_VERSION,
	.bytes = sizeof(struct wake),
	.mode = &heap_mode,
};

/* Used by the answering thread. */
static char control[WAKE_CONTROL_BYTES], settings[WAKE_SETTINGS_BYTES];

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
	copy(control, wake.control, sizeof(control));
	copy(settings, wake.settings, sizeof(settings));
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

void heap_wake_answer(void)
{
	int error = errno;
	uint64_t before;
	uint32_t asked;

	if (register_is_own()) {
		before = register_block_signals();
		if (register_begin_answer()) {
			/* Another request may come meanwhile, and the end of this one clears its
			 * WAKE_ASKED. */
			while ((asked = __atomic_load_n(&wake.asked, __ATOMIC_ACQUIRE)) !=
			       wake.taken) {
				heap_next_settle();
				wake.status = join();
				__atomic_store_n(&wake.taken, asked, __ATOMIC_RELEASE);
			}
			heap_next_settle();
			register_end_answer();
		}
		register_restore_signals(before);
	}
	errno = error;
}
