/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of arch/walk on this process's stack, as a collector uses it: every chain must equal the
 * one from libgcc's unwinder. The kernel reads the memory, so that a bad address cannot fault.
 * Needs only libc, so that it also runs on other architectures.
 */
#include "arch/walk.h"

#include "config.h"
#include "tests/unit/context.h"
#include "tests/unit/test.h"

#include <alloca.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <ucontext.h>
#include <unwind.h>

#define MAX_MODULES 32
#define DEPTH 2000
#define MAX_FRAMES (DEPTH + 100)

/* On ppc64le, qemu's signal frames have a different form, and no vdso describes it. */
#if defined(__powerpc64__) && PROF_EMULATED
#define HAS_SIGNAL_FRAMES false
#else
#define HAS_SIGNAL_FRAMES true
#endif

struct module {
	uint64_t start, end, bias;
	struct unwind_table table;
	bool has_table;
};

struct expected {
	uint64_t pcs[MAX_FRAMES];
	size_t n;
};

static struct module modules[MAX_MODULES];
static size_t n_modules;
static struct walk_cache cache;
static struct walk_frame frames[MAX_FRAMES];
static int pipes[2];
static uint64_t pac_mask;
static void *sink;

/* ---- Modules ---- */

static void *resize(void *data, void *block, size_t old_bytes, size_t new_bytes)
{
	if (new_bytes > 0)
		return realloc(block, new_bytes);
	free(block);
	return NULL;
}

static uint8_t *read_file(const char *path)
{
	CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
	CLEANUP_FREE uint8_t *bytes = NULL;
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return NULL;
	bytes = malloc((size_t)st.st_size);
	for (off_t at = 0; bytes && at < st.st_size;) {
		ssize_t n = read(fd, bytes + at, (size_t)(st.st_size - at));

		if (n <= 0)
			return NULL;
		at += n;
	}
	return steal_ptr(&bytes);
}

/* The headers are valid, because the loader has loaded the file. */
static bool find_eh_frame(const uint8_t *file, struct cfi_section *ret_section)
{
	const ElfW(Ehdr) *header = (const void *)file;
	const ElfW(Shdr) *sections = (const void *)(file + header->e_shoff);
	const char *names = (const char *)file + sections[header->e_shstrndx].sh_offset;

	for (size_t i = 0; i < header->e_shnum; i++) {
		if (strcmp(names + sections[i].sh_name, ".eh_frame") != 0)
			continue;
		*ret_section = (struct cfi_section){
			.bytes = file + sections[i].sh_offset,
			.size = sections[i].sh_size,
			.address = sections[i].sh_addr,
			.arch = REGS_NATIVE,
		};
		return true;
	}
	return false;
}

static bool build_table(const uint8_t *file, struct module *module)
{
	static const struct table_memory memory = { resize, NULL };
	struct cfi_section section;
	const struct table_source source = {
		.sections = &section,
		.n_sections = 1,
		.low = module->start - module->bias,
		.high = module->end - module->bias,
	};
	size_t size;
	void *bytes;

	return find_eh_frame(file, &section) && table_build(&source, &memory, &bytes, &size) == 0 &&
	       table_init(&module->table, bytes, size) == 0;
}

static int add_module(struct dl_phdr_info *info, size_t size, void *data)
{
	const char *path = info->dlpi_name[0] ? info->dlpi_name : "/proc/self/exe";
	const uint8_t *vdso = (const uint8_t *)getauxval(AT_SYSINFO_EHDR);
	CLEANUP_FREE uint8_t *file = NULL;
	struct module module = { .start = UINT64_MAX, .bias = info->dlpi_addr };

	for (size_t i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *header = &info->dlpi_phdr[i];

		if (header->p_type != PT_LOAD || !(header->p_flags & PF_X))
			continue;
		module.start = MIN_OF(module.start, module.bias + header->p_vaddr);
		module.end = MAX_OF(module.end, module.bias + header->p_vaddr + header->p_memsz);
	}
	if (module.end == 0 || n_modules == MAX_MODULES)
		return 0;
	if (strstr(path, "vdso")) {
		module.has_table = vdso && build_table(vdso, &module);
	} else {
		file = read_file(path);
		module.has_table = file && build_table(file, &module);
	}
	modules[n_modules++] = module;
	return 0;
}

/* A signal trampoline may be outside of all modules. */
static void resolve(void *data, uint64_t pc, struct walk_code *ret_code)
{
	ret_code->kind = WALK_CODE_FP;
	for (size_t i = 0; i < n_modules; i++) {
		if (pc < modules[i].start || pc >= modules[i].end)
			continue;
		ret_code->kind = modules[i].has_table ? WALK_CODE_TABLE : WALK_CODE_FP;
		ret_code->table = &modules[i].table;
		ret_code->address = pc - modules[i].bias;
	}
}

/* write() to a pipe fails if memory cannot be read; qemu does not have process_vm_readv(). */
static bool read_memory(void *data, uint64_t address, void *buffer, size_t size)
{
	ssize_t n = write(pipes[1], (const void *)(uintptr_t)address, size);

	return n > 0 && read(pipes[0], buffer, (size_t)n) == (ssize_t)size;
}

static bool read_word(void *data, uint64_t address, uint64_t *ret_word)
{
	return read_memory(data, address, ret_word, sizeof(*ret_word));
}

/* ---- Chains ---- */

