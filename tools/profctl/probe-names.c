/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Probe names - completes the names that users write for function probes and static probes
 *
 *     libc.so.6:malloc                   /usr/lib/x86_64-linux-gnu/libc.so.6:malloc
 *     ./shop:Stats::add%return           /opt/shop/shop:_ZN5Stats3addEi%return
 *     python:gc__start                   /usr/bin/python3.11:python:gc__start
 *
 * "a:b" may also be a tracepoint, which takes precedence. profd gets a path without symbolic
 * links, and searches the file again, because profctl may have read a different file.
 */
#include "config.h"

#include "tools/profctl/probe-names.h"

#include "arch/base.h"
#include "arch/regular-file.h"
#include "daemon/broker/events.h"
#include "tools/common/cli.h"
#include "tools/symbols/demangle.h"

#include <gelf.h>
#include <glib/gi18n.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define MAX_LIBRARIES 512
#define MAX_MEANT 5

/* ---- Files ----------------------------------------------------------------------------------- */

/* Returns the folders of libraries: the usual ones, and those of /etc/ld.so.conf.d. */
static GPtrArray *library_folders(void)
{
	static const char *const usual[] = { "/lib64", "/usr/lib64", "/lib", "/usr/lib",
					     "/usr/local/lib" };
	GPtrArray *folders = g_ptr_array_new_with_free_func(g_free);
	GDir *dir = g_dir_open("/etc/ld.so.conf.d", 0, NULL);
	const char *name;

	while (dir && (name = g_dir_read_name(dir))) {
		g_autofree char *path = g_build_filename("/etc/ld.so.conf.d", name, NULL);
		g_autofree char *text = NULL;
		g_auto(GStrv) lines = NULL;

		if (!g_file_get_contents(path, &text, NULL, NULL))
			continue;
		lines = g_strsplit(text, "\n", -1);
		for (char **line = lines; *line; line++)
			if (g_strstrip(*line)[0] == '/')
				g_ptr_array_add(folders, g_strdup(*line));
	}
	if (dir)
		g_dir_close(dir);
	for (size_t i = 0; i < ARRAY_SIZE(usual); i++)
		g_ptr_array_add(folders, g_strdup(usual[i]));
	return folders;
}

static char *without_links(const char *path)
{
	char *real = realpath(path, NULL), *copy = g_strdup(real);

	free(real);
	return copy;
}

static bool is_native(const char *path)
{
	CLEANUP_CLOSE int fd = regular_file_open(-1, path);
	const char *reason = NULL;
	struct probe_file *file = fd >= 0 ? probe_file_new(fd, &reason) : NULL;

	probe_file_free(file);
	return file != NULL;
}

char *probe_names_find_file(const char *name)
{
	g_autofree char *program = NULL;
	g_autoptr(GPtrArray) folders = NULL;

	if (strchr(name, '/'))
		return without_links(name);
	program = g_find_program_in_path(name);
	if (program)
		return without_links(program);
	folders = library_folders();
	for (guint i = 0; i < folders->len; i++) {
		g_autofree char *path = g_build_filename(folders->pdata[i], name, NULL);

		/* A library of another architecture may have the same name. */
		if (is_native(path))
			return without_links(path);
	}
	return NULL;
}

struct probe_file *probe_names_open(const char *path, int *ret_fd, char **ret_reason)
{
	CLEANUP_CLOSE int fd = regular_file_open(-1, path);
	CLEANUP_CLOSE int debug_fd = -1;
	const char *reason = NULL;
	char debug_path[PATH_MAX];
	struct probe_file *file;

	if (fd < 0) {
		*ret_reason = g_strdup(g_strerror(-fd));
		return NULL;
	}
	file = probe_file_new(fd, &reason);
	if (!file) {
		*ret_reason = g_strdup(reason);
		return NULL;
	}
	if (probe_file_debug_path(file, debug_path, sizeof(debug_path)))
		debug_fd = regular_file_open(-1, debug_path);
	if (debug_fd >= 0)
		probe_file_add_symbols(file, debug_fd);
	*ret_fd = steal_fd(&fd);
	return file;
}

static void add_path(GPtrArray *paths, char *path)
{
	if (path && paths->len < MAX_LIBRARIES &&
	    !g_ptr_array_find_with_equal_func(paths, path, g_str_equal, NULL))
		g_ptr_array_add(paths, path);
	else
		g_free(path);
}

