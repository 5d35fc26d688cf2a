/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * make-capture - writes a capture of generated rows (rows.h)
 *
 * For tests and experiments. The same options give the same rows, but different bytes, because the
 * header has a random salt.
 */
#include "tests/tools/rows.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdlib.h>

struct settings {
	uint64_t rows, first, chunk_rows, epochs;
	unsigned int group_rows;
	bool all_tables, foreign_table, crash;
	const char *only; /* write only this table; or NULL */
	enum prof_writer_mode mode;
	const char *path;
};

static const char usage[] =
	"Usage: make-capture [OPTION…] FILE     (- = standard output)\n"
	"  --rows N         rows of each table that is no dictionary (10000)\n"
	"  --first N        number of the first row: time goes on from there (0)\n"
	"  --chunk-rows N   rows of a chunk (2048)\n"
	"  --group-rows N   rows of a row group (the library's default)\n"
	"  --epochs N       epochs to spread the rows over (1)\n"
	"  --all-tables     all tables of version 1, not only sample and the dictionaries\n"
	"  --foreign-table  a table that version 1 does not know\n"
	"  --only TABLE     of the tables that are no dictionaries only this one\n"
	"  --prefix TEXT    put this before every text\n"
	"  --crash          leave the capture unfinished\n"
	"  --append         go on in an existing capture, in a new segment\n"
	"  --extend         the same in a new epoch of its last segment\n";

enum option_id {
	OPTION_ROWS = 1,
	OPTION_FIRST,
	OPTION_CHUNK_ROWS,
	OPTION_GROUP_ROWS,
	OPTION_EPOCHS,
	OPTION_ALL_TABLES,
	OPTION_FOREIGN_TABLE,
	OPTION_ONLY,
	OPTION_PREFIX,
	OPTION_CRASH,
	OPTION_APPEND,
	OPTION_EXTEND,
};

static const struct option options[] = {
	{ "rows", required_argument, NULL, OPTION_ROWS },
	{ "first", required_argument, NULL, OPTION_FIRST },
	{ "chunk-rows", required_argument, NULL, OPTION_CHUNK_ROWS },
	{ "group-rows", required_argument, NULL, OPTION_GROUP_ROWS },
	{ "epochs", required_argument, NULL, OPTION_EPOCHS },
	{ "all-tables", no_argument, NULL, OPTION_ALL_TABLES },
	{ "foreign-table", no_argument, NULL, OPTION_FOREIGN_TABLE },
	{ "only", required_argument, NULL, OPTION_ONLY },
	{ "prefix", required_argument, NULL, OPTION_PREFIX },
	{ "crash", no_argument, NULL, OPTION_CRASH },
	{ "append", no_argument, NULL, OPTION_APPEND },
	{ "extend", no_argument, NULL, OPTION_EXTEND },
	{ 0 },
};

static uint64_t number(const char *text)
{
	char *end;
	uint64_t n = strtoull(text, &end, 10);

	if (*end || end == text) {
		fprintf(stderr, "make-capture: \"%s\" is no number\n", text);
		exit(2);
	}
	return n;
}

static bool parse_options(int argc, char **argv, struct settings *settings)
{
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (option) {
		case OPTION_ROWS:
			settings->rows = number(optarg);
			break;
		case OPTION_FIRST:
			settings->first = number(optarg);
			break;
		case OPTION_CHUNK_ROWS:
			settings->chunk_rows = MAX_OF(number(optarg), (uint64_t)1);
			break;
		case OPTION_GROUP_ROWS:
			settings->group_rows = number(optarg);
			break;
		case OPTION_EPOCHS:
			settings->epochs = MAX_OF(number(optarg), (uint64_t)1);
			break;
		case OPTION_ALL_TABLES:
			settings->all_tables = true;
			break;
		case OPTION_FOREIGN_TABLE:
			settings->foreign_table = true;
			break;
		case OPTION_ONLY:
			settings->only = optarg;
			break;
		case OPTION_PREFIX:
			rows_prefix = optarg;
			break;
		case OPTION_CRASH:
			settings->crash = true;
			break;
		case OPTION_APPEND:
			settings->mode = PROF_WRITE_APPEND;
			break;
		case OPTION_EXTEND:
			settings->mode = PROF_WRITE_EXTEND;
			break;
		default:
			return false;
		}
	}
	if (optind + 1 != argc)
		return false;
	settings->path = argv[optind];
	return true;
}

static bool is_wanted(const struct settings *settings, const struct prof_table_def *def)
{
	if (settings->only)
		return strcmp(def->name, settings->only) == 0;
	return def->id == PROF_TABLE_SAMPLE || settings->all_tables;
}

/* Writes the rows of the wanted tables for one epoch, dictionaries first. */
static int write_epoch(struct prof_writer *writer, const struct settings *settings, uint32_t epoch,
		       uint64_t first, uint64_t rows)
{
	const struct prof_table_def *def;
	int r = 0;

	for (unsigned int id = 1; !r && id < PROF_TABLE_SAMPLE; id++)
		if ((def = prof_table_v1(id)))
			r = rows_write(writer, def, 0, rows_of_dictionary(id), settings->chunk_rows,
				       epoch);
	for (unsigned int id = PROF_TABLE_SAMPLE; !r && id <= PROF_TABLE_LAST; id++)
		if (is_wanted(settings, prof_table_v1(id)))
			r = rows_write(writer, prof_table_v1(id), first, rows, settings->chunk_rows,
				       epoch);
	if (!r && settings->foreign_table)
		r = rows_write(writer, rows_foreign_table(), first, rows, settings->chunk_rows,
			       epoch);
	return r;
}

static int write_rows(struct prof_writer *writer, const struct settings *settings)
{
	uint64_t done = 0;
	int r = settings->foreign_table ? prof_writer_add_table(writer, rows_foreign_table()) : 0;

	for (uint64_t e = 0; !r && e < settings->epochs; e++) {
		uint64_t rows = settings->rows * (e + 1) / settings->epochs - done;

		r = write_epoch(writer, settings, prof_writer_first_epoch(writer) + e,
				settings->first + done, rows);
		done += rows;
	}
	return r || settings->crash ? r : prof_writer_finish(writer);
}

static int make(const struct settings *settings)
{
	const struct prof_writer_options writer_options = {
		.mode = settings->mode,
		.segment = { .boot_id = { 0xb0, 0x07 },
			     .start_monotonic_ns = rows_time(settings->first),
			     .wall_ns = INT64_C(1700000000000000000),
			     .wall_error_ns = 500 },
		.group_rows = settings->group_rows,
	};
	bool new = settings->mode == PROF_WRITE_NEW, out = strcmp(settings->path, "-") == 0;
	int fd = out ? STDOUT_FILENO
		     : open(settings->path, O_RDWR | O_CLOEXEC | (new ? O_CREAT | O_TRUNC : 0),
			    0666);
	struct prof_writer *writer;
	int r;

	if (fd < 0)
		return -errno;
	r = prof_writer_new(fd, &writer_options, &writer);
	if (!r) {
		r = write_rows(writer, settings);
		prof_writer_free(writer);
	}
	if (!out && close(fd) < 0 && !r)
		r = -errno;
	return r;
}

int main(int argc, char **argv)
{
	struct settings settings = { .rows = 10000, .chunk_rows = 2048, .epochs = 1 };
	int r;

	if (!parse_options(argc, argv, &settings)) {
		fputs(usage, stderr);
		return 2;
	}
	r = make(&settings);
	if (r)
		fprintf(stderr, "make-capture: cannot write \"%s\": %s\n", settings.path,
			prof_strerror(r));
	return r ? 1 : 0;
}
