/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Perl-file - finds Perl in an ELF file
 */
#pragma once

#include "daemon/engine/interp/interp-elf.h"
#include "daemon/engine/interp/interp-runtime.h"

/* Returns false if the file is not Perl. Else fills in all but the process's addresses. */
bool perl_file_describe(const struct interp_elf *elf, struct interp_runtime *ret_runtime);
