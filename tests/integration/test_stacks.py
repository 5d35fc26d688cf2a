# SPDX-License-Identifier: BSD-2-Clause-Patent
"""The complete stack of each kind of code that is difficult to unwind, recorded by the real
daemon."""
import os
import platform
import re
import shutil
import struct
import subprocess
from collections import Counter

import pytest

from captures import rows
from recordings import recorded
from shares import near
from stacks import CLONE, MAIN, SIGRETURN, THREAD, Together, at, build, expect, read

pytestmark = pytest.mark.usefixtures("nothing_is_left")


@pytest.fixture(autouse=True)
def rights(require):
    require("gcc", "g++", root=True)


PROGRAMS = Together("-F", 3999)
COPIED_PROGRAMS = Together("-F", 1999)  # at a higher rate, less of each stack would be copied
DEEP_PROGRAMS = Together("-F", 499)  # slower, because each sample has a thousand frames


@pytest.fixture(scope="module")
def samples_of(profctl, profcapture, tmp_path_factory):
    """A function that returns a program's samples, by the program's name."""
    def find(name):
        (batch,) = [batch for batch in (PROGRAMS, COPIED_PROGRAMS, DEEP_PROGRAMS) if name in batch.makers]
        return batch.of(name, profctl, profcapture, tmp_path_factory)

    return find


KEEPS_FP = "-fno-omit-frame-pointer", "-mno-omit-leaf-frame-pointer"

# ---- deep

RECURSION = r"""
ALONE int down(int left)
{
	if (left == 0)
		spin(100);
	else
		down(left - 1);
	BEHIND;
	return left;
}
int main(int argc, char **argv)
{
	down(atoi(argv[1]) - 1);
	BEHIND;
}
"""

for n in 500, 2000, 5000:
    DEEP_PROGRAMS.add_program(f"recursion-{n}", RECURSION, arguments=[n])
PROGRAMS.add_program("recursion-fp", RECURSION, *KEEPS_FP, arguments=[5])


def test_recursion(samples_of):
    expect(at(samples_of("recursion-500")), "spin;(down;){500}" + MAIN, least=10)


def test_recursion_with_frame_pointers(samples_of):
    expect(at(samples_of("recursion-fp")), "spin;(down;){5}" + MAIN)


CHAIN_END = r"main(;libc\.so\.6\+\w+|;__libc_start_call_main)?(;__libc_start_main\w*;_start)?"


@pytest.mark.parametrize("way, method, stop, chain", [
    ("dwarf", "cfi", "root", "spin;(down;){5}" + MAIN),
    ("fp", "fp", "unknown", r"spin;(down;){5}" + CHAIN_END),
    ("none", "fp", "unknown", "spin"),
])
def test_call_graph(profctl, profcapture, capture, tmp_path, way, method, stop, chain):
    """With fp, the kernel's chain of frame pointers ends in libc, except on Ubuntu, whose libc
    keeps frame pointers."""
    program = build(tmp_path, "recursion", RECURSION, *KEEPS_FP)
    recorded(profctl, "--call-graph", way, "-F", 3999, "-o", capture, "--", program, 5)
    expect(at(read(profcapture, capture)), chain, method=method, stop=stop)


def test_recursion_of_more_frames_than_are_kept(samples_of):
    samples = samples_of("recursion-2000")
    expect(at(samples), r"spin;(down;){895}\[cut\]\+0x\w+;(down;){120,127}" + MAIN, stop="depth", least=10)


def test_recursion_deeper_than_a_copy(samples_of):
    """Samples taken on the way down have the frames that later copies do not reach."""
    samples = samples_of("recursion-5000")
    if any(sample.method == "stitched" for sample in samples):
        expect(at(samples), r"spin;(down;){895}\[cut\]\+0x\w+;(down;){120,127}" + MAIN, method="stitched", stop="depth", least=10, share=0.95)
    else:
        expect(at(samples), r"spin;(down;){895}\[cut\]\+0x\w+(;down){128};<deeper>", stop="copy-end", least=10)


SLOWLY = r"""
ALONE int down(int left, int ms)
{
	char room[SIZE];

	__asm__ volatile("" ::"r"(room) : "memory");
	if (left == 0)
		spin(200);
	else if (left % EACH == 0)
		spin(ms);
	if (left > 0)
		down(left - 1, ms);
	BEHIND;
	return left;
}
int main(int argc, char **argv)
{
	down(atoi(argv[1]) - 1, atoi(argv[2]));
	BEHIND;
}
"""
COPIED_PROGRAMS.add_program("slowly", SLOWLY, "-DSIZE=2000", "-DEACH=1", arguments=[50, 5])
DEEP_PROGRAMS.add_program("slowly-recursed", SLOWLY, "-DSIZE=8", "-DEACH=200", arguments=[5000, 25])


def test_stitched(samples_of):
    """A stack deeper than its copy is continued with frames seen on the way down, and marked as
    stitched."""
    samples = at(samples_of("slowly"))
    fits = [sample for sample in samples if sample.names.count("down") <= 31]
    expect(fits, "spin;(down;){1,31}" + MAIN)
    deeper = [sample for sample in samples if sample.names.count("down") >= 34]
    expect(deeper, "spin;(down;){34,50}" + MAIN, method="stitched")
    assert deeper[-1].names.count("down") == 50


def test_stitched_recursion(samples_of):
    samples = samples_of("slowly-recursed")
    expect(at(samples)[-40:], r"spin;(down;){895}\[cut\]\+0x\w+;(down;){120,127}" + MAIN, method="stitched", stop="depth", least=40)


