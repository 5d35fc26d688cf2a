/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Cli - the command line that profctl and profcapture share
 *
 * Parsing is one pass: options are stored in their order, operands are moved to the front of argv.
 * --help and --complete are printed from the same tables.
 * Invariants: (1) an unknown verb, option or choice, or a malformed value, is always rejected
 *                 [test-cli: refusals]
 *             (2) nothing after "--", or after a command's name, is parsed as an option
 *                 [test-cli: commands]
 */
#include "config.h"

#include "tools/common/cli.h"

#include "tools/common/pager.h"

#include <errno.h>
#include <fcntl.h>
#include <glib/gi18n.h>
#include <libintl.h>
#include <locale.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/ioctl.h>

#define HELP_COLUMNS 100u
#define HELP_OPTION_COLUMNS 24

const char *const cli_color_choices[] = { "auto", "always", "never", NULL };

/*
 * Signal dispositions that both programs set, because they may inherit others. Failed writes are
 * reported without SIGPIPE and SIGXFSZ. SIGCHLD must not be ignored, because the kernel would then
 * reap children, and their status would be lost.
 */
static const struct {
	int number;
	void (*handler)(int);
} dispositions[] = { { SIGPIPE, SIG_IGN }, { SIGXFSZ, SIG_IGN }, { SIGCHLD, SIG_DFL } };

/* Signals that verbs wait for. They are unblocked at start, because a parent may have blocked
 * them. */
static const int awaited_signals[] = { SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGWINCH };

static struct {
	const struct cli_tool *tool; /* NULL before cli_main() */
	const char *program;
	const char *verb; /* NULL before the verb is known */
	struct sigaction inherited[ARRAY_SIZE(dispositions)];
	sigset_t inherited_mask;
} cli = { .program = "profctl" };

G_DEFINE_QUARK(cli - error - quark, cli_error)

const char *cli_program(void)
{
	return cli.program;
}

/* Prints a message. Further lines of the message are indented by two spaces. */
static void cli_message(const char *prefix, const char *format, va_list arguments)
{
	g_autofree char *message = g_strdup_vprintf(format, arguments);
	g_auto(GStrv) lines = g_strsplit(message, "\n  ", -1);

	for (char **line = lines; *line; line++) {
		g_autofree char *escaped = text_escape(*line);

		if (line == lines)
			fprintf(stderr, "%s: %s%s\n", cli.program, prefix, escaped);
		else
			fprintf(stderr, "  %s\n", escaped);
	}
}

void cli_error(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	cli_message("", format, arguments);
	va_end(arguments);
}

const char *cli_reason(const GError *error)
{
	const char *colon = g_strrstr(error->message, ": ");

	return colon ? colon + 2 : error->message;
}

static bool is_quiet;

void cli_be_quiet(void)
{
	is_quiet = true;
}

void cli_warning(const char *format, ...)
{
	va_list arguments;

	if (is_quiet)
		return;
	va_start(arguments, format);
	cli_message(_("warning: "), format, arguments);
	va_end(arguments);
}

int cli_usage_error(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	cli_message("", format, arguments);
	va_end(arguments);
	if (cli.verb)
		fprintf(stderr, _("Try '%s %s --help'.\n"), cli.program, cli.verb);
	else
		fprintf(stderr, _("Try '%s --help'.\n"), cli.program);
	return CLI_USAGE;
}

int cli_fail(GError *error)
{
	int status = error->domain == CLI_ERROR ? error->code : CLI_FAILURE;

	cli_error("%s", error->message);
	g_error_free(error);
	return status;
}

bool cli_set_error(GError **error, int status, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	g_propagate_error(error, g_error_new_valist(CLI_ERROR, status, format, arguments));
	va_end(arguments);
	return false;
}

/* Prints "unknown KIND 'WORD'. Did you mean 'X'?". Returns false if no valid word is similar. */
static bool cli_suggested(const char *kind, const char *word, const char *const *valid)
{
	const char *meant = cli_suggest(word, valid);

	if (meant)
		cli_error(_("unknown %s '%s'. Did you mean '%s'?"), kind, word, meant);
	return meant;
}

int cli_unknown(const char *kind, const char *word, const char *const *valid)
{
	g_autofree char *list = g_strjoinv(" ", (char **)valid);

	if (!cli_suggested(kind, word, valid)) {
		cli_error(_("unknown %s '%s'"), kind, word);
		fprintf(stderr, _("Valid: %s\n"), list);
	}
	return CLI_USAGE;
}

