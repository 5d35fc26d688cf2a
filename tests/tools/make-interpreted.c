/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * make-interpreted - writes a capture of a Python program: make-interpreted SOURCE FILE
 *
 * SOURCE is the path of the program's source, m.py, of 20 lines. The stacks, from the root:
 *
 *     main, eval, m.<module> at line 20, eval, m.Shop.sell at 6, json.dumps, memcpy: 70 samples
 *     main, eval, m.<module> at line 20, eval, m.price at 12: 30 samples
 *     main: 5 samples, of which 2 are torn
 *
 * main and eval are functions of the interpreter, json.dumps of its library, memcpy of libc.
 */
#include "tests/unit/build-capture.h"

enum { PYTHON = 1, PROGRAM, LIBRARY };
enum { MAIN = 1, EVAL, MODULE, SELL, PRICE, MEMCPY, DUMPS };

static const uint8_t build_id[] = { 0xab, 0xcd };

static void image(struct build *build, uint64_t id, const char *path, bool is_python,
		  enum prof_image_kind kind)
{
	build_text(build, 100 + id, path);
	BUILD(build, PROF_TABLE_IMAGE, N(id), N(100 + id),
	      PROF_BYTES(build_id, is_python ? sizeof(build_id) : 0), N(4096), N(1),
	      N(is_python ? 5 : 6), N(kind), N(5), N(0));
}

static void symbol(struct build *build, uint64_t id, uint64_t of, uint64_t start, const char *name,
		   unsigned line)
{
	build_text(build, 200 + id, name);
	BUILD(build, PROF_TABLE_SYMBOL, N(id), N(of), N(start), N(0x1000), N(200 + id), N(200 + id),
	      N(id == DUMPS ? 5
		: line      ? 1
			    : 0),
	      N(line), N(0));
}

static void frame(struct build *build, uint64_t id, uint64_t of, uint64_t offset, unsigned line)
{
	BUILD(build, PROF_TABLE_FRAME, N(id), N(of), N(offset), N(PROF_FRAME_EXACT));
	if (line)
		BUILD(build, PROF_TABLE_LINE, N(id), N(of), N(offset), N(1), N(1), N(line), N(id));
}

static void samples(struct build *build, unsigned count, uint64_t stack,
		    enum prof_sample_interpreter interpreter)
{
	for (unsigned i = 0; i < count; i++)
		BUILD(build, PROF_TABLE_SAMPLE,
		      N(BUILD_START +
			prof_block_rows(build->blocks[PROF_TABLE_SAMPLE]) * UINT64_C(10000000)),
		      N(1), N(0), N(PROF_MODE_USER), N(stack), N(10000000), N(1),
		      N(PROF_METHOD_CFI), N(PROF_STOP_ROOT), N(0), PROF_BYTES(NULL, 0),
		      PROF_BYTES(NULL, 0), N(interpreter));
}

static void write_rows(struct build *build, const char *source)
{
	static const uint64_t path[] = { MAIN, EVAL, MODULE, EVAL, SELL, DUMPS, MEMCPY };

	build_text(build, 1, source);
	build_text(build, 2, "cpu-clock");
	build_text(build, 3, "ns");
	build_text(build, 4, "python3");
	build_text(build, 5, "/usr/lib/python3.11/json/__init__.py");
	image(build, PYTHON, "/usr/bin/python3.11", true, PROF_IMAGE_FILE);
	image(build, PROGRAM, "[python 3.11]", true, PROF_IMAGE_INTERPRETER);
	image(build, LIBRARY, "/usr/lib/libc.so.6", false, PROF_IMAGE_FILE);
	symbol(build, MAIN, PYTHON, 0x1000, "main", 0);
	symbol(build, EVAL, PYTHON, 0x2000, "_PyEval_EvalFrameDefault", 0);
	symbol(build, MODULE, PROGRAM, 0x1000, "m.<module>", 1);
	symbol(build, SELL, PROGRAM, 0x2000, "m.Shop.sell", 5);
	symbol(build, PRICE, PROGRAM, 0x3000, "m.price", 11);
	symbol(build, DUMPS, PROGRAM, 0x4000, "json.dumps", 183);
	symbol(build, MEMCPY, LIBRARY, 0x1000, "memcpy", 0);
	frame(build, MAIN, PYTHON, 0x1010, 0);
	frame(build, EVAL, PYTHON, 0x2010, 0);
	frame(build, MODULE, PROGRAM, 0x1000 + 20, 20);
	frame(build, SELL, PROGRAM, 0x2000 + 6, 6);
	frame(build, PRICE, PROGRAM, 0x3000 + 12, 12);
	frame(build, DUMPS, PROGRAM, 0x4000 + 231, 0);
	frame(build, MEMCPY, LIBRARY, 0x1010, 0);
	for (unsigned i = 0; i < sizeof(path) / sizeof(*path); i++)
		BUILD(build, PROF_TABLE_STACK, N(i + 1), N(i), N(path[i]));
	BUILD(build, PROF_TABLE_STACK, N(8), N(4), N(PRICE));
	BUILD(build, PROF_TABLE_PROCESS, N(1), N(100), N(1), N(5), N(0), PROF_BYTES(NULL, 0),
	      N(101), N(0), N(0), PROF_BYTES(NULL, 0));
	BUILD(build, PROF_TABLE_THREAD, N(1), N(1), N(100), N(5), N(4), PROF_BYTES(NULL, 0));
	BUILD(build, PROF_TABLE_SOURCE, N(1), N(2), N(PROF_SOURCE_SOFTWARE), N(3), N(10000000),
	      N(100));
	samples(build, 70, 7, PROF_INTERPRETER_COMPLETE);
	samples(build, 30, 8, PROF_INTERPRETER_COMPLETE);
	samples(build, 3, 1, PROF_INTERPRETER_IDLE);
	samples(build, 2, 1, PROF_INTERPRETER_TORN);
}

int main(int argc, char **argv)
{
	struct build build;
	char bytes[65536];
	ssize_t n;
	off_t at = 0;
	int fd;

	if (argc != 3) {
		fputs("Usage: make-interpreted SOURCE FILE\n", stderr);
		return 2;
	}
	build_begin(&build);
	write_rows(&build, argv[1]);
	build_finish(&build);
	fd = open(argv[2], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	while (fd >= 0 && (n = pread(build.fd, bytes, sizeof(bytes), at)) > 0) {
		if (write(fd, bytes, (size_t)n) != n) {
			perror(argv[2]);
			return 1;
		}
		at += n;
	}
	if (fd < 0 || close(fd) < 0) {
		perror(argv[2]);
		return 1;
	}
	build_done(&build);
	return 0;
}