WAYS = r"""
static unsigned int way;
ALONE void left(int n);
ALONE void right(int n);
#define GO(n) ((way >> (n) % 8 & 1) ? left : right)
#define BODY                                          \
	char room[2000];                              \
	__asm__ volatile("" ::"r"(room) : "memory");  \
	if (n % EVERY == 0)                           \
		spin(2);                              \
	if (n > 0)                                    \
		GO(n)(n - 1);                         \
	BEHIND;
ALONE void left(int n) { BODY }
ALONE void right(int n) { way += 0; BODY }
int main(int argc, char **argv)
{
	for (long end = cpu_ms() + 400; cpu_ms() < end;) {
		way = rand() % 256;
		GO(105)(104);
	}
	BEHIND;
}
"""
COPIED_PROGRAMS.add_program("ways", WAYS, "-DEVERY=8")
COPIED_PROGRAMS.add_program("ways-kept", WAYS, "-DEVERY=105", *KEEPS_FP)


def test_how_often_stitching_is_wrong(samples_of):
    """Each descent repeats its own eight turns, so that a stitched stack with parts of two descents
    is recognized."""
    samples = at(samples_of("ways"))
    cut = [sample for sample in samples if sample.method == "stitched" or sample.stop == "copy-end"]
    assert len(cut) > 200
    assert all((sample.method == "stitched") != (sample.names[-1] == "<deeper>") for sample in cut)
    stitched = [sample.names for sample in cut if sample.method == "stitched"]
    wrong = 0
    for names in stitched:
        turns = [name for name in names if name in ("left", "right")]
        wrong += len(turns) % 8 != 1 or any(a != b for a, b in zip(turns, turns[8:]))
    print(f"{wrong} of {len(stitched)} stitched stacks are wrong, of {len(cut)}")
    assert wrong <= 0.01 * len(cut)


CALLERS = r"""
static double spent[3];
static double cpu(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}
ALONE void turn(int n) { for (volatile int i = 0; i < n; i++); BEHIND; }
ALONE void down(int left, int n)
{
	char room[2000];

	__asm__ volatile("" ::"r"(room) : "memory");
	turn(left ? 2000 : n);
	if (left)
		down(left - 1, n);
	BEHIND;
}
#define CALLER(NAME, AT, N) \
	ALONE int NAME(int left) { double start = cpu(); down(left, N); spent[AT] += cpu() - start; return AT; }
CALLER(slow, 0, 3000000)
CALLER(medium, 1, 1000000)
CALLER(quick, 2, 50000)
int main(int argc, char **argv)
{
	int left = atoi(argv[1]);

	while (cpu() < 1) {
		slow(left);
		medium(left);
		for (int i = 0; i < 20; i++)
			quick(left);
	}
	fprintf(fopen(strcat(strcpy((char[4096]){0}, argv[0]), ".spent"), "w"), "%f %f %f", spent[0], spent[1], spent[2]);
	BEHIND;
}
"""
COPIED_PROGRAMS.add_program("callers", CALLERS, arguments=[60])


def test_stitching_favors_no_caller(samples_of):
    """If callers share a recursion that is deeper than a copy, no caller has more than its share by
    the program's own clock; the rest is in `<deeper>`."""
    samples = samples_of("callers")
    spent = [float(each) for each in (COPIED_PROGRAMS.capture.parent / "callers/callers.spent").read_text().split()]
    deeper = sum(sample.names[-1:] == ["<deeper>"] for sample in samples)
    assert len(samples) > 1000
    shares = {}
    for name, seconds in zip(("slow", "medium", "quick"), spent):
        shares[name] = sum(name in sample.names for sample in samples) / len(samples), seconds / sum(spent)
    print(f"{deeper} of {len(samples)} are deeper; found and true: {shares}")
    assert all(found <= true + 0.1 for found, true in shares.values())


def test_how_often_repair_is_wrong(samples_of):
    """Like test_how_often_stitching_is_wrong(), for stacks repaired by frame pointers. Only the
    deepest frame is sampled, so there is nothing to stitch to."""
    repaired = [s.names for s in at(samples_of("ways-kept")) if s.method == "fp-repaired"]
    assert len(repaired) > 200
    wrong = 0
    for names in repaired:
        turns = [name for name in names if name in ("left", "right")]
        wrong += len(turns) != 105 or "main" not in names or any(a != b for a, b in zip(turns, turns[8:]))
    print(f"{wrong} of {len(repaired)} repaired stacks are wrong")
    assert wrong <= 0.01 * len(repaired)


DEEP = r"""
ALONE int down(int left)
{
	char room[3000];

	__asm__ volatile("" ::"r"(room) : "memory");
	if (left == 0)
		spin(200);
	else
		down(left - 1);
	BEHIND;
	return left;
}
int main(int argc, char **argv)
{
	down(argc > 1 ? 200 : 59);
	BEHIND;
}
"""
COPIED_PROGRAMS.add_program("repaired", DEEP, *KEEPS_FP)
COPIED_PROGRAMS.add_program("repaired-deep", DEEP, *KEEPS_FP, arguments=["deep"])
COPIED_PROGRAMS.add_program("not-repaired", DEEP)


def test_repaired_by_frame_pointers(samples_of):
    """A program with frame pointers has complete stacks even if they are deeper than a copy. The
    stacks end at code of libc without frame pointers, or at the kernel's maximum of frames."""
    samples = at(samples_of("repaired"))
    stops = {sample.stop for sample in samples}
    assert stops in ({"unknown"}, {"root"})
    expect(samples, "spin;(down;){60}" + (MAIN if stops == {"root"} else CHAIN_END), method="fp-repaired", stop=stops.pop())
    expect(at(samples_of("repaired-deep")), "spin(;down){90,126};<deeper>", method="fp-repaired", stop="depth")
    expect(at(samples_of("not-repaired")), "spin(;down){15,30};<deeper>", stop="copy-end")


