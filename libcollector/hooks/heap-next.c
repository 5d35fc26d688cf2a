/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Heap next - finds the allocator that the hooks call; a pool serves allocations until then
 *
 * The first call of a hook in heap-hooks.c looks up all functions at once, because dlsym() takes
 * the loader's lock. That happens while there is only one thread, because creating a thread
 * allocates memory. Allocations by dlsym() itself come from a pool in this library, and are not
 * recorded.
 *
 * If another allocator comes before this library in the lookup order, the program calls that
 * allocator, and only calls of functions that it lacks come here. Such calls are passed on to that
 * allocator, so that each block is freed by the allocator that made it, and nothing is recorded. A
 * test allocation through the program's malloc detects this case: the block is then not from the
 * pool.
 * Invariants: (1) blocks of the pool never reach an allocator   [test_heap_zoo: dlsym]
 *             (2) errno does not change                         [test_heap_zoo: all]
 */
#include "libcollector/hooks/heap-next.h"

#include "libcollector/hooks/heap-attach.h"
#include "libcollector/hooks/heap-record.h"
#include "libcollector/hooks/heap-sampled.h"
#include "libcollector/hooks/python-frames.h"

#include <dlfcn.h>
#include <errno.h>
#include <sys/auxv.h>
#include <syslog.h>

#define MAX_VARIABLE 200u
#define MAX_WARNING 512u
#define POOL_ALIGNMENT 16u

uint32_t heap_mode = HEAP_UNSET;
bool heap_is_foreign;
struct heap_next heap_next;
uint8_t heap_pool[HEAP_POOL_BYTES] __attribute__((aligned(POOL_ALIGNMENT)));

static uint32_t is_begun, wanted_mode, generation;
static bool is_wanted, is_usable;
static char deep[MAX_WARNING]; /* file of the first module opened with RTLD_DEEPBIND */
static uint32_t deep_state;    /* 0: none; 1: being written; 2: valid */
static const char *operators,  /* file of an allocator whose C++ operators do not call the hooks */
	*sanitizer;            /* file of a sanitizer's runtime */
static size_t pool_used;

/* ---- The pool ---- */

/* The block's size is stored right before it. */
void *heap_pool_get(size_t size, size_t alignment)
{
	size_t before = __atomic_load_n(&pool_used, __ATOMIC_RELAXED), at;

	alignment = MAX_OF(alignment, (size_t)POOL_ALIGNMENT);
	do {
		uintptr_t first = (uintptr_t)heap_pool + before + sizeof(size);

		at = ((first + alignment - 1) & -alignment) - (uintptr_t)heap_pool;
		if (at >= HEAP_POOL_BYTES || size >= HEAP_POOL_BYTES - at) {
			errno = ENOMEM;
			return NULL;
		}
		/* one byte more, so that a block of size 0 is inside the pool, too */
	} while (!__atomic_compare_exchange_n(&pool_used, &before, at + size + 1, false,
					      __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	memcpy(heap_pool + at - sizeof(size), &size, sizeof(size));
	heap_sampled_except(heap_pool + at);
	return heap_pool + at;
}

size_t heap_pool_size(const void *address)
{
	size_t size;

	memcpy(&size, (const uint8_t *)address - sizeof(size), sizeof(size));
	return size;
}

/* ---- Fallbacks ---- */

static void free_any_size(void *address, size_t size)
{
	heap_next.free(address);
}

static void free_any_alignment(void *address, size_t alignment, size_t size)
{
	heap_next.free(address);
}

static void *allocate_page(size_t size)
{
	return heap_next.memalign((size_t)getauxval(AT_PAGESZ), size);
}

static void *allocate_pages(size_t size)
{
	size_t page = (size_t)getauxval(AT_PAGESZ);

	return heap_next.memalign(page, (size + page - 1) & -page);
}

static size_t use_nothing(void *address)
{
	return 0;
}

#define AT(name) offsetof(struct heap_next, name)

/* The order matters: dlsym() may call the first functions if a later one does not exist. */
static const struct function {
	const char *name;
	size_t at;
	void *otherwise;
} functions[] = {
	{ "malloc", AT(malloc), NULL },
	{ "free", AT(free), NULL },
	{ "calloc", AT(calloc), NULL },
	{ "realloc", AT(realloc), NULL },
	{ "posix_memalign", AT(posix_memalign), NULL },
	{ "aligned_alloc", AT(aligned_alloc), NULL },
	{ "memalign", AT(memalign), NULL },
	{ "valloc", AT(valloc), (void *)allocate_page },
	{ "pvalloc", AT(pvalloc), (void *)allocate_pages },
	{ "malloc_usable_size", AT(malloc_usable_size), (void *)use_nothing },
	{ "free_sized", AT(free_sized), (void *)free_any_size },
	{ "free_aligned_sized", AT(free_aligned_sized), (void *)free_any_alignment },
},
  mappings[] = {
	  { "mmap", AT(mmap), NULL },     { "munmap", AT(munmap), NULL },
	  { "mremap", AT(mremap), NULL }, { "brk", AT(brk), NULL },
	  { "sbrk", AT(sbrk), NULL },
  },
  loader[] = {
	  { "dlclose", AT(dlclose), NULL },
	  { "dlopen", AT(dlopen), NULL },
	  { "dlmopen", AT(dlmopen), NULL },
  };

/* ---- Lookup ---- */

static const void *module_of(const void *address)
{
	Dl_info info;

	return address && dladdr(address, &info) ? info.dli_fbase : NULL;
}

/* Returns the function that the program calls, or NULL if it is this library's. */
static void *find_first(const char *name)
{
	void *found = dlsym(RTLD_DEFAULT, name);

	return module_of(found) == module_of(&functions) ? NULL : found;
}

static void set(const struct function *function, void *found)
{
	if (!found)
		found = dlsym(RTLD_NEXT, function->name);
	if (!found)
		found = function->otherwise;
	memcpy((uint8_t *)&heap_next + function->at, &found, sizeof(found));
}

/* Uses the functions that come after this library's in the lookup order, even if an earlier library
 * has such functions: that library's functions pass their calls on to this library. */
void heap_next_find_mappings(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(mappings); i++)
		set(&mappings[i], NULL);
}

void heap_next_find_loader(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(loader); i++)
		set(&loader[i], NULL);
}

