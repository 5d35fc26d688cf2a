/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * profctl status, stop, pause, resume - the sessions of the system's profd
 *
 * profd lists other users' sessions only if polkit allows it without a prompt. profd's answer is
 * validated, like all data from a bus. Controlling another user's session needs polkit's action
 * manage-others, which may prompt for a password. If no number is given, the caller must see
 * exactly one session that is not over.
 */
#include "config.h"

#include "base/each.h"
#include "base/order.h"
#include "tools/common/cli.h"
#include "tools/present/table.h"
#include "tools/profctl/transport.h"
#include "tools/profctl/verbs.h"

#include <glib/gi18n.h>
#include <pwd.h>

#define PATIENCE_MS 20000
#define COMPLETION_PATIENCE_MS 1000 /* short, because a shell waits after a key press */

/* A session of the system's profd at the time of the request. */
struct session_info {
	uint32_t id, uid;
	char *state;
	GVariant *options; /* a{sv} */
	uint64_t start_ns, samples, events, lost, bytes;
};

static void session_info_free(gpointer pointer)
{
	struct session_info *session = pointer;

	g_free(session->state);
	g_variant_unref(session->options);
	g_free(session);
}

static struct session_info *session_info_new(GVariant *properties)
{
	struct session_info *session = g_new0(struct session_info, 1);

	g_variant_lookup(properties, "Id", "u", &session->id);
	g_variant_lookup(properties, "Uid", "u", &session->uid);
	g_variant_lookup(properties, "State", "s", &session->state);
	g_variant_lookup(properties, "StartTime", "t", &session->start_ns);
	g_variant_lookup(properties, "Samples", "t", &session->samples);
	g_variant_lookup(properties, "Events", "t", &session->events);
	g_variant_lookup(properties, "Lost", "t", &session->lost);
	g_variant_lookup(properties, "Bytes", "t", &session->bytes);
	session->options = g_variant_lookup_value(properties, "Options", G_VARIANT_TYPE("a{sv}"));
	if (!session->options)
		session->options =
			g_variant_ref_sink(g_variant_new_array(G_VARIANT_TYPE("{sv}"), NULL, 0));
	if (!session->state)
		session->state = g_strdup("failed");
	return session;
}

COMPARE_AT(compare, struct session_info, ORDER(a->id, b->id))

/* Returns the sessions that the caller may see: struct session_info, sorted by id. The caller must
 * unref the array. Waits at most patience_ms. Fails with CLI_ERROR. */
static GPtrArray *sessions_get(const struct transport *transport, int patience_ms, GError **error)
{
	g_autoptr(GError) failure = NULL;
	g_autoptr(GVariant) reply = g_dbus_connection_call_sync(
		transport->connection, transport->destination, PROFD_PATH,
		"org.freedesktop.DBus.ObjectManager", "GetManagedObjects", NULL,
		G_VARIANT_TYPE("(a{oa{sa{sv}}})"), G_DBUS_CALL_FLAGS_NONE, patience_ms, NULL,
		&failure);
	g_autoptr(GVariantIter) objects = NULL;
	GPtrArray *sessions;
	GVariant *interfaces;

	if (!reply) {
		g_propagate_error(error, transport_translate(failure));
		return NULL;
	}
	sessions = g_ptr_array_new_with_free_func(session_info_free);
	g_variant_get(reply, "(a{oa{sa{sv}}})", &objects);
	while (g_variant_iter_loop(objects, "{&o@a{sa{sv}}}", NULL, &interfaces)) {
		g_autoptr(GVariant)
			properties = g_variant_lookup_value(interfaces, PROFD_SESSION_INTERFACE,
							    G_VARIANT_TYPE("a{sv}"));

		if (properties)
			g_ptr_array_add(sessions, session_info_new(properties));
	}
	g_ptr_array_sort(sessions, compare);
	return sessions;
}

/* Returns "pid 12, 13", "the system" or the command, escaped for terminals. The caller frees the
 * text. */
