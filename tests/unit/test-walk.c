/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Checks of arch/walk on generated stacks; test-walk-self walks real ones. */
#include "arch/walk.h"

#include "config.h"
#include "tests/unit/cfi-builder.h"
#include "tests/unit/test.h"

#include <time.h>

#define LOW 0x10000u
#define HIGH 0x100000u
#define JIT 0x20000000u
#define PENDING 0x30000000u
#define AREA 0x10000u
#define STACK UINT64_C(0x700000000000)
#define N_WORDS 8192

/* Functions, one page each; CONTEXT has half a page. */
#define LEAF 0x11000u   /* CFA = sp + 8 */
#define FRAME 0x12000u  /* CFA = sp + 32 */
#define BY_FP 0x13000u  /* CFA = fp + 16, fp at CFA - 16 */
#define ROOT 0x14000u   /* no return address */
#define EXOTIC 0x15000u /* CFA = rbx + 8 */
#define SIGNAL 0x16000u /* like glibc's __restore_rt */
#define PLT 0x17000u
#define AT_SP 0x18000u /* CFA = *sp */
#define NO_CFI 0x19000u
#define FP_LOST 0x1a000u /* like LEAF, but fp is not known */
#define ENDING 0x1b000u  /* like LEAF, after pop fp: the saved fp is below sp */
#define IN_RDI 0x1d000u  /* CFA = sp, return address in rdi, as in vfork */
#define SAVES 0x20000u   /* like FRAME, rbx at CFA - 16 */
#define POPS 0x21000u    /* like LEAF, after pop rbx: the saved rbx is below sp */
#define BY_R10 0x23000u  /* CFA = r10 + 8 */
#define LOSES 0x22000u   /* like FRAME, but rbx is not known */
#define POPPED 0x1f000u  /* CFA = sp, return address below sp, as in musl's vfork */
#define ENTRY 0x1c000u   /* like LEAF, at a program's entry */
#define CONTEXT 0x1e800u /* like LEAF, with no function before it: glibc's __start_context */

struct world {
	struct unwind_table table, base_table; /* base_table: with the places of rbx, not of fp */
	void *bytes, *base_bytes;
	uint64_t words[N_WORDS];
	const uint8_t *code; /* bytes at code_at */
	uint64_t code_at;
	size_t code_size;
	size_t resolved;
};

static struct world world;
static struct walk_frame frames[1024];
static struct walk_cache cache;

static void *resize(void *data, void *block, size_t old_bytes, size_t new_bytes)
{
	if (new_bytes > 0)
		return realloc(block, new_bytes);
	free(block);
	return NULL;
}

static void build_table(const struct cfi_section *section, struct unwind_table *table, void **bytes)
{
	static const struct table_memory memory = { resize, NULL };
	const struct table_source source = { section, 1, LOW, HIGH, 0 };
	size_t size;

	free(*bytes);
	*bytes = NULL;
	CHECK(table_build(&source, &memory, bytes, &size) == 0);
	CHECK(table_init(table, *bytes, size) == 0);
}

static void build_tables(const struct builder *b)
{
	struct cfi_section section = build_section(b);
	struct regs regs = *regs_get(b->arch);

	build_table(&section, &world.table, &world.bytes);
	regs.fp = regs.base;
	section.regs = &regs;
	build_table(&section, &world.base_table, &world.base_bytes);
}

static void build_x86(void)
{
	CLEANUP_BUILDER struct builder b = { .n = 0 };

	memset(&world.words, 0, sizeof(world.words));
	memset(&cache, 0, sizeof(cache));
	world.code_size = 0;
	build_x86_cie(&b);
	build_fde(&b, LEAF, 0x1000, NO_BYTES);
	build_fde(&b, FRAME, 0x1000, BYTES(OP_DEF_CFA_OFFSET, 32));
	build_fde(&b, BY_FP, 0x1000, BYTES(OP_DEF_CFA, 6, 16, OP_OFFSET | 6, 2));
	build_fde(&b, ROOT, 0x1000, BYTES(OP_UNDEFINED, 16));
	build_fde(&b, EXOTIC, 0x1000, BYTES(OP_DEF_CFA_REGISTER, 3));
	build_fde(&b, IN_RDI, 0x1000, BYTES(OP_DEF_CFA_OFFSET, 0, OP_REGISTER, 16, 5));
	build_fde(&b, POPPED, 0x1000, BYTES(OP_DEF_CFA_OFFSET, 0));
	build_fde(&b, PLT, 0x1000,
		  BYTES(OP_DEF_CFA_EXPRESSION, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33,
			0x24, 0x22));
	build_fde(&b, AT_SP, 0x1000, BYTES(OP_DEF_CFA_EXPRESSION, 3, 0x77, 0, 0x06));
	build_fde(&b, FP_LOST, 0x1000, BYTES(OP_UNDEFINED, 6));
	build_fde(&b, ENDING, 0x1000, BYTES(OP_OFFSET | 6, 2));
	build_fde(&b, SAVES, 0x1000, BYTES(OP_DEF_CFA_OFFSET, 32, OP_OFFSET | 3, 2));
	build_fde(&b, POPS, 0x1000, BYTES(OP_OFFSET | 3, 2));
	build_fde(&b, LOSES, 0x1000, BYTES(OP_DEF_CFA_OFFSET, 32, OP_UNDEFINED, 3));
	build_fde(&b, BY_R10, 0x1000, BYTES(OP_DEF_CFA_REGISTER, 10));
	build_fde(&b, ENTRY, 0x1000, NO_BYTES);
	build_fde(&b, CONTEXT, 0x800, NO_BYTES);
	build_cie(&b, "zRS", 1, -8, 16, BYTES(0x1b), BYTES(OP_NOP));
	/* the interrupted sp is at rsp + 160, pc at rsp + 168, fp at rsp + 120 */
	build_fde(&b, SIGNAL - 1, 0x1000,
		  BYTES(OP_DEF_CFA_EXPRESSION, 4, 0x77, 0xa0, 0x01, 0x06, OP_EXPRESSION, 6, 3, 0x77,
			0xf8, 0x00, OP_EXPRESSION, 7, 3, 0x77, 0xa0, 0x01, OP_EXPRESSION, 16, 3,
			0x77, 0xa8, 0x01));
	build_tables(&b);
}

