/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of samples.c, interpreted.c, kernel.c, ticks.c, events.c and cpus.c in daemon/engine:
 * records become rows.
 */
#include "daemon/engine/perf/events.h"
#include "daemon/engine/perf/ticks.h"
#include "tests/unit/engine.h"

#include <fcntl.h>

#define STEXT UINT64_C(0xffffffff81000000)
#define KERNEL ((uint64_t)PERF_CONTEXT_KERNEL)
#define USER ((uint64_t)PERF_CONTEXT_USER)

struct stage {
	struct parts parts;
	struct event_source *source;
	struct thread *thread;
};

static void stage_init(struct stage *stage)
{
	struct image_key key = { .path = "/bin/x", .path_bytes = 6, .inode = 5 };
	struct process *process;

	parts_init(&stage->parts);
	stage->source = event_source_new(
		&(struct message_source){ .name = "cpu-clock", .counts_ns = 1 }, 1);
	stage->thread = tasks_found(&stage->parts.tasks, 10, 10, 1);
	process = stage->thread->process;
	process->maps_known = true;
	maps_insert(&process->maps,
		    &(struct mapping){ .start = 0x400000,
				       .end = 0x402000,
				       .file_offset = 0x1000,
				       .image = images_of_mapping(&stage->parts.images, &key) });
	maps_insert(&process->maps, &(struct mapping){ .start = 0x500000, .end = 0x501000 });
	kernel_set_text(&stage->parts.kernel, STEXT);
}

static void stage_done(struct stage *stage)
{
	row_unref(&stage->source->row);
	parts_done(&stage->parts);
}

static void add(struct stage *stage, uint16_t mode, const uint64_t *ips, size_t n)
{
	struct bytes bytes = { .length = 0 };
	struct record record;

	put_sample(&bytes, mode, 10, 10, 5000, ips, n);
	if (record_parse((const void *)bytes.data, 0, &record))
		samples_add(&stage->parts.samples, &record, stage->thread, &stage->source->row,
			    NULL);
}

static uint64_t sample(struct stage *stage, uint16_t column, size_t i)
{
	return number_of(&stage->parts, PROF_TABLE_SAMPLE, column, i);
}

/* Returns a column of the frame `up` callers above the leaf of the i-th sample. */
static uint64_t frame(struct stage *stage, uint16_t column, size_t i, unsigned int up)
{
	uint64_t stack = sample(stage, PROF_SAMPLE_STACK, i);

	while (stack && up--)
		stack = number_of(&stage->parts, PROF_TABLE_STACK, PROF_STACK_PARENT, stack - 1);
	if (!stack)
		return UINT64_MAX;
	return number_of(&stage->parts, PROF_TABLE_FRAME, column,
			 number_of(&stage->parts, PROF_TABLE_STACK, PROF_STACK_FRAME, stack - 1) -
				 1);
}

static void test_chain(void)
{
	const uint64_t ips[] = { KERNEL,   STEXT + 0x10, STEXT + 0x20, USER,
				 0x400010, 0x400020,     0x400030 };
	struct stage stage;

	stage_init(&stage);
	add(&stage, PERF_RECORD_MISC_KERNEL, ips, G_N_ELEMENTS(ips));
	add(&stage, PERF_RECORD_MISC_KERNEL, ips, G_N_ELEMENTS(ips));
	parts_finish(&stage.parts);
	CHECK_INT(rows_of(&stage.parts, PROF_TABLE_SAMPLE), 2);
	CHECK_INT(rows_of(&stage.parts, PROF_TABLE_STACK), 5);
	CHECK(sample(&stage, PROF_SAMPLE_STACK, 0) == sample(&stage, PROF_SAMPLE_STACK, 1));
	CHECK_INT(frame(&stage, PROF_FRAME_OFFSET, 0, 0), 0x10);
	CHECK_INT(frame(&stage, PROF_FRAME_KIND, 0, 0), PROF_FRAME_EXACT);
	CHECK_INT(frame(&stage, PROF_FRAME_OFFSET, 0, 1), 0x20);
	CHECK_INT(frame(&stage, PROF_FRAME_KIND, 0, 1), PROF_FRAME_RETURN);
	CHECK_INT(frame(&stage, PROF_FRAME_OFFSET, 0, 2), 0x1010);
	CHECK_INT(frame(&stage, PROF_FRAME_KIND, 0, 2), PROF_FRAME_EXACT);
	CHECK_INT(frame(&stage, PROF_FRAME_OFFSET, 0, 4), 0x1030);
	CHECK(frame(&stage, PROF_FRAME_OFFSET, 0, 5) == UINT64_MAX);
	CHECK_INT(sample(&stage, PROF_SAMPLE_MODE, 0), PROF_MODE_KERNEL);
	CHECK_INT(sample(&stage, PROF_SAMPLE_USER_METHOD, 0), PROF_METHOD_FP);
	CHECK_INT(sample(&stage, PROF_SAMPLE_USER_STOP, 0), PROF_STOP_UNKNOWN);
	CHECK_INT(sample(&stage, PROF_SAMPLE_WEIGHT, 0), 1001001);
	CHECK_INT(stage.parts.first_hits, 1);
	CHECK_INT(rows_of(&stage.parts, PROF_TABLE_MAPPING), 1);
	CHECK_INT(stage.parts.samples.guessed, 2);
	stage_done(&stage);
}

/* A value that was not read is decoded as a text with the reason, not as the number 0. */
static void test_arguments(void)
{
	const struct probe_value values[] = { { .value = (uint64_t)-5 },
					      { .unread = PROBE_UNREAD_OUTSIDE } };
	const uint8_t *raw = (const uint8_t *)values;
	struct message_field field = {
		.name = "arg1", .type = "s32", .size = sizeof(values[0]), .place = FIELD_ARGUMENT
	};
	char text[EVENT_TEXT_MAX];
	uint64_t value = 1;
	int length;

	CHECK_INT(event_field_decode(&field, raw, sizeof(values), &value, text), 0);
	CHECK_INT((int64_t)value, -5);
	field.offset = sizeof(values[0]);
	length = event_field_decode(&field, raw, sizeof(values), &value, text);
	REQUIRE(length > 0);
	CHECK_INT(value, 0);
	CHECK(g_str_has_prefix(text, "not read: "));
	CHECK_INT(event_field_decode(&field, raw, sizeof(values) - 1, &value, text), -1);
}

/* Chains share their outermost frames, and mappings change between the chains. */
static void test_cache(void)
{
	const uint64_t first[] = { USER, 0x400010, 0x400020, 0x400030 };
	const uint64_t second[] = { USER, 0x400010, 0x400011, 0x400020, 0x400030 };
	struct stage stage;

	stage_init(&stage);
	add(&stage, PERF_RECORD_MISC_USER, first, 4);
	add(&stage, PERF_RECORD_MISC_USER, second, 5);
	maps_insert(&stage.thread->process->maps,
		    &(struct mapping){ .start = 0x400000, .end = 0x401000 });
	add(&stage, PERF_RECORD_MISC_USER, first, 4);
	output_end_epoch(&stage.parts.output);
	add(&stage, PERF_RECORD_MISC_USER, first, 4);
	parts_finish(&stage.parts);
	CHECK_INT(frame(&stage, PROF_FRAME_OFFSET, 1, 1), 0x1011);
	CHECK_INT(frame(&stage, PROF_FRAME_OFFSET, 1, 3), 0x1030);
	CHECK_INT(frame(&stage, PROF_FRAME_OFFSET, 2, 2), 0x400030);
	CHECK_INT(rows_of(&stage.parts, PROF_TABLE_STACK), 3 + 2 + 3 + 3);
	stage_done(&stage);
}