static _Unwind_Reason_Code add_expected(struct _Unwind_Context *context, void *data)
{
	struct expected *expected = data;
	uint64_t pc = _Unwind_GetIP(context);

	if (pc == 0 || expected->n == MAX_FRAMES)
		return _URC_END_OF_STACK;
	expected->pcs[expected->n++] = pc;
	return _URC_NO_REASON;
}

static struct walk_result walk(const struct walk_registers *registers)
{
	const struct walk walk = {
		.arch = REGS_NATIVE,
		.pac_mask = pac_mask,
		.read_word = read_word,
		.read_code = read_memory,
		.resolve = resolve,
		.cache = &cache,
		.generation = 1,
		.frames = frames,
		.n_frames = ARRAY_SIZE(frames),
	};
	struct walk_result result;

	walk_run(&walk, registers, &result);
	return result;
}

static __attribute__((always_inline)) inline void expect_here(struct expected *expected)
{
	expected->n = 0;
	_Unwind_Backtrace(add_expected, expected);
}

/* Compares from frame `at` on, except for the innermost expected frame, which differs between the
 * calls. */
static void check_same(const struct walk_result *result, size_t at, const struct expected *expected)
{
	CHECK_INT(result->stop, WALK_ROOT);
	for (size_t i = 1; i < expected->n; i++)
		if (!CHECK_INT(frames[at + i].pc, expected->pcs[i]) ||
		    !CHECK((frames[at + i].flags & (WALK_FRAME_FP | WALK_FRAME_JIT)) == 0))
			break;
}

static __attribute__((noinline)) void check_here(void)
{
	static struct expected expected;
	struct walk_result result;
	ucontext_t context;

	expect_here(&expected);
	CHECK(getcontext(&context) == 0);
	const struct walk_registers registers = CONTEXT_REGISTERS(context);

	result = walk(&registers);
	/* libgcc stops at code without CFI, such as start_thread() on riscv64; our walk continues
	 * with the frame pointer. */
	if (CHECK(result.n == expected.n || result.n == expected.n + 1))
		check_same(&result, 0, &expected);
}

/* Walks in a signal handler, from the interrupted registers. The interrupted function's caller
 * recorded `expected`. */
static void check_interrupted(const ucontext_t *context, const struct expected *expected)
{
	const struct walk_registers registers = CONTEXT_REGISTERS(*context);
	struct walk_result result = walk(&registers);

	CHECK(expected->n > 2);
	if (CHECK(result.n > expected->n))
		check_same(&result, result.n - expected->n, expected);
	if (HAS_SIGNAL_FRAMES)
		check_here();
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

/* gcc aligns this function's stack, and describes the alignment with CFI expressions. */
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

static struct expected before_signal;

static void handler(int number, siginfo_t *info, void *context)
{
	check_interrupted(context, &before_signal);
}

static __attribute__((noinline)) void raise_with(int flags)
{
	struct sigaction action = { .sa_sigaction = handler, .sa_flags = flags | SA_SIGINFO };
	struct sigaction before;

	CHECK(sigaction(SIGUSR1, &action, &before) == 0);
	expect_here(&before_signal);
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

static sigjmp_buf after_fault;

static void fault_handler(int number, siginfo_t *info, void *context)
{
	check_interrupted(context, &before_signal);
	siglongjmp(after_fault, 1);
}

/* Calls nothing, so on most architectures its return address is only in a register. */
static __attribute__((noinline)) int fault(volatile int *place)
{
	return *place;
}

static __attribute__((noinline)) int call_fault(volatile int *place)
{
	expect_here(&before_signal);
	return fault(place) + 1;
}

static void test_leaf(void)
{
	struct sigaction action = { .sa_sigaction = fault_handler, .sa_flags = SA_SIGINFO };
	const size_t size = (size_t)sysconf(_SC_PAGESIZE);
	void *page = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct sigaction before;

	REQUIRE(page != MAP_FAILED && sigaction(SIGSEGV, &action, &before) == 0);
	if (sigsetjmp(after_fault, 1) == 0)
		CHECK(call_fault(page) == 0);
	sigaction(SIGSEGV, &before, NULL);
	munmap(page, size);
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

#if defined(__ARM_FEATURE_PAC_DEFAULT)
/* Returns the number of signed return addresses. About one address in a hundred has a signature of
 * zeros. */
__attribute__((noinline)) static unsigned int count_signed(unsigned int depth)
{
	const uint64_t *record = __builtin_frame_address(0);

	CHECK_INT(record[1] & ~pac_mask,
		  (uint64_t)__builtin_extract_return_addr(__builtin_return_address(0)));
	return ((record[1] & pac_mask) != 0) + (depth ? count_signed(depth - 1) : 0);
}
#endif

/* If programs are built with signing, return addresses on the stack have a signature to remove. */
static void test_signed(void)
{
#if defined(__ARM_FEATURE_PAC_DEFAULT)
	CHECK(pac_mask != 0);
	CHECK(count_signed(15) > 8);
#endif
	check_here();
}

int main(void)
{
	if (pipe(pipes) < 0)
		return 1;
	pac_mask = cpu_pac_mask();
	dl_iterate_phdr(add_module, NULL);
	RUN(test_plain);
	RUN(test_deep);
	RUN(test_callback);
	RUN(test_alloca);
	RUN(test_aligned);
	RUN(test_signal);
	RUN(test_signal_stack);
	RUN(test_leaf);
	RUN(test_longjmp);
	RUN(test_thread);
	RUN(test_signed);
	return test_end();
}
