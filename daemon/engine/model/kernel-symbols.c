/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Kernel symbols - names for the kernel code that was executed
 *
 * A client that adds names to a capture later has no right to see kernel addresses, and may run on
 * a machine with another kernel. So the engine itself writes the symbols of kernel addresses that
 * samples hit: at the end of the recording, and also during it, for a live view and in case the
 * recording is killed.
 * Invariant: a symbol is written once, even if many of its addresses were hit
 * [test-engine-samples: symbols]
 * Runs on the drain thread only.
 */
#include "base/order.h"
#include "daemon/engine/model/kallsyms.h"
#include "daemon/engine/model/kernel.h"

#define LIVE_WAIT_NS UINT64_C(1000000000)
#define FILE_WAIT_NS (8 * LIVE_WAIT_NS)

void kernel_read_text(struct kernel *kernel, int kallsyms)
{
	uint64_t stext;

	if (kallsyms_read_stext(kallsyms, &stext) == 0)
		kernel_set_text(kernel, stext);
}

COMPARE_BY(by_address, uint64_t, ORDER(*a, *b))

static uint64_t *sorted_addresses(const struct kernel *kernel, size_t *ret_n)
{
	guint n = g_hash_table_size(kernel->requested), i = 0;
	uint64_t *addresses = g_new(uint64_t, n + 1);
	GHashTableIter iter;
	gpointer key;

	g_hash_table_iter_init(&iter, kernel->requested);
	while (g_hash_table_iter_next(&iter, &key, NULL))
		addresses[i++] = GPOINTER_TO_SIZE(key);
	qsort(addresses, n, sizeof(*addresses), by_address);
	*ret_n = n;
	return addresses;
}

static void write_symbol(struct kernel *kernel, const struct kallsyms_symbol *symbol, uint32_t id,
			 struct output *output)
{
	uint64_t offset;
	struct image *image = kernel_find(kernel, symbol->start, &offset);
	uint32_t name = output_text(output, symbol->name);

	output_need(output, &image->row);
	output_add(output, PROF_TABLE_SYMBOL,
		   (const struct prof_value[]){
			   [PROF_SYMBOL_ID] = PROF_NUMBER(id),
			   [PROF_SYMBOL_IMAGE] = PROF_NUMBER(image->row.id),
			   [PROF_SYMBOL_START] = PROF_NUMBER(offset),
			   [PROF_SYMBOL_LENGTH] = PROF_NUMBER(symbol->length),
			   [PROF_SYMBOL_NAME] = PROF_NUMBER(name),
			   [PROF_SYMBOL_RAW_NAME] = PROF_NUMBER(name),
			   [PROF_SYMBOL_FILE] = PROF_NUMBER(0),
			   [PROF_SYMBOL_LINE] = PROF_NUMBER(0),
			   [PROF_SYMBOL_INLINE_PARENT] = PROF_NUMBER(0),
			   [PROF_SYMBOL_DECLARED_FILE] = PROF_NUMBER(0),
			   [PROF_SYMBOL_DECLARED_LINE] = PROF_NUMBER(0),
		   });
}

void kernel_write_symbols(struct kernel *kernel, int kallsyms, struct output *output)
{
	size_t n, i;
	g_autofree uint64_t *addresses = sorted_addresses(kernel, &n);
	g_autofree struct kallsyms_symbol *symbols = g_new0(struct kallsyms_symbol, n + 1);

	/* If addresses are hidden or unreadable, readers show the frames as addresses. */
	if (n == 0 || kallsyms_read(kallsyms, addresses, n, symbols) != 0)
		return;
	for (i = 0; i < n; i++)
		if (symbols[i].name &&
		    g_hash_table_add(kernel->written, GSIZE_TO_POINTER(symbols[i].start)))
			write_symbol(kernel, &symbols[i], g_hash_table_size(kernel->written),
				     output);
	g_hash_table_remove_all(kernel->requested);
	kallsyms_done(symbols, n);
}

void kernel_write_symbols_soon(struct kernel *kernel, int kallsyms, struct output *output,
			       bool is_read_live, uint64_t now_ns)
{
	uint64_t first_ns = is_read_live ? LIVE_WAIT_NS : FILE_WAIT_NS;

	if (kernel->next_ns == 0 && !is_read_live)
		kernel->next_ns = now_ns + first_ns;
	if (now_ns < kernel->next_ns || g_hash_table_size(kernel->requested) == 0)
		return;
	kernel_write_symbols(kernel, kallsyms, output);
	kernel->wait_ns = CLAMP(2 * kernel->wait_ns, first_ns, 32 * first_ns);
	kernel->next_ns = now_ns + kernel->wait_ns;
}
