/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Fuzz target of daemon/engine/model/snapshot.c: a snapshot. Each item is also parsed as every kind
 * of text.
 */
#include "daemon/engine/model/snapshot.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint64_t sum;

static void read_bytes(const char *bytes, size_t length)
{
	while (length--)
		sum += bytes[length];
}

static void parse_lists(const char *text, size_t length)
{
	const char *at = text;
	size_t left = length;
	struct snapshot_range range;
	struct snapshot_module module;

	while (snapshot_next_range(&at, &left, &range))
		read_bytes(range.name, range.name_bytes);
	if (left != 0)
		abort();
	at = text;
	left = length;
	while (snapshot_next_module(&at, &left, &module))
		read_bytes(module.name, module.name_bytes);
	if (left != 0)
		abort();
}

static void parse_text(const char *text, size_t length)
{
	struct snapshot_stat stat;
	struct snapshot_status status;
	struct snapshot_range range;
	struct snapshot_usage usage;
	struct snapshot_counts counts;
	const char *path;
	size_t path_bytes;

	if (snapshot_parse_rollup(text, length, &usage))
		sum += usage.rss_bytes + usage.pss_bytes;
	if (snapshot_parse_statm(text, length, &usage))
		sum += usage.rss_bytes;
	if (snapshot_parse_counts(text, length, &counts))
		sum += counts.minor_faults + counts.rss_bytes;
	if (snapshot_parse_io(text, length, &counts))
		sum += counts.disk_written_bytes;
	if (snapshot_parse_stat(text, length, &stat))
		sum += stat.start_ticks + strlen(stat.comm);
	if (snapshot_parse_status(text, length, &status))
		sum += status.n_ns_pids ? status.ns_pids[status.n_ns_pids - 1] : 0;
	if (snapshot_parse_cgroup(text, length, &path, &path_bytes))
		read_bytes(path, path_bytes);
	if (snapshot_parse_mapping(text, length, &range)) {
		read_bytes(range.name, range.name_bytes);
		read_bytes((const char *)range.build_id, range.build_id_bytes);
	}
	parse_lists(text, length);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct snapshot snapshot = { .bytes = data, .length = size };
	struct snapshot_item item;
	size_t before = 0;

	while (snapshot_next(&snapshot, &item)) {
		if (snapshot.offset <= before || snapshot.offset > size)
			abort();
		before = snapshot.offset;
		parse_text(item.text, item.length);
	}
	parse_text((const char *)data, size);
	return 0;
}
