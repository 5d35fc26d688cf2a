/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Checks of arch/prologue.c with code that gcc and clang wrote, and with random bytes. */
#include "arch/prologue.h"

#include "arch/base.h"
#include "tests/unit/test.h"

#define UNKNOWN UINT32_MAX
#define BRANCH 0xe8 /* call: ends most prologues below */

static uint32_t frame_bytes(const uint8_t *code, size_t size)
{
	/* a copy, so that a sanitizer detects reads beyond its end */
	CLEANUP_FREE uint8_t *copy = malloc(size ? size : 1);
	uint32_t bytes;

	if (!copy)
		abort();
	if (size)
		memcpy(copy, code, size);
	return prologue_frame_bytes(REGS_X86_64, copy, size, &bytes) ? bytes : UNKNOWN;
}

struct prologue {
	uint32_t bytes;
	size_t size;
	uint8_t code[64];
};
#define CODE(...) .size = sizeof((uint8_t[]){ __VA_ARGS__ }), .code = { __VA_ARGS__ }

static void check(const struct prologue *prologues, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!CHECK_INT(frame_bytes(prologues[i].code, prologues[i].size),
			       prologues[i].bytes))
			printf("# prologue %zu\n", i);
}

static void test_frames(void)
{
	static const struct prologue prologues[] = {
		/* sp stays at fp */
		{ 0, CODE(BRANCH) },
		/* sub rsp,0x20; mov [rbp-8],edi */
		{ 0x20, CODE(0x48, 0x83, 0xec, 0x20, 0x89, 0x7d, 0xf8, BRANCH) },
		/* sub rsp,0x1a8 */
		{ 0x1a8, CODE(0x48, 0x81, 0xec, 0xa8, 0x01, 0x00, 0x00, BRANCH) },
		/* add rsp,-128 */
		{ 0x80, CODE(0x48, 0x83, 0xc4, 0x80, BRANCH) },
		/* push r15; push r14; mov r14,rdi; push rbx; sub rsp,0x28; mov rax,fs:0x28;
		 * mov [rbp-0x38],rax; xor eax,eax; test edi,edi; je */
		{ 0x40, CODE(0x41, 0x57, 0x41, 0x56, 0x49, 0x89, 0xfe, 0x53, 0x48, 0x83, 0xec, 0x28,
			     0x64, 0x48, 0x8b, 0x04, 0x25, 0x28, 0x00, 0x00, 0x00, 0x48, 0x89, 0x45,
			     0xc8, 0x31, 0xc0, 0x85, 0xff, 0x74) },
		/* push rax (clang aligns); movaps xmm4,xmm5; mov rax,[rip+4]; syscall */
		{ 8, CODE(0x50, 0x0f, 0x28, 0xe5, 0x48, 0x8b, 0x05, 4, 0, 0, 0, 0x0f, 0x05) },
		/* sub rsp,0x1000; or qword [rsp],0; sub rsp,0x10 */
		{ 0x1010, CODE(0x48, 0x81, 0xec, 0x00, 0x10, 0x00, 0x00, 0x48, 0x83, 0x0c, 0x24,
			       0x00, 0x48, 0x83, 0xec, 0x10, BRANCH) },
		/* push rbx; lea r11,[rsp-0x10000]; sub rsp,0x1000; or qword [rsp],0; cmp rsp,r11;
		 * jne; sub rsp,0x18 */
		{ 0x10020, CODE(0x53, 0x4c, 0x8d, 0x9c, 0x24, 0x00, 0x00, 0xff, 0xff, 0x48, 0x81,
				0xec, 0x00, 0x10, 0x00, 0x00, 0x48, 0x83, 0x0c, 0x24, 0x00, 0x4c,
				0x39, 0xdc, 0x75, 0xef, 0x48, 0x83, 0xec, 0x18, BRANCH) },
		/* push rbx; then push rdi, push 7 or push [rdi]: arguments of the first call */
		{ 8, CODE(0x53, 0x57) },
		{ 8, CODE(0x53, 0x6a, 0x07) },
		{ 8, CODE(0x53, 0xff, 0x37) },
		/* push rbx; xchg ax,ax; lock xadd [r8],r9d; jmp (a barrier of the C library) */
		{ 8, CODE(0x53, 0x66, 0x90, 0xf0, 0x45, 0x0f, 0xc1, 0x08, 0xeb) },
		/* movabs rax,...; test byte [rdi],1; cmp rsp,rax; lea rdi,[rsp+8]; call [rax] */
		{ 0, CODE(0x48, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8, 0xf6, 0x07, 1, 0x48, 0x39, 0xc4, 0x48,
			  0x8d, 0x7c, 0x24, 0x08, 0xff, 0x10) },
	};
	uint32_t bytes;

	check(prologues, ARRAY_SIZE(prologues));
	CHECK(!prologue_frame_bytes(REGS_AARCH64, prologues[0].code, prologues[0].size, &bytes));
}

static void test_unknown(void)
{
	static const struct prologue prologues[] = {
		/* and rsp,-32 */
		{ UNKNOWN, CODE(0x48, 0x83, 0xe4, 0xe0, BRANCH) },
		/* sub rsp,rax */
		{ UNKNOWN, CODE(0x48, 0x29, 0xc4, BRANCH) },
		/* mov rsp,rdi */
		{ UNKNOWN, CODE(0x48, 0x89, 0xfc, BRANCH) },
		/* mov rsp,[rdi] */
		{ UNKNOWN, CODE(0x48, 0x8b, 0x27, BRANCH) },
		/* lea rsp,[rbp-8] */
		{ UNKNOWN, CODE(0x48, 0x8d, 0x65, 0xf8, BRANCH) },
		/* sub rsp,8; add rsp,16 */
		{ UNKNOWN, CODE(0x48, 0x83, 0xec, 0x08, 0x48, 0x83, 0xc4, 0x10, BRANCH) },
		/* sub rsp,4 */
		{ UNKNOWN, CODE(0x48, 0x83, 0xec, 0x04, BRANCH) },
		/* sub esp,0x20 */
		{ UNKNOWN, CODE(0x83, 0xec, 0x20, BRANCH) },
		/* vmovdqa: has a VEX prefix */
		{ UNKNOWN, CODE(0xc5, 0xf9, 0x6f, 0x07, BRANCH) },
		/* The code ends. */
		{ UNKNOWN, CODE(0x48, 0x83, 0xec) },
		{ UNKNOWN, CODE(0x66) },
	};

	check(prologues, ARRAY_SIZE(prologues));
	CHECK_INT(frame_bytes(NULL, 0), UNKNOWN);
}

/* For any bytes, the size of the frame is unknown or plausible. */
static void test_hostile(void)
{
	uint8_t code[32];
	uint64_t state = 1;

	for (int i = 0; i < 200000; i++) {
		size_t size = (size_t)i % (sizeof(code) + 1);
		uint32_t bytes;

		for (size_t at = 0; at < size; at++) {
			state = state * UINT64_C(6364136223846793005) + 1;
			code[at] = (uint8_t)(state >> 56);
		}
		bytes = frame_bytes(code, size);
		if (bytes != UNKNOWN && !CHECK(bytes % 8 == 0 && bytes <= 1 << 24))
			return;
	}
}

int main(void)
{
	RUN(test_frames);
	RUN(test_unknown);
	RUN(test_hostile);
	return test_end();
}
