/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of libcollector/hooks/python-frames.c: a made-up interpreter of version 3.11, whose lists
 * of frames are whole, contradict themselves, have no end or are not readable; and a free-threaded
 * one of 3.14.
 */
#include "libcollector/hooks/python-frames.h"

#include "tests/unit/test.h"

#include <pthread.h>
#include <sys/mman.h>

#define N_FRAMES 8u

struct object {
	uint64_t words[32];
};

static const struct interp_cpython *layout;
static struct object thread, other_thread, cframes[2], frames[N_FRAMES], codes[N_FRAMES],
	names[N_FRAMES], lines;
static uint64_t code_type;
static pthread_key_t key;
static struct python_chain chain;

static uint64_t address_of(const void *at)
{
	return (uint64_t)(uintptr_t)at;
}

static void set(void *at, unsigned offset, uint64_t word)
{
	memcpy((uint8_t *)at + offset, &word, sizeof(word));
}

static void set_byte(struct object *at, unsigned offset, uint8_t byte)
{
	memcpy((uint8_t *)at + offset, &byte, 1);
}

static uint8_t *state_of_runtime(void)
{
	static uint8_t bytes[4096] __attribute__((aligned(8)));

	return bytes;
}

static void set_current(const void *state)
{
	set(state_of_runtime(), layout->runtime_current, address_of(state));
}

/* Two activations: the inner one executes frames 0 to 4, the outer one the others. */
static void make_list(void)
{
	const uint32_t tss[2] = { 1, key };

	memcpy(state_of_runtime() + layout->runtime_tss, tss, sizeof(tss));
	set_current(&thread);
	set(&thread, layout->thread_cframe, address_of(&cframes[0]));
	set(&thread, layout->thread_id, (uint64_t)pthread_self());
	for (size_t i = 0; i < 2; i++) {
		set(&cframes[i], layout->cframe_frame, address_of(&frames[i == 0 ? 0 : 5]));
		set(&cframes[i], layout->cframe_previous, i == 0 ? address_of(&cframes[1]) : 0);
	}
	lines.words[2] = 3;
	for (size_t i = 0; i < N_FRAMES; i++) {
		const bool is_entry = i == 4 || i == N_FRAMES - 1;

		set(&frames[i], layout->frame_previous,
		    i + 1 < N_FRAMES ? address_of(&frames[i + 1]) : 0);
		set(&frames[i], layout->frame_code, address_of(&codes[i]));
		set(&frames[i], layout->frame_position,
		    address_of(&codes[i]) + layout->code_start + 2 * i);
		set_byte(&frames[i], layout->frame_is_entry, is_entry);
		codes[i].words[1] = code_type;
		set(&codes[i], layout->code_name, address_of(&names[i]));
		set(&codes[i], layout->code_qualname, address_of(&names[i]));
		set(&codes[i], layout->code_file, address_of(&names[0]));
		codes[i].words[0] = 1; /* references */
		set(&codes[i], layout->code_lines, address_of(&lines));
		set(&codes[i], layout->code_first_line, 10 + i);
		names[i].words[2] = 4; /* length */
		names[i].words[3] = 1000 + i;
		/* one byte per character, compact, ASCII */
		names[i].words[4] = 1 << 2 | 1 << 5 | 1 << 6;
		memcpy((uint8_t *)&names[i] + layout->text_ascii, "name", 4);
	}
	pthread_setspecific(key, &thread);
}

static void walk(bool may_load, bool may_call)
{
	static const struct python_stack stack = { 0, UINT64_MAX, true };

	memset(chain.frames, 0xff, sizeof(chain.frames));
	python_walk(&chain, may_load ? &stack : NULL, may_call);
}

static void test_list(void)
{
	struct python_code code;
	uint8_t texts[64];
	uint64_t hash;

	make_list();
	walk(true, false);
	REQUIRE(chain.n == N_FRAMES);
	CHECK(!chain.is_cut && !chain.is_unreadable && chain.memory.is_direct);
	for (uint32_t i = 0; i < N_FRAMES; i++) {
		const struct python_frame *frame = &chain.frames[i];

		CHECK_INT(frame->code, address_of(&codes[i]));
		CHECK_INT(frame->first_line, 10 + i);
		CHECK_INT(frame->position, layout->code_start + 2 * i);
		CHECK_INT(frame->ends_run, i == 4 || i == N_FRAMES - 1);
	}
	CHECK_INT(chain.frames[4].at, address_of(&cframes[0]));
	CHECK_INT(chain.frames[N_FRAMES - 1].at, address_of(&cframes[1]));
	python_measure(&chain, &chain.frames[2], 1000, &code);
	CHECK_INT(code.head.name_bytes, 4);
	CHECK_INT(code.head.n_bytes, 4 + 4 + 3);
	CHECK_INT(code.head.flags, 0);
	python_copy(&chain, &code, texts);
	CHECK(memcmp(texts, "namename", 8) == 0);
	python_measure(&chain, &chain.frames[2], 8, &code);
	CHECK_INT(code.head.n_bytes, 2 + 2 + 3);
	CHECK_INT(code.head.flags, RING_CODE_NAME_CUT | RING_CODE_FILE_CUT);
	/* another position */
	hash = chain.hash;
	set(&frames[3], layout->frame_position, address_of(&codes[3]) + layout->code_start);
	walk(true, false);
	CHECK(chain.hash != hash);
	/* another code object at the same address, with another name, file, or size */
	for (int i = 0; i < 3; i++) {
		make_list();
		walk(true, false);
		hash = chain.hash;
		if (i == 0)
			names[1].words[3] = 7;
		else if (i == 1)
			set(&codes[1], layout->code_file, address_of(&names[1]));
		else
			codes[1].words[2] = 40;
		walk(true, false);
		CHECK(chain.hash != hash);
	}
}

