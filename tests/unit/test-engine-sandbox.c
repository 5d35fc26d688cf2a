/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of daemon/engine/session/sandbox.c, in children that enter the sandbox: forbidden actions
 * kill the process.
 */
#include "config.h"

#include "daemon/engine/perf/ring.h"
#include "daemon/engine/session/sandbox.h"
#include "daemon/protocol.h"
#include "tests/unit/test.h"

#include <assert.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <locale.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { REFUSED = 40, ALLOWED = 41, NO_SANDBOX = 42 };

/* These functions return true if the action succeeded. */
static bool try_open(void)
{
	return open("/etc/passwd", O_RDONLY | O_CLOEXEC) >= 0;
}

static bool try_openat2(void)
{
	return syscall(SYS_openat2, AT_FDCWD, "/", NULL, 0) >= 0;
}

static bool try_socket(void)
{
	return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0) >= 0;
}

static bool try_connect(void)
{
	const struct sockaddr any = { .sa_family = AF_UNIX };

	return connect(0, &any, sizeof(any)) == 0;
}

static bool try_exec(void)
{
	execl("/bin/true", "true", NULL);
	return false;
}

static bool try_ptrace(void)
{
	return ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0;
}

static bool try_fork(void)
{
	return fork() >= 0;
}

static bool try_kill(void)
{
	return kill(getppid(), 0) == 0;
}

static bool try_executable_memory(void)
{
	return mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) !=
	       MAP_FAILED;
}

static bool try_make_executable(void)
{
	void *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return mprotect(memory, 4096, PROT_READ | PROT_EXEC) == 0;
}

static bool try_unlink(void)
{
	return unlink("/nonexistent") == 0;
}

static bool try_process_vm(void)
{
	return syscall(SYS_process_vm_readv, getppid(), NULL, 0, NULL, 0, 0) >= 0;
}

static bool try_perf_event(void)
{
	return syscall(SYS_perf_event_open, NULL, 0, -1, -1, 0) >= 0;
}

static void *open_in_thread(void *data)
{
	int *ready = data;

	while (!__atomic_load_n(ready, __ATOMIC_ACQUIRE))
		sched_yield();
	_exit(try_open() ? ALLOWED : REFUSED);
}

static int compare(const void *a, const void *b)
{
	return memcmp(a, b, 8);
}

/* Runs an action in a child in the sandbox. Returns the child's wait status. */
static int run_inside(bool (*act)(void))
{
	pid_t child = fork();
	int status = -1;

	if (child == 0) {
		setrlimit(RLIMIT_CORE, &(struct rlimit){ 0 });
		if (!sandbox_drop_privileges(0, NULL) || !sandbox_filter(NULL))
			_exit(NO_SANDBOX);
		_exit(act() ? ALLOWED : REFUSED);
	}
	waitpid(child, &status, 0);
	return status;
}

static void test_calls(void)
{
	static const struct {
		const char *name;
		bool (*act)(void);
	} acts[] = {
		{ "open", try_open },
		{ "openat2", try_openat2 },
		{ "socket", try_socket },
		{ "connect", try_connect },
		{ "execve", try_exec },
		{ "ptrace", try_ptrace },
		{ "fork", try_fork },
		{ "kill", try_kill },
		{ "mmap(PROT_EXEC)", try_executable_memory },
		{ "mprotect(PROT_EXEC)", try_make_executable },
		{ "unlink", try_unlink },
		{ "process_vm_readv", try_process_vm },
		{ "perf_event_open", try_perf_event },
	};
	size_t i;
	int status;

	if (PROF_SANITIZED)
		SKIP("sanitizers need calls that the filter refuses");
	for (i = 0; i < sizeof(acts) / sizeof(*acts); i++) {
		status = run_inside(acts[i].act);
		if (!CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS))
			printf("# %s: status %#x\n", acts[i].name, status);
	}
}

/* The engine's own actions must work: memory, sorting, open files, waiting, random numbers. */
static bool do_work(void)
{
	uint64_t *numbers = malloc(1 << 22);
	struct pollfd wait = { .fd = 0 };
	struct stat status;
	uint8_t byte;

	if (!numbers)
		return false;
	memset(numbers, 0, 1 << 22);
	qsort(numbers, (1 << 22) / 8, 8, compare);
	free(numbers);
	return fstat(STDIN_FILENO, &status) == 0 && poll(&wait, 1, 0) >= 0 &&
	       getrandom(&byte, 1, 0) == 1 && shutdown(STDIN_FILENO, SHUT_RD) <= 0 &&
	       fcntl(STDIN_FILENO, F_GETFL) >= 0;
}

