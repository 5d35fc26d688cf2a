/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Fuzz target of what the engine does with a collector's arena, while another thread of the process writes there: from
 * libcollector/ring-reader.c over collector-peer.c to the rows of collector-rows.c.
 *
 * The input is steps: records, with which each ring is filled in turn, and words that the other thread changes there and
 * changes back, over and over, while the ring is drained. One ring is honest, and has to be read as if it were alone.
 */
#include "daemon/engine/collectors.h"
#include "tests/unit/engine.h"

#include <pthread.h>
#include <sched.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <time.h>

#define FILLED_BYTES 4096u
#define MAX_WORDS 16u
#define MAX_RECORD_BYTES 512u
#define HONEST 31u /* of the small rings, the last */
#define HONEST_MARKS 10u
#define DRAINS 3
#define KEPT_INPUTS 64 /* so many go into one capture */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { STEP_RECORD, STEP_DATA, STEP_HEADER, STEP_ARENA, N_STEPS };

struct step {
	uint8_t kind;   /* STEP_*, modulo */
	uint8_t type;   /* of a record */
	uint16_t at;    /* flags of a record; else which word */
	uint32_t n;     /* bytes of a record's payload, which follow */
	uint64_t value; /* of a word; bytes of a record where that is not what they are */
};
_Static_assert(sizeof(struct step) == 16, "step");

struct word {
	uint8_t kind;
	uint16_t at;
	uint64_t value;
};

static struct parts parts;
static unsigned int n_inputs;

static struct {
	struct word words[MAX_WORDS];
	size_t n_words;
	uint8_t records[FILLED_BYTES];
	uint32_t n_bytes, n_records;
} plan;

static struct collectors collectors;
static const struct ring_arena_memory *memory;
static uint32_t changed; /* atomic: the ring that is changed; UINT32_MAX: none any more */
static uint32_t n_turns; /* atomic */

static uint64_t clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void must(bool is_so)
{
	if (!is_so)
		abort();
}

/* ---- The input ---- */

/* Returns how many bytes of the payload there are. */
static size_t plan_record(const struct step *step, const uint8_t *payload, size_t rest)
{
	size_t n = MIN_OF((size_t)(step->n % (MAX_RECORD_BYTES + 1)), rest) / 8 * 8;
	struct ring_record_header header = { .bytes = (uint32_t)(sizeof(header) + n),
					     .type = step->type,
					     .flags = step->at };

	if (plan.n_bytes + header.bytes > sizeof(plan.records))
		return n;
	memcpy(plan.records + plan.n_bytes + sizeof(header), payload, n);
	plan.n_bytes += header.bytes;
	plan.n_records++;
	if (step->value)
		header.bytes = (uint32_t)step->value;
	memcpy(plan.records + plan.n_bytes - sizeof(header) - n, &header, sizeof(header));
	return n;
}

static void make_plan(const uint8_t *data, size_t size)
{
	struct step step;

	memset(&plan, 0, sizeof(plan));
	while (size >= sizeof(step)) {
		size_t n = 0;

		memcpy(&step, data, sizeof(step));
		data += sizeof(step);
		size -= sizeof(step);
		step.kind %= N_STEPS;
		if (step.kind == STEP_RECORD)
			n = plan_record(&step, data, size);
		else if (plan.n_words < MAX_WORDS)
			plan.words[plan.n_words++] =
				(struct word){ step.kind, step.at, step.value };
		data += n;
		size -= n;
	}
}

/* ---- The process's side ---- */

static struct ring_header *header_of(uint32_t ring)
{
	return (void *)(memory->base + memory->places[ring].header_offset);
}

static uint8_t *data_of(uint32_t ring)
{
	return memory->base + memory->places[ring].data_offset;
}

/* Lengths are words of 4 bytes. What is changed in headers stays so: each ring has its own. */
static void change(const struct word *word, uint32_t ring, bool back)
{
	uint32_t at = word->at % (FILLED_BYTES / 4) * 4;
	uint64_t *place;

	if (word->kind == STEP_DATA) {
		__atomic_store_n((uint32_t *)(void *)(data_of(ring) + at),
				 back ? load_le32(plan.records + at) : (uint32_t)word->value,
				 __ATOMIC_RELAXED);
		return;
	}
	place = word->kind == STEP_HEADER ? (void *)header_of(ring) : (void *)memory->base;
	place += word->at % (RING_LINE * 3 / sizeof(*place));
	if (!back)
		__atomic_store_n(place, word->value, __ATOMIC_RELAXED);
}