# ---- frames that are not of a fixed size

FRAMES = r"""
ALONE void variable(int n)
{
	char room[n];
	char *more = (char *)alloca(n * 3);

	__asm__ volatile("" ::"r"(room), "r"(more) : "memory");
	spin(100);
	BEHIND;
}
ALONE void aligned(int n) /* push %rbp; mov %rsp,%rbp; and $-32,%rsp */
{
	char room[64] __attribute__((aligned(32)));

	__asm__ volatile("" ::"r"(room) : "memory");
	variable(n);
	BEHIND;
}
ALONE void realigned(int a, int b, int c, int d, int e, int f, int g, int n) /* lea 8(%rsp),%r10; and $-32,%rsp */
{
	char room[96] __attribute__((aligned(32)));
	char *more = (char *)alloca(n + g);

	__asm__ volatile("" ::"r"(room), "r"(more) : "memory");
	aligned(n);
	__asm__ volatile("" ::"r"(g) : "memory");
}
int main(int argc, char **argv)
{
	realigned(1, 2, 3, 4, 5, 6, 7, argc * 111);
	BEHIND;
}
"""
PROGRAMS.add_program("frames", FRAMES)


def test_frames_of_any_size(samples_of):
    expect(at(samples_of("frames")), "spin;variable;aligned;realigned;" + MAIN)


TAIL = r"""
ALONE int last(int n)
{
	spin(n);
	BEHIND;
	return 1;
}
ALONE int second(int n)
{
	return last(n * 2);
}
ALONE int first(int n)
{
	int r = second(n * 2);

	BEHIND;
	return r;
}
int main(void)
{
	first(50);
	BEHIND;
}
"""
PROGRAMS.add_program("tail", TAIL)


def test_tail_call(samples_of):
    expect(at(samples_of("tail")), "spin;last;first;" + MAIN)


POPPED = r"""
void popped(long turns);
/* As compilers do it: nothing says that %rbp has its value again, and its place is below the stack. */
__asm__(".text; .globl popped; .type popped,@function; popped: .cfi_startproc; push %rbp; .cfi_def_cfa_offset 16;"
	".cfi_offset 6,-16; push %rbx; .cfi_def_cfa_offset 24; .cfi_offset 3,-24; mov %rdi,%rbp; mov %rbp,%rcx; pop %rbx;"
	".cfi_def_cfa_offset 16; pop %rbp; .cfi_def_cfa_offset 8; 1: dec %rcx; jnz 1b; ret; .cfi_endproc;"
	".size popped,.-popped");
ALONE void variable(int n)
{
	char *room = (char *)alloca(n);

	__asm__ volatile("" ::"r"(room) : "memory");
	for (long end = cpu_ms() + 100; cpu_ms() < end;)
		popped(1000000);
}
int main(int argc, char **argv)
{
	variable(argc * 100);
	BEHIND;
}
"""
PROGRAMS.add_program("popped", POPPED)


def test_end_of_function(samples_of):
    expect(at(samples_of("popped"), "popped"), "popped;variable;" + MAIN)


ODD = r"""
void odd(long turns);
__asm__(".text; .globl odd; .type odd,@function; odd: .cfi_startproc; sub $4,%rsp; .cfi_def_cfa_offset 12; 1: dec %rdi;"
	"jnz 1b; add $4,%rsp; .cfi_def_cfa_offset 8; ret; .cfi_endproc; .size odd,.-odd");
int main(void)
{
	for (long end = cpu_ms() + 100; cpu_ms() < end;)
		odd(1000000);
}
"""
PROGRAMS.add_program("odd-anywhere", ODD)
PROGRAMS.add_program("odd-top", ODD, prefix=["setarch", "-R"])


@pytest.mark.parametrize("place", ["anywhere", "top"])
def test_odd_stack_pointer(samples_of, profcapture, place):
    """The stack pointer is not aligned; at the top of the address space, the kernel's records of
    the stack are not aligned either."""
    expect(at(samples_of(f"odd-{place}"), "odd"), "odd;" + MAIN)
    assert not [loss for loss in rows(profcapture, PROGRAMS.capture, "loss") if loss["cause"] == "ring-corrupt"]


# ---- signals, jumps, exceptions

FAULT = r"""
void fault(void);
/* A signal that interrupts a function's first instruction: one byte earlier is another function, and another rule. */
__asm__(".text; .type before,@function; before: .cfi_startproc; push %rbx; .cfi_adjust_cfa_offset 8; push %rbx;"
	".cfi_adjust_cfa_offset 8; call abort; .cfi_endproc; .size before,.-before;"
	".globl fault; .type fault,@function; fault: .cfi_startproc; ud2; ret; .cfi_endproc; .size fault,.-fault");
static int left;
ALONE void handler(int number, siginfo_t *info, void *data)
{
	if (--left > 0)
		fault();
	else
		spin(100);
	((ucontext_t *)data)->uc_mcontext.gregs[REG_RIP] += 2;
}
ALONE void worker(void)
{
	char room[400];

	__asm__ volatile("" ::"r"(room) : "memory");
	fault();
	BEHIND;
}
int main(int argc, char **argv)
{
	struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_NODEFER };
	stack_t other = { .ss_sp = malloc(1 << 16), .ss_size = 1 << 16 };

	left = atoi(argv[1]);
	if (argc > 2) {
		sigaltstack(&other, NULL);
		action.sa_flags |= SA_ONSTACK;
	}
	sigaction(SIGILL, &action, NULL);
	worker();
	BEHIND;
}
"""
PROGRAMS.add_program("fault", FAULT, arguments=[1])
PROGRAMS.add_program("faults", FAULT, arguments=[3])
PROGRAMS.add_program("fault-elsewhere", FAULT, arguments=[1, "alternate"])


