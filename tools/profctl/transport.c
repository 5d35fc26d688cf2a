/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Transport - the two ways to reach a profd
 *
 * On the system bus, the first call to the well-known name starts the service; later calls use the
 * unique name of that process. A profd of another major version (or minor version, if the major
 * version is 0) is not used, because its options may have other meanings. A private profd is
 * started as `profd --private` or `profd --private-probes` on a socketpair, in a new session
 * (setsid(2)), so that Ctrl-C does not reach it. It exits when the connection closes: when
 * profctl ends for any reason, profd finishes the file and exits.
 */
#include "config.h"

#include "arch/errno-text.h"
#include "tools/profctl/transport.h"

#include "arch/spawn.h"
#include "tools/common/cli.h"

#include <errno.h>
#include <glib-unix.h>
#include <glib/gi18n.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define BUS_NAME "org.freedesktop.DBus"
#define BUS_PATH "/org/freedesktop/DBus"
#define BUS_ERROR "org.freedesktop.DBus.Error."
#define ERROR_PREFIX "org.profd.Profiler1.Error."
#define EXIT_PATIENCE_MS 1000
#define ANSWER_PATIENCE_S 10

/* ---- Errors ---------------------------------------------------------------------------------- */

/* The meaning of a D-Bus error for the user. Without a text, profd's own message is used. */
static const struct meaning {
	const char *name;
	enum cli_status status;
	const char *text;
} meanings[] = {
	{ ERROR_PREFIX "NotAuthorized", CLI_NOT_PERMITTED, NULL },
	{ ERROR_PREFIX "InvalidOption", CLI_USAGE, NULL },
	{ BUS_ERROR "InteractiveAuthorizationRequired", CLI_NOT_PERMITTED, NULL },
	{ BUS_ERROR "AccessDenied", CLI_NOT_PERMITTED, NULL },
	{ BUS_ERROR "ServiceUnknown", CLI_NO_DAEMON, NULL },
	{ BUS_ERROR "NameHasNoOwner", CLI_NO_DAEMON, NULL },
	{ BUS_ERROR "NoReply", CLI_NO_DAEMON, N_("profd ended before it answered") },
};

GError *transport_translate(const GError *error)
{
	g_autofree char *name = g_dbus_error_get_remote_error(error);
	g_autoptr(GError) stripped = g_error_copy(error);
	struct meaning meaning = { NULL, CLI_FAILURE, NULL };

	if (g_error_matches(error, G_IO_ERROR, G_IO_ERROR_CLOSED))
		meaning.text = N_("profd ended unexpectedly; the capture has what was "
				  "written until then");
	if (g_error_matches(error, G_IO_ERROR, G_IO_ERROR_TIMED_OUT))
		meaning = (struct meaning){ NULL, CLI_NO_DAEMON,
					    N_("profd does not answer; if it hangs, "
					       "'systemctl restart profd' as root helps") };
	for (size_t i = 0; name && i < ARRAY_SIZE(meanings); i++)
		if (strcmp(meanings[i].name, name) == 0)
			meaning = meanings[i];
	g_dbus_error_strip_remote_error(stripped);
	return g_error_new_literal(CLI_ERROR, meaning.status,
				   meaning.text ? _(meaning.text) : stripped->message);
}

/* ---- A profd of our own ---------------------------------------------------------------------- */

static bool start_profd(struct transport *transport, const char *argument, int *ret_socket,
			GError **error)
{
	const char *dir = secure_getenv("PROF_LIBEXEC_DIR");
	g_autofree char *path =
		g_build_filename(dir ? dir : PROF_DEFAULT_LIBEXEC_DIR, "profd", NULL);
	CLEANUP_CLOSE int theirs = -1;
	struct spawn spawn = {
		.path = path,
		.name = "profd",
		.argument = argument,
		.n_fds = 1,
		.own_session = true,
	};
	int sockets[2], r;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) < 0)
		return cli_set_error(error, CLI_NO_DAEMON, _("cannot make a socket: %s"),
				     ERRNO_TEXT(errno));
	*ret_socket = sockets[0];
	spawn.fds[0] = theirs = sockets[1];
	r = spawn_program(&spawn, &transport->pid);
	return r == 0 ||
	       cli_set_error(
		       error, CLI_NO_DAEMON,
		       r == -EAGAIN || r == -ENOMEM
			       ? _("cannot start '%s': %s")
			       : _("cannot start '%s': %s; PROF_LIBEXEC_DIR names the folder that it is in"),
		       path, ERRNO_TEXT(-r));
}