/* Returns whether the program's malloc is this library's. Makes a test allocation, because a
 * program that is not relocatable may have its own address for malloc. */
static bool is_first_of_all(void)
{
	void *(*allocate)(size_t) = (void *(*)(size_t))find_first("malloc");
	void (*release)(void *) = (void (*)(void *))find_first("free");
	void *address = allocate ? allocate(1) : NULL;

	if (!address || heap_pool_has(address))
		return true;
	if (release)
		release(address);
	return false;
}

/* ---- Warnings ---- */

static size_t append(char *text, size_t n, const char *part)
{
	while (*part && n < MAX_WARNING - 1)
		text[n++] = *part++;
	text[n] = 0;
	return n;
}

void heap_next_warn(const char *why, const char *what)
{
	char text[MAX_WARNING];

	if (is_wanted)
		append(text, append(text, 0, why), what ? what : "another");
	if (is_wanted)
		prof_log(LOG_WARNING, "profd", text);
}

/*
 * Finds the runtime of a sanitizer. The runtime has its own allocator and replaces many other
 * functions, which must not be called before their initialization; but the program allocates before
 * that. So a program with a sanitizer is not recorded.
 */
static void find_sanitizer(void)
{
	static const char *const names[] = { "__asan_init", "__tsan_init", "__msan_init",
					     "__hwasan_init" };
	Dl_info info;

	for (size_t i = 0; !sanitizer && i < ARRAY_SIZE(names); i++) {
		void *found = dlsym(RTLD_DEFAULT, names[i]);

		if (found)
			sanitizer = dladdr(found, &info) ? info.dli_fname : names[i];
	}
}

/* Does not warn if nothing is recorded, because there is a warning about that already. */
static void warn_of_deep(void)
{
	if (!is_usable)
		return;
	heap_next_warn(
		"calls of malloc and free in a module that was opened with RTLD_DEEPBIND are not recorded, "
		"so blocks that it freed may look like leaks: ",
		deep);
}

void heap_next_note_deep(const char *file)
{
	uint32_t none = 0;

	if (!__atomic_compare_exchange_n(&deep_state, &none, 1, false, __ATOMIC_RELAXED,
					 __ATOMIC_RELAXED))
		return;
	append(deep, 0, file);
	/* pairs with heap_next_warn_of_unseen() */
	__atomic_store_n(&deep_state, 2, __ATOMIC_RELEASE);
	warn_of_deep();
}

static void warn_of_python(void)
{
	const char *why = __atomic_load_n(&python_unread, __ATOMIC_RELAXED);

	if (why)
		heap_next_warn(
			"stacks of allocations do not show the functions of the program's Python, because it is ",
			why);
}

void heap_next_note_python(const char *file)
{
	static const char prefix[] = "libpython";
	const char *name = file, *none = NULL;
	size_t n = 0;

	for (; *file; file++)
		if (*file == '/')
			name = file + 1;
	while (prefix[n] && name[n] == prefix[n])
		n++;
	if (!prefix[n] && !python_is_known() &&
	    __atomic_compare_exchange_n(&python_unread, &none, "opened with dlopen()", false,
					__ATOMIC_RELAXED, __ATOMIC_RELAXED))
		warn_of_python();
}

void heap_next_warn_of_unseen(void)
{
	warn_of_python();
	if (operators)
		heap_next_warn(
			"allocations by C++'s operator new are not recorded, because it is that of ",
			operators);
	if (__atomic_load_n(&deep_state, __ATOMIC_ACQUIRE) == 2)
		warn_of_deep();
}

/* ---- Settings ---- */

static const char *skip_word(const char *text, const char *word)
{
	while (*word && *text == *word) {
		text++;
		word++;
	}
	return *word ? NULL : text;
}

