/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Authority - queries polkit; only a clear yes grants anything
 *
 * Invariants: (1) GRANTED comes only from a polkit result that authorizes the action; an error, a
 *                 timeout, a missing polkitd and a caller that has left all mean DENIED
 *                 [test_bus_polkit: without polkit, one hangs]
 *             (2) the subject is the caller's unique name on the bus, which is never reused; it is
 *                 never a pid, which another process may have by the time of the check
 *                 [test_bus_polkit: each action]
 *             (3) profd never waits, even if polkitd hangs  [test_bus_polkit: polkit that hangs]
 *             (4) all connections of a user together have at most MAX_PENDING open prompts and
 *                 MAX_PENDING other open questions; a question is open until all its actions are
 *                 answered  [test_bus_polkit: are bounded]
 *             (5) a grant takes effect with the last answer, and only if the caller is still on the
 *                 bus  [test_bus_polkit: caller leaves between answers]
 *             (6) the prompts and questions of a caller that leaves are canceled
 *                 [test_bus_polkit: prompt goes, caller who leaves]
 *             (7) authority_end() answers every question, so that no caller's data waits forever
 *                 [test_bus_polkit: end with open]
 * A question with a prompt waits for the user's answer. Any other question is canceled after
 * QUIET_PATIENCE_MS.
 * polkit's library uses the connection on which profd serves, because GIO shares one system bus
 * connection per process.
 */
#include "config.h"

#include "daemon/broker/authority.h"

#include "arch/base.h"
#include "daemon/broker/error.h"
#include "daemon/broker/target.h"

#include <assert.h>
#include <glib/gi18n.h>
#include <polkit/polkit.h>

#define MAX_PENDING 8
#define QUIET_PATIENCE_MS 10000

struct authority {
	PolkitAuthority *polkit;
	GPtrArray *pending; /* struct pending_query */
	bool ended;
};

/* The check of one action. A query has a check for each of its actions. */
struct check {
	struct pending_query *query;
	enum authority_action action;
};

struct pending_query {
	struct authority *authority; /* NULL: already answered by authority_end() */
	struct bus_peer *caller;
	GCancellable *cancellable; /* cancels all checks */
	guint timer;
	bool interactive, first_decides;
	unsigned n, n_left; /* number of checks; number of unanswered checks */
	struct check checks[AUTHORITY_MAX_ACTIONS];
	struct authority_reply reply;
	void (*answer)(const struct authority_reply *reply, void *data);
	void *data;
};

/* In a message, polkitd replaces each $(NAME) by the detail with that name. */
static const struct {
	const char *id;
	const char *message;
} actions[] = {
	[AUTHORITY_RECORD_OWN] = { "org.profd.record-own",
				   N_("$(program) (process $(pid) of user $(user)) wants to record $(target)") },
	[AUTHORITY_RECORD_OTHERS] = { "org.profd.record-others",
				      N_("$(program) (process $(pid) of user $(user)) wants to record $(target), which is not theirs") },
	[AUTHORITY_RECORD_SYSTEM] = { "org.profd.record-system",
				      N_("$(program) (process $(pid) of user $(user)) wants to record everything that runs on this system") },
	[AUTHORITY_KERNEL_ADDRESSES] = { "org.profd.kernel-addresses",
					 N_("$(program) (process $(pid) of user $(user)) wants to see what the kernel does") },
	[AUTHORITY_MANAGE_OTHERS] = { "org.profd.manage-others",
				      N_("$(program) (process $(pid) of user $(user)) wants to see or control a recording of another user") },
};
static_assert(ARRAY_SIZE(actions) == AUTHORITY_ACTIONS, "each action has its text");

/* ---- What the prompt says -------------------------------------------------------------------- */

static PolkitDetails *details_new(const struct authority_question *question,
				  enum authority_action action)
{
	const struct bus_peer *caller = question->caller;
	g_autofree char *program = target_name(caller->pid);
	g_autofree char *pid = g_strdup_printf("%d", (int)caller->pid);
	g_autofree char *uid = g_strdup_printf("%u", (unsigned)caller->uid);
	PolkitDetails *details = polkit_details_new();

	/* Show the uid, because looking up a name may hang in a name service. */
	polkit_details_insert(details, "user", uid);
	polkit_details_insert(details, "pid", pid);
	polkit_details_insert(details, "program", program);
	polkit_details_insert(details, "target", question->target ? question->target : "-");
	polkit_details_insert(details, "polkit.message", actions[action].message);
	polkit_details_insert(details, "polkit.gettext_domain", GETTEXT_PACKAGE);
	return details;
}

