/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Symbols of Go's table - the names that a Go program keeps for its own stack traces
 */
#include "arch/base.h"
#include "arch/go-table.h"
#include "tools/common/symbols-source.h"

/* Sets the address of the first function of a position-independent file: from a relocation, else
 * the start of .text. */
static void find_text(const struct elf_image *elf, uint64_t address, struct go_table *table)
{
	GElf_Shdr header;
	Elf_Scn *section = elf_image_get_section(elf, ".rela.dyn", &header);
	Elf_Data *data = section ? elf_image_get_data(elf, section) : NULL;

	if (data && go_table_relocate(data->d_buf, data->d_size, address, &table->text))
		return;
	if (elf_image_get_section(elf, ".text", &header))
		table->text = header.sh_addr;
}

static void name_places(struct symbols_query *query, const struct go_table *table)
{
	struct go_function function;

	for (size_t i = 0; i < query->n_places; i++) {
		const struct symbols_place *place = &query->places[i];
		const char *name = go_table_find(table, place->address, &function)
					   ? go_table_name(table, &function)
					   : NULL;

		if (name)
			symbols_query_add(query, place, function.start, function.end, name,
					  SYMBOLS_FROM_GO);
	}
}

static bool read_go_table(struct symbols_query *query, GError **error)
{
	static const char *const names[] = { ".gopclntab", ".data.rel.ro.gopclntab" };
	struct go_table table;
	Elf_Scn *section = NULL;
	GElf_Shdr header;
	Elf_Data *data;
	size_t text_at;

	for (size_t i = 0; i < ARRAY_SIZE(names) && !section; i++)
		section = elf_image_get_section(query->elf, names[i], &header);
	data = section ? elf_image_get_data(query->elf, section) : NULL;
	if (!data || !go_table_init(&table, data->d_buf, data->d_size, &text_at))
		return true;
	if (text_at > 0 && table.text == 0)
		find_text(query->elf, header.sh_addr + text_at, &table);
	name_places(query, &table);
	return true;
}

const struct symbols_source symbols_go_source = { "Go's table of functions", read_go_table };
