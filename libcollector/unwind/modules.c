/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Modules - the unwind rules of this process's code
 *
 * A module is identified by its addresses, the loader's record and the build-id. The stored
 * build-id is compared with the one in memory whenever a stack goes through the module, to detect
 * another library at the same address: not every dlclose() can be interposed, because libc closes
 * its own modules through an internal call.
 *
 * To find a rule, .eh_frame_hdr is searched, the FDE and its CIE are copied side by side as a
 * separate section, and arch/cfi.h evaluates that. No table is built here, because that takes time
 * proportional to the file's size. If a linker made no .eh_frame_hdr, .eh_frame is found by its
 * first two records and read from its start each time, as far as the page copies reach. If a file
 * has holes between its segments, the loader has a module for each segment, so a module's CFI may
 * lie outside the module.
 * Invariants: (1) only safe-read.c loads from a module, except for build-ids of the modules on a
 *                 complete chain, because modules in use stay mapped
 *                 [test-self-unwind: storm, same_address]
 *             (2) module data is untrusted: lengths are bounded by this file's buffers, and reads
 *                 outside of a module fail  [fuzz_cfi]
 *             (3) no rule outlives its module                      [test-self-unwind: same_address]
 * For code in no module (generated code, and the trampoline of an emulator) only its readability is
 * checked.
 */
#include "libcollector/unwind/modules.h"

#include <dlfcn.h>

#define HEADER_BYTES 12 /* version, three encodings, address of .eh_frame, and count of entries */
#define ENTRY_BYTES 8
#define PROBE_BYTES 4
#define MAX_SEARCHED_BYTES (UINT64_C(16) << 20) /* limit of the search for .eh_frame in a module */
#define MAX_RECORDS_BYTES ((uint64_t)MODULES_PAGES * SAFE_READ_PAGE)

/* Exists in glibc since 2.35. Without it, only frame pointers are used. */
#pragma weak _dl_find_object

/* version 1; DW_EH_PE_pcrel | sdata4, udata4, datarel | sdata4 (LSB 10.5.1), as in every linker's
 * output */
static const uint8_t encodings[] = { 1, 0x1b, 0x03, 0x3b };

void modules_clear(struct modules *modules)
{
	modules->n = 0;
	memset(modules->page_addresses, 0, sizeof(modules->page_addresses));
}

/* ---- Reading ---- */

static const uint8_t *get_page(struct modules *modules, struct safe_read *memory, uint64_t address)
{
	size_t slot = (size_t)(address / SAFE_READ_PAGE % MODULES_PAGES);

	if (modules->page_addresses[slot] == address)
		return modules->pages[slot];
	modules->page_addresses[slot] = 0;
	if (!safe_read(memory, address, modules->pages[slot], SAFE_READ_PAGE))
		return NULL;
	modules->page_addresses[slot] = address;
	return modules->pages[slot];
}

static bool read_bytes(struct modules *modules, struct safe_read *memory, uint64_t address,
		       void *buffer, size_t size)
{
	uint8_t *to = buffer;

	while (size > 0) {
		size_t offset = (size_t)(address % SAFE_READ_PAGE);
		size_t part = MIN_OF(size, SAFE_READ_PAGE - offset);
		const uint8_t *page = get_page(modules, memory, address - offset);

		if (!page)
			return false;
		memcpy(to, page + offset, part);
		to += part;
		address += part;
		size -= part;
	}
	return true;
}

/* ---- Modules ---- */

static bool find_table(struct modules *modules, struct safe_read *memory, struct module *module)
{
	uint8_t header[HEADER_BYTES];

	if (module->header == 0 ||
	    !read_bytes(modules, memory, module->header, header, sizeof(header)) ||
	    memcmp(header, encodings, sizeof(encodings)) != 0)
		return false;
	module->table = module->header + HEADER_BYTES;
	module->n_entries = load_le32(header + 8);
	return true;
}

/* Returns whether `at` has a CIE as compilers write it, followed by an FDE that uses it. */
static bool is_first_record(struct modules *modules, struct safe_read *memory, uint64_t at)
{
	uint8_t cie[10], fde[8];
	uint32_t size;

	if (!read_bytes(modules, memory, at, cie, sizeof(cie)) || load_le32(cie + 4) != 0 ||
	    (cie[8] != 1 && cie[8] != 3) || cie[9] != 'z')
		return false;
	size = load_le32(cie);
	return size > sizeof(cie) && size <= MODULES_MAX_CIE - 4 &&
	       read_bytes(modules, memory, at + 4 + size, fde, sizeof(fde)) &&
	       load_le32(fde) >= sizeof(fde) && load_le32(fde + 4) == size + 8;
}

/* Finds .eh_frame of a module without a table. */
static void find_records(struct modules *modules, struct safe_read *memory, struct module *module)
{
	uint64_t page = module->start & -(uint64_t)SAFE_READ_PAGE;
	uint64_t end = MIN_OF(module->end, page + MAX_SEARCHED_BYTES);

	for (; page < end && module->records == 0; page += SAFE_READ_PAGE) {
		if (!get_page(modules, memory, page))
			continue;
		for (uint64_t at = page; at < page + SAFE_READ_PAGE; at += 8) {
			const uint8_t *bytes = get_page(modules, memory, page);

			if (!bytes)
				break;
			if (load_le32(bytes + at % SAFE_READ_PAGE + 4) == 0 &&
			    load_le32(bytes + at % SAFE_READ_PAGE) != 0 &&
			    is_first_record(modules, memory, at)) {
				module->records = at;
				return;
			}
		}
	}
}

