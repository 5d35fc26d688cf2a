/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Cli - the command line that profctl and profcapture share
 *
 * A program is a table of verbs; a verb is a function that describes its options in tables and
 * hands them to cli_parse(), which also answers --help and --complete from those tables. So help,
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
 * Options that several verbs share are one table with a struct of their own, passed as another
 * group.
 */
#pragma once

#include "tools/common/out.h"
#include "tools/common/text.h"
#include "tools/common/units.h"

/* Exit status of both programs. */
enum cli_status {
	CLI_CONTINUE = -1, /* of cli_parse(): not an exit status */
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
	const char *summary;               /* N_(): imperative, no full stop; NULL: only named */
	int (*run)(int argc, char **argv); /* argv[0] is the verb; returns an exit status */
	const char *group;                 /* N_(): of this verb and those after it; or NULL */
};

/* What `help NAME` prints besides the help of verbs. */
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
	const struct cli_verb *verbs;   /* the last one's name is NULL */
	const struct cli_topic *topics; /* or NULL */
};

enum cli_type {
	CLI_FLAG,   /* bool, set to true; takes no value */
	CLI_STRING, /* const char *, of argv */
	CLI_LIST, /* GPtrArray *, NULL until first given: every value, of argv; the caller unrefs */
	/* GArray * of uint32_t, NULL until first given: repeated or comma-separated; the caller
	 * unrefs */
	CLI_NUMBERS,
	CLI_UINT,     /* uint64_t */
	CLI_DURATION, /* uint64_t, ns */
	CLI_SIZE,     /* uint64_t, bytes */
	CLI_TIME,     /* struct units_time */
	CLI_RANGE,    /* struct units_range: "A..B", or "A" for the start alone */
	CLI_CHOICE,   /* int, index into choices */
	/* const char *, of argv: the value after "=", or the first choice without "=". Completion
	 * offers the other choices */
	CLI_OPTIONAL,
};

struct cli_option {
	const char *name; /* without "--"; NULL ends the table */
	char short_name;  /* 0: none */
	enum cli_type type;
	size_t offset;     /* of the field in the group's values */
	const char *value; /* how help calls the value; unused for CLI_FLAG */
	const char *help;  /* N_(); NULL: in help the option shares the line of the next one */
	const char *const *choices; /* of CLI_CHOICE and CLI_OPTIONAL, NULL at the end */
	uint64_t min, max;          /* of CLI_UINT; max 0: no limit */
	bool bare; /* of CLI_CHOICE: the short name may omit its value, for the first choice */
};

struct cli_group {
	/* N_() heading in help; NULL: continues the previous group, or "Options" at first */
	const char *title;
	const struct cli_option *options; /* NULL ends the array of groups */
	void *values;
};

struct cli_spec {
	const char *synopsis; /* N_(): the text after "profctl VERB [OPTION...]", "" for nothing */
	const char *description;             /* N_(): sentences for --help */
	unsigned min_operands, max_operands; /* UINT_MAX: any number */
	bool command; /* the first operand starts a command; options after it are its own */
	/* prints the available operands, one per line, for shells; or NULL */
	void (*complete)(const char *verb);
};

/*
 * The whole of main(): locale, --help, --version, `help [VERB]`, the verb; then it flushes and
 * checks standard output. Changes dispositions and the signal mask (see cli_restore_signals).
 */
int cli_main(const struct cli_tool *tool, int argc, char **argv);

/*
 * Parses *argv after the verb. Returns CLI_CONTINUE, with *argc and *argv being the operands
 * (NULL-terminated, "--" removed), or the status with which the verb returns at once: CLI_USAGE
 * after a message, CLI_OK after --help. A value is "--opt VALUE", "--opt=VALUE", "-oVALUE" or "-o
 * VALUE"; an optional value is "--opt=VALUE" only. The last of a repeated option counts. Names
 * cannot be abbreviated. A bare short name takes the next word as its value only if that is one of
 * its choices.
 */
int cli_parse(const struct cli_spec *spec, const struct cli_group *groups, int *argc, char ***argv)
	MUST_CHECK;

/* Prints "profctl: …" on stderr, with the escape sequences of hostile names made harmless. Further
 * lines of a message begin with two spaces: "…:\n  …". */
void cli_error(const char *format, ...) PRINTF_LIKE(1, 2);
void cli_warning(const char *format, ...) PRINTF_LIKE(1, 2);
/* Same, followed by how to get help; returns CLI_USAGE. */
int cli_usage_error(const char *format, ...) PRINTF_LIKE(1, 2);
/* Prints and frees the error; returns its status: the code of a CLI_ERROR, else CLI_FAILURE. */
int cli_fail(GError *error);
/* Sets a CLI_ERROR with that exit status; returns false. */
bool cli_set_error(GError **error, int status, const char *format, ...) PRINTF_LIKE(3, 4);
/* Prints "profctl: unknown KIND 'WORD'. Did you mean 'X'?", or the valid ones; returns
 * CLI_USAGE. */
int cli_unknown(const char *kind, const char *word, const char *const *valid);
/* The same for the value of an option that the verb reads itself. */
int cli_unknown_value(const char *option, const char *text, const char *const *valid);

/* Returns the candidate (NULL-terminated array) that `word` most likely meant, or NULL. Uses the
 * Damerau-Levenshtein distance and prefixes. */
const char *cli_suggest(const char *word, const char *const *candidates);

/* For --color: { "color", 0, CLI_CHOICE, offsetof(…), "WHEN", N_("…"), cli_color_choices } */
enum cli_color { CLI_COLOR_AUTO, CLI_COLOR_ALWAYS, CLI_COLOR_NEVER };
extern const char *const cli_color_choices[];
/* An explicit choice wins, then NO_COLOR, then CLICOLOR_FORCE, then whether fd is a capable
 * terminal. */
bool cli_color_wanted(enum cli_color choice, int fd);

/* Returns the columns of the terminal at fd: COLUMNS, else its own size; 0 (no limit) if fd is not
 * a terminal. */
unsigned cli_columns(int fd);

/* Restores the inherited dispositions and signal mask, in a child before exec;
 * async-signal-safe. */
void cli_restore_signals(void);

/* "profctl" or "profcapture", as given to cli_main(). */
const char *cli_program(void);
