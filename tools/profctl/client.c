/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Client - profctl's side of org.profd.Profiler1
 *
 * Starts `profd --private` on a socketpair, in a session of its own so that a Ctrl-C does not reach it, and speaks
 * D-Bus to it as a peer. profd is bound to the connection: when this process goes, however it goes, profd finishes
 * the file and ends.
 */
#include "config.h"

#include "tools/profctl/client.h"

#include "tools/common/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <gio/gunixfdlist.h>
#include <glib/gi18n.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define ROOT_PATH "/org/profd/Profiler1"
#define ROOT_INTERFACE "org.profd.Profiler1"
#define SESSION_INTERFACE "org.profd.Profiler1.Session"
#define ERROR_PREFIX "org.profd.Profiler1.Error."
#define PRIVATE_FD 3
#define EXIT_PATIENCE_MS 1000

struct client {
	const struct client_listener *listener;
	void *data;
	pid_t pid;
	GDBusConnection *connection;
	char *session; /* object path */
	bool over;     /* finished or failed was called */
};

/* ---- Errors ------------------------------------------------------------------------------------- */

static enum cli_status status_of(const char *name)
{
	static const struct {
		const char *name;
		enum cli_status status;
	} statuses[] = {
		{ ERROR_PREFIX "NotAuthorized", CLI_NOT_PERMITTED },
		{ ERROR_PREFIX "InvalidOption", CLI_USAGE },
	};

	for (size_t i = 0; name && i < ARRAY_SIZE(statuses); i++)
		if (strcmp(statuses[i].name, name) == 0)
			return statuses[i].status;
	return CLI_FAILURE;
}

static GError *profd_gone(void)
{
	return g_error_new_literal(
		CLI_ERROR, CLI_FAILURE,
		_("profd ended unexpectedly; the capture has what was written until then"));
}

/* An error of a call, as the user reads it: without the name that D-Bus gives it. */
static GError *translate(const GError *error)
{
	g_autofree char *name = g_dbus_error_get_remote_error(error);
	g_autoptr(GError) stripped = g_error_copy(error);

	if (g_error_matches(error, G_IO_ERROR, G_IO_ERROR_CLOSED))
		return profd_gone();
	g_dbus_error_strip_remote_error(stripped);
	return g_error_new_literal(CLI_ERROR, status_of(name), stripped->message);
}

static void fail(struct client *client, const GError *error)
{
	if (client->over)
		return;
	client->over = true;
	client->listener->failed(error, client->data);
}

/* ---- Signals ------------------------------------------------------------------------------------ */

static void read_counters(GVariant *dictionary, struct client_counters *counters)
{
	*counters = (struct client_counters){ 0 };
	g_variant_lookup(dictionary, "samples", "t", &counters->samples);
	g_variant_lookup(dictionary, "events", "t", &counters->events);
	g_variant_lookup(dictionary, "lost", "t", &counters->lost);
	g_variant_lookup(dictionary, "bytes", "t", &counters->bytes);
}

static void on_finished(struct client *client, GVariant *arguments)
{
	g_autoptr(GVariant) summary = NULL;
	const char *reason;
	gboolean ok;

	g_variant_get(arguments, "(b&s@a{sv})", &ok, &reason, &summary);
	client->over = true;
	client->listener->finished(ok, reason, summary, client->data);
}

static void on_signal(GDBusConnection *connection, const char *sender, const char *path,
		      const char *interface, const char *name, GVariant *arguments, gpointer data)
{
	struct client *client = data;

	if (client->over)
		return;
	if (strcmp(name, "Progress") == 0 &&
	    g_variant_is_of_type(arguments, G_VARIANT_TYPE("(a{sv})"))) {
		g_autoptr(GVariant) dictionary = g_variant_get_child_value(arguments, 0);
		struct client_counters counters;

		read_counters(dictionary, &counters);
		client->listener->progress(&counters, client->data);
	} else if (strcmp(name, "Warning") == 0 &&
		   g_variant_is_of_type(arguments, G_VARIANT_TYPE("(ss)"))) {
		const char *code, *message;

		g_variant_get(arguments, "(&s&s)", &code, &message);
		client->listener->warning(code, message, client->data);
	} else if (strcmp(name, "Finished") == 0 &&
		   g_variant_is_of_type(arguments, G_VARIANT_TYPE("(bsa{sv})"))) {
		on_finished(client, arguments);
	}
}

