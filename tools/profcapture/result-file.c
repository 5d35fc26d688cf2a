/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Result file - the destination of a file that is made from a capture
 *
 * Invariants: (1) no incomplete file remains under any name after an error, SIGINT, SIGTERM or
 *                 SIGHUP  [test_result_files: interrupted]
 *             (2) a file that --force replaces stays until the new file is complete
 *                 [test_result_files: fails]
 *             (3) a device, a pipe or a directory is never removed  [test_result_files: devices]
 */
#include "config.h"

#include "tools/profcapture/result-file.h"

#include "tools/common/capture-error.h"
#include "tools/common/cli.h"
#include "tools/common/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <glib/gi18n.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

/* The file to remove if a signal ends the program. There is only one at a time. */
static const char *volatile unfinished;

static void on_signal(int number)
{
	const char *name = unfinished;

	if (name)
		(void)unlink(name);
	/* SA_RESETHAND restored the default action, which ends the program. */
	(void)raise(number);
}

static void set_unfinished(const char *name)
{
	static const int ending[] = { SIGINT, SIGTERM, SIGHUP };
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND };
	struct sigaction before;

	unfinished = name;
	for (size_t i = 0; name && i < ARRAY_SIZE(ending); i++)
		if (sigaction(ending[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
			(void)sigaction(ending[i], &action, NULL);
}

static bool fail(GError **error, const char *what, const char *path)
{
	return capture_error(error, -errno, what, path);
}

/* Returns whether the file is /dev/null. It needs no temporary file, because nobody can see a
 * partial result. */
static bool is_null(int fd)
{
	struct stat status;

	return fstat(fd, &status) == 0 && S_ISCHR(status.st_mode) &&
	       status.st_rdev == makedev(1, 3);
}

/* Takes ownership of fd, which must be open for writing. */
static bool use_stream(struct result_file *file, int fd, GError **error)
{
	file->stream_fd = fd;
	if (is_null(fd)) {
		file->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
		return file->fd >= 0 || fail(error, _("cannot write '%s'"), file->path);
	}
	if (isatty(fd))
		return cli_set_error(
			error, CLI_USAGE,
			_("the result is not written to a terminal. Name a file with -o"));
	file->fd = spool_open(error);
	return file->fd >= 0;
}

/* Creates a temporary file in the directory of the file to replace. */
static bool open_beside(struct result_file *file, GError **error)
{
	mode_t mask = umask(0);

	umask(mask);
	file->temporary = g_strdup_printf("%s.XXXXXX", file->path);
	file->fd = mkostemp(file->temporary, O_CLOEXEC);
	if (file->fd < 0) {
		g_clear_pointer(&file->temporary, g_free);
		return fail(error, _("cannot replace '%s'"), file->path);
	}
	set_unfinished(file->temporary);
	return fchmod(file->fd, 0666 & ~mask) == 0 ||
	       fail(error, _("cannot replace '%s'"), file->path);
}

static bool open_path(struct result_file *file, bool force, GError **error)
{
	bool is_stdout = strcmp(file->path, "-") == 0;
	struct stat status;

	if (is_stdout || (stat(file->path, &status) == 0 && !S_ISREG(status.st_mode))) {
		int fd = is_stdout ? fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3)
				   : open(file->path, O_WRONLY | O_CLOEXEC | O_NOCTTY);

		return fd < 0 ? fail(error, _("cannot write '%s'"), file->path)
			      : use_stream(file, fd, error);
	}
	file->fd = open(file->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (file->fd >= 0) {
		file->temporary = g_strdup(file->path);
		set_unfinished(file->temporary);
		return true;
	}
	if (errno != EEXIST)
		return fail(error, _("cannot create '%s'"), file->path);
	if (force)
		return open_beside(file, error);
	return cli_set_error(error, CLI_FAILURE, _("'%s' exists. Use --force to overwrite it"),
			     file->path);
}

static bool stat_operand(const char *file, int standard_fd, struct stat *ret_status)
{
	return (strcmp(file, "-") == 0 ? fstat(standard_fd, ret_status) : stat(file, ret_status)) ==
	       0;
}

bool result_file_refuse_input(const char *path, const char *input, GError **error)
{
	struct stat in, out;

	if (!stat_operand(input, STDIN_FILENO, &in) || !stat_operand(path, STDOUT_FILENO, &out) ||
	    !S_ISREG(in.st_mode) || in.st_dev != out.st_dev || in.st_ino != out.st_ino)
		return true;
	return cli_set_error(
		error, CLI_USAGE,
		_("'%s' is the capture that is read; choose another name for the result"), path);
}

bool result_file_open(const char *path, bool force, struct result_file *ret_file, GError **error)
{
	struct result_file file = { .path = path, .fd = -1, .stream_fd = -1 };

	if (!open_path(&file, force, error)) {
		result_file_done(&file);
		return false;
	}
	*ret_file = file;
	return true;
}

bool result_file_commit(struct result_file *file, GError **error)
{
	bool is_copied = file->stream_fd >= 0 && !is_null(file->stream_fd);
	int r = is_copied ? spool_copy(file->fd, file->stream_fd) : 0;

	if (r != 0)
		return capture_error(error, r, _("cannot write '%s'"), file->path);
	if (file->temporary && strcmp(file->temporary, file->path) != 0 &&
	    rename(file->temporary, file->path) != 0)
		return fail(error, _("cannot replace '%s'"), file->path);
	set_unfinished(NULL);
	g_clear_pointer(&file->temporary, g_free);
	return true;
}

void result_file_done(struct result_file *file)
{
	if (!file->path)
		return;
	if (file->temporary)
		(void)unlink(file->temporary);
	set_unfinished(NULL);
	g_free(file->temporary);
	if (file->fd >= 0)
		close(file->fd);
	if (file->stream_fd >= 0)
		close(file->stream_fd);
	*file = (struct result_file){ .fd = -1, .stream_fd = -1 };
}
