/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Hostile - registers at PROF_CONTROL like any program, then writes arbitrary data to its arena
 *
 *     hostile LIE MS       writes a valid mark, then a lie (see `acts`); exits after MS
 *     hostile parent-… MS  claims another process as its parent
 *     hostile FLOOD MS     repeats for MS an action that the engine must limit
 *
 * Exit status 0: done; 9: no arena.
 */
#include "libcollector/ring/ring.h"
#include "tests/tools/peer.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>

#define YEAR_2500_NS UINT64_C(16725225600000000000)
#define STRING_BYTES 8000
#define N_FRAMES 100
#define MAX_TRIES 50
#define MARK_BYTES (sizeof(struct ring_record_header) + sizeof(struct ring_mark))

static struct ring_arena *arena;
static struct ring_arena_header *shared;
static struct ring *ring;
static int connection;
static uint64_t end_ns;

static uint64_t clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static bool is_over(void)
{
	return clock_ns() >= end_ns;
}

static void nap(unsigned ms)
{
	nanosleep(&(struct timespec){ ms / 1000, ms % 1000 * 1000000L }, NULL);
}

/* ---- State ---- */

static const struct ring_place *place_of(uint32_t i)
{
	return (const struct ring_place *)(const void *)((const char *)shared +
							 shared->directory_offset) +
	       i;
}

static struct ring_header *header_of(uint32_t i)
{
	return (void *)((char *)shared + place_of(i)->header_offset);
}

static uint8_t *data_of(uint32_t i)
{
	return (uint8_t *)shared + place_of(i)->data_offset;
}

static bool take_arena(void)
{
	void *base;
	size_t bytes;
	int fd = -1;

	if (peer_receive(connection, &fd) != CONTROL_OK || ring_arena_map(fd, &arena) != 0)
		return false;
	close(fd);
	ring_arena_range(arena, &base, &bytes);
	shared = base;
	return true;
}

static bool ask(uint64_t data_bytes, uint32_t n_rings)
{
	const struct control_request request = { .magic = CONTROL_REQUEST_MAGIC,
						 .version = CONTROL_VERSION,
						 .bytes = CONTROL_BYTES,
						 .min_data_bytes = data_bytes,
						 .n_rings = n_rings };

	return send(connection, &request, sizeof(request), MSG_NOSIGNAL | MSG_DONTWAIT) > 0;
}

/* False claims about the parent, by act. */
static const struct {
	const char *name;
	uint32_t pid;
	uint64_t start;
} parents[] = {
	{ "parent-none", 0, 77 },
	{ "parent-init", 1, 0 },
	{ "parent-nobody", UINT32_MAX, UINT64_MAX },
	{ "parent-negative", (uint32_t)INT32_MIN, 1 },
};

static void name_parent(const char *act, struct control_hello *hello)
{
	for (size_t i = 0; i < ARRAY_SIZE(parents); i++)
		if (strcmp(act, parents[i].name) == 0) {
			hello->parent_tgid = parents[i].pid;
			hello->parent_start = parents[i].start;
		}
	if (strcmp(act, "parent-self") == 0)
		hello->parent_tgid = (uint32_t)getpid();
	/* a process that this session does not record */
	if (strcmp(act, "parent-stranger") == 0)
		hello->parent_tgid = (uint32_t)getsid(getppid());
	/* a process that this session records */
	if (strcmp(act, "parent-sibling") == 0)
		hello->parent_tgid = (uint32_t)getpid() - 1;
}

static bool join(const char *act)
{
	struct control_hello hello;

	connection = peer_connect(&hello);
	name_parent(act, &hello);
	if (connection >= 0 && send(connection, &hello, sizeof(hello), MSG_NOSIGNAL) > 0 &&
	    take_arena())
		return true;
	close(connection);
	return false;
}

/* Retries, because on a busy machine only some of many registrations are answered in time. */
static bool register_self(const char *act)
{
	for (int i = 1; !join(act); i++) {
		if (i == MAX_TRIES)
			return false;
		nap(100);
	}
	ring = ring_claim(arena, (uint32_t)syscall(SYS_gettid), 0, 0);
	return ring != NULL;
}

