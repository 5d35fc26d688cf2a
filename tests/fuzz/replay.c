/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Replay - runs a fuzz target over its corpus, without libFuzzer
 *
 * The arguments are files and directories; options are libFuzzer's and are ignored. Runs every
 * input whole and as 16 prefixes, from a heap block of the exact size, so that a sanitizer detects
 * reads past its end. An empty corpus is an error, because it would test nothing.
 */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PREFIXES 16

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int inputs;

static void run_exact(const uint8_t *data, size_t size)
{
	uint8_t *copy = malloc(size ? size : 1);

	if (!copy)
		abort();
	if (size)
		memcpy(copy, data, size);
	LLVMFuzzerTestOneInput(copy, size);
	free(copy);
}

static int run_file(const char *path, size_t size)
{
	FILE *file = fopen(path, "rbe");
	uint8_t *data = malloc(size ? size : 1);
	int r = 0;

	if (!file || !data || fread(data, 1, size, file) != size) {
		fprintf(stderr, "cannot read \"%s\": %s\n", path, strerror(errno));
		r = -1;
	} else {
		for (size_t i = 0; i < PREFIXES; i++)
			run_exact(data, size * i / PREFIXES);
		run_exact(data, size);
		inputs++;
	}
	free(data);
	if (file)
		fclose(file);
	return r;
}

static int run_path(const char *path)
{
	struct dirent *entry;
	struct stat st;
	DIR *folder;
	int r = 0;

	if (stat(path, &st) < 0) {
		fprintf(stderr, "cannot open \"%s\": %s\n", path, strerror(errno));
		return -1;
	}
	if (!S_ISDIR(st.st_mode))
		return run_file(path, (size_t)st.st_size);
	folder = opendir(path);
	if (!folder)
		return -1;
	while (r == 0 && (entry = readdir(folder))) {
		char inner[4096];

		if (entry->d_name[0] == '.')
			continue;
		snprintf(inner, sizeof(inner), "%s/%s", path, entry->d_name);
		r = run_path(inner);
	}
	closedir(folder);
	return r;
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (argv[i][0] != '-' && run_path(argv[i]) < 0)
			return 1;
	if (inputs == 0) {
		fprintf(stderr, "no input: the corpus is empty\n");
		return 1;
	}
	printf("%d inputs\n", inputs);
	return 0;
}
