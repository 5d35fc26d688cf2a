/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * profctl status - the sessions of the system's profd
 *
 * Sessions of other users are listed if polkit allows it without a prompt.
 */
#include "config.h"

#include "tools/common/cli.h"
#include "tools/common/json.h"
#include "tools/profctl/sessions.h"
#include "tools/profctl/verbs.h"

#include <glib/gi18n.h>
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

static void write_options(struct json *json, GVariant *options)
{
	GVariantIter iter;
	const char *key;
	GVariant *value;

	json_begin_object(json, "options");
	g_variant_iter_init(&iter, options);
	while (g_variant_iter_loop(&iter, "{&sv}", &key, &value))
		write_value(json, key, value);
	json_end(json);
}

static void write_session(struct json *json, const struct session_info *session)
{
	uint64_t elapsed;

	json_begin_object(json, NULL);
	json_uint(json, "id", session->id);
	json_uint(json, "uid", session->uid);
	json_string(json, "state", session->state);
	write_options(json, session->options);
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

static void print_row(struct out *out, const char *const *cells)
{
	static const struct {
		unsigned width;
		enum text_align align;
	} columns[] = {
		{ 4, TEXT_RIGHT }, { 8, TEXT_RIGHT },  { 9, TEXT_LEFT },
		{ 9, TEXT_RIGHT }, { 12, TEXT_RIGHT }, { 12, TEXT_RIGHT },
		{ 8, TEXT_RIGHT }, { 10, TEXT_RIGHT }, { 0, TEXT_LEFT },
	};

	for (size_t i = 0; i < ARRAY_SIZE(columns); i++) {
		out_text(out, i ? "  " : "");
		text_cell(out, cells[i], columns[i].width, columns[i].align);
	}
	out_char(out, '\n');
}

static void print_session(struct out *out, const struct session_info *session)
{
	uint64_t ns = 0;
	bool known = elapsed_ns(session, &ns);
	g_autofree char *id = g_strdup_printf("%u", session->id);
	g_autofree char *uid = g_strdup_printf("%u", session->uid);
	g_autofree char *elapsed = known ? text_duration(ns) : g_strdup("-");
	g_autofree char *samples = text_count(session->samples);
	g_autofree char *events = text_count(session->events);
	g_autofree char *lost = text_count(session->lost);
	g_autofree char *bytes = text_bytes(session->bytes);
	g_autofree char *target = session_info_target(session);
	const char *const cells[] = { id,     uid,  session->state, elapsed, samples,
				      events, lost, bytes,          target };

	print_row(out, cells);
}

static void print_text(const GPtrArray *sessions)
{
	const char *const titles[] = { _("ID"),      _("User"),    _("State"),
				       _("Elapsed"), _("Samples"), _("Events"),
				       _("Lost"),    _("Size"),    _("What") };
	struct out *out = out_stdout();

	if (sessions->len == 0) {
		out_printf(out, "%s\n", _("No sessions."));
		return;
	}
	print_row(out, titles);
	for (guint i = 0; i < sessions->len; i++)
		print_session(out, sessions->pdata[i]);
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
		"List your sessions of the profd service, and other users' if polkit lets you manage them."),
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
	if (!transport_open_system(&transport, &error))
		return cli_fail(error);
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