/* ---- Valid records ---- */

static void write_string(uint32_t id, const void *text, uint32_t n)
{
	struct ring_string *string = ring_begin(ring, RING_STRING, sizeof(*string) + n);

	if (!string)
		return;
	*string = (struct ring_string){ id, n };
	memcpy(string + 1, text, n);
	ring_end(ring, string);
}

static void write_mark(uint32_t name)
{
	struct ring_mark *mark = ring_begin(ring, RING_MARK, sizeof(*mark));

	if (!mark)
		return;
	*mark = (struct ring_mark){ .name = name, .id = 1 };
	ring_end(ring, mark);
}

/* ---- Lies about the first ring, which has a valid mark ---- */

/* Returns the place of the first ring's next record. */
static struct ring_record_header *next_record(void)
{
	return (void *)(data_of(0) + header_of(0)->head % place_of(0)->data_bytes);
}

/* Writes a record whose header says `bytes`, and advances the head by `published` bytes. */
static void publish(uint32_t bytes, uint16_t type, const void *payload, size_t n,
		    uint32_t published)
{
	struct ring_record_header *record = next_record();

	*record =
		(struct ring_record_header){ .bytes = bytes, .type = type, .time_ns = clock_ns() };
	memcpy(record + 1, payload, n);
	header_of(0)->attempted++;
	__atomic_fetch_add(&header_of(0)->head, published, __ATOMIC_RELEASE);
}

static void put(uint32_t bytes, uint16_t type, const void *payload, size_t n)
{
	publish(bytes, type, payload, n, MARK_BYTES);
}

/* Publishes a complete record. */
static void put_record(uint16_t type, const void *payload, size_t n)
{
	const uint32_t bytes = (uint32_t)(sizeof(struct ring_record_header) + n);

	publish(bytes, type, payload, n, bytes);
}

static void put_mark(uint32_t bytes, uint16_t type)
{
	const struct ring_mark mark = { .id = 2 };

	put(bytes, type, &mark, sizeof(mark));
}

static void lie_beyond(void)
{
	header_of(0)->head += UINT64_C(1) << 30;
}

static void lie_backwards(void)
{
	header_of(0)->head -= 8;
}

static void lie_zero(void)
{
	put_mark(0, RING_MARK);
}

static void lie_huge(void)
{
	put_mark(UINT32_MAX & ~7u, RING_MARK);
}

static void lie_misaligned(void)
{
	put_mark(MARK_BYTES + 4, RING_MARK);
}

static void lie_type(void)
{
	put_mark(MARK_BYTES, 60000);
}

static void lie_string(void)
{
	const struct ring_string string = { 7, UINT32_MAX };

	put(MARK_BYTES, RING_STRING, &string, sizeof(string));
}

static void lie_kind(void)
{
	const struct ring_mark mark = { .kind = 99 };

	put(MARK_BYTES, RING_MARK, &mark, sizeof(mark));
}

static void lie_alloc(void)
{
	const struct ring_alloc alloc = { .address = 16, .kind = 99 };

	put_record(RING_ALLOC, &alloc, sizeof(alloc));
}

static void lie_calls(void)
{
	const struct ring_calls calls = { .first = RING_MAX_CALLS };

	put_record(RING_CALLS, &calls, sizeof(calls));
}

static void lie_state(void)
{
	header_of(0)->state = UINT64_C(0x1234567800000009);
}

static void lie_lost(void)
{
	header_of(0)->attempted = UINT64_C(1) << 61;
	header_of(0)->lost[RING_LOST_FULL] = UINT64_C(1) << 60;
}

static void lie_attempted(void)
{
	header_of(0)->attempted = 0;
}

/* Claims another ring for `tid`, because the engine already knows the first ring's thread. */
static void claim_as(uint32_t tid)
{
	ring = ring_claim(arena, tid, 0, 0);
	write_mark(0);
}

