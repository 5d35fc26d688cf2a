/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * JIT frames: unwind tables of generated code, from the jitdump file that the program writes
 *
 * Promises:
 * - a complete function has a rule, a half-written one does not yet [growing]
 * - if two functions overlap, the later one is used, even without a table [overlap]
 * - a function that was moved keeps its rule [moved]
 * - memory is limited: functions beyond the limit have no table [limit]
 * - an invalid file is ignored [none]
 */
#include "arch/base.h"
#include "daemon/engine/unwind/jit-frames.h"
#include "tests/unit/test.h"

#include <sys/mman.h>
#include <unistd.h>

#define CODE UINT64_C(0x7f0000001000)
#define CODE_BYTES 16u

struct writer {
	int fd;
	uint8_t bytes[4096];
	size_t n, written;
};

static void put(struct writer *writer, const void *bytes, size_t n)
{
	memcpy(writer->bytes + writer->n, bytes, n);
	writer->n += n;
}

static void put_word(struct writer *writer, uint64_t value)
{
	put(writer, &value, sizeof(value));
}

static void put_head(struct writer *writer, uint32_t id, size_t body_bytes)
{
	const uint32_t head[] = { id, (uint32_t)body_bytes + 16 };

	put(writer, head, sizeof(head));
	put_word(writer, 1);
}

/* Writes CFI of a function that begins with a push, after which the CFA is 16 bytes above sp. */
static void put_unwinding(struct writer *writer)
{
	static const uint8_t cie[] = { 20, 0,    0,  0, 0,    0,    0, 0, 1,    'z', 'R', 0,
				       1,  0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1,   0,   0 };
	/* ffffffd0 = -48: 8 bytes of the FDE, the CIE, and 16 bytes of code */
	static const uint8_t fde[] = { 20,   0,    0,    0,    28,         0, 0, 0,
				       0xd0, 0xff, 0xff, 0xff, CODE_BYTES, 0, 0, 0,
				       0,    0x41, 0x0e, 16,   0,          0, 0, 0 };
	const size_t bytes = sizeof(cie) + sizeof(fde) + 4;

	put_head(writer, 4, 24 + bytes);
	put_word(writer, bytes);
	put_word(writer, 0);
	put_word(writer, 0);
	put(writer, cie, sizeof(cie));
	put(writer, fde, sizeof(fde));
	put(writer, &(uint32_t){ 0 }, 4);
}

static void put_load(struct writer *writer, uint64_t address)
{
	put_head(writer, 0, 40 + 2 + CODE_BYTES);
	put_word(writer, 0);
	put_word(writer, address);
	put_word(writer, address);
	put_word(writer, CODE_BYTES);
	put_word(writer, 0);
	put(writer, "f", 2);
	put(writer, (const uint8_t[CODE_BYTES]){ 0 }, CODE_BYTES);
}

static void put_move(struct writer *writer, uint64_t from, uint64_t to)
{
	put_head(writer, 1, 48);
	put_word(writer, 0);
	put_word(writer, to);
	put_word(writer, from);
	put_word(writer, to);
	put_word(writer, CODE_BYTES);
	put_word(writer, 0);
}

/* Writes all but the last `rest` bytes. */
static void flush_but(struct writer *writer, size_t rest)
{
	size_t n = writer->n - writer->written - rest;

	CHECK(write(writer->fd, writer->bytes + writer->written, n) == (ssize_t)n);
	writer->written += n;
}

static struct jit_frames *begin(struct writer *writer)
{
	const uint32_t header[10] = { 0x4a695444, 1, 40 };

	*writer = (struct writer){ .fd = memfd_create("dump", MFD_CLOEXEC) };
	put(writer, header, sizeof(header));
	flush_but(writer, 0);
	return jit_frames_new(writer->fd);
}

/* Returns the distance from sp to the CFA at an address; 0: unknown. */
static int32_t at(const struct jit_frames *frames, uint64_t pc)
{
	uint64_t address;
	const struct unwind_table *table = jit_frames_find(frames, pc, &address);
	const struct cfi_rule *rule = table ? table_get(table, address) : NULL;

	return rule && rule->cfa == CFI_CFA_SP ? rule->cfa_offset : 0;
}

