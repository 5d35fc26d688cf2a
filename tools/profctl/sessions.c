/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Sessions - the list that profd's object manager returns
 *
 * profd omits sessions that the caller may not see. The answer is still validated, like everything
 * from a bus.
 */
#include "config.h"

#include "tools/profctl/sessions.h"

#include "tools/common/cli.h"

#include <glib/gi18n.h>

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

static int compare(gconstpointer a, gconstpointer b)
{
	const struct session_info *one = *(const struct session_info *const *)a;
	const struct session_info *other = *(const struct session_info *const *)b;

	return one->id < other->id ? -1 : one->id > other->id;
}

GPtrArray *sessions_get(const struct transport *transport, int patience_ms, GError **error)
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

static char *join_pids(GVariant *pids)
{
	GString *text = g_string_new(_("pid"));
	gsize n;
	const uint32_t *numbers = g_variant_get_fixed_array(pids, &n, sizeof(*numbers));

	for (gsize i = 0; i < n; i++)
		g_string_append_printf(text, "%s %u", i ? "," : "", numbers[i]);
	return g_string_free(text, FALSE);
}

char *session_info_target(const struct session_info *session)
{
	g_autoptr(GVariant)
		pids = g_variant_lookup_value(session->options, "pids", G_VARIANT_TYPE("au"));
	g_autoptr(GVariant) command =
		g_variant_lookup_value(session->options, "command", G_VARIANT_TYPE("aay"));
	g_autofree char *text = NULL;

	if (command) {
		g_auto(GStrv) words = g_variant_dup_bytestring_array(command, NULL);

		text = g_strjoinv(" ", words);
	} else {
		text = pids ? join_pids(pids) : g_strdup(_("the system"));
	}
	return text_escape(text);
}