def test_signal(samples_of):
    expect(at(samples_of("fault")), f"spin;handler;{SIGRETURN};fault;worker;" + MAIN)


PROGRAMS.add_program("fault-static", FAULT, "-static", arguments=[1])


def test_signal_trampoline(samples_of):
    """The trampoline's name is looked up at the address to which the handler returns, not at the
    byte before it, because that byte belongs to no function."""
    expect(at(samples_of("fault-static")), r"spin;handler;__restore_rt;fault;worker;main(;[^;]+)*;_start")


def test_signals_in_signals(samples_of):
    samples = samples_of("faults")
    expect(at(samples), f"spin;(handler;{SIGRETURN};fault;){{3}}worker;" + MAIN)


def test_signal_on_a_stack_of_its_own(samples_of):
    """The copy has only the handler's stack; the interrupted function is known from the saved
    registers."""
    samples = samples_of("fault-elsewhere")
    expect(at(samples), f"spin;handler;{SIGRETURN};fault;<deeper>", stop="copy-end")


TIMER = r"""
#include <sys/time.h>
ALONE void burn(int number)
{
	for (volatile int i = 0; i < 6000000; i++)
		;
}
static const struct itimerval soon = { .it_value = { 0, 6000 } };
/* The timer starts again behind burn(), which takes longer than a period on a slow machine. */
ALONE void handler(int number)
{
	burn(number);
	setitimer(ITIMER_PROF, &soon, NULL);
}
ALONE void worker(void)
{
	spin(300);
	BEHIND;
}
int main(void)
{
	signal(SIGPROF, handler);
	setitimer(ITIMER_PROF, &soon, NULL);
	worker();
	setitimer(ITIMER_PROF, &(struct itimerval){ 0 }, NULL);
}
"""
PROGRAMS.add_program("timer", TIMER)


def test_signal_anywhere(samples_of):
    expect(at(samples_of("timer"), "burn"), f"burn;handler;{SIGRETURN};(.*;)?spin;worker;" + MAIN)


CONTEXT = r"""
static ucontext_t here, there;
static void inside(void)
{
	spin(100);
	BEHIND;
}
int main(void)
{
	getcontext(&there);
	there.uc_stack = (stack_t){ .ss_sp = malloc(1 << 16), .ss_size = 1 << 16 };
	there.uc_link = &here;
	makecontext(&there, inside, 0);
	swapcontext(&here, &there);
}
"""
PROGRAMS.add_program("context", CONTEXT, "-static")


def test_context(samples_of):
    """makecontext() makes the outermost frame, with the address of a function that nothing
    calls."""
    expect(at(samples_of("context")), "spin;inside;__start_context")


JUMP = r"""
static jmp_buf back;
ALONE void inner(int n)
{
	char room[300];

	__asm__ volatile("" ::"r"(room) : "memory");
	spin(n);
	longjmp(back, 1);
}
ALONE void outer(void)
{
	for (volatile int i = 0; i < 40; i++)
		if (setjmp(back) == 0)
			inner(5);
		else
			spin(5);
}
int main(void)
{
	outer();
	BEHIND;
}
"""
PROGRAMS.add_program("jump", JUMP)


def test_long_jump(samples_of):
    samples = at(samples_of("jump"))
    expect(samples, "spin;(inner;)?outer;" + MAIN)
    # both halves take equally long by the thread's clock, which ticks in milliseconds here
    assert near(sum("inner" in sample.names for sample in samples), len(samples), 0.5, slack=0.1)


THROW = r"""
struct guard {
	int *to;
	~guard() { ++*to; }
};
static int passed;
ALONE void thrower(int n)
{
	guard here = { &passed };

	if (n == 0)
		throw n;
	thrower(n - 1);
	BEHIND;
}
ALONE void catcher(int n)
{
	try {
		thrower(n);
	} catch (int) {
	}
	BEHIND;
}
int main()
{
	for (long end = cpu_ms() + 150; cpu_ms() < end;)
		for (int i = 0; i < 20; i++)
			catcher(10);
}
"""
PROGRAMS.add_program("throw", THROW, suffix="cc")


def test_exception(samples_of):
    samples = samples_of("throw")
    throwing = [sample for sample in samples if "__cxa_throw" in sample.names]
    # The last function of libgcc stores the handler's registers over those that
    # _Unwind_RaiseException saved. If __cxa_throw keeps a frame pointer, its frame is then unknown.
    lost = [sample for sample in throwing
            if sample.stop == "bad-frame" and re.fullmatch(r"libgcc_s\.so\.1\+\w+;_Unwind_RaiseException;__cxa_throw", sample.chain)]
    assert len(lost) < 0.15 * len(throwing)
    throwing = [sample for sample in throwing if sample not in lost]
    expect(throwing, "(.*;)?__cxa_throw;(thrower;){11}catcher;" + MAIN)
    unwinding = [sample for sample in samples if "_Unwind_Resume" in sample.names]
    # Near its end, _Unwind_Resume loads sp and fp for the frame in which the program resumes; no
    # rule describes these instructions.
    expect(unwinding, "(.*;)?_Unwind_Resume;(thrower;){1,11}catcher;" + MAIN, share=0.97)
    personality = [sample for sample in samples if "__gxx_personality_v0" in sample.names]
    expect(personality, "(.*;)?__gxx_personality_v0;.*;(thrower;){1,11}catcher;" + MAIN, least=20)


# ---- code without CFI

