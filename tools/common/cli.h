/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Cli - the command line that profctl and profcapture share
 *
 * A program is a table of verbs. A verb is a function that describes its options in tables and
 * passes them to cli_parse(), which also answers --help and --complete from these tables. So help,
 * completion and parsing cannot differ.
 *
 *     struct info { uint64_t limit; };
 *
 *     static const struct cli_option info_options[] = {
 *             { "limit", 'n', CLI_UINT, offsetof(struct info, limit), "N", N_("rows, 0 = all") },
 *             { NULL },
 *     };
 *     static const struct cli_spec info_spec = { "FILE", N_("Show what it contains."), 1, 1 };
 *
 *     int profcapture_info(int argc, char **argv)
 *     {
 *             struct info info = { .limit = 20 };       the defaults
 *             const struct cli_group groups[] = { { NULL, info_options, &info }, { NULL } };
 *             int status = cli_parse(&info_spec, groups, &argc, &argv);
 *
 *             if (status != CLI_CONTINUE)
 *                     return status;
 *             …  argv[0] is FILE now, argc 1
 *     }
 *
 * A table of options that several verbs share has its own struct, and is passed as another group.
 */
#pragma once

#include "tools/common/out.h"
#include "tools/common/text.h"
#include "tools/common/units.h"

/* Exit status of both programs. */
enum cli_status {
	CLI_CONTINUE = -1, /* only from cli_parse(); not an exit status */
	CLI_OK = 0,
	CLI_FAILURE = 1,
	CLI_USAGE = 2,
	CLI_UNREADABLE = 3,
	CLI_NOT_PERMITTED = 4,
	CLI_NO_DAEMON = 5,
	CLI_NOTHING_CAPTURED = 6,
	CLI_THRESHOLD = 7,
	CLI_NO_VERDICT = 8,
	CLI_INTERRUPTED = 130,
};

/* A GError whose code is an exit status. */
#define CLI_ERROR cli_error_quark()
GQuark cli_error_quark(void);

struct cli_verb {
	const char *name;
	const char *summary;               /* N_(): imperative, no full stop */
	int (*run)(int argc, char **argv); /* argv[0] is the verb; returns an exit status */
	const char *group; /* N_(): heading of this verb and those after it, or NULL */
};

/* A text that `help NAME` prints, in addition to the help of verbs. */
struct cli_topic {
	const char *name; /* NULL ends the list */
	const char *text;
};

/* Both programs list "help" as a verb without `run`. */
struct cli_tool {
	const char *name;               /* "profctl" */
	const char *synopsis;           /* after "VERB [OPTION...]" */
	const char *description;        /* N_() */
	const char *footer;             /* N_(), or NULL */
	const struct cli_verb *verbs;   /* the last entry's name is NULL */
	const struct cli_topic *topics; /* or NULL */
};

enum cli_type {
	CLI_FLAG,   /* bool, set to true; takes no value */
	CLI_STRING, /* const char *, in argv */
	/* GPtrArray *, NULL until first given: all values, in argv; the caller unrefs it */
	CLI_LIST,
	/* GArray * of uint32_t, NULL until first given: repeated or comma-separated; the caller
	 * unrefs it */
	CLI_NUMBERS,
	CLI_UINT,     /* uint64_t */
	CLI_DURATION, /* uint64_t, ns */
	CLI_SIZE,     /* uint64_t, bytes */
	CLI_TIME,     /* struct units_time */
	CLI_RANGE,    /* struct units_range: "A..B", or "A" for only the start */
	CLI_CHOICE,   /* int, index into choices */
	/* const char *, in argv: the value after "=", or the first choice without "=". Completion
	 * offers the choices */
	CLI_OPTIONAL,
};

struct cli_option {
	const char *name; /* without "--"; NULL ends the table */
	char short_name;  /* 0: none */
	enum cli_type type;
	size_t offset;     /* offset of the field in the group's values */
	const char *value; /* name of the value in help; unused for CLI_FLAG */
	const char *help;  /* N_(); NULL: in help the option shares the line of the next one */
	const char *const *choices; /* for CLI_CHOICE and CLI_OPTIONAL, NULL at the end */
	uint64_t min, max;          /* for CLI_UINT; max 0: no limit */
	/* CLI_CHOICE: the short name may omit its value; it then means the first choice */
	bool bare;
};

