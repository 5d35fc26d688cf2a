/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of tick-clock: on a simulated machine whose true time is known, and on this machine.
 */
#include "arch/base.h"
#include "arch/cpu.h"
#include "libcollector/ring/tick-clock.h"
#include "tests/unit/test.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MS UINT64_C(1000000)
#define BOOT_NS (UINT64_C(50000000) * MS)
#define GHZ 3u
#define ERROR_NS 1000

/* A counter with 3 GHz, and a clock that the kernel adjusts. */
struct machine {
	uint64_t ticks, ns;
	int ppm;
	uint32_t random;
};

static void pass(struct machine *machine, uint64_t ns)
{
	int64_t off = (int64_t)ns * machine->ppm / 1000000;

	machine->ticks += ns * GHZ;
	machine->ns += ns + (uint64_t)off;
}

/* Reads the clock. The reading takes some time and is wrong by up to 20 ns. */
static struct tick_reading read_machine(void *data)
{
	struct machine *machine = data;
	struct tick_reading reading;

	machine->random = machine->random * 1664525u + 1013904223u;
	reading.ticks = machine->ticks;
	reading.ns = machine->ns + machine->random / 65536 % 40 - 20;
	pass(machine, 60);
	return reading;
}

static struct tick_clock *make(struct machine *machine)
{
	*machine = (struct machine){ 7 * BOOT_NS, BOOT_NS, 0, 1 };
	return tick_clock_new_of(read_machine, machine);
}

static bool is_near(uint64_t a, uint64_t b)
{
	return llabs((long long)(a - b)) < ERROR_NS;
}

static void test_rate(void)
{
	struct machine machine;
	struct tick_clock *clock = make(&machine);
	uint64_t before = 0;
	unsigned wrong = 0, back = 0;

	REQUIRE(clock);
	for (unsigned i = 0; i < 200000; i++) {
		uint64_t ticks = machine.ticks, ns = machine.ns, got;

		got = tick_clock_ns(clock, ticks);
		wrong += !is_near(got, ns);
		back += got < before;
		before = got;
		pass(&machine, 10000 + i % 7);
		if (i % 10000 == 9999) /* occasionally, the clock has the maximum adjustment */
			machine.ppm = i / 10000 % 3 == 2 ? 500 : 0;
	}
	CHECK_INT(wrong, 0);
	CHECK_INT(back, 0);
	tick_clock_free(clock);
}

/* There are no readings for a long time. */
static void test_pauses(void)
{
	struct machine machine;
	struct tick_clock *clock = make(&machine);

	REQUIRE(clock);
	for (unsigned i = 0; i < 100; i++) {
		uint64_t ticks, ns;

		pass(&machine, i * i * MS);
		ticks = machine.ticks;
		ns = machine.ns;
		pass(&machine, 3000);
		CHECK(is_near(tick_clock_ns(clock, ticks), ns));
	}
	tick_clock_free(clock);
}

/* A value of the counter still gives the same time after more readings: a ring may be read
 * later. */
static void test_same(void)
{
	struct machine machine;
	struct tick_clock *clock = make(&machine);
	uint64_t ticks[3000], ns[3000];
	unsigned wrong = 0;

	REQUIRE(clock);
	for (unsigned i = 0; i < 3000; i++) {
		ticks[i] = machine.ticks;
		pass(&machine, i % 3 * 400000);
		ns[i] = tick_clock_ns(clock, ticks[i]);
		wrong += i > 0 && (ns[i] < ns[i - 1] ||
				   (ns[i] == ns[i - 1]) != (ticks[i] <= ticks[i - 1] + GHZ));
	}
	for (unsigned i = 3000; i-- > 0;)
		wrong += tick_clock_ns(clock, ticks[i]) != ns[i];
	for (unsigned i = 0; i < 3000; i++)
		wrong += tick_clock_ns(clock, ticks[i]) != ns[i];
	CHECK_INT(wrong, 0);
	tick_clock_free(clock);
}

/* Converts values that the counter cannot have had, and values of a counter that restarts, as after
 * a suspend. */