ASSEMBLY = r"""
typedef void (*code)(void (*)(void), long);
void with_fp(void (*function)(void), long fp), without_fp(void (*function)(void), long fp);
void call(code code, void (*function)(void), long fp);
__asm__(".text; .globl with_fp; .type with_fp,@function; with_fp: push %rbp; mov %rsp,%rbp; sub $48,%rsp; call *%rdi;"
	"leave; ret; .size with_fp,.-with_fp;"
	".globl without_fp; .type without_fp,@function; without_fp: sub $56,%rsp; call *%rdi; add $56,%rsp; ret;"
	".size without_fp,.-without_fp;"
	".globl call; .type call,@function; call: .cfi_startproc; push %rbp; .cfi_adjust_cfa_offset 8;"
	".cfi_rel_offset %rbp,0; mov %rdx,%rbp; mov %rdi,%rax; mov %rsi,%rdi; call *%rax; pop %rbp;"
	".cfi_adjust_cfa_offset -8; .cfi_restore %rbp; ret; .cfi_endproc; .size call,.-call");
ALONE void work(void)
{
	spin(100);
	BEHIND;
}
static const unsigned char jit_with_fp[] = { 0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3 };
static const unsigned char jit_without_fp[] = { 0x48, 0x83, 0xec, 0x38, 0xff, 0xd7, 0x48, 0x83, 0xc4, 0x38, 0xc3 };
static code generate(int fd, const unsigned char *bytes, size_t size)
{
	void *memory;

	if (fd >= 0)
		write(fd, bytes, size);
	memory = mmap(NULL, 4096, PROT_READ | (fd < 0 ? PROT_WRITE : PROT_EXEC),
		      fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, fd, 0);
	if (fd < 0) {
		memcpy(memory, bytes, size);
		mprotect(memory, 4096, PROT_READ | PROT_EXEC);
	}
	return (code)memory;
}
int main(int argc, char **argv)
{
	int has_fp = strcmp(argv[2], "fp") == 0, fd = argv[1][0] == 'm' ? memfd_create("jit", 0) : -1;
	long room[64] = { 0 }, fp = strcmp(argv[2], "stack") == 0 ? (long)room : atoi(argv[2]);
	code code = has_fp ? with_fp : without_fp;

	if (argv[1][0] != 'a')
		code = has_fp ? generate(fd, jit_with_fp, sizeof(jit_with_fp))
			      : generate(fd, jit_without_fp, sizeof(jit_without_fp));
	call(code, work, fp);
	__asm__ volatile("" ::"r"(room) : "memory");
}
"""
GENERATED = r"anon\+0x\w+"
for kind in "assembly", "jit", "memfd":
    PROGRAMS.add_program(f"{kind}-fp", ASSEMBLY, arguments=[kind, "fp"])
for kind in "assembly", "jit":
    for fp in "0", "1", "stack":
        PROGRAMS.add_program(f"{kind}-{fp}", ASSEMBLY, arguments=[kind, fp])


@pytest.mark.parametrize("kind, name, method", [
    ("assembly", "with_fp", "fp"), ("jit", GENERATED, "jit-fp"), ("memfd", GENERATED, "jit-fp"),
])
def test_code_without_cfi(samples_of, kind, name, method):
    samples = samples_of(f"{kind}-fp")
    expect(at(samples), f"spin;work;{name};call;" + MAIN, method)


@pytest.mark.parametrize("fp", ["0", "1", "stack"])
@pytest.mark.parametrize("kind, name, method", [("assembly", "without_fp", "cfi"), ("jit", GENERATED, "jit-fp")])
def test_code_without_cfi_and_frame_pointer(samples_of, kind, name, method, fp):
    """The chain ends in the function without CFI, which is not reported as the root."""
    samples = samples_of(f"{kind}-{fp}")
    expect(at(samples), f"spin;work;{name}", method, stop="no-table")


# Imitates the code that Python generates for its functions with -X perf: pieces of eleven bytes,
# one after another. Here each function has its own mapping, because report groups generated code
# without a name by mapping.
PYTHON = r"""
typedef long (*trampoline)(long function, long n, long thread, void *evaluate);
enum { LEAF, TOP70, TOP30 };
static unsigned char *trampolines[3];
long evaluate(long function, long n, long thread);
ALONE long call(long function, long n)
{
	long result = ((trampoline)(trampolines[function] + 11 * 5))(function, n, 0, evaluate);

	BEHIND;
	return result;
}
ALONE long evaluate(long function, long n, long thread)
{
	volatile long sum = 0;

	if (function == TOP70)
		sum += call(LEAF, n * 7);
	else if (function == TOP30)
		sum += call(LEAF, n * 3);
	else
		for (long i = 0; i < n; i++)
			sum += i;
	return sum;
}
int main(void)
{
	for (int function = 0; function < 3; function++) {
		unsigned char *code = mmap(NULL, 131072, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		for (int i = 0; i < 65536 / 11; i++)
			memcpy(code + 11 * i, "\x48\x83\xec\x08\xff\xd1\x48\x83\xc4\x08\xc3", 11);
		mprotect(code, 65536, PROT_READ | PROT_EXEC);
		trampolines[function] = code;
	}
	for (long end = cpu_ms() + 150; cpu_ms() < end;) {
		call(TOP70, 100000);
		call(TOP30, 100000);
	}
}
"""
PROGRAMS.add_program("python-like", PYTHON)


def test_python_trampolines(samples_of):
    samples = at(samples_of("python-like"), "evaluate")
    expect(samples, f"evaluate;{GENERATED};call;evaluate;{GENERATED};call;" + MAIN, method="jit-fp")
    # a sample can also hit the few instructions of the outer evaluate()
    inner = [sample for sample in samples if sample.names[3] == "evaluate"]
    assert len({sample.names[1] for sample in inner}) == 1
    counts = Counter(sample.names[4] for sample in inner)
    assert len(counts) == 2 and near(max(counts.values()), len(inner), 0.7)


