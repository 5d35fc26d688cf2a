/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Stand-in - takes the place of the engine, for tests of the collector
 *
 *     stand-in --output FILE [OPTION…] -- COMMAND [ARG…]
 *
 * Starts the command with PROF_CONTROL, creates arenas for all processes that connect, and drains
 * their records until the command and all of these processes have exited. FILE gets a line of JSON
 * for each connection, and with --records one for each record. The exit status is the command's.
 */
#include "libcollector/control.h"
#include "libcollector/ring/ring-reader.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

#define MAX_PEERS 512
#define MAX_ARENAS 16
#define MAX_STRINGS 65536
#define LONG_STRING 400
#define PATIENCE_NS UINT64_C(60000000000)

static struct {
	const char *output;
	uint32_t n_rings;
	uint64_t ring_bytes;
	enum ring_policy policy;
	int refuse;          /* status of answers to hellos; 0: they are not refused */
	bool is_silent;      /* accepts connections, but never answers */
	bool refuses_growth; /* answers requests for growth with status 4 */
	bool is_deaf;        /* drains only at the end */
	bool prints;
	uint64_t end_after; /* number of records after which the session ends; 0: it never ends */
} options = { .n_rings = 8, .ring_bytes = 65536 };

struct string {
	char *bytes;
	size_t n;
	bool is_open;
};

struct arena {
	struct ring_arena_memory memory;
	struct ring_reader *readers;
	struct string **strings; /* by ring, then by id */
};

struct peer {
	int fd, pid;
	uint32_t parent, n_requests, n_arenas;
	uint32_t wants;
	uint64_t n_owners, n_types[RING_N_TYPES], n_nameless, n_cut;
	struct arena arenas[MAX_ARENAS];
};

static struct peer *peers[MAX_PEERS];
static uint32_t n_peers;
static uint64_t n_records;
static FILE *out;
static struct tick_clock *ticks; /* NULL: records have ns */
static _Alignas(8) uint8_t buffer[1 << 20];

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* ---- Records ---- */

static const struct string *get_string(struct peer *peer, struct arena *arena, uint32_t ring,
				       uint32_t id)
{
	static const struct string none = { .bytes = (char *)"", .n = 0 };

	if (id == 0)
		return &none;
	if (id >= MAX_STRINGS || !arena->strings[ring] || !arena->strings[ring][id].bytes) {
		peer->n_nameless++;
		return &none;
	}
	if (arena->strings[ring][id].is_open)
		peer->n_cut++;
	return &arena->strings[ring][id];
}

static void take_string(struct arena *arena, uint32_t ring, const struct ring_record *record)
{
	const struct ring_string *from = record->payload;
	struct string *to;

	if (from->id == 0 || from->id >= MAX_STRINGS)
		return;
	if (!arena->strings[ring])
		arena->strings[ring] = calloc(MAX_STRINGS, sizeof(struct string));
	to = &arena->strings[ring][from->id];
	if (!to->is_open)
		to->n = 0;
	to->bytes = realloc(to->bytes, to->n + from->n_bytes + 1);
	memcpy(to->bytes + to->n, from + 1, from->n_bytes);
	to->n += from->n_bytes;
	to->bytes[to->n] = 0;
	to->is_open = record->flags & RING_FLAG_MORE;
}

/* Prints a text, or the length and the sum of the bytes of a long text. */
static void print_text(const char *name, const char *bytes, size_t n)
{
	uint64_t sum = 0;

	fprintf(out, ",\"%s\":\"", name);
	for (size_t i = 0; i < n; i++)
		sum += (uint8_t)bytes[i];
	if (n > LONG_STRING)
		fprintf(out, "%zu:%" PRIu64, n, sum);
	for (size_t i = 0; i < n && n <= LONG_STRING; i++)
		fprintf(out,
			(uint8_t)bytes[i] < ' ' || bytes[i] == '"' || bytes[i] == '\\' ? "\\u%04x"
										       : "%c",
			(unsigned)(uint8_t)bytes[i]);
	fprintf(out, "\"");
}

