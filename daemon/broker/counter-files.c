/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Counter files - opens the files in which the kernel counts what the machine does
 *
 * The engine may open nothing, so it gets descriptors, and reads them as long as the session lasts.
 * None of these files can block: they are in procfs, sysfs and cgroupfs. A device that appears
 * later is not recorded. profd.service gives profd its own network namespace, so the network
 * counters come from the recorded process's namespace, or from init's if the whole system is
 * recorded. Energy is only for clients that may record others: it reveals what others compute, so
 * the kernel lets only root read it.
 */
#include "config.h"

#include "daemon/broker/counter-files.h"

#include "arch/base.h"
#include "daemon/broker/error.h"

#include <dirent.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <stdio.h>
#include <sys/stat.h>

static const char *const group_names[COUNTER_GROUPS + 1] = {
	[COUNTER_GROUP_CPU] = "cpu",
	[COUNTER_GROUP_FREQUENCY] = "frequency",
	[COUNTER_GROUP_PRESSURE] = "pressure",
	[COUNTER_GROUP_MEMORY] = "memory",
	[COUNTER_GROUP_DISK] = "disk",
	[COUNTER_GROUP_NETWORK] = "network",
	[COUNTER_GROUP_CGROUP] = "cgroup",
	[COUNTER_GROUP_ENERGY] = "energy",
	[COUNTER_GROUP_TEMPERATURE] = "temperature",
	[COUNTER_GROUP_PROCESS] = "process",
};

bool counter_groups_parse(GVariant *names, uint32_t *ret_groups, GError **error)
{
	g_autofree char *valid = g_strjoinv(", ", (char **)group_names);
	uint32_t groups = 0;
	const char *name;
	GVariantIter iter;

	g_variant_iter_init(&iter, names);
	while (g_variant_iter_next(&iter, "&s", &name)) {
		uint32_t group = strcmp(name, "all") == 0 ? (1u << COUNTER_GROUPS) - 1 : 0;

		for (unsigned i = 0; i < COUNTER_GROUPS; i++)
			if (strcmp(name, group_names[i]) == 0)
				group = 1u << i;
		if (!group)
			return broker_fail(error, BROKER_ERROR_INVALID_OPTION,
					   "unknown counters \"%s\"; valid are all, %s", name,
					   valid);
		groups |= group;
	}
	if (!groups)
		return broker_fail(error, BROKER_ERROR_INVALID_OPTION,
				   "option \"counters\" is empty; valid are all, %s", valid);
	*ret_groups = groups;
	return true;
}

struct opening {
	struct counter_files *files;
	bool is_public;
};

/* Reads the first line of a small file. Returns false if the line is empty or cannot be read. */
static bool read_word(const char *path, char *ret_word, size_t bytes)
{
	CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, ret_word, bytes - 1) : -1;

	if (n <= 0)
		return false;
	ret_word[n] = '\0';
	ret_word[strcspn(ret_word, "\n")] = '\0';
	return *ret_word;
}

static void add_file(struct opening *opening, const char *path, enum counter_file kind,
		     const char *name)
{
	struct counter_files *files = opening->files;
	struct message_counter_file *file = &files->files[files->n];
	struct stat status;
	char byte;
	int fd;

	if (files->n == MAX_COUNTER_FILES)
		return;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	/* The file may exist although the kernel cannot read the hardware. */
	if (fstat(fd, &status) != 0 || (opening->is_public && !(status.st_mode & S_IROTH)) ||
	    (pread(fd, &byte, 1, 0) <= 0 && kind != COUNTER_FILE_CGROUP_IO)) {
		close(fd);
		return;
	}
	*file = (struct message_counter_file){ .kind = kind };
	g_strlcpy(file->name, name, sizeof(file->name));
	files->fds[files->n++] = fd;
}