static void test_no_thread(void)
{
	make_list();
	pthread_setspecific(key, NULL);
	walk(true, true);
	CHECK(chain.n == 0 && chain.hash == 0 && !chain.is_unreadable);
	make_list();
	set(&cframes[0], layout->cframe_frame, 0);
	walk(true, true);
	CHECK(chain.n == 0 && chain.hash == 0 && !chain.is_unreadable);
}

/* Without the lock, or in a handler, unreadable memory causes no fault. */
static void test_unlocked(void)
{
	void *gone = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t hash;

	REQUIRE(gone != MAP_FAILED);
	make_list();
	walk(true, false);
	hash = chain.hash;
	for (int i = 0; i < 2; i++) {
		make_list();
		if (i == 0)
			set_current(NULL);
		walk(i == 0, true);
		CHECK(!chain.memory.is_direct);
		CHECK(chain.n == N_FRAMES && chain.hash == hash);
		/* the next walk reads these ranges all at once, and uses them up to the first that
		 * does not match */
		CHECK_INT(chain.memory.n_ranges, 2 + 3 * N_FRAMES + 3);
		walk(i == 0, true);
		CHECK(chain.n == N_FRAMES && chain.hash == hash);
		names[6].words[3]++;
		walk(i == 0, true);
		CHECK(chain.n == N_FRAMES && chain.hash != hash);
		set(&frames[1], layout->frame_previous, address_of(&frames[3]));
		walk(i == 0, true);
		CHECK(chain.n == N_FRAMES - 1);
		walk(i == 0, true);
		CHECK(chain.n == N_FRAMES - 1);
		make_list();
		if (i == 0)
			set_current(NULL);
		walk(i == 0, false);
		CHECK(chain.n == 0 && chain.is_unreadable);
		set(&frames[3], layout->frame_previous, address_of(gone));
		walk(i == 0, true);
		CHECK(chain.n == 0 && chain.is_unreadable && chain.hash != hash);
		make_list();
		if (i == 0)
			set_current(NULL);
		set(&codes[3], layout->code_name, address_of(gone));
		walk(i == 0, true);
		CHECK(chain.n == 0 && chain.is_unreadable);
	}
	/* The thread holds the lock for another interpreter. */
	make_list();
	set_current(&other_thread);
	set(&other_thread, layout->thread_id, (uint64_t)pthread_self());
	set(&other_thread, layout->thread_cframe, address_of(&cframes[1]));
	walk(true, true);
	CHECK(!chain.memory.is_direct && chain.n == 3);
	/* another thread holds the lock */
	set(&other_thread, layout->thread_id, 1);
	walk(true, true);
	CHECK(!chain.memory.is_direct && chain.n == N_FRAMES);
	munmap(gone, 4096);
}

static void test_torn(void)
{
	make_list();
	set(&cframes[1], layout->cframe_frame, address_of(&frames[6]));
	walk(true, false);
	CHECK(chain.n == 0 && chain.is_unreadable);
	make_list();
	codes[2].words[1] = 0;
	walk(true, false);
	CHECK(chain.n == 0 && chain.is_unreadable);
	make_list();
	set(&frames[2], layout->frame_previous, 5);
	walk(true, false);
	CHECK(chain.n == 0 && chain.is_unreadable);
}

/* Memory that may be gone is not loaded directly. It may be gone if the thread executes no Python
 * code, if an activation is on another stack, or if a code object is being freed. */
static void test_gone(void)
{
	static const struct python_stack idle = { 0, UINT64_MAX, false }, other = { 1, 2, true };

	make_list();
	python_walk(&chain, &idle, true);
	CHECK(!chain.memory.is_direct && chain.n == N_FRAMES);
	make_list();
	python_walk(&chain, &other, true);
	CHECK(chain.n == 0 && chain.is_unreadable);
	make_list();
	codes[2].words[0] = 0;
	walk(true, true);
	CHECK(chain.n == 0 && chain.is_unreadable);
}

static void test_endless(void)
{
	make_list();
	set(&frames[3], layout->frame_previous, address_of(&frames[1]));
	walk(true, false);
	CHECK_INT(chain.n, PYTHON_MAX_FRAMES);
	CHECK(chain.is_cut && !chain.is_unreadable);
	walk(false, true);
	CHECK(chain.is_cut && chain.n > 0 && chain.n < PYTHON_MAX_FRAMES);
}

