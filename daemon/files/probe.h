/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/files-protocol.h"
#include "daemon/files/client.h"

/* Finds the places of a probe, "/FILE:NAME", in a file that the client may read. On success,
 * returns 0, the file in *ret_fd and the places in `answer`. On failure, returns an errno; `answer`
 * may have the reason. */
int probe_open(const struct files_config *config, const struct client *client,
	       const struct files_probe *request, const char *text, struct files_answer *answer,
	       int *ret_fd);
