/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Fuzz target of daemon/engine/perf/record.c: consecutive records, as in a ring. Copies each to a
 * heap block of its exact size, parses it, and reads every byte that the result refers to.
 */
#include "daemon/engine/perf/record.h"

#include "arch/regs.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint64_t sum;

static void read_names(const struct record *record)
{
	if (record->kind == RECORD_MMAP)
		sum += strlen(record->mmap.name);
	if (record->kind == RECORD_COMM)
		sum += strlen(record->comm.name);
	if (record->kind == RECORD_KSYMBOL)
		sum += strlen(record->ksymbol.name);
	if (record->kind == RECORD_CGROUP)
		sum += strlen(record->cgroup.path);
}

static void read_all(const struct record *record)
{
	const struct regs *regs = regs_get(REGS_NATIVE);
	size_t i;

	read_names(record);
	for (i = 0; record->kind == RECORD_SAMPLE && i < record->sample.n_ips; i++)
		sum += record->sample.ips[i];
	for (i = 0; record->kind == RECORD_SAMPLE && i < record->sample.stack_bytes; i++)
		sum += record->sample.stack[i];
	for (i = 0; record->kind == RECORD_SAMPLE && record->sample.registers && i < regs->perf_n;
	     i++)
		sum += record->sample.registers[i];
	for (i = 0; record->kind == RECORD_SAMPLE && i < record->sample.raw_bytes; i++)
		sum += record->sample.raw[i];
	for (i = 0; record->kind == RECORD_MMAP && i < record->mmap.build_id_bytes; i++)
		sum += record->mmap.build_id[i];
}

static void parse_one(const uint8_t *data, size_t size)
{
	struct perf_event_header *copy = malloc(size);
	struct record record;
	uint64_t time_ns;

	if (!copy)
		abort();
	memcpy(copy, data, size);
	copy->size = size;
	if (record_time(copy, &time_ns))
		sum += time_ns;
	if (record_parse(copy, 0, &record))
		read_all(&record);
	if (record_parse(copy, RECORD_STACKS, &record))
		read_all(&record);
	if (record_parse(copy, RECORD_FIELDS, &record))
		read_all(&record);
	if (record_parse(copy, RECORD_FIELDS | RECORD_STACKS, &record))
		read_all(&record);
	if (record_parse_wakeup(copy, &record))
		sum += (uint64_t)record.woken_tid;
	if (record_parse_waking(copy, &record))
		sum += record.waking.pc;
	if (record_parse_sleep(copy, &record) && record.sleep.registers)
		for (int i = 0; i < __builtin_popcountll(regs_get(REGS_NATIVE)->perf_sleep_mask);
		     i++)
			sum += record.sleep.registers[i];
	if (record_parse_code(copy, &record))
		for (size_t i = 0; i < record.sample.raw_bytes; i++)
			sum += record.sample.raw[i];
	sum += record_event_id(copy);
	free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct perf_event_header header;
	size_t bytes;

	while (size >= sizeof(header)) {
		memcpy(&header, data, sizeof(header));
		bytes = header.size;
		if (bytes < sizeof(header) || bytes > size)
			bytes = size;
		if (bytes > UINT16_MAX)
			return 0;
		parse_one(data, bytes);
		data += bytes;
		size -= bytes;
	}
	return 0;
}
