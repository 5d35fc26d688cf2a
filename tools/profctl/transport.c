/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Transport - the two ways to reach a profd
 *
 * On the system bus: the first call to the well-known name starts the service; all later calls go
 * to that process alone, by its unique name. A profd of another version is not used, because its
 * options may have other meanings. Private: `profd --private` on a socketpair, in a session of its
 * own so that a Ctrl-C does not reach it. It is bound to the connection: when this process ends,
 * for any reason, profd finishes the file and ends.
 */
#include "config.h"

#include "arch/errno-text.h"
#include "tools/profctl/transport.h"

#include "arch/spawn.h"
#include "tools/common/cli.h"
#include "tools/profctl/patience.h"

#include <errno.h>
#include <glib/gi18n.h>
#include <poll.h>
#include <signal.h>
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

/* The meaning of a D-Bus error for the user of profctl; without a text, profd's own message is
 * used. */
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

static struct meaning meaning_of(const GError *error)
{
	g_autofree char *name = g_dbus_error_get_remote_error(error);

	if (g_error_matches(error, G_IO_ERROR, G_IO_ERROR_CLOSED))
		return (struct meaning){ NULL, CLI_FAILURE,
					 N_("profd ended unexpectedly; the capture has what was "
					    "written until then") };
	if (g_error_matches(error, G_IO_ERROR, G_IO_ERROR_TIMED_OUT))
		return (struct meaning){ NULL, CLI_NO_DAEMON,
					 N_("profd does not answer; if it hangs, "
					    "'systemctl restart profd' as root helps") };
	for (size_t i = 0; name && i < ARRAY_SIZE(meanings); i++)
		if (strcmp(meanings[i].name, name) == 0)
			return meanings[i];
	return (struct meaning){ NULL, CLI_FAILURE, NULL };
}

GError *transport_translate(const GError *error)
{
	const struct meaning meaning = meaning_of(error);
	g_autoptr(GError) stripped = g_error_copy(error);

	g_dbus_error_strip_remote_error(stripped);
	return g_error_new_literal(CLI_ERROR, meaning.status,
				   meaning.text ? _(meaning.text) : stripped->message);
}

/* ---- A profd of our own ---------------------------------------------------------------------- */

static bool start_profd(struct transport *transport, int *ret_socket, GError **error)
{
	const char *dir = secure_getenv("PROF_LIBEXEC_DIR");
	g_autofree char *path =
		g_build_filename(dir ? dir : PROF_DEFAULT_LIBEXEC_DIR, "profd", NULL);
	CLEANUP_CLOSE int theirs = -1;
	struct spawn spawn = {
		.path = path,
		.name = "profd",
		.argument = "--private=3",
		.n_fds = 1,
		.own_session = true,
	};
	int sockets[2], r;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) < 0) {
		g_set_error(error, CLI_ERROR, CLI_NO_DAEMON, _("cannot make a socket: %s"),
			    ERRNO_TEXT(errno));
		return false;
	}
	*ret_socket = sockets[0];
	spawn.fds[0] = theirs = sockets[1];
	r = spawn_program(&spawn, &transport->pid);
	if (r != 0) {
		g_set_error(
			error, CLI_ERROR, CLI_NO_DAEMON,
			r == -EAGAIN || r == -ENOMEM
				? _("cannot start '%s': %s")
				: _("cannot start '%s': %s; PROF_LIBEXEC_DIR names the folder that it is in"),
			path, ERRNO_TEXT(-r));
		return false;
	}
	return true;
}

static bool connect_to(struct transport *transport, int fd, GCancellable *cancellable,
		       GError **error)
{
	g_autoptr(GError) failure = NULL;
	g_autoptr(GSocket) socket = g_socket_new_from_fd(fd, &failure);
	g_autoptr(GSocketConnection) stream = NULL;

	if (!socket) {
		close(fd);
	} else {
		stream = g_socket_connection_factory_create_connection(socket);
		transport->connection = g_dbus_connection_new_sync(
			G_IO_STREAM(stream), NULL, G_DBUS_CONNECTION_FLAGS_AUTHENTICATION_CLIENT,
			NULL, cancellable, &failure);
	}
	if (!transport->connection) {
		g_set_error(error, CLI_ERROR, CLI_NO_DAEMON, _("cannot talk to profd: %s"),
			    failure->message);
		return false;
	}
	return true;
}

static bool find_own(struct transport *transport, GCancellable *cancellable, GError **error)
{
	int fd = -1;

	return start_profd(transport, &fd, error) && connect_to(transport, fd, cancellable, error);
}

/* Waits so that no process is left when the shell's next prompt appears. */
static void wait_for_end(pid_t pid)
{
	CLEANUP_CLOSE int fd = pidfd_open(pid, 0);
	struct pollfd item = { .fd = fd, .events = POLLIN };

	if (fd >= 0)
		poll(&item, 1, EXIT_PATIENCE_MS);
	waitpid(pid, NULL, WNOHANG);
}