static char *session_target(const struct session_info *session)
{
	g_autoptr(GVariant)
		pids = g_variant_lookup_value(session->options, "pids", G_VARIANT_TYPE("au"));
	g_autoptr(GVariant) command =
		g_variant_lookup_value(session->options, "command", G_VARIANT_TYPE("aay"));
	g_autoptr(GString) text = g_string_new(NULL);
	gsize n = 0;

	if (command) {
		g_auto(GStrv) words = g_variant_dup_bytestring_array(command, NULL);
		g_autofree char *line = g_strjoinv(" ", words);

		g_string_append(text, line);
	} else {
		const uint32_t *numbers =
			pids ? g_variant_get_fixed_array(pids, &n, sizeof(*numbers)) : NULL;

		g_string_append(text, pids ? _("pid") : _("the system"));
		for (gsize i = 0; i < n; i++)
			g_string_append_printf(text, "%s %u", i ? "," : "", numbers[i]);
	}
	return text_escape(text->str);
}

static bool is_over(const struct session_info *session)
{
	return strcmp(session->state, "finished") == 0 || strcmp(session->state, "failed") == 0;
}

/* Stores for how long a session has run. Returns false before its start and after its end. */
static bool elapsed_ns(const struct session_info *session, uint64_t *ret_ns)
{
	uint64_t ns = (uint64_t)g_get_monotonic_time() * 1000;

	if (!session->start_ns || is_over(session))
		return false;
	*ret_ns = ns > session->start_ns ? ns - session->start_ns : 0;
	return true;
}

/* ---- status: JSON ---------------------------------------------------------------------------- */

static void write_value(struct json *json, const char *key, GVariant *value)
{
	if (g_variant_is_of_type(value, G_VARIANT_TYPE_BOOLEAN)) {
		json_bool(json, key, g_variant_get_boolean(value));
	} else if (g_variant_is_of_type(value, G_VARIANT_TYPE_UINT32)) {
		json_uint(json, key, g_variant_get_uint32(value));
	} else if (g_variant_is_of_type(value, G_VARIANT_TYPE_UINT64)) {
		json_uint(json, key, g_variant_get_uint64(value));
	} else if (g_variant_is_of_type(value, G_VARIANT_TYPE_STRING)) {
		json_string(json, key, g_variant_get_string(value, NULL));
	} else if (g_variant_is_of_type(value, G_VARIANT_TYPE_BYTESTRING)) {
		json_string(json, key, g_variant_get_bytestring(value));
	} else if (g_variant_is_of_type(value, G_VARIANT_TYPE_ARRAY)) {
		json_begin_array(json, key);
		for (gsize i = 0; i < g_variant_n_children(value); i++) {
			g_autoptr(GVariant) child = g_variant_get_child_value(value, i);

			write_value(json, NULL, child);
		}
		json_end(json);
	} else {
		json_null(json, key);
	}
}

static void write_session(struct json *json, const struct session_info *session)
{
	uint64_t elapsed = 0;
	bool has_elapsed = elapsed_ns(session, &elapsed);
	GVariantIter options;
	const char *key;
	GVariant *value;

	json_begin_object(json, NULL);
	json_uint(json, "id", session->id);
	json_uint(json, "uid", session->uid);
	json_string(json, "state", session->state);
	json_begin_object(json, "options");
	g_variant_iter_init(&options, session->options);
	while (g_variant_iter_loop(&options, "{&sv}", &key, &value))
		write_value(json, key, value);
	json_end(json);
	json_uint_if(json, "elapsed_ns", has_elapsed, elapsed);
	json_uint(json, "samples", session->samples);
	json_uint(json, "events", session->events);
	json_uint(json, "lost", session->lost);
	json_uint(json, "bytes", session->bytes);
	json_end(json);
}

