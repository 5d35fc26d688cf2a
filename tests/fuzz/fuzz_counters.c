/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Fuzz target of daemon/engine/model/machine-counters.c: the first byte selects the file whose text
 * follows. The text is read twice, as a file that has not changed, and once cut in half.
 */
#include "daemon/engine/model/machine-counters.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct message_counter_file file = { .wrap = 1000 };
	struct machine_counters machine;
	struct output output = { 0 };
	uint32_t last_counter = 0;
	guint before;
	char *text;

	if (size < 1)
		return 0;
	file.kind = data[0] % COUNTER_FILE_KINDS;
	g_strlcpy(file.name, "sda", sizeof(file.name));
	text = g_strndup((const char *)data + 1, size - 1);
	machine_counters_init(&machine, &output, &last_counter);
	if (!machine_counters_add(&machine, &file, -1))
		abort();
	machine_counters_parse(&machine, machine.files->pdata[0], text, 1);
	before = machine.n_counters;
	machine_counters_parse(&machine, machine.files->pdata[0], text, 2);
	if (machine.n_counters != before)
		abort();
	text[strlen(text) / 2] = '\0';
	machine_counters_parse(&machine, machine.files->pdata[0], text, 3);
	machine_counters_done(&machine);
	g_free(text);
	return 0;
}