static const struct cfi_rule *find_base(void *data, uint64_t pc)
{
	return pc >= LOW && pc < HIGH ? table_get(&world.base_table, pc) : NULL;
}

static void resolve(void *data, uint64_t pc, struct walk_code *ret_code)
{
	world.resolved++;
	if (pc == ENTRY)
		ret_code->kind = WALK_CODE_ENTRY;
	else if (pc >= LOW && pc < HIGH)
		*ret_code = (struct walk_code){ WALK_CODE_TABLE, &world.table, pc };
	else if (pc >= JIT && pc < JIT + AREA)
		ret_code->kind = WALK_CODE_JIT;
	else if (pc >= PENDING && pc < PENDING + AREA)
		ret_code->kind = WALK_CODE_PENDING;
}

static bool read_code(void *data, uint64_t address, void *buffer, size_t size)
{
	uint64_t at = address - world.code_at;

	if (at >= world.code_size || world.code_size - at < size)
		return false;
	memcpy(buffer, world.code + at, size);
	return true;
}

static struct walk a_walk(void)
{
	return (struct walk){
		.arch = REGS_X86_64,
		.stack = (const uint8_t *)world.words,
		.stack_start = STACK,
		.stack_size = sizeof(world.words),
		.finds_contexts = true,
		.resolve = resolve,
		.cache = &cache,
		.generation = 1,
		.frames = frames,
		.n_frames = ARRAY_SIZE(frames),
		.n_roots = 24,
	};
}

static struct walk_result run(uint64_t pc, uint64_t fp)
{
	const struct walk walk = a_walk();
	const struct walk_registers registers = { .pc = pc, .sp = STACK, .fp = fp };
	struct walk_result result;

	walk_run(&walk, &registers, &result);
	return result;
}

static void check_chain(const struct walk_result *result, enum walk_stop stop, const uint64_t *pcs,
			size_t n)
{
	CHECK_INT(result->stop, stop);
	CHECK_INT(result->n, n);
	for (size_t i = 0; i < MIN_OF(n, result->n); i++)
		CHECK_INT(frames[i].pc, pcs[i]);
}
#define CHECK_CHAIN(result, stop, ...)                               \
	check_chain(result, stop, (const uint64_t[]){ __VA_ARGS__ }, \
		    ARRAY_SIZE(((const uint64_t[]){ __VA_ARGS__ })))

/* Stack: LEAF, FRAME, BY_FP, ROOT. LEAF's caller ends with the call, so the return address is after
 * the caller's code. */
static void build_chain(void)
{
	build_x86();
	world.words[0] = FRAME + 0x1000;
	world.words[4] = BY_FP + 5;
	world.words[8] = STACK + 0x1000;
	world.words[9] = ROOT + 9;
}

static void test_chain(void)
{
	struct walk_result result;

	build_chain();
	result = run(LEAF, STACK + 64);
	CHECK_CHAIN(&result, WALK_ROOT, LEAF, FRAME + 0x1000, BY_FP + 5, ROOT + 9);
	CHECK_INT(frames[0].sp, STACK);
	CHECK_INT(frames[1].sp, STACK + 8);
	CHECK_INT(frames[2].sp, STACK + 40);
	CHECK_INT(frames[3].sp, STACK + 80);
	CHECK_INT(frames[0].flags, WALK_FRAME_EXACT);
	CHECK_INT(frames[1].flags, 0);
	CHECK_INT(result.flags, WALK_FRAME_EXACT);
	CHECK_INT(result.n_cut, 0);
	CHECK_INT(result.last.fp, STACK + 0x1000);
}

static void test_stops(void)
{
	struct walk walk = a_walk();
	const struct walk_registers registers = { .pc = LEAF, .sp = STACK, .fp = STACK + 64 };
	struct walk_result result;

	build_chain();
	world.words[9] = 0;
	result = run(LEAF, STACK + 64);
	CHECK_CHAIN(&result, WALK_ROOT, LEAF, FRAME + 0x1000, BY_FP + 5);
	world.words[9] = EXOTIC + 5;
	result = run(LEAF, STACK + 64);
	CHECK_CHAIN(&result, WALK_NO_RULE, LEAF, FRAME + 0x1000, BY_FP + 5, EXOTIC + 5);
	world.words[9] = 0x1234;
	result = run(LEAF, STACK + 64);
	CHECK_CHAIN(&result, WALK_BAD_FRAME, LEAF, FRAME + 0x1000, BY_FP + 5);
	world.words[9] = PENDING + 5;
	result = run(LEAF, STACK + 64);
	CHECK_CHAIN(&result, WALK_NO_TABLE, LEAF, FRAME + 0x1000, BY_FP + 5, PENDING + 5);
	result = run(LEAF, STACK + 8); /* sp would go down */
	CHECK_CHAIN(&result, WALK_BAD_FRAME, LEAF, FRAME + 0x1000, BY_FP + 5);
	result = run(LEAF, STACK + 61); /* not aligned */
	CHECK_CHAIN(&result, WALK_BAD_FRAME, LEAF, FRAME + 0x1000, BY_FP + 5);
	result = run(LEAF, UINT64_MAX - 3);
	CHECK_CHAIN(&result, WALK_BAD_FRAME, LEAF, FRAME + 0x1000, BY_FP + 5);
	result = run(0x1234, 0);
	CHECK_CHAIN(&result, WALK_BAD_FRAME, 0x1234);
	for (walk.stack_size = 0; walk.stack_size < 80; walk.stack_size++) {
		walk_run(&walk, &registers, &result);
		CHECK_INT(result.stop, WALK_COPY_END);
		CHECK_INT(result.n, 1 + (walk.stack_size >= 8) + (walk.stack_size >= 40));
	}
}