static void print_mark(struct peer *peer, struct arena *arena, uint32_t ring,
		       const struct ring_mark *mark)
{
	const struct ring_argument *arguments = (const void *)(mark + 1);

	fprintf(out, ",\"kind\":%u,\"id\":%" PRIu64 ",\"duration\":%" PRIu64 ",\"args\":[",
		mark->kind, mark->id, mark->duration_ns);
	for (uint32_t i = 0; i < mark->n_arguments; i++) {
		const struct string *text =
			get_string(peer, arena, ring, (uint32_t)arguments[i].name);

		fprintf(out, "%s{\"kind\":%u,\"value\":%" PRIu64, i ? "," : "", arguments[i].kind,
			arguments[i].value);
		print_text("name", text->bytes, text->n);
		if (arguments[i].kind == 3) {
			text = get_string(peer, arena, ring, (uint32_t)arguments[i].value);
			print_text("text", text->bytes, text->n);
		}
		fprintf(out, "}");
	}
	fprintf(out, "]");
}

static void print_string(struct peer *peer, struct arena *arena, uint32_t ring, const char *name,
			 uint32_t id)
{
	const struct string *text = get_string(peer, arena, ring, id);

	print_text(name, text->bytes, text->n);
}

/* Prints the fields of records of allocations, frees and reallocations. */
static void print_heap(uint32_t type, const void *payload)
{
	const struct ring_alloc *alloc = payload;
	const struct ring_free_block *block = payload;
	const struct ring_realloc *change = payload;

	if (type == RING_ALLOC)
		fprintf(out,
			",\"address\":%" PRIu64 ",\"size\":%" PRIu64
			",\"kind\":%u,\"alignment\":%u,\"stack\":%u,\"flags\":%u",
			alloc->address, alloc->size, alloc->kind, alloc->alignment_log2,
			alloc->stack, alloc->flags);
	else if (type == RING_FREE_BLOCK)
		fprintf(out, ",\"address\":%" PRIu64 ",\"kind\":%u,\"pages\":%u", block->address,
			block->kind, block->pages);
	else if (type == RING_REALLOC)
		fprintf(out,
			",\"prior\":%" PRIu64 ",\"address\":%" PRIu64 ",\"size\":%" PRIu64
			",\"duration\":%" PRIu64
			",\"kind\":%u,\"freed\":%u,\"stack\":%u,\"flags\":%u",
			change->prior, change->address, change->size, change->duration_ns,
			change->kind, change->is_freed, change->stack, change->flags);
}

static void print_record(struct peer *peer, struct arena *arena, uint32_t ring, uint32_t tid,
			 const struct ring_record *record)
{
	const void *payload = record->payload;

	fprintf(out, "{\"pid\":%d,\"tid\":%u,\"type\":%u,\"time\":%" PRIu64, peer->pid, tid,
		record->type, record->time_ns);
	if (record->type == RING_MARK) {
		const struct ring_mark *mark = payload;

		print_string(peer, arena, ring, "group", mark->group);
		print_string(peer, arena, ring, "name", mark->name);
		print_mark(peer, arena, ring, mark);
	} else if (record->type == RING_COUNTER) {
		const struct ring_counter *counter = payload;

		print_string(peer, arena, ring, "group", counter->group);
		print_string(peer, arena, ring, "name", counter->name);
		print_string(peer, arena, ring, "unit", counter->unit);
		fprintf(out, ",\"id\":%u,\"kind\":%u", counter->id, counter->kind);
	} else if (record->type == RING_COUNTER_VALUE) {
		const struct ring_counter_value *value = payload;

		fprintf(out, ",\"id\":%u,\"value\":%" PRIu64, value->id, value->value);
	} else if (record->type == RING_LOG) {
		const struct ring_log *log = payload;

		fprintf(out, ",\"level\":%u,\"part\":%u,\"more\":%d", log->level, log->part,
			record->flags & RING_FLAG_MORE);
		print_string(peer, arena, ring, "domain", log->domain);
		print_text("text", (const char *)(log + 1), log->n_bytes);
	} else if (record->type == RING_THREAD_NAME) {
		print_string(peer, arena, ring, "name",
			     ((const struct ring_thread_name *)payload)->name);
	}
	print_heap(record->type, payload);
	fprintf(out, "}\n");
}

