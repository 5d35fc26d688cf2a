/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Heap-zoo - unusual uses of the allocator while allocations are recorded
 *
 *     heap-zoo MODE
 *
 * Counted blocks have one of two sizes that no other code requests. Each process adds a line "PID
 * ALLOCS FREES REALLOCS SLOWEST_US" to the file named by $ZOO_RESULTS. Exit status 0 if the
 * recording did not affect the program (errno, contents); else 99, with the line number of the
 * failed check on standard error.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SIZE 1009u
#define OTHER_SIZE 2003u
#define ERRNO 4711
#define MUST(condition)                                                                       \
	do {                                                                                  \
		if (!(condition)) {                                                           \
			dprintf(2, "heap-zoo: line %d: %s, errno %d\n", __LINE__, #condition, \
				errno);                                                       \
			_exit(99);                                                            \
		}                                                                             \
	} while (0)

/* Keeps the compiler from removing the call. */
#define KEEP(pointer) __asm__ volatile("" : "+r"(pointer) : : "memory")

static atomic_ulong n_allocs, n_frees, n_reallocs, slowest_us;
static const char *program;
static volatile sig_atomic_t handled;
static volatile bool is_over;
static bool is_errno_lost; /* whether the allocator itself changes errno */
static sigjmp_buf escape;

/* ---- Counted calls, which keep errno ---- */

static bool is_errno_kept(void)
{
	return errno == ERRNO || is_errno_lost;
}

static uint64_t now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static char *get(void)
{
	uint64_t start_us = now_us(), took_us;
	char *block;

	errno = ERRNO;
	block = malloc(SIZE);
	KEEP(block);
	took_us = now_us() - start_us;
	if (took_us > atomic_load(&slowest_us))
		atomic_store(&slowest_us, took_us);
	MUST(block && is_errno_kept());
	atomic_fetch_add(&n_allocs, 1);
	memset(block, 0x5a, SIZE);
	return block;
}

static void give(char *block)
{
	MUST(block[0] == 0x5a && block[SIZE - 1] == 0x5a);
	atomic_fetch_add(&n_frees, 1);
	errno = ERRNO;
	free(block);
	MUST(is_errno_kept());
}

static char *resize(char *block, size_t size)
{
	errno = ERRNO;
	block = realloc(block, size);
	KEEP(block);
	MUST(block && is_errno_kept() && block[0] == 0x5a && block[SIZE - 1] == 0x5a);
	atomic_fetch_add(&n_reallocs, 1);
	return block;
}

static void use(int n)
{
	for (int i = 0; i < n; i++) {
		char *first = get(), *second = get();

		first = resize(first, OTHER_SIZE);
		give(second);
		first = resize(first, SIZE);
		give(first);
	}
}

static void report(void)
{
	const char *results = getenv("ZOO_RESULTS");
	int fd = results ? open(results, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600) : -1;
	char line[100];
	int n = snprintf(line, sizeof(line), "%d %lu %lu %lu %lu\n", getpid(),
			 atomic_load(&n_allocs), atomic_load(&n_frees), atomic_load(&n_reallocs),
			 atomic_load(&slowest_us));

	if (fd < 0)
		return;
	MUST(write(fd, line, (size_t)n) == n);
	close(fd);
}