/* ---- A question ------------------------------------------------------------------------------ */

static void give_up(struct pending_query *query)
{
	g_cancellable_cancel(query->cancellable);
}

static gboolean on_patience_end(gpointer data)
{
	struct pending_query *query = data;

	query->timer = 0;
	give_up(query);
	return G_SOURCE_REMOVE;
}

static enum authority_answer read_result(PolkitAuthorizationResult *result, const GError *failure,
					 const struct check *check, GError **error)
{
	const struct pending_query *query = check->query;
	const char *id = actions[check->action].id;

	if (query->caller->gone)
		broker_fail(error, BROKER_ERROR_NOT_AUTHORIZED, "the caller left the bus");
	else if (!result && g_cancellable_is_cancelled(query->cancellable))
		broker_fail(error, BROKER_ERROR_NOT_AUTHORIZED,
			    "polkit did not say in time whether \"%s\" is allowed", id);
	else if (!result)
		broker_fail(error, BROKER_ERROR_NOT_AUTHORIZED,
			    "polkit cannot be asked for \"%s\", so it is not allowed: %s", id,
			    failure->message);
	else if (polkit_authorization_result_get_is_authorized(result))
		return AUTHORITY_GRANTED;
	else if (polkit_authorization_result_get_is_challenge(result)) {
		broker_fail(error, BROKER_ERROR_INTERACTION,
			    "\"%s\" needs a password, and nobody could be asked for it; the "
			    "administrator may allow it by a rule of polkit's",
			    id);
		return AUTHORITY_CHALLENGE;
	} else
		broker_fail(error, BROKER_ERROR_NOT_AUTHORIZED,
			    "polkit does not allow \"%s\" to this user; the administrator may "
			    "change that by a rule of polkit's",
			    id);
	return AUTHORITY_DENIED;
}

static void on_checked(GObject *source, GAsyncResult *async, gpointer data)
{
	const struct check *check = data;
	struct pending_query *query = check->query;
	struct authority_reply *reply = &query->reply;
	size_t i = (size_t)(check - query->checks);
	g_autoptr(GError) failure = NULL;
	g_autoptr(PolkitAuthorizationResult)
		result = polkit_authority_check_authorization_finish(POLKIT_AUTHORITY(source),
								     async, &failure);

	if (failure)
		g_dbus_error_strip_remote_error(failure);
	reply->answers[i] = read_result(result, failure, check, &reply->errors[i]);
	if (--query->n_left > 0) {
		if (i == 0 && query->first_decides && reply->answers[0] != AUTHORITY_GRANTED)
			give_up(query);
		return;
	}
	if (query->authority) {
		g_ptr_array_remove_fast(query->authority->pending, query);
		/* A caller that has left loses all grants of this question. */
		for (i = 0; query->caller->gone && i < query->n; i++) {
			reply->answers[i] = AUTHORITY_DENIED;
			if (!reply->errors[i])
				broker_fail(&reply->errors[i], BROKER_ERROR_NOT_AUTHORIZED,
					    "the caller left the bus");
		}
		query->answer(reply, query->data);
	}
	g_clear_handle_id(&query->timer, g_source_remove);
	for (i = 0; i < query->n; i++)
		g_clear_error(&reply->errors[i]);
	g_object_unref(query->cancellable);
	bus_peer_unref(query->caller);
	g_free(query);
}

static bool fail_ended(GError **error)
{
	return broker_fail(error, BROKER_ERROR_FAILED, "profd ends");
}

bool authority_has_room(const struct authority *authority, const struct bus_peer *caller,
			bool interactive, GError **error)
{
	unsigned n = 0;

	if (authority->ended)
		return fail_ended(error);
	for (guint i = 0; i < authority->pending->len; i++) {
		const struct pending_query *query = authority->pending->pdata[i];

		n += query->caller->uid == caller->uid && query->interactive == interactive;
	}
	return n < MAX_PENDING ||
	       broker_fail(error, BROKER_ERROR_LIMIT_EXCEEDED,
			   interactive ? "%d prompts of this user are already open"
				       : "%d questions of this user already wait for polkit",
			   MAX_PENDING);
}