PLT = r"""
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
int library(int n);
static long *slot, begins;
/* Where the call of library() goes to: at first to the stub's second half, which has the address looked up. */
static void find_slot(void)
{
	char *strings = NULL;
	Elf64_Sym *symbols = NULL;
	Elf64_Rela *at = NULL;
	long bytes = 0;

	for (Elf64_Dyn *d = _DYNAMIC; d->d_tag != DT_NULL; d++)
		if (d->d_tag == DT_STRTAB)
			strings = (char *)d->d_un.d_ptr;
		else if (d->d_tag == DT_SYMTAB)
			symbols = (Elf64_Sym *)d->d_un.d_ptr;
		else if (d->d_tag == DT_JMPREL)
			at = (Elf64_Rela *)d->d_un.d_ptr;
		else if (d->d_tag == DT_PLTRELSZ)
			bytes = d->d_un.d_val;
	for (; bytes > 0; bytes -= sizeof(*at), at++)
		if (strcmp(strings + symbols[ELF64_R_SYM(at->r_info)].st_name, "library") == 0)
			slot = (long *)at->r_offset;
	begins = *slot;
}
__attribute__((aligned(4096))) ALONE void caller(int lazily)
{
	for (volatile int i = 0; i < 2000; i++) {
		if (lazily)
			*slot = begins;
		else
			/* the stub's page has to be found again, for there to be samples in it */
			madvise((void *)(begins & -4096), 4096, MADV_DONTNEED);
		library(i);
	}
	BEHIND;
}
int main(int argc, char **argv)
{
	find_slot();
	for (long end = cpu_ms() + 150; cpu_ms() < end;)
		caller(argc > 1);
}
"""


def plt(name, *arguments):
    def make(folder):
        library = build(folder, "library", "int library(int n) { return n; }", "-shared", "-fPIC", "-o", folder / "lib.so")
        return [build(folder, f"{name}.c", PLT, library.with_name("lib.so"), "-no-pie", "-Wl,-z,lazy"), *arguments]

    PROGRAMS.add(name, make)


plt("plt")
plt("plt-lazily", "lazily")


def test_plt(samples_of):
    samples = [sample for sample in samples_of("plt") if "caller" in sample.names]
    expect(samples, "([^;]+;)?caller;" + MAIN)
    assert sum(sample.images[:1] == ["plt"] and sample.names[0] != "caller" for sample in samples) > 20, "no stub"


def test_plt_lazily(samples_of):
    """ld.so resolves the function in each call, and keeps the address of its own frame in a register."""
    samples = [sample for sample in samples_of("plt-lazily") if sample.images[:1] != ["plt-lazily"] and "caller" in sample.names]
    expect(samples, "([^;]+;)+caller;" + MAIN)


VDSO = r"""
ALONE void caller(void)
{
	struct timespec t;

	for (int i = 0; i < 100000; i++)
		clock_gettime(CLOCK_MONOTONIC, &t);
	BEHIND;
}
int main(void)
{
	for (long end = cpu_ms() + 100; cpu_ms() < end;)
		caller();
}
"""
PROGRAMS.add_program("vdso", VDSO)


def test_vdso(samples_of):
    samples = [sample for sample in samples_of("vdso") if "[vdso]" in sample.images[:1] and "caller" in sample.names]
    # the functions that clock_gettime calls inside the vdso have no name
    expect(samples, r"(\[vdso\]\+\w+;)?(__vdso_)?clock_gettime;(__)?clock_gettime;caller;" + MAIN)


# ---- CFI in sections that are not loaded

DEBUG_FRAME = r"""
static volatile unsigned long sum;
ALONE void leaf(long n) /* without a frame */
{
	for (long i = 0; i < n; i++)
		sum = sum * 3 + i;
}
ALONE void top70(void)
{
	volatile char room[300];

	room[0] = 1;
	leaf(7000000);
	sum += room[0];
}
ALONE void top30(void)
{
	volatile char room[1000];

	room[0] = 1;
	leaf(3000000);
	sum += room[0];
}
int main(void)
{
	for (int i = 0; i < 8; i++) {
		top70();
		top30();
	}
	BEHIND;
}
"""
ONLY_DEBUG_FRAME = "-g", "-fno-asynchronous-unwind-tables", "-fno-exceptions"
for kind in "none", "zlib", "zlib-gnu":
    PROGRAMS.add_program(f"frame-{kind}", DEBUG_FRAME, *ONLY_DEBUG_FRAME, f"-gz={kind}")


def with_zstd(folder):
    program = build(folder, "frame-zstd", DEBUG_FRAME, *ONLY_DEBUG_FRAME)
    subprocess.run(["objcopy", "--compress-debug-sections=zstd", program], check=True)
    return [program]


PROGRAMS.add("frame-zstd", with_zstd)


@pytest.mark.parametrize("packing", ["none", "zlib", "zlib-gnu", "zstd"])
def test_debug_frame(samples_of, packing):
    """.debug_frame is the only CFI; the numbers of loop turns give the expected shares."""
    samples = at(samples_of(f"frame-{packing}"), "leaf")
    expect(samples, "leaf;top[37]0;" + MAIN)
    assert near(sum("top70" in sample.names for sample in samples), len(samples), 0.7)


GO = """
package main

//go:noinline
func leaf(n int) int { x := 0; for i := 0; i < n; i++ { x ^= i * 7 }; return x }
//go:noinline
func top70(n int) int { return leaf(n * 7) + 1 }
//go:noinline
func top30(n int) int { return leaf(n * 3) + 2 }
func main() { s := 0; for i := 0; i < 1000; i++ { s += top70(50000) + top30(50000) }; if s == 1 { panic(s) } }
"""