static void take_record(struct peer *peer, struct arena *arena, uint32_t ring, uint32_t tid,
			const struct ring_record *record)
{
	peer->n_types[record->type]++;
	n_records++;
	if (record->type == RING_STRING)
		take_string(arena, ring, record);
	else if (options.prints)
		print_record(peer, arena, ring, tid, record);
	else if (record->type == RING_MARK) {
		get_string(peer, arena, ring, ((const struct ring_mark *)record->payload)->group);
		get_string(peer, arena, ring, ((const struct ring_mark *)record->payload)->name);
	}
}

static void forget_strings(struct arena *arena, uint32_t ring)
{
	for (uint32_t i = 0; arena->strings[ring] && i < MAX_STRINGS; i++)
		free(arena->strings[ring][i].bytes);
	free(arena->strings[ring]);
	arena->strings[ring] = NULL;
}

static void drain_ring(struct peer *peer, struct arena *arena, uint32_t ring, enum ring_drain how)
{
	struct ring_reader *reader = &arena->readers[ring];
	struct ring_record record;
	struct ring_batch batch;

	do {
		ring_reader_drain(reader, how, buffer, sizeof(buffer), &batch);
		while (ring_batch_next(&batch, &record))
			take_record(peer, arena, ring, batch.tid, &record);
	} while (batch.is_more);
	if (batch.is_closed && how == RING_DRAIN_LIVE) {
		peer->n_owners++;
		forget_strings(arena, ring);
		ring_reader_recycle(reader);
	}
}

static void drain_peer(struct peer *peer, enum ring_drain how)
{
	for (uint32_t i = 0; i < peer->n_arenas; i++)
		for (uint32_t j = 0; j < peer->arenas[i].memory.n_rings; j++) {
			drain_ring(peer, &peer->arenas[i], j, how);
			ring_reader_wake(&peer->arenas[i].readers[j]);
		}
}

/* ---- Connections ---- */

static int make_arena(struct peer *peer, uint64_t min_bytes, int *ret_fd)
{
	struct ring_arena_sizes sizes = { { { options.ring_bytes, options.n_rings,
					      options.policy } } };
	struct arena *arena = &peer->arenas[peer->n_arenas];

	if (peer->n_arenas == MAX_ARENAS || min_bytes > (UINT64_C(1) << 26))
		return -ENOSPC;
	if (min_bytes > options.ring_bytes)
		sizes.sizes[0] = (struct ring_arena_size){ min_bytes, 1, options.policy };
	if (ring_arena_make(&sizes, &arena->memory, ret_fd) < 0)
		return -ENOMEM;
	arena->readers = calloc(arena->memory.n_rings, sizeof(*arena->readers));
	arena->strings = calloc(arena->memory.n_rings, sizeof(*arena->strings));
	if (ticks)
		ring_arena_offer_ticks(&arena->memory);
	for (uint32_t i = 0; i < arena->memory.n_rings; i++) {
		ring_reader_init(&arena->readers[i], &arena->memory, i);
		ring_reader_use_ticks(&arena->readers[i], ticks);
	}
	peer->n_arenas++;
	return 0;
}

static void answer(struct peer *peer, uint32_t status, int memfd)
{
	struct control_answer data = { .magic = CONTROL_ANSWER_MAGIC,
				       .version = CONTROL_VERSION,
				       .bytes = CONTROL_BYTES,
				       .status = status };
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	struct iovec iov = { .iov_base = &data, .iov_len = sizeof(data) };
	struct msghdr message = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (status == CONTROL_OK) {
		message.msg_control = &control;
		message.msg_controllen = sizeof(control);
		control.header = (struct cmsghdr){ .cmsg_level = SOL_SOCKET,
						   .cmsg_type = SCM_RIGHTS,
						   .cmsg_len = CMSG_LEN(sizeof(int)) };
		memcpy(CMSG_DATA(&control.header), &memfd, sizeof(memfd));
	}
	sendmsg(peer->fd, &message, MSG_NOSIGNAL);
}