static void forget(void)
{
	atomic_store(&n_allocs, 0);
	atomic_store(&n_frees, 0);
	atomic_store(&n_reallocs, 0);
	atomic_store(&slowest_us, 0);
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
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* ---- The names ---- */

void cfree(void *address) __attribute__((weak));
void free_sized(void *address, size_t size) __attribute__((weak));
void free_aligned_sized(void *address, size_t alignment, size_t size) __attribute__((weak));

static void *check_block(void *block, size_t alignment)
{
	KEEP(block);
	MUST(block && errno == ERRNO && (uintptr_t)block % alignment == 0);
	return block;
}

static void fail(void *block)
{
	KEEP(block);
	MUST(!block && errno == ENOMEM);
	errno = ERRNO;
}

/* The test identifies each call by its size. */
static void run_kinds(void)
{
	size_t huge = SIZE_MAX / 2 + 1, n = SIZE_MAX / 4;
	void *block, *other = (void *)1;

	KEEP(huge);
	KEEP(n);
	errno = ERRNO;
	free(check_block(malloc(100001), 16));
	block = check_block(calloc(3, 33335), 16);
	for (size_t i = 0; i < 100005; i++)
		MUST(((char *)block)[i] == 0);
	block = check_block(realloc(block, 100007), 16);
	block = check_block(reallocarray(block, 2, 50005), 16);
	free(block);
	free(check_block(realloc(NULL, 100011), 16));
	MUST(posix_memalign(&block, 4096, 100013) == 0);
	free(check_block(block, 4096));
	free(check_block(aligned_alloc(64, 100032), 64));
	free(check_block(memalign(256, 100017), 256));
	free(check_block(valloc(100019), 4096));
	free(check_block(pvalloc(100021), 4096));
	block = check_block(malloc(0), 16);
	free(block);
	free(NULL);
	if (free_sized)
		free_sized(check_block(malloc(100023), 16), 100023);
	if (free_aligned_sized)
		free_aligned_sized(check_block(aligned_alloc(32, 100064), 32), 32, 100064);
	if (cfree)
		cfree(check_block(malloc(100025), 16));
	block = check_block(malloc(100027), 16);
	fail(malloc(huge));
	fail(calloc(n, 8));
	fail(realloc(block, huge));
	fail(reallocarray(block, n, 8));
	MUST(malloc_usable_size(block) >= 100027);
	MUST(posix_memalign(&other, 48, 100029) == EINVAL && other == (void *)1 && errno == ERRNO);
	MUST(posix_memalign(&other, 64, huge) == ENOMEM && other == (void *)1);
	errno = ERRNO;
	/* With this libc, realloc() to size 0 frees the block. */
	block = realloc(block, 0);
	free(block);
}

static void run_mappings(void)
{
	const size_t page = 4096;
	char *at = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void *end;

	MUST(at != MAP_FAILED);
	MUST(munmap(at + page, page) == 0);
	MUST(mmap(at, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
	at = mremap(at + 2 * page, 2 * page, 64 * page, MREMAP_MAYMOVE);
	MUST(at != MAP_FAILED);
	MUST(munmap(at, 64 * page) == 0);
	errno = ERRNO;
	MUST(mmap(NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED);
	MUST(errno == EINVAL);
	MUST(munmap((void *)1, page) < 0 && errno == EINVAL);
	end = sbrk(0);
	MUST(sbrk((intptr_t)(3 * page)) == end);
	MUST(sbrk(-(intptr_t)page) == (char *)end + 3 * page);
	MUST(brk(end) == 0 && sbrk(0) == end);
}

/* ---- The first call, before any constructor, even libc's ---- */

static void *early;

static void call_first(const char *kind)
{
	if (strcmp(kind, "malloc") == 0)
		early = malloc(SIZE);
	else if (strcmp(kind, "calloc") == 0)
		early = calloc(1, SIZE);
	else if (strcmp(kind, "realloc") == 0)
		early = realloc(NULL, SIZE);
	else if (strcmp(kind, "reallocarray") == 0)
		early = reallocarray(NULL, 1, SIZE);
	else if (strcmp(kind, "posix_memalign") == 0)
		MUST(posix_memalign(&early, 64, SIZE) == 0);
	else if (strcmp(kind, "aligned_alloc") == 0)
		early = aligned_alloc(64, SIZE);
	else if (strcmp(kind, "memalign") == 0)
		early = memalign(64, SIZE);
	else if (strcmp(kind, "valloc") == 0)
		early = valloc(SIZE);
	else if (strcmp(kind, "pvalloc") == 0)
		early = pvalloc(SIZE);
	else if (strcmp(kind, "free") == 0)
		free(NULL);
	else if (strcmp(kind, "usable") == 0)
		MUST(malloc_usable_size(NULL) == 0);
	else if (strcmp(kind, "mmap") == 0)
		MUST(mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
	else if (strcmp(kind, "dlclose") == 0)
		MUST(sbrk(0) != (void *)-1);
}

static void start_early(int argc, char **argv, char **envp)
{
	if (argc == 3 && strcmp(argv[1], "early") == 0)
		call_first(argv[2]);
}

__attribute__((section(".preinit_array"),
	       used)) static void (*const preinit)(int, char **, char **) = start_early;

static void run_early(void)
{
	if (early) {
		/* `early` was allocated before main(), and counts like any other block. */
		atomic_fetch_add(&n_allocs, 1);
		memset(early, 0x5a, SIZE);
		give(early);
	}
	use(100);
}

/* ---- Plain ---- */

static void run_plain(void)
{
	use(1000);
}

static void run_dlsym(void)
{
	for (int i = 0; i < 50; i++) {
		char *block = get();

		MUST(!dlsym(RTLD_DEFAULT, "no_such_name_anywhere"));
		MUST(dlerror());
		give(block);
	}
}

static void run_dlopen(void)
{
	for (int i = 0; i < 20; i++) {
		void *library = dlopen("libm.so.6", RTLD_NOW | (i % 2 ? RTLD_DEEPBIND : 0));
		double (*function)(double);

		MUST(library);
		function = (double (*)(double))dlsym(library, "cbrt");
		MUST(function && function(27) > 2.9);
		use(10);
		MUST(dlclose(library) == 0);
	}
}

/* Uses a second libc, which has its own heap. */
static void run_dlmopen(void)
{
	void *library = dlmopen(LM_ID_NEWLM, "libc.so.6", RTLD_NOW);
	void *(*allocate)(size_t);
	void (*release)(void *);

	MUST(library);
	allocate = (void *(*)(size_t))dlsym(library, "malloc");
	release = (void (*)(void *))dlsym(library, "free");
	MUST(allocate && release);
	for (int i = 0; i < 100; i++) {
		char *block = allocate(100 + (size_t)i);

		MUST(block);
		use(1);
		release(block);
	}
	MUST(dlclose(library) == 0);
}

/* ---- The end ---- */

static void run_exit(void)
{
	use(1000);
	get();
	report();
	exit(0);
}

static void run_kill(void)
{
	use(1000);
	get();
	report();
	kill(getpid(), SIGKILL);
}

static void run_abort(void)
{
	use(1000);
	get();
	report();
	abort();
}

/* ---- Processes ---- */

static void run_fork(void)
{
	pid_t pid;

	use(10);
	pid = fork();
	if (pid == 0) {
		pid_t inner;

		forget();
		use(1000);
		inner = fork();
		if (inner == 0) {
			forget();
			use(1000);
			leave();
		}
		use(1000);
		reap(inner);
		leave();
	}
	use(1000);
	reap(pid);
}

static void *use_until_over(void *data)
{
	while (!is_over) {
		use(1);
		usleep(50);
	}
	return NULL;
}

static void run_fork_threads(void)
{
	pthread_t ids[3];

	for (int i = 0; i < 3; i++)
		MUST(pthread_create(&ids[i], NULL, use_until_over, NULL) == 0);
	for (int i = 0; i < 30; i++) {
		pid_t pid = fork();

		if (pid == 0) {
			forget();
			use(50);
			leave();
		}
		use(1);
		reap(pid);
	}
	is_over = true;
	for (int i = 0; i < 3; i++)
		pthread_join(ids[i], NULL);
}

static void use_some(void)
{
	use(3);
}

static void use_in_child(void)
{
	forget();
	use(5);
}

static void run_atfork(void)
{
	MUST(pthread_atfork(use_some, use_some, use_in_child) == 0);
	for (int i = 0; i < 20; i++) {
		pid_t pid = fork();

		if (pid == 0) {
			use(10);
			leave();
		}
		reap(pid);
	}
}

static void run_raw_clone(void)
{
	use(10);
	for (int i = 0; i < 5; i++) {
		pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);

		if (pid == 0) {
			forget();
			use(500);
			leave();
		}
		use(500);
		reap(pid);
	}
}

/* The child's blocks belong to the parent, because both processes share memory. */
static void run_vfork(void)
{
	use(10);
	for (int i = 0; i < 20; i++) {
		pid_t pid = vfork();

		if (pid == 0) {
			use(1);
			if (i % 2)
				execl(program, program, "plain", NULL);
			_exit(0);
		}
		reap(pid);
	}
	use(10);
}

extern char **environ;

static void run_spawn(void)
{
	use(10);
	for (int i = 0; i < 5; i++) {
		char *const arguments[] = { (char *)program, (char *)"plain", NULL };
		pid_t pid;

		MUST(posix_spawn(&pid, program, NULL, NULL, arguments, environ) == 0);
		use(1);
		reap(pid);
	}
}

static void run_exec(void)
{
	use(10);
	report();
	execl(program, program, "plain", NULL);
	MUST(false);
}

/* ---- Threads ---- */

static void *use_ten(void *data)
{
	use(10);
	return NULL;
}

static void run_threads(void)
{
	for (int i = 0; i < 50; i++) {
		pthread_t ids[8];

		for (int j = 0; j < 8; j++)
			MUST(pthread_create(&ids[j], NULL, use_ten, NULL) == 0);
		for (int j = 0; j < 8; j++)
			pthread_join(ids[j], NULL);
	}
}

/* Allocates while the given number of bytes of the stack are in use. */
static void *use_in_rest(void *data)
{
	char *taken = __builtin_alloca(*(size_t *)data);

	KEEP(taken);
	taken[0] = 1;
	use(1);
	return NULL;
}

static void use_in_handler(int number)
{
	use(1);
	handled++;
}

/*
 * Uses threads and handlers with minimal stacks. Calls malloc() first, because binding its symbol
 * takes 3 KiB of stack on some machines.
 */
static void run_small_stacks(void)
{
	const size_t bytes = (size_t)sysconf(_SC_MINSIGSTKSZ) + 4096;
	pthread_attr_t attributes;
	pthread_t id;
	char *below;

	use(1);
	MUST(pthread_attr_init(&attributes) == 0 &&
	     pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN) == 0);
	for (size_t n = 1000; n <= 8000; n += 500) {
		MUST(pthread_create(&id, &attributes, use_in_rest, &n) == 0);
		pthread_join(id, NULL);
	}
	below = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MUST(below != MAP_FAILED &&
	     sigaltstack(&(stack_t){ .ss_sp = below + (1 << 15), .ss_size = bytes }, NULL) == 0);
	MUST(sigaction(SIGUSR1,
		       &(struct sigaction){ .sa_handler = use_in_handler, .sa_flags = SA_ONSTACK },
		       NULL) == 0);
	MUST(raise(SIGUSR1) == 0 && handled == 1);
	for (size_t i = 0; i < 1 << 15; i++)
		MUST(below[i] == 0);
}

/* ---- Filters ---- */

#define N_FILTERED 60 /* more than there are rings */
#define KILL_FOR(number)                                   \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), \
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)
#define FILTER(...)                                                                    \
	filter((struct sock_filter[]){ BPF_STMT(BPF_LD | BPF_W | BPF_ABS,              \
						offsetof(struct seccomp_data, nr)),    \
				       __VA_ARGS__,                                    \
				       BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW) }, \
	       2 + sizeof((struct sock_filter[]){ __VA_ARGS__ }) / sizeof(struct sock_filter))

static pthread_barrier_t all_are_there;

static void filter(struct sock_filter *code, size_t n)
{
	const struct sock_fprog all = { (unsigned short)n, code };

	MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
	     prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all) == 0);
}

