/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/out/output.h"
#include "daemon/protocol.h"

/* A sampled event, as a row. */
struct event_source {
	struct row row;
	struct message_source message;
};

struct event_source *event_source_new(const struct message_source *message, uint32_t id);
