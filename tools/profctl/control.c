/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * profctl stop, pause, resume - controls a session of the system's profd
 *
 * Without a number the session is the only one that the caller can see. The session of another user
 * needs polkit's manage-others, which may prompt for a password.
 */
#include "config.h"

#include "tools/common/cli.h"
#include "tools/profctl/sessions.h"
#include "tools/profctl/verbs.h"

#include <glib/gi18n.h>

/* A shell waits for it after a key press. */
#define COMPLETION_PATIENCE_MS 1000

static bool is_over(const struct session_info *session)
{
	return strcmp(session->state, "finished") == 0 || strcmp(session->state, "failed") == 0;
}

/* Returns whether the verb has an effect in the session's state. */
static bool is_for(const struct session_info *session, const char *verb)
{
	if (strcmp(verb, "pause") == 0)
		return strcmp(session->state, "running") == 0;
	if (strcmp(verb, "resume") == 0)
		return strcmp(session->state, "paused") == 0;
	return !is_over(session);
}

/* Prints session numbers for a shell. Does not start profd, because a new one has no sessions. */
static void complete(const char *verb)
{
	struct transport transport = { 0 };
	g_autoptr(GPtrArray) sessions = NULL;

	if (transport_open_running(&transport, NULL))
		sessions = sessions_get(&transport, COMPLETION_PATIENCE_MS, NULL);
	transport_close(&transport);
	for (guint i = 0; sessions && i < sessions->len; i++) {
		const struct session_info *session = sessions->pdata[i];

		if (is_for(session, verb))
			out_printf(out_stdout(), "%u\n", session->id);
	}
}

/* The verb is its method's name in lower case. */
static const struct {
	const char *verb, *method;
	struct cli_spec spec;
} controls[] = {
	{ "stop",
	  "Stop",
	  { N_("[SESSION]"),
	    N_("End a session of the profd service and finish its file. SESSION is the number of 'profctl status' (default: the only session)."),
	    0, 1, false, complete } },
	{ "pause",
	  "Pause",
	  { N_("[SESSION]"),
	    N_("Stop sampling in a session of the profd service until 'profctl resume'. SESSION is the number of 'profctl status' (default: the only session)."),
	    0, 1, false, complete } },
	{ "resume",
	  "Resume",
	  { N_("[SESSION]"),
	    N_("Continue a paused session of the profd service. SESSION is the number of 'profctl status' (default: the only session)."),
	    0, 1, false, complete } },
};

/* Chooses the only session that can be controlled. */
static bool choose(const struct transport *transport, uint32_t *ret_id, GError **error)
{
	g_autoptr(GPtrArray) sessions = sessions_get(transport, SESSIONS_PATIENCE_MS, error);
	g_autoptr(GString) list = g_string_new(NULL);
	const struct session_info *only = NULL;
	unsigned n = 0;

	if (!sessions)
		return false;
	for (guint i = 0; i < sessions->len; i++) {
		const struct session_info *session = sessions->pdata[i];
		g_autofree char *target = session_info_target(session);

		if (is_over(session))
			continue;
		g_string_append_printf(list, "\n  %u  %s", session->id, target);
		only = session;
		n++;
	}
	if (n == 1) {
		*ret_id = only->id;
		return true;
	}
	if (n == 0)
		g_set_error(error, CLI_ERROR, CLI_FAILURE,
			    _("the system's profd has no session that you can see"));
	else
		g_set_error(error, CLI_ERROR, CLI_USAGE,
			    _("%u sessions record; name one by its number:%s"), n, list->str);
	return false;
}

static bool call(const struct transport *transport, uint32_t id, const char *method, GError **error)
{
	g_autofree char *path = g_strdup_printf(PROFD_PATH "/session/%u", id);
	g_autoptr(GError) failure = NULL;
	g_autoptr(GVariant) reply = g_dbus_connection_call_sync(
		transport->connection, transport->destination, path, PROFD_SESSION_INTERFACE,
		method, NULL, NULL, G_DBUS_CALL_FLAGS_ALLOW_INTERACTIVE_AUTHORIZATION, G_MAXINT,
		NULL, &failure);

	if (reply)
		return true;
	if (g_error_matches(failure, G_DBUS_ERROR, G_DBUS_ERROR_UNKNOWN_METHOD) ||
	    g_error_matches(failure, G_DBUS_ERROR, G_DBUS_ERROR_UNKNOWN_OBJECT))
		g_set_error(error, CLI_ERROR, CLI_FAILURE,
			    _("the system's profd has no session %u"), id);
	else
		g_propagate_error(error, transport_translate(failure));
	return false;
}

int profctl_control(int argc, char **argv)
{
	const struct cli_group groups[] = { { NULL } };
	struct transport transport = { 0 };
	GError *error = NULL;
	size_t verb = 0;
	guint64 number = 0;
	uint32_t id;
	int status;

	while (strcmp(controls[verb].verb, argv[0]) != 0)
		verb++;
	status = cli_parse(&controls[verb].spec, groups, &argc, &argv);
	if (status != CLI_CONTINUE)
		return status;
	if (argc > 0 && !g_ascii_string_to_unsigned(argv[0], 10, 1, G_MAXUINT32, &number, NULL))
		return cli_usage_error(_("'%s' is not a session number"), argv[0]);
	if (!transport_open_system(&transport, &error))
		return cli_fail(error);
	id = (uint32_t)number;
	if ((id || choose(&transport, &id, &error)) &&
	    call(&transport, id, controls[verb].method, &error))
		status = CLI_OK;
	else
		status = cli_fail(error);
	transport_close(&transport);
	return status;
}
