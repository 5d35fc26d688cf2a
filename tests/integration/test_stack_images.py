# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Whole stacks through files that come, go, change, hide or lie, as the real daemon records them."""
import random
import shutil
import struct
import subprocess

import pytest

from recordings import recorded
from stacks import MAIN, at, build, expect, read

pytestmark = pytest.mark.usefixtures("nothing_is_left")

PROGRAM = r"""
ALONE void inner(void)
{
	spin(300);
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


@pytest.fixture
def samples_of(profctl, profcapture, capture):
    def run(*command):
        recorded(profctl, "-o", capture, "--", *command)
        return read(profcapture, capture)

    return run


# ---- the file of the program


def test_static(samples_of, tmp_path):
    program = build(tmp_path, "static", PROGRAM, "-static")
    expect(at(samples_of(program)), "spin;inner;outer;main;__libc_start_call_main;__libc_start_main(_impl)?;_start")


def test_deleted(samples_of, tmp_path):
    expect(at(samples_of(build(tmp_path, "deleted", PROGRAM), "deleted")), CHAIN)


def test_replaced(samples_of, tmp_path):
    """By another program, with other functions at the same places."""
    other = build(tmp_path, "other", PROGRAM.replace("200", "2000").replace("inner", "wrong"))
    expect(at(samples_of(build(tmp_path, "replaced", PROGRAM), other, "replaced")), CHAIN)


def test_debug_frame_alone(samples_of, tmp_path):
    flags = "-g", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"
    expect(at(samples_of(build(tmp_path, "debugframe", PROGRAM, *flags))), CHAIN)


def test_no_cfi(samples_of, tmp_path):
    """It ends at the first frame, and that is not called the root."""
    flags = "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"
    samples = at(samples_of(build(tmp_path, "nocfi", PROGRAM, *flags)))
    assert len(samples) > 100
    for sample in samples:
        assert sample.stop != "root" and set(sample.images) == {"nocfi"}, sample


def without_section_headers(program):
    data = bytearray(program.read_bytes())
    struct.pack_into("<Q", data, 40, 0)  # e_shoff
    struct.pack_into("<HHH", data, 58, 0, 0, 0)  # e_shentsize, e_shnum, e_shstrndx
    program.write_bytes(data)


def test_without_section_headers(samples_of, tmp_path):
    """Nothing has a name in it; the chain is as long as it should be, and what is below it has names."""
    program = build(tmp_path, "headless", PROGRAM)
    subprocess.run(["strip", program], check=True)
    without_section_headers(program)
    samples = [sample for sample in samples_of(program) if sample.images[:1] == ["headless"] and len(sample.images) > 5]
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
def test_32_bits(samples_of, tmp_path, prefix):
    """No copy is taken of such a stack: the kernel's chain of frame pointers is what there is."""
    flags = "-m32", "-nostdlib", "-static", "-fno-pie", "-no-pie", "-fno-omit-frame-pointer", "-fno-stack-protector"
    try:
        program = build(tmp_path, "small", SMALL, *flags, head="")
    except subprocess.CalledProcessError:
        pytest.skip("gcc makes no programs of 32 bits")
    try:
        subprocess.run([program], check=True, timeout=60)
    except OSError as error:
        pytest.skip(f"the kernel runs no programs of 32 bits: {error.strerror}")
    expect(at(samples_of(*prefix, program)), "spin;inner;outer;_start", method="fp", stop="unknown")


# ---- hostile files


def section_of(program, name):
    for line in subprocess.run(["readelf", "-SW", program], stdout=subprocess.PIPE, encoding="utf-8", check=True).stdout.splitlines():
        fields = line.partition("]")[2].split()
        if fields[:1] == [name]:
            return int(fields[3], 16), int(fields[4], 16)
    raise LookupError(name)


