/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * profd - entry point
 *
 *     profd --system      serves everybody on the system bus, as far as polkit allows
 *     profd --system --control=PATH    the same, with another control socket: for tests
 *     profd --system --idle-timeout=SECONDS    the same, with another idle limit: for tests
 *     profd --private=FD  serves one client on FD, one end of a SOCK_STREAM socketpair
 *     profd --private-probes=FD the same, and may place probes in programs
 *
 * --system: connect ▶ get polkit's authority ▶ register the objects ▶ own the name. This order
 * ensures that no client is ever served without authorization. If the bus or the name is lost, or
 * after a minute without sessions and calls, profd ends as after SIGTERM: it finishes files first.
 * --private: the client started this process and has the same rights, so nothing needs
 * authorization. When the client leaves, the engines finish their files, and profd exits.
 */
#include "config.h"

#include "arch/base.h"
#include "arch/errno-text.h"
#include "arch/start-threads.h"
#include "daemon/broker/access-check.h"
#include "daemon/broker/child.h"
#include "daemon/broker/control.h"
#include "daemon/broker/descriptors.h"
#include "daemon/broker/events.h"
#include "daemon/broker/images.h"
#include "daemon/broker/name.h"
#include "daemon/broker/sandbox.h"
#include "daemon/broker/service.h"

#include <errno.h>
#include <fcntl.h>
#include <glib-unix.h>
#include <glib/gi18n.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>

#define BUS_NAME "org.profd.Profiler1"
#define IDLE_TIMEOUT_S 60
#define MAX_TURNS 1000
#define MIN_DESCRIPTORS 128
#define THREADS 4 /* GLib's threads, the thread that closes descriptors, and the engine process */

/* Arguments of --system. */
struct arguments {
	unsigned idle_timeout_s;
	const char *control; /* socket at which collectors register */
};

struct program {
	GMainLoop *loop;
	GDBusConnection *connection;
	struct authority *authority; /* NULL: private client */
	struct control *control;     /* NULL: no socket */
	struct service *service;
	struct name *name; /* NULL: not owned, or released */
	guint unused;
	unsigned idle_timeout_s; /* 0: does not exit when idle */
	bool ending;
	int status;
};

static gboolean on_unused(gpointer data);

static void on_idle(void *data)
{
	struct program *program = data;

	if (program->ending) {
		g_main_loop_quit(program->loop);
	} else if (program->idle_timeout_s && service_is_unused(program->service)) {
		g_clear_handle_id(&program->unused, g_source_remove);
		program->unused =
			g_timeout_add_seconds(program->idle_timeout_s, on_unused, program);
	}
}