def go(folder):
    (folder / "go-leaf.go").write_text(GO)
    environment = {**os.environ, "GOCACHE": str(folder / "cache"), "GO111MODULE": "off"}
    subprocess.run(["go", "build", "go-leaf.go"], cwd=folder, env=environment, check=True)
    return [folder / "go-leaf"]


def stripped_go(folder):
    (program,) = go(folder)
    subprocess.run(["strip", "-o", folder / "go-stripped", program], check=True)
    return [folder / "go-stripped"]


if shutil.which("go"):
    PROGRAMS.add("go-leaf", go)
    PROGRAMS.add("go-stripped", stripped_go)


@pytest.mark.skipif(not shutil.which("go"), reason="go is not installed: ./dev setup --peers")
def test_go(samples_of):
    """Go's linker compresses .debug_frame, which is the only CFI; functions keep frame pointers,
    except leaf functions."""
    samples = at(samples_of("go-leaf"), "main.leaf")
    expect(samples, r"main\.leaf;main\.top[37]0;main\.main;runtime\.main;runtime\.goexit.*")
    assert near(sum("main.top70" in sample.names for sample in samples), len(samples), 0.7)


@pytest.mark.skipif(not shutil.which("go"), reason="go is not installed: ./dev setup --peers")
def test_stripped_go(samples_of):
    """Go's runtime keeps the names and frame sizes of all functions for its own traces."""
    samples = at(samples_of("go-stripped"), "main.leaf")
    expect(samples, r"main\.leaf;main\.top[37]0;main\.main;runtime\.main;runtime\.goexit.*")
    assert near(sum("main.top70" in sample.names for sample in samples), len(samples), 0.7)
    unnamed = {(name, image) for sample in samples_of("go-stripped") for name, image in zip(sample.names, sample.images) if "+0x" in name}
    assert "go-stripped" not in {image for _, image in unnamed}, unnamed


# ---- threads and children

THREADS = r"""
#include <pthread.h>
ALONE void *work(void *data)
{
	spin(75);
	BEHIND;
	return data;
}
int main(void)
{
	pthread_t threads[2];

	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, work, NULL);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
}
"""
PROGRAMS.add_program("threads", THREADS, "-pthread")


def test_threads(samples_of):
    expect(at(samples_of("threads")), "spin;work;" + THREAD)


CHILDREN = r"""
extern char **environ;
ALONE void forked(void)
{
	spin(125);
	BEHIND;
	_exit(0);
}
ALONE void spawned(void)
{
	spin(125);
	BEHIND;
	_exit(0);
}
ALONE void spawn(char **argv)
{
	char *again[] = { argv[0], "again", NULL };
	posix_spawn_file_actions_t actions;

	posix_spawn_file_actions_init(&actions);
	for (int i = 0; i < 100000; i++) /* for there to be samples in the child before its exec */
		posix_spawn_file_actions_adddup2(&actions, 0, 0);
	posix_spawn(NULL, argv[0], &actions, NULL, again, environ);
	while (wait(NULL) > 0)
		;
}
int main(int argc, char **argv)
{
	if (argc > 1)
		spawned();
	if (vfork() == 0)
		forked();
	if (fork() == 0)
		forked();
	spawn(argv);
	BEHIND;
}
"""
PROGRAMS.add_program("children", CHILDREN)


def test_children(samples_of):
    samples = samples_of("children")
    expect([sample for sample in at(samples) if "forked" in sample.names], "spin;forked;" + MAIN)
    expect([sample for sample in at(samples) if "spawned" in sample.names], "spin;spawned;" + MAIN)
    parents = [sample for sample in samples if "spawn" in sample.names or "main" in sample.names]
    expect(parents, ".*" + MAIN)
    # During execve there is nothing to unwind. At first, a child has only the frame of clone().
    spawning = [sample for sample in samples
                if set(sample.images) == {"libc.so.6"} and "execve" not in sample.names[0]]
    expect(spawning, r"((.*;)?(libc\.so\.6\+\w+|__spawni_child);)?" + CLONE, least=20)


VFORK = r"""
ALONE int spawner(void)
{
	pid_t pid = vfork(); /* which has its return address in a register */

	if (pid == 0)
		_exit(3);
	waitpid(pid, NULL, 0);
	return pid;
}
int main(void)
{
	while (cpu_ms() < 500)
		spawner();
	BEHIND;
}
"""
PROGRAMS.add_program("vfork", VFORK)
# musl's vfork(), whose CFI says that the return address is below sp.
POPPING = """
__asm__(".type musl_vfork, @function\\n"
	"musl_vfork: .cfi_startproc\\npop %rdx\\n.cfi_adjust_cfa_offset -8\\nmov $58, %eax\\nsyscall\\n"
	"push %rdx\\n.cfi_adjust_cfa_offset 8\\nret\\n.cfi_endproc\\n.size musl_vfork, . - musl_vfork");
extern int musl_vfork(void) __attribute__((returns_twice));
#define vfork musl_vfork
"""
PROGRAMS.add_program("vfork-musl", POPPING + VFORK)


def test_vfork(samples_of):
    samples = [sample for sample in samples_of("vfork") if re.search("vfork", sample.chain)]
    expect(samples, r"(__)?(libc_)?vfork;spawner;" + MAIN)
    samples = [sample for sample in samples_of("vfork-musl") if "vfork" in sample.chain]
    expect(samples, "musl_vfork;spawner;" + MAIN, share=0.95)


