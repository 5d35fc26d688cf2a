/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Fuzz target of daemon/engine/unwind/jit-frames.c: a file that grows. Looks up its words as
 * addresses. A table that is found must have a rule for the address.
 */
#include "daemon/engine/unwind/jit-frames.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t half = size > 64 ? 64 + (size - 64) / 2 : size;
	int fd = memfd_create("dump", MFD_CLOEXEC);
	struct jit_frames *frames = NULL;
	const struct unwind_table *table;
	uint64_t address, pc;

	if (fd < 0 || write(fd, data, half) != (ssize_t)half)
		abort();
	frames = jit_frames_new(fd);
	if (!frames) {
		close(fd);
		return 0;
	}
	(void)jit_frames_read(frames, 1u << 20);
	(void)jit_frames_receive(frames);
	if (size > half && pwrite(fd, data + half, size - half, (off_t)half) < 0)
		abort();
	(void)jit_frames_read(frames, 1u << 20);
	(void)jit_frames_receive(frames);
	for (size_t i = 0; i + sizeof(pc) <= size; i += sizeof(pc)) {
		memcpy(&pc, data + i, sizeof(pc));
		table = jit_frames_find(frames, pc, &address);
		if (table && !table_get(table, address))
			abort();
	}
	jit_frames_free(frames);
	return 0;
}