static bool connect_to_own(struct transport *transport, const char *argument,
			   GCancellable *cancellable, GError **error)
{
	int fd = -1;
	g_autoptr(GError) failure = NULL;
	g_autoptr(GSocket) socket = NULL;
	g_autoptr(GSocketConnection) stream = NULL;

	if (!start_profd(transport, argument, &fd, error))
		return false;
	socket = g_socket_new_from_fd(fd, &failure);
	if (!socket) {
		close(fd);
	} else {
		stream = g_socket_connection_factory_create_connection(socket);
		transport->connection = g_dbus_connection_new_sync(
			G_IO_STREAM(stream), NULL, G_DBUS_CONNECTION_FLAGS_AUTHENTICATION_CLIENT,
			NULL, cancellable, &failure);
	}
	return transport->connection ||
	       cli_set_error(error, CLI_NO_DAEMON, _("cannot talk to profd: %s"),
			     cli_reason(failure));
}

static bool find_own(struct transport *transport, GCancellable *cancellable, GError **error)
{
	return connect_to_own(transport, "--private=3", cancellable, error);
}

static bool find_own_for_probes(struct transport *transport, GCancellable *cancellable,
				GError **error)
{
	return connect_to_own(transport, "--private-probes=3", cancellable, error);
}

void transport_close(struct transport *transport)
{
	if (transport->connection) {
		g_dbus_connection_close_sync(transport->connection, NULL, NULL);
		g_object_unref(transport->connection);
	} else if (transport->pid) {
		/* kill it immediately: without a client, this profd has no capture to finish */
		kill(transport->pid, SIGKILL);
	}
	if (transport->pid) {
		/* wait, so that profd has ended when the shell prompts again */
		CLEANUP_CLOSE int fd = pidfd_open(transport->pid, 0);
		struct pollfd item = { .fd = fd, .events = POLLIN };

		if (fd >= 0)
			poll(&item, 1, EXIT_PATIENCE_MS);
		waitpid(transport->pid, NULL, WNOHANG);
	}
	g_free(transport->destination);
	*transport = (struct transport){ 0 };
}

/* ---- The system's profd ---------------------------------------------------------------------- */

static bool connect_to_bus(struct transport *transport, GCancellable *cancellable, GError **error)
{
	g_autoptr(GError) failure = NULL;
	g_autofree char *address =
		g_dbus_address_get_for_bus_sync(G_BUS_TYPE_SYSTEM, cancellable, &failure);

	if (address)
		transport->connection = g_dbus_connection_new_for_address_sync(
			address,
			G_DBUS_CONNECTION_FLAGS_AUTHENTICATION_CLIENT |
				G_DBUS_CONNECTION_FLAGS_MESSAGE_BUS_CONNECTION,
			NULL, cancellable, &failure);
	if (transport->connection)
		return true;
	transport->is_absent = !g_error_matches(failure, G_IO_ERROR, G_IO_ERROR_PERMISSION_DENIED);
	if (!transport->is_absent)
		return cli_set_error(error, CLI_NO_DAEMON,
				     _("the system bus does not let this user connect"));
	/* DBUS_SYSTEM_BUS_ADDRESS may refer to the bus of a container or of a test. */
	return cli_set_error(
		error, CLI_NO_DAEMON,
		g_getenv("DBUS_SYSTEM_BUS_ADDRESS")
			? _("there is no system bus where DBUS_SYSTEM_BUS_ADDRESS says")
			: _("there is no system bus; 'systemctl start dbus' as root starts it"));
}

static GVariant *call_bus(const struct transport *transport, const char *method,
			  GVariant *arguments, const char *reply_type, GCancellable *cancellable,
			  GError **error)
{
	return g_dbus_connection_call_sync(transport->connection, BUS_NAME, BUS_PATH, BUS_NAME,
					   method, arguments, G_VARIANT_TYPE(reply_type),
					   G_DBUS_CALL_FLAGS_NONE, ANSWER_PATIENCE_S * 1000,
					   cancellable, error);
}

static bool no_service(struct transport *transport, const GError *failure, GError **error)
{
	g_autofree char *name = g_dbus_error_get_remote_error(failure);
	g_autoptr(GError) translated = transport_translate(failure);

	transport->is_absent = name && strcmp(name, BUS_ERROR "ServiceUnknown") == 0;
	if (transport->is_absent)
		return cli_set_error(error, CLI_NO_DAEMON, _("the system bus has no profd"));
	return cli_set_error(error, CLI_NO_DAEMON,
			     _("the system bus's profd cannot be reached (%s)"),
			     translated->message);
}

/* Gets profd's version; this starts the service. The caller frees *ret_version. */
static bool get_version(struct transport *transport, GCancellable *cancellable, char **ret_version,
			GError **error)
{
	g_autoptr(GError) failure = NULL;
	g_autoptr(GVariant) value = NULL;
	g_autoptr(GVariant) reply = g_dbus_connection_call_sync(
		transport->connection, PROFD_NAME, PROFD_PATH, "org.freedesktop.DBus.Properties",
		"Get", g_variant_new("(ss)", PROFD_INTERFACE, "Version"), G_VARIANT_TYPE("(v)"),
		G_DBUS_CALL_FLAGS_NONE, ANSWER_PATIENCE_S * 1000, cancellable, &failure);

	if (!reply)
		return no_service(transport, failure, error);
	g_variant_get(reply, "(v)", &value);
	if (!g_variant_is_of_type(value, G_VARIANT_TYPE_STRING))
		return cli_set_error(
			error, CLI_NO_DAEMON,
			_("the service named profd on the system bus is another program"));
	*ret_version = g_variant_dup_string(value, NULL);
	return true;
}