/* Adds the libraries that an ELF file needs. */
static void add_needed(GPtrArray *paths, const char *path)
{
	CLEANUP_CLOSE int fd = regular_file_open(-1, path);
	Elf *elf = fd >= 0 ? elf_begin(fd, ELF_C_READ, NULL) : NULL;
	Elf_Scn *section = NULL;
	GElf_Shdr header;
	GElf_Dyn entry;

	while (elf && (section = elf_nextscn(elf, section))) {
		Elf_Data *data;

		if (!gelf_getshdr(section, &header) || header.sh_type != SHT_DYNAMIC)
			continue;
		data = elf_getdata(section, NULL);
		for (int i = 0; data && gelf_getdyn(data, i, &entry) && entry.d_tag != DT_NULL;
		     i++) {
			const char *name =
				entry.d_tag == DT_NEEDED
					? elf_strptr(elf, header.sh_link, entry.d_un.d_val)
					: NULL;

			if (name)
				add_path(paths, probe_names_find_file(name));
		}
	}
	elf_end(elf);
}

/* Returns the paths of the programs and libraries of the command or the processes. */
static GPtrArray *recorded_files(char *const *command, const GArray *pids)
{
	GPtrArray *paths = g_ptr_array_new_with_free_func(g_free);

	elf_version(EV_CURRENT);
	if (command)
		add_path(paths, probe_names_find_file(command[0]));
	for (guint i = 0; i < paths->len; i++)
		add_needed(paths, paths->pdata[i]);
	for (guint i = 0; pids && i < pids->len; i++) {
		g_autofree char *path =
			g_strdup_printf("/proc/%u/maps", g_array_index(pids, uint32_t, i));
		FILE *maps = fopen(path, "re");
		char line[PATH_MAX + 128];

		while (maps && fgets(line, sizeof(line), maps)) {
			char *file = strchr(line, '/');

			if (file && strstr(line, " r-xp ")) {
				g_strchomp(file);
				add_path(paths, without_links(file));
			}
		}
		if (maps)
			fclose(maps);
	}
	return paths;
}

/* ---- Names in a file ------------------------------------------------------------------------- */

struct meant {
	const char *provider, *name; /* provider: NULL for a function */
	bool is_there;               /* the file has exactly this name */
	GPtrArray *raw;              /* mangled names of the function; NULL: not searched for */
};

static void look_for(const struct probe_point *point, void *data)
{
	struct meant *meant = data;
	char *readable;
	size_t n = strlen(meant->name);

	if (meant->provider) {
		meant->is_there |= point->provider && strcmp(point->name, meant->name) == 0 &&
				   strcmp(point->provider, meant->provider) == 0;
		return;
	}
	if (point->provider)
		return;
	meant->is_there |= strcmp(point->name, meant->name) == 0;
	if (!meant->raw || point->name[0] != '_')
		return;
	readable = demangle_get(point->name);
	if (readable && strncmp(readable, meant->name, n) == 0 &&
	    (readable[n] == '\0' || readable[n] == '(' || readable[n] == '[') &&
	    !g_ptr_array_find_with_equal_func(meant->raw, point->name, g_str_equal, NULL))
		g_ptr_array_add(meant->raw, g_strdup(point->name));
	free(readable);
}

static bool has_static_probe(const char *path, const char *provider, const char *name)
{
	struct meant meant = { .provider = provider, .name = name };
	CLEANUP_CLOSE int fd = -1;
	g_autofree char *reason = NULL;
	struct probe_file *file = probe_names_open(path, &fd, &reason);

	if (file)
		probe_file_each(file, false, look_for, &meant);
	probe_file_free(file);
	return meant.is_there;
}

/* Returns the name of a function as the file has it: a readable C++ or Rust name is replaced by the
 * mangled one. NULL and an error: several functions have this readable name. */