static void test_unknown(void)
{
	const uint64_t nowhere[] = { USER, 0x700000 };
	const uint64_t anonymous[] = { USER, 0x500010 };
	const uint64_t bad[] = { USER, 0x400010, 0x400020, 0xdead, 0x400030 };
	struct stage stage;

	stage_init(&stage);
	add(&stage, PERF_RECORD_MISC_USER, nowhere, 2);
	add(&stage, PERF_RECORD_MISC_USER, anonymous, 2);
	add(&stage, PERF_RECORD_MISC_USER, bad, 5);
	add(&stage, PERF_RECORD_MISC_USER, NULL, 0);
	parts_finish(&stage.parts);
	CHECK_INT(frame(&stage, PROF_FRAME_OFFSET, 0, 0), 0x700000);
	CHECK_INT(frame(&stage, PROF_FRAME_OFFSET, 1, 0), 0x500010);
	CHECK(frame(&stage, PROF_FRAME_IMAGE, 0, 0) != frame(&stage, PROF_FRAME_IMAGE, 1, 0));
	CHECK_INT(sample(&stage, PROF_SAMPLE_USER_STOP, 2), PROF_STOP_BAD_FRAME);
	CHECK_INT(frame(&stage, PROF_FRAME_OFFSET, 2, 1), 0x1020);
	CHECK(frame(&stage, PROF_FRAME_OFFSET, 2, 2) == UINT64_MAX);
	/* without a chain, the frame is the sample's own address */
	CHECK_INT(frame(&stage, PROF_FRAME_OFFSET, 3, 0), 0x1234);
	CHECK_INT(number_of(&stage.parts, PROF_TABLE_IMAGE, PROF_IMAGE_PROCESS, 0),
		  stage.thread->process->row.id);
	stage_done(&stage);
}

static void test_counts(void)
{
	uint64_t deep[2 + 127] = { USER };
	const uint64_t kernel_only[] = { KERNEL, STEXT + 0x10 };
	const uint64_t no_user[] = { KERNEL, STEXT + 0x10, USER };
	struct stage stage;
	size_t i;

	for (i = 1; i < 128; i++)
		deep[i] = 0x400000 + i;
	stage_init(&stage);
	add(&stage, PERF_RECORD_MISC_USER, deep, 128);
	/* a chain without the user marker: the thread has no user memory; with the marker: the user
	 * stack is unknown */
	add(&stage, PERF_RECORD_MISC_KERNEL, kernel_only, 2);
	add(&stage, PERF_RECORD_MISC_KERNEL, no_user, 3);
	strcpy(stage.thread->comm, "iou-wrk-1");
	add(&stage, PERF_RECORD_MISC_KERNEL, kernel_only, 2);
	stage.thread->comm[0] = 0;
	stage.thread->process->kernel = true;
	add(&stage, PERF_RECORD_MISC_KERNEL, kernel_only, 2);
	parts_finish(&stage.parts);
	CHECK_INT(sample(&stage, PROF_SAMPLE_USER_STOP, 0), PROF_STOP_DEPTH);
	CHECK_INT(sample(&stage, PROF_SAMPLE_USER_STOP, 1), PROF_STOP_NO_MEMORY);
	CHECK_INT(sample(&stage, PROF_SAMPLE_USER_METHOD, 1), PROF_METHOD_NONE);
	CHECK_INT(sample(&stage, PROF_SAMPLE_USER_STOP, 2), PROF_STOP_UNKNOWN);
	CHECK_INT(sample(&stage, PROF_SAMPLE_USER_STOP, 3), PROF_STOP_KERNEL_THREAD);
	CHECK_INT(sample(&stage, PROF_SAMPLE_USER_STOP, 4), PROF_STOP_KERNEL_THREAD);
	CHECK_INT(stage.parts.samples.guessed, 1);
	CHECK_INT(stage.parts.samples.none, 1);
	CHECK_INT(stage.parts.samples.no_memory, 1);
	stage_done(&stage);
}

/* A Python program with one function, which belongs to the middle one of three native frames. */
struct interpreted_program {
	struct stage stage;
	struct interp_runtime python;
	struct interp_code code;
	struct interp_sample list;
	struct sample sample;
	struct interpreted *interpreted;
	struct interpreted_code functions;
	struct interpreter_calls {
		unsigned int expected, found, unread;
	} calls;
};

static void count_expected(enum interp_family family, void *data)
{
	CHECK_INT(family, INTERP_PYTHON);
	((struct interpreted_program *)data)->calls.expected++;
}

static void count_found(const struct process *process, void *data)
{
	((struct interpreted_program *)data)->calls.found++;
}

static void count_unread(const struct process *process, const struct interp_runtime *runtime,
			 void *data)
{
	((struct interpreted_program *)data)->calls.unread++;
}

static struct process *program_init(struct interpreted_program *program)
{
	static const uint64_t ips[] = { 0x400010 | UNWIND_EXACT, 0x400020, 0x400030 };
	static const uint64_t sps[] = { 0x6f00, 0x6ff0, 0x7100 };

	*program = (struct interpreted_program){
		.python = { .family = INTERP_PYTHON, .minor = 12, .found = INTERP_FOUND },
		.code = { .record = INTERP_RECORD_CODE,
			  .code = 0x1000,
			  .id = 7,
			  .first_line = 5,
			  .family = INTERP_PYTHON,
			  .minor = 12,
			  .name_width = 1,
			  .name_bytes = 1,
			  .name = "f",
			  .file_width = 1,
			  .file_bytes = 7,
			  .file = "/x/m.py" },
		.list = { .record = INTERP_RECORD_SAMPLE,
			  .n = 1,
			  .flags = INTERP_WALKED,
			  .family = INTERP_PYTHON,
			  .minor = 12,
			  .frames = { { .code = 0x1000,
					.id = 7,
					.at = 0x7000,
					.flags = INTERP_FRAME_ENDS_RUN } } },
		.sample = { .user = { .ips = ips,
				      .n = 3,
				      .sps = sps,
				      .n_sps = 3,
				      .stop = PROF_STOP_ROOT },
			    .raw = (const uint8_t *)&program->list,
			    .raw_bytes = sizeof(program->list),
			    .is_interpreted = true },
		.interpreted = g_new(struct interpreted, 1),
	};
	stage_init(&program->stage);
	program->sample.thread = program->stage.thread;
	interpreted_code_init(&program->functions, &program->stage.parts.output,
			      &program->stage.parts.images);
	interpreted_init(program->interpreted, &program->functions);
	program->interpreted->expected = count_expected;
	program->interpreted->found = count_found;
	program->interpreted->unread = count_unread;
	program->interpreted->data = program;
	return program->stage.thread->process;
}

static void program_done(struct interpreted_program *program)
{
	interpreted_code_done(&program->functions);
	g_free(program->interpreted);
	stage_done(&program->stage);
}

