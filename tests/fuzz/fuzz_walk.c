/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Fuzz target of the walk: registers, rules of a table, and a stack. Each walk must progress, and
 * end.
 *
 *     u8 architecture, u8 flags, u8 number of rules, u8 unused, u64 pc, sp, fp, lr,
 *     the rules, the stack
 */
#include "arch/table-layout.h"
#include "arch/walk.h"

#include <stdlib.h>

#define CODE 0x10000u /* rule i is at CODE + 16 * i */
#define NEEDS 36
#define MAX_RULES 64
#define N_FRAMES 64

#define HAS_CODE 0x01 /* code before return addresses is readable */
#define HAS_CACHE 0x02
#define HAS_MORE 0x04 /* memory outside of the copy is readable */
#define HAS_ROOTS 0x08
#define HAS_REGISTERS 0x10 /* all registers, not only pc, sp, fp and lr */
#define HAS_PROBES 0x20    /* some return addresses were replaced */
#define NO_CONTEXTS 0x40   /* do not search for contexts of makecontext() */
#define HAS_BASE 0x80      /* callees store the register from which a CFA may be computed */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct world {
	struct unwind_table table;
	const uint8_t *data;
	size_t size;
};

/* The kind of code depends only on its address. */
static void resolve(void *data, uint64_t pc, struct walk_code *ret_code)
{
	struct world *world = data;

	*ret_code = (struct walk_code){ .table = &world->table, .address = pc };
	if (pc >= CODE && pc < CODE + TABLE_PAGE)
		ret_code->kind = WALK_CODE_TABLE;
	else if (pc < 8 * CODE)
		ret_code->kind = (uint8_t)(pc / CODE % 5);
}

static bool read_word(void *data, uint64_t address, uint64_t *ret_word)
{
	*ret_word = address * UINT64_C(0x9e3779b97f4a7c15) >> (address % 64);
	return address % 3 != 0;
}

static bool read_code(void *data, uint64_t address, void *buffer, size_t size)
{
	struct world *world = data;

	if (address % 4096 >= world->size || world->size - address % 4096 < size)
		return false;
	memcpy(buffer, world->data + address % 4096, size);
	return true;
}

static bool find_replaced(void *data, uint64_t slot, uint64_t *ret_pc)
{
	*ret_pc = CODE + slot % (4 * CODE);
	return slot % 16 == 0;
}

static const struct cfi_rule *find_base(void *data, uint64_t pc)
{
	struct world *world = data;

	return pc >= CODE && pc < CODE + TABLE_PAGE ? table_get(&world->table, pc) : NULL;
}

static bool make_table(struct world *world, enum regs_arch arch, const uint8_t *rules,
		       size_t n_rules, void *bytes)
{
	struct table_header header = {
		.magic = TABLE_MAGIC,
		.version = TABLE_VERSION,
		.arch = (uint8_t)arch,
		.base = CODE,
		.n_pages = 1,
		.n_rows = (uint32_t)n_rules,
		.n_rules = (uint32_t)n_rules + 1,
	};
	struct unwind_table table;

	memcpy(bytes, &header, sizeof(header));
	table_layout_set(&table, bytes);
	memset((void *)table.rules, 0, sizeof(struct cfi_rule));
	memcpy((void *)(table.rules + 1), rules, n_rules * sizeof(struct cfi_rule));
	((uint32_t *)table.pages)[0] = 0;
	((uint32_t *)table.pages)[1] = header.n_rows;
	for (size_t i = 0; i < n_rules; i++) {
		((uint16_t *)table.rows)[i] = (uint16_t)(16 * i);
		((uint16_t *)table.ids)[i] = (uint16_t)(i + 1);
	}
	return table_init(&world->table, bytes, table_layout_size(&header)) == 0;
}

