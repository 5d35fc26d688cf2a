/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Source-text - finds and reads the lines of a source file
 *
 * The path comes from a capture and is not trusted, so only regular files of at most MAX_BYTES are
 * read. These files need not be text.
 */
#include "config.h"

#include "tools/profcapture/source-text.h"

#include "arch/base.h"
#include "arch/regular-file.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_BYTES (16u << 20)
#define TAB 8

/* Takes ownership of `opened`. Returns NULL if `opened` is negative, or on error. */
static struct source_text *read_source(int opened, const char *path)
{
	CLEANUP_CLOSE int fd = opened;
	g_autoptr(GString) bytes = g_string_new(NULL);
	GArray *starts;
	struct source_text *source;
	struct stat status;
	char buffer[64 << 10];
	ssize_t n;

	if (fd < 0 || fstat(fd, &status) != 0)
		return NULL;
	while ((n = read(fd, buffer, sizeof(buffer))) > 0 && bytes->len + (gsize)n <= MAX_BYTES)
		g_string_append_len(bytes, buffer, n);
	if (n != 0)
		return NULL;
	starts = g_array_new(FALSE, FALSE, sizeof(uint32_t));
	for (uint32_t i = 0; i <= bytes->len; i++)
		if (i == 0 || i == bytes->len || bytes->str[i - 1] == '\n')
			g_array_append_val(starts, i);
	source = g_new(struct source_text, 1);
	*source = (struct source_text){ .path = g_strdup(path),
					.mtime_s = status.st_mtime,
					.bytes = g_steal_pointer(&bytes),
					.starts = starts };
	return source;
}

struct source_text *source_text_find(const struct debug_files *files, const GPtrArray *folders,
				     const char *file)
{
	for (guint i = 0; folders && i < folders->len; i++) {
		for (const char *tail = file; tail; tail = strchr(tail, '/')) {
			g_autofree char *path = NULL;
			struct source_text *source;

			tail += strspn(tail, "/");
			path = g_build_filename(folders->pdata[i], tail, NULL);
			source = read_source(regular_file_open(-1, path), path);
			if (source)
				return source;
		}
	}
	return read_source(debug_files_open_path(files, file), file);
}

void source_text_free(gpointer pointer)
{
	struct source_text *source = pointer;

	if (!source)
		return;
	g_free(source->path);
	g_string_free(source->bytes, TRUE);
	g_array_unref(source->starts);
	g_free(source);
}

char *source_text_line(const struct source_text *source, uint32_t line)
{
	GString *text;
	uint32_t start, end;

	if (line == 0 || line >= source->starts->len)
		return NULL;
	start = g_array_index(source->starts, uint32_t, line - 1);
	end = g_array_index(source->starts, uint32_t, line);
	text = g_string_new(NULL);
	for (uint32_t i = start; i < end; i++) {
		char c = source->bytes->str[i];

		if (c == '\t')
			g_string_append_printf(text, "%*s", (int)(TAB - text->len % TAB), "");
		else if (c != '\n' && c != '\r')
			g_string_append_c(text, c ? c : ' ');
	}
	return g_string_free(text, FALSE);
}
