/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of heap-excluded.c and program.c in daemon/engine: which processes are reported to have
 * sent no allocations, and why.
 */
#include "daemon/engine/alloc/heap-excluded.h"
#include "daemon/engine/model/program.h"
#include "tests/unit/engine.h"

#include <elf.h>
#include <fcntl.h>

#define SECOND UINT64_C(1000000000)
#define NEVER UINT64_MAX

struct world {
	struct parts parts;
	struct heap_excluded excluded;
	unsigned int wanted;
};

static void on_want(struct image *image, const struct mapping *mapping, int32_t pid, void *data)
{
	((struct world *)data)->wanted++;
}

/* Process 10 is running, and should send allocations. */
static void world_init(struct world *world)
{
	const int32_t pid = 10;

	*world = (struct world){ 0 };
	parts_init(&world->parts);
	tasks_found(&world->parts.tasks, pid, pid, 500);
	heap_excluded_begin(&world->excluded, &world->parts.tasks, &pid, 1);
	world->excluded.request_image = on_want;
	world->excluded.data = world;
}

static void world_done(struct world *world)
{
	heap_excluded_done(&world->excluded);
	if (!world->parts.reader)
		parts_finish(&world->parts);
	parts_done(&world->parts);
}

static void start(struct world *world, int32_t pid, int32_t parent, uint64_t time_ns)
{
	const struct task_ids task = { .pid = pid, .tid = pid, .ppid = parent, .ptid = parent };

	tasks_fork(&world->parts.tasks, &task, time_ns);
}

static void leave(struct world *world, int32_t pid, uint64_t time_ns)
{
	const struct task_ids task = { .pid = pid, .tid = pid };

	tasks_exit(&world->parts.tasks, &task, time_ns);
}

/* Executes a program, which maps a file with this name; NULL: no file. */
static struct process *execute(struct world *world, int32_t pid, const char *name, uint64_t time_ns)
{
	struct process *process = tasks_exec(&world->parts.tasks, pid, "program", time_ns);
	const struct image_key key = { .path = name,
				       .path_bytes = name ? strlen(name) : 0,
				       .inode = 1 };
	struct mapping mapping = { .start = 0x1000, .end = 0x2000, .time_ns = time_ns };

	if (!name)
		return process;
	mapping.image = process->program = images_of_mapping(&world->parts.images, &key);
	maps_insert(&process->maps, &mapping);
	heap_excluded_program(&world->excluded, process, &mapping);
	return process;
}

static uint64_t event_of(const struct world *world, size_t row)
{
	return number_of(&world->parts, PROF_TABLE_HEAP, PROF_HEAP_EVENT, row);
}

static uint64_t time_of(const struct world *world, size_t row)
{
	return number_of(&world->parts, PROF_TABLE_HEAP, PROF_HEAP_TIME, row);
}

static void test_once(void)
{
	struct process *process;
	struct world world;

	world_init(&world);
	start(&world, 11, 10, 1000);
	execute(&world, 11, "/bin/some", 1100)->program->program = IMAGE_PROGRAM_STATIC;
	leave(&world, 11, 1200);
	start(&world, 12, 10, 1300);
	process = execute(&world, 12, "/bin/dynamic", 1400);
	process->program->program = IMAGE_PROGRAM_DYNAMIC;
	leave(&world, 12, 1500);
	/* a registered process, and one that registers while the engine waits for it */
	start(&world, 13, 10, 1600);
	execute(&world, 13, "/bin/dynamic", 1700)->has_heap = true;
	leave(&world, 13, 1800);
	start(&world, 14, 10, 1900);
	process = execute(&world, 14, "/bin/dynamic", 2000);
	leave(&world, 14, 2100);
	process->has_heap = true;
	/* not a target */
	tasks_found(&world.parts.tasks, 99, 99, 500);
	leave(&world, 99, 2200);
	for (int i = 0; i < 3; i++)
		heap_excluded_run(&world.excluded, 3 * SECOND, NEVER);
	heap_excluded_finish(&world.excluded, 4 * SECOND);
	parts_finish(&world.parts);
	CHECK_INT(world.wanted, 2);
	CHECK_INT(rows_of(&world.parts, PROF_TABLE_HEAP), 3);
	CHECK_INT(event_of(&world, 0), PROF_HEAP_STATIC);
	CHECK_INT(time_of(&world, 0), 1200);
	CHECK_INT(event_of(&world, 1), PROF_HEAP_ENVIRONMENT);
	CHECK_INT(event_of(&world, 2), PROF_HEAP_UNREGISTERED); /* 10, which is still running */
	CHECK_INT(time_of(&world, 2), 4 * SECOND);
	CHECK_INT(world.excluded.counts[ENGINE_EXCLUDED_ENVIRONMENT], 1);
	CHECK_INT(world.excluded.counts[ENGINE_EXCLUDED_UNREGISTERED], 1);
	world_done(&world);
}

