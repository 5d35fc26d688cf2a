/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "config.h"

#include "tools/profcapture/redact.h"

#include "tools/profile/function-names.h"

#include <string.h>

/* Folders that are the same on all machines. */
static const char *const shared[] = { "/usr/",  "/lib/", "/lib32/", "/lib64/", "/bin/",
				      "/sbin/", "/opt/", "/snap/",  "/nix/",   "/gnu/",
				      "/proc/", "/sys/", "/dev/",   NULL };

/* Returns whether an absolute path starts at `at`. The '/' may also be an operator, or in the
 * middle of a relative path. */
static bool begins_path(const char *text, const char *at)
{
	return *at == '/' && (at == text || !(g_ascii_isalnum(at[-1]) || strchr("._-", at[-1])));
}

char *redact_text(const char *text)
{
	GString *out = g_string_new(NULL);

	for (const char *at = text; *at;) {
		bool is_path = begins_path(text, at);
		bool is_shared = is_path && skip_any_prefix(at, shared);
		/* folders may have spaces, and a text that starts with a path is only a path */
		size_t length = !is_path     ? 1
				: is_shared  ? strcspn(at, " \t\n")
				: at == text ? strcspn(at, "\n")
					     : strcspn(at, "\t\n\"'<>|:)]");
		const char *slash = g_strrstr_len(at, (gssize)length, "/");

		if (!is_path || is_shared || slash == at) {
			g_string_append_len(out, at, (gssize)length);
		} else if (g_str_has_prefix(at, "/home/") && slash == at + strlen("/home")) {
			g_string_append_c(out, '~'); /* the folder has the user's name */
		} else {
			slash++;
			g_string_append_len(out, slash, at + length - slash);
		}
		at += length;
	}
	return g_string_free(out, FALSE);
}

GBytes *redact_metadata(const char *key, const void *value, size_t length)
{
	if (strcmp(key, "host") == 0 || strcmp(key, "options") == 0)
		return NULL;
	if (strcmp(key, "command") == 0) {
		g_autofree char *program = g_strndup(value, length);
		char *name = g_path_get_basename(program);

		return g_bytes_new_take(name, strlen(name));
	}
	return g_bytes_new(value, length);
}
