/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/files-protocol.h"
#include "daemon/files/client.h"

/* Finds the places of a probe, "/FILE:NAME", in a file that the client may read. Returns 0, the
 * file, and the places in the answer; or an errno, and the reason in the answer. */
int probe_open(const struct files_config *config, const struct client *client,
	       const struct files_probe *request, const char *text, struct files_answer *answer,
	       int *ret_fd);
