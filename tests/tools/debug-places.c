/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * debug-places [--sysroot FOLDER] FILE [FOLDER…]: for each hexadecimal address of standard input,
 * prints a line with the address, a line "\tNAME\tFILE:LINE" for each function, innermost first,
 * and an empty line. The FOLDERs after FILE contain debug files. At the end, prints two durations
 * to standard error: that of the first lookups of all addresses, with their output, and that of one
 * repeated lookup.
 */
#include "tools/symbols/debug-files.h"
#include "tools/symbols/debug-info.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TIMES 20

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void print_frame(const char *name, const char *file, uint32_t line)
{
	printf("\t%s\t%s:%u\n", name ? name : "??", file ? file : "??", line);
}

static void print(uint64_t address, const struct debug_info_place *place)
{
	const struct debug_info_function *function = place->function;
	const char *file = place->file;
	uint32_t line = place->line;

	printf("%" PRIx64 "\n", address);
	for (; function && function->caller; function = function->caller) {
		print_frame(function->name, file, line);
		file = function->file;
		line = function->line;
	}
	print_frame(function ? function->name : NULL, file, line);
	printf("\n");
}

int main(int argc, char **argv)
{
	bool below = argc > 3 && strcmp(argv[1], "--sysroot") == 0;
	char **named = argv + (below ? 3 : 1);
	struct debug_files *files = debug_files_new(
		below ? argv[2] : NULL, named[0] ? (const char *const *)named + 1 : NULL);
	int fd = files && named[0] ? debug_files_open_path(files, named[0]) : -1;
	struct elf_image *elf = fd >= 0 ? elf_image_open(fd) : NULL;
	struct debug_file *found = elf ? debug_files_find(files, elf, named[0], false) : NULL;
	struct debug_info *info;
	uint64_t *addresses = NULL, start;
	size_t n = 0;
	char line[64];

	if (!found || !found->dwarf)
		return 1;
	info = debug_info_new(found);
	start = now_ns();
	while (fgets(line, sizeof(line), stdin)) {
		struct debug_info_place place = { 0 };

		addresses = realloc(addresses, (n + 1) * sizeof(*addresses));
		addresses[n] = strtoull(line, NULL, 16);
		(void)debug_info_find(info, addresses[n], &place);
		print(addresses[n++], &place);
	}
	fprintf(stderr, "%.3f ms", (double)(now_ns() - start) / 1e6);
	start = now_ns();
	for (int i = 0; i < TIMES; i++)
		for (size_t j = 0; j < n; j++) {
			struct debug_info_place place;

			(void)debug_info_find(info, addresses[j], &place);
		}
	fprintf(stderr, " %.1f ns\n", (double)(now_ns() - start) / (TIMES * (double)(n ? n : 1)));
	debug_info_free(info);
	debug_file_free(found);
	elf_image_free(elf);
	debug_files_free(files);
	free(addresses);
	close(fd);
	return 0;
}
