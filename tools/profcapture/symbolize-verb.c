/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * profcapture symbolize - adds names of functions, inlined calls and lines from files of this
 * machine
 */
#include "config.h"

#include "tools/common/capture-error.h"
#include "tools/common/cli.h"
#include "tools/profcapture/capture.h"
#include "tools/profcapture/verbs.h"
#include "tools/symbols/debuginfod.h"
#include "tools/symbols/symbolize.h"

#include <errno.h>
#include <fcntl.h>
#include <glib/gi18n.h>
#include <inttypes.h>
#include <sys/stat.h>

struct symbolize_verb {
	const char *sysroot;
	GPtrArray *debug_folders;
	const char *debuginfod; /* time limit; NULL = do not use debuginfod servers */
	uint64_t debuginfod_ns;
};

static const char *const debuginfod_times[] = { "60s", "10s", "5min", NULL };

static const struct cli_option options[] = {
	{ "sysroot", 0, CLI_STRING, offsetof(struct symbolize_verb, sysroot), N_("DIRECTORY"),
	  N_("Look for the recorded files under DIRECTORY, a copy of the recorded machine's root; open no file outside it") },
	{ "debug-dir", 0, CLI_LIST, offsetof(struct symbolize_verb, debug_folders), N_("DIRECTORY"),
	  N_("Also look for debug files in DIRECTORY; repeatable") },
	{ "debuginfod", 0, CLI_OPTIONAL, offsetof(struct symbolize_verb, debuginfod), "[=TIME]",
	  N_("Fetch missing debug files from the servers of DEBUGINFOD_URLS, for at most TIME (default: 60s)"),
	  debuginfod_times },
	{ NULL },
};

/* Opens the file at the recorded path. The caller checks that it is the recorded file. */
static int open_by_path(const struct names_image *image, void *data)
{
	return debug_files_open_path(data, image->path);
}

static void print_paths(struct out *out, const GPtrArray *paths, const char *why)
{
	for (guint i = 0; i < paths->len; i++) {
		text_cell(out, paths->pdata[i], 0);
		out_printf(out, ": %s\n", why);
	}
}

/* Opens a regular file. O_NONBLOCK is set because opening a device could block before it is
 * refused. */