static void check(const struct walk *walk, const struct walk_result *result)
{
	size_t switches = 0;

	if (result->n == 0 || result->n > walk->n_frames || result->stop >= WALK_N_STOPS ||
	    result->cut_at > result->n || result->n + result->n_cut > WALK_MAX_STEPS)
		abort();
	for (size_t i = 1; i < result->n; i++) {
		const struct walk_frame *frame = &walk->frames[i];

		if (frame->pc == 0)
			abort();
		switches += frame->sp <= frame[-1].sp && (frame->flags & WALK_FRAME_EXACT);
		if (frame->sp < frame[-1].sp && !(frame->flags & WALK_FRAME_EXACT))
			abort();
		if (frame->sp == frame[-1].sp && !(frame[-1].flags & WALK_FRAME_EXACT) &&
		    !(frame->flags & WALK_FRAME_EXACT))
			abort();
	}
	if (switches > 32)
		abort();
}

/* Checks that a walk has the same result when it runs together with walks that start at the
 * following rules. */
static void run_together(const struct walk *walk, const struct walk_registers *registers)
{
	static struct walk_frame frames[WALK_TOGETHER][N_FRAMES], alone[N_FRAMES];
	struct walk_job jobs[WALK_TOGETHER];

	for (size_t i = 0; i < WALK_TOGETHER; i++) {
		jobs[i] = (struct walk_job){ .walk = *walk, .registers = *registers };
		jobs[i].walk.frames = frames[i];
		jobs[i].registers.pc += 16 * i;
	}
	walk_run_together(jobs, WALK_TOGETHER);
	for (size_t i = 0; i < WALK_TOGETHER; i++) {
		struct walk_result result;
		struct walk one = *walk;

		one.frames = alone;
		walk_run(&one, &jobs[i].registers, &result);
		check(&jobs[i].walk, &jobs[i].result);
		if (result.n != jobs[i].result.n || result.stop != jobs[i].result.stop ||
		    result.n_cut != jobs[i].result.n_cut)
			abort();
		for (size_t k = 0; k < result.n; k++)
			if (alone[k].pc != frames[i][k].pc || alone[k].sp != frames[i][k].sp)
				abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct walk_frame frames[N_FRAMES];
	static struct walk_cache cache;
	static _Alignas(16) uint8_t bytes[4096];
	uint64_t numbered[REGS_MAX_NUMBERED];
	struct world world = { .data = data, .size = size };
	struct walk_registers registers;
	struct walk_result result;
	struct walk walk;
	size_t n_rules;

	if (size < NEEDS)
		return 0;
	n_rules = MIN_OF((size_t)data[2] % MAX_RULES, (size - NEEDS) / sizeof(struct cfi_rule));
	memcpy(&registers, data + 4, sizeof(registers));
	for (size_t i = 0; i < REGS_MAX_NUMBERED; i++)
		numbered[i] = registers.sp + load_le64(data + 4 + i) % 1024;
	walk = (struct walk){
		.numbered = data[1] & HAS_REGISTERS ? numbered : NULL,
		.find_replaced = data[1] & HAS_PROBES ? find_replaced : NULL,
		.find_base = data[1] & HAS_BASE ? find_base : NULL,
		.arch = REGS_NONE + 1 + data[0] % (REGS_N_ARCHS - 1),
		.pac_mask = data[0] & 0x80 ? UINT64_C(0xff7f000000000000) : 0,
		.stack = data + NEEDS + n_rules * sizeof(struct cfi_rule),
		.stack_start = registers.sp,
		.stack_size = size - NEEDS - n_rules * sizeof(struct cfi_rule),
		.read_word = data[1] & HAS_MORE ? read_word : NULL,
		.read_code = data[1] & HAS_CODE ? read_code : NULL,
		.finds_contexts = !(data[1] & NO_CONTEXTS),
		.resolve = resolve,
		.data = &world,
		.cache = data[1] & HAS_CACHE ? &cache : NULL,
		.generation = 1,
		.frames = frames,
		.n_frames = ARRAY_SIZE(frames),
		.n_roots = data[1] & HAS_ROOTS ? 16 : 0,
	};
	if (!make_table(&world, walk.arch, data + NEEDS, n_rules, bytes))
		return 0;
	memset(&cache, 0, sizeof(cache));
	walk_run(&walk, &registers, &result);
	check(&walk, &result);
	memset(&cache, 0, sizeof(cache));
	run_together(&walk, &registers);
	return 0;
}