/* Reports an unknown option or verb. Does not list the valid ones, because --help does. */
static int cli_unknown_word(const char *kind, const char *word, const char *const *valid)
{
	return cli_suggested(kind, word, valid) ? CLI_USAGE
						: cli_usage_error(_("unknown %s '%s'"), kind, word);
}

static char *cli_describe_unknown(const char *text, const char *const *valid)
{
	const char *meant = cli_suggest(text, valid);
	g_autofree char *list = g_strjoinv(" ", (char **)valid);

	return meant ? g_strdup_printf(_("unknown value '%s'. Did you mean '%s'?"), text, meant)
		     : g_strdup_printf(_("unknown value '%s'. Valid: %s"), text, list);
}

int cli_unknown_value(const char *option, const char *text, const char *const *valid)
{
	g_autofree char *message = cli_describe_unknown(text, valid);

	cli_error("%s: %s", option, message);
	return CLI_USAGE;
}

static bool is_same_letter(char a, char b)
{
	return g_ascii_tolower(a) == g_ascii_tolower(b);
}

/* Returns the optimal string alignment distance: each insertion, deletion, substitution or swap of
 * neighboring characters costs 1, and a change of case costs nothing. */
static unsigned cli_distance(const char *a, const char *b)
{
	enum { LONGEST = 40 };
	unsigned cost[LONGEST + 1][LONGEST + 1];
	size_t n = strlen(a), m = strlen(b);

	if (n > LONGEST || m > LONGEST)
		return UINT_MAX;
	for (size_t i = 0; i <= n; i++) {
		for (size_t j = 0; j <= m; j++) {
			unsigned best;

			if (i == 0 || j == 0) {
				cost[i][j] = (unsigned)(i + j);
				continue;
			}
			best = cost[i - 1][j - 1] + !is_same_letter(a[i - 1], b[j - 1]);
			best = MIN_OF(best, cost[i - 1][j] + 1);
			best = MIN_OF(best, cost[i][j - 1] + 1);
			if (i > 1 && j > 1 && is_same_letter(a[i - 1], b[j - 2]) &&
			    is_same_letter(a[i - 2], b[j - 1]))
				best = MIN_OF(best, cost[i - 2][j - 2] + 1);
			cost[i][j] = best;
		}
	}
	return cost[n][m];
}

const char *cli_suggest(const char *word, const char *const *candidates)
{
	const char *best = NULL;
	size_t length = strlen(word);
	unsigned limit = (unsigned)MAX_OF(1u, MIN_OF(length, 12u) / 3);

	for (unsigned i = 0; candidates[i]; i++) {
		unsigned distance = cli_distance(word, candidates[i]);

		/* At least one letter must match. */
		if (distance <= limit && distance < strlen(candidates[i])) {
			best = candidates[i];
			limit = distance - (distance > 0);
			if (distance == 0)
				break;
		}
	}
	for (unsigned i = 0; !best && length >= 2 && candidates[i]; i++)
		if (candidates[i][0] &&
		    g_ascii_strncasecmp(candidates[i], word,
					MIN_OF(length, strlen(candidates[i]))) == 0)
			best = candidates[i];
	return best;
}

/* ---- Help and completion --------------------------------------------------------------------- */

static void append_option(GString *line, const struct cli_option *option)
{
	g_autofree char *choices =
		option->type == CLI_CHOICE ? g_strjoinv("|", (char **)option->choices) : NULL;

	g_string_append(line, line->len ? ", " : "  ");
	if (option->short_name)
		g_string_append_printf(line, "-%c, ", option->short_name);
	g_string_append_printf(line, "--%s", option->name);
	/* A longer list does not fit into a line; the option's help describes the choices. */
	if (choices && strlen(choices) < HELP_COLUMNS)
		g_string_append_printf(line, " %s", choices);
	else if (option->type != CLI_FLAG)
		g_string_append_printf(line, "%s%s", option->value[0] == '[' ? "" : " ",
				       _(option->value));
}

static unsigned help_columns(void)
{
	unsigned columns = cli_columns(STDOUT_FILENO);

	return columns ? MIN_OF(columns, HELP_COLUMNS) : HELP_COLUMNS;
}

