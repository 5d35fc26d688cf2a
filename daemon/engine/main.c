/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * profd-engine - drains, merges and writes one recording, without any privilege
 *
 * profd starts it with a socket as fd 3. The order matters: drop privileges, create all threads,
 * install the filter, and only then read the first byte of untrusted input. Terminal signals are
 * ignored, because the broker decides when a recording ends.
 */
#include "config.h"

#include "arch/base.h"
#include "daemon/deferred-close.h"
#include "daemon/engine/session/sandbox.h"
#include "daemon/engine/session/session.h"
#include "daemon/protocol.h"

#include <glib/gi18n.h>
#include <locale.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>

#define NICE (-10)

/* Ends the engine with a specific status if an allocation failed, because GLib's signal would not
 * show the reason. Otherwise prints the message; GLib's handler would also print the local time,
 * for which it opens a file, so the filter would kill the process. */
static void on_log(const char *domain, GLogLevelFlags level, const char *message, gpointer data)
{
	if (level & G_LOG_LEVEL_ERROR && strstr(message, "failed to allocate"))
		_exit(ENGINE_EXIT_NO_MEMORY);
	fprintf(stderr, "profd-engine: %s\n", message);
}

static bool is_socket(int fd)
{
	int type;
	socklen_t length = sizeof(type);

	return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_SEQPACKET;
}

static int digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Stores zeros if the boot id cannot be read. */
static void read_boot_id(uint8_t *boot_id)
{
	FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
	char text[64] = "";
	size_t from, n = 0;

	memset(boot_id, 0, 16);
	if (!file)
		return;
	if (fgets(text, sizeof(text), file))
		for (from = 0; text[from] && n < 32; from++)
			if (digit(text[from]) >= 0) {
				boot_id[n / 2] |= digit(text[from]) << (n % 2 ? 0 : 4);
				n++;
			}
	fclose(file);
}

/* All threads must be created before the filter is installed. */
static bool enter_sandbox(uint64_t max_bytes, struct session_threads *ret_threads, GError **error)
{
	struct session_threads threads = { 0 };

	if (!sandbox_drop_privileges(max_bytes, error))
		return false;
	deferred_close_start();
	/* Sanitizer runtimes need system calls that the filter does not allow. */
	if (!session_threads_new(&threads, error) || (!PROF_SANITIZED && !sandbox_filter(error))) {
		session_threads_free(&threads);
		return false;
	}
	*ret_threads = threads;
	return true;
}

static int run(uint64_t max_bytes)
{
	static const int ignored[] = { SIGINT, SIGHUP, SIGQUIT, SIGTERM, SIGPIPE, SIGXFSZ };
	g_autoptr(GError) error = NULL;
	g_autofree struct session *session = g_new(struct session, 1);
	struct session_threads threads;
	uint8_t boot_id[16];
	bool ok;

	g_log_set_default_handler(on_log, NULL);
	read_boot_id(boot_id);
	for (size_t i = 0; i < ARRAY_SIZE(ignored); i++)
		signal(ignored[i], SIG_IGN);
	/* Get CPU time soon on a busy machine: rings hold only half a second of records, and
	 * samples wait for unwind tables for at most a quarter of a second. The broker has set the
	 * autogroup's nice value in the same way (sched(7)). Without permission this has no
	 * effect. */
	setpriority(PRIO_PROCESS, 0, NICE);
	/* Use one malloc arena, so that a thread can reuse memory that another one freed. */
	mallopt(M_ARENA_MAX, 1);
	if (!enter_sandbox(max_bytes, &threads, &error)) {
		fprintf(stderr, "profd-engine: %s\n", error->message);
		return 1;
	}
	session_init(session, ENGINE_SOCKET_FD, &threads, boot_id);
	ok = session_run(session);
	session_done(session);
	return ok ? 0 : 1;
}

int main(int argc, char **argv)
{
	setlocale(LC_ALL, "");
	bindtextdomain(GETTEXT_PACKAGE, PROF_DEFAULT_LOCALE_DIR);
	textdomain(GETTEXT_PACKAGE);
	if (argc == 2 && strcmp(argv[1], "--version") == 0) {
		printf("profd-engine %s\n", PROF_VERSION);
		return 0;
	}
	if (argc == 1 && is_socket(ENGINE_SOCKET_FD))
		return run(0);
	/* The argument is the maximum size of the capture, in bytes. */
	if (argc == 2 && g_ascii_isdigit(argv[1][0]) && is_socket(ENGINE_SOCKET_FD))
		return run(g_ascii_strtoull(argv[1], NULL, 10));
	fprintf(stderr, _("Usage: %s --version\n"), "profd-engine");
	fprintf(stderr, _("profd starts it; it does nothing by itself.\n"));
	return argc == 2 && strcmp(argv[1], "--help") == 0 ? 0 : 2;
}