static void refuse(unsigned n_actions, const GError *error,
		   void (*answer)(const struct authority_reply *reply, void *data), void *data)
{
	struct authority_reply reply = { 0 };

	for (unsigned i = 0; i < n_actions; i++)
		reply.errors[i] = g_error_copy(error);
	answer(&reply, data);
	for (unsigned i = 0; i < n_actions; i++)
		g_clear_error(&reply.errors[i]);
}

static void begin_check(struct pending_query *query, unsigned i,
			const struct authority_question *question)
{
	enum authority_action action = question->actions[i];
	g_autoptr(PolkitSubject) subject = polkit_system_bus_name_new(query->caller->name);
	g_autoptr(PolkitDetails) details = details_new(question, action);

	query->checks[i] = (struct check){ .query = query, .action = action };
	polkit_authority_check_authorization(
		query->authority->polkit, subject, actions[action].id, details,
		question->interactive ? POLKIT_CHECK_AUTHORIZATION_FLAGS_ALLOW_USER_INTERACTION
				      : POLKIT_CHECK_AUTHORIZATION_FLAGS_NONE,
		query->cancellable, on_checked, &query->checks[i]);
}

void authority_query(struct authority *authority, const struct authority_question *question,
		     void (*answer)(const struct authority_reply *reply, void *data), void *data)
{
	g_autoptr(GError) error = NULL;
	struct pending_query *query;

	assert(question->n_actions > 0 && question->n_actions <= AUTHORITY_MAX_ACTIONS);
	if (!authority_has_room(authority, question->caller, question->interactive, &error)) {
		refuse(question->n_actions, error, answer, data);
		return;
	}
	query = g_new(struct pending_query, 1);
	*query = (struct pending_query){ .authority = authority,
					 .caller = bus_peer_ref(question->caller),
					 .cancellable = g_cancellable_new(),
					 .interactive = question->interactive,
					 .first_decides = question->first_decides,
					 .n = question->n_actions,
					 .n_left = question->n_actions,
					 .answer = answer,
					 .data = data };
	g_ptr_array_add(authority->pending, query);
	if (!question->interactive)
		query->timer = g_timeout_add(QUIET_PATIENCE_MS, on_patience_end, query);
	for (unsigned i = 0; i < question->n_actions; i++)
		begin_check(query, i, question);
}

void authority_forget(struct authority *authority, const struct bus_peer *caller)
{
	for (guint i = 0; i < authority->pending->len; i++) {
		struct pending_query *query = authority->pending->pdata[i];

		if (query->caller == caller)
			give_up(query);
	}
}

/* ---- Making and freeing ---------------------------------------------------------------------- */

/* Ignores the library's warning about a check that is answered just before it is canceled, because
 * any client could fill the journal with it. */
static void on_log(const gchar *domain, GLogLevelFlags level, const gchar *message, gpointer data)
{
	if (!g_str_has_prefix(message, "Error cancelling authorization check"))
		g_log_default_handler(domain, level, message, data);
}

struct making {
	void (*ready)(struct authority *authority, const GError *error, void *data);
	void *data;
};

static void on_polkit(GObject *source, GAsyncResult *result, gpointer data)
{
	g_autofree struct making *making = data;
	g_autoptr(GError) error = NULL;
	PolkitAuthority *polkit = polkit_authority_get_finish(result, &error);
	struct authority *authority = NULL;

	if (polkit) {
		authority = g_new0(struct authority, 1);
		authority->polkit = polkit;
		authority->pending = g_ptr_array_new();
	}
	making->ready(authority, error, making->data);
}

void authority_new(void (*ready)(struct authority *authority, const GError *error, void *data),
		   void *data)
{
	struct making *making = g_new(struct making, 1);

	*making = (struct making){ .ready = ready, .data = data };
	g_log_set_handler(NULL, G_LOG_LEVEL_WARNING, on_log, NULL);
	polkit_authority_get_async(NULL, on_polkit, making);
}

void authority_end(struct authority *authority)
{
	g_autoptr(GError) error = NULL;

	fail_ended(&error);
	authority->ended = true;
	while (authority->pending->len > 0) {
		struct pending_query *query = g_ptr_array_steal_index_fast(authority->pending, 0);

		query->authority = NULL;
		refuse(query->n, error, query->answer, query->data);
		give_up(query);
	}
}

void authority_free(struct authority *authority)
{
	if (!authority)
		return;
	g_ptr_array_unref(authority->pending);
	g_object_unref(authority->polkit);
	g_free(authority);
}