/* A process that did nothing between fork and exec has nothing to record. */
static void test_fork_and_exec(void)
{
	struct world world;

	world_init(&world);
	start(&world, 11, 10, 1000);
	execute(&world, 11, "/bin/a", 1100)->has_heap = true;
	execute(&world, 11, "/bin/b", 1200)->program->program = IMAGE_PROGRAM_OTHER_ARCH;
	execute(&world, 11, "/bin/a", 1300)->has_heap = true;
	tasks_process(&world.parts.tasks, 10)->has_heap = true;
	heap_excluded_finish(&world.excluded, SECOND);
	parts_finish(&world.parts);
	CHECK_INT(rows_of(&world.parts, PROF_TABLE_HEAP), 1);
	CHECK_INT(event_of(&world, 0), PROF_HEAP_OTHER_ARCH);
	world_done(&world);
}

/* A child of a registered process would have registered if it had allocated, unless its
 * registration was refused. */
static void test_forked(void)
{
	struct world world;

	world_init(&world);
	tasks_process(&world.parts.tasks, 10)->has_heap = true;
	start(&world, 11, 10, 1000);
	start(&world, 12, 11, 1100);
	leave(&world, 12, 1200);
	start(&world, 13, 11, 1300);
	tasks_process(&world.parts.tasks, 13)->refused_heap = true;
	leave(&world, 13, 1400);
	start(&world, 14, 10, 1500);
	execute(&world, 14, "/bin/some", 1600)->program->program = IMAGE_PROGRAM_STATIC;
	start(&world, 15, 14, 1700);
	heap_excluded_finish(&world.excluded, SECOND);
	parts_finish(&world.parts);
	REQUIRE(CHECK_INT(rows_of(&world.parts, PROF_TABLE_HEAP), 3));
	CHECK_INT(time_of(&world, 0), 1400);
	CHECK_INT(event_of(&world, 0), PROF_HEAP_UNREGISTERED);
	CHECK_INT(event_of(&world, 1), PROF_HEAP_STATIC);
	CHECK_INT(event_of(&world, 2), PROF_HEAP_STATIC);
	world_done(&world);
}

