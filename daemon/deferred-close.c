/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Deferred close - closes descriptors that strangers sent, and sockets that strangers send to
 *
 * close() can wait for another process without bound, and SIGKILL does not end the wait: a file
 * of FUSE or of a network file system queries its server, and a TCP socket with SO_LINGER waits for
 * its peer. Closing a Unix socket closes the descriptors in its unread packets. So such descriptors
 * are closed only on threads that nothing waits for. A process exits only after its stuck threads;
 * by then profd has released its name on the bus and shut down its connection.
 * Invariants: (1) deferred_close() does not wait
 *                 [test_attack_capture: server that hangs; test_attack_sockets]
 *             (2) at most MAX_THREADS threads wait; later descriptors stay open until a thread is
 *                 done  [test-deferred-close]
 */
#include "daemon/deferred-close.h"

#include <glib.h>
#include <pthread.h>
#include <stdbool.h>
#include <unistd.h>

#define MAX_THREADS 64

/* Not GLib's locks, because ThreadSanitizer does not understand them. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER;
static GQueue waiting = G_QUEUE_INIT; /* descriptors to close */
static unsigned n_threads, n_idle, max_threads = MAX_THREADS;

static void *run(void *data)
{
	int fd;

	pthread_mutex_lock(&lock);
	while (true) {
		while (g_queue_is_empty(&waiting))
			pthread_cond_wait(&filled, &lock);
		n_idle--;
		fd = GPOINTER_TO_INT(g_queue_pop_head(&waiting));
		pthread_mutex_unlock(&lock);
		close(fd);
		pthread_mutex_lock(&lock);
		n_idle++;
	}
	return NULL;
}

static void add_thread(void)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, run, NULL) != 0)
		return;
	pthread_setname_np(thread, "closer");
	pthread_detach(thread);
	n_threads++;
	n_idle++;
}

void deferred_close_start(void)
{
	pthread_mutex_lock(&lock);
	max_threads = 1;
	add_thread();
	pthread_mutex_unlock(&lock);
}

void deferred_close(int fd)
{
	if (fd < 0)
		return;
	pthread_mutex_lock(&lock);
	g_queue_push_tail(&waiting, GINT_TO_POINTER(fd));
	if (g_queue_get_length(&waiting) > n_idle && n_threads < max_threads)
		add_thread();
	pthread_cond_signal(&filled);
	pthread_mutex_unlock(&lock);
}