static void on_closed(GDBusConnection *connection, gboolean remote_vanished, GError *error,
		      gpointer data)
{
	g_autoptr(GError) gone = profd_gone();

	fail(data, gone);
}

/* ---- Starting profd ----------------------------------------------------------------------------- */

static int spawn(const char *path, int socket, pid_t *ret_pid)
{
	char *const argv[] = { (char *)"profd", (char *)"--private=3", NULL };
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t all, none;
	int r;

	sigfillset(&all);
	sigemptyset(&none);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
	posix_spawn_file_actions_adddup2(&actions, socket, PRIVATE_FD);
	posix_spawn_file_actions_addclosefrom_np(&actions, PRIVATE_FD + 1);
	posix_spawnattr_init(&attributes);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGDEF |
						      POSIX_SPAWN_SETSIGMASK);
	posix_spawnattr_setsigdefault(&attributes, &all);
	posix_spawnattr_setsigmask(&attributes, &none);
	r = posix_spawn(ret_pid, path, &actions, &attributes, argv, environ);
	posix_spawnattr_destroy(&attributes);
	posix_spawn_file_actions_destroy(&actions);
	return r;
}

static bool start_profd(struct client *client, int *ret_socket, GError **error)
{
	const char *dir = secure_getenv("PROF_LIBEXEC_DIR");
	g_autofree char *path =
		g_build_filename(dir ? dir : PROF_DEFAULT_LIBEXEC_DIR, "profd", NULL);
	CLEANUP_CLOSE int theirs = -1;
	int sockets[2], r;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) < 0) {
		g_set_error(error, CLI_ERROR, CLI_NO_DAEMON, _("cannot make a socket: %s"),
			    g_strerror(errno));
		return false;
	}
	*ret_socket = sockets[0];
	theirs = sockets[1];
	r = spawn(path, theirs, &client->pid);
	if (r != 0) {
		g_set_error(
			error, CLI_ERROR, CLI_NO_DAEMON,
			_("cannot start '%s': %s; PROF_LIBEXEC_DIR names the folder that it is in"),
			path, g_strerror(r));
		return false;
	}
	return true;
}

static bool connect_to(struct client *client, int fd, GError **error)
{
	g_autoptr(GError) failure = NULL;
	g_autoptr(GSocket) socket = g_socket_new_from_fd(fd, &failure);
	g_autoptr(GSocketConnection) stream = NULL;

	if (!socket) {
		close(fd);
	} else {
		stream = g_socket_connection_factory_create_connection(socket);
		client->connection = g_dbus_connection_new_sync(
			G_IO_STREAM(stream), NULL, G_DBUS_CONNECTION_FLAGS_AUTHENTICATION_CLIENT,
			NULL, NULL, &failure);
	}
	if (!client->connection) {
		g_set_error(error, CLI_ERROR, CLI_NO_DAEMON, _("cannot talk to profd: %s"),
			    failure->message);
		return false;
	}
	g_dbus_connection_signal_subscribe(client->connection, NULL, SESSION_INTERFACE, NULL, NULL,
					   NULL, G_DBUS_SIGNAL_FLAGS_NONE, on_signal, client, NULL);
	g_signal_connect(client->connection, "closed", G_CALLBACK(on_closed), client);
	return true;
}

struct client *client_new(const struct client_listener *listener, void *data, GError **error)
{
	struct client *client = g_new0(struct client, 1);
	int fd = -1;

	client->listener = listener;
	client->data = data;
	if (!start_profd(client, &fd, error) || !connect_to(client, fd, error)) {
		client_free(client);
		return NULL;
	}
	return client;
}