static __attribute__((noinline)) void use_deeper(int n)
{
	char room[3000], *all = room;

	KEEP(all);
	if (n > 0)
		use_deeper(n - 1);
	else
		use(1);
	KEEP(all);
}

/* The first record makes all system calls that are needed to obtain a ring. */
static void *use_filtered(void *data)
{
	use(1);
	FILTER(KILL_FOR(SYS_getpid), KILL_FOR(SYS_gettid), KILL_FOR(SYS_prctl));
	for (int i = 0; i < 60; i++)
		use_deeper(i);
	return NULL;
}

static void *use_together(void *data)
{
	use(1);
	pthread_barrier_wait(&all_are_there);
	use(1);
	return NULL;
}

static void *begin_filtered(void *data)
{
	pthread_t ids[N_FILTERED];

	FILTER(KILL_FOR(SYS_sigaltstack), KILL_FOR(SYS_tgkill), KILL_FOR(SYS_kill),
	       KILL_FOR(SYS_process_vm_readv));
	for (int i = 0; i < 3; i++) {
		MUST(pthread_create(&ids[0], NULL, use_filtered, NULL) == 0);
		pthread_join(ids[0], NULL);
	}
	MUST(pthread_barrier_init(&all_are_there, NULL, N_FILTERED) == 0);
	for (int i = 0; i < N_FILTERED; i++)
		MUST(pthread_create(&ids[i], NULL, use_together, NULL) == 0);
	for (int i = 0; i < N_FILTERED; i++)
		pthread_join(ids[i], NULL);
	return NULL;
}

