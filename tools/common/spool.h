/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Spool - a temporary file for a capture whose destination cannot be sought in: a pipe, a device,
 * standard output
 */
#pragma once

#include "arch/base.h"

#include <glib.h>

/* Open for reading and writing, without a name, in TMPDIR; -1 with error set. The caller closes. */
int spool_open(GError **error);

/* Writes all of `spool` to `fd`, from where that stands. 0 or -errno. */
int spool_copy(int spool, int fd) MUST_CHECK;
