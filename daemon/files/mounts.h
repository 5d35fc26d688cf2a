/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#define MOUNTS_TYPE_BYTES 64

/* The type of a filesystem that is mounted where we are, by its device: "fuse.sshfs",
 * "virtiofs". False: it is not. */
bool mounts_type(dev_t dev, char ret_type[MOUNTS_TYPE_BYTES]);
/* Whether nobody but the kernel and its disks answers for the file of a descriptor (O_PATH will
 * do): it is on the mount of our root, or on one of a type that is known. Asks no server. */
bool mounts_is_local(int handle);
