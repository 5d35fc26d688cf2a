/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Spool - a temporary file for a capture whose destination is not seekable: a pipe, a device,
 * standard output
 */
#pragma once

#include "arch/base.h"

#include <glib.h>

/* Opens it for reading and writing, unnamed, in TMPDIR; -1 with error set. The caller closes it. */
int spool_open(GError **error);

/* Writes all of `spool` to `fd`, from its current position. Returns 0 or -errno. */
int spool_copy(int spool, int fd) MUST_CHECK;
