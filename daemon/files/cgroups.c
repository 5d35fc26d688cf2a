/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Cgroups - finds the paths of the cgroup ids in samples
 *
 * A sample's cgroup id is the inode number of a directory in the hierarchy that has the perf_event
 * controller: a v1 hierarchy if one is mounted with it, else v2. The side band reports cgroups that
 * are made later.
 */
#include "daemon/files/cgroups.h"

#include "base/clock.h"
#include "daemon/files/status.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

#define MAX_DEPTH 64
#define MAX_CGROUPS 65536

struct cgroups {
	bool v1;
	char mount[PATH_MAX]; /* mount point */
	char root[PATH_MAX];  /* path in the hierarchy that is at `mount` */
	char last[PATH_MAX];  /* path that cgroups_add_one() added last */
	char path[PATH_MAX];  /* current path of the walk */
	unsigned n;
};

/* ---- Mounts ---------------------------------------------------------------------------------- */

/* Decodes escapes in place, such as \040 for a space. */
static void unescape(char *text)
{
	char *to = text;

	for (; *text; text++) {
		unsigned int octal;

		if (*text == '\\' && sscanf(text + 1, "%3o", &octal) == 1) {
			*to++ = (char)octal;
			text += 3;
		} else {
			*to++ = *text;
		}
	}
	*to = '\0';
}

static bool has_option(char *options, const char *wanted)
{
	char *rest = NULL;

	for (char *option = strtok_r(options, ",", &rest); option;
	     option = strtok_r(NULL, ",", &rest))
		if (strcmp(option, wanted) == 0)
			return true;
	return false;
}

/* mountinfo: id parent major:minor root mount options … - type source super-options */
static bool parse_mount(char *line, bool v1, struct cgroups *cgroups)
{
	char *right = strstr(line, " - "), *rest = NULL, *left[5], *type, *options;

	if (!right)
		return false;
	*right = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(left); i++) {
		left[i] = strtok_r(i ? NULL : line, " ", &rest);
		if (!left[i])
			return false;
	}
	type = strtok_r(right + strlen(" - "), " ", &rest);
	if (!type || !strtok_r(NULL, " ", &rest))
		return false;
	options = strtok_r(NULL, " \n", &rest);
	if (!options || strcmp(type, v1 ? "cgroup" : "cgroup2") != 0 ||
	    (v1 && !has_option(options, "perf_event")) || strlen(left[3]) >= PATH_MAX ||
	    strlen(left[4]) >= PATH_MAX)
		return false;
	strcpy(cgroups->root, left[3]);
	strcpy(cgroups->mount, left[4]);
	unescape(cgroups->root);
	unescape(cgroups->mount);
	if (strcmp(cgroups->root, "/") == 0)
		cgroups->root[0] = '\0';
	cgroups->v1 = v1;
	return true;
}

static bool find_hierarchy(struct cgroups *cgroups)
{
	FILE *file = fopen("/proc/self/mountinfo", "re");
	CLEANUP_FREE char *line = NULL;
	size_t size = 0;
	bool found = false;

	if (!file)
		return false;
	for (int v1 = 1; v1 >= 0 && !found; v1--) {
		rewind(file);
		while (!found && getline(&line, &size, file) > 0)
			found = parse_mount(line, v1, cgroups);
	}
	fclose(file);
	return found;
}

struct cgroups *cgroups_new(void)
{
	struct cgroups *cgroups = calloc(1, sizeof(*cgroups));

	if (cgroups && !find_hierarchy(cgroups)) {
		free(cgroups);
		return NULL;
	}
	return cgroups;
}

void cgroups_free(struct cgroups *cgroups)
{
	free(cgroups);
}

/* ---- Records --------------------------------------------------------------------------------- */

static void add_record(struct buffer *buffer, uint64_t id, const char *path)
{
	struct snapshot_record record = {
		.kind = SNAPSHOT_CGROUP_DIR,
		.length = sizeof(id),
		.time_ns = clock_now(),
	};

	if (path[0] == '\0')
		path = "/";
	buffer_add(buffer, &record, &id, path, strlen(path));
}

/* Takes ownership of fd. */
static void add_directory(struct cgroups *cgroups, struct buffer *buffer, int fd, unsigned depth)
{
	size_t length = strlen(cgroups->path);
	DIR *stream = fdopendir(fd);
	struct dirent *entry;
	struct stat status;

	if (!stream || fstat(fd, &status) < 0 || cgroups->n++ > MAX_CGROUPS) {
		stream ? closedir(stream) : close(fd);
		return;
	}
	status_progress();
	add_record(buffer, status.st_ino, cgroups->path);
	while (depth < MAX_DEPTH && (entry = readdir(stream))) {
		int child;

		if (entry->d_type != DT_DIR || strcmp(entry->d_name, ".") == 0 ||
		    strcmp(entry->d_name, "..") == 0 ||
		    length + 1 + strlen(entry->d_name) >= sizeof(cgroups->path))
			continue;
		child = openat(fd, entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
		if (child < 0)
			continue;
		cgroups->path[length] = '/';
		strcpy(cgroups->path + length + 1, entry->d_name);
		add_directory(cgroups, buffer, child, depth + 1);
		cgroups->path[length] = '\0';
	}
	closedir(stream);
}

void cgroups_add_all(struct cgroups *cgroups, struct buffer *buffer)
{
	int fd = open(cgroups->mount, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return;
	cgroups->n = 0;
	strcpy(cgroups->path, cgroups->root);
	add_directory(cgroups, buffer, fd, 0);
}

/* Parses "7:cpu,perf_event:/path" (v1) or "0::/path" (v2). Returns false for another hierarchy. */
static bool is_of_hierarchy(const struct cgroups *cgroups, char *line, char **ret_path)
{
	char *controllers = strchr(line, ':');
	char *path = controllers ? strchr(controllers + 1, ':') : NULL;

	if (!path)
		return false;
	*path++ = '\0';
	*ret_path = path;
	if (cgroups->v1)
		return has_option(controllers + 1, "perf_event");
	return strncmp(line, "0:", 2) == 0;
}

void cgroups_add_one(struct cgroups *cgroups, struct buffer *buffer, const char *text,
		     size_t length)
{
	CLEANUP_FREE char *copy = strndup(text, length);
	size_t root = strlen(cgroups->root);
	char *rest = NULL, *path = NULL, folder[2 * PATH_MAX];
	struct stat status;

	for (char *line = copy ? strtok_r(copy, "\n", &rest) : NULL; line;
	     line = strtok_r(NULL, "\n", &rest)) {
		if (is_of_hierarchy(cgroups, line, &path))
			break;
		path = NULL;
	}
	if (!path || strlen(path) >= PATH_MAX || strncmp(path, cgroups->root, root) != 0 ||
	    strcmp(path, cgroups->last) == 0)
		return;
	strcpy(cgroups->last, path);
	snprintf(folder, sizeof(folder), "%s%s", cgroups->mount, path + root);
	if (stat(folder, &status) == 0 && S_ISDIR(status.st_mode))
		add_record(buffer, status.st_ino, path);
}
