/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Interp-files - finds the runtimes of the interpreters in the fuzz corpus */
#pragma once

#include "arch/base.h"
#include "daemon/engine/interp/interp-runtime.h"
#include "tests/unit/test.h"

#include <fcntl.h>
#include <stdio.h>

/* Checks which runtime a file has; PROF_SOURCE_DIR must be set. Returns whether it can be read, and
 * then stores its addresses in a process that has it at 0x1000. */
static inline bool check_interp_file(const char *name, enum interp_found found,
				     enum interp_family family, unsigned minor,
				     struct interp_runtime *ret_runtime,
				     uint64_t ret_addresses[INTERP_ADDRESSES])
{
	CLEANUP_CLOSE int fd = -1;
	char path[512];

	snprintf(path, sizeof(path), "%s/tests/fuzz/corpus/interp_runtime/%s",
		 getenv("PROF_SOURCE_DIR"), name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0);
	CHECK_INT(interp_runtime_find(fd, ret_runtime), found);
	CHECK_INT(ret_runtime->family, family);
	CHECK_INT(ret_runtime->minor, minor);
	if (ret_runtime->found != INTERP_FOUND)
		return false;
	interp_runtime_locate(ret_runtime, 0x1000, ret_addresses);
	return true;
}
