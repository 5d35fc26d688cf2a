/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/model/images.h"

/* Returns the kind of program that the file's headers describe; never IMAGE_PROGRAM_UNKNOWN. Any
 * thread may call this. */
enum image_program program_read(int fd);
