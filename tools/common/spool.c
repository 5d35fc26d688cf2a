/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "config.h"

#include "tools/common/spool.h"

#include "tools/common/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <glib/gi18n.h>
#include <stdlib.h>

int spool_open(GError **error)
{
	const char *dir = g_get_tmp_dir();
	int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	g_autofree char *name = NULL;

	if (fd >= 0)
		return fd;
	name = g_build_filename(dir, "profd-XXXXXX", NULL);
	fd = mkostemp(name, O_CLOEXEC);
	if (fd >= 0)
		unlink(name);
	else
		g_set_error(
			error, CLI_ERROR, CLI_FAILURE,
			_("cannot make a temporary file in '%s': %s; TMPDIR chooses another folder"),
			dir, g_strerror(errno));
	return fd;
}

int spool_copy(int spool, int fd)
{
	char buffer[1 << 16];
	struct out out;
	ssize_t n = 0;
	int r;

	out_init(&out, fd);
	for (off_t at = 0; !out_failed(&out); at += n) {
		n = pread(spool, buffer, sizeof(buffer), at);
		if (n <= 0)
			break;
		out_write(&out, buffer, (size_t)n);
	}
	r = n < 0 ? -errno : out_flush(&out);
	out_done(&out);
	return r;
}