static void end(struct program *program)
{
	program->ending = true;
	g_clear_handle_id(&program->unused, g_source_remove);
	if (program->name)
		name_release(program->name, NULL);
	if (program->service)
		service_end(program->service);
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

static void fail(struct program *program, const char *act, const GError *error)
{
	fprintf(stderr, "profd: %s: %s\n", act, error->message);
	program->status = 1;
	g_main_loop_quit(program->loop);
}

/* Serves what has arrived so far. The limit ensures that a client that calls endlessly does not
 * keep profd running. */
static void serve_the_rest(void)
{
	for (unsigned i = 0; i < MAX_TURNS && g_main_context_iteration(NULL, FALSE); i++)
		;
}

/* Releases everything, and returns the exit status. */
static int done(struct program *program)
{
	g_clear_pointer(&program->name, name_free);
	if (program->service)
		service_end_calls(program->service);
	access_check_end();
	if (program->authority)
		authority_end(program->authority);
	/* Sends the answers to the canceled calls. The service and the authority still exist,
	 * because clients may leave meanwhile. */
	serve_the_rest();
	/* Free the control socket before the service, because it passes peers to the service. */
	control_free(program->control);
	if (program->service)
		service_free(program->service);
	authority_free(program->authority);
	if (program->connection) {
		g_signal_handlers_disconnect_by_data(program->connection, program);
		g_object_unref(program->connection);
	}
	g_main_loop_unref(program->loop);
	return program->status;
}

static int run(struct program *program)
{
	signal(SIGXFSZ, SIG_IGN); /* so that a write beyond RLIMIT_FSIZE fails */
	g_unix_signal_add(SIGTERM, on_terminate, program);
	g_main_loop_run(program->loop);
	return done(program);
}

static bool keep_numbers(void)
{
	if (child_keep_numbers())
		return true;
	fprintf(stderr, "profd: /dev/null: %s\n", ERRNO_TEXT(errno));
	return false;
}

/* Must be called before there is another thread, because each thread has its own capabilities. */
static bool enter_sandbox(void)
{
	g_autoptr(GError) error = NULL;

	event_dirs_prepare();
	if (sandbox_enter(&error))
		return true;
	fprintf(stderr, _("profd: cannot drop privileges: %s\n"), error->message);
	return false;
}

/* ---- The system bus -------------------------------------------------------------------------- */

static void on_name_lost(void *data)
{
	struct program *program = data;

	if (program->ending)
		return;
	fprintf(stderr,
		_("profd: cannot have the name \"%s\" on the system bus: the bus's policy is not "
		  "installed, or another profd has it\n"),
		BUS_NAME);
	program->status = 1;
	end(program);
}

static void own_name(struct program *program)
{
	program->name = name_new(program->connection, BUS_NAME, on_name_lost, program);
}

/* Called when the name is released: new calls go to a profd that the bus starts for them, earlier
 * calls are served here. */
static void on_released(void *data)
{
	struct program *program = data;

	g_clear_pointer(&program->name, name_free);
	serve_the_rest();
	if (program->ending)
		return;
	if (service_is_unused(program->service))
		end(program);
	else
		own_name(program);
}

static gboolean on_unused(gpointer data)
{
	struct program *program = data;

	program->unused = 0;
	/* If profd is in use, on_idle() will start the timer again. */
	if (service_is_unused(program->service))
		name_release(program->name, on_released);
	return G_SOURCE_REMOVE;
}

static void on_authority(struct authority *authority, const GError *error, void *data)
{
	struct program *program = data;
	g_autoptr(GError) failure = NULL;

	if (!authority) {
		fail(program, _("cannot query polkit"), error);
		return;
	}
	program->authority = authority;
	program->service = service_new(program->connection, authority, program->control, on_idle,
				       program, &failure);
	if (!program->service) {
		fail(program, _("cannot serve"), failure);
		return;
	}
	own_name(program);
	on_idle(program);
}

static int serve_system(const struct arguments *arguments)
{
	struct program program = { .idle_timeout_s = arguments->idle_timeout_s };
	g_autoptr(GError) error = NULL;

	child_use_own_folder();
	if (!keep_numbers())
		return 1;
	program.control = control_new_at(arguments->control);
	if (!enter_sandbox())
		return 1;
	/* Use the shared connection, which polkit's library also uses. */
	program.connection = g_bus_get_sync(G_BUS_TYPE_SYSTEM, NULL, &error);
	if (!program.connection) {
		fprintf(stderr, _("profd: cannot connect to the system bus: %s\n"), error->message);
		return 1;
	}
	descriptors_watch(program.connection);
	program.loop = g_main_loop_new(NULL, FALSE);
	g_dbus_connection_set_exit_on_close(program.connection, FALSE);
	g_signal_connect(program.connection, "closed", G_CALLBACK(on_closed), &program);
	authority_new(on_authority, &program);
	return run(&program);
}

/* ---- One client ------------------------------------------------------------------------------ */

/* Exits at once, because nothing is served yet: there is no file to finish. */
static void end_at_once(int number)
{
	_exit(0);
}

static bool connect_to_client(struct program *program, GSocket *socket, GError **error)
{
	g_autoptr(GSocketConnection) stream = g_socket_connection_factory_create_connection(socket);
	g_autofree char *guid = g_dbus_generate_guid();

	signal(SIGTERM, end_at_once);
	/* Not g_dbus_connection_new(), which never answers if its thread cannot be started. */
	program->connection = g_dbus_connection_new_sync(
		G_IO_STREAM(stream), guid,
		G_DBUS_CONNECTION_FLAGS_AUTHENTICATION_SERVER |
			G_DBUS_CONNECTION_FLAGS_AUTHENTICATION_ALLOW_ANONYMOUS |
			G_DBUS_CONNECTION_FLAGS_DELAY_MESSAGE_PROCESSING,
		NULL, NULL, error);
	if (!program->connection)
		return false;
	descriptors_watch(program->connection);
	program->service =
		service_new(program->connection, NULL, program->control, on_idle, program, error);
	return program->service;
}

static int serve_private(int given)
{
	struct program program = { 0 };
	g_autoptr(GError) error = NULL;
	int fd = fcntl(given, F_DUPFD_CLOEXEC, CHILD_FREE_FD);
	g_autoptr(GSocket) socket = g_socket_new_from_fd(fd, &error);

	if (!socket) {
		fprintf(stderr, _("profd: descriptor %d is not a socket: %s\n"), given,
			error->message);
		return 2;
	}
	close(given);
	if (!keep_numbers())
		return 1;
	program.control = control_new_private();
	if (!enter_sandbox())
		return 1;
	program.loop = g_main_loop_new(NULL, FALSE);
	if (!connect_to_client(&program, socket, &error)) {
		fprintf(stderr, _("profd: cannot serve the client: %s\n"), error->message);
		program.status = 1;
		return done(&program);
	}
	g_signal_connect(program.connection, "closed", G_CALLBACK(on_closed), &program);
	g_dbus_connection_start_message_processing(program.connection);
	return run(&program);
}

/* Returns the number after the prefix, or -1. */
static int parse_number(const char *argument, const char *prefix)
{
	guint64 number;

	if (!g_str_has_prefix(argument, prefix) ||
	    !g_ascii_string_to_unsigned(argument + strlen(prefix), 10, 0, INT_MAX, &number, NULL))
		return -1;
	return (int)number;
}

static bool parse_system(int argc, char **argv, struct arguments *ret_arguments)
{
	static const char control[] = "--control=";

	*ret_arguments = (struct arguments){ IDLE_TIMEOUT_S, CONTROL_WELL_KNOWN };
	if (argc < 2 || strcmp(argv[1], "--system") != 0)
		return false;
	for (int i = 2; i < argc; i++) {
		int seconds = parse_number(argv[i], "--idle-timeout=");

		if (seconds >= 0)
			ret_arguments->idle_timeout_s = (unsigned)seconds;
		else if (g_str_has_prefix(argv[i], control))
			ret_arguments->control = argv[i] + strlen(control);
		else
			return false;
	}
	return true;
}

/* Raises RLIMIT_NOFILE, and returns whether it suffices. Prints a message if not, because a later
 * failure would not mention the limit. */
static bool has_descriptors(void)
{
	struct rlimit limit;

	images_raise_limit();
	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur >= MIN_DESCRIPTORS)
		return true;
	fprintf(stderr,
		_("profd: RLIMIT_NOFILE (`ulimit -Hn`) is %llu, and profd needs %d or more\n"),
		(unsigned long long)limit.rlim_cur, MIN_DESCRIPTORS);
	return false;
}

