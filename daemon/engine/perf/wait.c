/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "daemon/engine/perf/wait.h"

void wait_code_unref(struct wait_code *code)
{
	if (--code->refs > 0)
		return;
	if (code->thread)
		row_unref(&code->thread->row);
	maps_unref(code->maps);
	g_free((void *)code->sample.user.ips);
	g_free((void *)code->sample.user.sps);
	g_free(code->chain);
	g_free((void *)code->sample.kernel);
	if (!code->is_waker) {
		struct wait *wait = (struct wait *)code;

		if (wait->waker)
			wait_code_unref(&wait->waker->code);
		g_free(wait->syscall);
		g_free(wait->object);
	}
	g_free(code);
}

void wait_unref(void *wait)
{
	wait_code_unref(wait);
}

static void code_init(struct wait_code *code, struct thread *thread)
{
	code->refs = 1;
	code->thread = thread;
	if (thread)
		row_ref(&thread->row);
}

struct wait *wait_new(struct thread *thread)
{
	/* Unlike malloc(), calloc() of glibc 2.36 does not reuse memory that was just freed. */
	struct wait *wait = g_new(struct wait, 1);

	*wait = (struct wait){ .cpu = PROF_SWITCH_NO_CPU, .link.data = wait };
	code_init(&wait->code, thread);
	return wait;
}

struct waker *waker_new(struct thread *thread, uint64_t time_ns)
{
	struct waker *waker = g_new0(struct waker, 1);

	code_init(&waker->code, thread);
	waker->code.is_waker = true;
	waker->time_ns = time_ns;
	return waker;
}

void waker_set(struct waker **place, struct waker *waker)
{
	if (*place)
		wait_code_unref(&(*place)->code);
	*place = waker;
}
