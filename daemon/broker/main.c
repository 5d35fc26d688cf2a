/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * profd - entry point
 *
 *     profd --private=FD    serves one client on FD, one end of a SOCK_STREAM socketpair, without a bus
 *
 * Whoever holds the other end asked for this process and has its rights, so nothing more is authorised here. When the
 * client goes, the engines finish their files, and profd exits. SIGTERM ends it in the same way.
 */
#include "config.h"

#include "arch/base.h"
#include "daemon/broker/images.h"
#include "daemon/broker/service.h"

#include <fcntl.h>
#include <glib-unix.h>
#include <glib/gi18n.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>

struct program {
	GMainLoop *loop;
	GDBusConnection *connection;
	struct service *service;
	bool client_gone;
	int status;
};

static void on_idle(void *data)
{
	struct program *program = data;

	if (program->client_gone)
		g_main_loop_quit(program->loop);
}

static void end(struct program *program)
{
	program->client_gone = true;
	if (program->service)
		service_client_gone(program->service);
	if (!program->service || service_is_idle(program->service))
		g_main_loop_quit(program->loop);
}

static void on_closed(GDBusConnection *connection, gboolean remote_vanished, GError *error,
		      gpointer data)
{
	end(data);
}

static gboolean on_terminate(gpointer data)
{
	end(data);
	return G_SOURCE_CONTINUE;
}

static void fail(struct program *program, const GError *error)
{
	fprintf(stderr, _("profd: cannot serve the client: %s\n"), error->message);
	program->status = 1;
	g_main_loop_quit(program->loop);
}

static void on_connected(GObject *source, GAsyncResult *result, gpointer data)
{
	struct program *program = data;
	g_autoptr(GError) error = NULL;

	program->connection = g_dbus_connection_new_finish(result, &error);
	if (program->connection)
		program->service = service_new(program->connection, on_idle, program, &error);
	if (!program->service) {
		fail(program, error);
		return;
	}
	g_signal_connect(program->connection, "closed", G_CALLBACK(on_closed), program);
	g_dbus_connection_start_message_processing(program->connection);
	if (g_dbus_connection_is_closed(program->connection))
		end(program);
}

static int serve(int fd)
{
	struct program program = { .loop = g_main_loop_new(NULL, FALSE) };
	g_autoptr(GError) error = NULL;
	g_autoptr(GSocket) socket = g_socket_new_from_fd(fd, &error);
	g_autoptr(GSocketConnection) stream = NULL;
	g_autofree char *guid = g_dbus_generate_guid();

	if (!socket) {
		fprintf(stderr, _("profd: descriptor %d is no socket: %s\n"), fd, error->message);
		return 2;
	}
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	images_raise_limit();
	signal(SIGXFSZ, SIG_IGN); /* the write fails as well */
	g_unix_signal_add(SIGTERM, on_terminate, &program);
	stream = g_socket_connection_factory_create_connection(socket);
	g_dbus_connection_new(G_IO_STREAM(stream), guid,
			      G_DBUS_CONNECTION_FLAGS_AUTHENTICATION_SERVER |
				      G_DBUS_CONNECTION_FLAGS_AUTHENTICATION_ALLOW_ANONYMOUS |
				      G_DBUS_CONNECTION_FLAGS_DELAY_MESSAGE_PROCESSING,
			      NULL, NULL, on_connected, &program);
	g_main_loop_run(program.loop);
	if (program.service)
		service_free(program.service);
	if (program.connection)
		g_object_unref(program.connection);
	g_main_loop_unref(program.loop);
	return program.status;
}

/* The number behind "--private=", or -1. */
static int parse_private(const char *argument)
{
	static const char prefix[] = "--private=";
	guint64 fd;

	if (!g_str_has_prefix(argument, prefix) ||
	    !g_ascii_string_to_unsigned(argument + strlen(prefix), 10, 0, INT_MAX, &fd, NULL))
		return -1;
	return (int)fd;
}

int main(int argc, char **argv)
{
	bool help = argc == 2 && strcmp(argv[1], "--help") == 0;

	setlocale(LC_ALL, "");
	bindtextdomain(GETTEXT_PACKAGE, PROF_DEFAULT_LOCALE_DIR);
	textdomain(GETTEXT_PACKAGE);
	if (argc == 2 && strcmp(argv[1], "--version") == 0) {
		printf("profd %s\n", PROF_VERSION);
		return 0;
	}
	if (argc == 2 && parse_private(argv[1]) >= 0)
		return serve(parse_private(argv[1]));
	fprintf(help ? stdout : stderr, _("Usage: %s --private=FD | --version\n"), "profd");
	return help ? 0 : 2;
}
