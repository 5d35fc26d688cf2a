/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of code-names against a model that stores the name of every byte of generated code.
 */
#include "tests/unit/build-capture.h"
#include "tests/unit/test.h"
#include "tools/symbols/code-names.h"

#define PARENT 1
#define CHILD 2
#define BYTES 256
#define STEPS 600
#define NAMES 40

struct fixture {
	struct build build;
	struct prof_reader *reader;
	struct names *names;
	struct names_epoch *epoch;
	struct code_names *codes;
};

static void process(struct build *build, uint64_t id, uint64_t pid, uint64_t ppid, uint64_t start)
{
	BUILD(build, PROF_TABLE_PROCESS, N(id), N(pid), N(ppid), N(start), N(0),
	      PROF_BYTES(NULL, 0), N(0), N(0), N(0), PROF_BYTES(NULL, 0));
}

static void begin(struct fixture *fixture)
{
	char text[] = "name ?";

	build_begin(&fixture->build);
	for (int i = 1; i <= NAMES; i++) {
		text[5] = (char)('0' + i);
		build_text(&fixture->build, (uint64_t)i, text);
	}
	process(&fixture->build, PARENT, 100, 1, BUILD_START);
	process(&fixture->build, CHILD, 101, 100, BUILD_START + 50);
}

static void event(struct fixture *fixture, uint64_t process, uint64_t time,
		  enum prof_jit_event event, uint64_t address, uint64_t size, uint64_t name,
		  uint64_t from)
{
	BUILD(&fixture->build, PROF_TABLE_JIT, N(BUILD_START + time), N(process), N(event),
	      N(address), N(size), N(name), event == PROF_JIT_MOVE ? N(from) : PROF_NULL);
}

static void finish(struct fixture *fixture)
{
	build_finish(&fixture->build);
	if (prof_reader_open(fixture->build.fd, &fixture->reader) != 0)
		abort();
	fixture->names = names_new(fixture->reader);
	fixture->codes = code_names_load(fixture->names, NULL);
	fixture->epoch = names_epoch(fixture->names, fixture->build.epoch - 1, NULL);
	if (!fixture->codes || !fixture->epoch)
		abort();
}

static void done(struct fixture *fixture)
{
	code_names_free(fixture->codes);
	names_free(fixture->names);
	prof_reader_free(fixture->reader);
	build_done(&fixture->build);
}

/* Returns the number in the name of the code at the address; 0: the code has no name. */
static int find(const struct fixture *fixture, uint64_t process, uint64_t address, uint64_t time,
		uint64_t *ret_until)
{
	const struct code_name *name = code_names_find(fixture->codes,
						       names_process(fixture->epoch, process),
						       address, 1, BUILD_START + time, ret_until);

	return name ? name->name[5] - '0' : 0;
}

#define CHECK_FIND(process, address, time, number)                                  \
	do {                                                                        \
		uint64_t until_;                                                    \
		CHECK_INT(find(&fixture, process, address, time, &until_), number); \
	} while (0)

static void test_overlaps(void)
{
	struct fixture fixture;

	begin(&fixture);
	event(&fixture, PARENT, 1, PROF_JIT_LOAD, 100, 50, 1, 0);
	event(&fixture, PARENT, 2, PROF_JIT_LOAD, 160, 10, 2, 0);
	event(&fixture, PARENT, 3, PROF_JIT_LOAD, 149, 12, 3, 0);
	event(&fixture, PARENT, 4, PROF_JIT_MOVE, 300, 0, 0, 149);
	event(&fixture, PARENT, 5, PROF_JIT_UNLOAD, 300, 0, 0, 0);
	finish(&fixture);
	CHECK_FIND(PARENT, 100, 0, 0);
	CHECK_FIND(PARENT, 100, 1, 1);
	CHECK_FIND(PARENT, 149, 2, 1);
	CHECK_FIND(PARENT, 150, 2, 0);
	CHECK_FIND(PARENT, 160, 2, 2);
	CHECK_FIND(PARENT, 100, 3, 0);
	CHECK_FIND(PARENT, 160, 3, 3);
	CHECK_FIND(PARENT, 165, 3, 0);
	CHECK_FIND(PARENT, 149, 4, 0);
	CHECK_FIND(PARENT, 311, 4, 3);
	CHECK_FIND(PARENT, 312, 4, 0);
	CHECK_FIND(PARENT, 300, 5, 0);
	done(&fixture);
}

/* A move of unknown code, an unload in the middle of code, code of zero bytes, code that ends
 * beyond all addresses, an unknown event, unknown processes. */
static void test_nonsense(void)
{
	struct fixture fixture;

	begin(&fixture);
	event(&fixture, PARENT, 1, PROF_JIT_MOVE, 500, 0, 0, 400);
	event(&fixture, PARENT, 2, PROF_JIT_LOAD, 100, 0, 1, 0);
	event(&fixture, PARENT, 3, PROF_JIT_LOAD, 200, UINT64_MAX, 1, 0);
	event(&fixture, PARENT, 4, PROF_JIT_LOAD, 300, 10, 1, 0);
	event(&fixture, PARENT, 5, PROF_JIT_UNLOAD, 305, 0, 0, 0);
	event(&fixture, PARENT, 6, PROF_JIT_MOVE, UINT64_MAX - 5, 0, 0, 300);
	event(&fixture, PARENT, 7, 77, 100, 10, 1, 0);
	event(&fixture, 0, 8, PROF_JIT_LOAD, 100, 10, 1, 0);
	event(&fixture, 99, 9, PROF_JIT_LOAD, 100, 10, 1, 0);
	finish(&fixture);
	CHECK_FIND(PARENT, 100, 9, 0);
	CHECK_FIND(PARENT, 200, 9, 0);
	CHECK_FIND(PARENT, 305, 5, 1);
	CHECK_FIND(PARENT, 305, 6, 0);
	CHECK_FIND(PARENT, UINT64_MAX - 2, 9, 0);
	CHECK_FIND(0, 100, 9, 0);
	done(&fixture);
}

