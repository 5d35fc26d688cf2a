/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/files-protocol.h"

/* Reads what is known about one process, or about all processes, the cgroups and the kernel's
 * modules, into the memfd of a snapshot. A process that is gone, or that the client may not see,
 * leaves no record. Returns 0 or an errno. Takes some 50 us a process, or forever. */
int proc_snapshot(const struct files_config *config, const struct files_snapshot *request,
		  int memfd);
