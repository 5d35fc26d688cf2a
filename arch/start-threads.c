/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "arch/start-threads.h"

#include "arch/errno-text.h"

#include <pthread.h>
#include <stddef.h>

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static void *wait_at_gate(void *data)
{
	pthread_mutex_lock(&gate);
	pthread_mutex_unlock(&gate);
	return NULL;
}

bool start_threads_check(unsigned n, char *ret_why)
{
	pthread_t threads[START_THREADS_MAX];
	unsigned n_started = 0;
	int failed = 0;

	pthread_mutex_lock(&gate);
	while (n_started < n && failed == 0) {
		failed = pthread_create(&threads[n_started], NULL, wait_at_gate, NULL);
		n_started += failed == 0;
	}
	/* Do this while the threads exist, because errno_text() reads the current counts. */
	if (failed != 0)
		errno_text(failed, ret_why);
	pthread_mutex_unlock(&gate);
	for (unsigned i = 0; i < n_started; i++)
		pthread_join(threads[i], NULL);
	return failed == 0;
}
