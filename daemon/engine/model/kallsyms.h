/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Kallsyms - names of kernel addresses from /proc/kallsyms
 *
 * The file is read from its start with pread(), so one fd serves any number of calls. Its contents
 * depend on the rights of the process that opened it: without the right to see kernel addresses
 * (kptr_restrict, CAP_SYSLOG) all addresses are 0. Functions return 0, -errno, or KALLSYMS_HIDDEN.
 */
#pragma once

#include "arch/base.h"

/* The file has names, but all addresses are zero. */
#define KALLSYMS_HIDDEN 1

struct kallsyms_symbol {
	uint64_t start;
	uint64_t length; /* at most up to the next symbol; at least 1 */
	char *name;      /* NULL: no function contains the address */
	char *module;    /* without brackets ("ext4", "bpf"); NULL: the kernel itself */
};

/* Finds _stext, to which offsets in the kernel image are relative. Stops reading at its line, which
 * is near the start of the file. */
MUST_CHECK int kallsyms_read_stext(int fd, uint64_t *ret_stext);

/* Reads the file once for n addresses in ascending order. ret_symbols[i] is the function that
 * contains addresses[i]. Keeps only these names in memory. On success, free them with
 * kallsyms_done(). */
MUST_CHECK int kallsyms_read(int fd, const uint64_t *addresses, size_t n,
			     struct kallsyms_symbol *ret_symbols);
void kallsyms_done(struct kallsyms_symbol *symbols, size_t n);
