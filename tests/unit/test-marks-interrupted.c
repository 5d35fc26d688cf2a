/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of marks in the shipped libprofcollector. A thread is stepped through its marks, from the
 * first one on; after each instruction, memory is checked as if the process had died there. Marks
 * have new and known names. They are written to a ring or to a larger one, or are lost.
 */
#include "config.h"
#include "libcollector/prof-collector.h"

#include "arch/packet.h"
#include "libcollector/control.h"
#include "libcollector/ring/ring-reader.h"
#include "tests/unit/test.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define N_MARKS 98u
/* Marks with numbers between these two exercise no new code, so the test does not check them. The
 * first ring gets full before these marks, the second one after them. */
#define QUIET_FROM 20u
#define QUIET_TO 86u
#define N_RINGS 2u
#define N_IDS 256u
#define NAME_BYTES 201u /* so long that the marks do not all fit into both rings */

static const struct ring_arena_sizes sizes = {
	{ { 4096, 1, RING_DROP }, { 16384, 1, RING_DROP } },
};

/* Shared by the test and the process that it steps through. */
struct stage {
	volatile int in_mark, is_quiet;
	volatile uint64_t started, recorded;
};

static struct stage *stage;
static char names[N_MARKS][NAME_BYTES];
static struct ring_arena_memory memory;
static _Alignas(8) uint8_t buffer[1 << 20];
static uint8_t *copy;

/* Makes the names. Every third mark has the name of an earlier mark. */
static void make_names(void)
{
	for (unsigned i = 0; i < N_MARKS; i++) {
		snprintf(names[i], NAME_BYTES, "%u ", i % 3 == 2 ? i - 1 : i);
		memset(names[i] + strlen(names[i]), 'x', NAME_BYTES - 1 - strlen(names[i]));
	}
}

/* ---- The process ----------------------------------------------------------------------------- */

static void run(const char *address)
{
	if (prof_collector_connect(address) != 0 || ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
		_exit(9);
	raise(SIGSTOP);
	for (unsigned i = 0; i < N_MARKS; i++) {
		const struct prof_arg arg = { .name = "n", .kind = PROF_ARG_U64, .value.u64 = i };

		if (i == QUIET_FROM)
			stage->is_quiet = 1;
		if (i == QUIET_TO) {
			stage->is_quiet = 0;
			raise(SIGTRAP);
		}
		stage->started++;
		stage->in_mark = 1;
		stage->recorded += prof_mark_instant("group", names[i], &arg, 1);
		stage->in_mark = 0;
	}
	_exit(0);
}

static int listen_here(char *address, size_t n)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	int bytes = snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1,
			     "prof-test-marks-interrupted-%d", (int)getpid());

	snprintf(address, n, "unix-abstract:%s", name.sun_path + 1);
	return bind(fd, (struct sockaddr *)&name,
		    (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)bytes)) == 0 &&
			       listen(fd, 1) == 0
		       ? fd
		       : -1;
}

/* Returns the connection of the process; -1: it did not connect. */
static int let_in(int listener)
{
	struct control_answer answer = { .magic = CONTROL_ANSWER_MAGIC,
					 .version = CONTROL_VERSION,
					 .bytes = CONTROL_BYTES,
					 .session = 1 };
	const struct iovec part = { &answer, sizeof(answer) };
	int connection = accept(listener, NULL, NULL), fd = -1;
	uint8_t hello[CONTROL_BYTES];

	if (!CHECK_INT(recv(connection, hello, sizeof(hello), 0), sizeof(hello)) ||
	    !CHECK_INT(ring_arena_make(&sizes, &memory, &fd), 0))
		return -1;
	CHECK_INT(packet_send(connection, &part, 1, fd, 0), sizeof(answer));
	close(fd);
	return connection;
}