static void lie_tid(void)
{
	claim_as((uint32_t)getppid());
}

static void lie_nobody(void)
{
	claim_as(UINT32_MAX);
}

static void lie_no_ring(void)
{
	shared->lost_no_ring = UINT64_C(1) << 60;
}

static void lie_ids(void)
{
	write_mark(77);
}

static void lie_future(void)
{
	const struct ring_mark mark = { .id = 2,
					.kind = RING_MARK_COMPLETE,
					.duration_ns = UINT64_MAX };
	struct ring_record_header *record = next_record();

	*record = (struct ring_record_header){ .bytes = MARK_BYTES,
					       .type = RING_MARK,
					       .time_ns = YEAR_2500_NS };
	memcpy(record + 1, &mark, sizeof(mark));
	header_of(0)->attempted++;
	__atomic_fetch_add(&header_of(0)->head, MARK_BYTES, __ATOMIC_RELEASE);
}

static void lie_busy(void)
{
	header_of(0)->busy = 1;
}

/* Keeps the ring marked as busy, and writes only records with times in the past. */
static void lie_past(void)
{
	while (!is_over()) {
		header_of(0)->busy = 1;
		put_mark(MARK_BYTES, RING_MARK);
		((struct ring_record_header *)(void *)(data_of(0) +
						       (header_of(0)->head - MARK_BYTES) %
							       place_of(0)->data_bytes))
			->time_ns = 1;
		if (header_of(0)->head + 2 * MARK_BYTES > place_of(0)->data_bytes)
			break;
		nap(1);
	}
}

/* Keeps changing lengths, types and counts while they are read. */
static void *change(void *data)
{
	volatile uint32_t *words = (volatile uint32_t *)(void *)data_of(0);
	uint32_t random = 1;

	while (!is_over())
		for (int i = 0; i < 10000; i++) {
			random = random * 1664525 + 1013904223;
			words[random >> 8 & 1023] = random & 1 ? MARK_BYTES : random >> 16;
		}
	return NULL;
}

static void lie_changing(void)
{
	pthread_t id;

	if (pthread_create(&id, NULL, change, NULL) == 0)
		header_of(0)->head += 4096 - header_of(0)->head % 4096;
}

static void lie_request(void)
{
	(void)send(connection, "?", 1, MSG_NOSIGNAL);
	write_mark(0);
}

/* ---- Floods ---- */

