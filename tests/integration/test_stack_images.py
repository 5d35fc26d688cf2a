# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Stacks are complete even if they pass through code of files that appear, disappear, change, are
hidden or have false data. The real daemon records them."""
import random
import shutil
import struct
import subprocess

import pytest

from recordings import recorded
from stacks import MAIN, Together, at, build, expect, read

pytestmark = pytest.mark.usefixtures("nothing_is_left")

PROGRAM = r"""
ALONE void inner(void)
{
	spin(200);
	BEHIND;
}
ALONE void outer(void)
{
	char room[200];

	__asm__ volatile("" ::"r"(room) : "memory");
	inner();
	BEHIND;
}
int main(int argc, char **argv)
{
	if (argc > 1)
		unlink(argv[0]);
	if (argc > 2)
		rename(argv[1], argv[0]);
	outer();
	BEHIND;
}
"""
CHAIN = "spin;inner;outer;" + MAIN


@pytest.fixture(autouse=True)
def rights(require):
    require("gcc", root=True)


PROGRAMS = Together("-F", 1999)


@pytest.fixture(scope="module")
def samples_of(profctl, profcapture, tmp_path_factory):
    """A function that returns a program's samples, by the program's name."""
    return lambda name: PROGRAMS.of(name, profctl, profcapture, tmp_path_factory)


# ---- the file of the program


PROGRAMS.add_program("static", PROGRAM, "-static")
PROGRAMS.add_program("deleted", PROGRAM, arguments=["deleted"])
PROGRAMS.add_program("debugframe", PROGRAM, "-g", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables")
PROGRAMS.add_program("nocfi", PROGRAM, "-fno-asynchronous-unwind-tables", "-fno-unwind-tables")


def replaced(folder):
    other = build(folder, "other", PROGRAM.replace("200", "2000").replace("inner", "wrong"))
    return [build(folder, "replaced", PROGRAM), other, "replaced"]


PROGRAMS.add("replaced", replaced)


def test_static(samples_of):
    expect(at(samples_of("static")), "spin;inner;outer;main;__libc_start_call_main;__libc_start_main(_impl)?;_start")


def test_deleted(samples_of):
    expect(at(samples_of("deleted")), CHAIN)


def test_replaced(samples_of):
    """The program's file was replaced by another program, with other functions at the same
    places."""
    expect(at(samples_of("replaced")), CHAIN)


def test_debug_frame_alone(samples_of):
    expect(at(samples_of("debugframe")), CHAIN)


def test_no_cfi(samples_of):
    """The chain ends in the program, and its end is not called the root."""
    samples = at(samples_of("nocfi"))
    assert len(samples) > 100
    for sample in samples:
        assert sample.stop != "root" and set(sample.images) == {"nocfi"}, sample


IN_MEMORY = r"""
int main(int argc, char **argv)
{
	int from = open(argv[1], O_RDONLY), to = memfd_create("in memory", MFD_CLOEXEC);
	char *const arguments[] = { (char *)"x", NULL };
	char bytes[65536];
	ssize_t n;

	while ((n = read(from, bytes, sizeof(bytes))) > 0)
		write(to, bytes, n);
	prctl(PR_SET_NAME, "before");
	fexecve(to, arguments, environ);
}
"""
# With fexecve(), the kernel names the process after the descriptor's number, so the program sets
# its own name.
NAMED = "#include <sys/prctl.h>\n" + PROGRAM.replace("	outer();", '	prctl(PR_SET_NAME, "in-memory");\n	outer();')


def in_memory(folder):
    starter = build(folder, "starter", "#include <fcntl.h>\n#include <sys/prctl.h>\n" + IN_MEMORY)
    return [starter, build(folder, "in-memory", NAMED)]


PROGRAMS.add("in-memory", in_memory)


def test_memfd(samples_of):
    samples = at(samples_of("in-memory"))
    expect(samples, CHAIN)
    assert all(sample.images[0] == "memfd:in memory" for sample in samples)


COPIED = r"""
__attribute__((section(".hot"), aligned(4096), noipa)) void spin_here(int ms)
{
	spin(ms);
	BEHIND;
}
__attribute__((section(".hot"), aligned(4096), noipa)) void spin_there(int ms)
{
	spin_here(ms);
	BEHIND;
}
__attribute__((section(".hot"), aligned(4096), noipa)) void last(void)
{
}
int main(int argc, char **argv)
{
	static char kept[8192];
	char *code = (char *)spin_here;

	memcpy(kept, code, sizeof(kept));
	if (mmap(code, sizeof(kept), PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != code)
		return 1;
	memcpy(code, kept, sizeof(kept));
	if (argc > 1)
		printf("ready\n"), fflush(stdout), spin_there(100000);
	spin_there(200);
	BEHIND;
}
"""
PROGRAMS.add_program("copied", COPIED)


def test_copied_code(samples_of):
    """Stacks are complete if a program copies its code into anonymous memory at the same address,
    as is done for huge pages."""
    expect(at(samples_of("copied")), "spin;spin_here;spin_there;" + MAIN)


def test_code_that_was_copied_before(profctl, profcapture, tmp_path, spawn):
    """Like test_copied_code(), for a program that copied its code before the recording began."""
    program = build(tmp_path, "copied", COPIED)
    target = spawn(program, "wait", stdout=subprocess.PIPE)
    target.stdout.readline()
    recorded(profctl, "-p", target.pid, "-d", 0.5, "-o", tmp_path / "test.cap")
    expect(at(read(profcapture, tmp_path / "test.cap")), "spin;spin_here;spin_there;" + MAIN)


def without_section_headers(program):
    data = bytearray(program.read_bytes())
    struct.pack_into("<Q", data, 40, 0)  # e_shoff
    struct.pack_into("<HHH", data, 58, 0, 0, 0)  # e_shentsize, e_shnum, e_shstrndx
    program.write_bytes(data)


def headless(folder):
    program = build(folder, "headless", PROGRAM)
    subprocess.run(["strip", program], check=True)
    without_section_headers(program)
    return [program]


PROGRAMS.add("headless", headless)


def test_without_section_headers(samples_of):
    """None of the program's frames has a name, but the chain has the right length, and its frames
    in libc have names."""
    samples = [sample for sample in samples_of("headless") if sample.images[:1] == ["headless"] and len(sample.images) > 5]
    frame = r"headless\+0x\w+;"
    expect(samples, f"({frame}){{4}}(libc\\.so\\.6\\+\\w+;|__libc_start_call_main;)?__libc_start_main;{frame[:-1]}")


SMALL = r"""
#define ALONE __attribute__((noipa))
static int ticks(void)
{
	int spent[4], r;

	__asm__ volatile("int $0x80" : "=a"(r) : "a"(43), "b"(spent) : "memory");
	return spent[0] + spent[1];
}
ALONE void spin(void)
{
	int end = ticks() + 30;

	do
		for (volatile int i = 0; i < 1000000; i++)
			;
	while (ticks() < end);
}
ALONE void inner(void) { spin(); __asm__ volatile(""); }
ALONE void outer(void) { inner(); __asm__ volatile(""); }
__asm__(".globl _start; .type _start,@function; _start: xor %ebp,%ebp; call outer; mov $1,%eax; xor %ebx,%ebx; int $0x80;"
	".size _start,.-_start");
"""


@pytest.mark.parametrize("prefix", [[], ["setarch", "-R"]], ids=["anywhere", "top"])
def test_32_bits(profctl, profcapture, capture, tmp_path, prefix):
    """A 32-bit program's stack is not copied: only the kernel's chain of frame pointers is
    available."""
    flags = "-m32", "-nostdlib", "-static", "-fno-pie", "-no-pie", "-fno-omit-frame-pointer", "-fno-stack-protector"
    try:
        program = build(tmp_path, "small", SMALL, *flags, head="")
    except subprocess.CalledProcessError:
        pytest.skip("gcc makes no programs of 32 bits")
    try:
        subprocess.run([program], check=True, timeout=60)
    except OSError as error:
        pytest.skip(f"the kernel runs no programs of 32 bits: {error.strerror}")
    recorded(profctl, "-o", capture, "--", *prefix, program)
    expect(at(read(profcapture, capture)), "spin;inner;outer;_start", method="fp", stop="unknown")


# ---- hostile files


def section_of(program, name):
    for line in subprocess.run(["readelf", "-SW", program], stdout=subprocess.PIPE, encoding="utf-8", check=True).stdout.splitlines():
        fields = line.partition("]")[2].split()
        if fields[:1] == [name]:
            return int(fields[3], 16), int(fields[4], 16)
    raise LookupError(name)


def hostile(how):
    def make(folder):
        program, fair = build(folder, how, PROGRAM), build(folder, f"{how}-fair", PROGRAM)
        offset, size = section_of(program, ".eh_frame")
        data, noise = bytearray(program.read_bytes()), random.Random(how)
        for i in range(offset + (0 if how == "noise" else size // 2 if how == "half" else 24), offset + size):
            if how != "rules" or noise.random() < 0.05:
                data[i] = noise.randrange(256)
        program.write_bytes(data)
        return ["sh", "-c", f"{program} & {fair}; wait"]

    PROGRAMS.add(how, make)


HOSTILE = "noise", "half", "rules"
for how in HOSTILE:
    hostile(how)


@pytest.mark.parametrize("how", HOSTILE)
def test_hostile(samples_of, how):
    """CFI of random bytes affects only the stacks of its own process."""
    expect(at(samples_of(f"{how}-fair")), CHAIN)
    theirs = at(samples_of(how))
    assert len(theirs) > 100
    for sample in theirs:
        assert sample.images[0] == how and "[unknown]" not in sample.images, sample


# ---- other roots and mounts

LIBRARY = r"""
ALONE void NAME(void (*function)(int), int n)
{
	char room[ROOM];

	__asm__ volatile("" ::"r"(room) : "memory");
	function(n);
	BEHIND;
}
"""
USER = r"""
void library(void (*function)(int), int n);
int main(int argc, char **argv)
{
	library(spin, 200);
	BEHIND;
}
"""
USER_CHAIN = "spin;library;" + MAIN


def library(folder, stem, room, name="library"):
    path = folder / f"{stem}.so"
    build(folder, stem, LIBRARY, "-shared", "-fPIC", f"-DROOM={room}", f"-DNAME={name}", "-o", path)
    return path


def chroot(folder):
    """Makes a program in a chroot. Outside of it, the path of the program's library names another
    library."""
    outside = library(folder, "same", 3000)
    root = folder / "root"
    root.mkdir()
    program = build(root, "chrooted", USER, outside)
    needed = subprocess.run(["ldd", program], stdout=subprocess.PIPE, encoding="utf-8", check=True).stdout
    for path in [word for word in needed.split() if word.startswith("/")]:
        inside = root / path.lstrip("/")
        inside.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path if path != str(outside) else library(root, "same", 40), inside)
    return ["chroot", root, "/chrooted"]


PROGRAMS.add("chrooted", chroot)


def test_chroot(samples_of):
    expect(at(samples_of("chrooted")), USER_CHAIN)


def test_mount_namespace(profctl, profcapture, capture, tmp_path, require):
    """Another file is mounted over the library, visible only to the program."""
    require("unshare", mounts=True)
    under = library(tmp_path, "under", 3000)
    over = library(tmp_path, "over", 40)
    program = build(tmp_path, "user", USER, under)
    script = 'mount --bind "$1" "$2" && exec "$3"'
    recorded(profctl, "-F", 1999, "-o", capture, "--", "unshare", "-m", "sh", "-c", script, "sh", over, under, program)
    expect(at(read(profcapture, capture)), USER_CHAIN)
    subprocess.run([program], check=True)


# ---- libraries that come and go

CHURN = r"""
typedef void (*function)(void (*)(int), int);
int main(int argc, char **argv)
{
	long last = 0, same = 0, rounds = 0;

	for (long end = cpu_ms() + 300; cpu_ms() < end; rounds++) {
		void *handle = dlopen(argv[1 + rounds % 2], RTLD_NOW);
		function f = (function)dlsym(handle, rounds % 2 ? "second" : "first");

		same += (long)f == last;
		last = (long)f;
		f(spin, 5);
		dlclose(handle);
	}
	return same > rounds / 2 ? 0 : 1;
}
"""


def churn(folder):
    first, second = library(folder, "first", 40, "first"), library(folder, "second", 3000, "second")
    return [build(folder, "churn", CHURN), first, second]


PROGRAMS.add("churn", churn)


def test_another_library_at_the_same_address(samples_of):
    """Each library has its own stacks. The program fails, and the recording too, if the libraries
    are not at the same address."""
    samples = at(samples_of("churn"))
    for name in "first", "second":
        expect([sample for sample in samples if f"{name}.so" in sample.images], f"spin;{name};{MAIN}")


MANY = r"""
typedef void (*function)(void **next);
ALONE void turn(void **next)
{
	spin(5);
	BEHIND;
}
int main(int argc, char **argv)
{
	static void *steps[2000];
	char path[4096];

	for (int i = 0; i < 2000; i++) {
		snprintf(path, sizeof(path), "%s/%d.so", argv[1], i);
		steps[i] = dlsym(dlopen(path, RTLD_NOW), "step");
	}
	for (int i = 0; i < 2000; i += 20) {
		void *next[20];

		memcpy(next, steps + i + 1, 19 * sizeof(*next));
		next[19] = (void *)turn;
		((function)steps[i])(next);
	}
}
"""
STEP = r"""
void step(void **next)
{
	((void (*)(void **))next[0])(next + 1);
	__asm__ volatile("");
}
"""


def many(folder):
    program, one = build(folder, "many", MANY), folder / "one.so"
    build(folder, "one", STEP, "-shared", "-fPIC", "-nostdlib", "-Wl,--build-id,-s", "-o", one, head="")
    offset, size = section_of(one, ".note.gnu.build-id")
    data = bytearray(one.read_bytes())
    for i in range(2000):
        struct.pack_into("<I", data, offset + size - 4, i)
        (folder / f"{i}.so").write_bytes(data)
    return [program, folder]


PROGRAMS.add("many", many)


def test_two_thousand_libraries(samples_of):
    samples = at(samples_of("many"))
    expect(samples, "spin;turn;(step;){20}" + MAIN, least=500)
    for sample in (sample for sample in samples if sample.stop == "root"):
        numbers = [int(image.removesuffix(".so")) for image in sample.images if image.endswith(".so")]
        assert numbers == list(range(numbers[-1] + 19, numbers[-1] - 1, -1)), sample
    assert len({sample.images[2] for sample in samples}) >= 99