static void test_interpreted(void)
{
	static const bool is_new[] = { true };
	struct interpreted_program program;
	struct process *process = program_init(&program);
	struct interpreted *interpreted = program.interpreted;
	struct output_place places[4];
	char name[] = "/usr/lib/libpython3.12.so.1.0", *path;
	struct image *image;

	CHECK_INT(interpreted_merge(interpreted, &program.sample), PROF_INTERPRETER_NONE);
	image = process->maps->mappings[0].image;
	interpreted_look(interpreted, process);
	CHECK_INT(program.calls.expected, 0);
	path = image->path;
	image->path = name;
	interpreted_look_again(interpreted);
	interpreted_look(interpreted, process);
	interpreted_look_again(interpreted);
	interpreted_look(interpreted, process);
	image->path = path;
	CHECK_INT(program.calls.expected, 1);
	CHECK_INT(program.calls.found, 0);
	image->runtime = &program.python;
	interpreted_look_again(interpreted);
	interpreted_look(interpreted, process);
	interpreted_look(interpreted, process);
	CHECK_INT(program.calls.found, 1);
	interpreted_look_again(interpreted);
	interpreted_look(interpreted, process);
	CHECK_INT(program.calls.found, 2);
	interpreted_add_code(interpreted, process, (const uint8_t *)&program.code,
			     sizeof(program.code));
	CHECK_INT(interpreted_merge(interpreted, &program.sample), PROF_INTERPRETER_COMPLETE);
	CHECK_INT(interpreted_add_places(interpreted, SIZE_MAX, places, 0), 0);
	CHECK_INT(interpreted_add_places(interpreted, 2, places, 0), 0);
	CHECK_INT(interpreted_add_places(interpreted, 1, places, 0), 1);
	CHECK_INT(interpreted_add_places(interpreted, 0, places, 1), 1);
	CHECK_INT(places[0].offset, INTERP_FUNCTION_LINES + 5);
	interpreted_write(interpreted, is_new);
	interpreted_write(interpreted, is_new);
	/* the outermost native frame is another activation of the interpreter */
	program.python.eval = 0x400028 - process->interpreter_bias;
	program.python.eval_size = 8;
	CHECK_INT(interpreted_merge(interpreted, &program.sample), PROF_INTERPRETER_DEEPER);
	program.python.eval_size = 0;
	program.list.frames[0].at = 0x100; /* below the innermost sp */
	CHECK_INT(interpreted_merge(interpreted, &program.sample), PROF_INTERPRETER_MISSING);
	program.list.flags |= INTERP_TORN;
	CHECK_INT(interpreted_merge(interpreted, &program.sample), PROF_INTERPRETER_TORN);
	program.list.flags = INTERP_NO_THREAD;
	program.list.n = 0;
	CHECK_INT(interpreted_merge(interpreted, &program.sample), PROF_INTERPRETER_IDLE);
	program.sample.is_interpreted = false;
	CHECK_INT(interpreted_merge(interpreted, &program.sample), PROF_INTERPRETER_MISSING);
	parts_finish(&program.stage.parts);
	CHECK_INT(rows_of(&program.stage.parts, PROF_TABLE_SYMBOL), 1);
	CHECK_INT(rows_of(&program.stage.parts, PROF_TABLE_LINE), 2);
	CHECK_INT(number_of(&program.stage.parts, PROF_TABLE_LINE, PROF_LINE_LINE, 0), 5);
	program_done(&program);
}

/* Code objects of CPython itself, whose first line is 0 or 1, are only in unfinished frames, so the
 * chain is torn. */
static void test_trampoline(void)
{
	static const char name[] = "<interpreter trampoline>", file[] = "<shim>";

	for (uint32_t line = 0; line < 2; line++) {
		struct interpreted_program program;
		struct process *process = program_init(&program);

		memcpy(program.code.name, name, sizeof(name));
		memcpy(program.code.file, file, sizeof(file));
		program.code.name_bytes = sizeof(name) - 1;
		program.code.file_bytes = sizeof(file) - 1;
		program.code.first_line = line;
		process->maps->mappings[0].image->runtime = &program.python;
		interpreted_look(program.interpreted, process);
		interpreted_add_code(program.interpreted, process, (const uint8_t *)&program.code,
				     sizeof(program.code));
		CHECK_INT(interpreted_merge(program.interpreted, &program.sample),
			  PROF_INTERPRETER_TORN);
		parts_finish(&program.stage.parts);
		program_done(&program);
	}
}

/* Compiled code of Ruby does not keep its frame's position up to date. */
static void test_jit(void)
{
	static const uint64_t in_file[] = { 0x400010 | UNWIND_EXACT, 0x400020, 0x400030 },
			      compiled[] = { 0x500010 | UNWIND_EXACT, 0x400020, 0x400030 };
	struct interpreted_program program;
	struct process *process = program_init(&program);

	program.python.family = program.list.family = program.code.family = INTERP_RUBY;
	program.python.minor = program.list.minor = program.code.minor = 1;
	program.code.name_width = program.code.file_width = INTERP_UTF_8;
	program.list.frames[0].position = 3;
	process->maps->mappings[0].image->runtime = &program.python;
	interpreted_look(program.interpreted, process);
	interpreted_add_code(program.interpreted, process, (const uint8_t *)&program.code,
			     sizeof(program.code));
	program.sample.user.ips = in_file;
	CHECK_INT(interpreted_merge(program.interpreted, &program.sample),
		  PROF_INTERPRETER_COMPLETE);
	CHECK_INT(program.interpreted->chain.frames[0].position, 3);
	program.sample.user.ips = compiled;
	CHECK_INT(interpreted_merge(program.interpreted, &program.sample),
		  PROF_INTERPRETER_COMPLETE);
	CHECK_INT(program.interpreted->chain.frames[0].position, UINT32_MAX);
	parts_finish(&program.stage.parts);
	program_done(&program);
}

/* A function of JavaScript replaces code that was generated for it, unless the process describes
 * that code. */
static void test_generated(void)
{
	static const uint64_t ips[] = { 0x400010 | UNWIND_EXACT, 0x500020, 0x400030 };
	struct interpreted_program program;
	struct process *process = program_init(&program);
	struct output_place places[8];
	struct mapping first;

	program.python.family = program.list.family = program.code.family = INTERP_V8;
	program.python.minor = program.list.minor = program.code.minor = 3;
	process->maps->mappings[0].image->runtime = &program.python;
	/* V8 maps a part of its file a second time. */
	first = process->maps->mappings[0];
	maps_insert(&process->maps, &(struct mapping){ .start = 0x200000,
						       .end = 0x201000,
						       .file_offset = first.file_offset + 0x8000,
						       .image = first.image });
	interpreted_look(program.interpreted, process);
	CHECK_INT(process->interpreter_bias, first.start - first.file_offset);
	interpreted_add_code(program.interpreted, process, (const uint8_t *)&program.code,
			     sizeof(program.code));
	program.sample.user.ips = ips;
	CHECK_INT(interpreted_merge(program.interpreted, &program.sample),
		  PROF_INTERPRETER_COMPLETE);
	CHECK(!interpreted_replaces(program.interpreted, &program.sample, 2));
	CHECK(interpreted_replaces(program.interpreted, &program.sample, 1));
	CHECK_INT(interpreted_add_places(program.interpreted, 1, places, 0), 1);
	CHECK_INT(places[0].offset % INTERP_FUNCTION_LINES, 0);
	CHECK(!interpreted_replaces(program.interpreted, &program.sample, 0));
	process->describes_code = true;
	CHECK_INT(interpreted_merge(program.interpreted, &program.sample),
		  PROF_INTERPRETER_COMPLETE);
	CHECK(!interpreted_replaces(program.interpreted, &program.sample, 1));
	CHECK_INT(interpreted_add_places(program.interpreted, 1, places, 0), 0);
	/* Generated code has no unwind tables, so a stack unwound by CFI has no such code. */
	program.sample.is_interpreted = false;
	program.sample.user.stop = PROF_STOP_ROOT;
	program.sample.user.method = PROF_METHOD_JIT_FP;
	CHECK_INT(interpreted_merge(program.interpreted, &program.sample),
		  PROF_INTERPRETER_MISSING);
	program.sample.user.method = PROF_METHOD_CFI;
	CHECK_INT(interpreted_merge(program.interpreted, &program.sample), PROF_INTERPRETER_IDLE);
	parts_finish(&program.stage.parts);
	program_done(&program);
}