static uint64_t read_all(struct writer *writer, struct jit_frames *frames)
{
	uint64_t bytes;

	flush_but(writer, 0);
	bytes = jit_frames_read(frames, 1u << 20);
	(void)jit_frames_receive(frames);
	return bytes;
}

static void test_growing(void)
{
	struct writer writer;
	struct jit_frames *frames = begin(&writer);

	REQUIRE(frames != NULL);
	CHECK_INT(jit_frames_read(frames, 1u << 20), 0);
	CHECK(!jit_frames_receive(frames));
	put_unwinding(&writer);
	put_load(&writer, CODE);
	flush_but(&writer, 5);
	CHECK_INT(jit_frames_read(frames, 1u << 20), 0);
	CHECK_INT(at(frames, CODE), 0);
	CHECK(read_all(&writer, frames) > 0);
	CHECK_INT(at(frames, CODE - 1), 0);
	CHECK_INT(at(frames, CODE), 8);
	CHECK_INT(at(frames, CODE + 1), 16);
	CHECK_INT(at(frames, CODE + CODE_BYTES - 1), 16);
	CHECK_INT(at(frames, CODE + CODE_BYTES), 0);
	jit_frames_free(frames);
}

static void test_overlap(void)
{
	struct writer writer;
	struct jit_frames *frames = begin(&writer);

	REQUIRE(frames != NULL);
	put_unwinding(&writer);
	put_load(&writer, CODE);
	put_unwinding(&writer);
	put_load(&writer, CODE + 2 * CODE_BYTES);
	put_load(&writer, CODE + 2 * CODE_BYTES); /* this function has no table */
	put_unwinding(&writer);
	put_load(&writer, CODE - 4);
	read_all(&writer, frames);
	CHECK_INT(at(frames, CODE - 4), 8);
	CHECK_INT(at(frames, CODE), 16);
	CHECK_INT(at(frames, CODE + CODE_BYTES - 1), 0);
	CHECK_INT(at(frames, CODE + 2 * CODE_BYTES + 1), 0);
	put_unwinding(&writer);
	put_load(&writer, CODE + 2 * CODE_BYTES);
	read_all(&writer, frames);
	CHECK_INT(at(frames, CODE), 16);
	CHECK_INT(at(frames, CODE + 2 * CODE_BYTES), 8);
	jit_frames_free(frames);
}

static void test_moved(void)
{
	struct writer writer;
	struct jit_frames *frames = begin(&writer);

	REQUIRE(frames != NULL);
	put_unwinding(&writer);
	put_load(&writer, CODE);
	put_move(&writer, CODE, CODE + 4096);
	put_move(&writer, CODE + 4096, CODE + 8192);
	put_move(&writer, CODE + 1, CODE + 77);
	read_all(&writer, frames);
	CHECK_INT(at(frames, CODE + 8192 + 1), 16);
	CHECK_INT(at(frames, CODE + 77), 0);
	put_move(&writer, CODE + 8192, CODE + 64);
	read_all(&writer, frames);
	CHECK_INT(at(frames, CODE + 64), 8);
	jit_frames_free(frames);
}

static void test_limit(void)
{
	struct writer writer;
	struct jit_frames *frames = begin(&writer);

	REQUIRE(frames != NULL);
	put_unwinding(&writer);
	put_load(&writer, CODE);
	flush_but(&writer, 0);
	CHECK_INT(jit_frames_read(frames, 16), 0);
	(void)jit_frames_receive(frames);
	CHECK_INT(at(frames, CODE), 0);
	CHECK_INT(jit_frames_read(frames, 0), 0);
	jit_frames_free(frames);
}

static void test_none(void)
{
	static const char texts[][64] = {
		"", "DTiJ", "\177ELF and so on, which is no file of generated code at all"
	};

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		int fd = memfd_create("dump", MFD_CLOEXEC);

		CHECK(write(fd, texts[i], strlen(texts[i])) >= 0);
		CHECK(jit_frames_new(fd) == NULL);
		CHECK(close(fd) == 0);
	}
}

int main(void)
{
	RUN(test_growing);
	RUN(test_overlap);
	RUN(test_moved);
	RUN(test_limit);
	RUN(test_none);
	return test_end();
}
