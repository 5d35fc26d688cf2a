/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Tick clock - maps values of the processor's counter to CLOCK_MONOTONIC
 *
 *     ns                 ╱ the next stretch begins where this one ends,
 *      ▲           ╱╲╱╲╱   and leads to where the clock will be
 *      │     ╱────╱
 *      │ ───╱ stretches of at least 1 ms; their values never change
 *      └──────────────────▶ ticks
 *
 * The map consists of straight lines (stretches). Counter and clock are read together when ticks
 * after the last stretch are requested. The next stretch leads from the last one's end to the
 * clock's value 1 ms after this reading; the ticks of that value are computed with the average rate
 * since the first reading. So the map has no steps.
 * Its error is the error of a reading, some 20 ns, plus the changes of the clock's rate since that
 * reading: 0.5 us at 500 ppm, the kernel's maximum.
 * After the machine slept, the counter may have restarted: the mapping then restarts, too.
 *
 * Only the kernel knows whether the clock is derived from the counter, and whether the counter is
 * the same on all processors. If both are true, it lets programs read the clock without a system
 * call: on x86 the counter is the only source that allows this, whatever the clocksource is called
 * (tsc, kvm-clock, Hyper-V's).
 *
 * Invariants: (1) the same ticks have the same ns, until MANY stretches were added
 *                 [test-tick-clock: same]
 *             (2) later ticks do not have an earlier time             [test-tick-clock: same, rate]
 *             (3) the result is off by less than 1 us  [test-tick-clock: real, rate, pauses]
 *             (4) any number of ticks has a result, at most 1 ms after now
 *                 [test-tick-clock: any]
 *             (5) creating a clock restricts no system call of the caller  [test-tick-clock:
 *                 made_of]
 */
#include "libcollector/ring/tick-clock.h"

#include "arch/base.h"
#include "arch/cpu.h"
#include "base/clock.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>

#define MANY 4096u /* number of stretches that are kept */
/* Minimum length of a stretch, and minimum time between the first two readings. */
#define STRETCH_NS 1000000u
#define READINGS 4                   /* number of readings, of which the fastest is used */
#define LONG_AGO (UINT64_C(1) << 52) /* in ticks: a double represents all smaller numbers exactly */

struct stretch {
	uint64_t from, to; /* ticks */
	uint64_t ns;       /* at `from` */
	double rate;       /* ns per tick */
};

struct tick_clock {
	tick_clock_read *read;
	void *data;
	struct tick_reading first;
	double rate; /* average since `first` */
	uint64_t n;  /* number of stretches so far; the last MANY are kept */
	uint64_t last;
	struct stretch stretches[MANY];
};

/* ---- Readings ---- */

static struct tick_reading read_once(uint64_t *ret_width)
{
	struct tick_reading reading;
	uint64_t before = cpu_tick_ordered(), after;

	reading.ns = clock_now();
	after = cpu_tick_ordered();
	reading.ticks = before + (after - before) / 2;
	*ret_width = after - before;
	return reading;
}

static struct tick_reading read_both(void *data)
{
	struct tick_reading best = { 0 }, reading;
	uint64_t least = UINT64_MAX, width;

	for (int i = 0; i < READINGS; i++) {
		reading = read_once(&width);
		if (width < least) {
			least = width;
			best = reading;
		}
	}
	return best;
}

struct tick_clock *tick_clock_new_of(tick_clock_read *read, void *data)
{
	struct tick_clock *clock = calloc(1, sizeof(*clock));

	if (!clock)
		return NULL;
	clock->read = read;
	clock->data = data;
	clock->first = read(data);
	return clock;
}

/* Checks whether the clock can be read without a system call. Runs in a separate thread, because
 * the filter that denies the system call cannot be removed. */
static void *read_shut_out(void *data)
{
	struct sock_filter refuse[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clock_gettime, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog program = { ARRAY_SIZE(refuse), refuse };
	bool *ret_is_read = data;
	struct timespec now;

	*ret_is_read = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
		       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0 &&
		       clock_gettime(CLOCK_MONOTONIC, &now) == 0;
	return NULL;
}

struct tick_clock *tick_clock_new(void)
{
	bool is_read = false;
	pthread_t id;

	if (!CPU_HAS_TICK || pthread_create(&id, NULL, read_shut_out, &is_read) != 0)
		return NULL;
	pthread_join(id, NULL);
	return is_read ? tick_clock_new_of(read_both, NULL) : NULL;
}

void tick_clock_free(struct tick_clock *clock)
{
	free(clock);
}

/* ---- Stretches ---- */

static struct stretch *stretch_at(struct tick_clock *clock, uint64_t i)
{
	return &clock->stretches[i % MANY];
}

static uint64_t value_at(const struct stretch *stretch, uint64_t ticks)
{
	return stretch->ns + (uint64_t)((double)(ticks - stretch->from) * stretch->rate);
}

/* Adds a stretch from the end of the last one to 1 ms after now. */
static void add_stretch(struct tick_clock *clock)
{
	struct tick_reading now = clock->read(clock->data), from;
	uint64_t to, to_ns;

	if (now.ticks < clock->first.ticks || now.ns < clock->first.ns ||
	    (clock->n > 0 && now.ticks < stretch_at(clock, clock->n - 1)->from)) {
		clock->first = now;
		clock->n = clock->last = 0;
	}
	/* The rate needs two readings that are far enough apart. */
	while (now.ns - clock->first.ns < STRETCH_NS || now.ticks == clock->first.ticks)
		now = clock->read(clock->data);
	from = clock->first;
	clock->rate = (double)(now.ns - from.ns) / (double)(now.ticks - from.ticks);
	to = now.ticks + MAX_OF((uint64_t)(STRETCH_NS / clock->rate), UINT64_C(1));
	to_ns = now.ns + STRETCH_NS;

	if (clock->n > 0) {
		const struct stretch *last = stretch_at(clock, clock->n - 1);

		if (now.ticks < last->to) /* the requested ticks are in the future */
			return;
		from = (struct tick_reading){ last->to, value_at(last, last->to) };
	}
	*stretch_at(clock, clock->n) = (struct stretch){
		.from = from.ticks,
		.to = to,
		.ns = from.ns,
		.rate = to_ns > from.ns ? (double)(to_ns - from.ns) / (double)(to - from.ticks) : 0,
	};
	clock->last = clock->n++;
}

/* Finds the stretch that contains the ticks; if they are earlier, the first known one. */
static void find_stretch(struct tick_clock *clock, uint64_t ticks)
{
	uint64_t low = clock->n > MANY ? clock->n - MANY : 0, high = clock->n - 1;

	while (low < high) {
		uint64_t middle = low + (high - low) / 2;

		if (ticks < stretch_at(clock, middle)->to)
			high = middle;
		else
			low = middle + 1;
	}
	clock->last = low;
}

uint64_t tick_clock_ns(struct tick_clock *clock, uint64_t ticks)
{
	const struct stretch *stretch = stretch_at(clock, clock->last);
	double ns;

	if (__builtin_expect(ticks >= stretch->from && ticks < stretch->to, 1))
		return value_at(stretch, ticks);
	if (clock->n == 0 || ticks >= stretch_at(clock, clock->n - 1)->to ||
	    ticks < stretch_at(clock, clock->n > MANY ? clock->n - MANY : 0)->from)
		add_stretch(clock);
	find_stretch(clock, ticks);
	stretch = stretch_at(clock, clock->last);
	if (ticks >= stretch->from)
		return value_at(stretch, MIN_OF(ticks, stretch->to));
	/* the ticks are before all known stretches */
	ns = (double)MIN_OF(stretch->from - ticks, LONG_AGO) * clock->rate;
	return ns < (double)stretch->ns ? stretch->ns - (uint64_t)ns : 0;
}
