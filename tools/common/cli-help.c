/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Cli help - what --help and --complete print from the tables of verbs and options
 */
#include "config.h"

#include "tools/common/cli-private.h"

#include <glib/gi18n.h>

#define HELP_COLUMNS 90
#define HELP_OPTION_COLUMNS 28

void cli_print_verbs(const struct cli_verb *verbs)
{
	struct out *out = out_stdout();

	out_printf(out, _("Usage: %s VERB [OPTION…]\n"), cli_program());
	out_text(out, _("\nVerbs:\n"));
	for (; verbs->name; verbs++) {
		out_text(out, "  ");
		text_cell(out, verbs->name, 14, TEXT_LEFT);
		out_printf(out, " %s\n", _(verbs->summary));
	}
	out_printf(out, _("\n'%s VERB --help' describes a verb.\n"), cli_program());
}

static void help_option(struct out *out, char short_name, const char *name, const char *value,
			const char *help)
{
	g_autofree char *left = short_name ? g_strdup_printf("  -%c, --%s", short_name, name)
					   : g_strdup_printf("      --%s", name);
	g_autofree char *whole = value ? g_strconcat(left, value[0] == '[' ? "" : " ", value, NULL)
				       : g_strdup(left);
	unsigned width = text_width(whole);

	out_text(out, whole);
	if (width + 2 > HELP_OPTION_COLUMNS)
		out_printf(out, "\n%*s", HELP_OPTION_COLUMNS, "");
	else
		out_printf(out, "%*s", (int)(HELP_OPTION_COLUMNS - width), "");
	text_wrap(out, help, HELP_OPTION_COLUMNS, HELP_OPTION_COLUMNS, HELP_COLUMNS);
}

static void help_group(struct out *out, const struct cli_group *group)
{
	for (const struct cli_option *o = group->options; o->name; o++) {
		g_autofree char *choices =
			o->type == CLI_CHOICE ? g_strjoinv("|", (char **)o->choices) : NULL;

		help_option(out, o->short_name, o->name,
			    choices               ? choices
			    : o->type != CLI_FLAG ? _(o->value)
						  : NULL,
			    _(o->help));
	}
}

void cli_print_help(const struct cli_spec *spec, const struct cli_group *groups)
{
	struct out *out = out_stdout();
	const char *verb = cli_verb_name();

	out_printf(out, _("Usage: %s %s [OPTION…]"), cli_program(), verb ? verb : "");
	if (*spec->synopsis)
		out_printf(out, " %s", _(spec->synopsis));
	out_text(out, "\n\n");
	text_wrap(out, _(spec->description), 0, 0, HELP_COLUMNS);
	for (const struct cli_group *group = groups; group->options; group++) {
		if (group->title || group == groups)
			out_printf(out, "\n%s:\n", group->title ? _(group->title) : _("Options"));
		help_group(out, group);
	}
	out_char(out, '\n');
	help_option(out, 'h', "help", NULL, _("Show this help"));
}

void cli_print_verb_names(const struct cli_verb *verbs)
{
	for (; verbs->name; verbs++)
		out_printf(out_stdout(), "%s\n", verbs->name);
	out_text(out_stdout(), "help\n--help\n--version\n");
}

void cli_print_completions(const struct cli_group *groups)
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
