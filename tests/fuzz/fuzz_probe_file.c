/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Fuzz target of arch/probe-file.c: the input is an ELF file. Each name in the file is found, or
 * refused with a reason; each place is in the file.
 */
#include "arch/base.h"
#include "arch/probe-file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MAX_NAMES 64

struct names {
	const struct probe_file *file;
	size_t size;
	unsigned n;
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void find(const struct names *names, const char *name)
{
	struct probe_place places[PROBE_MAX_PLACES];
	char reason[PROBE_REASON_BYTES] = "";
	unsigned n = probe_file_find(names->file, name, true, places, reason);

	if (n > PROBE_MAX_PLACES || (n == 0 && !reason[0]) || !memchr(reason, 0, sizeof(reason)))
		abort();
	for (unsigned i = 0; i < n; i++) {
		if (places[i].offset == 0 || places[i].offset >= names->size ||
		    places[i].semaphore >= names->size ||
		    places[i].n_arguments > PROBE_MAX_ARGUMENTS)
			abort();
		for (unsigned k = 0; k < places[i].n_arguments; k++)
			if (!probe_argument_is_valid(&places[i].arguments[k]))
				abort();
	}
}

static void on_point(const struct probe_point *point, void *data)
{
	struct names *names = data;
	char name[2 * PROBE_MAX_NAME + sizeof(PROBE_RETURN)];

	if (names->n++ >= MAX_NAMES)
		return;
	snprintf(name, sizeof(name), "%s%s%s", point->provider ? point->provider : "",
		 point->provider ? ":" : "", point->name);
	find(names, name);
	strncat(name, PROBE_RETURN, sizeof(name) - strlen(name) - 1);
	find(names, name);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	CLEANUP_CLOSE int fd = memfd_create("probe-file", MFD_CLOEXEC);
	struct names names = { .size = size };
	const char *reason = NULL;
	struct probe_file *file;
	char path[256];

	if (fd < 0 || write(fd, data, size) != (ssize_t)size)
		return 0;
	file = probe_file_new(fd, &reason);
	if (!file != (reason != NULL))
		abort();
	if (!file)
		return 0;
	names.file = file;
	probe_file_debug_path(file, path, sizeof(path));
	probe_file_add_symbols(file, fd);
	probe_file_each(file, true, on_point, &names);
	find(&names, "no such name");
	find(&names, "no:such name");
	probe_file_free(file);
	return 0;
}
