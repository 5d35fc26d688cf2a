/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of libcollector/unwind/self-maps.c: reports of this process's memory, and detection of
 * changes. tests/integration/test_jit.py loads and unloads libraries.
 */
#include "libcollector/unwind/self-maps.h"
#include "tests/unit/test.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define PAGE 4096

struct told {
	unsigned int n;
	int64_t answer;
	char path[4200];
	struct self_maps_range range;
	uint64_t inode;
};

static struct self_maps code;

static int64_t tell(void *data, const struct self_maps_range *range, uint64_t dev, uint64_t inode,
		    const char *path)
{
	struct told *told = data;

	told->n++;
	told->range = *range;
	told->inode = inode;
	snprintf(told->path, sizeof(told->path), "%s", path);
	return told->answer < 0 ? told->answer : told->n;
}

static struct told scan(const void *const *pcs, uint32_t n, bool ret_of[1])
{
	const struct self_maps_stack stack = { .pcs = pcs, .n = n, .n_exact = n };
	struct told told = { 0 };

	ret_of[0] = self_maps_check(&code, &stack, 1);
	if (!ret_of[0])
		CHECK(self_maps_scan(&code, &stack, tell, &told));
	return told;
}

static const struct self_maps_range *range_of(const void *pc)
{
	return self_maps_find(&code, (uintptr_t)pc);
}

static void reset(void)
{
	memset(&code, 0, sizeof(code));
}

/* A library is reported once, for all of its addresses, with the kernel's identity of its file. */
static void test_library(void)
{
	const void *const pcs[] = { (const void *)(uintptr_t)&getpid,
				    (const void *)(uintptr_t)&strtoul };
	struct told told;
	Dl_info info;
	bool known;

	reset();
	told = scan(pcs, 2, &known);
	CHECK(!known);
	CHECK_INT(told.n, 1);
	REQUIRE(dladdr(pcs[0], &info) != 0);
	CHECK(strstr(told.path, "libc") != NULL && told.path[0] == '/');
	CHECK(told.inode != 0);
	CHECK(told.range.has_build_id && told.range.n_id_bytes == 20);
	CHECK_INT(range_of(pcs[0])->image, 1);
	CHECK(range_of(pcs[0])->start <= (uintptr_t)pcs[0]);
	told = scan(pcs, 2, &known);
	CHECK(known);
	/* in another epoch, everything is reported again */
	CHECK(!self_maps_check(
		&code, &(const struct self_maps_stack){ .pcs = pcs, .n = 2, .n_exact = 2 }, 2));
}

/* Memory outside of modules is looked up once, whether it is code, data or unmapped. */
static void test_heap(void)
{
	void *heap = malloc(64);
	void *made = mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const void *const pcs[] = { heap, made, (const void *)16, NULL, (const void *)UINTPTR_MAX };
	struct told told;
	bool known;

	reset();
	told = scan(pcs, 4, &known);
	CHECK(!known);
	CHECK_INT(told.n, 0);
	told = scan(pcs, 4, &known);
	CHECK(known);
	for (size_t i = 0; i < 4; i++)
		CHECK(range_of(pcs[i]) && range_of(pcs[i])->image == 0);
	/* The end of the last page of the address space overflows, so no range can hold the page:
	 * it is looked up each time, without a report. */
	told = scan(pcs, 5, &known);
	told = scan(pcs, 5, &known);
	CHECK_INT(told.n, 0);
	munmap(made, PAGE);
	free(heap);
}

