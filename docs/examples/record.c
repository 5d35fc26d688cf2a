/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Records a process for some seconds: a client of org.profd.Profiler1 in C, with GDBus
 *
 *     record PID SECONDS FILE                     by the system's profd
 *     record --private PROFD PID SECONDS FILE     by a private profd: the program PROFD
 *
 *     cc -o record record.c $(pkg-config --cflags --libs gio-unix-2.0)
 *
 * The session belongs to the connection: if this program dies, profd finishes the file.
 */
#include <fcntl.h>
#include <gio/gio.h>
#include <gio/gunixfdlist.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define NAME "org.profd.Profiler1"
#define ROOT "/org/profd/Profiler1"
#define PROFILER "org.profd.Profiler1"
#define SESSION "org.profd.Profiler1.Session"

struct recording {
	GMainLoop *loop;
	GDBusConnection *connection;
	const char *name; /* profd's bus name; NULL: a private connection, without names */
	char *session;
	int status;
};

static void fail(const GError *error)
{
	/* the message has an error name such as org.profd.Profiler1.Error.NotAuthorized */
	fprintf(stderr, "record: %s\n", error->message);
	exit(1);
}

/* Calls a method, and waits for its answer. */
static GVariant *call(const struct recording *recording, const char *path, const char *interface,
		      const char *method, GVariant *arguments, GUnixFDList *fds)
{
	GError *error = NULL;
	GVariant *reply;

	/* no timeout: the user may have to type a password */
	reply = g_dbus_connection_call_with_unix_fd_list_sync(
		recording->connection, recording->name, path, interface, method, arguments, NULL,
		G_DBUS_CALL_FLAGS_ALLOW_INTERACTIVE_AUTHORIZATION, G_MAXINT, fds, NULL, NULL,
		&error);
	if (!reply)
		fail(error);
	return reply;
}

static void on_signal(GDBusConnection *connection, const char *sender, const char *path,
		      const char *interface, const char *name, GVariant *arguments, gpointer data)
{
	struct recording *recording = data;
	GVariant *summary;
	guint64 samples = 0, lost = 0;
	const char *text;
	gboolean ok;

	if (strcmp(name, "Warning") == 0) {
		g_variant_get(arguments, "(&s&s)", NULL, &text);
		fprintf(stderr, "record: %s\n", text);
	} else if (strcmp(name, "Finished") == 0) {
		g_variant_get(arguments, "(b&s@a{sv})", &ok, &text, &summary);
		g_variant_lookup(summary, "samples", "t", &samples);
		g_variant_lookup(summary, "lost", "t", &lost);
		printf("%" G_GUINT64_FORMAT " samples, %" G_GUINT64_FORMAT " lost (%s)\n", samples,
		       lost, text);
		g_variant_unref(summary);
		recording->status = ok ? 0 : 1;
		g_main_loop_quit(recording->loop);
	}
}

static void end(const struct recording *recording)
{
	fprintf(stderr, "record: profd is gone\n");
	g_main_loop_quit(recording->loop);
}

static void on_closed(GDBusConnection *connection, gboolean by_peer, GError *error, gpointer data)
{
	end(data);
}

static void on_vanished(GDBusConnection *connection, const char *name, gpointer data)
{
	end(data);
}

static gboolean stop(gpointer data)
{
	const struct recording *recording = data;

	g_variant_unref(call(recording, recording->session, SESSION, "Stop", NULL, NULL));
	return G_SOURCE_REMOVE;
}

/* Starts a private profd on one end of a socketpair. */
static void connect_private(struct recording *recording, const char *program)
{
	GSocketConnection *stream;
	GError *error = NULL;
	GSocket *socket;
	char option[32];
	int sockets[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) < 0) {
		perror("record: socketpair");
		exit(1);
	}
	if (fork() == 0) {
		fcntl(sockets[1], F_SETFD, 0);
		snprintf(option, sizeof(option), "--private=%d", sockets[1]);
		execl(program, "profd", option, (char *)NULL);
		perror(program);
		_exit(127);
	}
	close(sockets[1]);
	socket = g_socket_new_from_fd(sockets[0], &error);
	if (!socket)
		fail(error);
	stream = g_socket_connection_factory_create_connection(socket);
	recording->connection = g_dbus_connection_new_sync(
		G_IO_STREAM(stream), NULL, G_DBUS_CONNECTION_FLAGS_AUTHENTICATION_CLIENT, NULL,
		NULL, &error);
	if (!recording->connection)
		fail(error);
	g_object_unref(stream);
	g_object_unref(socket);
}

static void create_session(struct recording *recording, guint32 pid, const char *file)
{
	GUnixFDList *fds = g_unix_fd_list_new();
	GVariantDict options;
	GError *error = NULL;
	GVariant *reply;
	int handle, fd = open(file, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);

	if (fd < 0) {
		perror(file);
		exit(1);
	}
	handle = g_unix_fd_list_append(fds, fd, &error);
	if (handle < 0)
		fail(error);
	close(fd);
	g_variant_dict_init(&options, NULL);
	g_variant_dict_insert_value(&options, "pids",
				    g_variant_new_fixed_array(G_VARIANT_TYPE_UINT32, &pid, 1,
							      sizeof(pid)));
	g_variant_dict_insert(&options, "frequency", "u", 999);
	reply = call(recording, ROOT, PROFILER, "CreateSession",
		     g_variant_new("(@a{sv}h)", g_variant_dict_end(&options), handle), fds);
	g_variant_get(reply, "(o)", &recording->session);
	g_variant_unref(reply);
	g_object_unref(fds);
}

int main(int argc, char **argv)
{
	struct recording recording = { .status = 1 };
	GError *error = NULL;
	guint watch = 0;

	if (argc > 2 && strcmp(argv[1], "--private") == 0) {
		connect_private(&recording, argv[2]);
		argc -= 2;
		argv += 2;
	}
	if (argc != 4) {
		fprintf(stderr, "usage: record [--private PROFD] PID SECONDS FILE\n");
		return 2;
	}
	if (!recording.connection) {
		recording.name = NAME;
		recording.connection = g_bus_get_sync(G_BUS_TYPE_SYSTEM, NULL, &error);
	}
	if (!recording.connection)
		fail(error);
	recording.loop = g_main_loop_new(NULL, FALSE);
	g_signal_connect(recording.connection, "closed", G_CALLBACK(on_closed), &recording);
	g_dbus_connection_signal_subscribe(recording.connection, recording.name, SESSION, NULL,
					   NULL, NULL, G_DBUS_SIGNAL_FLAGS_NONE, on_signal,
					   &recording, NULL);
	create_session(&recording, (guint32)strtoul(argv[1], NULL, 10), argv[3]);
	/* The call has started profd, so the name now has an owner, until profd exits. */
	if (recording.name)
		watch = g_bus_watch_name_on_connection(recording.connection, recording.name,
						       G_BUS_NAME_WATCHER_FLAGS_NONE, NULL,
						       on_vanished, &recording, NULL);
	g_variant_unref(call(&recording, recording.session, SESSION, "Start", NULL, NULL));
	g_timeout_add((guint)(strtod(argv[2], NULL) * 1000), stop, &recording);
	g_main_loop_run(recording.loop);
	if (watch)
		g_bus_unwatch_name(watch);
	g_signal_handlers_disconnect_by_data(recording.connection, &recording);
	g_object_unref(recording.connection);
	g_main_loop_unref(recording.loop);
	g_free(recording.session);
	return recording.status;
}
