/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Access check - checks in a thread whether processes belong to a user
 *
 * Each thread of each process must be checked (daemon/process-access.h), which takes half a second
 * for ten thousand threads, and other clients must not wait meanwhile. So each question gets its
 * own thread, which reads only the question's data.
 * Invariants: (1) the main loop never waits for a thread
 *                 [test_bus: test_others_are_served_while_many_threads_are_looked_at]
 *             (2) each question is answered once, even if profd ends
 *                 [test_bus: test_end_while_many_threads_are_looked_at]
 * Main thread only, except run().
 */
#include "config.h"

#include "daemon/broker/access-check.h"

#include "daemon/broker/error.h"

struct question {
	struct targets *targets;
	uid_t uid;
	bool owned; /* written by the thread, read in on_done() */
	void (*answer)(struct targets *targets, bool owned, const GError *error, void *data);
	void *data;
};

static GSList *pending; /* struct question */

static gboolean on_done(gpointer data)
{
	struct question *question = data;

	if (question->answer)
		question->answer(question->targets, question->owned, NULL, question->data);
	else
		targets_free(question->targets);
	pending = g_slist_remove(pending, question);
	g_free(question);
	return G_SOURCE_REMOVE;
}

static gpointer run(gpointer data)
{
	struct question *question = data;

	question->owned = targets_check(question->targets, question->uid, NULL);
	g_idle_add_full(G_PRIORITY_DEFAULT, on_done, question, NULL);
	return NULL;
}

void access_check_request(struct targets *targets, uid_t uid,
			  void (*answer)(struct targets *targets, bool owned, const GError *error,
					 void *data),
			  void *data)
{
	struct question *question = g_new(struct question, 1);
	g_autoptr(GError) error = NULL;
	GThread *thread;

	*question =
		(struct question){ .targets = targets, .uid = uid, .answer = answer, .data = data };
	pending = g_slist_prepend(pending, question);
	thread = g_thread_try_new("access-check", run, question, &error);
	if (thread) {
		g_thread_unref(thread);
		return;
	}
	pending = g_slist_remove(pending, question);
	g_free(question);
	targets_free(targets);
	answer(NULL, false, error, data);
}

unsigned access_check_pending(uid_t uid)
{
	unsigned n = 0;

	for (const GSList *item = pending; item; item = item->next)
		n += ((const struct question *)item->data)->uid == uid;
	return n;
}

/* Answers all pending questions with an error. Their threads continue, but nothing waits for
 * them. */
void access_check_end(void)
{
	g_autoptr(GError) error = NULL;

	broker_fail(&error, BROKER_ERROR_FAILED, "profd ends");
	for (const GSList *item = pending; item; item = item->next) {
		struct question *question = item->data;

		if (question->answer)
			question->answer(NULL, false, error, question->data);
		question->answer = NULL;
	}
}
