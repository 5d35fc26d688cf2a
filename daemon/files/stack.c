/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Stack - reads the stack of a sleeping thread
 *
 * /proc/TID/syscall has the thread's stack pointer while it sleeps, and nothing while it runs. The
 * memory above that address is read, and no other, so the engine, which names the thread, has no
 * influence on the address. The thread may have run meanwhile; the engine receives the thread's
 * switches, and uses only stacks of threads that have not run.
 */
#include "daemon/files/stack.h"

#include "base/clock.h"

#include <fcntl.h>
#include <inttypes.h>
#include <seccomp.h>
#include <stdio.h>
#include <sys/resource.h>

#define MAX_BYTES 65536u

/* Returns whether the first argument of this system call is a descriptor. */
static bool has_descriptor(const char *name)
{
	static const char *const names[] = {
		"read",        "write",        "pread64",   "pwrite64",        "readv",
		"writev",      "preadv",       "pwritev",   "fsync",           "fdatasync",
		"recvfrom",    "recvmsg",      "recvmmsg",  "sendto",          "sendmsg",
		"sendmmsg",    "accept",       "accept4",   "connect",         "epoll_wait",
		"epoll_pwait", "epoll_pwait2", "flock",     "fcntl",           "ioctl",
		"getdents64",  "ftruncate",    "fallocate", "sync_file_range", "io_uring_enter",
	};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (strcmp(names[i], name) == 0)
			return true;
	return false;
}

static void name_call(int dir, struct snapshot_stack *stack)
{
	CLEANUP_FREE char *name =
		stack->number >= 0
			? seccomp_syscall_resolve_num_arch(SCMP_ARCH_NATIVE, (int)stack->number)
			: NULL;
	char path[32];
	ssize_t n;

	if (stack->number < 0)
		return;
	if (!name) {
		snprintf(stack->syscall, sizeof(stack->syscall), "system call %" PRIi64,
			 stack->number);
		return;
	}
	snprintf(stack->syscall, sizeof(stack->syscall), "%s", name);
	if (!has_descriptor(name) || stack->argument > INT32_MAX)
		return;
	snprintf(path, sizeof(path), "fd/%" PRIu64, stack->argument);
	n = readlinkat(dir, path, stack->object, sizeof(stack->object) - 1);
	stack->object[MAX_OF(n, (ssize_t)0)] = '\0';
}

static long count_preemptions(void)
{
	struct rusage usage;

	return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nivcsw : 0;
}

void stack_add(struct buffer *buffer, int dir, pid_t tid)
{
	static uint8_t bytes[MAX_BYTES];
	struct snapshot_record record = { .kind = SNAPSHOT_STACK, .tid = tid, .pid = tid };
	struct snapshot_stack stack = { 0 };
	CLEANUP_CLOSE int fd = openat(dir, "syscall", O_RDONLY | O_CLOEXEC);
	CLEANUP_CLOSE int memory = -1;
	long preemptions = count_preemptions();
	char text[256];
	ssize_t n;

	record.time_ns = clock_now();
	n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
	if (n <= 0)
		return;
	text[n] = '\0';
	/* the text may be "running", or "-1 SP PC" if the thread sleeps in a page fault */
	if (sscanf(text, "%" SCNi64 " %" SCNx64 " %*x %*x %*x %*x %*x %" SCNx64 " %" SCNx64,
		   &stack.number, &stack.argument, &stack.sp, &stack.pc) != 4) {
		stack.argument = 0;
		if (sscanf(text, "%" SCNi64 " %" SCNx64 " %" SCNx64, &stack.number, &stack.sp,
			   &stack.pc) != 3)
			return;
	}
	/* The calls of a 32-bit program have other numbers, and its frames other sizes. */
	if ((stack.sp | stack.pc) <= UINT32_MAX)
		return;
	memory = openat(dir, "mem", O_RDONLY | O_CLOEXEC);
	n = memory >= 0 && stack.sp % 8 == 0 ? pread(memory, bytes, sizeof(bytes), (off_t)stack.sp)
					     : -1;
	if (n < 0)
		return;
	name_call(dir, &stack);
	/* if the thread has not run by now, all that was read is from one sleep */
	stack.done_ns = clock_now();
	stack.is_preempted = count_preemptions() != preemptions;
	stack.bytes = (uint32_t)n;
	record.length = (uint32_t)sizeof(stack);
	buffer_add(buffer, &record, &stack, bytes, stack.bytes);
}
