/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Modules - the unwind rules of this process's code
 *
 * Finds the module at a pc, and the rule that its CFI has there, without the loader's lock:
 * _dl_find_object() takes none. CFI is read where it is mapped, through copies of its pages, so
 * that a module that is unmapped meanwhile costs a frame and not the process. Everything is
 * async-signal-safe and allocates nothing. One user at a time.
 */
#pragma once

#include "arch/walk.h"
#include "libcollector/module-id.h"
#include "libcollector/safe-read.h"

#define MODULES_MAX 256
#define MODULES_PAGES 64
#define MODULES_MAX_CIE 512
#define MODULES_MAX_FDE 65536 /* cc1 has one of 20 KiB */

struct module {
	uint64_t start, end;
	uint64_t map;       /* the loader's record of it */
	uint64_t header;    /* .eh_frame_hdr; 0: none */
	uint64_t table;     /* its entries, of 8 bytes each */
	uint32_t n_entries; /* 0: no table */
	uint64_t records;   /* .eh_frame, if there is no table; 0: not found */
	uint32_t n_id_bytes;
	uint64_t id_at; /* of its build-id; without one, of its ELF header or .eh_frame_hdr */
	uint8_t id[MODULE_MAX_ID];
	uint64_t checked; /* the last check that found it unchanged */
};

/* All zeros is empty. */
struct modules {
	struct module modules[MODULES_MAX]; /* ascending */
	size_t n;
	uint64_t n_checks;
	uint64_t page_addresses[MODULES_PAGES]; /* 0: none */
	uint8_t pages[MODULES_PAGES][SAFE_READ_PAGE];
	uint8_t record[MODULES_MAX_CIE +
		       MODULES_MAX_FDE]; /* the FDE that is being read, and its CIE */
	struct cfi_reader reader;
};

void modules_clear(struct modules *modules);

/* Finds the module at pc. Returns false if that contradicts a known module: a module was unloaded,
 * and everything must be cleared. */
bool modules_resolve(struct modules *modules, struct safe_read *memory, uint64_t pc,
		     struct walk_code *ret_code);

/*
 * Returns whether all frames are still in the modules that their rules came from. `trusted`: the
 * chain is complete, so that nothing on it can be unmapped during the check.
 */
bool modules_check(struct modules *modules, struct safe_read *memory,
		   const struct walk_frame *frames, size_t n, bool trusted);
