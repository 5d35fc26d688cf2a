/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Redact - removes from a capture that is read what says whose machine it was recorded on
 *
 * Every text passes through these functions when it is read (capture_open()), so no format can
 * forget one  [test_html: redact]
 */
#pragma once

#include <glib.h>

#include "arch/base.h"

/* Returns a text without the folders of its paths, except for those of the system: the names of
 * home folders are names of users. Paths may be a part of the text. */
char *redact_text(const char *text) MUST_CHECK;
/* Returns the value of a key without the arguments of the command; NULL for a host and the options
 * of the recording. */
GBytes *redact_metadata(const char *key, const void *value, size_t length) MUST_CHECK;
