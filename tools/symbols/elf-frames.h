/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * ELF frames - finds where functions of an ELF file begin and end, by its call frame information
 *
 * Nearly every function of a stripped file still has a frame description entry (FDE) in .eh_frame.
 * elf_frames_get() finds the FDE that covers an address, and reads only its range.
 */
#pragma once

#include "tools/symbols/elf-image.h"

struct elf_frames;

/* Reads the search table or, if the file has none, the ranges of all FDEs. */
struct elf_frames *elf_frames_new(const struct elf_image *image);
void elf_frames_free(struct elf_frames *frames);

/* Finds the FDE that covers the address, and stores its range. If no FDE does, returns false, and
 * stores the gap between the neighboring FDEs. */
bool elf_frames_get(struct elf_frames *frames, uint64_t address, struct elf_range *ret_function);