/* In a sample from before the interpreter was found, the thread is idle if the stack is complete
 * and has no activation of the interpreter. */
static void test_before(void)
{
	static const uint64_t below[] = { 0x400110 | UNWIND_EXACT, 0x400100 },
			      above[] = { 0x400110 | UNWIND_EXACT, 0x400051, 0x400120 },
			      inside[] = { 0x400110 | UNWIND_EXACT, 0x400150 },
			      last[] = { 0x400140 | UNWIND_EXACT };
	const struct {
		const uint64_t *ips;
		size_t n;
		enum prof_sample_interpreter expected;
	} cases[] = {
		{ below, 2, PROF_INTERPRETER_IDLE },     { above, 3, PROF_INTERPRETER_IDLE },
		{ inside, 2, PROF_INTERPRETER_MISSING }, { last, 1, PROF_INTERPRETER_MISSING },
		{ last, 0, PROF_INTERPRETER_MISSING },
	};
	struct interpreted_program program;
	struct process *process = program_init(&program);

	program.python.eval = process->maps->mappings[0].file_offset + 0x140;
	program.python.eval_size = 0x10;
	process->maps->mappings[0].image->runtime = &program.python;
	interpreted_look(program.interpreted, process);
	program.sample.is_interpreted = false;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		program.sample.user.ips = cases[i].ips;
		program.sample.user.n = cases[i].n;
		program.sample.user.stop = PROF_STOP_ROOT;
		CHECK_INT(interpreted_merge(program.interpreted, &program.sample),
			  cases[i].expected);
		program.sample.user.stop = PROF_STOP_NO_RULE;
		CHECK_INT(interpreted_merge(program.interpreted, &program.sample),
			  PROF_INTERPRETER_MISSING);
	}
	program.python.minor = 14;
	program.sample.user.ips = below;
	program.sample.user.n = 2;
	program.sample.user.stop = PROF_STOP_ROOT;
	CHECK_INT(interpreted_merge(program.interpreted, &program.sample),
		  PROF_INTERPRETER_MISSING);
	parts_finish(&program.stage.parts);
	program_done(&program);
}

static struct image *map_runtime(struct process *process, struct interpreted_program *program,
				 uint64_t start, const struct interp_runtime *runtime)
{
	const struct image_key key = { .path = "/a", .path_bytes = 2, .inode = start };
	struct image *image = images_of_mapping(&program->stage.parts.images, &key);

	image->runtime = runtime;
	maps_insert(&process->maps,
		    &(struct mapping){ .start = start, .end = start + 0x1000, .image = image });
	return image;
}

/* Chains that contradict themselves, or belong to another interpreter, are not shown. */
static void test_refused(void)
{
	struct interpreted_program program;
	struct process *process = program_init(&program);
	struct interpreted *interpreted = program.interpreted;

	process->maps->mappings[0].image->runtime = &program.python;
	interpreted_look(interpreted, process);
	interpreted_add_code(interpreted, process, (const uint8_t *)&program.code,
			     sizeof(program.code));
	CHECK_INT(interpreted_merge(interpreted, &program.sample), PROF_INTERPRETER_COMPLETE);
	program.list.minor = 11;
	CHECK_INT(interpreted_merge(interpreted, &program.sample), PROF_INTERPRETER_MISSING);
	program.list.minor = 12;
	program.list.family = INTERP_RUBY;
	CHECK_INT(interpreted_merge(interpreted, &program.sample), PROF_INTERPRETER_MISSING);
	program.python.family = INTERP_RUBY;
	CHECK_INT(interpreted_merge(interpreted, &program.sample), PROF_INTERPRETER_COMPLETE);
	/* the frame's activation is unknown */
	program.list.frames[0].at = 0;
	CHECK_INT(interpreted_merge(interpreted, &program.sample), PROF_INTERPRETER_TORN);
	program.list.flags |= INTERP_DEEPER;
	CHECK_INT(interpreted_merge(interpreted, &program.sample), PROF_INTERPRETER_MISSING);
	/* the chain ends within a run */
	program.list.frames[0].flags = 0;
	CHECK_INT(interpreted_merge(interpreted, &program.sample), PROF_INTERPRETER_DEEPER);
	program.list.flags = INTERP_WALKED;
	CHECK_INT(interpreted_merge(interpreted, &program.sample), PROF_INTERPRETER_TORN);
	/* otherwise the writer's thread could still run, and write to the next test's capture */
	parts_finish(&program.stage.parts);
	program_done(&program);
}

/* An unsupported interpreter does not hide a supported one. If two are supported, one is read,
 * and the other is reported as unread. */
static void test_two_interpreters(void)
{
	static const struct interp_runtime old = { .family = INTERP_RUBY,
						   .minor = 7,
						   .found = INTERP_OTHER_VERSION };
	static const struct interp_runtime ruby = { .family = INTERP_RUBY,
						    .minor = 1,
						    .found = INTERP_FOUND };
	struct interpreted_program program;
	struct process *process = program_init(&program);
	struct interpreted *interpreted = program.interpreted;
	struct image *low, *python, *high;

	low = map_runtime(process, &program, 0x700000, &old);
	interpreted_look(interpreted, process);
	CHECK(process->interpreter == low);
	CHECK_INT(program.calls.found, 1);
	CHECK_INT(program.calls.unread, 0);
	python = map_runtime(process, &program, 0x710000, &program.python);
	high = map_runtime(process, &program, 0x720000, &old);
	interpreted_look(interpreted, process);
	CHECK(process->interpreter == python);
	CHECK_INT(program.calls.found, 2);
	CHECK_INT(program.calls.unread, 2);
	/* an interpreter that is read is not replaced by another one */
	high->runtime = &ruby;
	interpreted_look_again(interpreted);
	interpreted_look(interpreted, process);
	CHECK(process->interpreter == python);
	/* the program itself contains the interpreter */
	process->interpreter = NULL;
	process->program = python;
	interpreted_look_again(interpreted);
	interpreted_look(interpreted, process);
	CHECK(process->interpreter == python);
	/* read the library at the higher address, because it was probably mapped first */
	process->interpreter = process->program = NULL;
	interpreted_look_again(interpreted);
	interpreted_look(interpreted, process);
	CHECK(process->interpreter == high);
	/* a thread that is not in Ruby may be in Python */
	program.list.family = INTERP_RUBY;
	program.list.minor = 1;
	program.list.flags = INTERP_NO_THREAD;
	program.list.n = 0;
	CHECK_INT(interpreted_merge(interpreted, &program.sample), PROF_INTERPRETER_MISSING);
	parts_finish(&program.stage.parts);
	program_done(&program);
}