static void *get_thread(void)
{
	return &thread;
}

static void set_references(struct object *code, uint32_t own, uint64_t others)
{
	memcpy((uint8_t *)code + 12, &own, sizeof(own));
	code->words[2] = others;
}

/* An activation executes frames 0 to 2. Frame 1 executes a copy of its bytecode. */
static void make_free_threaded(void)
{
	static uint8_t copy[40];
	static uint64_t copies[3];
	const uint32_t tss[2] = { 1, key }, index = 1;

	copies[2] = address_of(copy);
	memcpy(state_of_runtime() + layout->runtime_tss, tss, sizeof(tss));
	set(&thread, layout->thread_frame, address_of(&frames[0]));
	memset(frames, 0, sizeof(frames));
	memset(codes, 0, sizeof(codes));
	memset(names, 0, sizeof(names));
	for (size_t i = 0; i < 3; i++) {
		set(&frames[i], layout->frame_previous, address_of(&frames[i + 1]));
		set(&frames[i], layout->frame_code, address_of(&codes[i]) | 1); /* tagged */
		set(&frames[i], layout->frame_position,
		    i == 1 ? copies[2] + 6 : address_of(&codes[i]) + layout->code_start + 2 * i);
		set_references(&codes[i], 1, 0);
		set(&codes[i], layout->object_type, code_type);
		set(&codes[i], CPYTHON_SIZE(layout), sizeof(copy) / 2);
		set(&codes[i], layout->code_name, address_of(&names[0]));
		set(&codes[i], layout->code_qualname, address_of(&names[0]));
		set(&codes[i], layout->code_file, address_of(&names[0]));
		set(&codes[i], layout->code_lines, address_of(&lines));
		set(&codes[i], layout->code_copies, address_of(copies));
	}
	memcpy((uint8_t *)&frames[1] + layout->frame_copy, &index, sizeof(index));
	set_byte(&frames[3], layout->frame_owner, 3);
	set(&names[0], CPYTHON_SIZE(layout), 4);
	/* a byte that says whether the text is interned, then the bits as in other versions */
	set(&names[0], layout->object_type + 24, 1 | 1 << 8 | 1 << 11 | 1 << 12);
	memcpy((uint8_t *)&names[0] + layout->text_ascii, "name", 4);
	set(&lines, CPYTHON_SIZE(layout), 3);
	pthread_setspecific(key, &thread);
}

static void test_free_threaded(void)
{
	const struct python_interpreter other = python_interpreter;
	struct python_code code;
	uint8_t texts[64];

	layout = cpython_layout(14 + CPYTHON_FREE_THREADED);
	REQUIRE(layout);
	python_interpreter.layout = layout;
	python_interpreter.get_thread = get_thread;
	make_free_threaded();
	for (int is_direct = 0; is_direct < 2; is_direct++) {
		walk(is_direct, !is_direct);
		CHECK(chain.memory.is_direct == is_direct);
		REQUIRE(chain.n == 3 && !chain.is_unreadable);
		CHECK_INT(chain.frames[0].position, layout->code_start);
		CHECK_INT(chain.frames[1].position, layout->code_start + 6);
		CHECK_INT(chain.frames[2].position, layout->code_start + 4);
		CHECK(chain.frames[2].ends_run && chain.frames[2].at == address_of(&frames[3]));
		python_measure(&chain, &chain.frames[1], 1000, &code);
		CHECK_INT(code.head.minor, 14 + CPYTHON_FREE_THREADED);
		CHECK_INT(code.head.n_bytes, 4 + 4 + 3);
		python_copy(&chain, &code, texts);
		CHECK(memcmp(texts, "namename", 8) == 0);
	}
	/* the code has only references of other threads; then none, but a flag is set */
	set_references(&codes[2], 0, 1 << 2);
	walk(true, true);
	CHECK_INT(chain.n, 3);
	set_references(&codes[2], 0, 3);
	walk(true, true);
	CHECK(chain.n == 0 && chain.is_unreadable);
	/* a position after the end of the copy; then one in the original bytecode */
	make_free_threaded();
	set(&codes[1], CPYTHON_SIZE(layout), 3);
	walk(true, true);
	CHECK(chain.n == 0 && chain.is_unreadable);
	make_free_threaded();
	set(&frames[1], layout->frame_position, address_of(&codes[1]) + layout->code_start);
	walk(true, true);
	CHECK(chain.n == 0 && chain.is_unreadable);
	python_interpreter = other;
}

int main(void)
{
	layout = cpython_layout(11);
	if (!CHECK(layout && pthread_key_create(&key, NULL) == 0))
		return test_end();
	python_interpreter = (struct python_interpreter){
		.layout = layout,
		.runtime = address_of(state_of_runtime()),
		.code_type = code_type = address_of(&code_type),
	};
	RUN(test_list);
	RUN(test_no_thread);
	RUN(test_unlocked);
	RUN(test_torn);
	RUN(test_gone);
	RUN(test_endless);
	RUN(test_free_threaded);
	return test_end();
}
