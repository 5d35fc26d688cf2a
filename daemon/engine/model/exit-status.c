/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Exit status - exit statuses of registered processes, as wait() reports them to their parents
 *
 * Perf reports that a task ended, but not its exit status. Since Linux 6.15 a pidfd reports it once
 * the process has been waited for, which may never happen. The status becomes a row of table task
 * with event `status`, after the exit row, with the time of the latest row. There is no such row on
 * older kernels, or if no process waits for the exit.
 * Invariants: (1) at most one row per process, and only with a status that the kernel reported
 *                 [test_memory_life: end, status]
 *             (2) no more than MAX_WAITING descriptors are kept: the oldest is dropped
 * Runs on the drain thread only.
 */
#include "daemon/engine/model/exit-status.h"

#include "arch/base.h"
#include "arch/uapi.h"

#define MAX_WAITING 128u
#define PATIENCE_STEPS 50 /* steps of 2 ms: if an exit ends the session, wait() follows soon */

struct unknown_exit {
	struct thread *leader; /* referenced */
	int pidfd;
};

void exit_statuses_init(struct exit_statuses *statuses, struct tasks *tasks)
{
	*statuses = (struct exit_statuses){ .tasks = tasks, .waiting = G_QUEUE_INIT };
}

static void unknown_exit_free(gpointer data)
{
	struct unknown_exit *exit = data;

	close(exit->pidfd);
	row_unref(&exit->leader->row);
	g_free(exit);
}

void exit_statuses_done(struct exit_statuses *statuses)
{
	g_queue_clear_full(&statuses->waiting, unknown_exit_free);
}

void exit_statuses_add(struct exit_statuses *statuses, struct thread *leader, int pidfd)
{
	struct unknown_exit *exit = g_new(struct unknown_exit, 1);

	*exit = (struct unknown_exit){ (struct thread *)row_ref(&leader->row), pidfd };
	g_queue_push_tail(&statuses->waiting, exit);
	if (statuses->waiting.length > MAX_WAITING)
		unknown_exit_free(g_queue_pop_head(&statuses->waiting));
}

void exit_statuses_run(struct exit_statuses *statuses)
{
	GList *next;

	for (GList *item = statuses->waiting.head; item; item = next) {
		const struct unknown_exit *exit = item->data;
		struct uapi_pidfd_info info = { .mask = UAPI_PIDFD_INFO_EXIT };

		next = item->next;
		if (ioctl(exit->pidfd, UAPI_PIDFD_GET_INFO, &info) < 0 ||
		    !(info.mask & UAPI_PIDFD_INFO_EXIT))
			continue;
		tasks_add_status(statuses->tasks, exit->leader, info.exit_code);
		unknown_exit_free(item->data);
		g_queue_delete_link(&statuses->waiting, item);
	}
}

/* Returns whether an ended process still has an unknown status. */
static bool has_ended(const struct exit_statuses *statuses)
{
	for (const GList *item = statuses->waiting.head; item; item = item->next)
		if (((const struct unknown_exit *)item->data)->leader->exit_ns)
			return true;
	return false;
}

void exit_statuses_finish(struct exit_statuses *statuses)
{
	exit_statuses_run(statuses);
	for (int i = 0; i < PATIENCE_STEPS && has_ended(statuses); i++) {
		g_usleep(2000);
		exit_statuses_run(statuses);
	}
}