/* Prints and clears a line of options. */
static void print_options(GString *line, const char *help)
{
	unsigned width = MAX_OF(text_width(line->str) + 2, (unsigned)HELP_OPTION_COLUMNS);
	struct out *out = out_stdout();

	out_text(out, line->str);
	if (help) {
		out_printf(out, "%*s", (int)(width - text_width(line->str)), "");
		text_wrap(out, _(help), width, HELP_OPTION_COLUMNS, help_columns());
	} else {
		out_char(out, '\n');
	}
	g_string_truncate(line, 0);
}

/* Options without a description share the line and the description of the next option. */
static void print_help(const struct cli_spec *spec, const struct cli_group *groups)
{
	g_autoptr(GString) line = g_string_new(NULL);
	struct out *out = out_stdout();

	out_printf(out, _("Usage: %s %s [OPTION...]"), cli.program, cli.verb ? cli.verb : "");
	if (*spec->synopsis)
		out_printf(out, " %s", _(spec->synopsis));
	out_char(out, '\n');
	text_wrap(out, _(spec->description), 0, 0, help_columns());
	for (const struct cli_group *group = groups; group->options; group++) {
		if (group == groups)
			out_char(out, '\n');
		if (group->title || group == groups)
			out_printf(out, "%s\n", group->title ? _(group->title) : _("Options"));
		for (const struct cli_option *o = group->options; o->name; o++) {
			append_option(line, o);
			if (o->help || (!o[1].name && (!group[1].options || group[1].title)))
				print_options(line, o->help);
		}
	}
}

static void print_verbs(void)
{
	struct out *out = out_stdout();
	unsigned indent = 2, columns = 0;

	for (const struct cli_verb *verb = cli.tool->verbs; verb->name; verb++) {
		columns = MAX_OF(columns, text_width(verb->name) + 2);
		if (verb->group)
			indent = MAX_OF(indent, text_width(_(verb->group)) + 2);
	}
	out_printf(out, _("Usage: %s VERB [OPTION...]"), cli.program);
	out_printf(out, "%s\n%s\n\n", cli.tool->synopsis, _(cli.tool->description));
	for (const struct cli_verb *verb = cli.tool->verbs; verb->name; verb++) {
		g_autofree char *group = verb->group ? g_strconcat(_(verb->group), ":", NULL)
						     : g_strdup("");

		text_cell(out, group, indent);
		text_cell(out, verb->name, columns);
		out_printf(out, "%s\n", _(verb->summary));
	}
	if (cli.tool->footer)
		out_printf(out, "\n%s\n", _(cli.tool->footer));
}

/* Prints the options for shells, one per line. "--opt" (or "-o") takes no value, or only one after
 * "="; "--opt=" takes one; "--opt=X" is one of its choices. Lines without "-" are operands, which
 * the verb's complete() prints. */
static void print_completions(const struct cli_group *groups)
{
	struct out *out = out_stdout();

	for (; groups->options; groups++) {
		for (const struct cli_option *o = groups->options; o->name; o++) {
			const bool bare = o->type == CLI_FLAG || o->type == CLI_OPTIONAL;
			const char *equals = bare ? "" : "=";

			if (o->short_name)
				out_printf(out, "-%c%s\n", o->short_name, equals);
			out_printf(out, "--%s%s\n", o->name, equals);
			for (unsigned i = 0; o->choices && o->choices[i]; i++)
				out_printf(out, "--%s=%s\n", o->name, o->choices[i]);
		}
	}
	out_text(out, "--help\n");
}

/* ---- Parsing --------------------------------------------------------------------------------- */

static const struct cli_option *cli_find(const struct cli_group *groups, const char *name,
					 char short_name, const struct cli_group **ret_group)
{
	for (; groups->options; groups++) {
		for (const struct cli_option *o = groups->options; o->name; o++) {
			if (name ? strcmp(o->name, name) == 0 : o->short_name == short_name) {
				*ret_group = groups;
				return o;
			}
		}
	}
	return NULL;
}

/* `word`: as the user wrote it, with its dashes. */
static int cli_unknown_option(const struct cli_group *groups, const char *word)
{
	g_autoptr(GPtrArray) valid = g_ptr_array_new_with_free_func(g_free);

	for (; groups->options; groups++)
		for (const struct cli_option *o = groups->options; o->name; o++)
			g_ptr_array_add(valid, g_strconcat("--", o->name, NULL));
	g_ptr_array_add(valid, g_strdup("--help"));
	g_ptr_array_add(valid, NULL);
	return cli_unknown_word(_("option"), word, (const char *const *)valid->pdata);
}

