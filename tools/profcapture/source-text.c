/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Source-text - the lines of a source file that can be found and read
 *
 * The path comes from a capture, so only regular files of at most MAX_BYTES are read. Files that
 * are not text are not rejected.
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

static GString *read_all(int fd)
{
	g_autoptr(GString) bytes = g_string_new(NULL);
	char buffer[64 << 10];
	ssize_t n;

	while ((n = read(fd, buffer, sizeof(buffer))) > 0 && bytes->len + (gsize)n <= MAX_BYTES)
		g_string_append_len(bytes, buffer, n);
	return n == 0 ? g_steal_pointer(&bytes) : NULL;
}

static GArray *starts_of(const GString *bytes)
{
	GArray *starts = g_array_new(FALSE, FALSE, sizeof(uint32_t));
	uint32_t start = 0;

	for (;;) {
		const char *end = memchr(bytes->str + start, '\n', bytes->len - start);

		g_array_append_val(starts, start);
		if (start == bytes->len)
			return starts;
		start = end ? (uint32_t)(end + 1 - bytes->str) : (uint32_t)bytes->len;
	}
}

/* Takes ownership of the fd. Returns NULL if it is negative. */
static struct source_text *read_source(int opened, const char *path)
{
	CLEANUP_CLOSE int fd = opened;
	struct source_text *source;
	struct stat status;
	GString *bytes = NULL;

	if (fd >= 0 && fstat(fd, &status) == 0)
		bytes = read_all(fd);
	if (!bytes)
		return NULL;
	source = g_new0(struct source_text, 1);
	source->path = g_strdup(path);
	source->mtime_s = status.st_mtime;
	source->bytes = bytes;
	source->starts = starts_of(bytes);
	return source;
}

static struct source_text *find_below(const char *folder, const char *file)
{
	for (const char *tail = file; tail; tail = strchr(tail, '/')) {
		g_autofree char *path = NULL;
		struct source_text *source;

		tail += strspn(tail, "/");
		path = g_build_filename(folder, tail, NULL);
		source = read_source(regular_file_open(-1, path), path);
		if (source)
			return source;
	}
	return NULL;
}

struct source_text *source_text_find(const struct debug_files *files, const GPtrArray *folders,
				     const char *file)
{
	for (guint i = 0; folders && i < folders->len; i++) {
		struct source_text *source = find_below(folders->pdata[i], file);

		if (source)
			return source;
	}
	return read_source(debug_files_open_path(files, file), file);
}

void source_text_free(struct source_text *source)
{
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
