/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Spool - a temporary file for a capture whose destination is not seekable: a pipe, a device,
 * standard output */
#pragma once

#include "arch/base.h"

#include <glib.h>

/* Opens an unnamed file for reading and writing, in TMPDIR (default: /tmp). Returns -1 and sets
 * `error` on failure. The caller closes the fd. */
int spool_open(GError **error);

/* Writes all of `spool` at the current position of `fd`. Returns 0 or -errno. */
int spool_copy(int spool, int fd) MUST_CHECK;