static void print_json(const GPtrArray *sessions)
{
	struct json json;

	json_init(&json, out_stdout());
	json_begin_envelope(&json, "profctl.status/1");
	json_begin_array(&json, "sessions");
	for (guint i = 0; i < sessions->len; i++)
		write_session(&json, sessions->pdata[i]);
	json_end(&json);
	json_end_envelope(&json);
	json_done(&json);
}

/* ---- status: text ---------------------------------------------------------------------------- */

enum field {
	FIELD_ID,
	FIELD_STATE,
	FIELD_USER,
	FIELD_ELAPSED,
	FIELD_SAMPLES,
	FIELD_LOST,
	FIELD_TARGET,
};

static bool is_recording(const struct session_info *session)
{
	return strcmp(session->state, "running") == 0;
}

static struct cell get_cell(const void *data, size_t row, unsigned field)
{
	const struct session_info *session = ((const GPtrArray *)data)->pdata[row];
	const struct passwd *user;
	uint64_t elapsed;

	switch (field) {
	case FIELD_ID:
		return cell_uint(session->id);
	case FIELD_STATE:
		return cell_text(is_recording(session) ? _("recording") : session->state);
	case FIELD_USER:
		user = getpwuid(session->uid);
		return cell_own_text(user ? g_strdup(user->pw_name)
					  : g_strdup_printf("%u", session->uid));
	case FIELD_ELAPSED:
		return elapsed_ns(session, &elapsed) ? cell_uint(elapsed) : cell_unknown();
	case FIELD_SAMPLES:
		return cell_uint(session->samples);
	case FIELD_LOST: /* show 0 losses, because users look for the number */
		return cell_own_text(text_count(session->lost));
	default:
		return cell_own_text(session_target(session));
	}
}

static void print_text(const GPtrArray *sessions)
{
	const struct table_style style = { .out = out_stdout(),
					   .is_colored =
						   cli_color_wanted(CLI_COLOR_AUTO, STDOUT_FILENO),
					   .columns = cli_columns(STDOUT_FILENO) };
	struct table table = { .rows = sessions->len, .get = get_cell, .data = sessions };
	unsigned recording = 0;

	if (sessions->len == 0) {
		out_printf(style.out, "%s\n", _("No sessions."));
		return;
	}
	for (guint i = 0; i < sessions->len; i++)
		recording += is_recording(sessions->pdata[i]);
	out_printf(style.out,
		   ngettext("%u session, %u recording.\n\n", "%u sessions, %u recording.\n\n",
			    sessions->len),
		   sessions->len, recording);
	table_add_column(&table, FIELD_ID, COLUMN_NUMBER, _("id"));
	table_add_column(&table, FIELD_STATE, COLUMN_WORD, _("state"));
	table_add_column(&table, FIELD_USER, COLUMN_WORD, _("user"));
	table_add_column(&table, FIELD_ELAPSED, COLUMN_DURATION, _("for"));
	table_add_column(&table, FIELD_SAMPLES, COLUMN_COUNT, _("samples"));
	table_add_column(&table, FIELD_LOST, COLUMN_COUNT, _("lost"));
	table_add_column(&table, FIELD_TARGET, COLUMN_NAME, _("target"));
	table_print(&table, &style, table.rows);
}

struct status_values {
	bool json;
};

static const struct cli_option status_options[] = {
	{ "json", 0, CLI_FLAG, offsetof(struct status_values, json), NULL,
	  N_("Print the sessions as JSON") },
	{ NULL },
};

static const struct cli_spec status_spec = {
	.synopsis = "",
	.description = N_(
		"List your sessions of the profd service, and those of others if polkit lets you manage them."),
};