CLONING = r"""
#include <sched.h>
ALONE int child(void *data)
{
	_exit(data != NULL);
}
ALONE int cloner(void)
{
	static char stack[65536];
	pid_t pid = clone(child, stack + sizeof(stack), CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);

	waitpid(pid, NULL, 0);
	return pid;
}
int main(void)
{
	while (cpu_ms() < 500)
		cloner();
	BEHIND;
}
"""
PROGRAMS.add_program("cloning", CLONING)


def test_clone(samples_of):
    """After its system call instruction, clone() has no CFI, and in the child no caller either."""
    samples = samples_of("cloning")
    expect([sample for sample in samples if "cloner" in sample.names], r"(.*;)?cloner;" + MAIN)
    expect([sample for sample in samples if re.match(r"(__)?clone;", sample.chain)], r"(__)?clone;cloner;" + MAIN)
    others = [sample for sample in samples if "cloner" not in sample.names and re.search("clone|child", sample.chain)]
    expect(others, r"((_exit;)?child;)?(__)?clone")


PROBED = r"""
#include <dlfcn.h>
#include <linux/perf_event.h>
#include <sys/syscall.h>
ALONE void probed(void)
{
	spin(150);
	BEHIND;
}
ALONE void caller(void)
{
	probed();
	BEHIND;
}
int main(void)
{
	struct perf_event_attr attr = { .size = sizeof(attr), .config = 1 }; /* at returns */
	FILE *type = fopen("/sys/bus/event_source/devices/uprobe/type", "r");
	Dl_info info;

	dladdr((void *)probed, &info);
	fscanf(type, "%u", &attr.type);
	attr.uprobe_path = (long)"/proc/self/exe";
	attr.probe_offset = (long)probed - (long)info.dli_fbase;
	if (syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0) < 0)
		return 1;
	caller();
	BEHIND;
}
"""
HAS_UPROBES = os.path.exists("/sys/bus/event_source/devices/uprobe/type")
if HAS_UPROBES:
    PROGRAMS.add_program("probed", PROBED, *KEEPS_FP)
    PROGRAMS.add_program("probed-dwarf", PROBED)


@pytest.mark.skipif(not HAS_UPROBES, reason="the kernel has no uprobes")
def test_return_probe(samples_of):
    """The probe replaces the return address; from Linux 6.11 on, the kernel's chain of frame
    pointers has the original address."""
    samples = at(samples_of("probed"))
    if tuple(map(int, re.match(r"(\d+)\.(\d+)", platform.release()).groups())) >= (6, 11):
        expect(samples, "spin;probed;caller;" + MAIN, method="fp")
    # if unwound by CFI, the chain ends at the replaced address, and no caller is invented
    expect(at(samples_of("probed-dwarf")), "spin;probed", stop="bad-frame")


# ---- code that a hook of --memory unwinds in the process

SEGMENTS = r"""
static void *volatile kept;
ALONE IN void deepest(int size)
{
	kept = malloc(size);
	BEHIND;
}
ALONE void middle(int size)
{
	deepest(size);
	__asm__ volatile(LONG ::: "memory");
}
int main(int argc, char **argv)
{
	for (int i = 0; i < 100; i++)
		middle(2000 + i);
	BEHIND;
}
"""
# CFI of 20 KiB for one function, as for a function that very often passes arguments on the stack.
LONG_CFI = '-DLONG=".rept 6000\\n nop\\n .cfi_remember_state\\n .cfi_restore_state\\n .endr"'


def sort_as_lld(program):
    """Sorts the entries of .eh_frame_hdr by unsigned distances, as lld 14 does: entries for code
    below .eh_frame_hdr come last."""
    data = bytearray(program.read_bytes())
    (headers,), (n,) = struct.unpack_from("<Q", data, 32), struct.unpack_from("<H", data, 56)
    found = [struct.unpack_from("<IIQ", data, headers + 56 * i) for i in range(n)]
    header = next(offset for kind, _, offset in found if kind == 0x6474e550)  # PT_GNU_EH_FRAME
    (n,) = struct.unpack_from("<I", data, header + 8)
    entries = [struct.unpack_from("<II", data, header + 12 + 8 * i) for i in range(n)]
    assert sorted(entries) != entries
    for i, entry in enumerate(sorted(entries)):
        struct.pack_into("<II", data, header + 12 + 8 * i, *entry)
    program.write_bytes(data)


@pytest.mark.parametrize("flags, change", [
    (["-Wl,--section-start=.far=0x800000"], None),
    (["-no-pie", "-Wl,--section-start=.far=0x800000"], None),
    (["-Wl,--no-eh-frame-hdr"], None),
    (["-Wl,--section-start=.far=0x800000", LONG_CFI], None),
    (["-Wl,--section-start=.far=0x800000"], sort_as_lld),
], ids=["two segments", "two segments without pie", "no eh_frame_hdr", "long cfi", "order of lld"])
def test_memory(profctl, profcapture, capture, tmp_path, flags, change):
    """The stack of an allocation has exactly the callers in the source, out to the program's
    entry."""
    if LONG_CFI not in flags:
        flags = [*flags, "-DLONG=\"\""]
    place = [] if "-Wl,--no-eh-frame-hdr" in flags else ['-DIN=__attribute__((section(".far")))']
    program = build(tmp_path, "segments", SEGMENTS, *(place or ["-DIN="]), *flags)
    if change:
        change(program)
    recorded(profctl, "--memory", "-F", 19, "-o", capture, "--", program)
    allocations = profcapture.json("dump", capture, "--table", "alloc", "--resolve", "--limit", 0)["data"]["rows"]
    chains = [[frame["name"] for frame in row["frames"]] for row in allocations if 2000 <= row["size"] < 2100]
    assert len(chains) == 100
    assert {";".join(chain[:3]) for chain in chains} == {"deepest;middle;main"}
    assert {chain[-1] for chain in chains} == {"_start"}
