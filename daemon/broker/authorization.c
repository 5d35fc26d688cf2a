/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Authorization - decides which polkit actions a call needs, and what the answers permit
 *
 *     requested                           action              access if granted
 *     everything that runs                record-system       any process, any image
 *     pids that are all the caller's own  record-own          own_only, unless record-others is
 *                                                             granted without a prompt
 *     other pids                          record-others       images that the user may read
 *     kernel functions, explicitly        kernel-addresses    if denied, the session is refused
 *     kernel functions, by default        kernel-addresses    never prompts; if denied, the session
 *                                                             has no kernel functions
 *     another user's session              manage-others
 *
 * All checks that need no prompt are made first, together. Prompts follow one at a time, so that no
 * user is prompted about the kernel for a session that is then refused.
 * The events of an own_only session are checked, too: an event without a fixed name is refused,
 * because profd would open it with its own rights.
 * A private client runs as profd's own user, so it needs no checks.
 */
#include "config.h"

#include "daemon/broker/authorization.h"

#include "daemon/broker/access-check.h"
#include "daemon/broker/error.h"

#define MAX_LOOKS 8 /* maximum number of concurrent access checks per user */

/* ---- A session ------------------------------------------------------------------------------- */

struct session_request {
	struct authorization authorization;
	struct options *options;
	struct access access;
	enum authority_action action; /* action that the session needs */
	char *target;
	void (*done)(const struct access *access, const GError *error, void *data);
	void *data;
};

static void finish(struct session_request *request, const GError *error)
{
	request->done(error ? NULL : &request->access, error, request->data);
	bus_peer_unref(request->authorization.caller);
	g_free(request->target);
	g_free(request);
}

static struct authority_question question_of(const struct session_request *request)
{
	return (struct authority_question){ .caller = request->authorization.caller,
					    .target = request->target };
}

/* Checks one action, with a password prompt if necessary. */
static void query_with_prompt(struct session_request *request, enum authority_action action,
			      void (*answer)(const struct authority_reply *reply, void *data))
{
	struct authority_question question = question_of(request);

	question.interactive = true;
	question.actions[question.n_actions++] = action;
	authority_query(request->authorization.authority, &question, answer, request);
}

static void on_kernel_password(const struct authority_reply *reply, void *data)
{
	finish(data, reply->errors[0]);
}

/* Events without fixed names, such as raw events and tracepoints, are only for callers that may
 * record other users. */
static bool check_own_events(const struct options *options, GError **error)
{
	for (unsigned i = 0; i < options->n_events; i++) {
		enum prof_source_kind kind = options->events[i].kind;

		if (kind != PROF_SOURCE_SOFTWARE && kind != PROF_SOURCE_HARDWARE &&
		    kind != PROF_SOURCE_CACHE)
			return broker_fail(
				error, BROKER_ERROR_NOT_AUTHORIZED,
				"event \"%s\" needs \"org.profd.record-others\"; with own "
				"processes alone, events with fixed names are possible, as "
				"cycles, cpu-clock or page-faults",
				options->events[i].name);
	}
	return true;
}

/* Handles the answers to the actions that add_others() added, beginning at `first`. */
static void receive_others(struct session_request *request, const struct authority_reply *reply,
			   unsigned first)
{
	struct options *options = request->options;
	unsigned kernel = first + request->access.own_only;
	g_autoptr(GError) refused = NULL;

	if (request->access.own_only) {
		request->access.own_only = reply->answers[first] != AUTHORITY_GRANTED;
		if (request->access.own_only && !check_own_events(options, &refused)) {
			finish(request, refused);
			return;
		}
	}
	if (!options->kernel || reply->answers[kernel] == AUTHORITY_GRANTED) {
		finish(request, NULL);
	} else if (options->kernel_requested && request->authorization.interactive &&
		   reply->answers[kernel] == AUTHORITY_CHALLENGE) {
		query_with_prompt(request, AUTHORITY_KERNEL_ADDRESSES, on_kernel_password);
	} else if (options->kernel_requested || request->authorization.caller->gone) {
		finish(request, reply->errors[kernel]);
	} else {
		options_deny_kernel(options);
		finish(request, NULL);
	}
}

static void add_others(const struct session_request *request, struct authority_question *question)
{
	if (request->access.own_only)
		question->actions[question->n_actions++] = AUTHORITY_RECORD_OTHERS;
	if (request->options->kernel)
		question->actions[question->n_actions++] = AUTHORITY_KERNEL_ADDRESSES;
}

static void on_others(const struct authority_reply *reply, void *data)
{
	receive_others(data, reply, 0);
}

/* Checks the other actions after the prompt for the first one. Their earlier checks were cancelled,
 * or the answers may be out of date. */
static void on_password(const struct authority_reply *reply, void *data)
{
	struct session_request *request = data;
	struct authority_question question = question_of(request);

	add_others(request, &question);
	if (reply->answers[0] != AUTHORITY_GRANTED)
		finish(request, reply->errors[0]);
	else if (question.n_actions)
		authority_query(request->authorization.authority, &question, on_others, request);
	else
		finish(request, NULL);
}