static void test_rights(void)
{
	static const struct {
		uint32_t owner, rights, uid;
		uint64_t event;
	} cases[] = {
		{ 0, MESSAGE_IMAGE_SETUID, 1000, PROF_HEAP_SETUID },
		{ 1000, MESSAGE_IMAGE_SETUID, 0, PROF_HEAP_SETUID },
		{ 1000, MESSAGE_IMAGE_SETUID, 1000, PROF_HEAP_ENVIRONMENT },
		{ 0, MESSAGE_IMAGE_SETGID, 0, PROF_HEAP_SETUID },
		{ 0, MESSAGE_IMAGE_CAPABILITIES, 1000, PROF_HEAP_SETUID },
		{ 0, MESSAGE_IMAGE_CAPABILITIES, 0, PROF_HEAP_ENVIRONMENT },
		{ 0, 0, 1000, PROF_HEAP_ENVIRONMENT },
	};
	struct world world;

	world_init(&world);
	tasks_process(&world.parts.tasks, 10)->has_heap = true;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		g_autofree char *name = g_strdup_printf("/bin/%zu", i);
		const struct message_image answer = { .owner = cases[i].owner,
						      .rights = cases[i].rights };
		int32_t pid = 20 + (int32_t)i;
		struct process *process;

		start(&world, pid, 10, 1000 + 100 * i);
		process = execute(&world, pid, name, 1010 + 100 * i);
		process->uid = cases[i].uid;
		process->program->program = IMAGE_PROGRAM_DYNAMIC;
		image_opened(process->program, &answer);
		leave(&world, pid, 1020 + 100 * i);
	}
	/* a process without a file of its program, as if the kernel had removed the process's
	 * events at exec */
	start(&world, 40, 10, 5000);
	execute(&world, 40, NULL, 5010);
	leave(&world, 40, 5020);
	heap_excluded_finish(&world.excluded, SECOND);
	parts_finish(&world.parts);
	CHECK_INT(rows_of(&world.parts, PROF_TABLE_HEAP), ARRAY_SIZE(cases) + 1);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		if (!CHECK_INT(event_of(&world, i), cases[i].event))
			printf("# case %zu\n", i);
	CHECK_INT(event_of(&world, ARRAY_SIZE(cases)), PROF_HEAP_SETUID);
	world_done(&world);
}

/* The library encodes the reason why it does not record in the length of a mapping, which is
 * shorter than the mapping of its code. */
static void test_told(void)
{
	static const uint64_t events[] = {
		PROF_HEAP_NEVER_ALLOCATED, PROF_HEAP_NO_DESCRIPTORS, PROF_HEAP_NO_MEMORY,
		PROF_HEAP_SANITIZER,       PROF_HEAP_ENVIRONMENT,    PROF_HEAP_UNREGISTERED,
		PROF_HEAP_NEVER_ALLOCATED,
	};
	const struct image_key key = { .path = "/lib/libprofpreload-memory.so",
				       .path_bytes = strlen("/lib/libprofpreload-memory.so"),
				       .inode = 2 };
	struct world world;

	world_init(&world);
	tasks_process(&world.parts.tasks, 10)->has_heap = true;
	for (size_t i = 0; i < ARRAY_SIZE(events); i++) {
		int32_t pid = 20 + (int32_t)i;
		struct mapping code = { .start = 0x100000, .end = 0x140000 };
		struct mapping told = { .start = 0x150000, .end = 0x150000 + i * 4096 };
		struct process *process;

		start(&world, pid, 10, 1000 + 100 * i);
		process = execute(&world, pid, "/bin/dynamic", 1010 + 100 * i);
		process->program->program = IMAGE_PROGRAM_DYNAMIC;
		code.image = told.image = images_of_mapping(&world.parts.images, &key);
		maps_insert(&process->maps, &code);
		if (i > 0)
			maps_insert(&process->maps, &told);
	}
	heap_excluded_finish(&world.excluded, SECOND);
	parts_finish(&world.parts);
	REQUIRE(CHECK_INT(rows_of(&world.parts, PROF_TABLE_HEAP), ARRAY_SIZE(events)));
	for (size_t i = 0; i < ARRAY_SIZE(events); i++)
		CHECK_INT(event_of(&world, i), events[i]);
	world_done(&world);
}

/* A row waits until the collectors' rows up to the end of its process are written. */
static void test_order(void)
{
	struct world world;

	world_init(&world);
	start(&world, 11, 10, 1000);
	execute(&world, 11, NULL, 1100);
	leave(&world, 11, 1200);
	heap_excluded_run(&world.excluded, 1300, NEVER);
	heap_excluded_run(&world.excluded, 9 * SECOND, 1199);
	CHECK_INT(g_queue_get_length(&world.excluded.ended), 1);
	heap_excluded_run(&world.excluded, 9 * SECOND, 1200);
	CHECK_INT(g_queue_get_length(&world.excluded.ended), 0);
	world_done(&world);
}