/* Starts threads under seccomp filters that kill the process for some system calls. */
static void run_filtered(void)
{
	pthread_t id;

	MUST(pthread_create(&id, NULL, begin_filtered, NULL) == 0);
	pthread_join(id, NULL);
}

#define SLOTS 64

static _Atomic(char *) slots[SLOTS];

/* Passes blocks from thread to thread. */
static void *reuse(void *data)
{
	unsigned seed = (unsigned)(uintptr_t)data;

	for (int i = 0; i < 4000; i++) {
		_Atomic(char *) *slot = &slots[rand_r(&seed) % SLOTS];
		char *block = atomic_exchange(slot, NULL);

		if (!block)
			block = get();
		else if (i % 3 == 0)
			block = resize(block, i % 2 ? SIZE : OTHER_SIZE);
		block = atomic_exchange(slot, block);
		if (block)
			give(block);
	}
	return NULL;
}

static void run_reuse(void)
{
	pthread_t ids[4];

	for (uintptr_t i = 0; i < 4; i++)
		MUST(pthread_create(&ids[i], NULL, reuse, (void *)(i + 1)) == 0);
	for (int i = 0; i < 4; i++)
		pthread_join(ids[i], NULL);
	for (int i = 0; i < SLOTS; i++)
		if (slots[i])
			give(slots[i]);
}

