/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <glib.h>

/* Parses the text of a tracepoint's file "format". Returns at most ENGINE_MAX_FIELDS fields (struct
 * message_field). Omits common_type and the like, which every record has, and lines that cannot be
 * parsed. */
GArray *event_format_parse(const char *text);
