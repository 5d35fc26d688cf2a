/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Disassembly - the instructions of a range of code, as objdump prints them
 *
 * objdump runs as a separate process, so a hostile file can attack only a process that has no
 * access to ours. objdump gets the descriptor of the file that was checked.
 * Invariants: (1) the kept output is bounded, in bytes and lines, and objdump may use 1 GiB of
 *                 memory
 *                 [test-disassembly: bounded, memory]
 *             (2) reading ends in time even if objdump does not [test-disassembly: never ends]
 */
#include "config.h"

#include "tools/profcapture/disassembly.h"

#include "tools/common/cli.h"

#include <errno.h>
#include <gio/gio.h>
#include <gio/gunixinputstream.h>
#include <glib/gi18n.h>
#include <inttypes.h>
#include <poll.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define MAX_CPU_SECONDS 60
#define MAX_BYTES (32u << 20)
#define MAX_MEMORY (UINT64_C(1) << 30)

static void clear_line(gpointer line)
{
	g_free(((struct disassembly_line *)line)->text);
}

static void set_limits(gpointer unused)
{
	const struct rlimit memory = { MAX_MEMORY, MAX_MEMORY };
	const struct rlimit seconds = { MAX_CPU_SECONDS, MAX_CPU_SECONDS };

	cli_restore_signals();
	setrlimit(RLIMIT_AS, &memory);
	setrlimit(RLIMIT_CPU, &seconds);
}

static GSubprocess *start(int fd, uint64_t from, uint64_t to, GError **error)
{
	g_autoptr(GSubprocessLauncher) launcher = g_subprocess_launcher_new(
		G_SUBPROCESS_FLAGS_STDOUT_PIPE | G_SUBPROCESS_FLAGS_STDERR_MERGE);
	g_autofree char *first = g_strdup_printf("--start-address=0x%" PRIx64, from);
	g_autofree char *last = g_strdup_printf("--stop-address=0x%" PRIx64, to);
	const char *const argv[] = { "objdump",    "--disassemble",      "--wide",
				     "--demangle", "--no-show-raw-insn", first,
				     last,         "/dev/fd/3",          NULL };
	CLEANUP_CLOSE int copy = dup(fd);
	g_autoptr(GError) failure = NULL;
	GSubprocess *process;

	if (copy < 0) {
		g_set_error(error, CLI_ERROR, CLI_FAILURE, _("cannot run objdump: %s"),
			    g_strerror(errno));
		return NULL;
	}
	g_subprocess_launcher_take_fd(launcher, steal_fd(&copy), 3);
	g_subprocess_launcher_setenv(launcher, "LC_ALL", "C", TRUE);
	g_subprocess_launcher_unsetenv(launcher, "DEBUGINFOD_URLS");
	g_subprocess_launcher_set_child_setup(launcher, set_limits, NULL, NULL);
	process = g_subprocess_launcher_spawnv(launcher, argv, &failure);
	if (g_error_matches(failure, G_SPAWN_ERROR, G_SPAWN_ERROR_NOENT))
		cli_set_error(error, CLI_FAILURE, _("objdump is not installed (package binutils)"));
	else if (!process)
		cli_set_error(error, CLI_FAILURE, _("cannot run objdump: %s"), failure->message);
	return process;
}

/* Reads all output of objdump. Returns false if that takes too long or the output is too long. */
static bool read_output(int fd, unsigned timeout_ms, GString *text)
{
	const int64_t deadline = g_get_monotonic_time() + timeout_ms * INT64_C(1000);
	char buffer[16 << 10];

	while (text->len < MAX_BYTES) {
		int64_t left = (deadline - g_get_monotonic_time()) / 1000;
		struct pollfd ready = { .fd = fd, .events = POLLIN };
		ssize_t n;

		if (left <= 0 || poll(&ready, 1, (int)left) == 0)
			return false;
		n = read(fd, buffer, sizeof(buffer));
		if (n == 0)
			return true;
		if (n < 0 && errno != EINTR && errno != EAGAIN)
			return false;
		if (n > 0)
			g_string_append_len(text, buffer, n);
	}
	return false;
}

/* Extracts the instructions from lines such as "  401136:\tpush   %rbp": the address, and the text
 * after the tab. Splits the text into lines in place. */
static GArray *parse(GString *text)
{
	char *line_at = text->str, *end = text->str + text->len, *after;
	GArray *found = g_array_new(FALSE, FALSE, sizeof(struct disassembly_line));

	g_array_set_clear_func(found, clear_line);
	for (; found->len < DISASSEMBLY_MAX_LINES &&
	       (after = memchr(line_at, '\n', (size_t)(end - line_at)));
	     line_at = after + 1) {
		struct disassembly_line line;
		const char *at;
		char *colon;

		/* End the line first: the address sanitizer's strspn() reads up to a NUL. */
		*after = 0;
		at = line_at + strspn(line_at, " ");
		line.address = g_ascii_strtoull(at, &colon, 16);
		if (colon == at || at == line_at || colon[0] != ':' || colon[1] != '\t')
			continue;
		line.text = g_strdelimit(g_strchomp(g_strdup(colon + 2)), "\t", ' ');
		g_array_append_val(found, line);
	}
	return found;
}

GArray *disassembly_read(int fd, uint64_t start_address, uint64_t end, unsigned timeout_ms,
			 GError **error)
{
	g_autoptr(GString) text = g_string_new(NULL);
	g_autoptr(GSubprocess) process = start(fd, start_address, end, error);
	g_auto(GStrv) lines = NULL;
	const char *said = NULL;

	if (!process)
		return NULL;
	if (!read_output(g_unix_input_stream_get_fd(
				 G_UNIX_INPUT_STREAM(g_subprocess_get_stdout_pipe(process))),
			 timeout_ms, text)) {
		g_subprocess_force_exit(process);
		g_subprocess_wait(process, NULL, NULL);
		g_set_error(error, CLI_ERROR, CLI_FAILURE,
			    _("objdump was killed: it took too long or printed too much"));
		return NULL;
	}
	g_subprocess_wait(process, NULL, NULL);
	if (g_subprocess_get_successful(process))
		return parse(text);
	lines = g_strsplit(text->str, "\n", -1);
	for (guint i = 0; lines[i]; i++)
		if (g_str_has_prefix(lines[i], "objdump: "))
			said = lines[i] + strlen("objdump: ");
	g_set_error(error, CLI_ERROR, CLI_FAILURE, _("objdump cannot read the file: %s"),
		    said ? said : _("it reported no reason"));
	return NULL;
}