struct source {
	struct modules *modules;
	struct safe_read *memory;
};

static bool read_source(void *data, uint64_t address, void *buffer, size_t size)
{
	const struct source *source = data;

	return read_bytes(source->modules, source->memory, address, buffer, size);
}

static bool find_id(struct modules *modules, struct safe_read *memory, struct module *module)
{
	struct source source = { modules, memory };
	const struct module_memory whole = { module->start, module->end, read_source, &source };

	module->id_at = module_find_build_id(&whole, &module->n_id_bytes);
	if (module->id_at == 0) {
		module->id_at = module_is_elf(&whole) || module->header == 0 ? module->start
									     : module->header;
		module->n_id_bytes =
			(uint32_t)MIN_OF((uint64_t)MODULE_MAX_ID, module->end - module->start);
	}
	return read_bytes(modules, memory, module->id_at, module->id, module->n_id_bytes);
}

static bool query_loader(uint64_t pc, struct module *ret_module)
{
	struct dl_find_object found;

	if (!_dl_find_object || _dl_find_object((void *)(uintptr_t)pc, &found) != 0)
		return false;
	*ret_module = (struct module){
		.start = (uint64_t)(uintptr_t)found.dlfo_map_start,
		.end = (uint64_t)(uintptr_t)found.dlfo_map_end,
		.map = (uint64_t)(uintptr_t)found.dlfo_link_map,
		.header = (uint64_t)(uintptr_t)found.dlfo_eh_frame,
	};
	return true;
}

/* ---- Known modules ---- */

/* Returns the index of the first module that ends after pc: pc's module, or where to insert it. */
static size_t find_place(const struct modules *modules, uint64_t pc)
{
	size_t low = 0, high = modules->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (modules->modules[middle].end <= pc)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static struct module *find_known(struct modules *modules, uint64_t pc)
{
	size_t at = find_place(modules, pc);

	return at < modules->n && pc >= modules->modules[at].start ? &modules->modules[at] : NULL;
}

/* Adds a module. Returns false if it overlaps with a known one, or if there is no room; the caller
 * then assumes that modules were unloaded. */
static bool add(struct modules *modules, const struct module *module)
{
	size_t at = find_place(modules, module->start);

	if (modules->n == MODULES_MAX ||
	    (at < modules->n && modules->modules[at].start < module->end))
		return false;
	memmove(&modules->modules[at + 1], &modules->modules[at],
		(modules->n - at) * sizeof(*module));
	modules->modules[at] = *module;
	modules->n++;
	return true;
}

static bool is_same(struct safe_read *memory, const struct module *module, uint64_t pc,
		    bool trusted)
{
	uint8_t id[MODULE_MAX_ID];
	const void *at = id;
	struct module now;

	if (!query_loader(pc, &now) || now.start != module->start || now.end != module->end ||
	    now.map != module->map || now.header != module->header)
		return false;
	if (trusted && module->id_at >= module->start &&
	    module->id_at + module->n_id_bytes <= module->start + SAFE_READ_PAGE)
		at = (const void *)(uintptr_t)module->id_at;
	else if (!safe_read(memory, module->id_at, id, module->n_id_bytes))
		return false;
	return memcmp(at, module->id, module->n_id_bytes) == 0;
}

bool modules_check(struct modules *modules, struct safe_read *memory,
		   const struct walk_frame *frames, size_t n, bool trusted)
{
	const struct module *last = NULL;

	modules->n_checks++;
	for (size_t i = 0; i < n; i++) {
		uint64_t pc = frames[i].pc - (frames[i].flags & WALK_FRAME_EXACT ? 0 : 1);
		struct module *module, now;

		if (last && pc >= last->start && pc < last->end)
			continue;
		if (frames[i].flags & WALK_FRAME_JIT) {
			if (query_loader(pc, &now))
				return false;
			continue;
		}
		module = find_known(modules, pc);
		if (!module)
			return false;
		if (module->checked != modules->n_checks && !is_same(memory, module, pc, trusted))
			return false;
		module->checked = modules->n_checks;
		last = module;
	}
	return true;
}

/* ---- Rules ---- */

/* Reads one of the two distances of a table entry. Linkers align them. */
static bool read_distance(struct modules *modules, struct safe_read *memory,
			  const struct module *module, uint64_t at, uint64_t *ret_address)
{
	const uint8_t *page = get_page(modules, memory, at & -(uint64_t)SAFE_READ_PAGE);

	if (!page || at % 4 != 0)
		return false;
	*ret_address = module->header +
		       (uint64_t)(int64_t)(int32_t)load_le32(page + at % SAFE_READ_PAGE);
	return true;
}

/* Finds the FDE that covers pc in a module without a table. Assumes that all CIEs use the encoding
 * DW_EH_PE_pcrel | sdata4. */
static bool find_record(struct modules *modules, struct safe_read *memory,
			const struct module *module, uint64_t pc, uint64_t *ret_at)
{
	uint8_t record[16];
	uint64_t at = module->records, start;
	uint32_t size;

	for (; at - module->records < MAX_RECORDS_BYTES; at += size + 4) {
		if (!read_bytes(modules, memory, at, record, sizeof(record)))
			return false;
		size = load_le32(record);
		if (size < sizeof(record) - 4 || size > MODULES_MAX_FDE)
			return false;
		start = at + 8 + (uint64_t)(int64_t)(int32_t)load_le32(record + 8);
		*ret_at = at;
		if (load_le32(record + 4) != 0 && pc - start < load_le32(record + 12))
			return true;
	}
	return false;
}

/* Finds the FDE that may cover pc. Distances are compared relative to that of the first entry,
 * modulo 2^32, because some releases of lld sort negative distances (of code below .eh_frame_hdr)
 * after all others. */
static bool find_fde(struct modules *modules, struct safe_read *memory, const struct module *module,
		     uint64_t pc, uint64_t *ret_at)
{
	uint32_t low = 0, high = module->n_entries;
	uint64_t first;

	if (module->records != 0)
		return find_record(modules, memory, module, pc, ret_at);
	if (!read_distance(modules, memory, module, module->table, &first))
		return false;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		uint64_t start;

		if (!read_distance(modules, memory, module,
				   module->table + (uint64_t)middle * ENTRY_BYTES, &start))
			return false;
		if ((uint32_t)(start - first) <= (uint32_t)(pc - first))
			low = middle + 1;
		else
			high = middle;
	}
	return low > 0 && read_distance(modules, memory, module,
					module->table + (uint64_t)low * ENTRY_BYTES - 4, ret_at);
}

