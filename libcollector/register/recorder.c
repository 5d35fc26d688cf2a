/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Recorder - recordings that the program itself starts, of blocks that it chooses
 *
 *     open:   profctl record --control ─▶ profd ─▶ an engine, which samples nothing
 *             yet; this process registers with it
 *     begin:  a mark, then "on" to the engine and its answer
 *     end:    "off" and the answer, then the mark
 *     close:  the socket to profctl is shut down; profctl reports when the file is complete
 *
 * The switch is a socket to the engine, and profctl passes it on to this process, so that a begin
 * or end costs two context switches and needs no privileged process. Blocks nest and overlap, in
 * one thread and in several: sampling is on while any is open.
 *
 * The recorder's state is in a page that is zeroed in a forked child. The child has no recorder,
 * and closes the descriptors that it inherited. The program may close or reuse the descriptors, so
 * each use first compares the socket's cookie.
 * Invariants: (1) no wait exceeds its bound: OPEN_NS, SWITCH_NS, CLOSE_NS
 *                 [test_recorder: killed_under_it, stopped]
 *             (2) samples are between the marks of a block, and none is missing
 *                 [test_recorder: blocks, edges]
 *             (3) a child of fork() or vfork() does not change its parent's recorder
 *                 [test_recorder: fork]
 *             (4) errno does not change  [test_recorder: by_the_service]
 */
#include "config.h"

#include "libcollector/prof-collector.h"

#include "base/clock.h"
#include "libcollector/register/control-client.h"
#include "libcollector/register/hidden-child.h"
#include "libcollector/register/intern.h"
#include "libcollector/register/register.h"
#include "libcollector/ring/ring-inline.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#define OPEN_NS UINT64_C(30000000000)
#define SWITCH_NS UINT64_C(1000000000)
#define CLOSE_NS UINT64_C(60000000000)
#define MAX_BLOCKS 64
#define MAX_PATH 4096
#define MAX_GROUP 256
#define MAX_ARGUMENTS 24
#define KERNEL_SIGSET_BYTES 8L
#define EXIT_UNREADABLE 3 /* exit statuses of profctl */
#define EXIT_NOT_PERMITTED 4
#define EXIT_NO_DAEMON 5
#define EXIT_INTERRUPTED 130

enum recorder_state { RECORDER_CLOSED, RECORDER_BUSY, RECORDER_OPEN };

struct block {
	uint64_t id;
	uint64_t hash;
	uint64_t order; /* rises with each block that begins; 0: the slot is free */
	uint32_t name_bytes, tid;
};

/* Zeroed in a forked child. */
struct recorder {
	uint32_t state; /* enum recorder_state */
	uint32_t tgid;
	uint32_t lock; /* futex: 0 free, 1 locked, 2 locked with waiters */
	uint32_t n_open;
	uint64_t serial, order;
	struct control_connection control, toggle;
	struct block blocks[MAX_BLOCKS];
	char group[MAX_GROUP];
	char message[CONTROL_REPORT_TEXT];
};
static_assert(sizeof(struct recorder) <= RING_PAGE, "recorder");

static struct recorder *recorder;
static struct control_connection inherited[2];
static uint32_t is_being_set_up;

/* ---- The page ---- */

static void after_fork_in_child(void)
{
	int error = errno;

	control_disconnect(&inherited[0]);
	control_disconnect(&inherited[1]);
	errno = error;
}

