/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Redact - removes what identifies the machine and its users from the texts of a capture
 *
 * Every text passes through these functions when it is read (capture_open()), so no format can
 * forget one  [test_html: redact]
 */
#pragma once

#include <glib.h>

#include "arch/base.h"

/* Returns a text in which paths have no folders, except system folders, because home folders have
 * the names of users. A path may be only a part of the text. */
char *redact_text(const char *text) MUST_CHECK;
/* Returns the value of a metadata key. The command loses its arguments. Returns NULL for the host
 * name and the options of the recording. */
GBytes *redact_metadata(const char *key, const void *value, size_t length) MUST_CHECK;