static char *raw_name(const char *path, const char *name, GError **error)
{
	bool is_return = g_str_has_suffix(name, PROBE_RETURN);
	g_autofree char *function =
		g_strndup(name, strlen(name) - (is_return ? strlen(PROBE_RETURN) : 0));
	g_autoptr(GPtrArray) raw = g_ptr_array_new_with_free_func(g_free);
	struct meant meant = { .name = function, .raw = raw };
	g_autofree char *reason = NULL, *list = NULL;
	CLEANUP_CLOSE int fd = -1;
	struct probe_file *file = probe_names_open(path, &fd, &reason);

	if (file)
		probe_file_each(file, true, look_for, &meant);
	probe_file_free(file);
	if (meant.is_there || raw->len == 0)
		return g_strdup(name);
	if (raw->len == 1)
		return g_strconcat(raw->pdata[0], is_return ? PROBE_RETURN : "", NULL);
	g_ptr_array_set_size(raw, MIN_OF((int)raw->len, MAX_MEANT));
	g_ptr_array_add(raw, NULL);
	list = g_strjoinv(", ", (char **)raw->pdata);
	cli_set_error(error, CLI_USAGE,
		      _("--event: '%s' has several functions '%s'. Name one of them: %s"), path,
		      function, list);
	return NULL;
}

/* ---- Events ---------------------------------------------------------------------------------- */

/* Returns whether "a:b" is an event with a modifier, or a tracepoint of this machine. */
static bool is_other_event(const struct event_dirs *dirs, const char *text)
{
	struct event event;

	return event_parse(NULL, text, &event, NULL) &&
	       (event.kind != PROF_SOURCE_TRACEPOINT || event_parse(dirs, text, &event, NULL));
}

/* Returns the completed name, or a copy of the text if it names no probe that is found here. */
static char *complete_name(const struct event_dirs *dirs, const char *text, char *const *command,
			   const GArray *pids, GError **error)
{
	const char *rest = strchr(text, ':'), *colon;
	g_autofree char *first = NULL, *path = NULL, *raw = NULL;
	bool is_path = text[0] == '/' || text[0] == '.';

	if (!rest || rest == text || !rest[1] || (!is_path && is_other_event(dirs, text)))
		return g_strdup(text);
	first = g_strndup(text, (gsize)(rest++ - text));
	if (!is_path && (strchr(first, '/') || strchr(rest, '/')))
		return g_strdup(text);
	if (command && !is_path && g_str_has_suffix(command[0], first)) {
		g_autofree char *base = g_path_get_basename(command[0]);

		if (strcmp(base, first) == 0)
			path = probe_names_find_file(command[0]);
	}
	if (!path)
		path = probe_names_find_file(first);
	if (is_path && !path) {
		cli_set_error(error, CLI_USAGE, _("--event: there is no file '%s'"), first);
		return NULL;
	}
	if (path && strchr(path, ':')) {
		cli_set_error(error, CLI_USAGE,
			      _("--event: '%s' cannot be probed, because its path has a colon"),
			      path);
		return NULL;
	}
	/* The text may name a static probe of the file, or of the recorded program. */
	colon = strchr(rest, ':');
	if (path && colon && colon[1] != ':')
		return g_strdup_printf("%s:%s", path, rest);
	if (!colon) {
		g_autoptr(GPtrArray) files = recorded_files(command, pids);

		for (guint i = 0; i < files->len && !is_path; i++)
			if (has_static_probe(files->pdata[i], first, rest))
				return g_strdup_printf("%s:%s", (char *)files->pdata[i], text);
	}
	if (!path)
		return g_strdup(text);
	raw = raw_name(path, rest, error);
	return raw ? g_strdup_printf("%s:%s", path, raw) : NULL;
}

/* Like complete_name(), for a name that a filter may follow. */
static char *complete(const struct event_dirs *dirs, const char *text, char *const *command,
		      const GArray *pids, GError **error)
{
	size_t length = event_probe_length(text);
	g_autofree char *name = g_strndup(text, length);
	g_autofree char *completed = NULL;

	if (!text[length] || is_other_event(dirs, text))
		return complete_name(dirs, text, command, pids, error);
	completed = complete_name(dirs, name, command, pids, error);
	return completed ? g_strconcat(completed, text + length, NULL) : NULL;
}

bool probe_names_complete(GPtrArray *events, char *const *command, const GArray *pids,
			  GError **error)
{
	struct event_dirs dirs;
	bool ok = true;

	event_dirs_prepare();
	event_dirs_open(&dirs);
	for (guint i = 0; ok && i < events->len; i++) {
		char *name = complete(&dirs, events->pdata[i], command, pids, error);

		ok = name != NULL;
		if (ok) {
			g_free(events->pdata[i]);
			events->pdata[i] = name;
		}
	}
	event_dirs_done(&dirs);
	return ok;
}
