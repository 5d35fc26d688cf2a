/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * profctl status - the sessions of the system's profd
 *
 * Sessions of other users are listed if polkit allows it without a prompt.
 */
#include "config.h"

#include "tools/common/cli.h"
#include "tools/present/table.h"
#include "tools/profctl/sessions.h"
#include "tools/profctl/verbs.h"

#include <glib/gi18n.h>
#include <pwd.h>
#include <time.h>

/* Gets the duration of a running session; false if it has not begun or has ended. */
static bool elapsed_ns(const struct session_info *session, uint64_t *ret_ns)
{
	struct timespec now;
	uint64_t ns;

	if (!session->start_ns || strcmp(session->state, "finished") == 0 ||
	    strcmp(session->state, "failed") == 0)
		return false;
	clock_gettime(CLOCK_MONOTONIC, &now);
	ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
	*ret_ns = ns > session->start_ns ? ns - session->start_ns : 0;
	return true;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

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
	uint64_t elapsed;
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
	if (elapsed_ns(session, &elapsed))
		json_uint(json, "elapsed_ns", elapsed);
	else
		json_null(json, "elapsed_ns");
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
	json_begin_object(&json, NULL);
	json_string(&json, "schema", "profctl.status/1");
	json_null(&json, "capture");
	json_bool(&json, "truncated", false);
	json_begin_object(&json, "data");
	json_begin_array(&json, "sessions");
	for (guint i = 0; i < sessions->len; i++)
		write_session(&json, sessions->pdata[i]);
	json_end(&json);
	json_end(&json);
	json_end(&json);
	json_done(&json);
}

/* ---- Text ------------------------------------------------------------------------------------ */

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

static void get_cell(const void *data, size_t row, unsigned field, struct cell *ret_cell)
{
	const struct session_info *session = ((const GPtrArray *)data)->pdata[row];
	const struct passwd *user;
	uint64_t elapsed;

	switch (field) {
	case FIELD_ID:
		*ret_cell = cell_uint(session->id);
		break;
	case FIELD_STATE:
		*ret_cell = cell_text(is_recording(session) ? _("recording") : session->state);
		break;
	case FIELD_USER:
		user = getpwuid(session->uid);
		*ret_cell = user ? cell_own_text(g_strdup(user->pw_name))
				 : cell_own_text(g_strdup_printf("%u", session->uid));
		break;
	case FIELD_ELAPSED:
		*ret_cell = elapsed_ns(session, &elapsed) ? cell_uint(elapsed) : cell_unknown();
		break;
	case FIELD_SAMPLES:
		*ret_cell = cell_uint(session->samples);
		break;
	case FIELD_LOST: /* a 0, because that is what people look for */
		*ret_cell = cell_own_text(text_count(session->lost));
		break;
	default:
		*ret_cell = cell_own_text(session_info_target(session));
		break;
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
	if (!transport_open_system(&transport, &error)) {
		if (transport.is_absent)
			cli_error(_(
				"The profd service is not running, so there are no shared sessions. 'profctl record' works without it."));
		else
			cli_error("%s", error->message);
		status = error->code;
		g_error_free(error);
		return status;
	}
	sessions = sessions_get(&transport, SESSIONS_PATIENCE_MS, &error);
	transport_close(&transport);
	if (!sessions)
		return cli_fail(error);
	if (values.json)
		print_json(sessions);
	else
		print_text(sessions);
	return CLI_OK;
}