static void flood_bells(void)
{
	while (!is_over()) {
		__atomic_fetch_add(&shared->doorbell, 1, __ATOMIC_SEQ_CST);
		syscall(SYS_futex, &shared->doorbell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
	}
}

static void flood_strings(void)
{
	char text[STRING_BYTES] = { 0 };

	for (uint32_t id = 1; !is_over(); id++) {
		snprintf(text, sizeof(text), "%u", id);
		write_string(id, text, sizeof(text));
		write_mark(id);
		/* redefines an earlier id, whose text the engine may have refused */
		write_string(id / 2, text, 1);
	}
}

/* Writes endless log texts to all rings. */
static void flood_logs(void)
{
	struct ring *rings[64];
	uint32_t n = 0;

	while (n < ARRAY_SIZE(rings) &&
	       (rings[n] = ring_claim(arena, (uint32_t)getpid(), 0, 0)) != NULL)
		n++;
	for (uint32_t i = 0; !is_over(); i++) {
		struct ring_log *log =
			ring_begin(rings[i % n], RING_LOG, sizeof(*log) + STRING_BYTES);

		if (!log)
			continue;
		*log = (struct ring_log){ .level = 6,
					  .part = 1 + i / n % 4,
					  .n_bytes = STRING_BYTES };
		memset(log + 1, 'x', STRING_BYTES);
		ring_set_flags(log, RING_FLAG_MORE);
		ring_end(rings[i % n], log);
	}
}

static void flood_counters(void)
{
	char text[STRING_BYTES] = { 0 };

	for (uint32_t id = 1; !is_over(); id++) {
		struct ring_counter *counter;

		snprintf(text, sizeof(text), "%u", id);
		write_string(1, text, sizeof(text));
		counter = ring_begin(ring, RING_COUNTER, sizeof(*counter));
		if (!counter)
			continue;
		*counter = (struct ring_counter){ .id = id, .group = 1, .name = 1, .unit = 1 };
		ring_end(ring, counter);
	}
}

static void write_image(uint32_t id)
{
	struct ring_image *image = ring_begin(ring, RING_IMAGE, sizeof(*image));

	if (!image)
		return;
	*image = (struct ring_image){
		.id = id, .start = (uint64_t)id << 20, .end = ((uint64_t)id + 1) << 20, .inode = id
	};
	ring_end(ring, image);
}

static void write_stack(uint32_t id)
{
	struct {
		struct ring_stack stack;
		struct ring_frame frames[N_FRAMES];
	} *told = ring_begin(ring, RING_STACK, sizeof(*told));

	if (!told)
		return;
	told->stack = (struct ring_stack){ id, N_FRAMES };
	for (uint32_t i = 0; i < N_FRAMES; i++)
		told->frames[i] = (struct ring_frame){ (uint64_t)id << 16 | i, id, i % 2 };
	ring_end(ring, told);
}

/* Writes stacks without repetition, in images that no other process has. */
static void flood_stacks(void)
{
	for (uint32_t id = 1; !is_over(); id++) {
		struct {
			struct ring_at at;
			struct ring_mark mark;
		} * record;

		write_image(id);
		write_stack(id);
		record = ring_begin(ring, RING_MARK_AT, sizeof(*record));
		if (!record)
			continue;
		record->at = (struct ring_at){ .stack = id };
		record->mark = (struct ring_mark){ .id = id };
		ring_end(ring, record);
	}
}

/* Writes allocations without frees, each from a different stack. */
static void flood_blocks(void)
{
	for (uint32_t id = 1; !is_over(); id++) {
		struct {
			struct ring_calls calls;
			struct ring_frame frame;
		} *told = ring_begin(ring, RING_CALLS, sizeof(*told));
		struct ring_alloc *alloc;

		if (told) {
			told->calls = (struct ring_calls){ .first = 1 + id % (RING_MAX_CALLS - 1),
							   .n_frames = 1 };
			told->frame = (struct ring_frame){ id, 0, RING_FRAME_NO_FILE };
			ring_end(ring, told);
		}
		alloc = ring_begin(ring, RING_ALLOC, sizeof(*alloc));
		if (!alloc)
			continue;
		*alloc = (struct ring_alloc){ .address = (uint64_t)id << 4,
					      .size = 16,
					      .stack = 1 + id % (RING_MAX_CALLS - 1) };
		ring_end(ring, alloc);
	}
}

static void fill_with_marks(uint32_t i)
{
	const struct ring_mark mark = { .id = 1 };
	uint64_t at = 0, bytes = place_of(i)->data_bytes;

	for (; at + MARK_BYTES <= bytes; at += MARK_BYTES) {
		struct ring_record_header *record = (void *)(data_of(i) + at);

		*record = (struct ring_record_header){ .bytes = MARK_BYTES, .type = RING_MARK };
		memcpy(record + 1, &mark, sizeof(mark));
	}
	if (at < bytes)
		*(struct ring_record_header *)(void *)(data_of(i) + at) =
			(struct ring_record_header){ .bytes = (uint32_t)(bytes - at),
						     .type = RING_PAD };
}

/* Fills all rings, and refills them as soon as they have room. */
static void flood_records(void)
{
	for (uint32_t i = 0; i < shared->n_rings; i++) {
		fill_with_marks(i);
		header_of(i)->tid = (uint32_t)getpid();
		header_of(i)->state = UINT64_C(1) << 32 | RING_OWNED;
		header_of(i)->busy = 1;
	}
	while (!is_over())
		for (uint32_t i = 0; i < shared->n_rings; i++) {
			struct ring_header *header = header_of(i);
			uint64_t tail = __atomic_load_n(&header->tail, __ATOMIC_ACQUIRE);
			uint64_t head = tail + place_of(i)->data_bytes;

			header->attempted += (head - header->head) / 8;
			__atomic_store_n(&header->head, head, __ATOMIC_RELEASE);
		}
}

/* Requests as many rings as possible; then claims and releases rings without a pause. */
static void flood_rings(void)
{
	if (ask(RING_MIN_BYTES, RING_MAX_RINGS))
		(void)take_arena();
	while (!is_over()) {
		ring = ring_claim(arena, (uint32_t)getpid(), 0, 0);
		if (!ring)
			continue;
		write_mark(0);
		ring_release(ring);
	}
}

/* Sends requests without reading the answers. */
static void flood_requests(void)
{
	while (!is_over())
		if (!ask(UINT64_C(1) << 24, 1))
			nap(1);
}

/* Connects repeatedly as a new program. The engine must not keep data of earlier connections. */
static void flood_connections(void)
{
	struct control_hello hello;

	while (!is_over()) {
		int fd = peer_connect(&hello);

		if (fd < 0)
			continue;
		hello.magic += is_over();
		(void)send(fd, &hello, sizeof(hello), MSG_NOSIGNAL);
		close(fd);
	}
}

/* ---- Hellos ---- */

static void say(const struct control_hello *hello, size_t n)
{
	struct control_hello copy;
	int fd = peer_connect(&copy);

	if (fd >= 0)
		(void)send(fd, hello, n, MSG_NOSIGNAL);
	/* The connection stays open: the engine must not wait for the next message. */
}

static void lie_hello(void)
{
	struct control_hello hello, other;
	int fd = peer_connect(&hello);

	close(fd);
	other = hello;
	other.magic++;
	say(&other, sizeof(other));
	other = hello;
	other.version = 99;
	say(&other, sizeof(other));
	other = hello;
	other.bytes = UINT32_MAX;
	say(&other, sizeof(other));
	say(&hello, 1);
	say(&hello, 0);
	(void)peer_connect(&hello);
}

static const struct {
	const char *name;
	void (*act)(void);
} acts[] = {
	{ "beyond", lie_beyond },
	{ "backwards", lie_backwards },
	{ "zero", lie_zero },
	{ "huge", lie_huge },
	{ "misaligned", lie_misaligned },
	{ "type", lie_type },
	{ "string", lie_string },
	{ "kind", lie_kind },
	{ "alloc", lie_alloc },
	{ "calls", lie_calls },
	{ "state", lie_state },
	{ "lost", lie_lost },
	{ "attempted", lie_attempted },
	{ "tid", lie_tid },
	{ "nobody", lie_nobody },
	{ "no-ring", lie_no_ring },
	{ "ids", lie_ids },
	{ "future", lie_future },
	{ "busy", lie_busy },
	{ "past", lie_past },
	{ "changing", lie_changing },
	{ "request", lie_request },
	{ "hello", lie_hello },
	{ "flood-bells", flood_bells },
	{ "flood-strings", flood_strings },
	{ "flood-logs", flood_logs },
	{ "flood-counters", flood_counters },
	{ "flood-stacks", flood_stacks },
	{ "flood-blocks", flood_blocks },
	{ "flood-records", flood_records },
	{ "flood-rings", flood_rings },
	{ "flood-requests", flood_requests },
	{ "flood-connections", flood_connections },
};

int main(int argc, char **argv)
{
	unsigned ms = argc == 3 ? (unsigned)atoi(argv[2]) : 0;

	if (argc != 3 || !register_self(argv[1]))
		return 9;
	end_ns = clock_ns() + ms * UINT64_C(1000000);
	write_mark(0);
	/* Wait until the mark is read, so that the ring was valid once. */
	for (int i = 0; i < 5000 && header_of(0)->tail < MARK_BYTES; i++)
		nap(1);
	for (size_t i = 0; i < ARRAY_SIZE(acts); i++)
		if (strcmp(argv[1], acts[i].name) == 0)
			acts[i].act();
	while (!is_over())
		nap(10);
	return 0;
}
