/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Helper - one profd-files process as profd sees it: a socket, and a page with its status
 *
 * Nothing here waits for the process. files.c decides what it is asked, and how a stuck request is
 * handled.
 * Invariants: (1) a process that is starved of CPU time, or has not begun, is not stuck before
 *                 STARTING_US
 *             (2) a process that was freed is reaped, whenever the kernel lets it exit
 * (stall-quota.c) Main thread only.
 */
#include "config.h"

#include "arch/errno-text.h"
#include "daemon/broker/helper.h"

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

#define STARTING_US (10 * 1000000) /* limit for beginning, which is charged to nobody */
#define PAGE_BYTES 4096

struct helper {
	const struct helper_listener *listener;
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
	struct helper *helper = data;

	/* the listener removes the watch if it must end, and may free the helper */
	helper->listener->input(helper, helper->data);
	return G_SOURCE_CONTINUE;
}

static void on_child_exit(GPid pid, gint wait_status, gpointer data)
{
	struct helper *helper = data;

	helper->child_watch = 0;
	helper->pid = 0;
	helper->listener->ended(helper, helper->data);
}

/* Makes a page that nobody can shrink while we use it. */
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

static void release(struct helper *helper)
{
	g_clear_handle_id(&helper->input_watch, g_source_remove);
	g_clear_handle_id(&helper->child_watch, g_source_remove);
	if (helper->socket >= 0)
		close(helper->socket);
	if (helper->status)
		munmap(helper->status, PAGE_BYTES);
	g_free(helper);
}

static bool start(struct helper *helper, GError **error)
{
	CLEANUP_CLOSE int page = make_page(&helper->status);
	CLEANUP_CLOSE int theirs = -1;
	int sockets[2];

	if (page < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0)
		return broker_fail(error, BROKER_ERROR_FAILED,
				   "making a socket or a page of memory: %s", ERRNO_TEXT(errno));
	helper->socket = sockets[0];
	theirs = sockets[1];
	return child_spawn("profd-files", NULL, (const int[]){ theirs, page }, 2, &helper->pid,
			   error);
}

struct helper *helper_new(const struct files_config *config, const struct helper_listener *listener,
			  void *data, GError **error)
{
	const struct iovec part = { (void *)config, sizeof(*config) };
	struct helper *helper;

	if (stall_quota_is_full()) {
		broker_fail(error, BROKER_ERROR_FAILED,
			    "too many files of this machine's processes cannot be opened");
		return NULL;
	}
	helper = g_new0(struct helper, 1);
	helper->listener = listener;
	helper->data = data;
	helper->socket = -1;
	if (!start(helper, error)) {
		release(helper);
		return NULL;
	}
	datagram_send(helper->socket, &part, 1, -1, MSG_DONTWAIT);
	helper->child_watch = g_child_watch_add(helper->pid, on_child_exit, helper);
	helper->input_watch =
		watch_add(helper->socket, G_IO_IN | G_IO_HUP | G_IO_ERR, on_input, helper);
	helper->seen_us = g_get_monotonic_time();
	return helper;
}

static void on_reaped(GPid pid, gint wait_status, gpointer data)
{
}

void helper_free(struct helper *helper, bool busy, uid_t uid)
{
	pid_t pid = helper->pid, target = helper_target(helper);

	release(helper);
	if (!pid)
		return;
	kill(pid, SIGKILL);
	if (busy)
		stall_quota_reap(pid, uid, target);
	else
		g_child_watch_add(pid, on_reaped, NULL);
}

void helper_give_up(struct helper *helper, uid_t uid)
{
	pid_t pid = helper->pid, target = helper_target(helper);

	release(helper);
	if (!pid)
		return;
	kill(pid, SIGKILL);
	stall_quota_add(pid, uid, target);
}

/* ---- Requests and answers -------------------------------------------------------------------- */

bool helper_send(struct helper *helper, const struct files_request *message, const char *path,
		 int fd, bool is_first)
{
	const struct iovec parts[] = {
		{ (void *)message, sizeof(*message) },
		{ (void *)path, path ? strlen(path) : 0 },
	};

	if (is_first)
		helper->seen_us = g_get_monotonic_time();
	return datagram_send(helper->socket, parts, ARRAY_SIZE(parts), fd, MSG_DONTWAIT);
}

void helper_reject(struct helper *helper)
{
	g_clear_handle_id(&helper->input_watch, g_source_remove);
	if (helper->pid)
		kill(helper->pid, SIGKILL);
}

bool helper_receive(struct helper *helper, struct files_answer *ret_answer, int *ret_fd)
{
	struct files_answer answer;
	CLEANUP_CLOSE int fd = -1;
	ssize_t n;

	if (!helper->input_watch)
		return false;
	/* ECONNRESET is reported once if the process ended with requests of ours unread. Its own
	 * answers come after that. */
	do {
		n = datagram_receive(helper->socket, &answer, sizeof(answer), MSG_DONTWAIT, &fd);
	} while (n < 0 && errno == ECONNRESET);
	if (n < 0 && errno == EAGAIN)
		return false;
	if (n <= 0) { /* the end, which on_child_exit() handles */
		g_clear_handle_id(&helper->input_watch, g_source_remove);
		return false;
	}
	if (n != (ssize_t)sizeof(answer)) {
		helper_reject(helper);
		return false;
	}
	helper->seen_us = g_get_monotonic_time();
	*ret_answer = answer;
	*ret_fd = steal_fd(&fd);
	return true;
}

/* ---- Status ---------------------------------------------------------------------------------- */

static uint32_t progress_of(const struct helper *helper)
{
	return __atomic_load_n(&helper->status->progress, __ATOMIC_RELAXED);
}

bool helper_has_begun(const struct helper *helper)
{
	return progress_of(helper) != 0;
}

bool helper_is_at(const struct helper *helper, uint32_t serial)
{
	/* pairs with status_begin() */
	return __atomic_load_n(&helper->status->serial, __ATOMIC_ACQUIRE) == serial;
}

bool helper_stop_behind(struct helper *helper, uint32_t serial)
{
	/* pairs with status_begin(), which stores and loads in the opposite order: one side sees
	 * the other's store */
	__atomic_store_n(&helper->status->stop, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&helper->status->serial, __ATOMIC_SEQ_CST) == serial)
		return true;
	__atomic_store_n(&helper->status->stop, 0, __ATOMIC_RELAXED);
	return false;
}

pid_t helper_target(const struct helper *helper)
{
	return helper->status ? __atomic_load_n(&helper->status->pid, __ATOMIC_RELAXED) : 0;
}

uint64_t helper_bytes(const struct helper *helper)
{
	/* pairs with status_set_bytes() */
	return __atomic_load_n(&helper->status->bytes, __ATOMIC_ACQUIRE);
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

bool helper_is_stuck(struct helper *helper, int64_t patience_us)
{
	uint32_t progress = progress_of(helper);
	int64_t now = g_get_monotonic_time();

	if (progress != helper->seen_progress) {
		helper->seen_progress = progress;
		helper->seen_us = now;
	}
	if (now - helper->seen_us < patience_us)
		return false;
	return now - helper->seen_us >= STARTING_US || (progress != 0 && !is_starved(helper->pid));
}
