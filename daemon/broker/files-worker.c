/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Files worker - runs one profd-files process, through a socket and a page with its status
 *
 * Never waits for the process. files.c decides what is requested, and how a stuck request is
 * handled.
 * Invariants: (1) a process that is starved of CPU time, or has not started to work, counts as
 *                 stuck only after STARTING_US
 *             (2) a process whose files_worker was freed is reaped when the kernel lets the process
 *                 exit (stall-quota.c)
 * Main thread only.
 */
#include "config.h"

#include "arch/errno-text.h"
#include "daemon/broker/files-worker.h"

#include "arch/base.h"
#include "daemon/broker/child.h"
#include "daemon/broker/error.h"
#include "daemon/broker/stall-quota.h"
#include "daemon/broker/watch.h"
#include "daemon/datagram.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>

/* Time limit for a process that has not begun to work or gets no CPU time. */
#define STARTING_US (10 * 1000000)
#define PAGE_BYTES 4096

struct files_worker {
	const struct files_worker_listener *listener;
	void *data;
	pid_t pid;
	int socket;
	struct files_status *status;
	guint child_watch, input_watch;
	uint32_t seen_progress;
	int64_t seen_us;
};

/* ---- Starting and ending --------------------------------------------------------------------- */

static gboolean on_input(gint fd, GIOCondition condition, gpointer data)
{
	struct files_worker *worker = data;

	/* The listener may free the worker. At the socket's end, files_worker_receive() removes the
	 * watch. */
	worker->listener->input(worker, worker->data);
	return G_SOURCE_CONTINUE;
}

static void on_child_exit(GPid pid, gint wait_status, gpointer data)
{
	struct files_worker *worker = data;

	worker->child_watch = 0;
	worker->pid = 0;
	worker->listener->ended(worker, worker->data);
}

