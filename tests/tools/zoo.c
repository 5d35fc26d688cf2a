/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Zoo - unusual behavior of programs while they are recorded
 *
 *     zoo MODE
 *
 * Each process adds a line "PID TRUE FALSE" to the file named by $ZOO_RESULTS: how many marks were
 * reported as recorded, and how many as not. Exit status 0 if the recording did not affect the
 * program (errno, descriptors, time); else 99, with the number of the failed line on standard
 * error.
 */
#include "libcollector/prof-collector.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ERRNO 4711
#define MUST(condition)                                                                          \
	do {                                                                                     \
		if (!(condition)) {                                                              \
			dprintf(2, "zoo: line %d: %s, errno %d\n", __LINE__, #condition, errno); \
			_exit(99);                                                               \
		}                                                                                \
	} while (0)

static atomic_ulong n_true, n_false;
static const char *program;
static sigjmp_buf escape;
static volatile sig_atomic_t handled;
static volatile bool is_over;

static bool count(bool is_recorded)
{
	atomic_fetch_add(is_recorded ? &n_true : &n_false, 1);
	return is_recorded;
}

/* Returns whether the mark was recorded. Fails if errno changes. */
static bool mark(const char *name, uint64_t n)
{
	struct prof_arg args[2] = {
		{ .name = "n", .kind = PROF_ARG_U64, .value.u64 = n },
		{ .name = "name", .kind = PROF_ARG_STRING, .value.string = name }
	};
	bool is_recorded;

	errno = ERRNO;
	is_recorded = count(prof_mark_instant("zoo", name, args, 2));
	MUST(errno == ERRNO);
	return is_recorded;
}

static void marks(const char *name, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		mark(name, i);
}

static void report(void)
{
	const char *results = getenv("ZOO_RESULTS");
	int fd = results ? open(results, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600) : -1;

	char line[80];
	int n = snprintf(line, sizeof(line), "%d %lu %lu\n", getpid(), atomic_load(&n_true),
			 atomic_load(&n_false));

	if (fd < 0)
		return;
	/* No dprintf(), because a seccomp filter may be active. */
	MUST(write(fd, line, (size_t)n) == n);
	close(fd);
}

static void forget(void)
{
	atomic_store(&n_true, 0);
	atomic_store(&n_false, 0);
}

static _Noreturn void leave(void)
{
	report();
	_exit(0);
}

static void reap(pid_t pid)
{
	int status;

	MUST(pid > 0);
	while (waitpid(pid, &status, 0) < 0)
		MUST(errno == EINTR);
	MUST(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static uint64_t now_ns(void)
{
	return prof_clock_ns();
}

/* ---- Plain ---- */

static void run_plain(void)
{
	marks("plain", 100);
}

static void run_everything(void)
{
	struct prof_arg args[] = {
		{ .name = "s64", .kind = PROF_ARG_S64, .value.s64 = -5 },
		{ .name = "u64", .kind = PROF_ARG_U64, .value.u64 = 5 },
		{ .name = "double", .kind = PROF_ARG_DOUBLE, .value.number = 0.5 },
		{ .name = "text", .kind = PROF_ARG_STRING, .value.string = "value" },
		{ .name = "address", .kind = PROF_ARG_ADDRESS, .value.address = args },
	};
	uint64_t id = prof_mark_new_id(), begin = prof_clock_ns();
	uint32_t gauge = prof_counter_define("zoo", "gauge", "bytes", 0);
	uint32_t sum = prof_counter_define("zoo", "sum", "", PROF_COUNT_SUM | PROF_COUNT_DOUBLE);

	MUST(id != 0 && gauge != 0 && sum != 0 && gauge != sum);
	MUST(prof_counter_define("zoo", "gauge", "bytes", 0) == gauge);
	MUST(prof_mark_new_id() != id);
	count(prof_mark_instant("zoo", "instant", args, 5));
	count(prof_mark_begin(id, "zoo", "span", NULL, 0));
	count(prof_mark_end(id, "zoo", "span", NULL, 0));
	usleep(2000);
	count(prof_mark_complete(begin, NULL, "complete", NULL, 0));
	MUST(prof_counter_set(gauge, 7) && prof_counter_add(gauge, -3));
	MUST(prof_counter_add_double(sum, 0.5) && prof_counter_add_double(sum, 0.25));
	MUST(!prof_counter_set(sum, 1) && !prof_counter_set(999, 1) && !prof_counter_set(0, 1));
	MUST(prof_log(4, "zoo", "careful"));
	MUST(!prof_log(8, "zoo", "no such level"));
	MUST(prof_thread_set_name("keeper"));
}

static void run_strings(void)
{
	size_t n = 1 << 20;
	char *text = malloc(n + 1);

	for (size_t i = 0; i < n; i++)
		text[i] = (char)('a' + i % 26);
	text[n] = 0;
	count(prof_mark_instant("zoo", text, NULL, 0));
	count(prof_mark_instant("zoo", text, NULL, 0));
	text[0] = 'b';
	count(prof_mark_instant("zoo", text, NULL, 0));
	count(prof_log(6, "zoo", text));
	text[40000] = 0;
	count(prof_mark_instant("zoo", text, NULL, 0));
	/* The text at an address changes between marks. */
	for (int i = 0; i < 20000; i++) {
		char name[24];

		snprintf(name, sizeof(name), "name %d", i % 3000);
		mark(name, (uint64_t)i % 3000);
	}
	free(text);
}

/* If profd refuses the connection or does not answer, nothing is recorded, and the program waits
 * only once. */
static void run_refused(void)
{
	uint64_t start = now_ns();

	mark("refused", 0);
	MUST(now_ns() - start < UINT64_C(5000000000));
	start = now_ns();
	MUST(!prof_collector_enabled());
	marks("refused", 1000);
	MUST(now_ns() - start < UINT64_C(2000000000));
	MUST(n_true == 0);
}

/* The session ends before the program. */
static void run_ended(void)
{
	uint64_t start = now_ns();

	while (prof_collector_enabled() && now_ns() - start < UINT64_C(30000000000)) {
		marks("ended", 10);
		usleep(100);
	}
	MUST(!prof_collector_enabled());
	MUST(prof_collector_connect("unix:/nonexistent/x") == -ENOENT);
	MUST(!prof_collector_enabled());
}

/* Connects explicitly, first with an invalid address. While the process is recorded, another
 * connection fails. */
static void run_connect(void)
{
	const char *control = getenv("ZOO_CONTROL");

	MUST(control);
	MUST(prof_collector_connect("nonsense") == -EINVAL);
	MUST(!prof_collector_enabled());
	mark("connect", 0);
	MUST(n_true == 0);
	MUST(prof_collector_connect(control) == 0);
	MUST(prof_collector_connect(control) == -EALREADY);
	marks("connect", 10);
}

/* ---- Processes ---- */

static void run_fork(void)
{
	pid_t pid;

	marks("parent", 10);
	pid = fork();
	if (pid == 0) {
		pid_t inner;

		forget();
		marks("child", 5000);
		inner = fork();
		if (inner == 0) {
			forget();
			marks("grandchild", 5000);
			leave();
		}
		marks("child", 5000);
		reap(inner);
		leave();
	}
	marks("parent", 10000);
	reap(pid);
}

static void *mark_until_over(void *data)
{
	while (!is_over)
		mark("beside", 0);
	return NULL;
}

/* Forks while other threads write a record or claim a ring. */
static void run_fork_threads(void)
{
	pthread_t ids[3];

	for (int i = 0; i < 3; i++)
		MUST(pthread_create(&ids[i], NULL, mark_until_over, NULL) == 0);
	for (int i = 0; i < 30; i++) {
		pid_t pid = fork();

		if (pid == 0) {
			forget();
			marks("child", 100);
			leave();
		}
		mark("parent", 0);
		reap(pid);
	}
	is_over = true;
	for (int i = 0; i < 3; i++)
		pthread_join(ids[i], NULL);
}

static void run_vfork(void)
{
	marks("before", 10);
	for (int i = 0; i < 20; i++) {
		pid_t pid = vfork();

		if (pid == 0) {
			mark("vfork", 0);
			if (i % 2)
				execl(program, program, "plain", NULL);
			_exit(0);
		}
		reap(pid);
	}
	marks("behind", 10);
}

/* A vfork child makes the first attempt to record, which must fail. */
static void run_vfork_first(void)
{
	pid_t pid = vfork();

	if (pid == 0) {
		mark("vfork", 0);
		_exit(0);
	}
	reap(pid);
	MUST(n_true == 0);
	/* Make many attempts, because the library skips some. */
	marks("behind", 1000);
	MUST(n_true > 0);
}

extern char **environ;

static void run_spawn(void)
{
	marks("before", 10);
	for (int i = 0; i < 5; i++) {
		char *const arguments[] = { (char *)program, (char *)"plain", NULL };
		pid_t pid;

		MUST(posix_spawn(&pid, program, NULL, NULL, arguments, environ) == 0);
		mark("beside", 0);
		reap(pid);
	}
}

static void run_exec(void)
{
	marks("before", 10);
	report();
	execl(program, program, "plain", NULL);
	MUST(false);
}

static void run_raw_clone(void)
{
	marks("parent", 10);
	for (int i = 0; i < 5; i++) {
		pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);

		if (pid == 0) {
			forget();
			marks("child", 1000);
			leave();
		}
		marks("parent", 1000);
		reap(pid);
	}
}

static void run_daemon(void)
{
	pid_t pid;

	marks("before", 10);
	pid = fork();
	if (pid == 0) {
		forget();
		setsid();
		if (fork() != 0)
			_exit(0);
		for (int fd = 0; fd < 2000; fd++)
			close(fd);
		open("/dev/null", O_RDWR);
		marks("daemon", 1000);
		leave();
	}
	reap(pid);
}

/* ---- Threads ---- */

static void *mark_ten(void *data)
{
	marks("thread", 10);
	return NULL;
}

static void run_threads(void)
{
	for (int i = 0; i < 125; i++) {
		pthread_t ids[8];

		for (int j = 0; j < 8; j++)
			MUST(pthread_create(&ids[j], NULL, mark_ten, NULL) == 0);
		for (int j = 0; j < 8; j++)
			pthread_join(ids[j], NULL);
	}
}

static void *mark_once(void *data)
{
	mark("turn", 0);
	return NULL;
}

static void run_turn(void)
{
	for (int i = 0; i < 3000; i++) {
		pthread_t id;

		MUST(pthread_create(&id, NULL, mark_once, NULL) == 0);
		pthread_join(id, NULL);
	}
}

static pthread_barrier_t barrier;

static void *mark_together(void *data)
{
	marks("together", 200);
	pthread_barrier_wait(&barrier);
	marks("together", 200);
	return NULL;
}

/* Runs more threads at once than there are rings. */
static void run_many(void)
{
	pthread_t ids[40];

	pthread_barrier_init(&barrier, NULL, 40);
	for (int i = 0; i < 40; i++)
		MUST(pthread_create(&ids[i], NULL, mark_together, NULL) == 0);
	for (int i = 0; i < 40; i++)
		pthread_join(ids[i], NULL);
}

static void *mark_around(void *data)
{
	mark("around", 0);
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	return NULL;
}

/* Another thread has the only ring. The child's marks must get another ring. */
static void run_fork_without(void)
{
	pthread_t id;
	pid_t pid;

	pthread_barrier_init(&barrier, NULL, 2);
	MUST(pthread_create(&id, NULL, mark_around, NULL) == 0);
	pthread_barrier_wait(&barrier);
	marks("parent", 10000);
	pid = fork();
	if (pid == 0) {
		forget();
		marks("child", 100);
		leave();
	}
	reap(pid);
	pthread_barrier_wait(&barrier);
	pthread_join(id, NULL);
}

#define CROWD 600

/* Tries until a mark is recorded, because after a failure the library skips some attempts. */
static bool try_some(void)
{
	for (int i = 0; i < 500; i++)
		if (prof_mark_instant("zoo", "crowd", NULL, 0))
			return true;
	return false;
}

static void *mark_until_recorded(void *data)
{
	const struct timespec bit = { .tv_nsec = 50000000 };
	int tries = 0;

	while (!try_some()) {
		MUST(tries++ < 400);
		nanosleep(&bit, NULL);
	}
	pthread_barrier_wait(&barrier);
	return NULL;
}

/* Runs far more threads than the first arena has rings. Every thread must get a ring eventually. */
static void run_crowd(void)
{
	pthread_t ids[CROWD];

	pthread_barrier_init(&barrier, NULL, CROWD);
	for (int i = 0; i < CROWD; i++)
		MUST(pthread_create(&ids[i], NULL, mark_until_recorded, NULL) == 0);
	for (int i = 0; i < CROWD; i++)
		pthread_join(ids[i], NULL);
}

static pthread_key_t early, late;

static void mark_late(void *value)
{
	uintptr_t n = (uintptr_t)value;

	marks("late", 10);
	/* libc repeats the destructors while a key has a value, up to a limit. */
	if (n < 20)
		pthread_setspecific(early, (void *)(n + 1));
	if (n < 20)
		pthread_setspecific(late, (void *)(n + 1));
}

static void *end_late(void *data)
{
	pthread_setspecific(early, (void *)1);
	pthread_setspecific(late, (void *)1);
	marks("late", 10);
	return NULL;
}

static void run_destructors(void)
{
	pthread_key_create(&early, mark_late);
	marks("before", 1);
	pthread_key_create(&late, mark_late);
	for (int i = 0; i < 200; i++) {
		pthread_t id;

		MUST(pthread_create(&id, NULL, end_late, NULL) == 0);
		pthread_join(id, NULL);
	}
}

/* A static program cannot use dlopen(). */
#ifndef ZOO_STATIC
static void *mark_through_dlopen(void *data)
{
	void *library = dlopen("libprofcollector.so.0", RTLD_NOW);
	const struct prof_collector_table *table = library ? dlsym(library, "prof_collector_table")
							   : NULL;

	MUST(table);
	for (int i = 0; i < 10; i++)
		count(table->mark_instant("zoo", "dlopen", NULL, 0));
	MUST(dlclose(library) == 0);
	return NULL;
}

/* Unloads the library before the destructors of its threads run. test_collector builds a program
 * for this that is not linked to the library. */
static void run_dlclose(void)
{
	for (int i = 0; i < 20; i++) {
		pthread_t id;

		MUST(pthread_create(&id, NULL, mark_through_dlopen, NULL) == 0);
		pthread_join(id, NULL);
	}
}
#endif

static void run_fifo(void)
{
	struct sched_param parameter = { .sched_priority = 1 };
	uint64_t start = now_ns();

	/* Register before the policy changes, because a real-time thread waits only 10 ms for the
	 * answer. */
	mark("before", 0);
	MUST(sched_setscheduler(0, SCHED_FIFO, &parameter) == 0);
	marks("fifo", 20000);
	MUST(now_ns() - start < UINT64_C(20000000000));
}

/* ---- Signals ---- */

static void mark_in_handler(int number)
{
	char name[32];

	handled++;
	snprintf(name, sizeof(name), "handler %d", handled % 700);
	mark(name, (uint64_t)handled % 700);
}

static void set_timer(long us)
{
	struct itimerval timer = { { 0, us }, { 0, us } };

	setitimer(ITIMER_REAL, &timer, NULL);
}

static void set_once(long us)
{
	struct itimerval timer = { { 0, 0 }, { 0, us } };

	setitimer(ITIMER_REAL, &timer, NULL);
}

static void set_handler(void (*handler)(int), int flags)
{
	struct sigaction action = { .sa_handler = handler, .sa_flags = flags };

	MUST(sigaction(SIGALRM, &action, NULL) == 0);
}

static void mark_while(int n)
{
	uint64_t start = now_ns();

	for (int i = 0; handled < n && now_ns() - start < UINT64_C(20000000000); i++) {
		char name[32];

		snprintf(name, sizeof(name), "main %d", i % 900);
		mark(name, (uint64_t)i % 900);
	}
}

static void run_handler(void)
{
	char *stack = malloc(1 << 16);

	set_handler(mark_in_handler, SA_RESTART);
	set_timer(100);
	mark_while(700);
	MUST(sigaltstack(&(stack_t){ .ss_sp = stack, .ss_size = 1 << 16 }, NULL) == 0);
	set_handler(mark_in_handler, SA_RESTART | SA_ONSTACK);
	mark_while(1400);
	set_timer(0);
}

static void jump_from_handler(int number)
{
	mark_in_handler(number);
	siglongjmp(escape, 1);
}

static void run_siglongjmp(void)
{
	set_handler(jump_from_handler, 0);
	sigsetjmp(escape, 1);
	/* Send only one signal at a time, because a second one could arrive before the jump has
	 * left this stack. */
	set_once(200);
	mark_while(500);
	set_timer(0);
	/* There is room as soon as the reader runs, unless it waits for the end of the abandoned
	 * record. */
	for (uint64_t n = 0, start = now_ns(); n < 10 && now_ns() - start < UINT64_C(20000000000);)
		if (mark("behind", n))
			n++;
		else
			usleep(1000);
}

#define N_FORKS 100

static void fork_in_handler(int number)
{
	pid_t pid = fork();

	handled++;
	if (pid == 0) {
		forget();
		set_timer(0);
		mark("child", 0);
		handled = 1000000;
		return;
	}
	if (pid > 0) {
		int status;

		while (waitpid(pid, &status, 0) < 0)
			MUST(errno == EINTR);
		MUST(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
	/* Set the timer only now, because a fork takes longer than the timer's interval. */
	if (handled < N_FORKS)
		set_once(300);
}

/* A handler forks within a record. The child continues the record that its parent began. */
static void run_fork_handler(void)
{
	set_handler(fork_in_handler, SA_RESTART);
	set_once(300);
	while (handled < N_FORKS)
		mark("main", 0);
	set_timer(0);
	marks(handled > N_FORKS ? "child" : "main", 10);
}

/* ---- Descriptors ---- */

static void run_closefrom(void)
{
	int pair[2], fds[] = { 3, 200, 1000 };
	char byte;

	marks("before", 10);
	for (int fd = 3; fd < 4000; fd++)
		close(fd);
	MUST(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair) == 0);
	for (size_t i = 0; i < 3; i++)
		MUST(pair[0] == fds[i] || dup2(pair[0], fds[i]) == fds[i]);
	/* The marks must neither write to the program's new descriptors nor close them. */
	run_many();
	marks("behind", 10);
	for (size_t i = 0; i < 3; i++)
		MUST(fcntl(fds[i], F_GETFD) >= 0);
	MUST(recv(pair[1], &byte, 1, 0) < 0 && errno == EAGAIN);
}

/* The program's new descriptors must get the lowest free number. */
static void run_lowest(void)
{
	int before = dup(0), behind;

	close(before);
	marks("lowest", 10);
	behind = dup(0);
	MUST(before == behind);
}

/* ---- Filters ---- */

#define ALLOW(number)                                      \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), \
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static void set_filter(uint32_t otherwise)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		ALLOW(SYS_write),
		ALLOW(SYS_openat),
		ALLOW(SYS_close),
		ALLOW(SYS_getpid),
		ALLOW(SYS_clock_gettime),
		ALLOW(SYS_exit_group),
		ALLOW(SYS_exit),
		BPF_STMT(BPF_RET | BPF_K, otherwise),
	};
	struct sock_fprog prog = { .len = sizeof(filter) / sizeof(filter[0]), .filter = filter };

	MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) == 0);
}