/* After a fork, a child has the names that its parent had then, until it reports others. */
static void test_fork(void)
{
	struct fixture fixture;

	begin(&fixture);
	event(&fixture, PARENT, 1, PROF_JIT_LOAD, 100, 10, 1, 0);
	event(&fixture, PARENT, 2, PROF_JIT_LOAD, 200, 10, 2, 0);
	event(&fixture, PARENT, 60, PROF_JIT_LOAD, 100, 10, 3, 0);
	event(&fixture, CHILD, 70, PROF_JIT_LOAD, 200, 10, 4, 0);
	finish(&fixture);
	CHECK_FIND(CHILD, 100, 55, 1);
	CHECK_FIND(CHILD, 100, 65, 1);
	CHECK_FIND(CHILD, 200, 65, 2);
	CHECK_FIND(CHILD, 200, 70, 4);
	CHECK_FIND(PARENT, 100, 65, 3);
	CHECK_FIND(PARENT, 200, 75, 2);
	done(&fixture);
}

static void test_segments(void)
{
	struct fixture fixture;
	uint64_t until;

	begin(&fixture);
	event(&fixture, PARENT, 1, PROF_JIT_LOAD, 100, 10, 1, 0);
	build_next_segment(&fixture.build, BUILD_START, 2);
	build_text(&fixture.build, 1, "name 2");
	process(&fixture.build, PARENT, 100, 1, BUILD_START);
	process(&fixture.build, CHILD, 101, 100, BUILD_START + 50);
	event(&fixture, PARENT, 5, PROF_JIT_LOAD, 105, 10, 1, 0);
	finish(&fixture);
	CHECK_FIND(PARENT, 107, 9, 1);
	CHECK(!code_names_find(fixture.codes, names_process(fixture.epoch, PARENT), 101, 2,
			       BUILD_START + 9, &until));
	CHECK(code_names_find(fixture.codes, names_process(fixture.epoch, PARENT), 107, 2,
			      BUILD_START + 9, &until));
	done(&fixture);
}

/* A name for each byte, updated event by event. */
struct model {
	uint8_t name[BYTES], start[BYTES];
};

static void model_end(struct model *model, unsigned start)
{
	unsigned name = model->name[start];

	for (unsigned i = start; name && model->start[start] == start && i < BYTES &&
				 model->name[i] == name && model->start[i] == start;
	     i++)
		model->name[i] = 0;
}

static void model_load(struct model *model, unsigned at, unsigned size, uint8_t name)
{
	for (unsigned i = at; i < at + size; i++)
		if (model->name[i]) {
			unsigned start = model->start[i];

			model_end(model, start);
		}
	for (unsigned i = at; i < at + size; i++) {
		model->name[i] = name;
		model->start[i] = (uint8_t)at;
	}
}

static void model_move(struct model *model, unsigned from, unsigned to)
{
	uint8_t name = model->start[from] == from ? model->name[from] : 0;
	unsigned size = 0;

	while (name && from + size < BYTES && model->name[from + size] == name &&
	       model->start[from + size] == from)
		size++;
	model_end(model, from);
	if (size && to + size <= BYTES)
		model_load(model, to, size, name);
}

static void test_random(void)
{
	static struct model models[STEPS + 1];
	struct fixture fixture;
	uint64_t until;
	uint32_t seed = 7;

	begin(&fixture);
	for (unsigned step = 1; step <= STEPS; step++) {
		struct model *model = &models[step];
		unsigned at, size, name, kind;

		seed = seed * 1664525 + 1013904223;
		at = seed >> 8 & 127;
		size = 1 + (seed >> 16 & 31);
		kind = seed >> 24 & 3;
		name = 1 + step % NAMES;
		*model = models[step - 1];
		if (kind >= 2) {
			event(&fixture, PARENT, step, PROF_JIT_LOAD, at, size, name, 0);
			model_load(model, at, size, (uint8_t)name);
		} else if (kind == 1) {
			event(&fixture, PARENT, step, PROF_JIT_MOVE, at, 0, 0, size);
			model_move(model, size, at);
		} else {
			event(&fixture, PARENT, step, PROF_JIT_UNLOAD, at, 0, 0, 0);
			model_end(model, at);
		}
	}
	finish(&fixture);
	for (unsigned step = 0; step <= STEPS; step++)
		for (unsigned at = 0; at < BYTES; at++) {
			unsigned later = step;

			if (!CHECK_INT(find(&fixture, PARENT, at, step, &until),
				       models[step].name[at]))
				break;
			until -= until == UINT64_MAX ? 0 : BUILD_START;
			CHECK(until > step);
			while (later < until && later < STEPS &&
			       models[later].name[at] == models[step].name[at])
				later++;
			CHECK(later >= until || later == STEPS);
		}
	done(&fixture);
}

int main(void)
{
	RUN(test_overlaps);
	RUN(test_nonsense);
	RUN(test_fork);
	RUN(test_segments);
	RUN(test_random);
	return test_end();
}