static void test_frame_pointers(void)
{
	static const uint8_t call[] = { 0x90, 0x90, 0x90, 0xe8, 1, 2, 3, 4 };
	static const uint8_t no_call[] = { 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90 };
	struct walk walk = a_walk();
	struct walk_registers registers = { .pc = JIT + 1, .sp = STACK, .fp = STACK + 16 };
	struct walk_result result;

	build_x86();
	world.words[2] = STACK + 64; /* the frame of generated code */
	world.words[3] = NO_CFI + 8;
	world.words[8] = 0; /* the frame of code without CFI */
	world.words[9] = JIT + 8;
	result = run(JIT + 1, STACK + 16);
	CHECK_CHAIN(&result, WALK_ROOT, JIT + 1, NO_CFI + 8, JIT + 8);
	CHECK_INT(frames[0].flags, WALK_FRAME_EXACT | WALK_FRAME_JIT);
	CHECK_INT(frames[1].flags, WALK_FRAME_FP);
	CHECK_INT(frames[2].flags, WALK_FRAME_FP | WALK_FRAME_JIT);
	CHECK_INT(frames[1].sp, STACK + 32);
	world.words[8] = STACK + 32; /* fp goes down, to an existing frame */
	world.words[9] = NO_CFI + 8;
	result = run(JIT + 1, STACK + 16);
	CHECK_CHAIN(&result, WALK_NO_TABLE, JIT + 1, NO_CFI + 8, NO_CFI + 8);
	result = run(JIT + 1, STACK + 17);
	CHECK_CHAIN(&result, WALK_NO_TABLE, JIT + 1);
	result = run(JIT + 1, STACK + sizeof(world.words) - 8);
	CHECK_CHAIN(&result, WALK_COPY_END, JIT + 1);
	result = run(JIT + 1, 0);
	CHECK_CHAIN(&result, WALK_NO_TABLE, JIT + 1);
	walk.read_code = read_code;
	world.code = call;
	world.code_at = NO_CFI;
	world.code_size = sizeof(call);
	walk_run(&walk, &registers, &result);
	CHECK_INT(result.n, 3);
	world.code = no_call;
	walk_run(&walk, &registers, &result);
	CHECK_CHAIN(&result, WALK_NO_TABLE, JIT + 1);
}

/* An undefined register matters only if a caller needs it. */
static void test_lost_fp(void)
{
	struct walk_result result;

	build_x86();
	world.words[0] = LEAF + 1;
	world.words[1] = BY_FP + 1;
	result = run(FP_LOST, STACK + 64);
	CHECK_CHAIN(&result, WALK_NO_RULE, FP_LOST, LEAF + 1, BY_FP + 1);
	world.words[1] = JIT + 1;
	result = run(FP_LOST, STACK + 64);
	CHECK_CHAIN(&result, WALK_NO_TABLE, FP_LOST, LEAF + 1, JIT + 1);
}

/* Between `pop fp` and `ret`, CFI still says that fp is on the stack. That place is below sp, so it
 * is not in the copy. */
static void test_popped_fp(void)
{
	static const uint64_t no_frames[] = { 0, STACK, STACK + 17, STACK + (UINT64_C(1) << 32),
					      UINT64_MAX - 7 };
	struct walk_result result;

	build_x86();
	world.words[0] = LEAF + 1;
	world.words[1] = BY_FP + 1;
	world.words[9] = ROOT + 1;
	result = run(ENDING, STACK + 64);
	CHECK_CHAIN(&result, WALK_ROOT, ENDING, LEAF + 1, BY_FP + 1, ROOT + 1);
	for (size_t i = 0; i < ARRAY_SIZE(no_frames); i++) {
		result = run(ENDING, no_frames[i]);
		CHECK_CHAIN(&result, WALK_NO_RULE, ENDING, LEAF + 1, BY_FP + 1);
	}
}

/* A walk ends at a program's entry, even if the stack seems to have a return address. */
static void test_entry(void)
{
	struct walk_result result;

	build_x86();
	world.words[0] = LEAF + 1;
	result = run(ENTRY, 0);
	CHECK_CHAIN(&result, WALK_ROOT, ENTRY);
}