static void *change_all(void *data)
{
	uint32_t ring;

	while ((ring = __atomic_load_n(&changed, __ATOMIC_ACQUIRE)) != UINT32_MAX) {
		for (int turn = 0; turn < 64; turn++)
			for (size_t i = 0; i < plan.n_words; i++)
				change(&plan.words[i], ring, turn % 2);
		__atomic_fetch_add(&n_turns, 1, __ATOMIC_RELEASE);
	}
	return NULL;
}

static void publish(uint32_t ring, uint32_t n_bytes, uint32_t n_records)
{
	struct ring_header *header = header_of(ring);

	header->tid = (uint32_t)getpid();
	header->attempted = n_records;
	header->state = UINT64_C(1) << 32 | RING_OWNED;
	__atomic_store_n(&header->head, n_bytes, __ATOMIC_RELEASE);
}

static void fill_honestly(uint32_t ring)
{
	for (uint64_t i = 0; i < HONEST_MARKS; i++) {
		struct {
			struct ring_record_header header;
			struct ring_mark mark;
		} record = { { sizeof(record), RING_MARK, 0, clock_ns() }, { .id = i } };

		memcpy(data_of(ring) + i * sizeof(record), &record, sizeof(record));
		publish(ring, (uint32_t)((i + 1) * sizeof(record)), (uint32_t)i + 1);
	}
}

/* ---- The engine's side ---- */

static void on_warning(const char *code, const char *text, void *data)
{
	must(code && text);
}

static void open_parts(void)
{
	const int32_t self = getpid();

	parts_init(&parts);
	tasks_filter(&parts.tasks, &self, 1, true);
	tasks_found(&parts.tasks, self, self, 1);
}

static void step(void)
{
	uint64_t at = clock_ns();

	output_tick(&parts.output, at);
	collectors_drain(&collectors, at);
	collectors_serve(&collectors, at, at);
	collectors_emit(&collectors, at, UINT64_MAX);
	collectors_sleep(&collectors, at, 0);
}

/* Returns the process's end of its connection. */
static int open_peer(void)
{
	const struct message_peer message = { .pid = getpid() };
	int sockets[2];
	const struct peer *peer;

	collectors_init(&collectors, &(struct collectors_options){ .output = &parts.output,
								   .tasks = &parts.tasks,
								   .images = &parts.images,
								   .losses = &parts.losses,
								   .epoll_fd = -1,
								   .session = 7,
								   .warn = on_warning });
	must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) == 0);
	collectors_add_peer(&collectors, &message, sockets[1], pidfd_open(getpid(), 0), clock_ns());
	peer = g_ptr_array_index(collectors.peers, 0);
	collectors_serve(&collectors, clock_ns(), clock_ns());
	must(peer->n_arenas == 1);
	memory = &peer->arenas[0]->memory;
	return sockets[0];
}

/* Else the other thread may only have begun when all is over. */
static void wait_for_change(void)
{
	uint32_t before = __atomic_load_n(&n_turns, __ATOMIC_ACQUIRE);

	while (__atomic_load_n(&n_turns, __ATOMIC_ACQUIRE) - before < 2)
		sched_yield();
}

static void race(void)
{
	pthread_t id;

	fill_honestly(HONEST);
	__atomic_store_n(&changed, 0, __ATOMIC_RELEASE);
	must(pthread_create(&id, NULL, change_all, NULL) == 0);
	wait_for_change();
	for (uint32_t ring = 0; ring < HONEST; ring++) {
		memcpy(data_of(ring), plan.records, plan.n_bytes);
		/* While the one before is drained again, the other thread gets there. */
		__atomic_store_n(&changed, ring, __ATOMIC_RELEASE);
		step();
		publish(ring, plan.n_bytes, plan.n_records);
		for (int i = 0; i < DRAINS; i++)
			step();
	}
	__atomic_store_n(&changed, UINT32_MAX, __ATOMIC_RELEASE);
	pthread_join(id, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct peer *peer;
	const struct ring_reader *honest;
	int fd;

	if (n_inputs == 0)
		open_parts();
	make_plan(data, size);
	fd = open_peer();
	race();
	peer = g_ptr_array_index(collectors.peers, 0);
	honest = &peer->arenas[0]->rings[HONEST].reader;
	must(honest->fault == RING_FAULT_NONE && honest->totals.records == HONEST_MARKS);
	collectors_finish(&collectors, UINT64_MAX);
	must(collectors.queued_bytes == 0);
	must(collectors.rows->text_bytes <= COLLECTOR_PROCESS_TEXT + FILLED_BYTES);
	collectors_done(&collectors);
	close(fd);
	if (++n_inputs < KEPT_INPUTS)
		return 0;
	parts_finish(&parts);
	parts_done(&parts);
	n_inputs = 0;
	return 0;
}
