/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Modules - the unwind rules of this process's code
 *
 * Finds the module at a pc, and the unwind rule of its CFI for that pc, without the loader's lock:
 * _dl_find_object() takes none. CFI is read through copies of its pages. So if a module is unmapped
 * meanwhile, a frame is lost, but the process does not crash. All functions are async-signal-safe
 * and allocate nothing. One user at a time.
 */
#pragma once

#include "arch/walk.h"
#include "libcollector/unwind/module-id.h"
#include "libcollector/unwind/safe-read.h"

#define MODULES_MAX 256
#define MODULES_PAGES 64
#define MODULES_MAX_CIE 512
#define MODULES_MAX_FDE 65536 /* an FDE of GCC's cc1 has 20 KiB */

struct module {
	uint64_t start, end;
	uint64_t map;       /* address of the loader's record (struct link_map) */
	uint64_t header;    /* address of .eh_frame_hdr; 0: none */
	uint64_t table;     /* address of the table's entries, of 8 bytes each */
	uint32_t n_entries; /* 0: no table */
	uint64_t records;   /* address of .eh_frame, if there is no table; 0: not found */
	uint32_t n_id_bytes;
	/* address of the build-id; in a file without one, of the ELF header or .eh_frame_hdr */
	uint64_t id_at;
	uint8_t id[MODULE_MAX_ID];
	uint64_t checked; /* number of the last check that found the module unchanged */
};

/* A zeroed structure is empty. */
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

/* Finds the module at pc. Returns false if the module contradicts a known one or cannot be read
 * (modules were unloaded), or if there is no room. The caller must then call modules_clear(). */
bool modules_resolve(struct modules *modules, struct safe_read *memory, uint64_t pc,
		     struct walk_code *ret_code);

/* Returns whether all frames are still in the modules that their rules came from. `trusted`: the
 * chain is complete, so that nothing on it can be unmapped during the check. */
bool modules_check(struct modules *modules, struct safe_read *memory,
		   const struct walk_frame *frames, size_t n, bool trusted);