/* If there is no room for a function, frames are missing from the samples that have it. */
static void test_full(void)
{
	struct interpreted_program program;
	struct process *process = program_init(&program);
	struct interpreted *interpreted = program.interpreted;

	process->maps->mappings[0].image->runtime = &program.python;
	interpreted_look(interpreted, process);
	interp_functions_free(program.functions.functions);
	program.functions.functions = interp_functions_new(64, 1);
	/* a record was lost */
	CHECK_INT(interpreted_merge(interpreted, &program.sample), PROF_INTERPRETER_COMPLETE);
	CHECK(!interp_functions_are_full(program.functions.functions));
	interpreted_add_code(interpreted, process, (const uint8_t *)&program.code,
			     sizeof(program.code));
	CHECK(interp_functions_are_full(program.functions.functions));
	CHECK_INT(interpreted_merge(interpreted, &program.sample), PROF_INTERPRETER_MISSING);
	parts_finish(&program.stage.parts);
	program_done(&program);
}

static void test_cgroup(void)
{
	const uint64_t ips[] = { USER, 0x400010 };
	struct stage stage;
	const char *text;

	stage_init(&stage);
	add(&stage, PERF_RECORD_MISC_USER, ips, 2);
	tasks_set_cgroup(&stage.parts.tasks, 1, "/user.slice", 11);
	add(&stage, PERF_RECORD_MISC_USER, ips, 2);
	parts_finish(&stage.parts);
	CHECK_INT(sample(&stage, PROF_SAMPLE_CGROUP, 0), 0);
	text = text_of(&stage.parts, sample(&stage, PROF_SAMPLE_CGROUP, 1));
	CHECK_STR(text, "/user.slice");
	stage_done(&stage);
}

static void test_regions(void)
{
	struct images images;
	struct kernel kernel;
	uint64_t offset;

	images_init(&images);
	kernel_init(&kernel, &images);
	CHECK(kernel_find(&kernel, STEXT, &offset) == kernel.unknown);
	CHECK(offset == STEXT);
	kernel_set_text(&kernel, STEXT);
	CHECK(kernel_find(&kernel, STEXT + 5, &offset) == kernel.image);
	CHECK_INT(offset, 5);
	CHECK(kernel_find(&kernel, UINT64_C(0xffffffffc0000000), &offset) == kernel.unknown);
	kernel_add_region(&kernel, PROF_IMAGE_MODULE, "ext4", 4, UINT64_C(0xffffffffc0100000),
			  0x1000);
	kernel_add_region(&kernel, PROF_IMAGE_BPF, "prog", 4, UINT64_C(0xffffffffc0200000), 0x100);
	CHECK_STR(kernel_find(&kernel, UINT64_C(0xffffffffc0100fff), &offset)->path, "ext4");
	CHECK_INT(offset, 0xfff);
	CHECK_STR(kernel_find(&kernel, UINT64_C(0xffffffffc0200010), &offset)->path, "prog");
	kernel_add_region(&kernel, PROF_IMAGE_BPF, "next", 4, UINT64_C(0xffffffffc01fff00), 0x200);
	CHECK_STR(kernel_find(&kernel, UINT64_C(0xffffffffc0200010), &offset)->path, "next");
	CHECK_INT(kernel.regions->len, 2);
	kernel_remove_region(&kernel, UINT64_C(0xffffffffc01fff00));
	kernel_remove_region(&kernel, UINT64_C(0xffffffffc01fff00));
	kernel_add_region(&kernel, PROF_IMAGE_BPF, "end", 3, UINT64_MAX - 1, 0x200);
	kernel_add_region(&kernel, PROF_IMAGE_BPF, "nil", 3, STEXT, 0);
	CHECK_INT(kernel.regions->len, 1);
	kernel_done(&kernel);
	images_done(&images);
}

static int fake_kallsyms(void)
{
	static const char kallsyms[] = "ffffffff81000000 T _stext\n"
				       "ffffffff81000010 T first\n"
				       "ffffffff81000100 t second\n"
				       "ffffffff81000200 T third\n";
	int fd = memfd_create("kallsyms", MFD_CLOEXEC);

	if (write(fd, kallsyms, strlen(kallsyms)) != (ssize_t)strlen(kallsyms))
		abort();
	return fd;
}

static void test_symbols(void)
{
	struct parts parts;
	int fd = fake_kallsyms();
	const char *text;

	parts_init(&parts);
	kernel_read_text(&parts.kernel, fd);
	CHECK(parts.kernel.text_start == STEXT);
	kernel_request(&parts.kernel, STEXT + 0x110, PROF_FRAME_EXACT);
	kernel_request(&parts.kernel, STEXT + 0x120, PROF_FRAME_EXACT);
	kernel_request(&parts.kernel, STEXT + 0x100, PROF_FRAME_RETURN);
	kernel_write_symbols(&parts.kernel, fd, &parts.output);
	parts_finish(&parts);
	CHECK_INT(rows_of(&parts, PROF_TABLE_SYMBOL), 2);
	CHECK_INT(number_of(&parts, PROF_TABLE_SYMBOL, PROF_SYMBOL_START, 0), 0x10);
	text = text_of(&parts, number_of(&parts, PROF_TABLE_SYMBOL, PROF_SYMBOL_NAME, 1));
	CHECK_STR(text, "second");
	close(fd);
	parts_done(&parts);
}

/* Kernel symbols are written every few seconds, not only at the recording's end; to a live view, at
 * once. */
static void test_symbols_of_a_killed_recording(void)
{
	const uint64_t second = UINT64_C(1000000000), start = 100 * second;
	struct parts parts;
	int fd = fake_kallsyms();
	uint64_t ns = start;

	parts_init(&parts);
	kernel_read_text(&parts.kernel, fd);
	kernel_request(&parts.kernel, STEXT + 0x110, PROF_FRAME_EXACT);
	for (; g_hash_table_size(parts.kernel.written) == 0 && ns < 200 * second; ns += second)
		kernel_write_symbols_soon(&parts.kernel, fd, &parts.output, false, ns);
	CHECK(ns > start + second && ns < start + 20 * second);
	kernel_request(&parts.kernel, STEXT + 0x10, PROF_FRAME_EXACT);
	kernel_write_symbols_soon(&parts.kernel, fd, &parts.output, false, ns);
	CHECK_INT(g_hash_table_size(parts.kernel.written), 1);
	kernel_write_symbols_soon(&parts.kernel, fd, &parts.output, false, ns + 20 * second);
	CHECK_INT(g_hash_table_size(parts.kernel.written), 2);
	parts.kernel.next_ns = 0;
	kernel_request(&parts.kernel, STEXT + 0x200, PROF_FRAME_EXACT);
	kernel_write_symbols_soon(&parts.kernel, fd, &parts.output, true, ns);
	CHECK_INT(g_hash_table_size(parts.kernel.written), 3);
	close(fd);
	parts_finish(&parts);
	parts_done(&parts);
}

static void test_ticks(void)
{
	static const char text[] = "cpu  1 2 3 4 5 6 7 8 9 0\n"
				   "cpu0 100 10 20 999 5 3 4 50 0 0\n"
				   "cpu7 1 0 0 0 0 0 0 0 0 0\n"
				   "cpu4000 1 0 0 0 0 0 0 0 0 0\n"
				   "intr 5 4 3\n";
	const uint64_t tick_ns = UINT64_C(1000000000) / sysconf(_SC_CLK_TCK);
	uint64_t busy_ns[8] = { 0 };

	ticks_parse(text, false, busy_ns, 8);
	CHECK(busy_ns[0] == 137 * tick_ns);
	CHECK(busy_ns[7] == tick_ns);
	ticks_parse(text, true, busy_ns, 8);
	CHECK(busy_ns[0] == 110 * tick_ns);
	ticks_parse("", false, busy_ns, 8);
	ticks_parse("cpu", false, busy_ns, 8);
}