static void test_work(void)
{
	int status = PROF_SANITIZED ? 0 : run_inside(do_work);

	if (PROF_SANITIZED)
		SKIP("sanitizers need calls that the filter refuses");
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == ALLOWED);
}

/* Error texts work in any locale, although libc usually reads them from files. */
static bool say_what_failed(void)
{
	g_autoptr(GError) error = NULL;
	struct ring ring;

	return !ring_init(&ring, -1, 1, &error) && strstr(error->message, "Bad file descriptor");
}

static bool fail_an_assertion(void)
{
	assert(getpid() == 0);
	return true;
}

static void test_errors(void)
{
	int status;

	if (PROF_SANITIZED)
		SKIP("sanitizers need calls that the filter refuses");
	setlocale(LC_ALL, "C.UTF-8");
	status = run_inside(say_what_failed);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == ALLOWED);
	status = run_inside(fail_an_assertion);
	/* a fortified glibc opens /proc/self/maps for the %n of its own message */
	CHECK(WIFSIGNALED(status) && (WTERMSIG(status) == SIGABRT || WTERMSIG(status) == SIGSYS));
	setlocale(LC_ALL, "C");
}

/* Checks that this process has no capability, no way to get one, no root uid and, if it was root,
 * no group, and that it cannot be traced or dump core. Returns a bit for each violation. */
static int find_privilege(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];
	bool was_root = geteuid() == 0;
	struct rlimit core;
	int wrong = 0, i;

	if (!sandbox_drop_privileges(0, NULL))
		return 128;
	syscall(SYS_capget, &header, data);
	for (i = 0; i < 2; i++)
		if (data[i].effective || data[i].permitted || data[i].inheritable)
			wrong |= 1;
	for (i = 0; was_root && prctl(PR_CAPBSET_READ, i, 0, 0, 0) >= 0; i++)
		if (prctl(PR_CAPBSET_READ, i, 0, 0, 0) != 0)
			wrong |= 2;
	if (geteuid() == 0 || getuid() == 0 || setresuid(0, 0, 0) == 0)
		wrong |= 4;
	if (was_root && getgroups(0, NULL) != 0)
		wrong |= 8;
	if (prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) != 0 || prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1)
		wrong |= 16;
	if (getrlimit(RLIMIT_CORE, &core) != 0 || core.rlim_max != 0)
		wrong |= 32;
	return wrong;
}

static void test_privileges(void)
{
	CHECK_INT(test_in_child(find_privilege), 0);
}

/* Returns a bit for each limit that is missing or wrong. */
static int find_excess(void)
{
	struct rlimit files, memory;
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	int wrong = 0;

	if (!sandbox_drop_privileges(1 << 20, NULL) || getrlimit(RLIMIT_FSIZE, &files) != 0 ||
	    getrlimit(RLIMIT_DATA, &memory) != 0)
		return 64;
	if (files.rlim_max > 1 << 28)
		wrong |= 1;
	if (!PROF_SANITIZED && (memory.rlim_max > ENGINE_MEMORY_BYTES ||
				mmap(NULL, ENGINE_MEMORY_BYTES, PROT_READ | PROT_WRITE,
				     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED))
		wrong |= 2;
	/* shared mappings must not be limited, because rings are shared */
	if (mmap(NULL, ENGINE_MEMORY_BYTES + (1 << 20), PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED)
		wrong |= 4;
	return wrong;
}

static void test_limits(void)
{
	CHECK_INT(test_in_child(find_excess), 0);
}

static void test_threads(void)
{
	pid_t child;
	int status;

	if (PROF_SANITIZED)
		SKIP("sanitizers need calls that the filter refuses");
	child = fork();
	if (child == 0) {
		pthread_t thread;
		int ready = 0;

		setrlimit(RLIMIT_CORE, &(struct rlimit){ 0 });
		if (!sandbox_drop_privileges(0, NULL) ||
		    pthread_create(&thread, NULL, open_in_thread, &ready) != 0 ||
		    !sandbox_filter(NULL))
			_exit(NO_SANDBOX);
		__atomic_store_n(&ready, 1, __ATOMIC_RELEASE);
		for (;;)
			sched_yield();
	}
	waitpid(child, &status, 0);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS);
}

int main(void)
{
	RUN(test_privileges);
	RUN(test_limits);
	RUN(test_calls);
	RUN(test_work);
	RUN(test_errors);
	RUN(test_threads);
	return test_end();
}