static void test_any(void)
{
	struct machine machine;
	struct tick_clock *clock = make(&machine);
	uint64_t now;

	REQUIRE(clock);
	CHECK(tick_clock_ns(clock, UINT64_MAX) <= machine.ns + 2 * MS);
	CHECK(tick_clock_ns(clock, 0) <= machine.ns);
	pass(&machine, 10000 * MS);
	CHECK(tick_clock_ns(clock, UINT64_MAX) <= machine.ns + 2 * MS);
	CHECK(tick_clock_ns(clock, machine.ticks + 5000 * MS) <= machine.ns + 2 * MS);
	CHECK(tick_clock_ns(clock, 1) <= machine.ns);
	for (unsigned i = 0; i < 20000; i++) { /* more intervals than are stored */
		pass(&machine, 2 * MS);
		tick_clock_ns(clock, machine.ticks);
	}
	CHECK(is_near(tick_clock_ns(clock, machine.ticks - GHZ * 20000 * MS),
		      machine.ns - 20000 * MS));
	CHECK(tick_clock_ns(clock, 0) < machine.ns);
	machine.ticks = 1000;
	pass(&machine, 5 * MS);
	tick_clock_ns(clock, machine.ticks);
	pass(&machine, 5 * MS);
	now = machine.ns;
	CHECK(is_near(tick_clock_ns(clock, machine.ticks), now));
	tick_clock_free(clock);
}

/* If this machine's clock uses the counter, ticks that are read between two readings of the clock
 * give a time between these. */
static void test_real(void)
{
	struct tick_clock *clock = tick_clock_new();
	unsigned wrong = 0;

	for (unsigned i = 0; clock && i < 20000; i++) {
		struct timespec before, after;
		uint64_t ticks, ns, low, high;

		clock_gettime(CLOCK_MONOTONIC, &before);
		ticks = cpu_tick_ordered();
		clock_gettime(CLOCK_MONOTONIC, &after);
		ns = tick_clock_ns(clock, ticks);
		low = (uint64_t)before.tv_sec * 1000 * MS + (uint64_t)before.tv_nsec;
		high = (uint64_t)after.tv_sec * 1000 * MS + (uint64_t)after.tv_nsec;
		wrong += ns + ERROR_NS < low || ns > high + ERROR_NS;
	}
	/* A few readings may be wrong because the thread lost the CPU during them. */
	CHECK(wrong < 20000 / 100);
	tick_clock_free(clock);
}

/* Returns whether a child reads the time without a system call. A filter kills the child for that
 * call. */
static bool reads_without_kernel(void)
{
	struct sock_filter kill[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clock_gettime, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog program = { ARRAY_SIZE(kill), kill };
	struct timespec now;
	int status = 0;
	pid_t child = fork();

	if (child == 0) {
		if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
		    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
			_exit(1);
		clock_gettime(CLOCK_MONOTONIC, &now);
		_exit(0);
	}
	CHECK(child > 0 && waitpid(child, &status, 0) == child);
	CHECK(WIFSIGNALED(status) ? WTERMSIG(status) == SIGSYS : WEXITSTATUS(status) == 0);
	return !WIFSIGNALED(status);
}

/* A tick clock exists if the kernel's clock uses the CPU's tick counter. Creating one must not
 * prevent a process from reading the time by system call. */
static void test_made_of(void)
{
	int filter = prctl(PR_GET_SECCOMP, 0, 0, 0, 0),
	    privileges = prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0);
	struct tick_clock *clock = tick_clock_new();
	struct timespec now;

	CHECK_INT(clock != NULL, CPU_HAS_TICK && reads_without_kernel());
	CHECK_INT(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now), 0);
	CHECK_INT(prctl(PR_GET_SECCOMP, 0, 0, 0, 0), filter);
	CHECK_INT(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), privileges);
	tick_clock_free(clock);
}

int main(void)
{
	RUN(test_rate);
	RUN(test_pauses);
	RUN(test_same);
	RUN(test_any);
	RUN(test_real);
	RUN(test_made_of);
	return test_end();
}
