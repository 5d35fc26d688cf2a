/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * fake-perl - a process that looks like Perl 5.36, with frames that are wrong
 *
 *     fake-perl deep|names|nothing|type|index|sub|depth|code     burns CPU until it is killed
 *
 * deep: a list of stacks that never ends. names: like deep, with a name of 2^30 hostile bytes, and
 * a file at a bad address. nothing: the stack is at a bad address. type: a context is of a type
 * that no sub has. index: a context is its own outer context. sub: a sub is at a bad address.
 * depth: a sub was never entered. code: a sub is not code.
 */
#include "arch/base.h"
#include "tests/tools/hostile-name.h"

#include <pthread.h>
#include <stdio.h>

#define EXPORTED __attribute__((visibility("default")))

/* Only the offsets of perl_layout(36) and of perl.bpf.c matter. */
/* Tests find PL_version by the text before it, and change it. */
__asm__(".section .rodata\n"
	".ascii \"version: \"\n"
	".globl PL_version\n"
	".type PL_version, @object\n"
	".size PL_version, 1\n"
	"PL_version: .byte 36\n");
EXPORTED const uint16_t PL_interp_size = 3768;
EXPORTED pthread_key_t PL_thr_key;
EXPORTED void *PL_curinterp;
EXPORTED void Perl_runops_standard(void), perl_run(void);

/* Like pp_entertry(), which calls docatch(). Other functions follow both of them, as in Perl. */
void fake_entertry(void);
__asm__(".text\n"
	".type fake_entertry, @function\n"
	"fake_entertry: .cfi_startproc\n"
	"lea fake_entertry(%rip), %rsi\n"
	"call fake_again\n"
	"ret\n"
	".cfi_endproc\n"
	".type fake_again, @function\n"
	"fake_again: .cfi_startproc\n"
	"ret\n"
	".cfi_endproc\n");
EXPORTED void (*const PL_ppaddr[420])(void) = { [347] = fake_entertry };

static uint64_t state[3768 / 8], stack[7], contexts[2][13], sub[2], body[13], glob[2], of_glob[6],
	package[2], of_package[8], cop[11], key[8];

void Perl_runops_standard(void)
{
	for (volatile unsigned i = 0;; i++)
		;
}

void perl_run(void)
{
	Perl_runops_standard();
}

static uint64_t address(const void *of)
{
	return (uint64_t)(uintptr_t)of;
}

int main(int argc, char **argv)
{
	static const char *const cases[] = { "deep",  "names", "nothing", "type",
					     "index", "sub",   "depth",   "code" };
	const char *what = NULL;

	for (size_t i = 0; argc == 2 && i < ARRAY_SIZE(cases); i++)
		if (strcmp(argv[1], cases[i]) == 0)
			what = cases[i];
	if (!what) {
		fputs("Usage: fake-perl deep|names|nothing|type|index|sub|depth|code\n", stderr);
		return 2;
	}
	key[0] = (strcmp(what, "names") == 0 ? UINT64_C(1) << 30 : 4) << 32;
	memset(key + 1, 'f', sizeof(key) - 8);
	if (strcmp(what, "names") == 0)
		hostile_name(key + 1, sizeof(key) - 8);
	cop[4] = UINT64_C(7) << 32 | 195;
	cop[6] = strcmp(what, "names") == 0 ? 8 : address("fake.pl");
	of_package[4] = of_glob[4] = address(key);
	package[0] = address(of_package);
	of_glob[5] = address(package);
	glob[0] = address(of_glob);
	glob[1] = UINT64_C(9) << 32;
	body[5] = body[6] = address(cop);
	body[7] = address(glob);
	body[12] = strcmp(what, "depth") == 0 ? 0 : 1;
	sub[0] = address(body);
	sub[1] = (strcmp(what, "code") == 0 ? UINT64_C(9) : UINT64_C(13)) << 32;
	/* The innermost context is that of a block, so that the context of the sub is complete. */
	contexts[0][0] = strcmp(what, "type") == 0 ? 2 : 9;
	contexts[0][2] = contexts[1][2] = address(cop);
	contexts[0][7] = strcmp(what, "index") == 0 ? 0 : UINT32_MAX;
	contexts[0][9] = strcmp(what, "sub") == 0 ? 8 : address(sub);
	contexts[1][0] = 0x4b;
	stack[1] = address(contexts);
	stack[2] = strcmp(what, "deep") == 0 || strcmp(what, "names") == 0 ? address(stack) : 0;
	stack[4] = stack[5] = 1;
	state[208 / 8] = address(cop);
	state[224 / 8] = strcmp(what, "nothing") == 0 ? 8 : address(stack);
	PL_curinterp = state;
	if (pthread_key_create(&PL_thr_key, NULL) != 0 ||
	    pthread_setspecific(PL_thr_key, state) != 0)
		return 1;
	perl_run();
	return 0;
}
