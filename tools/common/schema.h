/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Schema - the verb `schema` of both programs: prints the JSON Schema of another verb's --json. */
#pragma once

struct schema {
	const char *program, *verb;
	const char *text; /* JSON Schema, draft-07 */
};

/* Generated from data/schema/ by the build. The last entry's program is NULL. */
extern const struct schema schemas[];

/* The function of the verb, for each program's table of verbs. */
int schema_run(int argc, char **argv);
