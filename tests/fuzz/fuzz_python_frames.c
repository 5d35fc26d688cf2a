/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Fuzz target of the collector's walk of a Python program's own frames: the bytes of its memory.
 *
 *     u8 version, u8 flags, u16 room for texts, u32 key, u64 address of the thread's state,
 *     the memory at MEMORY
 *
 * If a list can be read without the interpreter's lock, the walk with the lock must give the same
 * list. With the lock, the walk loads directly, so this is checked only if the memory has no
 * address of other memory of the process.
 */
#include "libcollector/hooks/python-frames.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#define MEMORY 0x20000000u /* fixed, because inputs contain addresses in it */
#define MEMORY_BYTES 0x8000u
#define HEAD_BYTES 16u
#define LOWEST_OTHER 0x7fff0000u /* lowest address of other memory, which is a sanitizer's */
#define ERROR 77
#define MAX_ROOM 0x4000u

#define HAS_KEY 0x01   /* the runtime has the input's key, not the key that finds the state */
#define HAS_OTHER 0x02 /* another thread holds the lock, or this one for another interpreter */
#define WITHOUT_CALLS 0x04

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t *memory;
static void *current;
static pthread_key_t key;
static struct python_chain chain, other;

static void *get_thread(void)
{
	return current;
}

static void start(void)
{
	memory = mmap((void *)(uintptr_t)MEMORY, MEMORY_BYTES, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	if (memory == MAP_FAILED || pthread_key_create(&key, NULL) != 0)
		abort();
}

/* Makes the interpreter that the input chooses. */
static void make(const uint8_t *data)
{
	static uint8_t runtime[4096] __attribute__((aligned(8)));
	const unsigned n_minors = CPYTHON_LAST_MINOR - CPYTHON_FIRST_MINOR + 1,
		       version = data[0] % (n_minors + 2);
	const struct interp_cpython *layout = cpython_layout(
		version < n_minors
			? CPYTHON_FIRST_MINOR + version
			: CPYTHON_FIRST_DEBUG_MINOR + version - n_minors + CPYTHON_FREE_THREADED);
	const uint64_t state = load_le64(data + 8);
	uint32_t tss[2] = { 1, data[1] & HAS_KEY ? load_le32(data + 4) : key };

	current = data[1] & HAS_OTHER ? memory : (void *)(uintptr_t)state;
	python_interpreter = (struct python_interpreter){
		.layout = layout,
		.runtime = (uintptr_t)runtime,
		.code_type = MEMORY,
		.get_thread = layout->runtime_current == INTERP_ABSENT ? get_thread : NULL,
	};
	memset(runtime, 0, sizeof(runtime));
	memcpy(runtime + layout->runtime_tss, tss, sizeof(tss));
	if (layout->runtime_current != INTERP_ABSENT)
		memcpy(runtime + layout->runtime_current, &current, sizeof(current));
	if (pthread_setspecific(key, (void *)(uintptr_t)state) != 0)
		abort();
}

static void walk(struct python_chain *to, const struct python_stack *stack, bool may_call)
{
	errno = ERROR;
	python_walk(to, stack, may_call);
	if (errno != ERROR || to->n > PYTHON_MAX_FRAMES ||
	    (to->is_unreadable && (to->n != 0 || to->hash != 1)))
		abort();
}

static void check_same(void)
{
	if (chain.n != other.n || chain.hash != other.hash || chain.is_cut != other.is_cut)
		abort();
	for (uint32_t i = 0; i < chain.n; i++)
		if (chain.frames[i].code != other.frames[i].code ||
		    chain.frames[i].identity != other.frames[i].identity ||
		    chain.frames[i].position != other.frames[i].position ||
		    chain.frames[i].ends_run != other.frames[i].ends_run)
			abort();
}

static void describe(size_t room)
{
	for (uint32_t i = 0; i < chain.n; i++) {
		struct python_code code;
		uint8_t *texts;

		python_measure(&chain, &chain.frames[i], room, &code);
		if (code.head.n_bytes > room ||
		    code.head.name_bytes + code.head.file_bytes > code.head.n_bytes)
			abort();
		texts = malloc(code.head.n_bytes ? code.head.n_bytes : 1);
		if (!texts)
			abort();
		python_copy(&chain, &code, texts);
		free(texts);
	}
}

static bool points_elsewhere(uint64_t state)
{
	bool found = state >= LOWEST_OTHER;

	for (size_t i = 0; i < MEMORY_BYTES; i += 8)
		found |= load_le64(memory + i) >= LOWEST_OTHER;
	return found;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct python_stack all = { 0, UINT64_MAX, true };
	size_t bytes;

	if (size < HEAD_BYTES)
		return 0;
	if (!memory)
		start();
	bytes = MIN_OF(size - HEAD_BYTES, (size_t)MEMORY_BYTES);
	memcpy(memory, data + HEAD_BYTES, bytes);
	memset(memory + bytes, 0, MEMORY_BYTES - bytes);
	make(data);
	if (data[1] & WITHOUT_CALLS)
		walk(&chain, NULL, false);
	/* The first walk knows no ranges to read at once, the second knows those of an earlier
	 * walk, maybe of another input, and the third knows those of this input. */
	other.memory.n_ranges = 0;
	walk(&other, NULL, true);
	walk(&chain, NULL, true);
	check_same();
	walk(&chain, NULL, true);
	check_same();
	describe(load_le16(data + 2) % MAX_ROOM);
	if (chain.is_unreadable || chain.is_cut || data[1] & (HAS_KEY | HAS_OTHER) ||
	    points_elsewhere(load_le64(data + 8)))
		return 0;
	walk(&other, &all, true);
	if (chain.n > 0 && !other.memory.is_direct)
		abort();
	check_same();
	return 0;
}
