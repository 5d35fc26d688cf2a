/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "config.h"

#include "tools/profctl/worker.h"

#include "arch/errno-text.h"
#include "tools/common/cli.h"

#include <errno.h>
#include <glib/gi18n.h>

struct job {
	void (*work)(void *data);
	void (*done)(void *data);
	void *data;
};

static gboolean finish(gpointer data)
{
	g_autofree struct job *job = data;

	job->done(job->data);
	return G_SOURCE_REMOVE;
}

static gpointer run(gpointer data)
{
	struct job *job = data;

	job->work(job->data);
	g_idle_add_full(G_PRIORITY_DEFAULT, finish, job, NULL);
	return NULL;
}

bool worker_start(void (*work)(void *data), void (*done)(void *data), void *data, GError **error)
{
	struct job *job = g_new(struct job, 1);
	GThread *thread;

	*job = (struct job){ work, done, data };
	thread = g_thread_try_new("worker", run, job, NULL);
	if (thread) {
		g_thread_unref(thread);
		return true;
	}
	g_free(job);
	return cli_set_error(error, CLI_FAILURE, _("cannot start a thread: %s"),
			     ERRNO_TEXT(EAGAIN));
}