/* fp is 0 at the start of a program, or if no function has a frame pointer. */
static void test_zero_fp(void)
{
	struct walk_result result;

	build_x86();
	world.words[3] = NO_CFI + 1;
	result = run(FRAME, 0);
	CHECK_CHAIN(&result, WALK_NO_TABLE, FRAME, NO_CFI + 1);
	world.words[4] = 2; /* argc, argv, 0 */
	world.words[5] = STACK + 800;
	world.words[6] = STACK + 810;
	result = run(FRAME, 0);
	CHECK_CHAIN(&result, WALK_ROOT, FRAME, NO_CFI + 1);
	world.words[7] = 1;
	result = run(FRAME, 0);
	CHECK_CHAIN(&result, WALK_NO_TABLE, FRAME, NO_CFI + 1);
	result = run(FRAME, STACK + 128); /* fp points to two words of 0 */
	CHECK_CHAIN(&result, WALK_NO_TABLE, FRAME, NO_CFI + 1);
}

/* A CFA or return address in a register is known only for the innermost frame. */
static void test_registers(void)
{
	const uint64_t numbered[REGS_MAX_NUMBERED] = { [3] = STACK + 32, [5] = FRAME + 9 };
	struct walk walk = a_walk();
	struct walk_registers registers = { .pc = IN_RDI + 2, .sp = STACK };
	struct walk_result result;

	build_x86();
	world.words[3] = ROOT + 1;
	walk_run(&walk, &registers, &result);
	CHECK_CHAIN(&result, WALK_NO_RULE, IN_RDI + 2);
	walk.numbered = numbered;
	walk_run(&walk, &registers, &result);
	CHECK_CHAIN(&result, WALK_ROOT, IN_RDI + 2, FRAME + 9, ROOT + 1);
	registers.pc = EXOTIC + 2; /* CFA = STACK + 40 */
	world.words[4] = ROOT + 2;
	walk_run(&walk, &registers, &result);
	CHECK_CHAIN(&result, WALK_ROOT, EXOTIC + 2, ROOT + 2);
	registers.pc = FRAME + 2;
	world.words[3] = EXOTIC + 5;
	walk_run(&walk, &registers, &result);
	CHECK_CHAIN(&result, WALK_NO_RULE, FRAME + 2, EXOTIC + 5);
	/* Without a rule, the walk continues with the frame pointer if that leads to a function
	 * that uses the frame pointer. */
	world.words[20] = STACK + 30 * 8;
	world.words[21] = BY_FP + 5;
	world.words[31] = ROOT + 3;
	registers.fp = STACK + 20 * 8;
	walk_run(&walk, &registers, &result);
	CHECK_CHAIN(&result, WALK_ROOT, FRAME + 2, EXOTIC + 5, BY_FP + 5, ROOT + 3);
	CHECK(result.flags & WALK_FRAME_FP);
	world.words[21] = LEAF + 5;
	walk_run(&walk, &registers, &result);
	CHECK_CHAIN(&result, WALK_NO_RULE, FRAME + 2, EXOTIC + 5);
}

/* A function whose CFA is in rbx makes calls: its callees keep rbx or store it. */
static void test_base(void)
{
	uint64_t numbered[REGS_MAX_NUMBERED] = { [3] = STACK + 8 * 50 };
	const struct walk_registers from_leaf = { .pc = LEAF + 7, .sp = STACK };
	struct walk_registers registers = { .pc = FRAME + 2, .sp = STACK };
	struct walk walk = a_walk();
	struct walk_result result;

	build_x86();
	world.words[50] = ROOT + 1;
	world.words[3] = EXOTIC + 5;
	walk.find_base = find_base;
	walk_run(&walk, &registers, &result);
	CHECK_CHAIN(&result, WALK_NO_RULE, FRAME + 2, EXOTIC + 5);
	walk.numbered = (const uint64_t[REGS_MAX_NUMBERED]){ 0 }; /* rbx was not read */
	walk_run(&walk, &registers, &result);
	CHECK_CHAIN(&result, WALK_NO_RULE, FRAME + 2, EXOTIC + 5);
	walk.numbered = numbered;
	walk_run(&walk, &registers, &result);
	CHECK_CHAIN(&result, WALK_ROOT, FRAME + 2, EXOTIC + 5, ROOT + 1);
	registers.pc = LOSES + 2;
	walk_run(&walk, &registers, &result);
	CHECK_CHAIN(&result, WALK_NO_RULE, LOSES + 2, EXOTIC + 5);
	registers.pc = POPS + 2;
	world.words[0] = EXOTIC + 5;
	walk_run(&walk, &registers, &result);
	CHECK_CHAIN(&result, WALK_ROOT, POPS + 2, EXOTIC + 5, ROOT + 1);
	/* rbx is stored: the register does not matter, nor do the callees of the function that
	 * stored rbx */
	world.words[0] = LOSES + 2;
	world.words[4] = SAVES + 5;
	world.words[7] = STACK + 8 * 60;
	world.words[8] = EXOTIC + 5;
	world.words[60] = ROOT + 2;
	walk_run(&walk, &from_leaf, &result);
	CHECK_CHAIN(&result, WALK_ROOT, LEAF + 7, LOSES + 2, SAVES + 5, EXOTIC + 5, ROOT + 2);
	/* below a signal, the registers are not those of the interrupted function, FRAME */
	world.words[0] = SIGNAL;
	world.words[1 + 160 / 8] = STACK + 8 * 40;
	world.words[1 + 168 / 8] = FRAME + 2;
	world.words[43] = EXOTIC + 5;
	walk_run(&walk, &from_leaf, &result);
	CHECK_CHAIN(&result, WALK_NO_RULE, LEAF + 7, SIGNAL, FRAME + 2, EXOTIC + 5);
	/* a frame pointer that was followed may have skipped frames */
	world.words[3] = BY_R10 + 5;
	world.words[30] = STACK + 8 * 35;
	world.words[31] = BY_FP + 5;
	world.words[36] = EXOTIC + 5;
	registers = (struct walk_registers){ .pc = FRAME + 2, .sp = STACK, .fp = STACK + 8 * 30 };
	walk_run(&walk, &registers, &result);
	CHECK_CHAIN(&result, WALK_NO_RULE, FRAME + 2, BY_R10 + 5, BY_FP + 5, EXOTIC + 5);
}