/* A file that was mapped without the loader is reported, and its unmapping is detected. */
static void test_unmapped(void)
{
	const size_t bytes = 16384;
	char *file, path[] = "/tmp/self-maps-XXXXXX";
	int fd = mkstemp(path);
	const void *pcs[1];
	struct told told;
	bool known;
	FILE *self = fopen("/proc/self/exe", "r");
	char copy[16384];

	REQUIRE(self && fd >= 0 && fread(copy, 1, bytes, self) == bytes);
	fclose(self);
	REQUIRE(write(fd, copy, bytes) == (ssize_t)bytes);
	file = mmap(NULL, bytes, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	REQUIRE(file != MAP_FAILED);
	pcs[0] = file + 5000;
	reset();
	told = scan(pcs, 1, &known);
	CHECK_INT(told.n, 1);
	CHECK_STR(told.path, path);
	CHECK_INT(range_of(pcs[0])->image, 1);
	told = scan(pcs, 1, &known);
	CHECK(known);
	munmap(file, bytes);
	told = scan(pcs, 1, &known);
	CHECK(!known);
	CHECK_INT(told.n, 0);
	CHECK_INT(range_of(pcs[0])->image, 0);
	unlink(path);
	close(fd);
}

/* With more places than the cache holds, those on the current stack are still known. */
static void test_full(void)
{
	const void *pcs[3] = { (const void *)(uintptr_t)&getpid };
	bool known;

	reset();
	for (uintptr_t i = 1; i < 3 * SELF_MAPS_MAX; i++) {
		pcs[1] = (const void *)((UINT64_C(1) << 50) + i * 2 * PAGE);
		pcs[2] = (const void *)((UINT64_C(1) << 50) + i % 7 * 2 * PAGE);
		(void)scan(pcs, 3, &known);
		CHECK(range_of(pcs[0]) && range_of(pcs[0])->image != 0);
		CHECK(range_of(pcs[1]) && range_of(pcs[2]));
		CHECK(code.n <= SELF_MAPS_MAX);
	}
}

/* Forbids or allows opening files. */
static void allow_files(bool allowed)
{
	struct rlimit limit;

	CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	limit.rlim_cur = allowed ? limit.rlim_max : 0;
	CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

/* Without access to /proc/self/maps, no module is reported, and each is looked up once. */
static void test_no_descriptor(void)
{
	void *heap = malloc(64);
	const void *const pcs[] = { (const void *)(uintptr_t)&getpid,
				    (const void *)(uintptr_t)&strtoul,
				    (const void *)(uintptr_t)&scan, heap };
	struct told told;
	bool known;

	reset();
	allow_files(false);
	told = scan(pcs, 1, &known);
	CHECK(!known);
	CHECK_INT(told.n, 0);
	told = scan(pcs, 2, &known);
	CHECK(known);
	(void)scan(pcs, 4, &known);
	(void)scan(pcs, 4, &known);
	allow_files(true);
	CHECK(known);
	CHECK_INT(code.n_replaced, 0);
	CHECK_INT(code.n, 3);
	for (size_t i = 0; i < ARRAY_SIZE(pcs); i++)
		if (CHECK(range_of(pcs[i]))) {
			CHECK_INT(range_of(pcs[i])->image, 0);
			CHECK_INT(range_of(pcs[i])->was_loaded, pcs[i] != heap);
		}
	free(heap);
}

/* Loads a module, looks it up while it cannot be identified, and unloads it. */
static void see_module(const char *path, const void **ret_pc, uint32_t *ret_n_replaced)
{
	void *module = dlopen(path, RTLD_NOW);
	const void *pc;
	bool known;

	if (!CHECK(module))
		return;
	pc = dlsym(module, "own_module_call");
	allow_files(false);
	(void)scan(&pc, 1, &known);
	(void)scan(&pc, 1, &known);
	allow_files(true);
	CHECK(known && range_of(pc) && range_of(pc)->was_loaded);
	*ret_pc = pc;
	*ret_n_replaced = code.n_replaced;
	dlclose(module);
}

/* A replacement is detected even if neither module can be identified. */
static void test_nameless_replaced(void)
{
	const void *a = NULL, *b = NULL;
	uint32_t of_a, of_b;
	unsigned int n_same = 0;

	reset();
	for (int i = 0; i < 20; i++) {
		see_module(OWN_MODULE_A, &a, &of_a);
		see_module(OWN_MODULE_B, &b, &of_b);
		if (a != b)
			continue;
		n_same++;
		CHECK_INT(of_b, of_a + 1);
	}
	CHECK(n_same > 0);
}

int main(void)
{
	RUN(test_library);
	RUN(test_no_descriptor);
	RUN(test_nameless_replaced);
	RUN(test_heap);
	RUN(test_unmapped);
	RUN(test_full);
	return test_end();
}
