/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Endings - exit statuses of processes, as wait() reports them to their parents
 *
 * Perf reports that a task ended, but not its exit status. A pidfd reports it since Linux 6.15,
 * once the process has been waited for, which may never happen. So a row of task with event
 * `status` follows the exit row, with the time of the latest row. On older kernels, and for a
 * process that is not waited for, there is no such row.
 * Invariants: (1) at most one row a process, and only with a status that the kernel reported
 *                 [test_memory_life: end, status]
 *             (2) no more than MAX_WAITING descriptors are kept: the oldest is dropped
 * Runs on the drain thread only.
 */
#include "daemon/engine/endings.h"

#include "arch/base.h"
#include "arch/uapi.h"

#define MAX_WAITING 128u
#define PATIENCE_STEPS 50 /* of 2 ms: if an exit ends the session, the parent waits soon */

struct ending {
	struct thread *leader; /* a reference */
	int pidfd;
};

void endings_init(struct endings *endings, struct tasks *tasks)
{
	*endings = (struct endings){ .tasks = tasks, .waiting = G_QUEUE_INIT };
}

static void ending_free(gpointer data)
{
	struct ending *ending = data;

	close(ending->pidfd);
	row_unref(&ending->leader->row);
	g_free(ending);
}

void endings_done(struct endings *endings)
{
	g_queue_clear_full(&endings->waiting, ending_free);
}

void endings_add(struct endings *endings, struct thread *leader, int pidfd)
{
	struct ending *ending = g_new(struct ending, 1);

	*ending = (struct ending){ (struct thread *)row_ref(&leader->row), pidfd };
	g_queue_push_tail(&endings->waiting, ending);
	if (endings->waiting.length > MAX_WAITING)
		ending_free(g_queue_pop_head(&endings->waiting));
}

static bool tell(struct tasks *tasks, const struct ending *ending)
{
	struct uapi_pidfd_info info = { .mask = UAPI_PIDFD_INFO_EXIT };

	if (ioctl(ending->pidfd, UAPI_PIDFD_GET_INFO, &info) < 0 ||
	    !(info.mask & UAPI_PIDFD_INFO_EXIT))
		return false;
	tasks_add_status(tasks, ending->leader, info.exit_code);
	return true;
}

void endings_run(struct endings *endings)
{
	GList *next;

	for (GList *item = endings->waiting.head; item; item = next) {
		next = item->next;
		if (!tell(endings->tasks, item->data))
			continue;
		ending_free(item->data);
		g_queue_delete_link(&endings->waiting, item);
	}
}

static bool is_one_over(const struct endings *endings)
{
	for (const GList *item = endings->waiting.head; item; item = item->next)
		if (((const struct ending *)item->data)->leader->exit_ns)
			return true;
	return false;
}

void endings_finish(struct endings *endings)
{
	endings_run(endings);
	for (int i = 0; i < PATIENCE_STEPS && is_one_over(endings); i++) {
		g_usleep(2000);
		endings_run(endings);
	}
}
