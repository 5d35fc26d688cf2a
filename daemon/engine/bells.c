/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Bells - wakes the drain thread when a collector's ring fills
 *
 * Producers ring by a futex in shared memory (docs/ring.md, section 8). This thread sleeps on up to
 * BELLS_MAX of these futexes, and on a word of its own that announces a new list. It reports a ring
 * once per list, so a producer that rings without end wakes it no more often than the drain thread
 * lists its bell again.
 * If the kernel has no futex_waitv(2), nothing is ever reported, and only the drain thread's timer
 * remains.
 * Threads: its own, and the drain thread, which calls everything here. `lock` guards the shared
 * fields.
 */
#include "daemon/engine/bells.h"

#include "arch/base.h"
#include "arch/errno-text.h"
#include "libcapture/prof-capture.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>

struct bells {
	pthread_t thread;
	bool running;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	struct bell list[BELLS_MAX];
	size_t n;
	bool told, ending, is_deaf;
	uint32_t changes; /* futex: counts changes of the list */
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

/* Called with the lock held. */
static size_t list_waiters(const struct bells *bells, struct futex_waitv *waiters)
{
	waiters[0] = waiter(&bells->changes, __atomic_load_n(&bells->changes, __ATOMIC_RELAXED),
			    FUTEX_PRIVATE_FLAG);
	for (size_t i = 0; i < bells->n; i++)
		waiters[1 + i] = waiter(bells->list[i].word, bells->list[i].value, 0);
	return 1 + bells->n;
}

/* Returns false if futex_waitv(2) does not work here. */
static bool sleep_on(struct futex_waitv *waiters, size_t n)
{
	return syscall(SYS_futex_waitv, waiters, (unsigned int)n, 0, NULL, 0) >= 0 ||
	       (errno != ENOSYS && errno != EPERM && errno != EINVAL);
}

static void *run(void *data)
{
	struct bells *bells = data;
	struct futex_waitv waiters[1 + BELLS_MAX];

	pthread_setname_np(pthread_self(), "bells");
	pthread_mutex_lock(&bells->lock);
	while (!bells->ending) {
		uint64_t one = 1;
		bool works;
		size_t n;

		if (bells->is_deaf || bells->told || bells->n == 0) {
			pthread_cond_wait(&bells->wake, &bells->lock);
			continue;
		}
		n = list_waiters(bells, waiters);
		pthread_mutex_unlock(&bells->lock);
		works = sleep_on(waiters, n);
		pthread_mutex_lock(&bells->lock);
		bells->is_deaf = !works;
		/* woken by a new list, or by a bell */
		if (!works || bells->ending || bells->changes != (uint32_t)waiters[0].val)
			continue;
		bells->told = true;
		if (write(bells->event_fd, &one, sizeof(one)) < 0)
			break; /* cannot be full */
	}
	pthread_mutex_unlock(&bells->lock);
	return NULL;
}

struct bells *bells_new(GError **error)
{
	struct bells *bells = g_new0(struct bells, 1);
	int r;

	pthread_mutex_init(&bells->lock, NULL);
	pthread_cond_init(&bells->wake, NULL);
	bells->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	r = bells->event_fd < 0 ? errno : pthread_create(&bells->thread, NULL, run, bells);
	bells->running = r == 0;
	if (bells->running)
		return bells;
	g_set_error(error, G_FILE_ERROR, g_file_error_from_errno(r),
		    "Starting the thread for collectors failed: %s", ERRNO_TEXT(r));
	bells_free(bells);
	return NULL;
}

/* Called with the lock held. Wakes the thread, whatever it sleeps on. */
static void change(struct bells *bells)
{
	__atomic_add_fetch(&bells->changes, 1, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, &bells->changes, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
	pthread_cond_signal(&bells->wake);
}

void bells_free(struct bells *bells)
{
	if (!bells)
		return;
	if (bells->running) {
		pthread_mutex_lock(&bells->lock);
		bells->ending = true;
		change(bells);
		pthread_mutex_unlock(&bells->lock);
		pthread_join(bells->thread, NULL);
	}
	if (bells->event_fd >= 0)
		close(bells->event_fd);
	pthread_mutex_destroy(&bells->lock);
	pthread_cond_destroy(&bells->wake);
	g_free(bells);
}

bool bells_are_heard(struct bells *bells)
{
	bool is_heard;

	pthread_mutex_lock(&bells->lock);
	is_heard = !bells->is_deaf;
	pthread_mutex_unlock(&bells->lock);
	return is_heard;
}

int bells_fd(const struct bells *bells)
{
	return bells->event_fd;
}

void bells_set(struct bells *bells, const struct bell *list, size_t n)
{
	pthread_mutex_lock(&bells->lock);
	bells->n = MIN_OF(n, (size_t)BELLS_MAX);
	if (bells->n)
		memcpy(bells->list, list, bells->n * sizeof(*list));
	bells->told = false;
	change(bells);
	pthread_mutex_unlock(&bells->lock);
}

void bells_take(struct bells *bells)
{
	uint64_t count;

	if (read(bells->event_fd, &count, sizeof(count)) < 0)
		return; /* has not rung */
}