struct cli_group {
	/* N_() heading in help; NULL: no new heading; the first group then has "Options" */
	const char *title;
	const struct cli_option *options; /* NULL ends the array of groups */
	void *values;
};

struct cli_spec {
	const char *synopsis;    /* N_(): text after "profctl VERB [OPTION...]", or "" */
	const char *description; /* N_(): sentences for --help */
	unsigned min_operands, max_operands; /* UINT_MAX: any number */
	/* the first operand starts a command; options after it belong to the command */
	bool command;
	/* prints the possible operands, one per line, for shells; or NULL */
	void (*complete)(const char *verb);
};

/* Does all the work of main(): locale, --help, --version, `help [VERB]`, the verb; then flushes and
 * checks standard output. Changes signal dispositions and the signal mask (see
 * cli_restore_signals()). */
int cli_main(const struct cli_tool *tool, int argc, char **argv);

/*
 * Parses *argv after the verb. Returns CLI_CONTINUE, and sets *argc and *argv to the operands
 * (NULL-terminated, "--" removed), or returns the status that the verb must return at once:
 * CLI_USAGE after a message, CLI_OK after --help or --complete. A value is "--opt VALUE",
 * "--opt=VALUE", "-oVALUE" or "-o VALUE"; an optional value is only "--opt=VALUE". If an option is
 * repeated, CLI_LIST and CLI_NUMBERS get all values, CLI_RANGE the last value of each bound, and
 * any other type the last value. Names cannot be abbreviated. The short name of a `bare` option
 * takes the next word as its value only if that word is one of the choices.
 */
int cli_parse(const struct cli_spec *spec, const struct cli_group *groups, int *argc, char ***argv)
	MUST_CHECK;

/* Prints "profctl: …" on stderr. Escapes hostile names. Further lines of a message begin with two
 * spaces: "…:\n  …". */
void cli_error(const char *format, ...) PRINTF_LIKE(1, 2);
/* Returns why GLib failed, without what it did: "Permission denied" for "Failed to open file “x”:
 * Permission denied". Our messages name the action and the object. */
const char *cli_reason(const GError *error);
/* Makes cli_warning() print nothing, for --quiet. */
void cli_be_quiet(void);
void cli_warning(const char *format, ...) PRINTF_LIKE(1, 2);
/* Like cli_error(), followed by how to get help. Returns CLI_USAGE. */
int cli_usage_error(const char *format, ...) PRINTF_LIKE(1, 2);
/* Prints and frees the error. Returns its status: the code of a CLI_ERROR, else CLI_FAILURE. */
int cli_fail(GError *error);
/* Sets a CLI_ERROR with this exit status. Returns false. */
bool cli_set_error(GError **error, int status, const char *format, ...) PRINTF_LIKE(3, 4);
/* Prints "profctl: unknown KIND 'WORD'. Did you mean 'X'?", or the valid words. Returns
 * CLI_USAGE. */
int cli_unknown(const char *kind, const char *word, const char *const *valid);
/* Like cli_unknown(), for the value of an option that the verb reads itself. */
int cli_unknown_value(const char *option, const char *text, const char *const *valid);

/* Returns the candidate (NULL-terminated array) that `word` most likely means, or NULL. Uses
 * prefixes and an edit distance in which a swap of neighbors is one edit. */
const char *cli_suggest(const char *word, const char *const *candidates);

/* For --color: { "color", 0, CLI_CHOICE, offsetof(…), "WHEN", N_("…"), cli_color_choices } */
enum cli_color { CLI_COLOR_AUTO, CLI_COLOR_ALWAYS, CLI_COLOR_NEVER };
extern const char *const cli_color_choices[];
/* Returns whether to use colors: an explicit choice decides, then NO_COLOR, then CLICOLOR_FORCE,
 * then whether fd is a capable terminal. */
bool cli_color_wanted(enum cli_color choice, int fd);

/* Returns the number of columns of the terminal at fd: the variable COLUMNS, else the terminal's
 * size, else 80. Returns 0 (no limit) if fd is not a terminal. */
unsigned cli_columns(int fd);

/* Restores the inherited dispositions and signal mask, in a child before exec.
 * Async-signal-safe. */
void cli_restore_signals(void);

/* Returns "profctl" or "profcapture", as passed to cli_main(). */
const char *cli_program(void);
