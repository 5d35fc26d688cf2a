/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Output - the file, pipe or stream to which a capture is recorded
 *
 * A regular file is written directly, and so is a pipe unless the capture must be read back.
 * Anything else (a file as standard output, a device, a pipe for a capture that gets symbols) is a
 * stream: the capture is written to an unlinked temporary file and copied when it is complete. With
 * force, a new file has a temporary name until recording has begun, so that an error in the options
 * does not destroy the old file.
 */
#include "config.h"

#include "arch/errno-text.h"
#include "tools/profctl/output.h"

#include "libcapture/prof-capture.h"
#include "tools/common/capture-error.h"
#include "tools/common/cli.h"
#include "tools/common/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <glib/gi18n.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>

static bool fail(GError **error, const char *act, const char *path)
{
	bool denied = errno == EACCES || errno == EPERM;

	return cli_set_error(error, denied ? CLI_NOT_PERMITTED : CLI_FAILURE, "%s '%s': %s", act,
			     path, ERRNO_TEXT(errno));
}

/* Takes ownership of `fd`, which must be open for writing. Only stdout may be a regular file. */
static bool use_stream(const struct output_options *options, int fd, struct output *output,
		       GError **error)
{
	struct stat status;

	if (!options->needs_reading && fstat(fd, &status) == 0 && S_ISFIFO(status.st_mode)) {
		output->fd = fd;
		return true;
	}
	output->stream_fd = fd;
	output->fd = spool_open(error);
	return output->fd >= 0;
}

static bool open_stdout(const struct output_options *options, struct output *output, GError **error)
{
	int fd;

	if (isatty(STDOUT_FILENO))
		return cli_set_error(
			error, CLI_USAGE,
			_("a capture is not written to a terminal; redirect standard output, or "
			  "give --output a file"));
	fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
	if (fd < 0)
		return fail(error, _("cannot write to"), "-");
	return use_stream(options, fd, output, error);
}

static bool open_temporary(struct output *output, GError **error)
{
	mode_t mask = umask(0);

	umask(mask);
	output->temporary = g_strdup_printf("%s.XXXXXX", output->path);
	output->fd = mkostemp(output->temporary, O_CLOEXEC);
	if (output->fd < 0) {
		g_clear_pointer(&output->temporary, g_free);
		return fail(error, _("cannot write beside"), output->path);
	}
	output->created = true;
	if (fchmod(output->fd, 0666 & ~mask) < 0)
		return fail(error, _("cannot set the permissions of"), output->temporary);
	return true;
}

/* Accepts an empty file and any capture with a valid header. The header must be checked here,
 * because the engine could only warn. */
static bool check_capture(const struct output *output, GError **error)
{
	struct prof_reader *reader;
	struct stat status;
	int r;

	if (fstat(output->fd, &status) == 0 && status.st_size == 0)
		return true;
	r = prof_reader_open(output->fd, &reader);
	if (r != 0)
		return capture_error(error, r, _("cannot append to '%s'"), output->path);
	prof_reader_free(reader);
	return true;
}

static bool open_path(const struct output_options *options, struct output *output, GError **error)
{
	struct stat status;
	int fd;

	if (stat(output->path, &status) < 0) {
		if (options->append)
			return fail(error, _("cannot append to"), output->path);
		output->fd = open(output->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
		output->created = output->fd >= 0;
		return output->created || fail(error, _("cannot create"), output->path);
	}
	if (S_ISDIR(status.st_mode)) {
		errno = EISDIR;
		return fail(error, _("cannot write"), output->path);
	}
	if (!S_ISREG(status.st_mode) && options->append)
		return cli_set_error(error, CLI_USAGE,
				     _("cannot append to '%s': it is not a regular file"),
				     output->path);
	if (!S_ISREG(status.st_mode)) {
		fd = open(output->path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
		return fd < 0 ? fail(error, _("cannot open"), output->path)
			      : use_stream(options, fd, output, error);
	}
	if (options->append) {
		output->fd = open(output->path, O_RDWR | O_CLOEXEC);
		if (output->fd < 0)
			return fail(error, _("cannot open"), output->path);
		/* The lock belongs to the open file description, so the engine, which receives the
		 * descriptor, holds it, too. */
		if (flock(output->fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK)
			return cli_set_error(
				error, CLI_FAILURE,
				_("another process is writing '%s'; append when it has finished"),
				output->path);
		return check_capture(output, error);
	}
	if (options->force)
		return open_temporary(output, error);
	return cli_set_error(error, CLI_FAILURE,
			     _("'%s' exists. Use --force to overwrite or --append to continue it."),
			     output->path);
}

bool output_open(const struct output_options *options, struct output *ret_output, GError **error)
{
	struct output output = { .fd = -1, .stream_fd = -1 };
	bool is_stdout = options->path && strcmp(options->path, "-") == 0;
	g_autoptr(GDateTime) now = g_date_time_new_now_local();
	g_autofree char *stamp = g_date_time_format(now, "%Y%m%d-%H%M%S");

	output.path = options->path ? g_strdup(options->path)
				    : g_strdup_printf("%s-%s.cap", options->stem, stamp);
	if (is_stdout ? !open_stdout(options, &output, error)
		      : !open_path(options, &output, error)) {
		output_discard(&output);
		output_done(&output);
		return false;
	}
	*ret_output = output;
	return true;
}

bool output_commit(struct output *output, GError **error)
{
	if (!output->temporary)
		return true;
	if (rename(output->temporary, output->path) < 0)
		return fail(error, _("cannot replace"), output->path);
	g_clear_pointer(&output->temporary, g_free);
	return true;
}

bool output_finish(struct output *output, GError **error)
{
	int r;

	if (output->stream_fd < 0)
		return true;
	r = spool_copy(output->fd, output->stream_fd);
	errno = -r;
	return r == 0 || fail(error, _("cannot write the capture to"), output->path);
}

void output_discard(struct output *output)
{
	if (output->created)
		unlink(output->temporary ? output->temporary : output->path);
	output->created = false;
}

void output_done(struct output *output)
{
	if (output->fd >= 0)
		close(output->fd);
	if (output->stream_fd >= 0)
		close(output->stream_fd);
	g_free(output->temporary);
	g_free(output->path);
	*output = (struct output){ .fd = -1, .stream_fd = -1 };
}

uint64_t output_bytes(const struct output *output)
{
	struct stat status;

	return fstat(output->fd, &status) == 0 && S_ISREG(status.st_mode) ? (uint64_t)status.st_size
									  : 0;
}

bool output_is_unreadable(const struct output *output)
{
	struct prof_reader *reader;
	bool is_unreadable;

	if (!output_is_kept(output))
		return false;
	if (prof_reader_open(output->fd, &reader) != 0)
		return output_bytes(output) == 0;
	is_unreadable = prof_reader_info(reader)->chunks == 0;
	prof_reader_free(reader);
	return is_unreadable;
}

bool output_is_kept(const struct output *output)
{
	struct stat status;

	return output->stream_fd < 0 && fstat(output->fd, &status) == 0 && S_ISREG(status.st_mode);
}