static bool cli_store_numbers(GArray **numbers, const char *text, GError **error)
{
	g_auto(GStrv) parts = g_strsplit(text, ",", -1);
	g_autoptr(GArray) parsed = g_array_new(FALSE, FALSE, sizeof(uint32_t));

	for (unsigned i = 0; parts[i]; i++) {
		uint64_t value;
		uint32_t number;

		if (!units_parse_uint(parts[i], 0, UINT32_MAX, &value, error))
			return false;
		number = (uint32_t)value;
		g_array_append_val(parsed, number);
	}
	if (parsed->len == 0)
		return units_parse_uint(text, 0, UINT32_MAX, &(uint64_t){ 0 }, error);
	if (!*numbers)
		*numbers = g_array_new(FALSE, FALSE, sizeof(uint32_t));
	g_array_append_vals(*numbers, parsed->data, parsed->len);
	return true;
}

static bool cli_store_choice(int *choice, const struct cli_option *option, const char *text,
			     GError **error)
{
	g_autofree char *message = NULL;

	for (int i = 0; option->choices[i]; i++) {
		if (strcmp(option->choices[i], text) == 0) {
			*choice = i;
			return true;
		}
	}
	message = cli_describe_unknown(text, option->choices);
	return cli_set_error(error, CLI_USAGE, "%s", message);
}

static bool cli_store(const struct cli_option *option, void *values, const char *text,
		      GError **error)
{
	void *field = (char *)values + option->offset;

	switch (option->type) {
	case CLI_FLAG:
		*(bool *)field = true;
		return true;
	case CLI_STRING:
	case CLI_OPTIONAL:
		*(const char **)field = text;
		return true;
	case CLI_LIST:
		if (!*(GPtrArray **)field)
			*(GPtrArray **)field = g_ptr_array_new();
		g_ptr_array_add(*(GPtrArray **)field, (char *)text);
		return true;
	case CLI_NUMBERS:
		return cli_store_numbers(field, text, error);
	case CLI_UINT:
		return units_parse_uint(text, option->min, option->max ? option->max : UINT64_MAX,
					field, error);
	case CLI_DURATION:
		return units_parse_duration(text, field, error);
	case CLI_SIZE:
		return units_parse_size(text, field, error);
	case CLI_TIME:
		return units_parse_time(text, field, error);
	case CLI_RANGE:
		return units_parse_range(text, field, error);
	case CLI_CHOICE:
		return cli_store_choice(field, option, text, error);
	}
	g_assert_not_reached();
}

/* `written`: the option as the user wrote it, for messages. */
static int cli_apply(const struct cli_option *option, const struct cli_group *group,
		     const char *written, const char *value)
{
	g_autoptr(GError) error = NULL;

	if (cli_store(option, group->values, value, &error))
		return CLI_CONTINUE;
	cli_error("%s: %s", written, error->message);
	return CLI_USAGE;
}

/* Parses --name, --name=VALUE or --name VALUE. Advances *i past a separate value. */
static int cli_long(const struct cli_group *groups, int argc, char **argv, int *i)
{
	const char *equals = strchr(argv[*i] + 2, '=');
	g_autofree char *name = equals ? g_strndup(argv[*i] + 2, (gsize)(equals - argv[*i] - 2))
				       : g_strdup(argv[*i] + 2);
	g_autofree char *written = g_strconcat("--", name, NULL);
	const struct cli_group *group = NULL;
	const struct cli_option *option = cli_find(groups, name, 0, &group);
	const char *value = equals ? equals + 1 : NULL;

	if (equals && (strcmp(name, "help") == 0 || (option && option->type == CLI_FLAG)))
		return cli_usage_error(_("%s takes no value"), written);
	if (!option)
		return cli_unknown_option(groups, written);
	if (!equals && option->type == CLI_OPTIONAL) {
		value = option->choices[0];
	} else if (!equals && option->type != CLI_FLAG) {
		if (*i + 1 >= argc)
			return cli_usage_error(_("%s needs a value: %s %s"), written, written,
					       _(option->value));
		value = argv[++*i];
	}
	return cli_apply(option, group, written, value);
}

