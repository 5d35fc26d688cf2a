/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#define MOUNTS_TYPE_BYTES 64

/* Gets the type of a filesystem by its device: "fuse.sshfs", "virtiofs". Returns false if it is not
 * mounted in our namespace. */
bool mounts_type(dev_t dev, char ret_type[MOUNTS_TYPE_BYTES]);
/* Returns whether accesses to a file (O_PATH suffices) involve only the kernel and its disks: the
 * file is on the root mount, or on a mount of a known type. Accesses no server itself. */
bool mounts_is_local(int handle);
