/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Redact - removes what identifies the machine and its users from the texts of a capture
 *
 * Every text of a capture passes through redact_text() when it is read (capture_open()), so no
 * format can skip it  [test_html: redact]. Two rules apply to each text:
 *
 * (1) Syntax: paths lose their folders, unless the folder is a system folder; URLs lose all but
 *     their scheme; user@host, IP and Ethernet addresses, and the values of environment variables
 *     are replaced  [test-redact: syntax]
 * (2) Names: the names of the host and of users occur in texts that have no syntax. They are
 *     learned from the metadata, and from home folders, variables, URLs and user@host in all
 *     texts of the captures that are opened together, and are replaced wherever they are words,
 *     the host with its domain  [test-redact: names, hosts]. A host that is known only
 *     from addresses is often a service ("redis"), so its name stays in identifiers and paths.
 *
 * Limits: a name is recognized only if a home folder, a variable, an address or the metadata gives
 * it away, and not inside a longer word. Names of more than 64 letters stay. So do account names
 * that many machines have, such as root.
 */
#pragma once

#include <glib.h>

#include "arch/base.h"
#include "libcapture/prof-capture.h"

struct redactor;

struct redactor *redactor_new(void);
void redactor_free(struct redactor *redactor);
/* Adds the names that a text gives away. */
void redactor_learn(struct redactor *redactor, const char *text);
/* Learns from all texts of a capture. Returns 0, or an error of prof_cursor_next(). */
int redactor_learn_capture(struct redactor *redactor, const struct prof_reader *reader) MUST_CHECK;

char *redact_text(const struct redactor *redactor, const char *text) MUST_CHECK;
/* Returns the redacted value of a metadata key; for `command`, only the program; for `host` and
 * `options`, NULL. */
GBytes *redact_metadata(const struct redactor *redactor, const char *key, const void *value,
			size_t length) MUST_CHECK;