static int set_up(void)
{
	void *page =
		mmap(NULL, RING_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int r = 0;

	if (page == MAP_FAILED)
		return -errno;
	inherited[0].fd = inherited[1].fd = -1;
	if (madvise(page, RING_PAGE, MADV_WIPEONFORK) < 0)
		r = -errno;
	if (r == 0)
		r = -pthread_atfork(NULL, NULL, after_fork_in_child);
	if (r == 0)
		__atomic_store_n(&recorder, page, __ATOMIC_RELEASE); /* pairs with get() */
	else
		munmap(page, RING_PAGE);
	return r;
}

static int set_up_once(void)
{
	int r;

	if (__atomic_load_n(&recorder, __ATOMIC_ACQUIRE))
		return 0;
	if (__atomic_exchange_n(&is_being_set_up, 1, __ATOMIC_ACQ_REL) != 0)
		return PROF_RECORDER_OPEN;
	r = set_up();
	__atomic_store_n(&is_being_set_up, 0, __ATOMIC_RELEASE);
	return r;
}

/* Returns NULL if this process has no open recorder. A child of vfork() shares this memory, but is
 * another process. */
static struct recorder *get(void)
{
	struct recorder *self = __atomic_load_n(&recorder, __ATOMIC_ACQUIRE);

	if (!self || __atomic_load_n(&self->state, __ATOMIC_ACQUIRE) != RECORDER_OPEN ||
	    self->tgid != (uint32_t)syscall(SYS_getpid))
		return NULL;
	return self;
}

static bool claim_state(struct recorder *self, uint32_t from)
{
	return __atomic_compare_exchange_n(&self->state, &from, RECORDER_BUSY, false,
					   __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

static void set_state(struct recorder *self, uint32_t state)
{
	__atomic_store_n(&self->state, state, __ATOMIC_RELEASE);
}

/* Blocks all signals until unlock(), so that no handler waits for code that it interrupted. */
static int lock(struct recorder *self, uint64_t *ret_signals)
{
	uint64_t all = ~UINT64_C(0), now_ns = clock_now(), deadline_ns = now_ns + SWITCH_NS;
	uint32_t found = 0;

	syscall(SYS_rt_sigprocmask, (long)SIG_SETMASK, &all, ret_signals, KERNEL_SIGSET_BYTES);
	if (__atomic_compare_exchange_n(&self->lock, &found, 1, false, __ATOMIC_ACQUIRE,
					__ATOMIC_RELAXED))
		return 0;
	while (__atomic_exchange_n(&self->lock, 2, __ATOMIC_ACQUIRE) != 0) {
		struct timespec left = { .tv_nsec = (long)(deadline_ns - now_ns - 1) };

		syscall(SYS_futex, &self->lock, (long)FUTEX_WAIT_PRIVATE, 2L, &left, NULL, 0L);
		now_ns = clock_now();
		if (now_ns >= deadline_ns) {
			syscall(SYS_rt_sigprocmask, (long)SIG_SETMASK, ret_signals, NULL,
				KERNEL_SIGSET_BYTES);
			return -ETIMEDOUT;
		}
	}
	return 0;
}

static void unlock(struct recorder *self, uint64_t signals)
{
	if (__atomic_exchange_n(&self->lock, 0, __ATOMIC_RELEASE) == 2)
		syscall(SYS_futex, &self->lock, (long)FUTEX_WAKE_PRIVATE, 1L, NULL, NULL, 0L);
	syscall(SYS_rt_sigprocmask, (long)SIG_SETMASK, &signals, NULL, KERNEL_SIGSET_BYTES);
}

/* ---- profctl ---- */

static size_t length_of(const char *text, size_t most)
{
	size_t n = 0;

	while (n < most && text[n])
		n++;
	return n;
}

/* Returns false if the result is too long. */
static bool join(char *to, size_t room, const char *first, size_t n_first, const char *last)
{
	size_t n_last = length_of(last, room);

	if (n_first + n_last + 1 > room)
		return false;
	memcpy(to, first, n_first);
	memcpy(to + n_first, last, n_last);
	to[n_first + n_last] = 0;
	return true;
}

static bool is_program(const char *path)
{
	return syscall(SYS_faccessat, (long)AT_FDCWD, path, (long)X_OK) == 0;
}

/* Searches PATH without its empty entries, then the installation directory. */
static bool find_profctl(char path[MAX_PATH])
{
	const char *at = hidden_child_variable("PATH");

	while (at && *at) {
		size_t n = 0;

		while (at[n] && at[n] != ':')
			n++;
		if (n > 0 && join(path, MAX_PATH, at, n, "/profctl") && is_program(path))
			return true;
		at += n + (at[n] ? 1 : 0);
	}
	return join(path, MAX_PATH, PROF_DEFAULT_BIN_DIR, sizeof(PROF_DEFAULT_BIN_DIR) - 1,
		    "/profctl") &&
	       is_program(path);
}

static const char *number(char digits[11], uint32_t value)
{
	char *at = digits + 10;

	*at = 0;
	do {
		*--at = (char)('0' + value % 10);
		value /= 10;
	} while (value > 0);
	return at;
}

/* Starts profctl, which inherits `far_end`. */
static int start_profctl(const struct prof_recorder_options *options, const char *program,
			 const char *path, bool append, int far_end)
{
	char pid[11], frequency[11];
	const char *argv[MAX_ARGUMENTS] = { "profctl", "record", "--quiet",  "--control", "3",
					    "--pid",   NULL,     "--output", path };
	struct hidden_child child = { .path = program, .argv = argv, .fd = far_end };
	size_t n = 9;
	const struct {
		const char *option, *value;
	} given[] = {
		{ "--frequency",
		  options->frequency ? number(frequency, options->frequency) : NULL },
		{ "--call-graph", options->call_graph },
		{ "--event", options->events },
		{ "--bus", options->bus },
	};

	argv[6] = number(pid, (uint32_t)syscall(SYS_getpid));
	if (append)
		argv[n++] = "--append";
	for (size_t i = 0; i < ARRAY_SIZE(given); i++)
		if (given[i].value) {
			argv[n++] = given[i].option;
			argv[n++] = given[i].value;
		}
	return hidden_child_start(&child);
}

/* Translates profctl's exit status. */
static int translate(uint32_t status)
{
	switch (status) {
	case 0:
	case EXIT_INTERRUPTED:
		return 0;
	case EXIT_UNREADABLE:
		return PROF_RECORDER_UNREADABLE;
	case EXIT_NOT_PERMITTED:
		return PROF_RECORDER_NOT_PERMITTED;
	case EXIT_NO_DAEMON:
		return PROF_RECORDER_NO_DAEMON;
	default:
		return PROF_RECORDER_FAILED;
	}
}

/* Receives a report from profctl. Returns 0 if it has the expected kind and is not an error. After
 * CONTROL_REPORT_READY, *ret_switch is the switch. */
static int receive_report(struct recorder *self, uint64_t wait_ns, uint32_t kind, int *ret_switch)
{
	struct control_report report;
	int fd, r = control_receive(self->control.fd, &report, sizeof(report),
				    clock_now() + wait_ns, &fd);

	if (r < 0)
		return r == -ETIMEDOUT ? r : PROF_RECORDER_FAILED;
	report.text[sizeof(report.text) - 1] = 0;
	memcpy(self->message, report.text, sizeof(report.text));
	if (report.magic == CONTROL_REPORT_MAGIC && report.kind == kind && ret_switch && fd >= 0) {
		*ret_switch = fd;
		return 0;
	}
	if (fd >= 0)
		syscall(SYS_close, fd);
	if (report.magic != CONTROL_REPORT_MAGIC || report.kind != CONTROL_REPORT_ENDED)
		return PROF_RECORDER_FAILED;
	r = translate(report.status);
	return kind == CONTROL_REPORT_READY && r == 0 ? PROF_RECORDER_FAILED : r;
}

/* ---- The engine ---- */

/* Requests the start or the end of sampling from the engine, and waits for the answer. */
static int request_switch(struct recorder *self, bool on)
{
	struct control_switch request = { .magic = CONTROL_SWITCH_MAGIC,
					  .serial = ++self->serial,
					  .on = on };
	struct control_switch done = { 0 };
	uint64_t deadline_ns = clock_now() + SWITCH_NS;
	int fd, r;

	if (!control_is_open(&self->toggle))
		return PROF_RECORDER_ENDED;
	r = control_send(self->toggle.fd, &request, sizeof(request), deadline_ns);
	/* The first answer may belong to an earlier request that timed out. */
	while (r == 0 && done.serial != request.serial) {
		r = control_receive(self->toggle.fd, &done, sizeof(done), deadline_ns, &fd);
		if (r == 0 && fd >= 0)
			syscall(SYS_close, fd);
		if (r == 0 && done.magic != CONTROL_SWITCH_MAGIC)
			r = PROF_RECORDER_ENDED;
	}
	if (r != 0)
		return r == -ETIMEDOUT ? r : PROF_RECORDER_ENDED;
	return done.on == request.on ? 0 : PROF_RECORDER_PAUSED;
}

/* ---- Open ---- */

static int connect_profctl(struct recorder *self, const struct prof_recorder_options *options,
			   const char *path)
{
	char program[MAX_PATH];
	bool exists = syscall(SYS_faccessat, (long)AT_FDCWD, path, (long)F_OK) == 0;
	int ends[2], r;

	if (exists && !options->append)
		return -EEXIST;
	if (options->profctl
		    ? !join(program, MAX_PATH, "", 0, options->profctl) || !is_program(program)
		    : !find_profctl(program))
		return PROF_RECORDER_NO_PROFCTL;
	if (syscall(SYS_socketpair, (long)AF_UNIX, (long)(SOCK_SEQPACKET | SOCK_CLOEXEC), 0L,
		    ends) < 0)
		return -errno;
	r = control_adopt(ends[0], &self->control);
	if (r == 0) {
		inherited[0] = self->control;
		r = start_profctl(options, program, path, exists, ends[1]);
	}
	syscall(SYS_close, ends[1]);
	return r;
}

static int open_all(struct recorder *self, const struct prof_recorder_options *options,
		    const char *path)
{
	int fd, r;

	if (register_is_recorded())
		return PROF_RECORDER_RECORDED;
	r = connect_profctl(self, options, path);
	if (r == 0)
		r = receive_report(self, OPEN_NS, CONTROL_REPORT_READY, &fd);
	if (r == 0)
		r = control_adopt(fd, &self->toggle);
	if (r != 0)
		return r;
	inherited[1] = self->toggle;
	r = register_connect(self->message);
	self->message[0] = 0;
	return r == 0 ? 0 : PROF_RECORDER_NO_COLLECTOR;
}

static void disconnect(struct recorder *self)
{
	control_disconnect(&self->toggle);
	control_disconnect(&self->control);
	inherited[0].fd = inherited[1].fd = -1;
}

static bool are_valid(const char *path, const struct prof_recorder_options *options)
{
	size_t n = path ? length_of(path, MAX_PATH) : 0;

	for (size_t i = 0; i < ARRAY_SIZE(options->reserved); i++)
		if (options->reserved[i] != 0)
			return false;
	return n > 0 && n < MAX_PATH && !(n == 1 && path[0] == '-') && options->append <= 1 &&
	       (!options->group || length_of(options->group, MAX_GROUP) < MAX_GROUP);
}

static int begin_open(struct recorder *self, const char *path,
		      const struct prof_recorder_options *options)
{
	static const char group[] = "recorder";
	int r;

	memset(self->blocks, 0, sizeof(self->blocks));
	self->tgid = (uint32_t)syscall(SYS_getpid);
	self->n_open = 0;
	self->message[0] = 0;
	self->control.fd = self->toggle.fd = -1;
	(void)join(self->group, MAX_GROUP, "", 0, options->group ? options->group : group);
	r = open_all(self, options, path);
	if (r != 0)
		disconnect(self);
	return r;
}

int prof_recorder_open(const char *path, const struct prof_recorder_options *options)
{
	static const struct prof_recorder_options defaults;
	int error = errno, r;

	if (!options)
		options = &defaults;
	if (getauxval(AT_SECURE) != 0)
		return -EPERM;
	if (!are_valid(path, options))
		return -EINVAL;
	r = set_up_once();
	if (r == 0 && !claim_state(recorder, RECORDER_CLOSED))
		r = PROF_RECORDER_OPEN;
	if (r == 0) {
		r = begin_open(recorder, path, options);
		set_state(recorder, r == 0 ? RECORDER_OPEN : RECORDER_CLOSED);
	}
	errno = error;
	return r;
}

/* ---- Blocks ---- */

/* Returns the last block of that name that this thread began, or else the last of any thread. */
static struct block *find_open(struct recorder *self, const struct text *name)
{
	uint32_t tid = (uint32_t)syscall(SYS_gettid);
	struct block *found = NULL;

	for (size_t i = 0; i < MAX_BLOCKS; i++) {
		struct block *block = &self->blocks[i];

		if (block->order == 0 || block->hash != name->hash ||
		    block->name_bytes != name->n_bytes)
			continue;
		if (!found || (block->tid == tid) > (found->tid == tid) ||
		    ((block->tid == tid) == (found->tid == tid) && block->order > found->order))
			found = block;
	}
	return found;
}

static int begin(struct recorder *self, const char *name)
{
	struct control_switch off = { .magic = CONTROL_SWITCH_MAGIC };
	struct block *block = self->blocks;
	struct text text;
	uint64_t id;
	int r = 0;

	while (block < self->blocks + MAX_BLOCKS && block->order != 0)
		block++;
	if (block == self->blocks + MAX_BLOCKS)
		return PROF_RECORDER_TOO_MANY;
	id = prof_mark_new_id();
	prof_mark_begin(id, self->group, name, NULL, 0);
	if (self->n_open == 0)
		r = request_switch(self, true);
	if (r != 0) {
		/* The engine must not keep sampling, whether or not it received the request. */
		off.serial = ++self->serial;
		if (control_is_open(&self->toggle))
			(void)!control_send(self->toggle.fd, &off, sizeof(off), 0);
		prof_mark_end(id, self->group, name, NULL, 0);
		return r;
	}
	intern_measure(name, &text);
	*block = (struct block){ .id = id,
				 .hash = text.hash,
				 .order = ++self->order,
				 .name_bytes = text.n_bytes,
				 .tid = (uint32_t)syscall(SYS_gettid) };
	self->n_open++;
	return 0;
}

static int end(struct recorder *self, const char *name)
{
	struct text text;
	struct block *block;
	int r = 0;

	intern_measure(name, &text);
	block = find_open(self, &text);
	if (!block)
		return PROF_RECORDER_NO_BLOCK;
	if (--self->n_open == 0)
		r = request_switch(self, false);
	prof_mark_end(block->id, self->group, name, NULL, 0);
	block->order = 0;
	return r;
}

static int locked(int (*act)(struct recorder *self, const char *name), const char *name)
{
	struct recorder *self = get();
	int error = errno, r;
	uint64_t signals;

	if (!self)
		return PROF_RECORDER_NOT_OPEN;
	r = lock(self, &signals);
	if (r == 0) {
		r = get() ? act(self, name ? name : "block") : PROF_RECORDER_NOT_OPEN;
		unlock(self, signals);
	}
	errno = error;
	return r;
}

int prof_recorder_begin(const char *name)
{
	return locked(begin, name);
}

int prof_recorder_end(const char *name)
{
	return locked(end, name);
}

/* ---- Close ---- */

int prof_recorder_close(void)
{
	struct recorder *self = get();
	int error = errno, r;
	uint64_t signals;

	if (!self || !claim_state(self, RECORDER_OPEN))
		return PROF_RECORDER_NOT_OPEN;
	/* After this, no other thread is in begin or end, unless the wait timed out. */
	if (lock(self, &signals) == 0)
		unlock(self, signals);
	r = control_is_open(&self->control) ? 0 : PROF_RECORDER_FAILED;
	if (r == 0)
		syscall(SYS_shutdown, self->control.fd, (long)SHUT_WR);
	if (r == 0)
		r = receive_report(self, CLOSE_NS, CONTROL_REPORT_ENDED, NULL);
	register_leave();
	disconnect(self);
	set_state(self, RECORDER_CLOSED);
	errno = error;
	return r;
}

/* ---- Messages ---- */

const char *prof_recorder_message(void)
{
	const struct recorder *self = __atomic_load_n(&recorder, __ATOMIC_ACQUIRE);

	return self ? self->message : "";
}

const char *prof_recorder_error(int status)
{
	static const char *const texts[] = {
		[0] = "no error",
		[PROF_RECORDER_NO_PROFCTL] = "profctl was not found",
		[PROF_RECORDER_NOT_PERMITTED] = "recording is not permitted",
		[PROF_RECORDER_NO_DAEMON] = "no profd is running that could record",
		[PROF_RECORDER_UNREADABLE] = "the file to continue is not a capture, or is damaged",
		[PROF_RECORDER_FAILED] = "profctl failed",
		[PROF_RECORDER_NO_COLLECTOR] = "this process could not register with the recording",
		[PROF_RECORDER_RECORDED] = "this process is recorded by somebody else already",
		[PROF_RECORDER_OPEN] = "a recorder is open already",
		[PROF_RECORDER_NOT_OPEN] = "no recorder is open in this process",
		[PROF_RECORDER_NO_BLOCK] = "no block of this name is open",
		[PROF_RECORDER_TOO_MANY] = "too many blocks are open",
		[PROF_RECORDER_PAUSED] = "somebody else has paused the recording",
		[PROF_RECORDER_ENDED] = "the recording is over",
	};
	static const struct {
		int status;
		const char *text;
	} errors[] = {
		{ -EINVAL, "an argument or option is not valid" },
		{ -EEXIST, "the file exists already, and is not to be continued" },
		{ -EPERM, "programs with another's rights record nothing" },
		{ -ETIMEDOUT, "there was no answer in time" },
		{ -ENOMEM, "there is no memory" },
		{ -EMFILE, "there are too many open files" },
		{ -EACCES, "profctl may not be executed" },
	};

	if (status >= 0 && (size_t)status < ARRAY_SIZE(texts))
		return texts[status];
	for (size_t i = 0; i < ARRAY_SIZE(errors); i++)
		if (errors[i].status == status)
			return errors[i].text;
	return "a system call failed";
}