/* vfork() of musl and of Go pops its return address into a register. */
static void test_popped(void)
{
	uint64_t numbered[REGS_MAX_NUMBERED] = { [0] = LEAF + 9, [1] = FRAME + 9, [12] = LEAF + 9 };
	struct walk walk = a_walk();
	struct walk_registers registers = { .pc = POPPED + 8, .sp = STACK };
	struct walk_result result;

	build_x86();
	world.words[0] = ROOT + 1;
	world.words[3] = ROOT + 1;
	walk_run(&walk, &registers, &result);
	CHECK_CHAIN(&result, WALK_BAD_FRAME, POPPED + 8);
	walk.numbered = numbered;
	walk_run(&walk, &registers, &result);
	CHECK_CHAIN(&result, WALK_ROOT, POPPED + 8, FRAME + 9, ROOT + 1);
	numbered[1] = 0;
	walk_run(&walk, &registers, &result);
	CHECK_CHAIN(&result, WALK_ROOT, POPPED + 8, LEAF + 9, ROOT + 1);
	numbered[12] = HIGH + 9;
	walk_run(&walk, &registers, &result);
	CHECK_CHAIN(&result, WALK_BAD_FRAME, POPPED + 8);
}

static bool find_replaced(void *data, uint64_t slot, uint64_t *ret_pc)
{
	*ret_pc = FRAME + 9;
	return slot == STACK + 3 * 8;
}

static void test_return_probe(void)
{
	const struct walk_registers registers = { .pc = FRAME, .sp = STACK, .fp = 1 };
	struct walk walk = a_walk();
	struct walk_result result;

	build_x86();
	walk.find_replaced = find_replaced;
	world.words[3] = JIT;
	world.words[7] = ROOT + 9;
	walk_run(&walk, &registers, &result);
	CHECK_CHAIN(&result, WALK_ROOT, FRAME, FRAME + 9, ROOT + 9);
	CHECK(result.flags & WALK_FRAME_FP);
}

/* A Python trampoline between two functions of the interpreter. */
static void test_python(void)
{
	static const uint8_t code[] = { 0x48, 0x83, 0xec, 0x08, 0xff, 0xd1,
					0x48, 0x83, 0xc4, 0x08, 0xc3 };
	const struct walk_registers registers = { .pc = FRAME, .sp = STACK, .fp = 1 };
	struct walk_result result;
	struct walk walk;

	build_x86();
	world.words[3] = JIT + 6;
	world.words[5] = FRAME + 9;
	world.words[9] = ROOT + 9;
	result = run(FRAME, 1);
	CHECK_CHAIN(&result, WALK_ROOT, FRAME, JIT + 6, FRAME + 9, ROOT + 9);
	CHECK(result.flags & WALK_FRAME_JIT);
	/* Generated code of other runtimes is walked with its frame pointers. */
	world.words[20] = 0;
	world.words[21] = ROOT + 5;
	result = run(FRAME, STACK + 20 * 8);
	CHECK_CHAIN(&result, WALK_ROOT, FRAME, JIT + 6, ROOT + 5);
	/* A trampoline's caller must be in the interpreter's own file. */
	world.words[5] = PENDING + 9;
	result = run(FRAME, 1);
	CHECK_CHAIN(&result, WALK_NO_TABLE, FRAME, JIT + 6);
	/* The stack must be aligned at a call. */
	world.words[0] = JIT + 6;
	world.words[2] = FRAME + 9;
	result = run(LEAF, 1);
	CHECK_CHAIN(&result, WALK_NO_TABLE, LEAF, JIT + 6);
	/* If the code can be read, its bytes alone decide whether it is a trampoline. */
	walk = a_walk();
	walk.read_code = read_code;
	world.code_at = JIT;
	world.code = code;
	world.code_size = sizeof(code);
	world.words[5] = PENDING + 9;
	walk_run(&walk, &registers, &result);
	CHECK_CHAIN(&result, WALK_NO_TABLE, FRAME, JIT + 6, PENDING + 9);
	world.code_at = JIT + 1;
	world.words[5] = FRAME + 9;
	walk_run(&walk, &registers, &result);
	CHECK_CHAIN(&result, WALK_NO_TABLE, FRAME, JIT + 6);
}

/* A handler runs on a signal stack with higher addresses, so the interrupted sp is lower. The
 * interrupted pc is at a function's start. */
static void test_signal(void)
{
	const struct walk_registers registers = { .pc = LEAF + 7, .sp = STACK + 800 };
	struct walk walk = a_walk();
	struct walk_result result;

	build_x86();
	world.words[100] = SIGNAL;
	world.words[101 + 120 / 8] = STACK + 8 * 50;
	world.words[101 + 160 / 8] = STACK + 8 * 40;
	world.words[101 + 168 / 8] = LEAF;
	world.words[40] = BY_FP + 1;
	world.words[51] = ROOT + 1;
	walk_run(&walk, &registers, &result);
	CHECK_CHAIN(&result, WALK_ROOT, LEAF + 7, SIGNAL, LEAF, BY_FP + 1, ROOT + 1);
	CHECK_INT(frames[1].flags, WALK_FRAME_EXACT);
	CHECK_INT(frames[2].sp, STACK + 8 * 40);
	CHECK_INT(frames[2].flags, WALK_FRAME_EXACT);
	/* A handler that claims that it interrupted itself. */
	world.words[101 + 160 / 8] = STACK + 800;
	walk_run(&walk, &registers, &result);
	CHECK_INT(result.stop, WALK_BAD_FRAME);
	CHECK(result.n < 64);
}

