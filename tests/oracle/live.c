/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Samples one thread with one perf event. The ring is so large that a slow reader loses nothing. */
#include "tests/oracle/live.h"

#include "arch/base.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#define RING_BYTES (16u << 20)
#define PERIOD_NS 1001001
#define PERF_MASK \
	0xff0fffu /* arch/x86/include/uapi/asm/perf_regs.h: all registers but DS, ES, FS and GS */

/* DWARF numbers of the registers in a sample, in perf's order: AX BX CX DX SI DI BP SP IP FLAGS CS
 * SS R8... */
static const int8_t dwarf_numbers[] = { 0,  3,  2, 1, 4,  5,  6,  7,  16, -1,
					-1, -1, 8, 9, 10, 11, 12, 13, 14, 15 };

struct ring {
	int fd;
	uint8_t *base;
	struct perf_event_mmap_page *page;
};

static int open_event(pid_t pid)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(attr),
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.sample_period = PERIOD_NS,
		.sample_type = PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER,
		.sample_regs_user = PERF_MASK,
		.sample_stack_user = LIVE_STACK_BYTES,
		.disabled = 1,
		.enable_on_exec = 1,
		.exclude_kernel = 1,
		.exclude_hv = 1,
	};

	return (int)syscall(SYS_perf_event_open, &attr, pid, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

static bool open_ring(pid_t pid, struct ring *ring)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	void *base;

	ring->fd = open_event(pid);
	if (ring->fd < 0)
		return false;
	base = mmap(NULL, RING_BYTES + page, PROT_READ | PROT_WRITE, MAP_SHARED, ring->fd, 0);
	if (base == MAP_FAILED)
		return false;
	ring->page = base;
	ring->base = (uint8_t *)base + page;
	return true;
}

static void close_ring(struct ring *ring)
{
	if (ring->page)
		munmap(ring->page, RING_BYTES + (size_t)sysconf(_SC_PAGESIZE));
	if (ring->fd >= 0)
		close(ring->fd);
}

static void copy_out(const struct ring *ring, uint64_t at, void *to, size_t size)
{
	size_t start = at % RING_BYTES, first = MIN_OF(size, RING_BYTES - start);

	memcpy(to, ring->base + start, first);
	memcpy((uint8_t *)to + first, ring->base, size - first);
}

/* Layout: u64 abi, u64 regs[20], u64 size, char stack[size], u64 valid size. */
static bool add_sample(struct live *live, const uint8_t *body, size_t size)
{
	const size_t n_registers = ARRAY_SIZE(dwarf_numbers);
	size_t at = 8 + n_registers * 8, room, valid;
	struct live_sample *sample = &live->samples[live->n];

	if (size < at + 8 || load_le64(body) == 0)
		return true;
	room = load_le64(body + at);
	if (room == 0 || at + 16 + room > size)
		return true;
	valid = load_le64(body + at + 8 + room);
	for (size_t i = 0; i < n_registers; i++)
		if (dwarf_numbers[i] >= 0)
			sample->registers[dwarf_numbers[i]] = load_le64(body + 8 + i * 8);
	sample->stack = malloc(valid + 1);
	if (!sample->stack)
		return false;
	memcpy(sample->stack, body + at + 8, valid);
	sample->stack_size = valid;
	live->n++;
	return true;
}

static bool drain(struct ring *ring, struct live *live, size_t n)
{
	static uint8_t body[1 << 16];
	uint64_t head = atomic_load_explicit((_Atomic uint64_t *)&ring->page->data_head,
					     memory_order_acquire);
	uint64_t tail = ring->page->data_tail;

	while (tail < head && live->n < n) {
		struct perf_event_header header;

		copy_out(ring, tail, &header, sizeof(header));
		copy_out(ring, tail + sizeof(header), body, header.size - sizeof(header));
		if (header.type == PERF_RECORD_SAMPLE &&
		    !add_sample(live, body, header.size - sizeof(header)))
			return false;
		tail += header.size;
	}
	atomic_store_explicit((_Atomic uint64_t *)&ring->page->data_tail, tail,
			      memory_order_release);
	return true;
}

static pid_t start(char *const *command, int *ret_gate)
{
	int gate[2];
	pid_t pid;
	char byte;

	if (pipe2(gate, O_CLOEXEC) < 0)
		return -1;
	pid = fork();
	if (pid == 0) {
		int null = open("/dev/null", O_RDWR | O_CLOEXEC);

		close(gate[1]);
		dup2(null, 0);
		dup2(null, 1);
		dup2(null, 2);
		if (read(gate[0], &byte, 1) == 1)
			execvp(command[0], command);
		_exit(127);
	}
	close(gate[0]);
	*ret_gate = gate[1];
	return pid;
}

static void collect(struct live *live, struct ring *ring, size_t n, unsigned int seconds)
{
	const struct timespec pause = { .tv_nsec = 5000000 };

	for (unsigned int i = 0; i < seconds * 200 && live->n < n; i++) {
		siginfo_t info = { .si_pid = 0 };

		nanosleep(&pause, NULL);
		if (waitid(P_PID, (id_t)live->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
		    info.si_pid != 0)
			break;
		if (!drain(ring, live, n))
			break;
	}
	kill(live->pid, SIGSTOP);
	drain(ring, live, n);
}

struct live *live_record(char *const *command, size_t n, unsigned int seconds)
{
	struct live *live = calloc(1, sizeof(*live));
	struct ring ring = { .fd = -1 };
	CLEANUP_CLOSE int gate = -1;
	int error;

	if (!live)
		return NULL;
	live->samples = calloc(n, sizeof(*live->samples));
	live->pid = start(command, &gate);
	if (live->samples && live->pid > 0 && open_ring(live->pid, &ring) &&
	    write(gate, "", 1) == 1)
		collect(live, &ring, n, seconds);
	error = errno;
	close_ring(&ring);
	if (live->n > 0)
		return live;
	live_free(live);
	errno = error;
	return NULL;
}

void live_free(struct live *live)
{
	if (!live)
		return;
	if (live->pid > 0) {
		kill(live->pid, SIGKILL);
		waitpid(live->pid, NULL, 0);
	}
	for (size_t i = 0; live->samples && i < live->n; i++)
		free(live->samples[i].stack);
	free(live->samples);
	free(live);
}