static void write_stat(int fd, unsigned int ticks)
{
	if (ftruncate(fd, 0) != 0 || lseek(fd, 0, SEEK_SET) != 0)
		abort();
	dprintf(fd, "cpu  0 0 0 0 0 0 0 0\ncpu0 %u 0 0 0 0 0 0 0\n", 1000 + ticks);
}

/* Writes what a perf event's read() returns: value, id, lost. */
static void write_lost(int fd, uint64_t lost)
{
	const uint64_t values[] = { 0, 7, lost };

	if (write(fd, values, sizeof(values)) != sizeof(values))
		abort();
}

/* Missed ticks are reported when their number has grown, and each is reported once. Losses of the
 * ring do not count as missed ticks, even if the ring reports them later. */
static void test_ticks_grow(void)
{
	struct cpu cpu = { .open = true, .n_sources = 1 };
	struct cpus cpus = { .all = g_ptr_array_new() };
	struct ticks ticks = { .period_ns = 1000000, .stat_fd = memfd_create("stat", MFD_CLOEXEC) };
	const uint64_t tick_ns = UINT64_C(1000000000) / sysconf(_SC_CLK_TCK);
	struct loss_table losses;
	uint64_t lost, missed;
	int event[2];

	loss_init(&losses);
	if (pipe2(event, O_CLOEXEC | O_NONBLOCK) != 0)
		abort();
	cpu.source_fds[0] = event[0];
	g_ptr_array_add(cpus.all, &cpu);
	write_stat(ticks.stat_fd, 0);
	write_lost(event[1], 3);
	ticks_begin(&ticks, &cpus, 1000);
	write_stat(ticks.stat_fd, 10);
	cpu.sampled_ns = cpu.sampled_here_ns = 9 * tick_ns;
	ticks_read(&ticks);
	ticks_compare(&ticks, &cpus, &losses, 2000);
	loss_sum(&losses, &lost, &missed);
	CHECK_INT(missed, 0);
	write_stat(ticks.stat_fd, 20);
	write_lost(event[1], 3 + 5 * tick_ns / ticks.period_ns);
	cpu.last_ns[0] = 2500;
	ticks_read(&ticks);
	ticks_compare(&ticks, &cpus, &losses, 3000);
	ticks_read(&ticks);
	ticks_compare(&ticks, &cpus, &losses, 4000);
	loss_sum(&losses, &lost, &missed);
	CHECK_INT(missed, 6 * tick_ns / ticks.period_ns);
	CHECK(!cpu_is_silent(&cpu));
	write_stat(ticks.stat_fd, 60);
	cpu.last_ns[0] = 4500;
	ticks_read(&ticks);
	ticks_drop(&ticks); /* the rings still have unread records */
	ticks_compare(&ticks, &cpus, &losses, 4600);
	cpu.sampled_ns += 40 * tick_ns;
	ticks_read(&ticks);
	ticks_compare(&ticks, &cpus, &losses, 4700);
	loss_sum(&losses, &lost, &missed);
	CHECK_INT(missed, 6 * tick_ns / ticks.period_ns);
	write_stat(ticks.stat_fd, 100);
	ticks_read(&ticks);
	ticks_compare(&ticks, &cpus, &losses, 5000);
	loss_sum(&losses, &lost, &missed);
	CHECK_INT(missed, 6 * tick_ns / ticks.period_ns);
	CHECK(cpu_is_silent(&cpu));
	loss_done(&losses);
	g_ptr_array_free(cpus.all, TRUE);
	close(event[0]);
	close(event[1]);
	close(ticks.stat_fd);
}

static void test_list(void)
{
	uint8_t online[8] = { 0 };

	cpus_parse_list("0-1,3,6-4000000000,5-4\n", online, 8);
	CHECK(online[0] && online[1] && !online[2] && online[3] && !online[4] && !online[5]);
	CHECK(online[6] && online[7]);
	memset(online, 0, sizeof(online));
	cpus_parse_list("", online, 8);
	cpus_parse_list("x", online, 8);
	cpus_parse_list("2-", online, 8);
	CHECK(!online[0]);
}

static void query(struct process *process, void *data)
{
	process->queried = true;
	(*(unsigned int *)data)++;
}

static void rescan(void *data)
{
	(*(unsigned int *)data) += 100;
}

/* Handles records as in a ring, with the handler that the session uses. */
static void test_events(void)
{
	struct stage stage;
	struct waits waits;
	struct bytes bytes = { .length = 0 };
	struct cpu cpu = { .n_sources = 1, .source_ids = { 7 } };
	const struct cpus cpus = { 0 };
	unsigned int asked = 0;
	struct events events = {
		.cpus = &cpus, .n_sources = 1, .query = query, .rescan = rescan, .data = &asked
	};
	struct ring_merge_input input = { .owner = &cpu, .side_band = true };
	const uint64_t ips[] = { USER, 0x400010 };
	uint64_t lost, missed;
	size_t at, end;

	stage_init(&stage);
	events.tasks = &stage.parts.tasks;
	events.images = &stage.parts.images;
	events.kernel = &stage.parts.kernel;
	events.samples = &stage.parts.samples;
	events.losses = &stage.parts.losses;
	events.sources[0] = stage.source;
	waits_init(&waits, &stage.parts.samples);
	events.waits = &waits;
	put_comm(&bytes, 10, "renamed", false, 2000);
	put_sample(&bytes, PERF_RECORD_MISC_USER, 10, 10, 3000, ips, 2);
	put_sample(&bytes, PERF_RECORD_MISC_USER, 77, 78, 3100, ips, 2);
	put_sample(&bytes, PERF_RECORD_MISC_KERNEL, -1, -1, 3200, ips, 2);
	at = record_begin(&bytes, PERF_RECORD_LOST, 0);
	put_u64(&bytes, 7);
	put_u64(&bytes, 12);
	record_end(&bytes, at, 0, 0, 4000);
	at = record_begin(&bytes, PERF_RECORD_COMM, 0);
	record_end(&bytes, at, 0, 0, 4100); /* too short to have a name */
	for (end = bytes.length, at = 0; at < end; at += input.record->size) {
		input.record = (const void *)(bytes.data + at);
		input.side_band = input.record->type != PERF_RECORD_SAMPLE;
		events_record(&input, false, &events);
	}
	CHECK_STR(stage.thread->comm, "renamed");
	CHECK_INT(events.n_samples, 3);
	CHECK(tasks_thread(&stage.parts.tasks, 78) != NULL);
	CHECK_INT(asked, 102);
	loss_sum(&stage.parts.losses, &lost, &missed);
	CHECK_INT(lost, 13);
	CHECK_INT(cpu.reported_lost[1], 12);
	CHECK_INT(waits.lost_ns, 4000);
	input.side_band = false;
	output_tick(&stage.parts.output, 5000);
	events_corrupt(&input, &events);
	CHECK_INT(waits.lost_ns, 4000);
	input.side_band = true;
	events_corrupt(&input, &events);
	CHECK_INT(waits.lost_ns, 5000);
	waits_done(&waits);
	parts_finish(&stage.parts);
	CHECK_INT(rows_of(&stage.parts, PROF_TABLE_SAMPLE), 3);
	stage_done(&stage);
}