void transport_close(struct transport *transport)
{
	if (transport->connection) {
		g_dbus_connection_close_sync(transport->connection, NULL, NULL);
		g_object_unref(transport->connection);
	}
	/* a profd without a client has nothing to finish */
	if (transport->pid && !transport->connection)
		kill(transport->pid, SIGKILL);
	if (transport->pid)
		wait_for_end(transport->pid);
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
	transport->is_absent = true;
	g_set_error(error, CLI_ERROR, CLI_NO_DAEMON, _("there is no system bus (%s)"),
		    failure->message);
	return false;
}

static bool no_service(struct transport *transport, const GError *failure, GError **error)
{
	g_autofree char *name = g_dbus_error_get_remote_error(failure);
	g_autoptr(GError) translated = transport_translate(failure);

	transport->is_absent = name && strcmp(name, BUS_ERROR "ServiceUnknown") == 0;
	if (transport->is_absent)
		g_set_error(error, CLI_ERROR, CLI_NO_DAEMON, _("the system bus has no profd"));
	else
		g_set_error(error, CLI_ERROR, CLI_NO_DAEMON,
			    _("the system bus's profd cannot be reached (%s)"),
			    translated->message);
	return false;
}

/* Starts it too. The caller frees *ret_version. */
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
	if (!g_variant_is_of_type(value, G_VARIANT_TYPE_STRING)) {
		g_set_error(error, CLI_ERROR, CLI_NO_DAEMON,
			    _("the service named profd on the system bus is another program"));
		return false;
	}
	*ret_version = g_variant_dup_string(value, NULL);
	return true;
}

static bool get_owner(struct transport *transport, GCancellable *cancellable, GError **error)
{
	g_autoptr(GError) failure = NULL;
	g_autoptr(GVariant) reply = g_dbus_connection_call_sync(
		transport->connection, BUS_NAME, BUS_PATH, BUS_NAME, "GetNameOwner",
		g_variant_new("(s)", PROFD_NAME), G_VARIANT_TYPE("(s)"), G_DBUS_CALL_FLAGS_NONE,
		ANSWER_PATIENCE_S * 1000, cancellable, &failure);

	if (!reply)
		return no_service(transport, failure, error);
	g_variant_get(reply, "(s)", &transport->destination);
	return true;
}

/* While the first number is 0, the second one must match too. */
static bool is_compatible(const char *theirs)
{
	static const char ours[] = PROF_VERSION;
	const char *end = strchr(ours, '.');

	if (end && strncmp(ours, "0.", 2) == 0)
		end = strchr(end + 1, '.');
	return end && strncmp(ours, theirs, (size_t)(end - ours) + 1) == 0;
}

static bool find_system(struct transport *transport, GCancellable *cancellable, GError **error)
{
	g_autofree char *version = NULL;

	if (!connect_to_bus(transport, cancellable, error) ||
	    !get_version(transport, cancellable, &version, error) ||
	    !get_owner(transport, cancellable, error))
		return false;
	if (is_compatible(version))
		return true;
	g_set_error(error, CLI_ERROR, CLI_NO_DAEMON,
		    _("the system bus's profd is version %s, which profctl %s does not understand"),
		    version, PROF_VERSION);
	return false;
}

static bool find_running(struct transport *transport, GCancellable *cancellable, GError **error)
{
	return connect_to_bus(transport, cancellable, error) &&
	       get_owner(transport, cancellable, error);
}

/* ---- Opening --------------------------------------------------------------------------------- */

static bool open_with(struct transport *transport,
		      bool (*find)(struct transport *, GCancellable *, GError **), GError **error)
{
	struct patience *patience = patience_begin(ANSWER_PATIENCE_S, error);
	bool ok;

	*transport = (struct transport){ 0 };
	ok = patience && find(transport, patience_cancellable(patience), error);
	if (!ok) {
		bool is_absent = transport->is_absent;

		transport_close(transport);
		transport->is_absent = is_absent;
	}
	return patience_end(patience, ok, error);
}

bool transport_open_private(struct transport *transport, GError **error)
{
	return open_with(transport, find_own, error);
}

bool transport_open_system(struct transport *transport, GError **error)
{
	return open_with(transport, find_system, error);
}

bool transport_open_running(struct transport *transport, GError **error)
{
	return open_with(transport, find_running, error);
}

static bool list_has(const struct transport *transport, const char *method, const char *name)
{
	g_autofree const char **names = NULL;
	g_autoptr(GVariant)
		reply = g_dbus_connection_call_sync(transport->connection, BUS_NAME, BUS_PATH,
						    BUS_NAME, method, NULL, G_VARIANT_TYPE("(as)"),
						    G_DBUS_CALL_FLAGS_NONE,
						    ANSWER_PATIENCE_S * 1000, NULL, NULL);

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