/* Reads a record with its length field. Returns its size, or 0 if it is too short, too long or
 * unreadable. */
static size_t read_record(struct modules *modules, struct safe_read *memory, uint64_t at,
			  uint8_t *buffer, size_t max)
{
	uint32_t size;

	if (!read_bytes(modules, memory, at, buffer, 4))
		return 0;
	size = load_le32(buffer);
	if (size < 4 || size > max - 4 || !read_bytes(modules, memory, at + 4, buffer + 4, size))
		return 0;
	return size + 4;
}

/* Builds a section from the FDE at `at` and its CIE. The CIE comes first; the FDE keeps its
 * address, and its CIE pointer is updated. */
static bool make_section(struct modules *modules, struct safe_read *memory, uint64_t at,
			 struct cfi_section *ret_section)
{
	uint8_t *fde = modules->record + MODULES_MAX_CIE;
	size_t n_fde = read_record(modules, memory, at, fde, MODULES_MAX_FDE), n_cie, start;

	if (n_fde < 8)
		return false;
	n_cie = read_record(modules, memory, at + 4 - load_le32(fde + 4), modules->record,
			    MODULES_MAX_CIE);
	if (n_cie == 0)
		return false;
	start = MODULES_MAX_CIE - n_cie;
	memmove(modules->record + start, modules->record, n_cie);
	store_le32(fde + 4, (uint32_t)(n_cie + 4));
	*ret_section = (struct cfi_section){
		.bytes = modules->record + start,
		.size = n_cie + n_fde,
		.address = at - n_cie,
		.arch = REGS_NATIVE,
	};
	return true;
}

static void get_rule(struct modules *modules, struct safe_read *memory, const struct module *module,
		     uint64_t pc, struct cfi_rule *ret_rule)
{
	struct cfi_section section;
	uint64_t at;

	*ret_rule = (struct cfi_rule){ .cfa = CFI_CFA_NONE };
	if (!find_fde(modules, memory, module, pc, &at))
		return;
	if (!make_section(modules, memory, at, &section)) {
		ret_rule->cfa = CFI_CFA_UNSUPPORTED;
		return;
	}
	cfi_reader_init(&modules->reader, &section);
	cfi_get_rule(&modules->reader, pc, ret_rule);
}

bool modules_resolve(struct modules *modules, struct safe_read *memory, uint64_t pc,
		     struct walk_code *ret_code)
{
	const struct module *known = find_known(modules, pc);
	struct module module;
	uint8_t code[PROBE_BYTES];

	if (!known) {
		if (!query_loader(pc, &module)) {
			ret_code->kind = safe_read(memory, pc, code, sizeof(code)) ? WALK_CODE_JIT
										   : WALK_CODE_NONE;
			return true;
		}
		if (!find_table(modules, memory, &module))
			find_records(modules, memory, &module);
		if (!find_id(modules, memory, &module) || !add(modules, &module))
			return false;
		known = find_known(modules, pc);
	}
	ret_code->kind = WALK_CODE_FP;
	if (!known || (known->n_entries == 0 && known->records == 0))
		return true;
	ret_code->kind = WALK_CODE_RULE;
	get_rule(modules, memory, known, pc, &ret_code->rule);
	return true;
}