/* So that no process is left behind for the shell's next prompt. */
static void wait_for_end(pid_t pid)
{
	CLEANUP_CLOSE int fd = pidfd_open(pid, 0);
	struct pollfd item = { .fd = fd, .events = POLLIN };

	if (fd >= 0)
		poll(&item, 1, EXIT_PATIENCE_MS);
	waitpid(pid, NULL, WNOHANG);
}

void client_free(struct client *client)
{
	if (!client)
		return;
	client->over = true;
	if (client->connection) {
		g_signal_handlers_disconnect_by_data(client->connection, client);
		g_dbus_connection_close_sync(client->connection, NULL, NULL);
		g_object_unref(client->connection);
	}
	if (client->pid)
		wait_for_end(client->pid);
	g_free(client->session);
	g_free(client);
}

/* ---- Calls -------------------------------------------------------------------------------------- */

bool client_create(struct client *client, GVariant *options, int capture_fd, GError **error)
{
	g_autoptr(GUnixFDList) fds = g_unix_fd_list_new();
	g_autoptr(GError) failure = NULL;
	g_autoptr(GVariant) reply = NULL;
	int index = g_unix_fd_list_append(fds, capture_fd, &failure);

	if (index >= 0)
		reply = g_dbus_connection_call_with_unix_fd_list_sync(
			client->connection, NULL, ROOT_PATH, ROOT_INTERFACE, "CreateSession",
			g_variant_new("(@a{sv}h)", options, index), G_VARIANT_TYPE("(o)"),
			G_DBUS_CALL_FLAGS_NONE, -1, fds, NULL, NULL, &failure);
	else
		g_variant_unref(g_variant_ref_sink(options));
	if (!reply) {
		g_propagate_error(error, translate(failure));
		return false;
	}
	g_variant_get(reply, "(o)", &client->session);
	return true;
}

static void on_start_reply(GObject *source, GAsyncResult *result, gpointer data)
{
	g_autoptr(GError) failure = NULL;
	g_autoptr(GVariant)
		reply = g_dbus_connection_call_finish(G_DBUS_CONNECTION(source), result, &failure);
	struct client *client = data;

	if (reply) {
		if (!client->over)
			client->listener->started(client->data);
	} else {
		g_autoptr(GError) error = translate(failure);

		fail(client, error);
	}
}

static void call(struct client *client, const char *method, GAsyncReadyCallback done)
{
	g_dbus_connection_call(client->connection, NULL, client->session, SESSION_INTERFACE, method,
			       NULL, NULL, G_DBUS_CALL_FLAGS_NONE, G_MAXINT, NULL, done,
			       done ? client : NULL);
}

void client_start(struct client *client)
{
	call(client, "Start", on_start_reply);
}

void client_stop(struct client *client)
{
	call(client, "Stop", NULL);
}

void client_resume(struct client *client)
{
	call(client, "Resume", NULL);
}

bool client_open_image(struct client *client, uint64_t image, int *ret_fd, GError **error)
{
	g_autoptr(GUnixFDList) fds = NULL;
	g_autoptr(GError) failure = NULL;
	g_autoptr(GVariant) reply = g_dbus_connection_call_with_unix_fd_list_sync(
		client->connection, NULL, client->session, SESSION_INTERFACE, "OpenImage",
		g_variant_new("(t)", (guint64)image), G_VARIANT_TYPE("(h)"), G_DBUS_CALL_FLAGS_NONE,
		-1, NULL, &fds, NULL, &failure);
	int index, fd = -1;

	if (reply && fds) {
		g_variant_get(reply, "(h)", &index);
		fd = g_unix_fd_list_get(fds, index, &failure);
	}
	if (fd < 0) {
		g_propagate_error(error, failure ? translate(failure)
						 : g_error_new(CLI_ERROR, CLI_FAILURE,
							       "profd sent no descriptor"));
		return false;
	}
	*ret_fd = fd;
	return true;
}