/* A return address may be the start of a function: for the first function of a makecontext()
 * context, and after a call that is the last instruction of the function before it. */
static void test_context(void)
{
	struct walk_result result;

	build_x86();
	world.words[0] = CONTEXT;
	world.words[1] = STACK;
	result = run(LEAF + 7, 0);
	CHECK_CHAIN(&result, WALK_ROOT, LEAF + 7, CONTEXT);
	CHECK_INT(frames[1].flags, WALK_FRAME_EXACT);
	world.words[1] = ROOT + 1;
	result = run(LEAF + 7, 0);
	CHECK_CHAIN(&result, WALK_ROOT, LEAF + 7, CONTEXT, ROOT + 1);
	world.words[0] = ROOT;
	world.words[2] = ROOT + 1;
	result = run(LEAF + 7, STACK + 8);
	CHECK_CHAIN(&result, WALK_ROOT, LEAF + 7, ROOT, ROOT + 1);
	CHECK_INT(frames[1].flags, 0);
}

/* A trampoline without CFI is recognized from its code, and lr is restored. */
static void test_trampolines(void)
{
	for (enum regs_arch arch = REGS_NONE + 1; arch < REGS_N_ARCHS; arch++) {
		const struct regs *regs = regs_get(arch);
		struct walk walk = a_walk();
		const struct walk_registers registers = { .pc = NO_CFI, .sp = STACK + 16 };
		uint8_t *at = (uint8_t *)world.words + 16;
		struct walk_result result;

		build_x86();
		store_le64(at + regs->signal_pc, NO_CFI + 0x100);
		store_le64(at + regs->signal_sp, STACK + 0x800);
		store_le64(at + regs->signal_fp, 0x77);
		if (regs->has_lr)
			store_le64(at + regs->signal_lr, 0x99);
		walk.arch = arch;
		walk.read_code = read_code;
		world.code = regs->sigreturn;
		world.code_at = NO_CFI;
		world.code_size = sizeof(regs->sigreturn);
		walk_run(&walk, &registers, &result);
		CHECK_INT(result.n, 2);
		CHECK_INT(frames[1].pc, NO_CFI + 0x100);
		CHECK_INT(frames[1].sp, STACK + 0x800);
		CHECK_INT(frames[1].flags, WALK_FRAME_EXACT);
		CHECK_INT(result.last.fp, 0x77);
		CHECK_INT(result.last.lr, regs->has_lr ? 0x99 : 0);
	}
}

static void test_plt(void)
{
	struct walk_result result;

	build_x86();
	world.words[0] = ROOT + 5;
	world.words[1] = ROOT + 6;
	result = run(PLT + 16 + 10, 0);
	CHECK_CHAIN(&result, WALK_ROOT, PLT + 26, ROOT + 5);
	result = run(PLT + 16 + 11, 0);
	CHECK_CHAIN(&result, WALK_ROOT, PLT + 27, ROOT + 6);
}

/* aarch64: only a leaf may have its return address in lr; the address may be signed. */
static void test_lr(void)
{
	CLEANUP_BUILDER struct builder b = { .arch = REGS_AARCH64 };
	const uint64_t signature = UINT64_C(0x002a000000000000);
	struct walk walk = a_walk();
	struct walk_registers registers = { .pc = LEAF,
					    .sp = STACK,
					    .lr = (FRAME + 4) | signature };
	struct walk_result result;

	build_x86();
	build_cie(&b, "zR", 4, -8, 30, BYTES(0x1b), BYTES(OP_DEF_CFA, 31, 0));
	build_fde(&b, LEAF, 0x1000, NO_BYTES);
	build_fde(&b, FRAME, 0x1000,
		  BYTES(OP_DEF_CFA_OFFSET, 32, OP_OFFSET | 29, 4, OP_OFFSET | 30, 3));
	build_fde(&b, ROOT, 0x1000, BYTES(OP_UNDEFINED, 30));
	build_tables(&b);
	world.words[0] = 0x1111;
	world.words[1] = (ROOT + 4) | signature;
	walk.arch = REGS_AARCH64;
	walk.pac_mask = UINT64_C(0x007f000000000000);
	walk_run(&walk, &registers, &result);
	CHECK_CHAIN(&result, WALK_ROOT, LEAF, FRAME + 4, ROOT + 4);
	CHECK_INT(frames[1].sp, STACK);
	CHECK_INT(frames[2].sp, STACK + 32);
	CHECK_INT(result.last.fp, 0x1111);
	registers.lr = LEAF + 4; /* a leaf is called by a leaf */
	walk_run(&walk, &registers, &result);
	CHECK_CHAIN(&result, WALK_BAD_FRAME, LEAF, LEAF + 4);
}