static void serve(struct peer *peer)
{
	struct control_hello hello;
	const struct control_request *request = (const void *)&hello;
	ssize_t n = recv(peer->fd, &hello, sizeof(hello), MSG_DONTWAIT);
	bool is_hello = hello.magic == CONTROL_HELLO_MAGIC;
	uint32_t status = is_hello ? (uint32_t)options.refuse : CONTROL_OK;
	int memfd = -1;

	if (n <= 0) {
		close(peer->fd);
		peer->fd = -1;
		return;
	}
	if (n != (ssize_t)sizeof(hello) || (!is_hello && hello.magic != CONTROL_REQUEST_MAGIC)) {
		fprintf(stderr, "stand-in: %zd bytes that are no message\n", n);
		exit(9);
	}
	if (options.is_silent)
		return;
	if (is_hello)
		peer->parent = hello.parent_tgid, peer->wants = hello.wants;
	else
		peer->n_requests++;
	if (!is_hello && options.refuses_growth)
		status = CONTROL_LIMIT;
	if (status == CONTROL_OK &&
	    make_arena(peer, is_hello ? 0 : request->min_data_bytes, &memfd) < 0)
		status = CONTROL_LIMIT;
	answer(peer, status, memfd);
	if (memfd >= 0)
		close(memfd);
}

static void accept_peer(int listener)
{
	struct peer *peer = calloc(1, sizeof(*peer));
	struct ucred who;
	socklen_t bytes = sizeof(who);

	peer->fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	if (peer->fd < 0 || n_peers == MAX_PEERS ||
	    getsockopt(peer->fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes) < 0)
		exit(9);
	peer->pid = who.pid;
	peers[n_peers++] = peer;
}

static void end_session(struct peer *peer)
{
	for (uint32_t i = 0; i < peer->n_arenas; i++)
		__atomic_store_n(
			&((struct ring_arena_header *)(void *)peer->arenas[i].memory.base)->ended,
			1, __ATOMIC_RELEASE);
}

/* Waits up to one millisecond for data on a socket, then serves the sockets and drains the
 * rings. */
static void turn(int listener)
{
	struct pollfd polled[MAX_PEERS + 1] = { { .fd = listener, .events = POLLIN } };
	uint32_t n = n_peers;

	for (uint32_t i = 0; i < n; i++)
		polled[i + 1] = (struct pollfd){ .fd = peers[i]->fd, .events = POLLIN };
	if (poll(polled, n + 1, 1) > 0) {
		for (uint32_t i = 0; i < n; i++)
			if (polled[i + 1].revents)
				serve(peers[i]);
		if (polled[0].revents)
			accept_peer(listener);
	}
	for (uint32_t i = 0; i < n_peers; i++) {
		if (!options.is_deaf)
			drain_peer(peers[i], RING_DRAIN_LIVE);
		if (options.end_after && n_records >= options.end_after)
			end_session(peers[i]);
	}
}

static void print_peer(struct peer *peer)
{
	struct ring_totals all = { 0 };
	uint64_t no_ring = 0, lost = 0;
	const char *fault = "none";

	drain_peer(peer, RING_DRAIN_DEAD);
	for (uint32_t i = 0; i < peer->n_arenas; i++) {
		struct arena *arena = &peer->arenas[i];

		no_ring += ring_arena_lost(&arena->memory);
		for (uint32_t j = 0; j < arena->memory.n_rings; j++) {
			const struct ring_reader *reader = &arena->readers[j];

			all.attempted += reader->totals.attempted;
			all.records += reader->totals.records;
			all.abandoned += reader->totals.abandoned;
			all.unpublished += reader->totals.unpublished;
			all.waits += reader->totals.waits;
			for (size_t k = 0; k < RING_N_LOST; k++)
				lost += reader->totals.lost[k];
			if (reader->fault != RING_FAULT_NONE)
				fault = ring_fault_name(reader->fault);
		}
	}
	fprintf(out,
		"{\"peer\":%d,\"parent\":%u,\"wants\":%u,\"allocs\":%" PRIu64 ",\"frees\":%" PRIu64
		",\"reallocs\":%" PRIu64 ",\"arenas\":%u,\"requests\":%u,\"attempted\":%" PRIu64
		",\"records\":%" PRIu64 ",\"abandoned\":%" PRIu64 ",\"unpublished\":%" PRIu64
		",\"lost\":%" PRIu64 ",\"no_ring\":%" PRIu64 ",\"waits\":%" PRIu64
		",\"nameless\":%" PRIu64 ",\"cut\":%" PRIu64 ",\"owners\":%" PRIu64
		",\"marks\":%" PRIu64 ",\"strings\":%" PRIu64 ",\"fault\":\"%s\"}\n",
		peer->pid, peer->parent, peer->wants, peer->n_types[RING_ALLOC],
		peer->n_types[RING_FREE_BLOCK], peer->n_types[RING_REALLOC], peer->n_arenas,
		peer->n_requests, all.attempted, all.records, all.abandoned, all.unpublished, lost,
		no_ring, all.waits, peer->n_nameless, peer->n_cut, peer->n_owners,
		peer->n_types[RING_MARK], peer->n_types[RING_STRING], fault);
}