/* Makes a page that no process can shrink. */
static int make_page(struct files_status **ret_status)
{
	CLEANUP_CLOSE int fd = memfd_create("prof-status", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	void *page;

	if (fd < 0 || ftruncate(fd, PAGE_BYTES) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		return -1;
	page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED)
		return -1;
	*ret_status = page;
	return steal_fd(&fd);
}

static void release(struct files_worker *worker)
{
	g_clear_handle_id(&worker->input_watch, g_source_remove);
	g_clear_handle_id(&worker->child_watch, g_source_remove);
	if (worker->socket >= 0)
		close(worker->socket);
	if (worker->status)
		munmap(worker->status, PAGE_BYTES);
	g_free(worker);
}

static bool start(struct files_worker *worker, GError **error)
{
	CLEANUP_CLOSE int page = make_page(&worker->status);
	CLEANUP_CLOSE int theirs = -1;
	int sockets[2];

	if (page < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0)
		return broker_fail(error, BROKER_ERROR_FAILED,
				   "making a socket or a page of memory: %s", ERRNO_TEXT(errno));
	worker->socket = sockets[0];
	theirs = sockets[1];
	return child_spawn("profd-files", NULL, (const int[]){ theirs, page }, 2, &worker->pid,
			   error);
}

struct files_worker *files_worker_new(const struct files_config *config,
				      const struct files_worker_listener *listener, void *data,
				      GError **error)
{
	const struct iovec part = { (void *)config, sizeof(*config) };
	struct files_worker *worker;

	if (stall_quota_is_full()) {
		broker_fail(error, BROKER_ERROR_FAILED,
			    "too many files of this machine's processes cannot be opened");
		return NULL;
	}
	worker = g_new0(struct files_worker, 1);
	worker->listener = listener;
	worker->data = data;
	worker->socket = -1;
	if (!start(worker, error)) {
		release(worker);
		return NULL;
	}
	datagram_send(worker->socket, &part, 1, -1, MSG_DONTWAIT);
	worker->child_watch = g_child_watch_add(worker->pid, on_child_exit, worker);
	worker->input_watch =
		watch_add(worker->socket, G_IO_IN | G_IO_HUP | G_IO_ERR, on_input, worker);
	worker->seen_us = g_get_monotonic_time();
	return worker;
}

static void on_reaped(GPid pid, gint wait_status, gpointer data)
{
}

void files_worker_free(struct files_worker *worker, bool busy, uid_t uid)
{
	pid_t pid = worker->pid, target = files_worker_target(worker);

	release(worker);
	if (!pid)
		return;
	kill(pid, SIGKILL);
	if (busy)
		stall_quota_reap(pid, uid, target);
	else
		g_child_watch_add(pid, on_reaped, NULL);
}

void files_worker_give_up(struct files_worker *worker, uid_t uid)
{
	pid_t pid = worker->pid, target = files_worker_target(worker);

	release(worker);
	if (!pid)
		return;
	kill(pid, SIGKILL);
	stall_quota_add(pid, uid, target);
}

/* ---- Requests and answers -------------------------------------------------------------------- */

bool files_worker_send(struct files_worker *worker, const struct files_request *message,
		       const char *path, int fd, bool is_first)
{
	const struct iovec parts[] = {
		{ (void *)message, sizeof(*message) },
		{ (void *)path, path ? strlen(path) : 0 },
	};

	if (is_first)
		worker->seen_us = g_get_monotonic_time();
	return datagram_send(worker->socket, parts, ARRAY_SIZE(parts), fd, MSG_DONTWAIT);
}

void files_worker_reject(struct files_worker *worker)
{
	g_clear_handle_id(&worker->input_watch, g_source_remove);
	if (worker->pid)
		kill(worker->pid, SIGKILL);
}

bool files_worker_receive(struct files_worker *worker, struct files_answer *ret_answer, int *ret_fd)
{
	struct files_answer answer;
	CLEANUP_CLOSE int fd = -1;
	ssize_t n;

	if (!worker->input_watch)
		return false;
	/* ECONNRESET is reported once if the process ended without reading all requests. The
	 * answers that it sent can be received afterwards. */
	do {
		n = datagram_receive(worker->socket, &answer, sizeof(answer), MSG_DONTWAIT, &fd);
	} while (n < 0 && errno == ECONNRESET);
	if (n < 0 && errno == EAGAIN)
		return false;
	if (n <= 0) { /* the socket's end, which on_child_exit() handles */
		g_clear_handle_id(&worker->input_watch, g_source_remove);
		return false;
	}
	if (n != (ssize_t)sizeof(answer)) {
		files_worker_reject(worker);
		return false;
	}
	worker->seen_us = g_get_monotonic_time();
	*ret_answer = answer;
	*ret_fd = steal_fd(&fd);
	return true;
}

/* ---- Status ---------------------------------------------------------------------------------- */

static uint32_t progress_of(const struct files_worker *worker)
{
	return __atomic_load_n(&worker->status->progress, __ATOMIC_RELAXED);
}

bool files_worker_has_begun(const struct files_worker *worker)
{
	return progress_of(worker) != 0;
}

bool files_worker_is_at(const struct files_worker *worker, uint32_t serial)
{
	/* Pairs with status_begin(). */
	return __atomic_load_n(&worker->status->serial, __ATOMIC_ACQUIRE) == serial;
}

bool files_worker_stop_behind(struct files_worker *worker, uint32_t serial)
{
	/* Pairs with status_begin(), which stores serial before it loads stop: at least one side
	 * sees the other's store. */
	__atomic_store_n(&worker->status->stop, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&worker->status->serial, __ATOMIC_SEQ_CST) == serial)
		return true;
	__atomic_store_n(&worker->status->stop, 0, __ATOMIC_RELAXED);
	return false;
}

pid_t files_worker_target(const struct files_worker *worker)
{
	return worker->status ? __atomic_load_n(&worker->status->pid, __ATOMIC_RELAXED) : 0;
}

uint64_t files_worker_bytes(const struct files_worker *worker)
{
	/* Pairs with status_set_bytes(). */
	return __atomic_load_n(&worker->status->bytes, __ATOMIC_ACQUIRE);
}

static bool is_starved(pid_t pid)
{
	g_autofree char *text = NULL;
	char path[48];
	const char *state;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	if (!g_file_get_contents(path, &text, NULL, NULL))
		return false;
	state = strrchr(text, ')');
	return state && strncmp(state, ") R", 3) == 0;
}

bool files_worker_is_stuck(struct files_worker *worker, int64_t patience_us)
{
	uint32_t progress = progress_of(worker);
	int64_t now = g_get_monotonic_time();

	if (progress != worker->seen_progress) {
		worker->seen_progress = progress;
		worker->seen_us = now;
	}
	if (now - worker->seen_us < patience_us)
		return false;
	return now - worker->seen_us >= STARTING_US || (progress != 0 && !is_starved(worker->pid));
}
