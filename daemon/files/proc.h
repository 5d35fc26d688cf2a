/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/files-protocol.h"

/* Writes what /proc shows about one process, or about all processes, the cgroups and the kernel's
 * modules, into a snapshot's memfd. A process that has exited, or that the client may not see, has
 * no record. Returns 0 or an errno. Takes about 50 us per process, but may block forever. */
int proc_snapshot(const struct files_config *config, const struct files_snapshot *request,
		  int memfd);
