/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Python module - the name by which a file of Python code is imported, such as "json.decoder" */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define PYTHON_MODULE_BYTES 4096u

static inline bool python_starts_with(const char *text, const char *start)
{
	return strncmp(text, start, strlen(start)) == 0;
}

/* Returns the part of a path below the first folder of modules: site-packages, dist-packages,
 * python3 or python3.N. If the path has no such folder, returns the file's name. */
static inline const char *python_below_root(const char *path)
{
	static const char site[] = "/site-packages/", dist[] = "/dist-packages/";
	const char *below = strrchr(path, '/');

	below = below ? below + 1 : path;
	for (const char *at = path; (at = strchr(at, '/')); at++) {
		size_t length = 0;

		if (python_starts_with(at, site) || python_starts_with(at, dist))
			return at + strlen(site);
		if (python_starts_with(at, "/python3.") || python_starts_with(at, "/python3/"))
			length = strcspn(at + 1, "/") + 1;
		if (length > 0 && at[length] == '/' && !python_starts_with(at + length, site) &&
		    !python_starts_with(at + length, dist))
			return at + length + 1;
	}
	return below;
}

/* Writes the module's name into `buffer` (PYTHON_MODULE_BYTES), cut to fit, and returns `buffer`.
 * For code that is in no file, `file` is a text such as "<string>", which becomes the name;
 * "<frozen os>" becomes "os", and "" becomes "?". */
static inline const char *python_module(const char *file, char *buffer)
{
	static const char frozen[] = "<frozen ", source[] = ".py", package[] = "/__init__";
	bool is_path = file[0] != '<' && file[0] != '\0';
	const char *from = is_path ? python_below_root(file) : *file ? file : "?";
	size_t n = strlen(from);

	if (python_starts_with(from, frozen) && from[n - 1] == '>') {
		from += strlen(frozen);
		n = strlen(from) - 1;
	}
	if (is_path && n >= strlen(source) && strcmp(from + n - strlen(source), source) == 0)
		n -= strlen(source);
	if (is_path && n >= strlen(package) &&
	    strncmp(from + n - strlen(package), package, strlen(package)) == 0)
		n -= strlen(package);
	if (n > PYTHON_MODULE_BYTES - 1)
		n = PYTHON_MODULE_BYTES - 1;
	for (size_t i = 0; i < n; i++)
		buffer[i] = is_path && from[i] == '/' ? '.' : from[i];
	buffer[n] = '\0';
	return buffer;
}
