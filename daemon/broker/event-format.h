/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <glib.h>

/* Parses the text of a tracepoint's file "format". Returns its fields, of struct message_field, at
 * most ENGINE_MAX_FIELDS; without common_type and the like, which every record has, and without
 * lines that it cannot parse. */
GArray *event_format_parse(const char *text);