/* Parses -abc, -oVALUE or -o VALUE. */
static int cli_short(const struct cli_group *groups, int argc, char **argv, int *i)
{
	for (const char *p = argv[*i] + 1; *p; p++) {
		char written[] = { '-', *p, '\0' };
		const struct cli_group *group = NULL;
		const struct cli_option *option = cli_find(groups, NULL, *p, &group);
		const char *next = p[1] ? p + 1 : argv[*i + 1], *value = NULL;
		bool takes_next = option && option->type != CLI_FLAG;
		int status;

		/* If the first letter is unknown, report the whole word, because -json means
		 * --json. */
		if (!option)
			return cli_unknown_option(groups, p == argv[*i] + 1 ? argv[*i] : written);
		if (option->bare && !(next && g_strv_contains(option->choices, next))) {
			value = option->choices[0];
			takes_next = false;
		} else if (takes_next) {
			if (p[1] == '\0' && *i + 1 >= argc)
				return cli_usage_error(_("%s needs a value: %s %s"), written,
						       written, _(option->value));
			value = next;
			*i += p[1] == '\0';
		}
		status = cli_apply(option, group, written, value);
		if (status != CLI_CONTINUE || takes_next)
			return status;
	}
	return CLI_CONTINUE;
}

int cli_parse(const struct cli_spec *spec, const struct cli_group *groups, int *argc, char ***argv)
{
	char **arguments = *argv;
	int n = 1; /* operands go to arguments[1..n) */
	bool only_operands = false, dashes = false;

	for (int i = 1; i < *argc; i++) {
		int status = CLI_CONTINUE;

		if (only_operands || arguments[i][0] != '-' || arguments[i][1] == '\0') {
			arguments[n++] = arguments[i];
			only_operands = only_operands || spec->command;
		} else if (strcmp(arguments[i], "--") == 0) {
			only_operands = dashes = true;
		} else if (strcmp(arguments[i], "--help") == 0 || strcmp(arguments[i], "-h") == 0) {
			print_help(spec, groups);
			return CLI_OK;
		} else if (strcmp(arguments[i], "--complete") == 0) {
			print_completions(groups);
			if (spec->complete)
				spec->complete(cli.verb);
			return CLI_OK;
		} else if (arguments[i][1] == '-') {
			status = cli_long(groups, *argc, arguments, &i);
		} else {
			status = cli_short(groups, *argc, arguments, &i);
		}
		if (status != CLI_CONTINUE)
			return status;
	}
	arguments[n] = NULL;
	*argc = n - 1;
	*argv = arguments + 1;
	if (spec->command && dashes && *argc == 0)
		return cli_usage_error(_("'--' needs a command after it"));
	if ((unsigned)*argc < spec->min_operands)
		return cli_usage_error(_("missing operand: %s %s %s"), cli.program,
				       cli.verb ? cli.verb : "", _(spec->synopsis));
	if ((unsigned)*argc > spec->max_operands)
		return cli_usage_error(_("unexpected operand '%s'"), (*argv)[spec->max_operands]);
	return CLI_CONTINUE;
}

static int cli_unknown_verb(const char *word)
{
	static const char *const options[] = { "--help", "--version", NULL };
	g_autoptr(GPtrArray) verbs = g_ptr_array_new();

	for (const struct cli_verb *verb = cli.tool->verbs; verb->name; verb++)
		g_ptr_array_add(verbs, (char *)verb->name);
	g_ptr_array_add(verbs, NULL);
	return word[0] == '-'
		       ? cli_unknown_word(_("option"), word, options)
		       : cli_unknown_word(_("verb"), word, (const char *const *)verbs->pdata);
}