/* ---- Start ---- */

static int listen_at(const char *name)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	size_t n = strlen(name);

	memcpy(address.sun_path + 1, name, n);
	if (fd < 0 ||
	    bind(fd, (const struct sockaddr *)&address,
		 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n)) < 0 ||
	    listen(fd, 128) < 0)
		return -1;
	return fd;
}

static bool parse(int argc, char **argv, int *ret_command)
{
	int i = 1;

	for (; i < argc && strcmp(argv[i], "--") != 0; i++) {
		const char *value = i + 1 < argc ? argv[i + 1] : "";

		if (strcmp(argv[i], "--lossless") == 0)
			options.policy = RING_LOSSLESS;
		else if (strcmp(argv[i], "--silent") == 0)
			options.is_silent = true;
		else if (strcmp(argv[i], "--no-growth") == 0)
			options.refuses_growth = true;
		else if (strcmp(argv[i], "--deaf") == 0)
			options.is_deaf = true;
		else if (strcmp(argv[i], "--records") == 0)
			options.prints = true;
		else if (strcmp(argv[i], "--output") == 0)
			options.output = value, i++;
		else if (strcmp(argv[i], "--rings") == 0)
			options.n_rings = (uint32_t)atoi(value), i++;
		else if (strcmp(argv[i], "--bytes") == 0)
			options.ring_bytes = (uint64_t)atoll(value), i++;
		else if (strcmp(argv[i], "--refuse") == 0)
			options.refuse = atoi(value), i++;
		else if (strcmp(argv[i], "--end-after") == 0)
			options.end_after = (uint64_t)atoll(value), i++;
		else
			return false;
	}
	*ret_command = i + 1;
	return i + 1 < argc && options.output;
}

static pid_t start(char **command, const char *name)
{
	pid_t pid;
	char value[200];

	/* No process listens at the first address, so the collector must skip that address. */
	snprintf(value, sizeof(value),
		 "unix:/nonexistent/x,unix-abstract:%s,token:00112233445566778899aabbccddeeff",
		 name);
	setenv(CONTROL_VARIABLE, value, 1);
	pid = fork();
	if (pid == 0) {
		execvp(command[0], command);
		_exit(127);
	}
	return pid;
}

int main(int argc, char **argv)
{
	char name[80];
	int command, listener, status = 0;
	uint64_t deadline = now_ns() + PATIENCE_NS;
	bool is_running = true;
	pid_t pid;

	/* Also wait for processes that daemonize. */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	if (!parse(argc, argv, &command))
		return 2;
	snprintf(name, sizeof(name), "prof-stand-in-%d-%" PRIu64, getpid(), now_ns());
	ticks = tick_clock_new();
	listener = listen_at(name);
	out = fopen(options.output, "w");
	if (listener < 0 || !out)
		return 9;
	pid = start(argv + command, name);
	while (is_running && now_ns() < deadline) {
		pid_t ended;
		int how;

		turn(listener);
		while ((ended = waitpid(-1, &how, WNOHANG)) > 0)
			status = ended == pid ? how : status;
		is_running = ended == 0;
	}
	turn(listener);
	if (is_running) {
		fprintf(stderr, "stand-in: the command did not end\n");
		kill(pid, SIGKILL);
		return 9;
	}
	for (uint32_t i = 0; i < n_peers; i++)
		print_peer(peers[i]);
	return fclose(out) != 0    ? 9
	       : WIFEXITED(status) ? WEXITSTATUS(status)
				   : 128 + WTERMSIG(status);
}
