/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/model/images.h"

/* Returns the kind of program that the file's headers describe. Never UNKNOWN. Any thread. */
enum image_program program_read(int fd);
