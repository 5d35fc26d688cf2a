/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Doorbells - wakes the drain thread when a collector's ring fills
 *
 * A producer rings by waking a futex in shared memory (docs/ring.md, section 8). A separate thread
 * sleeps on up to DOORBELLS_MAX of these futexes and on the word `changes`, which announces a new
 * list. It reports once per list, so a producer that rings endlessly wakes the drain thread no more
 * often than the drain thread sets a list. If the kernel has no futex_waitv(2), nothing is
 * reported, and only the drain thread's timer remains.
 * Threads: run() is on its own thread, the rest on the drain thread. `lock` guards shared fields.
 */
#include "daemon/engine/peers/doorbells.h"

#include "arch/base.h"
#include "arch/errno-text.h"
#include "libcapture/prof-capture.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>

struct doorbells {
	pthread_t thread;
	bool running;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	struct doorbell list[DOORBELLS_MAX];
	size_t n;
	bool notified, ending, is_deaf;
	uint32_t changes; /* futex: incremented when the list changes */
	int event_fd;
};

static struct futex_waitv waiter(const uint32_t *word, uint32_t value, uint32_t flags)
{
	return (struct futex_waitv){
		.val = value,
		.uaddr = (uintptr_t)word,
		.flags = FUTEX_32 | flags,
	};
}

static void *run(void *data)
{
	struct doorbells *doorbells = data;
	struct futex_waitv waiters[1 + DOORBELLS_MAX];

	pthread_setname_np(pthread_self(), "doorbells");
	pthread_mutex_lock(&doorbells->lock);
	while (!doorbells->ending) {
		uint64_t one = 1;
		unsigned int n;
		long r;

		if (doorbells->is_deaf || doorbells->notified || doorbells->n == 0) {
			pthread_cond_wait(&doorbells->wake, &doorbells->lock);
			continue;
		}
		waiters[0] = waiter(&doorbells->changes, doorbells->changes, FUTEX_PRIVATE_FLAG);
		for (n = 0; n < doorbells->n; n++)
			waiters[1 + n] =
				waiter(doorbells->list[n].word, doorbells->list[n].value, 0);
		pthread_mutex_unlock(&doorbells->lock);
		r = syscall(SYS_futex_waitv, waiters, 1 + n, 0, NULL, 0);
		r = r < 0 ? errno : 0;
		pthread_mutex_lock(&doorbells->lock);
		/* futex_waitv(2) does not work here. */
		doorbells->is_deaf = r == ENOSYS || r == EPERM || r == EINVAL;
		/* A changed list or the end also wakes the thread. */
		if (doorbells->is_deaf || doorbells->ending ||
		    doorbells->changes != (uint32_t)waiters[0].val)
			continue;
		doorbells->notified = true;
		if (write(doorbells->event_fd, &one, sizeof(one)) < 0)
			break; /* impossible: the counter cannot overflow */
	}
	pthread_mutex_unlock(&doorbells->lock);
	return NULL;
}

struct doorbells *doorbells_new(GError **error)
{
	struct doorbells *doorbells = g_new0(struct doorbells, 1);
	int r;

	pthread_mutex_init(&doorbells->lock, NULL);
	pthread_cond_init(&doorbells->wake, NULL);
	doorbells->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	r = doorbells->event_fd < 0 ? errno
				    : pthread_create(&doorbells->thread, NULL, run, doorbells);
	doorbells->running = r == 0;
	if (doorbells->running)
		return doorbells;
	g_set_error(error, G_FILE_ERROR, g_file_error_from_errno(r),
		    "Starting the thread for collectors failed: %s", ERRNO_TEXT(r));
	doorbells_free(doorbells);
	return NULL;
}

/* Wakes the thread from futex_waitv(2) or pthread_cond_wait(). The lock must be held. */
static void change(struct doorbells *doorbells)
{
	__atomic_add_fetch(&doorbells->changes, 1, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, &doorbells->changes, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
	pthread_cond_signal(&doorbells->wake);
}

void doorbells_free(struct doorbells *doorbells)
{
	if (!doorbells)
		return;
	if (doorbells->running) {
		pthread_mutex_lock(&doorbells->lock);
		doorbells->ending = true;
		change(doorbells);
		pthread_mutex_unlock(&doorbells->lock);
		pthread_join(doorbells->thread, NULL);
	}
	if (doorbells->event_fd >= 0)
		close(doorbells->event_fd);
	pthread_mutex_destroy(&doorbells->lock);
	pthread_cond_destroy(&doorbells->wake);
	g_free(doorbells);
}

bool doorbells_are_heard(struct doorbells *doorbells)
{
	bool is_heard;

	pthread_mutex_lock(&doorbells->lock);
	is_heard = !doorbells->is_deaf;
	pthread_mutex_unlock(&doorbells->lock);
	return is_heard;
}

int doorbells_fd(const struct doorbells *doorbells)
{
	return doorbells->event_fd;
}

void doorbells_set(struct doorbells *doorbells, const struct doorbell *list, size_t n)
{
	pthread_mutex_lock(&doorbells->lock);
	doorbells->n = MIN_OF(n, (size_t)DOORBELLS_MAX);
	if (doorbells->n)
		memcpy(doorbells->list, list, doorbells->n * sizeof(*list));
	doorbells->notified = false;
	change(doorbells);
	pthread_mutex_unlock(&doorbells->lock);
}

void doorbells_receive(struct doorbells *doorbells)
{
	uint64_t count;

	if (read(doorbells->event_fd, &count, sizeof(count)) < 0)
		return; /* no doorbell has rung */
}
