/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Schema - the verb `schema` of both programs
 */
#include "config.h"

#include "tools/common/schema.h"

#include "tools/common/cli.h"

#include <glib/gi18n.h>

static const struct cli_spec schema_spec = {
	.synopsis = "VERB",
	.description = N_("Print the JSON Schema (draft-07) of the output of VERB --json."),
	.min_operands = 1,
	.max_operands = 1,
};

int schema_run(int argc, char **argv)
{
	const struct cli_group groups[] = { { NULL } };
	g_autoptr(GPtrArray) verbs = g_ptr_array_new();
	int status = cli_parse(&schema_spec, groups, &argc, &argv);

	if (status != CLI_CONTINUE)
		return status;
	for (const struct schema *schema = schemas; schema->program; schema++) {
		if (strcmp(schema->program, cli_program()) != 0)
			continue;
		if (strcmp(schema->verb, argv[0]) == 0) {
			out_text(out_stdout(), schema->text);
			return CLI_OK;
		}
		g_ptr_array_add(verbs, (char *)schema->verb);
	}
	g_ptr_array_add(verbs, NULL);
	return cli_unknown(_("schema"), argv[0], (const char *const *)verbs->pdata);
}
