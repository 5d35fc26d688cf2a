/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Cpython-layouts - where the builds of each version of CPython have what a walk needs
 *
 * For builds with the interpreter's lock, on 64-bit machines. profd gives these numbers to the BPF
 * program, so that an engine cannot choose what is read. The engine compares them with what a file
 * says of itself, where it does (3.13 and later), and ignores files that differ.
 */
#pragma once

#include "daemon/interp-protocol.h"

#define CPYTHON_FIRST_MINOR 8u
#define CPYTHON_LAST_MINOR 14u

/* Returns NULL if the version 3.MINOR is not supported. */
const struct interp_cpython *cpython_layout(unsigned minor);