static pthread_key_t first_key, late_key;
extern void *__dso_handle;
extern int __cxa_thread_atexit_impl(void (*function)(void *), void *data, void *module);

static void use_late(void *value)
{
	uintptr_t n = (uintptr_t)value;

	use(10);
	/* libc repeats the destructors while a key has a value, up to a limit. */
	if (n < 20) {
		pthread_setspecific(first_key, (void *)(n + 1));
		pthread_setspecific(late_key, (void *)(n + 1));
	}
}

static void use_in_destructor(void *value)
{
	give(value);
	use(3);
}

static void *end_late(void *data)
{
	pthread_setspecific(first_key, (void *)1);
	pthread_setspecific(late_key, (void *)1);
	__cxa_thread_atexit_impl(use_in_destructor, get(), &__dso_handle);
	return NULL;
}

static void run_destructors(void)
{
	pthread_key_create(&first_key, use_late);
	/* With so many keys, libc allocates memory for the next one. */
	for (int i = 0; i < 40; i++)
		pthread_key_create(&late_key, use_late);
	for (int i = 0; i < 50; i++) {
		pthread_t id;

		MUST(pthread_create(&id, NULL, end_late, NULL) == 0);
		pthread_join(id, NULL);
	}
}

/* ---- Signals, with calls that a handler may make at any time ---- */

static void map_in_handler(int number)
{
	int error = errno;
	void *at = mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	handled++;
	MUST(at != MAP_FAILED);
	free(NULL);
	MUST(munmap(at, SIZE) == 0);
	atomic_fetch_add(&n_allocs, 1);
	atomic_fetch_add(&n_frees, 1);
	errno = error;
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

static void use_while(int n)
{
	uint64_t start = now_ns();

	while (handled < n && now_ns() - start < UINT64_C(20000000000))
		use(1);
}

static void run_handler(void)
{
	char *stack = malloc(1 << 16);

	set_handler(map_in_handler, SA_RESTART);
	set_timer(200);
	use_while(300);
	MUST(sigaltstack(&(stack_t){ .ss_sp = stack, .ss_size = 1 << 16 }, NULL) == 0);
	set_handler(map_in_handler, SA_RESTART | SA_ONSTACK);
	use_while(600);
	set_timer(0);
}

static void jump_from_handler(int number)
{
	map_in_handler(number);
	siglongjmp(escape, 1);
}

/* A handler jumps out of free(), which may abandon a record. */
static void run_siglongjmp(void)
{
	set_handler(jump_from_handler, 0);
	sigsetjmp(escape, 1);
	/* Send only one signal at a time, because a second one could arrive before the jump has
	 * left this stack. */
	set_once(200);
	while (handled < 600)
		free(NULL);
	set_timer(0);
	/* A record that was abandoned in one frame is detected only from a frame that is not
	 * deeper; use() is deeper. */
	free(NULL);
	/* The reader empties the ring, unless it waits for the end of the abandoned record. */
	for (int i = 0; i < 10; i++) {
		usleep(50000);
		use(10);
	}
}

/* ---- Modes ---- */

static const struct {
	const char *name;
	void (*run)(void);
} modes[] = {
	{ "plain", run_plain },       { "kinds", run_kinds },
	{ "mappings", run_mappings }, { "early", run_early },
	{ "dlsym", run_dlsym },       { "dlopen", run_dlopen },
	{ "dlmopen", run_dlmopen },   { "exit", run_exit },
	{ "kill", run_kill },         { "abort", run_abort },
	{ "fork", run_fork },         { "fork-threads", run_fork_threads },
	{ "atfork", run_atfork },     { "raw-clone", run_raw_clone },
	{ "vfork", run_vfork },       { "spawn", run_spawn },
	{ "exec", run_exec },         { "threads", run_threads },
	{ "reuse", run_reuse },       { "destructors", run_destructors },
	{ "handler", run_handler },   { "siglongjmp", run_siglongjmp },
	{ "filtered", run_filtered }, { "small-stacks", run_small_stacks },
};

int main(int argc, char **argv)
{
	program = argv[0];
	is_errno_lost = getenv("ZOO_ERRNO_LOST") != NULL;
	for (size_t i = 0; argc >= 2 && i < sizeof(modes) / sizeof(modes[0]); i++)
		if (strcmp(argv[1], modes[i].name) == 0) {
			modes[i].run();
			leave();
		}
	return 2;
}
