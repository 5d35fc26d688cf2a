/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/images.h"

/* What kind of program the file is, by its headers. Never UNKNOWN. Any thread. */
enum image_program program_read(int fd);
