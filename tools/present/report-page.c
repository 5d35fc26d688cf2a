/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "config.h"

#include "tools/present/report-page.h"

#include "tools/present/report-page-parts.h"

#include <string.h>
#include <zlib.h>

void report_page_init(struct report_page *page)
{
	page->columns = g_byte_array_new();
	page->list = out_buffer();
	json_init(&page->json, &page->list);
	json_begin_array(&page->json, NULL);
}

void report_page_done(struct report_page *page)
{
	g_byte_array_unref(page->columns);
	json_done(&page->json);
	out_done(&page->list);
}

static uint64_t number_at(const GArray *rows, const struct report_column *column, size_t row)
{
	const char *at = rows->data + row * g_array_get_element_size((GArray *)rows) +
			 column->offset;
	uint64_t number = 0;
	uint32_t half;

	switch (column->size) {
	case sizeof(uint8_t):
		return (uint8_t)*at;
	case sizeof(uint32_t):
		memcpy(&half, at, sizeof(half));
		return half;
	default:
		memcpy(&number, at, sizeof(number));
		return number;
	}
}

static void add_column(struct report_page *page, const GArray *rows,
		       const struct report_column *column)
{
	g_autofree uint64_t *numbers = g_new(uint64_t, rows->len);
	uint64_t most = 0, above = 0;
	size_t at = page->columns->len;
	unsigned bytes = 1;
	bool differs = rows->len == 0;

	for (size_t i = 0; i < rows->len; i++) {
		uint64_t number = number_at(rows, column, i);

		numbers[i] = number - above;
		most |= numbers[i];
		differs = differs || numbers[i] != numbers[0];
		above = column->delta ? number : 0;
	}
	while (bytes < 8 && most >> (8 * bytes))
		bytes++;
	if (!differs && !column->delta)
		bytes = 0;
	g_byte_array_set_size(page->columns, (guint)(at + (size_t)rows->len * bytes));
	for (unsigned k = 0; k < bytes; k++, at += rows->len)
		for (size_t i = 0; i < rows->len; i++)
			page->columns->data[at + i] = (uint8_t)(numbers[i] >> (8 * k));
	json_begin_object(&page->json, NULL);
	json_string(&page->json, "name", column->name);
	json_uint(&page->json, "rows", rows->len);
	json_uint(&page->json, "bytes", bytes);
	json_bool(&page->json, "delta", column->delta);
	json_uint(&page->json, "scale", column->scale ? column->scale : 1);
	if (bytes == 0)
		json_uint(&page->json, "value", numbers[0]);
	json_end(&page->json);
}

void report_page_add(struct report_page *page, const GArray *rows,
		     const struct report_column *columns, size_t n)
{
	for (size_t i = 0; i < n; i++)
		add_column(page, rows, &columns[i]);
}

/* Writes compressed bytes as base64. */
struct packer {
	z_stream stream;
	struct out *out;
	gint state, save;
};

static void pack(struct packer *packer, const void *bytes, size_t length, int flush)
{
	guchar packed[16384];
	gchar text[(sizeof(packed) / 3 + 1) * 4 + 8];

	packer->stream.next_in = (Bytef *)bytes;
	packer->stream.avail_in = (uInt)length;
	do {
		packer->stream.next_out = packed;
		packer->stream.avail_out = sizeof(packed);
		(void)deflate(&packer->stream, flush);
		out_write(packer->out, text,
			  g_base64_encode_step(packed, sizeof(packed) - packer->stream.avail_out,
					       FALSE, text, &packer->state, &packer->save));
	} while (packer->stream.avail_out == 0);
}

bool report_page_write(const struct report_page *page, const GString *members, struct out *out)
{
	struct packer packer = { .out = out };
	g_autoptr(GString) header = g_string_new("{\"columns\":");
	gchar end[8];
	uint8_t length[4];

	/* "+ 16" selects a gzip stream, whose header has no time and no name. Level 4 takes half
	 * the time of level 6, and makes pages 2 % larger. */
	if (deflateInit2(&packer.stream, 4, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY) != Z_OK)
		return false;
	g_string_append_len(header, page->list.text->str, (gssize)page->list.text->len);
	g_string_append_printf(header, "],%s}", members->str);
	for (unsigned i = 0; i < 4; i++)
		length[i] = (uint8_t)(header->len >> (8 * i));
	out_write(out, report_page_head, report_page_head_size);
	pack(&packer, length, sizeof(length), Z_NO_FLUSH);
	pack(&packer, header->str, header->len, Z_NO_FLUSH);
	pack(&packer, page->columns->data, page->columns->len, Z_FINISH);
	out_write(out, end, g_base64_encode_close(FALSE, end, &packer.state, &packer.save));
	out_write(out, report_page_tail, report_page_tail_size);
	deflateEnd(&packer.stream);
	return true;
}
