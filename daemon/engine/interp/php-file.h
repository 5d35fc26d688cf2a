/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Php-file - finds PHP in an ELF file
 */
#pragma once

#include "daemon/engine/interp/interp-elf.h"
#include "daemon/engine/interp/interp-runtime.h"

/* Returns false, and changes nothing, if the file has no PHP. */
bool php_file_describe(const struct interp_elf *elf, struct interp_runtime *ret_runtime);
