/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Admission - which of polkit's actions a call needs, and what follows from the answers
 *
 *     everything that runs                    record-system     any process, any image
 *     pids that are all the caller's own      record-own        own_only, unless record-others is granted unasked
 *     other pids                              record-others     images that the user may read
 *     kernel functions, asked for             kernel-addresses, or the session is refused
 *     kernel functions, not spoken of         kernel-addresses without a prompt, or the session goes without them
 *     the session of another user             manage-others
 *
 * A session of own_only has its events checked too: what needs more than a plain user may open by itself is refused,
 * since profd would open it with its own rights.
 * A private client is profd's own user: nothing is asked.
 */
#include "config.h"

#include "daemon/broker/admission.h"

#include "arch/base.h"
#include "daemon/broker/error.h"

/* ---- A session ---------------------------------------------------------------------------------- */

struct session_request {
	struct admission admission;
	struct options *options;
	struct access access;
	char *target;
	void (*done)(const struct access *access, const GError *error, void *data);
	void *data;
};

static void finish(struct session_request *request, const GError *error)
{
	request->done(error ? NULL : &request->access, error, request->data);
	caller_unref(request->admission.caller);
	g_free(request->target);
	g_free(request);
}

static void ask(struct session_request *request, enum authority_action action, bool interactive,
		void (*answer)(enum authority_answer answer, const GError *error, void *data))
{
	const struct authority_question question = {
		.caller = request->admission.caller,
		.action = action,
		.interactive = interactive && request->admission.interactive,
		.target = request->target,
	};

	authority_ask(request->admission.authority, &question, answer, request);
}

static void on_kernel(enum authority_answer answer, const GError *error, void *data)
{
	struct session_request *request = data;

	if (answer == AUTHORITY_GRANTED) {
		finish(request, NULL);
	} else if (request->options->kernel_asked || request->admission.caller->gone) {
		finish(request, error);
	} else {
		options_deny_kernel(request->options);
		finish(request, NULL);
	}
}

static void ask_for_kernel(struct session_request *request)
{
	if (request->options->kernel)
		ask(request, AUTHORITY_KERNEL_ADDRESSES, request->options->kernel_asked, on_kernel);
	else
		finish(request, NULL);
}

/* Numbers and terms that a client makes up, and tracepoints, are for those who may see more than their own. */
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

static void on_others_quietly(enum authority_answer answer, const GError *error, void *data)
{
	struct session_request *request = data;
	g_autoptr(GError) refused = NULL;

	request->access.own_only = answer != AUTHORITY_GRANTED;
	if (request->access.own_only && !check_own_events(request->options, &refused))
		finish(request, refused);
	else
		ask_for_kernel(request);
}

static void on_recording(enum authority_answer answer, const GError *error, void *data)
{
	struct session_request *request = data;

	if (answer != AUTHORITY_GRANTED)
		finish(request, error);
	else if (request->access.own_only)
		ask(request, AUTHORITY_RECORD_OTHERS, false, on_others_quietly);
	else
		ask_for_kernel(request);
}

static void begin(struct session_request *request)
{
	struct options *options = request->options;
	struct access *access = &request->access;
	enum authority_action action;
	g_autoptr(GError) error = NULL;

	access->uid = request->admission.caller->uid;
	if (!request->admission.authority) {
		access->any_image = true;
		finish(request, NULL);
		return;
	}
	if (options->system) {
		access->any_image = true;
		action = AUTHORITY_RECORD_SYSTEM;
	} else if (!authority_has_room(request->admission.authority, request->admission.caller,
				       &error)) {
		/* whose processes these are takes long where they have thousands of threads, and all clients wait */
		finish(request, error);
		return;
	} else if (!targets_new(options->pids, options->n_pids, &options->targets, &error)) {
		finish(request, error);
		return;
	} else {
		access->own_only = targets_check(options->targets, access->uid, NULL);
		action = access->own_only ? AUTHORITY_RECORD_OWN : AUTHORITY_RECORD_OTHERS;
		request->target = targets_describe(options->targets);
	}
	ask(request, action, true, on_recording);
}

void admission_session(const struct admission *admission, struct options *options,
		       void (*done)(const struct access *access, const GError *error, void *data),
		       void *data)
{
	struct session_request *request = g_new0(struct session_request, 1);

	request->admission = *admission;
	caller_ref(admission->caller);
	request->options = options;
	request->done = done;
	request->data = data;
	begin(request);
}

/* ---- Another user's session --------------------------------------------------------------------- */

struct manage_request {
	void (*done)(bool allowed, const GError *error, void *data);
	void *data;
};

static void on_manage(enum authority_answer answer, const GError *error, void *data)
{
	g_autofree struct manage_request *request = data;

	request->done(answer == AUTHORITY_GRANTED, error, request->data);
}

void admission_manage(const struct admission *admission, uid_t owner,
		      void (*done)(bool allowed, const GError *error, void *data), void *data)
{
	const struct authority_question question = {
		.caller = admission->caller,
		.action = AUTHORITY_MANAGE_OTHERS,
		.interactive = admission->interactive,
	};
	struct manage_request *request;

	if (!admission->authority || admission->caller->uid == owner) {
		done(true, NULL, data);
		return;
	}
	request = g_new(struct manage_request, 1);
	*request = (struct manage_request){ .done = done, .data = data };
	authority_ask(admission->authority, &question, on_manage, request);
}

/* ---- What would be possible --------------------------------------------------------------------- */

struct capabilities_request {
	struct admission admission;
	bool system;
	void (*done)(bool system, bool kernel, void *data);
	void *data;
};

static void on_kernel_capability(enum authority_answer answer, const GError *error, void *data)
{
	g_autofree struct capabilities_request *request = data;

	request->done(request->system, answer != AUTHORITY_DENIED, request->data);
	caller_unref(request->admission.caller);
}

static void on_system_capability(enum authority_answer answer, const GError *error, void *data)
{
	struct capabilities_request *request = data;
	const struct authority_question question = { .caller = request->admission.caller,
						     .action = AUTHORITY_KERNEL_ADDRESSES };

	request->system = answer != AUTHORITY_DENIED;
	authority_ask(request->admission.authority, &question, on_kernel_capability, request);
}

void admission_capabilities(const struct admission *admission,
			    void (*done)(bool system, bool kernel, void *data), void *data)
{
	const struct authority_question question = { .caller = admission->caller,
						     .action = AUTHORITY_RECORD_SYSTEM };
	struct capabilities_request *request;

	if (!admission->authority) {
		done(true, true, data);
		return;
	}
	request = g_new0(struct capabilities_request, 1);
	request->admission = *admission;
	caller_ref(admission->caller);
	request->done = done;
	request->data = data;
	authority_ask(admission->authority, &question, on_system_capability, request);
}