@pytest.mark.parametrize("how", ["noise", "half", "rules"])
def test_hostile(samples_of, tmp_path, how):
    """CFI of random bytes costs its own process's stacks, and nobody else's."""
    hostile, fair = build(tmp_path, "hostile", PROGRAM), build(tmp_path, "fair", PROGRAM)
    offset, size = section_of(hostile, ".eh_frame")
    data, noise = bytearray(hostile.read_bytes()), random.Random(how)
    for i in range(offset + (0 if how == "noise" else size // 2 if how == "half" else 24), offset + size):
        if how != "rules" or noise.random() < 0.05:
            data[i] = noise.randrange(256)
    hostile.write_bytes(data)
    samples = samples_of("sh", "-c", f"{hostile} & {fair}; wait")
    expect([sample for sample in at(samples) if sample.comm == "fair"], CHAIN)
    theirs = [sample for sample in at(samples) if sample.comm == "hostile"]
    assert len(theirs) > 100
    for sample in theirs:
        assert sample.images[0] == "hostile" and "[unknown]" not in sample.images, sample


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
	library(spin, 300);
	BEHIND;
}
"""
USER_CHAIN = "spin;library;" + MAIN


def library(folder, stem, room, name="library"):
    path = folder / f"{stem}.so"
    build(folder, stem, LIBRARY, "-shared", "-fPIC", f"-DROOM={room}", f"-DNAME={name}", "-o", path)
    return path


def test_chroot(samples_of, tmp_path):
    """The same path outside is another library."""
    outside = library(tmp_path, "same", 3000)
    root = tmp_path / "root"
    root.mkdir()
    program = build(root, "user", USER, outside)
    needed = subprocess.run(["ldd", program], stdout=subprocess.PIPE, encoding="utf-8", check=True).stdout
    for path in [word for word in needed.split() if word.startswith("/")]:
        inside = root / path.lstrip("/")
        inside.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path if path != str(outside) else library(root, "same", 40), inside)
    expect(at(samples_of("chroot", root, "/user")), USER_CHAIN)


def test_mount_namespace(samples_of, tmp_path, require):
    """A file that another one is mounted over, where only the program sees it."""
    require("unshare", mounts=True)
    under = library(tmp_path, "under", 3000)
    over = library(tmp_path, "over", 40)
    program = build(tmp_path, "user", USER, under)
    script = 'mount --bind "$1" "$2" && exec "$3"'
    samples = samples_of("unshare", "-m", "sh", "-c", script, "sh", over, under, program)
    expect(at(samples), USER_CHAIN)
    subprocess.run([program], check=True)


# ---- libraries that come and go

CHURN = r"""
typedef void (*function)(void (*)(int), int);
int main(int argc, char **argv)
{
	long last = 0, same = 0, rounds = 0;

	for (long end = cpu_ms() + 600; cpu_ms() < end; rounds++) {
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


def test_another_library_at_the_same_address(profctl, profcapture, capture, tmp_path):
    first = library(tmp_path, "first", 40, "first")
    second = library(tmp_path, "second", 3000, "second")
    program = build(tmp_path, "churn", CHURN)
    data = recorded(profctl, "-o", capture, "--", program, first, second)
    assert data["command"]["exit"] == 0, "they were not at the same address"
    samples = at(read(profcapture, capture))
    for name in "first", "second":
        expect([sample for sample in samples if f"{name}.so" in sample.images], f"spin;{name};{MAIN}")


MANY = r"""
typedef void (*function)(void **next);
ALONE void turn(void **next)
{
	spin(8);
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


def test_two_thousand_libraries(samples_of, tmp_path):
    program, one = build(tmp_path, "many", MANY), tmp_path / "one.so"
    build(tmp_path, "one", STEP, "-shared", "-fPIC", "-nostdlib", "-Wl,--build-id,-s", "-o", one, head="")
    offset, size = section_of(one, ".note.gnu.build-id")
    data = bytearray(one.read_bytes())
    for i in range(2000):
        struct.pack_into("<I", data, offset + size - 4, i)
        (tmp_path / f"{i}.so").write_bytes(data)
    samples = at(samples_of(program, tmp_path))
    expect(samples, "spin;turn;(step;){20}" + MAIN, least=500)
    for sample in samples:
        numbers = [int(image.removesuffix(".so")) for image in sample.images if image.endswith(".so")]
        assert numbers == list(range(numbers[-1] + 19, numbers[-1] - 1, -1)), sample
    assert len({sample.images[2] for sample in samples}) >= 99
