/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#define MOUNTS_TYPE_BYTES 64

/* Finds the type of a filesystem by its device: "fuse.sshfs", "virtiofs". Returns false if it is
 * not mounted in our namespace. */
bool mounts_type(dev_t dev, char ret_type[MOUNTS_TYPE_BYTES]);
/* Returns whether only the kernel and its disks answer for the file of a descriptor (O_PATH is
 * enough): it is on the mount of our root, or on one of a known type. Queries no server. */
bool mounts_is_local(int handle);