static void on_quiet(const struct authority_reply *reply, void *data)
{
	struct session_request *request = data;

	if (reply->answers[0] == AUTHORITY_GRANTED)
		receive_others(request, reply, 1);
	else if (reply->answers[0] == AUTHORITY_CHALLENGE && request->authorization.interactive)
		query_with_prompt(request, request->action, on_password);
	else
		finish(request, reply->errors[0]);
}

/* Checks all actions at once, without a prompt. This is usually enough. */
static void query_quietly(struct session_request *request)
{
	struct authority_question question = question_of(request);

	question.first_decides = true;
	question.actions[question.n_actions++] = request->action;
	add_others(request, &question);
	authority_query(request->authorization.authority, &question, on_quiet, request);
}

static void on_access_check(struct targets *targets, bool owned, const GError *error, void *data)
{
	struct session_request *request = data;

	if (error) {
		finish(request, error);
		return;
	}
	request->options->targets = targets;
	request->access.own_only = owned;
	request->action = owned ? AUTHORITY_RECORD_OWN : AUTHORITY_RECORD_OTHERS;
	request->target = targets_describe(targets);
	query_quietly(request);
}

/* Checks the user's limits for polkit queries and for access checks. Called before the access
 * check, which takes long for thousands of threads. */
static bool has_room(const struct session_request *request, GError **error)
{
	return authority_has_room(request->authorization.authority, request->authorization.caller,
				  false, error) &&
	       (access_check_pending(request->access.uid) < MAX_LOOKS ||
		broker_fail(error, BROKER_ERROR_LIMIT_EXCEEDED,
			    "%d requests of this user already wait for a check of who owns their "
			    "processes",
			    MAX_LOOKS));
}

static void begin(struct session_request *request)
{
	struct options *options = request->options;
	struct access *access = &request->access;
	struct targets *targets;
	g_autoptr(GError) error = NULL;

	access->uid = request->authorization.caller->uid;
	if (!request->authorization.authority) {
		access->any_image = true;
		finish(request, NULL);
		return;
	}
	if (options->system) {
		access->any_image = true;
		request->action = AUTHORITY_RECORD_SYSTEM;
		query_quietly(request);
	} else if (!has_room(request, &error) ||
		   !targets_new(options->pids, options->n_pids, &targets, &error)) {
		finish(request, error);
	} else {
		access_check_request(targets, access->uid, on_access_check, request);
	}
}

void authorization_session(const struct authorization *authorization, struct options *options,
			   void (*done)(const struct access *access, const GError *error,
					void *data),
			   void *data)
{
	struct session_request *request = g_new0(struct session_request, 1);

	request->authorization = *authorization;
	bus_peer_ref(authorization->caller);
	request->options = options;
	request->done = done;
	request->data = data;
	begin(request);
}

/* ---- Another user's session ------------------------------------------------------------------ */

struct manage_request {
	void (*done)(bool allowed, const GError *error, void *data);
	void *data;
};

static void on_manage(const struct authority_reply *reply, void *data)
{
	g_autofree struct manage_request *request = data;

	request->done(reply->answers[0] == AUTHORITY_GRANTED, reply->errors[0], request->data);
}

void authorization_manage(const struct authorization *authorization, uid_t owner,
			  void (*done)(bool allowed, const GError *error, void *data), void *data)
{
	const struct authority_question question = {
		.caller = authorization->caller,
		.actions = { AUTHORITY_MANAGE_OTHERS },
		.n_actions = 1,
		.interactive = authorization->interactive,
	};
	struct manage_request *request;

	if (!authorization->authority || authorization->caller->uid == owner) {
		done(true, NULL, data);
		return;
	}
	request = g_new(struct manage_request, 1);
	*request = (struct manage_request){ .done = done, .data = data };
	authority_query(authorization->authority, &question, on_manage, request);
}

/* ---- Capabilities ---------------------------------------------------------------------------- */

struct capabilities_request {
	void (*done)(struct client_rights rights, void *data);
	void *data;
};

static void on_capabilities(const struct authority_reply *reply, void *data)
{
	g_autofree struct capabilities_request *request = data;

	request->done((struct client_rights){ .system = reply->answers[0] != AUTHORITY_DENIED,
					      .others = reply->answers[1] != AUTHORITY_DENIED,
					      .kernel = reply->answers[2] != AUTHORITY_DENIED },
		      request->data);
}

void authorization_capabilities(const struct authorization *authorization,
				void (*done)(struct client_rights rights, void *data), void *data)
{
	const struct authority_question question = {
		.caller = authorization->caller,
		.actions = { AUTHORITY_RECORD_SYSTEM, AUTHORITY_RECORD_OTHERS,
			     AUTHORITY_KERNEL_ADDRESSES },
		.n_actions = 3,
	};
	struct capabilities_request *request;

	if (!authorization->authority) {
		done((struct client_rights){ true, true, true }, data);
		return;
	}
	request = g_new(struct capabilities_request, 1);
	*request = (struct capabilities_request){ .done = done, .data = data };
	authority_query(authorization->authority, &question, on_capabilities, request);
}
