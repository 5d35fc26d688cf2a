/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of arch/walk on the own stack, as a collector uses it: each chain is the one of glibc's backtrace(), which is
 * libgcc's unwinder. Memory is read by the kernel, so that nothing here can fault.
 */
#include "arch/walk.h"

#include "tests/oracle/elf-cfi.h"
#include "tests/unit/test.h"

#include <alloca.h>
#include <execinfo.h>
#include <link.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/uio.h>
#include <ucontext.h>

#define MAX_MODULES 32
#define DEPTH 2000

#if defined(__x86_64__)
#define CONTEXT_REGISTERS(c)                                    \
	{                                                       \
		.pc = (uint64_t)(c).uc_mcontext.gregs[REG_RIP], \
		.sp = (uint64_t)(c).uc_mcontext.gregs[REG_RSP], \
		.fp = (uint64_t)(c).uc_mcontext.gregs[REG_RBP], \
	}
#elif defined(__aarch64__)
#define CONTEXT_REGISTERS(c)                                                    \
	{                                                                       \
		.pc = (c).uc_mcontext.pc, .sp = (c).uc_mcontext.sp,             \
		.fp = (c).uc_mcontext.regs[29], .lr = (c).uc_mcontext.regs[30], \
	}
#endif

struct module {
	uint64_t start, end, bias;
	struct table table;
	bool has_table;
};

static struct module modules[MAX_MODULES];
static size_t n_modules;
static struct walk_cache cache;
static void *sink;

static int add_module(struct dl_phdr_info *info, size_t size, void *data)
{
	const char *path = info->dlpi_name[0] ? info->dlpi_name : "/proc/self/exe";
	bool is_vdso = strncmp(path, "linux-vdso", 10) == 0;
	struct elf_cfi *file = is_vdso ? elf_cfi_open_vdso() : elf_cfi_open(path);
	struct module *module = &modules[n_modules];
	size_t table_size;
	void *bytes;

	if (!file || n_modules == MAX_MODULES) {
		elf_cfi_free(file);
		return 0;
	}
	*module = (struct module){
		.start = info->dlpi_addr + file->low,
		.end = info->dlpi_addr + file->high,
		.bias = info->dlpi_addr,
	};
	module->has_table = elf_cfi_build(file, &module->table, &bytes, &table_size);
	n_modules++;
	elf_cfi_free(file);
	return 0;
}

static void resolve(void *data, uint64_t pc, struct walk_code *ret_code)
{
	for (size_t i = 0; i < n_modules; i++) {
		if (pc < modules[i].start || pc >= modules[i].end)
			continue;
		ret_code->kind = modules[i].has_table ? WALK_CODE_TABLE : WALK_CODE_FP;
		ret_code->table = &modules[i].table;
		ret_code->address = pc - modules[i].bias;
	}
}

static bool read_word(void *data, uint64_t address, uint64_t *ret_word)
{
	struct iovec local = { ret_word, sizeof(*ret_word) };
	struct iovec remote = { (void *)address, sizeof(*ret_word) };

	return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == sizeof(*ret_word);
}

/* From where it is called, both ways. The innermost frame differs, since both are not in the same line. */
static __attribute__((noinline)) void check_here(void)
{
	static struct walk_frame frames[DEPTH + 100];
	static void *expected[DEPTH + 100];
	const struct walk walk = {
		.arch = REGS_NATIVE,
		.read_word = read_word,
		.resolve = resolve,
		.cache = &cache,
		.generation = 1,
		.frames = frames,
		.n_frames = ARRAY_SIZE(frames),
	};
	struct walk_result result;
	ucontext_t context;
	int n = backtrace(expected, ARRAY_SIZE(expected));

	CHECK(getcontext(&context) == 0);
	const struct walk_registers registers = CONTEXT_REGISTERS(context);

	walk_run(&walk, &registers, &result);
	CHECK_INT(result.stop, WALK_ROOT);
	/* AddressSanitizer's backtrace() has a frame of its own. */
	CHECK((size_t)n >= result.n && (size_t)n <= result.n + 1);
	CHECK((result.flags & (WALK_FRAME_FP | WALK_FRAME_JIT)) == 0);
	for (size_t i = 1; i < MIN_OF(result.n, (size_t)n); i++)
		if (!CHECK_INT(frames[i].pc, (uint64_t)expected[(size_t)n - result.n + i]))
			break;
}

static void test_plain(void)
{
	check_here();
}

static __attribute__((noinline)) int recurse(int n)
{
	volatile char room[32];

	room[0] = (char)n;
	if (n == 0)
		check_here();
	return n == 0 ? 0 : recurse(n - 1) + room[0];
}

static void test_deep(void)
{
	CHECK(recurse(DEPTH) != 1);
}

static int compare(const void *a, const void *b)
{
	static bool done;

	if (!done)
		check_here();
	done = true;
	return *(const int *)a - *(const int *)b;
}

static void test_callback(void)
{
	int numbers[] = { 3, 1, 2 };

	qsort(numbers, ARRAY_SIZE(numbers), sizeof(numbers[0]), compare);
	CHECK_INT(numbers[0], 1);
}

static __attribute__((noinline)) void with_alloca(size_t size)
{
	sink = alloca(size);
	memset(sink, 1, size);
	check_here();
	sink = NULL;
}

static void test_alloca(void)
{
	with_alloca(10);
	with_alloca(100000);
}

/* gcc realigns the stack, with CFI that has expressions. */
static __attribute__((noinline)) void with_alignment(int n)
{
	_Alignas(64) volatile char aligned[128];

	CHECK((uintptr_t)aligned % 64 == 0);
	aligned[n] = 1;
	check_here();
}

static void test_aligned(void)
{
	with_alignment(3);
}

static void handler(int number)
{
	check_here();
}

static void raise_with(int flags)
{
	struct sigaction action = { .sa_handler = handler, .sa_flags = flags };
	struct sigaction before;

	CHECK(sigaction(SIGUSR1, &action, &before) == 0);
	raise(SIGUSR1);
	sigaction(SIGUSR1, &before, NULL);
}

static void test_signal(void)
{
	raise_with(0);
}

static void test_signal_stack(void)
{
	CLEANUP_FREE void *memory = malloc(1 << 17);
	stack_t stack = { .ss_sp = memory, .ss_size = 1 << 17 }, before;

	REQUIRE(memory && sigaltstack(&stack, &before) == 0);
	raise_with(SA_ONSTACK);
	sigaltstack(&before, NULL);
}

static void test_longjmp(void)
{
	static jmp_buf place;
	volatile int times = 0;

	if (setjmp(place) < 3) {
		times++;
		check_here();
		longjmp(place, times);
	}
	CHECK_INT(times, 3);
}

static void *thread(void *data)
{
	check_here();
	return NULL;
}

static void test_thread(void)
{
	pthread_t id;

	REQUIRE(pthread_create(&id, NULL, thread, NULL) == 0);
	pthread_join(id, NULL);
}

int main(void)
{
	backtrace(&sink, 1); /* loads libgcc */
	dl_iterate_phdr(add_module, NULL);
	RUN(test_plain);
	RUN(test_deep);
	RUN(test_callback);
	RUN(test_alloca);
	RUN(test_aligned);
	RUN(test_signal);
	RUN(test_signal_stack);
	RUN(test_longjmp);
	RUN(test_thread);
	return test_end();
}