/* Returns whether this process has the kernel's clock. The kernel stamps events with its own time;
 * in a time namespace (time_namespaces(7)) our clock may differ, and mappings and threads would
 * then seem to begin earlier or later than their samples by the difference. */
static bool has_time_of_kernel(void)
{
	g_autofree char *offsets = NULL;
	long long monotonic_s = 0, monotonic_ns = 0, boot_s = 0, boot_ns = 0;

	if (!g_file_get_contents("/proc/self/timens_offsets", &offsets, NULL, NULL))
		return true;
	sscanf(offsets, "monotonic %lld %lld boottime %lld %lld", &monotonic_s, &monotonic_ns,
	       &boot_s, &boot_ns);
	if ((monotonic_s | monotonic_ns | boot_s | boot_ns) == 0)
		return true;
	fprintf(stderr,
		_("profd: the clocks of this time namespace are not those of the kernel (%lld and %lld s apart, "
		  "see /proc/self/timens_offsets); start profd outside of it\n"),
		monotonic_s, boot_s);
	return false;
}

static bool can_serve(void)
{
	char why[ERRNO_TEXT_BYTES];

	if (!has_descriptors() || !has_time_of_kernel())
		return false;
	if (start_threads_check(THREADS, why))
		return true;
	fprintf(stderr, _("profd: cannot start the threads and processes that it needs: %s\n"),
		why);
	return false;
}

/* Exits with a message if a thread cannot be started. GLib would dump core without a reason. */
static void on_no_thread(const char *domain, GLogLevelFlags level, const char *message,
			 gpointer data)
{
	if (!g_str_has_prefix(message, "creating thread")) {
		g_log_default_handler(domain, level, message, data);
		return;
	}
	fprintf(stderr, _("profd: cannot start a thread: %s\n"), ERRNO_TEXT(EAGAIN));
	_exit(1);
}

int main(int argc, char **argv)
{
	struct arguments arguments;
	bool help = argc == 2 && strcmp(argv[1], "--help") == 0;

	g_log_set_handler("GLib", G_LOG_LEVEL_ERROR | G_LOG_FLAG_FATAL | G_LOG_FLAG_RECURSION,
			  on_no_thread, NULL);
	setlocale(LC_ALL, "");
	bindtextdomain(GETTEXT_PACKAGE, PROF_DEFAULT_LOCALE_DIR);
	textdomain(GETTEXT_PACKAGE);
	if (argc == 2 && strcmp(argv[1], "--version") == 0) {
		printf("profd %s\n", PROF_VERSION);
		return 0;
	}
	if (parse_system(argc, argv, &arguments))
		return can_serve() ? serve_system(&arguments) : 1;
	if (argc == 2 && parse_number(argv[1], "--private=") >= 0)
		return can_serve() ? serve_private(parse_number(argv[1], "--private=")) : 1;
	if (argc == 2 && parse_number(argv[1], "--private-probes=") >= 0) {
		sandbox_keep_probes();
		return can_serve() ? serve_private(parse_number(argv[1], "--private-probes=")) : 1;
	}
	fprintf(help ? stdout : stderr,
		_("Usage: %s --system [--idle-timeout=SECONDS] [--control=PATH] | --private=FD | --private-probes=FD | --version\n"),
		"profd");
	return help ? 0 : 2;
}