static gint compare_names(gconstpointer a, gconstpointer b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Returns the names in a directory that begin with `prefix`, sorted. */
static GPtrArray *list_names(const char *path, const char *prefix)
{
	GPtrArray *names = g_ptr_array_new_with_free_func(g_free);
	DIR *dir = opendir(path);
	struct dirent *entry;

	while (dir && (entry = readdir(dir)))
		if (entry->d_name[0] != '.' && g_str_has_prefix(entry->d_name, prefix))
			g_ptr_array_add(names, g_strdup(entry->d_name));
	if (dir)
		closedir(dir);
	g_ptr_array_sort(names, compare_names);
	return names;
}

/* Adds DIR/ENTRY/FILE for each entry. If the entry has a file `label`, the counter is named "LABEL
 * (ENTRY)", or "cpuLABEL" for a frequency; else "ENTRY". */
static void add_each(struct opening *opening, const char *dir, const char *prefix, const char *file,
		     const char *label, enum counter_file kind)
{
	g_autoptr(GPtrArray) names = list_names(dir, prefix);

	for (guint i = 0; i < names->len; i++) {
		const char *entry = names->pdata[i];
		g_autofree char *path = g_build_filename(dir, entry, file, NULL);
		g_autofree char *label_path = label ? g_build_filename(dir, entry, label, NULL)
						    : NULL;
		g_autofree char *name = NULL;
		unsigned before = opening->files->n;
		char word[64];

		if (!label || !read_word(label_path, word, sizeof(word)))
			name = g_strdup(entry);
		else if (kind == COUNTER_FILE_FREQUENCY)
			name = g_strdup_printf("cpu%s", word);
		else
			name = g_strdup_printf("%s (%s)", word, entry);
		add_file(opening, path, kind, name);
		if (kind == COUNTER_FILE_ENERGY && opening->files->n > before) {
			g_autofree char *range =
				g_build_filename(dir, entry, "max_energy_range_uj", NULL);

			if (read_word(range, word, sizeof(word)))
				opening->files->files[before].wrap = strtoull(word, NULL, 10);
		}
	}
}

/* Adds the process's cgroup in the unified hierarchy. */
static void add_cgroup(struct opening *opening, pid_t pid)
{
	static const char *const roots[] = { "/sys/fs/cgroup", "/sys/fs/cgroup/unified" };
	static const struct {
		enum counter_file kind;
		const char *name;
	} kinds[] = { { COUNTER_FILE_CGROUP_CPU, "cpu.stat" },
		      { COUNTER_FILE_CGROUP_MEMORY, "memory.current" },
		      { COUNTER_FILE_CGROUP_IO, "io.stat" } };
	g_autofree char *list = g_strdup_printf("/proc/%d/cgroup", pid);
	g_autofree char *text = NULL;
	g_auto(GStrv) lines = NULL;

	if (!g_file_get_contents(list, &text, NULL, NULL))
		return;
	lines = g_strsplit(text, "\n", -1);
	for (char **line = lines; *line; line++) {
		const char *group = *line + strlen("0::");

		/* "/../a" is outside of profd's view of the hierarchy. */
		if (!g_str_has_prefix(*line, "0::/") || strstr(group, "/.."))
			continue;
		for (size_t i = 0; i < ARRAY_SIZE(roots) * ARRAY_SIZE(kinds); i++) {
			const char *root = roots[i / ARRAY_SIZE(kinds)];
			g_autofree char *events =
				g_build_filename(root, group, "cgroup.procs", NULL);
			g_autofree char *path = g_build_filename(
				root, group, kinds[i % ARRAY_SIZE(kinds)].name, NULL);

			if (g_access(events, F_OK) == 0)
				add_file(opening, path, kinds[i % ARRAY_SIZE(kinds)].kind, group);
		}
	}
}

static void add_group(struct opening *opening, enum counter_group group, pid_t pid)
{
	char path[64];

	switch (group) {
	case COUNTER_GROUP_CPU:
		add_file(opening, "/proc/stat", COUNTER_FILE_STAT, "");
		break;
	case COUNTER_GROUP_FREQUENCY:
		add_each(opening, "/sys/devices/system/cpu/cpufreq", "policy", "scaling_cur_freq",
			 "affected_cpus", COUNTER_FILE_FREQUENCY);
		break;
	case COUNTER_GROUP_PRESSURE:
		add_file(opening, "/proc/pressure/cpu", COUNTER_FILE_PRESSURE, "cpu");
		add_file(opening, "/proc/pressure/memory", COUNTER_FILE_PRESSURE, "memory");
		add_file(opening, "/proc/pressure/io", COUNTER_FILE_PRESSURE, "io");
		break;
	case COUNTER_GROUP_MEMORY:
		add_file(opening, "/proc/meminfo", COUNTER_FILE_MEMINFO, "");
		add_file(opening, "/proc/vmstat", COUNTER_FILE_VMSTAT, "");
		break;
	case COUNTER_GROUP_DISK:
		add_each(opening, "/sys/block", "", "stat", NULL, COUNTER_FILE_DISK);
		break;
	case COUNTER_GROUP_NETWORK:
		snprintf(path, sizeof(path), "/proc/%d/net/dev", pid ? pid : 1);
		add_file(opening, path, COUNTER_FILE_NETWORK, "");
		break;
	case COUNTER_GROUP_CGROUP:
		add_cgroup(opening, pid);
		break;
	case COUNTER_GROUP_ENERGY:
		add_each(opening, "/sys/class/powercap", "", "energy_uj", "name",
			 COUNTER_FILE_ENERGY);
		break;
	case COUNTER_GROUP_TEMPERATURE:
		add_each(opening, "/sys/class/thermal", "thermal_zone", "temp", "type",
			 COUNTER_FILE_TEMPERATURE);
		break;
	case COUNTER_GROUP_PROCESS: /* read by profd-files */
	case COUNTER_GROUPS:
		break;
	}
}

char *counter_files_open(struct counter_files *files, uint32_t groups, pid_t pid, bool is_public)
{
	struct opening opening = { .files = files, .is_public = is_public };
	g_autoptr(GString) missing = g_string_new(NULL);

	files->n = 0;
	for (unsigned i = 0; i < COUNTER_GROUPS; i++) {
		unsigned before = files->n;
		/* The whole system has neither a cgroup nor a process. */
		bool is_of_pid = i == COUNTER_GROUP_CGROUP || i == COUNTER_GROUP_PROCESS;

		if (!(groups & 1u << i))
			continue;
		if (pid || !is_of_pid)
			add_group(&opening, i, pid);
		if (files->n == before && (i != COUNTER_GROUP_PROCESS || !pid))
			g_string_append_printf(missing, "%s%s", missing->len ? ", " : "",
					       group_names[i]);
	}
	return missing->len ? g_string_free(g_steal_pointer(&missing), FALSE) : NULL;
}

void counter_files_close(struct counter_files *files)
{
	while (files->n > 0)
		close(files->fds[--files->n]);
}