static int open_capture(const char *file, GError **error)
{
	CLEANUP_CLOSE int fd = open(file, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	struct stat status;

	if (fd < 0 || fstat(fd, &status) != 0) {
		capture_error(error, -errno, _("cannot open capture '%s' for writing"), file);
		return -1;
	}
	if (S_ISREG(status.st_mode))
		return steal_fd(&fd);
	g_set_error(error, CLI_ERROR, CLI_UNREADABLE,
		    _("'%s' is not a regular file; symbols can only be added to a file"), file);
	return -1;
}

static bool symbolize(const char *file, struct debug_files *debug_files,
		      struct symbolize_result *ret_result, GError **error)
{
	const struct symbolize_sources sources = { open_by_path, debug_files, debug_files, file };
	CLEANUP_CLOSE int fd = open_capture(file, error);
	CLEANUP_CAPTURE struct capture *capture = fd < 0 ? NULL : capture_open(file, false, error);

	/* Like every verb, warn if the capture is unfinished or damaged, and refuse it if nothing
	 * is readable. */
	if (!capture || !capture_scan(capture, INT64_MIN, INT64_MAX, error) ||
	    !capture_refuse_nothing(capture, error))
		return false;
	capture_warn(capture);
	g_clear_pointer(&capture, capture_free);
	if (symbolize_capture(fd, &sources, ret_result, error))
		return true;
	g_prefix_error(error, _("cannot symbolize '%s': "), file);
	return false;
}

static void print_debuginfod(const struct debuginfod_counts *counts, struct out *out)
{
	static const char *const whys[] = {
		[DEBUGINFOD_GOES_ON] = "",
		[DEBUGINFOD_TIME_OVER] = N_("the time was up; --debuginfod=TIME gives more"),
		[DEBUGINFOD_INTERRUPTED] = N_("interrupted"),
		[DEBUGINFOD_DIED] = N_("the process that downloads has ended"),
	};
	g_autofree char *bytes = text_bytes(counts->found_bytes);

	out_printf(out,
		   _("debuginfod: %" PRIu64 " debug files found (%s), %" PRIu64
		     " that no server has\n"),
		   counts->found, bytes, counts->missing);
	if (counts->refused > 0)
		cli_warning(_("debuginfod: %" PRIu64
			      " times a server sent a file other than the requested one"),
			    counts->refused);
	if (counts->failed > 0)
		cli_warning(_("debuginfod: %" PRIu64 " requests failed, the last with: %s"),
			    counts->failed, g_strerror(-counts->error));
	if (counts->left > 0)
		cli_warning(_("debuginfod: %" PRIu64
			      " debug files were not fetched: %s. A further run fetches them"),
			    counts->left, _(whys[counts->end]));
}

static bool run(const char *file, struct symbolize_verb *verb, struct symbolize_result *ret_result,
		struct debuginfod_counts *ret_counts, GError **error)
{
	struct debug_files *debug_files;
	struct debuginfod *servers = NULL;
	bool ok;

	if (verb->debug_folders)
		g_ptr_array_add(verb->debug_folders, NULL);
	debug_files = debug_files_new(
		verb->sysroot,
		verb->debug_folders ? (const char *const *)verb->debug_folders->pdata : NULL);

	if (!debug_files)
		return capture_error(error, -errno, _("cannot open the folder '%s'"),
				     verb->sysroot);
	if (verb->debuginfod)
		servers = debuginfod_new(verb->debuginfod_ns, error);
	if (servers)
		debug_files_set_fetch(debug_files, debuginfod_fetch, servers);
	ok = (servers || !verb->debuginfod) && symbolize(file, debug_files, ret_result, error);
	if (servers)
		*ret_counts = debuginfod_get_counts(servers);
	debuginfod_free(servers);
	debug_files_free(debug_files);
	return ok;
}

int verb_symbolize(int argc, char **argv)
{
	static const struct cli_spec spec = {
		N_("FILE"),
		N_("Add function names, inlined calls and source lines to a capture, from the programs and debug files of this machine."),
		1, 1
	};
	struct symbolize_verb verb = { 0 };
	const struct cli_group groups[] = { { NULL, options, &verb }, { NULL } };
	struct symbolize_result result;
	struct debuginfod_counts counts;
	struct out *out = out_stdout();
	GError *error = NULL;
	int status = cli_parse(&spec, groups, &argc, &argv);
	bool ok;

	if (status != CLI_CONTINUE)
		return status;
	if (strcmp(argv[0], "-") == 0)
		return cli_usage_error(
			_("symbolize adds to a file; standard input cannot be added to"));
	if (verb.debuginfod &&
	    !units_parse_duration(verb.debuginfod, &verb.debuginfod_ns, &error)) {
		status = cli_usage_error("--debuginfod: %s", error->message);
		g_error_free(error);
		return status;
	}
	ok = run(argv[0], &verb, &result, &counts, &error);
	g_clear_pointer(&verb.debug_folders, g_ptr_array_unref);
	if (!ok)
		return cli_fail(error);
	print_paths(out, result.changed, _("changed since the recording, no names taken"));
	print_paths(out, result.missing, _("not here, or no ELF file"));
	out_printf(out,
		   _("%" PRIu64 " of %" PRIu64 " unnamed places have a name now: %" PRIu64
		     " symbols and %" PRIu64 " lines of %" PRIu64 " files\n"),
		   result.named, result.places, result.symbols, result.lines, result.images);
	if (verb.debuginfod)
		print_debuginfod(&counts, out);
	symbolize_result_done(&result);
	return CLI_OK;
}