static uint64_t read_number(const char *text)
{
	uint64_t number = 0;

	while (*text >= '0' && *text <= '9' && number < UINT64_MAX / 16)
		number = 10 * number + (uint64_t)(*text++ - '0');
	return number;
}

/* Reads one word of PROF_MEMORY. Ignores unknown words, which a later version may define. */
static uint32_t read_word(const char *text)
{
	const char *mean = skip_word(text, "sample="), *least = skip_word(text, "min=");

	if (mean)
		heap_sampled_set_mean(read_number(mean));
	if (least)
		heap_sampled_set_least(read_number(least));
	if (mean || least)
		return HEAP_SAMPLED;
	if (skip_word(text, "all"))
		return HEAP_ALL;
	return skip_word(text, "mmap") ? HEAP_MAPPINGS : 0;
}

static uint32_t read_mode(const char *at)
{
	uint32_t mode = 0;

	heap_sampled_set_mean(0);
	heap_sampled_set_least(0);
	while (*at) {
		mode |= read_word(at);
		while (*at && *at != ',')
			at++;
		at += *at == ',';
	}
	if ((mode & HEAP_SAMPLED) && !heap_sampled_setup())
		mode &= ~HEAP_SAMPLED;
	return mode & HEAP_SAMPLED ? mode & ~HEAP_ALL : mode;
}

bool heap_next_choose(const char *settings)
{
	uint32_t mode = read_mode(settings);

	is_wanted = mode != 0;
	if (!is_wanted || !is_usable)
		return false;
	generation += HEAP_GENERATION;
	wanted_mode = generation | mode | (heap_is_foreign ? HEAP_FOREIGN : 0);
	register_wants |= CONTROL_WANTS_ALLOCATIONS;
	return true;
}

static void switch_mode(bool is_on)
{
	/* Blocks of an earlier session are unknown in this one, so remove them from the set. */
	if (is_on && (wanted_mode & HEAP_SAMPLED))
		heap_sampled_clear();
	/* pairs with the hooks' loads */
	__atomic_store_n(&heap_mode, is_on ? wanted_mode : 0, __ATOMIC_RELEASE);
}

void heap_next_update_mode(void)
{
	switch_mode(prof_collector_enabled());
}

/* Does everything that takes a lock of the loader, because if a session attaches later, there is no
 * safe time for it. */
static void set_up(void)
{
	bool is_first = is_first_of_all(), is_secure = getauxval(AT_SECURE) != 0;
	char settings[MAX_VARIABLE];
	void *operator_new, *first;
	Dl_info info;

	for (size_t i = 0; i < ARRAY_SIZE(functions); i++)
		set(&functions[i], is_first ? NULL : find_first(functions[i].name));
	heap_next_find_mappings();
	heap_next_find_loader();
	find_sanitizer();
	python_find();
	is_usable = is_first && !is_secure && !sanitizer && heap_next.malloc && heap_next.free;
	heap_is_foreign = is_usable && module_of((void *)heap_next.malloc) !=
					       module_of(dlsym(RTLD_NEXT, "__libc_start_main"));
	operator_new = heap_is_foreign ? dlsym(RTLD_DEFAULT, "_Znwm") : NULL;
	if (operator_new && module_of(operator_new) == module_of((void *)heap_next.malloc) &&
	    dladdr(operator_new, &info))
		operators = info.dli_fname;
	/* If this fails, stacks have only one frame. */
	if (is_usable)
		(void)!self_unwind_setup();
	if (!is_secure && register_read_variable(HEAP_VARIABLE, settings, sizeof(settings)))
		heap_next_choose(settings);
	if (sanitizer) {
		register_explain(CONTROL_REASON_SANITIZER);
		switch_mode(false);
		return;
	}
	if (is_usable)
		register_prepare();
	register_start();
	register_on_state = switch_mode;
	switch_mode(prof_collector_enabled());
	if (!is_wanted)
		register_explain(CONTROL_REASON_ENVIRONMENT);
	else if (!is_usable)
		register_explain(CONTROL_REASON_OTHER);
	else if (!prof_collector_enabled())
		register_explain(register_start_reason);
	first = is_first ? NULL : find_first("malloc");
	if (!is_first)
		heap_next_warn("no allocation is recorded, because the program's allocator is ",
			       first && dladdr(first, &info) ? info.dli_fname : NULL);
	heap_next_warn_of_unseen();
}

bool heap_next_prepare(void)
{
	int error = errno;

	if (__atomic_exchange_n(&is_begun, 1, __ATOMIC_ACQ_REL) == 0)
		set_up();
	else if ((__atomic_load_n(&heap_mode, __ATOMIC_ACQUIRE) & HEAP_OPEN) == HEAP_ATTACH)
		heap_attach_answer();
	errno = error;
	return !(__atomic_load_n(&heap_mode, __ATOMIC_ACQUIRE) & HEAP_UNSET);
}

/* Sets up even if nothing has been allocated yet. */
__attribute__((constructor(102))) static void start(void)
{
	heap_next_prepare();
	if (!sanitizer)
		return;
	register_start();
	heap_next_warn("no allocation is recorded, because the program has a sanitizer's runtime: ",
		       sanitizer);
}
