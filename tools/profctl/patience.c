/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "config.h"

#include "tools/profctl/patience.h"

#include "arch/errno-text.h"
#include "tools/common/cli.h"

#include <errno.h>
#include <glib-unix.h>
#include <glib/gi18n.h>

struct patience {
	GCancellable *cancellable;
	GMainContext *context;
	GMainLoop *loop;
	GThread *thread;
	unsigned seconds;
	bool has_signal; /* else, if it was cancelled, the time is over */
};

static gboolean on_signal(gpointer data)
{
	struct patience *patience = data;

	patience->has_signal = true;
	g_cancellable_cancel(patience->cancellable);
	return G_SOURCE_CONTINUE;
}

static gboolean on_timeout(gpointer data)
{
	const struct patience *patience = data;

	g_cancellable_cancel(patience->cancellable);
	return G_SOURCE_REMOVE;
}

static gboolean on_end(gpointer data)
{
	g_main_loop_quit(data);
	return G_SOURCE_REMOVE;
}

static void add(const struct patience *patience, GSource *source, GSourceFunc callback, void *data)
{
	g_source_set_callback(source, callback, data, NULL);
	g_source_attach(source, patience->context);
	g_source_unref(source);
}

static gpointer run(gpointer data)
{
	const struct patience *patience = data;

	g_main_loop_run(patience->loop);
	return NULL;
}

struct patience *patience_begin(unsigned seconds, GError **error)
{
	struct patience *patience = g_new0(struct patience, 1);

	patience->seconds = seconds;
	patience->cancellable = g_cancellable_new();
	patience->context = g_main_context_new();
	patience->loop = g_main_loop_new(patience->context, FALSE);
	add(patience, g_unix_signal_source_new(SIGINT), on_signal, patience);
	add(patience, g_unix_signal_source_new(SIGTERM), on_signal, patience);
	add(patience, g_timeout_source_new_seconds(seconds), on_timeout, patience);
	patience->thread = g_thread_try_new("patience", run, patience, NULL);
	if (patience->thread)
		return patience;
	g_set_error(error, CLI_ERROR, CLI_FAILURE, _("cannot start a thread: %s"),
		    ERRNO_TEXT(EAGAIN));
	patience_end(patience, true, NULL);
	return NULL;
}

GCancellable *patience_cancellable(const struct patience *patience)
{
	return patience->cancellable;
}

bool patience_end(struct patience *patience, bool ok, GError **error)
{
	if (!patience)
		return ok;
	if (patience->thread) {
		add(patience, g_idle_source_new(), on_end, patience->loop);
		g_thread_join(patience->thread);
	}
	if (!ok && g_cancellable_is_cancelled(patience->cancellable)) {
		g_clear_error(error);
		if (patience->has_signal)
			g_set_error(error, CLI_ERROR, CLI_INTERRUPTED,
				    _("interrupted before profd answered"));
		else
			g_set_error(error, CLI_ERROR, CLI_NO_DAEMON,
				    _("profd did not answer for %u s"), patience->seconds);
	}
	g_main_loop_unref(patience->loop);
	g_main_context_unref(patience->context);
	g_object_unref(patience->cancellable);
	g_free(patience);
	return ok;
}