/* Sets a seccomp filter before the first record; run_seccomp() sets one between records. */
static void run_seccomp_first(void)
{
	set_filter(SECCOMP_RET_ERRNO | EPERM);
	marks("filtered", 1000);
	MUST(n_true == 0);
}

static void run_seccomp(void)
{
	marks("before", 10);
	set_filter(SECCOMP_RET_ERRNO | EPERM);
	marks("filtered", 10000);
}

static void run_seccomp_kill(void)
{
	MUST(prof_collector_no_syscalls());
	marks("before", 10);
	set_filter(SECCOMP_RET_KILL_PROCESS);
	marks("filtered", 10000);
}

/* ---- Modes ---- */

static const struct {
	const char *name;
	void (*run)(void);
} modes[] = {
	{ "plain", run_plain },
	{ "everything", run_everything },
	{ "strings", run_strings },
	{ "refused", run_refused },
	{ "ended", run_ended },
	{ "connect", run_connect },
	{ "fork", run_fork },
	{ "fork-threads", run_fork_threads },
	{ "vfork", run_vfork },
	{ "vfork-first", run_vfork_first },
	{ "spawn", run_spawn },
	{ "exec", run_exec },
	{ "raw-clone", run_raw_clone },
	{ "daemon", run_daemon },
	{ "threads", run_threads },
	{ "turn", run_turn },
	{ "many", run_many },
	{ "crowd", run_crowd },
	{ "fork-without", run_fork_without },
	{ "destructors", run_destructors },
#ifndef ZOO_STATIC
	{ "dlclose", run_dlclose },
#endif
	{ "fifo", run_fifo },
	{ "handler", run_handler },
	{ "siglongjmp", run_siglongjmp },
	{ "fork-handler", run_fork_handler },
	{ "closefrom", run_closefrom },
	{ "lowest", run_lowest },
	{ "seccomp", run_seccomp },
	{ "seccomp-first", run_seccomp_first },
	{ "seccomp-kill", run_seccomp_kill },
};

int main(int argc, char **argv)
{
	program = argv[0];
	for (size_t i = 0; argc == 2 && i < sizeof(modes) / sizeof(modes[0]); i++)
		if (strcmp(argv[1], modes[i].name) == 0) {
			modes[i].run();
			leave();
		}
	return 2;
}
