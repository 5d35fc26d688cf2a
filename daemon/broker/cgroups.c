/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Cgroups - the paths behind the cgroup ids of samples
 *
 * A sample's cgroup id is the inode number of a directory in the hierarchy that has the perf_event controller: the
 * v1 hierarchy of that name where one is mounted, else v2, wherever it is mounted. Cgroups that are made later come
 * in the side band.
 */
#include "config.h"

#include "daemon/broker/proc.h"

#include "arch/base.h"
#include "daemon/protocol.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>

#define MAX_DEPTH 64
#define MAX_CGROUPS 65536

struct hierarchy {
	char *mount; /* where it is mounted */
	char *root;  /* the path in the hierarchy that is mounted there */
};

struct walk {
	struct snapshot *snapshot;
	GString *path;
	unsigned n;
};

/* mountinfo: id parent major:minor root mount options … - type source super-options */
static bool parse_mount(const char *line, bool v1, struct hierarchy *hierarchy)
{
	g_auto(GStrv) halves = g_strsplit(line, " - ", 2);
	g_auto(GStrv) left = NULL;
	g_auto(GStrv) right = NULL;

	if (!halves[0] || !halves[1])
		return false;
	left = g_strsplit(halves[0], " ", 7);
	right = g_strsplit(halves[1], " ", 3);
	if (g_strv_length(left) < 6 || g_strv_length(right) < 3)
		return false;
	if (strcmp(right[0], v1 ? "cgroup" : "cgroup2") != 0)
		return false;
	if (v1) {
		g_auto(GStrv) options = g_strsplit(right[2], ",", -1);

		if (!g_strv_contains((const char *const *)options, "perf_event"))
			return false;
	}
	g_free(hierarchy->mount);
	g_free(hierarchy->root);
	hierarchy->mount = g_strcompress(left[4]); /* \040 for a space */
	hierarchy->root = g_strcompress(left[3]);
	return true;
}

static bool find_hierarchy(struct hierarchy *ret_hierarchy)
{
	g_autofree char *text = NULL;
	g_auto(GStrv) lines = NULL;

	if (!g_file_get_contents("/proc/self/mountinfo", &text, NULL, NULL))
		return false;
	lines = g_strsplit(text, "\n", -1);
	for (int v1 = 1; v1 >= 0; v1--)
		for (char **line = lines; *line; line++)
			if (parse_mount(*line, v1, ret_hierarchy))
				return true;
	return false;
}

static void add_directory(struct walk *walk, int fd, unsigned depth)
{
	struct snapshot_record record = { .kind = SNAPSHOT_CGROUP_DIR };
	DIR *stream = fdopendir(fd);
	struct dirent *entry;
	struct timespec now;
	struct stat status;
	uint64_t id;

	if (!stream || fstat(fd, &status) < 0 || walk->n++ > MAX_CGROUPS) {
		stream ? closedir(stream) : close(fd);
		return;
	}
	clock_gettime(CLOCK_MONOTONIC, &now);
	record.time_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
	record.length = sizeof(id);
	id = status.st_ino;
	snapshot_add(walk->snapshot, &record, &id, walk->path->len ? walk->path->str : "/",
		     walk->path->len ? walk->path->len : 1);
	while (depth < MAX_DEPTH && (entry = readdir(stream))) {
		size_t length = walk->path->len;
		int child;

		if (entry->d_type != DT_DIR || strcmp(entry->d_name, ".") == 0 ||
		    strcmp(entry->d_name, "..") == 0)
			continue;
		child = openat(fd, entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
		if (child < 0)
			continue;
		g_string_append_printf(walk->path, "/%s", entry->d_name);
		add_directory(walk, child, depth + 1);
		g_string_truncate(walk->path, length);
	}
	closedir(stream);
}

void cgroups_snapshot(struct snapshot *snapshot)
{
	struct hierarchy hierarchy = { 0 };
	struct walk walk = { .snapshot = snapshot };
	int fd = -1;

	if (find_hierarchy(&hierarchy))
		fd = open(hierarchy.mount, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0) {
		walk.path = g_string_new(strcmp(hierarchy.root, "/") == 0 ? "" : hierarchy.root);
		add_directory(&walk, fd, 0);
		g_string_free(walk.path, TRUE);
	}
	g_free(hierarchy.mount);
	g_free(hierarchy.root);
}