/* A LOST record also counts records that are not samples: descriptions of interpreted functions,
 * and copies of stacks. A session without samples has the copies in the first ring, else they are
 * in a ring of their own. */
static void test_lost_copies(void)
{
	const uint64_t first[] = { 0, 0, 5 }, second[] = { 0, 0, 9 };
	struct cpu cpu = { .open = true, .n_sources = 2, .copies = 2, .sample_id = 1 };
	int fds[2];

	REQUIRE(pipe(fds) == 0);
	cpu.output_fds[1] = fds[0];
	REQUIRE(write(fds[1], first, sizeof(first)) == sizeof(first));
	CHECK_INT(cpu_lost_samples(&cpu, &cpu.samples, 8), 3);
	REQUIRE(write(fds[1], second, sizeof(second)) == sizeof(second));
	CHECK_INT(cpu_lost_samples(&cpu, &cpu.samples, 3), 0);
	cpu.sample_id = 0;
	CHECK_INT(cpu_lost_samples(&cpu, &cpu.samples, 3), 3);
	CHECK_INT(cpu_lost_samples(&cpu, &cpu.copied, 3), 0);
	cpu.copies = 1;
	CHECK_INT(cpu_lost_samples(&cpu, &cpu.samples, 3), 0);
	close(fds[0]);
	close(fds[1]);
}

/* A loss of the side band is known before the LOST record, which comes with a later record. */
static void test_lost_side_band(void)
{
	static const struct {
		uint64_t lost;
		bool is_new;
	} steps[] = { { 0, false }, { 5, true }, { 5, false }, { 6, true } };
	struct cpu cpu = { .open = true, .wakeup_fd = -1, .sleep_fd = -1, .waking_fd = -1 };
	int fds[2];

	REQUIRE(pipe(fds) == 0);
	cpu.side_band_fd = fds[0];
	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		write_lost(fds[1], steps[i].lost);
		CHECK_INT(cpu_has_lost(&cpu), steps[i].is_new);
	}
	close(fds[0]);
	close(fds[1]);
}

/* At most the stacks of 500 sleeps and of 500 wakers are copied per second. The stacks of the first
 * thousand sleeps are all copied, unless sleeps are very frequent. */
static void test_pace(void)
{
	static const uint64_t rates[] = { 500, 5000, 20000, 100000, 300000 };

	for (size_t i = 0; i < ARRAY_SIZE(rates); i++) {
		struct cpu cpu = { .open = true, .n_sources = 2, .copies = 1 };
		uint64_t copies[2] = { 0 };

		cpu.source_fds[0] = cpu.source_fds[1] = -1; /* setting their periods fails */
		for (uint64_t round = 0; round < 10000; round++) {
			cpu.n_sleeps = rates[i] * round / 1000;
			cpu.n_wakings = cpu.n_sleeps / 2;
			cpu_pace_copies(&cpu, 1000000 * round);
			if (rates[i] == 5000 && round < 200)
				CHECK(cpu.copy_periods[0] <= 1);
			for (int k = 0; k < 2 && round >= 1000; k++)
				copies[k] += rates[i] / (k + 1) * 1000 / cpu.copy_periods[k];
		}
		for (int k = 0; k < 2; k++) {
			uint64_t a_second = copies[k] / 9000000;

			CHECK(a_second <= 500);
			CHECK(a_second >= MIN_OF(rates[i] / (k + 1), UINT64_C(200)));
		}
	}
}

/* Appends a wake-up, as in the side band's ring: a sample of a thread that wakes `woken`. */
static void put_wakeup(struct bytes *bytes, int32_t woken, uint64_t time_ns)
{
	size_t at = record_begin(bytes, PERF_RECORD_SAMPLE, PERF_RECORD_MISC_KERNEL), raw_at;

	put_u64(bytes, 1);
	put_u64(bytes, 0);
	put_u64(bytes, 0);
	put_u64(bytes, time_ns);
	put_u64(bytes, 0);
	raw_at = bytes->length;
	for (int i = 0; i < 5; i++)
		put_u64(bytes, 0);
	store_le32(bytes->data + raw_at, 36);
	store_le32(bytes->data + raw_at + 4 + ENGINE_WAKEUP_TID_OFFSET, (uint32_t)woken);
	record_close(bytes, at);
}

static void put_switch(struct bytes *bytes, int32_t from, int32_t to, uint64_t time_ns)
{
	size_t at = record_begin(bytes, PERF_RECORD_SWITCH_CPU_WIDE, PERF_RECORD_MISC_SWITCH_OUT);

	put_u32(bytes, (uint32_t)to);
	put_u32(bytes, (uint32_t)to);
	record_end(bytes, at, from, from, time_ns);
}

/* A waiting thread is runnable from its wake-up on. For a running or runnable thread, a wake-up has
 * no effect. */
static void test_wakeups(void)
{
	static const uint64_t rows[][2] = { { 2000, PROF_SWITCH_WAIT },
					    { 2500, PROF_SWITCH_RUNNABLE },
					    { 4000, PROF_SWITCH_WAIT } };
	struct stage stage;
	struct bytes bytes = { .length = 0 };
	struct cpu cpu = { .number = 0 };
	const struct cpus cpus = { 0 };
	struct events events = { .cpus = &cpus, .begin_ns = 1 };
	struct ring_merge_input input = { .owner = &cpu, .side_band = true };
	size_t at;

	stage_init(&stage);
	switches_init(&cpu.switches, 1000);
	events.tasks = &stage.parts.tasks;
	events.samples = &stage.parts.samples;
	events.losses = &stage.parts.losses;
	put_wakeup(&bytes, 10, 1500);
	put_switch(&bytes, 10, 0, 2000);
	put_wakeup(&bytes, 10, 2500);
	put_wakeup(&bytes, 10, 2600);
	put_wakeup(&bytes, 99, 2700);
	put_switch(&bytes, 0, 10, 3000);
	put_wakeup(&bytes, 10, 3500);
	put_switch(&bytes, 10, 0, 4000);
	for (at = 0; at < bytes.length; at += input.record->size) {
		input.record = (const void *)(bytes.data + at);
		events_record(&input, false, &events);
	}
	parts_finish(&stage.parts);
	REQUIRE(rows_of(&stage.parts, PROF_TABLE_SWITCH) == ARRAY_SIZE(rows));
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		CHECK_INT(number_of(&stage.parts, PROF_TABLE_SWITCH, PROF_SWITCH_TIME, i),
			  rows[i][0]);
		CHECK_INT(number_of(&stage.parts, PROF_TABLE_SWITCH, PROF_SWITCH_STATE, i),
			  rows[i][1]);
	}
	switches_done(&cpu.switches);
	stage_done(&stage);
}