static void test_silence(void)
{
	struct world world;

	world_init(&world);
	start(&world, 11, 10, 1000);
	execute(&world, 11, "/bin/some", 1100);
	leave(&world, 11, 1200);
	CHECK(heap_excluded_waits(&world.excluded));
	heap_excluded_run(&world.excluded, 2 * SECOND, NEVER);
	CHECK_INT(g_queue_get_length(&world.excluded.ended), 1);
	heap_excluded_run(&world.excluded, 5 * SECOND, NEVER);
	CHECK_INT(g_queue_get_length(&world.excluded.ended), 0);
	CHECK(!heap_excluded_waits(&world.excluded));
	CHECK_INT(world.excluded.counts[ENGINE_EXCLUDED_UNREGISTERED], 1);
	world_done(&world);
}

static enum image_program program_of_bytes(const void *bytes, size_t n)
{
	CLEANUP_CLOSE int fd = memfd_create("program", MFD_CLOEXEC);

	return write(fd, bytes, n) == (ssize_t)n ? program_read(fd) : IMAGE_PROGRAM_UNKNOWN;
}

static void test_programs(void)
{
	struct {
		Elf64_Ehdr header;
		Elf64_Phdr segments[2];
		char linker[2000];
	} file;
	CLEANUP_CLOSE int self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

	CHECK_INT(program_read(self), IMAGE_PROGRAM_DYNAMIC);
	CHECK_INT(program_of_bytes("", 0), IMAGE_PROGRAM_NONE);
	CHECK_INT(program_of_bytes("#!/bin/sh\n", 10), IMAGE_PROGRAM_NONE);
	memset(&file, 0, sizeof(file));
	REQUIRE(pread(self, &file.header, sizeof(file.header), 0) == sizeof(file.header));
	file.header.e_phoff = sizeof(file.header);
	file.header.e_phnum = 2;
	CHECK_INT(program_of_bytes(&file, sizeof(file)), IMAGE_PROGRAM_STATIC);
	file.segments[1] = (Elf64_Phdr){ .p_type = PT_INTERP,
					 .p_offset = offsetof(typeof(file), linker),
					 .p_filesz = 40 };
	strcpy(file.linker, "/lib64/ld-linux-x86-64.so.2");
	CHECK_INT(program_of_bytes(&file, sizeof(file)), IMAGE_PROGRAM_DYNAMIC);
	strcpy(file.linker, "/lib/ld64.so.2");
	CHECK_INT(program_of_bytes(&file, sizeof(file)), IMAGE_PROGRAM_DYNAMIC);
	strcpy(file.linker, "/ld-linux/ld-musl-x86_64.so.1");
	CHECK_INT(program_of_bytes(&file, sizeof(file)), IMAGE_PROGRAM_OTHER_LIBC);
	file.segments[1].p_filesz = sizeof(file.linker);
	CHECK_INT(program_of_bytes(&file, sizeof(file)), IMAGE_PROGRAM_OTHER_LIBC);
	CHECK_INT(program_of_bytes(&file, sizeof(file.header) + sizeof(file.segments[0])),
		  IMAGE_PROGRAM_NONE);
	file.header.e_phoff = UINT64_MAX;
	CHECK_INT(program_of_bytes(&file, sizeof(file)), IMAGE_PROGRAM_NONE);
	file.header.e_phoff = sizeof(file.header);
	file.header.e_phnum = UINT16_MAX;
	CHECK_INT(program_of_bytes(&file, sizeof(file)), IMAGE_PROGRAM_NONE);
	file.header.e_machine = EM_386;
	CHECK_INT(program_of_bytes(&file, sizeof(file)), IMAGE_PROGRAM_OTHER_ARCH);
	REQUIRE(pread(self, &file.header, sizeof(file.header), 0) == sizeof(file.header));
	file.header.e_ident[EI_CLASS] = ELFCLASS32;
	CHECK_INT(program_of_bytes(&file, sizeof(file)), IMAGE_PROGRAM_OTHER_ARCH);
}

int main(void)
{
	RUN(test_once);
	RUN(test_fork_and_exec);
	RUN(test_forked);
	RUN(test_rights);
	RUN(test_told);
	RUN(test_order);
	RUN(test_silence);
	RUN(test_programs);
	return test_end();
}
