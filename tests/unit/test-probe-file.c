/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of arch/probe-file.c, with this program as the file.
 */
#include "tests/unit/test.h"

#include "arch/base.h"
#include "arch/cpu.h"
#include "arch/probe-file.h"
#include "arch/regs.h"
#include "tests/tools/static-probe.h"

#include <elf.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

unsigned short demo_unit_semaphore __attribute__((section(".probes"), used));

__attribute__((noinline, used)) static int test_own_function(int a)
{
	STATIC_PROBE("nop", "unit", "demo_unit_semaphore", "-4@%0", "nor"(a));
	STATIC_PROBE("nop", "twice", "0", "", "nor"(a));
	STATIC_PROBE("nop", "twice", "0", "", "nor"(a));
	STATIC_PROBE(".byte 0x0f, 0x1f, 0x44, 0, 0", "nop5", "0", "", "nor"(a));
	return a + 1;
}

/* This function has two names. One of them, __vfork, is the name of a libc function that keeps its
 * caller's address. */
__attribute__((noinline, used)) static int keeper(int a) __asm__("__vfork");
static int keeper(int a)
{
	return a + 2;
}
static int test_other_name(int a) __attribute__((alias("__vfork"), used));

static int open_self(void)
{
	return open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
}

/* Returns the reason why the name is refused; NULL: it is accepted. */
static const char *refusal(const struct probe_file *file, const char *name, bool optimizes_nops)
{
	static char reason[PROBE_REASON_BYTES];
	struct probe_place places[PROBE_MAX_PLACES];

	reason[0] = '\0';
	return probe_file_find(file, name, optimizes_nops, places, reason) ? NULL : reason;
}

static void test_find(void)
{
	CLEANUP_CLOSE int fd = open_self();
	struct probe_place places[PROBE_MAX_PLACES];
	const char *reason = NULL;
	struct probe_file *file = probe_file_new(fd, &reason);
	char text[PROBE_REASON_BYTES];
	uint8_t code = 0;

	CHECK(file);
	CHECK(probe_file_find(file, "test_own_function", true, places, text) == 1);
	CHECK(places[0].offset > 0 && places[0].semaphore == 0);
	/* A program with a sanitizer contains the sanitizer's code, which uses exceptions. */
	CHECK(probe_file_find(file, "test_own_function%return", true, places, text) == 1 ||
	      strstr(text, "exception"));
	CHECK(probe_file_find(file, "demo:unit", true, places, text) == 1);
	CHECK(places[0].semaphore > 0);
	CHECK(pread(fd, &code, 1, (off_t)places[0].offset) == 1);
	CHECK(REGS_NATIVE != REGS_X86_64 || code == 0x90);
	CHECK(probe_file_find(file, "demo:twice", true, places, text) == 2);
	CHECK(places[0].offset != places[1].offset);
	probe_file_free(file);
}

static void test_refused(void)
{
	CLEANUP_CLOSE int fd = open_self();
	const char *reason = NULL;
	struct probe_file *file = probe_file_new(fd, &reason);

	CHECK(file);
	CHECK(strstr(refusal(file, "test_own_functoin", false), "near names: test_own_function"));
	CHECK(strstr(refusal(file, "demo:unti", false), "near names: demo:unit"));
	CHECK(refusal(file, "", false) && refusal(file, ":", false) &&
	      refusal(file, "%return", false));
	CHECK(strstr(refusal(file, "demo:unit%return", false), "no probe") ||
	      strstr(refusal(file, "demo:unit%return", false), "return"));
	/* Some compilers keep only one of two local names, so the other one is not found. */
	CHECK(strstr(refusal(file, "test_other_name%return", false), "keeps its caller") ||
	      !strstr(refusal(file, "__vfork%return", false), "keeps its caller"));
	if (REGS_NATIVE == REGS_X86_64) {
		CHECK(!refusal(file, "demo:nop5", false));
		CHECK(strstr(refusal(file, "demo:nop5", true), "red zone"));
	}
	probe_file_free(file);
}