/* The frame chains of other architectures. */
static void test_chains(void)
{
	struct walk walk = a_walk();
	const struct walk_registers registers = { .pc = JIT, .sp = STACK, .fp = STACK + 64 };
	struct walk_result result;

	build_x86();
	walk.arch = REGS_RISCV64;
	world.words[6] = STACK + 128;
	world.words[7] = JIT + 4;
	world.words[14] = 0;
	world.words[15] = JIT + 8;
	walk_run(&walk, &registers, &result);
	CHECK_CHAIN(&result, WALK_ROOT, JIT, JIT + 4, JIT + 8);
	build_x86();
	walk.arch = REGS_PPC64LE;
	world.words[0] = STACK + 64;
	world.words[8] = STACK + 128;
	world.words[8 + 2] = JIT + 4;
	world.words[16 + 2] = JIT + 8;
	walk_run(&walk, &registers, &result);
	CHECK_CHAIN(&result, WALK_ROOT, JIT, JIT + 4, JIT + 8);
}

static void test_depth(void)
{
	const size_t n = 5000;
	struct walk walk = a_walk();
	const struct walk_registers registers = { .pc = LEAF, .sp = STACK };
	struct walk_result result;

	build_x86();
	for (size_t i = 0; i < n; i++)
		world.words[i] = LEAF + 1 + i % 0x80;
	world.words[n] = ROOT + 1;
	walk_run(&walk, &registers, &result);
	CHECK_INT(result.stop, WALK_ROOT);
	CHECK_INT(result.n, ARRAY_SIZE(frames));
	CHECK_INT(result.cut_at, 1000);
	CHECK_INT(result.n_cut, n + 2 - ARRAY_SIZE(frames));
	CHECK_INT(frames[1023].pc, ROOT + 1);
	for (size_t i = 0; i < 23; i++)
		CHECK_INT(frames[1022 - i].sp, STACK + 8 * (n - i));
	for (size_t i = 0; i < 1000; i++)
		CHECK_INT(frames[i].sp, STACK + 8 * i);
	walk.n_roots = 0;
	walk_run(&walk, &registers, &result);
	CHECK_INT(result.stop, WALK_DEPTH);
	CHECK_INT(result.n, ARRAY_SIZE(frames));
	CHECK_INT(result.n_cut, 0);
	/* There are more roots than are examined, and the stack repeats. */
	walk.n_roots = 24;
	for (size_t i = 0; i < N_WORDS; i++)
		world.words[i] = LEAF + 1;
	walk_run(&walk, &registers, &result);
	CHECK(result.stop == WALK_COPY_END || result.stop == WALK_DEPTH);
	CHECK_INT(result.n + result.n_cut, WALK_MAX_STEPS);
}

/* The number of look-ups of uncached places is limited, so a deep stack needs two walks. */
static void test_lookups(void)
{
	const size_t n_lookups = WALK_MAX_STEPS / (WALK_LOOKUP_STEPS + 1), n = n_lookups + 100;
	struct walk walk = a_walk();
	const struct walk_registers registers = { .pc = LEAF, .sp = STACK };
	struct walk_result result;

	build_x86();
	for (size_t i = 0; i < n; i++)
		world.words[i] = LEAF + 2 + i;
	world.words[n] = ROOT + 1;
	walk_run(&walk, &registers, &result);
	CHECK_INT(result.stop, WALK_DEPTH);
	CHECK(result.n >= n_lookups && result.n < n_lookups + 10);
	walk_run(&walk, &registers, &result);
	CHECK_INT(result.stop, WALK_ROOT);
	CHECK_INT(result.n, n + 2);
	walk.cache = NULL;
	walk_run(&walk, &registers, &result);
	CHECK_INT(result.stop, WALK_ROOT);
}

static void test_cycles(void)
{
	struct walk_result result;

	build_x86();
	world.words[0] = STACK; /* CFA = *sp = sp */
	result = run(AT_SP, 0);
	CHECK_CHAIN(&result, WALK_BAD_FRAME, AT_SP);
	world.words[0] = UINT64_MAX - 7;
	result = run(AT_SP, 0);
	CHECK_CHAIN(&result, WALK_COPY_END, AT_SP);
	/* The CFA goes up, then down again. */
	world.words[0] = STACK + 80;
	world.words[9] = AT_SP + 1;
	world.words[10] = STACK;
	result = run(AT_SP, 0);
	CHECK_CHAIN(&result, WALK_BAD_FRAME, AT_SP, AT_SP + 1);
	/* A frame pointer points to itself. */
	world.words[2] = STACK + 16;
	world.words[3] = JIT + 4;
	result = run(JIT, STACK + 16);
	CHECK_CHAIN(&result, WALK_NO_TABLE, JIT, JIT + 4);
}