static bool find_running(struct transport *transport, GCancellable *cancellable, GError **error)
{
	g_autoptr(GError) failure = NULL;
	g_autoptr(GVariant) reply = NULL;

	if (!transport->connection && !connect_to_bus(transport, cancellable, error))
		return false;
	reply = call_bus(transport, "GetNameOwner", g_variant_new("(s)", PROFD_NAME), "(s)",
			 cancellable, &failure);
	if (!reply)
		return no_service(transport, failure, error);
	g_variant_get(reply, "(s)", &transport->destination);
	return true;
}

static bool find_system(struct transport *transport, GCancellable *cancellable, GError **error)
{
	static const char ours[] = PROF_VERSION;
	const char *end = strchr(ours, '.');
	g_autofree char *version = NULL;

	if (!connect_to_bus(transport, cancellable, error) ||
	    !get_version(transport, cancellable, &version, error) ||
	    !find_running(transport, cancellable, error))
		return false;
	/* If the major version is 0, the minor version must match, too. */
	if (end && strncmp(ours, "0.", 2) == 0)
		end = strchr(end + 1, '.');
	return (end && strncmp(ours, version, (size_t)(end - ours) + 1) == 0) ||
	       cli_set_error(
		       error, CLI_NO_DAEMON,
		       _("the system bus's profd is version %s, which profctl %s does not understand"),
		       version, PROF_VERSION);
}

/* ---- Opening --------------------------------------------------------------------------------- */

/* Cancels a call on a timeout or signal. Uses a thread, because the main loop does not run. */
struct patience {
	GMainContext *context;
	GCancellable *cancellable;
	bool has_signal; /* cancelled by a signal, not by the timeout */
	atomic_bool is_over;
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

static void add_source(struct patience *patience, GSource *source, GSourceFunc callback)
{
	g_source_set_callback(source, callback, patience, NULL);
	g_source_attach(source, patience->context);
	g_source_unref(source);
}

static gpointer run_patience(gpointer data)
{
	const struct patience *patience = data;

	while (!atomic_load(&patience->is_over))
		g_main_context_iteration(patience->context, TRUE);
	return NULL;
}

bool transport_open(struct transport *transport, enum transport_kind kind, GError **error)
{
	static bool (*const finders[])(struct transport *, GCancellable *, GError **) = {
		[TRANSPORT_PRIVATE] = find_own,
		[TRANSPORT_PROBES] = find_own_for_probes,
		[TRANSPORT_SYSTEM] = find_system,
		[TRANSPORT_RUNNING] = find_running,
	};
	struct patience patience = { .context = g_main_context_new(),
				     .cancellable = g_cancellable_new() };
	GThread *thread;
	bool ok = false;

	*transport = (struct transport){ 0 };
	add_source(&patience, g_unix_signal_source_new(SIGINT), on_signal);
	add_source(&patience, g_unix_signal_source_new(SIGTERM), on_signal);
	add_source(&patience, g_timeout_source_new_seconds(ANSWER_PATIENCE_S), on_timeout);
	thread = g_thread_try_new("patience", run_patience, &patience, NULL);
	if (thread) {
		ok = finders[kind](transport, patience.cancellable, error);
		if (!ok) {
			bool is_absent = transport->is_absent;

			transport_close(transport);
			transport->is_absent = is_absent;
		}
		atomic_store(&patience.is_over, true);
		g_main_context_wakeup(patience.context);
		g_thread_join(thread);
	} else {
		cli_set_error(error, CLI_FAILURE, _("cannot start a thread: %s"),
			      ERRNO_TEXT(EAGAIN));
	}
	if (!ok && g_cancellable_is_cancelled(patience.cancellable)) {
		g_clear_error(error);
		if (patience.has_signal)
			cli_set_error(error, CLI_INTERRUPTED,
				      _("interrupted before profd answered"));
		else
			cli_set_error(error, CLI_NO_DAEMON, _("profd did not answer for %u s"),
				      ANSWER_PATIENCE_S);
	}
	g_main_context_unref(patience.context);
	g_object_unref(patience.cancellable);
	return ok;
}

static bool list_has(const struct transport *transport, const char *method, const char *name)
{
	g_autofree const char **names = NULL;
	g_autoptr(GVariant) reply = call_bus(transport, method, NULL, "(as)", NULL, NULL);

	if (reply)
		g_variant_get(reply, "(^a&s)", &names);
	return names && g_strv_contains(names, name);
}

int transport_bus_has(const char *name)
{
	struct transport transport = { 0 };
	int result = -ENOTCONN;

	if (connect_to_bus(&transport, NULL, NULL))
		result = list_has(&transport, "ListNames", name) ||
			 list_has(&transport, "ListActivatableNames", name);
	transport_close(&transport);
	return result;
}
