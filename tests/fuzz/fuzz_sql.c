/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Fuzz target of `profcapture sql`: the text of a query on a small capture with every table. Runs
 * the verb as main() does, with its limits of time and memory. The length of the query chooses the
 * format of its result, and whether its rows are limited.
 */
#include "tests/tools/rows.h"
#include "tools/common/cli.h"
#include "tools/profcapture/verbs.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#define EPOCHS 2
#define ROWS 40 /* number of rows of each timed table in each epoch */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Replaces libc's: the verb calls this only if one step of a query exceeds the timeout, so a call
 * is a finding. */
_Noreturn void _exit(int status)
{
	(void)status;
	abort();
}

/* Replaces libc's, because on a busy machine a step may wait for a CPU for longer than the verb's
 * grace. */
int setitimer(__itimer_which_t which, const struct itimerval *value, struct itimerval *old)
{
	struct itimerval later = *value;

	if (later.it_value.tv_sec || later.it_value.tv_usec)
		later.it_value.tv_sec += 5;
	return (int)syscall(SYS_setitimer, (long)which, &later, old);
}

static int write_capture(struct prof_writer *writer)
{
	int r = prof_writer_add_table(writer, rows_foreign_table());

	for (uint32_t epoch = 0; epoch < EPOCHS; epoch++) {
		uint32_t number = prof_writer_first_epoch(writer) + epoch;

		for (unsigned id = 1; !r && id <= PROF_TABLE_LAST; id++) {
			const struct prof_table_def *def = prof_table_v1(id);
			bool is_timed = id >= PROF_TABLE_SAMPLE;

			if (def)
				r = rows_write(writer, def, is_timed ? (uint64_t)epoch * ROWS : 0,
					       is_timed ? ROWS : rows_of_dictionary(id), 1000,
					       number);
		}
		if (!r)
			r = rows_write(writer, rows_foreign_table(), (uint64_t)epoch * ROWS, ROWS,
				       ROWS / 2, number);
	}
	return r ? r : prof_writer_finish(writer);
}

/* Returns the path of the capture. The first call discards all later output, except that of a
 * sanitizer, which writes to descriptor 2 and not to stderr. */
static char *set_up(void)
{
	static char path[32];
	const struct prof_writer_options options = {
		.mode = PROF_WRITE_NEW,
		.segment = { .start_monotonic_ns = ROWS_START, .wall_ns = 1 },
	};
	struct prof_writer *writer;
	int fd, null;

	if (*path)
		return path;
	rows_prefix = "\xff\"'\n";
	fd = memfd_create("capture", MFD_CLOEXEC);
	null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	if (fd < 0 || null < 0 || dup2(null, STDOUT_FILENO) < 0 ||
	    prof_writer_new(fd, &options, &writer) != 0 || write_capture(writer) != 0)
		abort();
	prof_writer_free(writer);
	stderr = fdopen(null, "w");
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return path;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct cli_verb verbs[] = { { "sql", "Query", verb_sql }, { NULL } };
	static const struct cli_tool tool = { .name = "fuzz", .verbs = verbs };
	static char formats[][8] = { "text", "ndjson", "csv", "json" };
	static char words[][16] = { "fuzz", "sql", "--timeout", "1s", "--format", "--limit", "--" };
	static char limits[][4] = { "0", "5" };
	char *path = set_up(), *query = malloc(size + 1);

	if (!query)
		return 0;
	if (size)
		memcpy(query, data, size);
	query[size] = '\0';
	(void)cli_main(&tool, 11,
		       (char *[]){ words[0], words[1], words[2], words[3], words[4],
				   formats[size % ARRAY_SIZE(formats)], words[5],
				   limits[size / ARRAY_SIZE(formats) % ARRAY_SIZE(limits)],
				   words[6], path, query, NULL });
	free(query);
	return 0;
}