/* Starts the process and stops it before its first mark. */
static pid_t start(int *ret_connection)
{
	char address[sizeof(((struct sockaddr_un *)0)->sun_path) + sizeof("unix-abstract:")];
	int listener = listen_here(address, sizeof(address)), status;
	pid_t pid;

	stage = mmap(NULL, sizeof(*stage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	if (!CHECK(listener >= 0 && stage != MAP_FAILED))
		return -1;
	fflush(stdout);
	pid = fork();
	if (pid == 0)
		run(address);
	*ret_connection = let_in(listener);
	close(listener);
	return *ret_connection >= 0 && CHECK(waitpid(pid, &status, 0) == pid) &&
			       CHECK(WIFSTOPPED(status))
		       ? pid
		       : -1;
}

/* Steps one instruction, or over all quiet marks. Returns false if the process has ended. */
static bool step(pid_t pid)
{
	int status;

	if (!CHECK(ptrace(stage->is_quiet ? PTRACE_CONT : PTRACE_SINGLESTEP, pid, NULL, NULL) ==
		   0) ||
	    !CHECK(waitpid(pid, &status, 0) == pid))
		return false;
	if (WIFEXITED(status))
		CHECK_INT(WEXITSTATUS(status), 0);
	return WIFSTOPPED(status) && CHECK_INT(WSTOPSIG(status), SIGTRAP);
}

/* ---- Its death ------------------------------------------------------------------------------- */

struct found {
	uint64_t marks, unnamed, lost, unpublished;
};

/* Checks that marks are complete, in order, and have their original names. */
static void check_ring(struct ring_batch *batch, uint64_t *next, uint64_t *marks, uint64_t *unnamed)
{
	const char *texts[N_IDS] = { NULL };
	struct ring_record record;

	while (ring_batch_next(batch, &record)) {
		const struct ring_string *string = record.payload;
		const struct ring_mark *mark = record.payload;
		const struct ring_argument *argument = (const void *)(mark + 1);

		if (record.type == RING_STRING && CHECK(string->id < N_IDS))
			texts[string->id] = (const char *)(string + 1);
		if (record.type != RING_MARK)
			continue;
		CHECK(argument->value >= *next && argument->value < N_MARKS);
		*next = argument->value + 1;
		++*marks;
		/* name 0: there was room for the mark, but not for its name */
		*unnamed += mark->name == 0;
		if (mark->name == 0 || !CHECK(mark->group < N_IDS && texts[mark->group] &&
					      mark->name < N_IDS && texts[mark->name]))
			continue;
		CHECK(memcmp(texts[mark->group], "group", 5) == 0);
		CHECK(memcmp(texts[mark->name], names[argument->value % N_MARKS], NAME_BYTES - 1) ==
		      0);
	}
}

/* Checks the current state of both rings. Records in the smaller ring are older. */
static struct found look(void)
{
	struct found found = { 0 };
	struct ring_reader reader;
	struct ring_batch batch;
	uint64_t next = 0;

	memcpy(copy, memory.base, memory.bytes);
	for (uint32_t i = 0; i < N_RINGS; i++) {
		const struct ring_totals *totals = &reader.totals;
		uint64_t lost = 0;

		ring_reader_init(&reader, &memory, i);
		reader.shared = (void *)(copy + memory.places[i].header_offset);
		reader.data = copy + memory.places[i].data_offset;
		/* Reset this, so that a check does not depend on earlier ones. */
		reader.grant_ns = 0;
		ring_reader_drain(&reader, RING_DRAIN_DEAD, buffer, sizeof(buffer), &batch);
		CHECK_INT(reader.fault, RING_FAULT_NONE);
		check_ring(&batch, &next, &found.marks, &found.unnamed);
		for (size_t k = 0; k < RING_N_LOST; k++)
			lost += totals->lost[k];
		CHECK_INT(totals->attempted,
			  totals->records + totals->abandoned + totals->unpublished + lost);
		CHECK_INT(totals->abandoned, 0);
		found.lost += lost;
		found.unpublished += totals->unpublished;
	}
	return found;
}

static void test_death(void)
{
	int before = atomic_load(&test_failures), connection = -1;
	uint64_t n = 0;
	struct found found = { 0 };
	pid_t pid;

	make_names();
	pid = start(&connection);
	REQUIRE(pid > 0);
	copy = mmap(NULL, memory.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	REQUIRE(copy != MAP_FAILED);
	while (step(pid) && atomic_load(&test_failures) == before) {
		if (!stage->in_mark)
			continue;
		n++;
		found = look();
		CHECK(found.marks >= stage->recorded && found.marks <= stage->recorded + 1);
		/* at most the current mark and one name */
		CHECK(found.unpublished <= 2);
	}
	found = look();
	printf("# %" PRIu64 " instructions, %" PRIu64 " marks, %" PRIu64 " lost\n", n, found.marks,
	       found.lost);
	CHECK_INT(stage->started, N_MARKS);
	CHECK_INT(found.marks, stage->recorded);
	CHECK_INT(found.unpublished, 0);
	CHECK(found.marks > QUIET_TO && found.marks < N_MARKS && found.lost > 0);
	CHECK(found.unnamed <= N_MARKS - QUIET_TO && n > 100 * (N_MARKS - QUIET_TO));
	close(connection);
	munmap(copy, memory.bytes);
	munmap(stage, sizeof(*stage));
	ring_arena_memory_done(&memory);
}

int main(void)
{
	RUN(test_death);
	return test_end();
}