/* At the end of a session, the deadline for samples also limits copies of stacks and switches. */
static void test_too_late(void)
{
	const uint64_t ips[] = { USER, 0x400010 };
	struct stage stage;
	struct waits waits;
	struct bytes bytes = { .length = 0 };
	struct cpu cpu = { .n_sources = 1, .source_ids = { 7 } };
	const struct cpus cpus = { 0 };
	struct ring_merge_input input = { .owner = &cpu };
	uint64_t lost, missed;

	stage_init(&stage);
	stage.source->message.off_cpu = 1;
	waits_init(&waits, &stage.parts.samples);
	for (int side_band = 0; side_band < 2; side_band++) {
		struct events events = { .cpus = &cpus,
					 .tasks = &stage.parts.tasks,
					 .samples = &stage.parts.samples,
					 .waits = &waits,
					 .losses = &stage.parts.losses,
					 .sources = { stage.source },
					 .n_sources = 1,
					 .until_ns = 1 };

		bytes.length = 0;
		if (side_band)
			put_switch(&bytes, 10, 0, 2000);
		else
			put_sample(&bytes, PERF_RECORD_MISC_USER, 10, 10, 2000, ips, 2);
		input.record = (const void *)bytes.data;
		input.side_band = side_band;
		events_record(&input, false, &events);
		CHECK(events.too_late);
	}
	CHECK_INT(waits.begun.length, 0);
	CHECK_INT(waits.lost_ns, 2000);
	loss_sum(&stage.parts.losses, &lost, &missed);
	CHECK_INT(lost, 1);
	waits_done(&waits);
	/* otherwise the writer may still run, and is not freed */
	parts_finish(&stage.parts);
	stage_done(&stage);
}

/* A CPU that comes online again has new events, so its copy_periods start at the initial value. */
static void test_reopened(void)
{
	const struct message_cpu message = { .cpu = 1, .side_band_pages = 1 };
	struct cpus cpus;
	struct cpu *cpu;
	int fd;

	cpus_init(&cpus, -1, false);
	for (int i = 0; i < 2; i++) {
		fd = memfd_create("ring", MFD_CLOEXEC);
		REQUIRE(ftruncate(fd, 2 * sysconf(_SC_PAGESIZE)) == 0);
		cpu = cpus_open(&cpus, &message, &fd, 1, NULL);
		REQUIRE(cpu);
		CHECK_INT(cpu->copy_periods[0], 0);
		cpu->copy_periods[0] = 29;
	}
	cpus_done(&cpus);
}

static void put_event(struct bytes *bytes, struct events *events, struct cpu *cpu)
{
	const struct perf_event_header *record = (const void *)bytes->data;
	const struct ring_merge_input input = { .owner = cpu,
						.side_band = record->type != PERF_RECORD_SAMPLE,
						.record = record };

	events_record(&input, false, events);
	bytes->length = 0;
}

static void put_by(struct bytes *bytes, struct events *events, struct cpu *cpu, uint64_t id,
		   int32_t tid, uint64_t time_ns)
{
	const uint64_t ips[] = { USER, 0x400010 };

	put_sample(bytes, PERF_RECORD_MISC_USER, 10, tid, time_ns, ips, 2);
	memcpy(bytes->data + sizeof(struct perf_event_header), &id, sizeof(id));
	put_event(bytes, events, cpu);
}

static void fork_by(struct bytes *bytes, struct events *events, struct cpu *cpu, uint64_t id,
		    int32_t tid, int32_t child, uint64_t time_ns)
{
	size_t at = record_begin(bytes, PERF_RECORD_FORK, 0);

	put_u32(bytes, 10);
	put_u32(bytes, 10);
	put_u32(bytes, child);
	put_u32(bytes, tid);
	put_u64(bytes, time_ns);
	record_end(bytes, at, 10, tid, time_ns);
	memcpy(bytes->data + bytes->length - sizeof(id), &id, sizeof(id));
	put_event(bytes, events, cpu);
}

/* Thread 10 cloned thread 11 while events of thread 10 (70, 71; rank 1) were being opened. Thread
 * 11 has these and its own events (80, 81; rank 2). */
static void test_ranks(void)
{
	struct task_event own[] = {
		{ .message = { .id = 70, .rank = 1, .position = 1 } },
		{ .message = { .id = 71, .rank = 1 } },
		{ .message = { .id = 80, .rank = 2, .position = 1 } },
		{ .message = { .id = 81, .rank = 2 } },
	};
	struct cpus cpus = { .events = g_hash_table_new(g_int64_hash, g_int64_equal) };
	struct cpu cpu = { .n_sources = 1, .source_ids = { 7 } };
	unsigned int asked = 0;
	struct events events = {
		.cpus = &cpus, .n_sources = 1, .query = query, .rescan = rescan, .data = &asked
	};
	struct bytes bytes = { .length = 0 };
	const int32_t target = 10;
	struct thread *late;
	struct stage stage;

	stage_init(&stage);
	events.tasks = &stage.parts.tasks;
	events.images = &stage.parts.images;
	events.kernel = &stage.parts.kernel;
	events.samples = &stage.parts.samples;
	events.losses = &stage.parts.losses;
	events.sources[0] = stage.source;
	tasks_filter(events.tasks, &target, 1, true);
	for (size_t i = 0; i < ARRAY_SIZE(own); i++)
		g_hash_table_insert(cpus.events, &own[i].message.id, &own[i]);
	tasks_set_rank(events.tasks, 11, 2);
	tasks_found(events.tasks, 10, 11, 1);
	tasks_found(events.tasks, 10, 12, 1); /* cloned by 11 before the side band was enabled */
	put_by(&bytes, &events, &cpu, 70, 10, 2000);
	put_by(&bytes, &events, &cpu, 70, 11, 2001); /* a duplicate */
	put_by(&bytes, &events, &cpu, 80, 11, 2002);
	put_by(&bytes, &events, &cpu, 99, 11, 2003); /* an unknown event */
	CHECK_INT(events.n_samples, 2);
	put_by(&bytes, &events, &cpu, 80, 12, 2004);
	put_by(&bytes, &events, &cpu, 70, 12, 2005); /* a duplicate */
	CHECK_INT(events.n_samples, 3);
	fork_by(&bytes, &events, &cpu, 71, 11, 13, 3000); /* a duplicate that comes first */
	CHECK(!tasks_thread(events.tasks, 13));
	fork_by(&bytes, &events, &cpu, 81, 11, 13, 3001);
	late = tasks_thread(events.tasks, 13);
	REQUIRE(late);
	fork_by(&bytes, &events, &cpu, 71, 11, 13, 3002);
	CHECK(tasks_thread(events.tasks, 13) == late);
	put_by(&bytes, &events, &cpu, 70, 13, 4000); /* inherited from 11 */
	put_by(&bytes, &events, &cpu, 80, 13, 4001);
	CHECK_INT(events.n_samples, 4);
	CHECK_INT(cpu.sampled_ns, 4 * 1001001);
	g_hash_table_destroy(cpus.events);
	parts_finish(&stage.parts);
	stage_done(&stage);
}

int main(void)
{
	RUN(test_chain);
	RUN(test_arguments);
	RUN(test_cache);
	RUN(test_unknown);
	RUN(test_counts);
	RUN(test_interpreted);
	RUN(test_trampoline);
	RUN(test_refused);
	RUN(test_two_interpreters);
	RUN(test_full);
	RUN(test_generated);
	RUN(test_before);
	RUN(test_jit);
	RUN(test_cgroup);
	RUN(test_regions);
	RUN(test_symbols);
	RUN(test_symbols_of_a_killed_recording);
	RUN(test_ticks);
	RUN(test_ticks_grow);
	RUN(test_list);
	RUN(test_events);
	RUN(test_lost_copies);
	RUN(test_lost_side_band);
	RUN(test_pace);
	RUN(test_wakeups);
	RUN(test_too_late);
	RUN(test_reopened);
	RUN(test_ranks);
	return test_end();
}