int profctl_status(int argc, char **argv)
{
	struct status_values values = { 0 };
	const struct cli_group groups[] = { { NULL, status_options, &values }, { NULL } };
	struct transport transport = { 0 };
	g_autoptr(GPtrArray) sessions = NULL;
	GError *error = NULL;
	int status = cli_parse(&status_spec, groups, &argc, &argv);

	if (status != CLI_CONTINUE)
		return status;
	if (!transport_open(&transport, TRANSPORT_SYSTEM, &error)) {
		if (!transport.is_absent)
			return cli_fail(error);
		cli_error(_(
			"The profd service is not running, so there are no shared sessions. 'profctl record' works without it."));
		status = error->code;
		g_error_free(error);
		return status;
	}
	sessions = sessions_get(&transport, PATIENCE_MS, &error);
	transport_close(&transport);
	if (!sessions)
		return cli_fail(error);
	if (values.json)
		print_json(sessions);
	else
		print_text(sessions);
	return CLI_OK;
}

/* ---- stop, pause, resume --------------------------------------------------------------------- */

/* Prints session numbers for shell completion. Does not start profd: a new one has no sessions. */
static void complete(const char *verb)
{
	struct transport transport = { 0 };
	g_autoptr(GPtrArray) sessions = NULL;

	if (transport_open(&transport, TRANSPORT_RUNNING, NULL))
		sessions = sessions_get(&transport, COMPLETION_PATIENCE_MS, NULL);
	transport_close(&transport);
	for (guint i = 0; sessions && i < sessions->len; i++) {
		const struct session_info *session = sessions->pdata[i];

		if (strcmp(verb, "pause") == 0    ? is_recording(session)
		    : strcmp(verb, "resume") == 0 ? strcmp(session->state, "paused") == 0
						  : !is_over(session))
			out_printf(out_stdout(), "%u\n", session->id);
	}
}

static const struct {
	const char *verb, *method, *description;
} controls[] = {
	{ "stop", "Stop",
	  N_("End a session of the profd service and finish its file. SESSION is a number that 'profctl status' lists (default: the only session).") },
	{ "pause", "Pause",
	  N_("Stop sampling in a session of the profd service until 'profctl resume'. SESSION is a number that 'profctl status' lists (default: the only session).") },
	{ "resume", "Resume",
	  N_("Continue a paused session of the profd service. SESSION is a number that 'profctl status' lists (default: the only session).") },
};

/* Chooses the session if there is only one. Fails otherwise. */
static bool choose(const struct transport *transport, uint32_t *ret_id, GError **error)
{
	g_autoptr(GPtrArray) sessions = sessions_get(transport, PATIENCE_MS, error);
	g_autoptr(GString) list = g_string_new(NULL);
	const struct session_info *only = NULL;
	unsigned n = 0;

	if (!sessions)
		return false;
	POINTER_EACH(const struct session_info, session, sessions) {
		g_autofree char *target = session_target(session);

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
		return cli_set_error(error, CLI_FAILURE,
				     _("the system's profd has no session that you can see"));
	return cli_set_error(error, CLI_USAGE, _("%u sessions record; name one by its number:%s"),
			     n, list->str);
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
		cli_set_error(error, CLI_FAILURE, _("the system's profd has no session %u"), id);
	else
		g_propagate_error(error, transport_translate(failure));
	return false;
}

int profctl_control(int argc, char **argv)
{
	const struct cli_group groups[] = { { NULL } };
	struct cli_spec spec = { .synopsis = N_("[SESSION]"),
				 .max_operands = 1,
				 .complete = complete };
	struct transport transport = { 0 };
	GError *error = NULL;
	size_t verb = 0;
	guint64 number = 0;
	uint32_t id;
	int status;

	while (strcmp(controls[verb].verb, argv[0]) != 0)
		verb++;
	spec.description = controls[verb].description;
	status = cli_parse(&spec, groups, &argc, &argv);
	if (status != CLI_CONTINUE)
		return status;
	if (argc > 0 && !g_ascii_string_to_unsigned(argv[0], 10, 1, G_MAXUINT32, &number, NULL))
		return cli_usage_error(_("'%s' is not a session number"), argv[0]);
	if (!transport_open(&transport, TRANSPORT_SYSTEM, &error))
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