static void test_cache(void)
{
	struct walk walk = a_walk();
	const struct walk_registers registers = { .pc = LEAF, .sp = STACK, .fp = STACK + 64 };
	struct walk_result result;
	size_t resolved;

	build_chain();
	walk_run(&walk, &registers, &result);
	resolved = world.resolved;
	walk_run(&walk, &registers, &result);
	CHECK_INT(world.resolved, resolved);
	CHECK_INT(result.n, 4);
	walk.generation = 2;
	walk_run(&walk, &registers, &result);
	CHECK_INT(world.resolved, resolved + 4);
	walk.cache = NULL;
	walk_run(&walk, &registers, &result);
	CHECK_INT(world.resolved, resolved + 8);
	CHECK_INT(result.n, 4);
	/* A pending look-up is repeated. */
	world.words[0] = PENDING + 5;
	walk.cache = &cache;
	for (size_t i = 0; i < 3; i++) {
		resolved = world.resolved;
		walk_run(&walk, &registers, &result);
		CHECK_INT(world.resolved, resolved + 1);
	}
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static uint64_t random_word(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* Returns a word with which a walk is likely to continue: an address in code or on the stack. */
static uint64_t likely_word(uint64_t *state)
{
	uint64_t random = random_word(state);

	switch (random % 8) {
	case 0:
		return random;
	case 1:
		return STACK + (random >> 8) % sizeof(world.words);
	case 2:
		return JIT + (random >> 8) % AREA;
	case 3:
		return LOW + (random >> 8) % 0xa000;
	default:
		return LEAF + (random >> 8) % 0x3000;
	}
}

/* Walks many stacks. If a walk is slow, it is measured up to ten times, because other programs run,
 * too. */
static void test_random_stacks(void)
{
	const size_t n = PROF_EMULATED ? 20000 : 1000000 / test_stride(PROF_SANITIZED ? 10 : 3);
	uint64_t random = 0x1234567 ^ test_start(SIZE_MAX), slowest = 0, n_frames = 0;
	size_t stops[WALK_N_STOPS] = { 0 };

	build_x86();
	for (size_t i = 0; i < N_WORDS; i++)
		world.words[i] = likely_word(&random);
	for (size_t i = 0; i < n; i++) {
		uint64_t pc = LOW + random_word(&random) % 0xa000;
		uint64_t fp = STACK + random_word(&random) % sizeof(world.words);
		uint64_t took = UINT64_MAX;
		struct walk_result result;

		for (size_t j = 0; j < 8; j++)
			world.words[random_word(&random) % 256] = likely_word(&random);
		for (size_t try = 0; try < 10 && took > 100000; try++) {
			uint64_t start = now_ns();

			result = run(pc, fp);
			took = MIN_OF(took, now_ns() - start);
		}
		slowest = MAX_OF(slowest, took);
		stops[result.stop]++;
		n_frames += result.n;
	}
	printf("# %" PRIu64 " frames, slowest walk %" PRIu64 " ns; stops %zu %zu %zu %zu %zu %zu\n",
	       n_frames, slowest, stops[0], stops[1], stops[2], stops[3], stops[4], stops[5]);
	CHECK(slowest < (PROF_SANITIZED || PROF_EMULATED ? 2000000 : 100000));
}

static void check_same(const struct walk_job *job)
{
	struct walk alone = job->walk;
	struct walk_result result;

	alone.cache = NULL;
	alone.frames = frames;
	walk_run(&alone, &job->registers, &result);
	CHECK_INT(job->result.stop, result.stop);
	REQUIRE(job->result.n == result.n);
	CHECK_INT(job->result.n_cut, result.n_cut);
	CHECK_INT(job->result.cut_at, result.cut_at);
	CHECK_INT(job->result.flags, result.flags);
	CHECK(memcmp(&job->result.last, &result.last, sizeof(result.last)) == 0);
	CHECK(memcmp(job->walk.frames, frames, result.n * sizeof(*frames)) == 0);
}

/* Walks of any length end in any order, share a cache and evict each other's places. Each walk has
 * the same result as alone. Stacks are so small that no walk reaches the limit of look-ups. */
static void test_together(void)
{
	static struct walk_frame rooms[WALK_TOGETHER][64];
	struct walk_job jobs[WALK_TOGETHER];
	uint64_t random = 0x7654321;
	size_t n_frames = 0, n_cut = 0;

	build_x86();
	for (size_t i = 0; i < N_WORDS; i++)
		world.words[i] = likely_word(&random);
	for (size_t turn = 0; turn < (PROF_EMULATED ? 500 : 20000); turn++) {
		size_t n = turn % (WALK_TOGETHER + 1);

		for (size_t i = 0; i < n; i++) {
			jobs[i] = (struct walk_job){ .walk = a_walk() };
			jobs[i].walk.stack_size = 2048;
			jobs[i].walk.generation = 1 + i % 3;
			jobs[i].walk.frames = rooms[i];
			jobs[i].walk.n_frames = 1 + i * 2;
			jobs[i].walk.n_roots = i;
			jobs[i].registers = (struct walk_registers){
				.pc = LOW + random_word(&random) % 0xa000,
				.sp = STACK,
				.fp = STACK + random_word(&random) % 2048 / 8 * 8,
			};
		}
		for (size_t j = 0; j < 8; j++)
			world.words[random_word(&random) % 256] = likely_word(&random);
		walk_run_together(jobs, n);
		for (size_t i = 0; i < n; i++) {
			check_same(&jobs[i]);
			n_frames += jobs[i].result.n;
			n_cut += jobs[i].result.n_cut > 0;
		}
	}
	printf("# %zu frames, %zu walks cut\n", n_frames, n_cut);
	CHECK(n_frames > 1000 && n_cut > 10);
}

int main(void)
{
	RUN(test_chain);
	RUN(test_stops);
	RUN(test_frame_pointers);
	RUN(test_lost_fp);
	RUN(test_popped_fp);
	RUN(test_entry);
	RUN(test_zero_fp);
	RUN(test_registers);
	RUN(test_base);
	RUN(test_popped);
	RUN(test_return_probe);
	RUN(test_python);
	RUN(test_signal);
	RUN(test_context);
	RUN(test_trampolines);
	RUN(test_plt);
	RUN(test_lr);
	RUN(test_chains);
	RUN(test_depth);
	RUN(test_lookups);
	RUN(test_cycles);
	RUN(test_cache);
	RUN(test_random_stacks);
	RUN(test_together);
	free(world.bytes);
	free(world.base_bytes);
	return test_end();
}