/* Returns why a file with these bytes is refused. */
static const char *reason_of(const void *bytes, size_t size)
{
	CLEANUP_CLOSE int fd = memfd_create("file", MFD_CLOEXEC);
	const char *reason = NULL;

	CHECK(write(fd, bytes, size) == (ssize_t)size);
	probe_file_free(probe_file_new(fd, &reason));
	return reason;
}

static void test_files(void)
{
	CLEANUP_CLOSE int fd = open_self();
	CLEANUP_CLOSE int folder = open("/", O_RDONLY | O_CLOEXEC);
	const char *reason = NULL;
	Elf64_Ehdr elf;

	CHECK(pread(fd, &elf, sizeof(elf), 0) == (ssize_t)sizeof(elf));
	CHECK(!probe_file_new(folder, &reason) && strstr(reason, "regular"));
	CHECK(strstr(reason_of("#!/bin/sh\n", 10), "ELF"));
	CHECK(strstr(reason_of(&elf, sizeof(elf)), "cut off"));
	elf.e_ident[EI_CLASS] = ELFCLASS32;
	CHECK(strstr(reason_of(&elf, sizeof(elf)), "32-bit"));
	elf.e_ident[EI_CLASS] = ELFCLASS64;
	elf.e_machine = EM_M32;
	CHECK(strstr(reason_of(&elf, sizeof(elf)), "CPU"));
}

/* A table that is not read is no proof that a function is missing. */
static void test_large_symbols(void)
{
	CLEANUP_CLOSE int fd = open_self();
	CLEANUP_CLOSE int large = memfd_create("large", MFD_CLOEXEC);
	const char *reason = NULL;
	struct probe_file *file;
	struct stat status;
	Elf64_Ehdr elf;
	Elf64_Shdr header;
	off_t at;

	CHECK(fstat(fd, &status) == 0 && pread(fd, &elf, sizeof(elf), 0) == (ssize_t)sizeof(elf));
	CHECK(sendfile(large, fd, NULL, (size_t)status.st_size) == status.st_size);
	CHECK(ftruncate(large, INT64_C(400) << 20) == 0);
	for (at = (off_t)elf.e_shoff;; at += (off_t)sizeof(header)) {
		REQUIRE(pread(fd, &header, sizeof(header), at) == (ssize_t)sizeof(header));
		if (header.sh_type == SHT_SYMTAB)
			break;
	}
	header.sh_size = UINT64_C(300) << 20;
	CHECK(pwrite(large, &header, sizeof(header), at) == (ssize_t)sizeof(header));
	file = probe_file_new(large, &reason);
	REQUIRE(file);
	CHECK(strstr(refusal(file, "test_other_name", false), "larger than 256 MiB"));
	probe_file_free(file);
	file = probe_file_new(fd, &reason);
	CHECK(!strstr(refusal(file, "test_no_such_name", false), "larger than"));
	probe_file_free(file);
}

/* Sets each of the first 1024 bytes, which include the program headers, to 255, one at a time. */
static void test_hostile(void)
{
	CLEANUP_CLOSE int fd = open_self();
	CLEANUP_CLOSE int changed = memfd_create("changed", MFD_CLOEXEC);
	struct stat status;
	uint8_t *bytes;

	CHECK(fstat(fd, &status) == 0);
	bytes = malloc((size_t)status.st_size);
	CHECK(pread(fd, bytes, (size_t)status.st_size, 0) == status.st_size);
	CHECK(write(changed, bytes, (size_t)status.st_size) == status.st_size);
	for (off_t at = 0; at < 1024; at++) {
		const uint8_t largest = 0xff;
		const char *reason = NULL;
		struct probe_file *file;

		CHECK(pwrite(changed, &largest, 1, at) == 1);
		file = probe_file_new(changed, &reason);
		if (file) {
			refusal(file, "demo:unit", true);
			refusal(file, "test_own_function%return", true);
		}
		probe_file_free(file);
		CHECK(pwrite(changed, bytes + at, 1, at) == 1);
	}
	free(bytes);
}

int main(void)
{
	test_own_function(1);
	RUN(test_find);
	RUN(test_refused);
	RUN(test_files);
	RUN(test_large_symbols);
	RUN(test_hostile);
	return test_end();
}