static int cli_run(int argc, char **argv)
{
	char help[] = "--help";
	char *help_argv[] = { argc > 1 ? argv[1] : NULL, help, NULL };

	if (argc < 1)
		return cli_usage_error(_("no verb given"));
	if (strcmp(argv[0], "--version") == 0) {
		out_printf(out_stdout(), "%s %s\n", cli.program, PROF_VERSION);
		return CLI_OK;
	}
	for (const struct cli_topic *topic = cli.tool->topics;
	     topic && topic->name && strcmp(argv[0], "help") == 0 && argc == 2; topic++) {
		if (strcmp(topic->name, argv[1]) == 0) {
			out_text(out_stdout(), topic->text);
			return CLI_OK;
		}
	}
	if (strcmp(argv[0], "help") == 0 && argc > 1)
		return cli_run(2, help_argv);
	if (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0 ||
	    strcmp(argv[0], "help") == 0) {
		print_verbs();
		return CLI_OK;
	}
	if (strcmp(argv[0], "--complete") == 0) {
		for (const struct cli_verb *verb = cli.tool->verbs; verb->name; verb++)
			out_printf(out_stdout(), "%s\n", verb->name);
		out_text(out_stdout(), "--help\n--version\n");
		return CLI_OK;
	}
	for (const struct cli_verb *verb = cli.tool->verbs; verb->name; verb++) {
		if (strcmp(verb->name, argv[0]) == 0) {
			cli.verb = verb->name;
			return verb->run(argc, argv);
		}
	}
	return cli_unknown_verb(argv[0]);
}

static void set_up_process(void)
{
	static const int directions[] = { O_WRONLY, O_RDONLY, O_RDONLY };
	sigset_t awaited;

	/*
	 * If the caller closed a standard stream, the next opened file would get its number and
	 * receive messages. Open /dev/null there in the opposite direction, so that reading and
	 * writing still fail. Started commands inherit this descriptor.
	 */
	for (int fd = 0; fd < (int)ARRAY_SIZE(directions); fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", directions[fd]) < 0)
			break;
	for (size_t i = 0; i < ARRAY_SIZE(dispositions); i++) {
		const struct sigaction action = { .sa_handler = dispositions[i].handler };

		sigaction(dispositions[i].number, &action, &cli.inherited[i]);
	}
	sigemptyset(&awaited);
	for (size_t i = 0; i < ARRAY_SIZE(awaited_signals); i++)
		sigaddset(&awaited, awaited_signals[i]);
	sigprocmask(SIG_UNBLOCK, &awaited, &cli.inherited_mask);
}

int cli_main(const struct cli_tool *tool, int argc, char **argv)
{
	/* message catalogs of a build tree, set by `meson devenv` */
	const char *catalogs = secure_getenv("PROF_LOCALE_DIR");
	int status, error;

	cli.tool = tool;
	cli.program = tool->name;
	cli.verb = NULL;
	set_up_process();
	setlocale(LC_ALL, "");
	bindtextdomain(GETTEXT_PACKAGE, catalogs ? catalogs : PROF_DEFAULT_LOCALE_DIR);
	bind_textdomain_codeset(GETTEXT_PACKAGE, "UTF-8");
	textdomain(GETTEXT_PACKAGE);
	status = cli_run(argc - 1, argv + 1);
	error = out_flush(out_stdout());
	/* Quitting the pager early causes EPIPE, which is not an error then. */
	if (pager_end() && error == -EPIPE)
		error = 0;
	/* Do not report EPIPE, because a reader such as head may need no more. */
	if (error < 0 && error != -EPIPE)
		cli_error(_("cannot write to standard output: %s"), g_strerror(-error));
	if (error < 0 && status == CLI_OK)
		status = CLI_FAILURE;
	out_done(out_stdout());
	return status;
}

void cli_restore_signals(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(dispositions); i++)
		sigaction(dispositions[i].number, &cli.inherited[i], NULL);
	sigprocmask(SIG_SETMASK, &cli.inherited_mask, NULL);
}

bool cli_color_wanted(enum cli_color choice, int fd)
{
	const char *force = g_getenv("CLICOLOR_FORCE");
	const char *no = g_getenv("NO_COLOR");
	const char *terminal = g_getenv("TERM");

	if (choice != CLI_COLOR_AUTO)
		return choice == CLI_COLOR_ALWAYS;
	if (no && *no)
		return false;
	if (force && *force && strcmp(force, "0") != 0)
		return true;
	return isatty(fd) && terminal && strcmp(terminal, "dumb") != 0;
}

unsigned cli_columns(int fd)
{
	const char *told = g_getenv("COLUMNS");
	uint64_t columns;
	struct winsize size;

	if (!isatty(fd))
		return 0;
	if (told && units_parse_uint(told, 1, UINT16_MAX, &columns, NULL))
		return (unsigned)columns;
	if (ioctl(fd, TIOCGWINSZ, &size) < 0 || size.ws_col == 0)
		return 80;
	return size.ws_col;
}
