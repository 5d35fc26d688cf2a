/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Errno text - finds the limit of the process or of its cgroup that caused an error */
#include "arch/errno-text.h"

#include "arch/base.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/resource.h>

/* A cgroup is assumed to be full if it has room for at most this number of threads, because some
 * may have ended since the error. */
#define FEW_PIDS 4

static const struct {
	int error;
	__rlimit_resource_t resource;
	const char *name, *unit;
} limits[] = {
	{ EMFILE, RLIMIT_NOFILE, "RLIMIT_NOFILE, `ulimit -n`", "" },
	{ EFBIG, RLIMIT_FSIZE, "RLIMIT_FSIZE, `ulimit -f`", " bytes" },
	{ EAGAIN, RLIMIT_NPROC, "RLIMIT_NPROC, `ulimit -u`", "" },
};

static void append(char *buffer, const char *text)
{
	size_t n = strlen(buffer);

	for (; *text && n < ERRNO_TEXT_BYTES - 1; n++, text++)
		buffer[n] = *text;
	buffer[n] = '\0';
}

static void append_number(char *buffer, uint64_t number)
{
	char digits[21] = "";
	size_t at = sizeof(digits) - 1;

	do {
		digits[--at] = (char)('0' + number % 10);
		number /= 10;
	} while (number > 0);
	append(buffer, digits + at);
}

/* ---- Cgroups --------------------------------------------------------------------------------- */

static size_t read_text(const char *path, char *buffer, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, buffer, size - 1) : -1;

	buffer[MAX_OF(n, 0)] = '\0';
	if (fd >= 0)
		close(fd);
	return strlen(buffer);
}

/* Returns the number in a file of the cgroup, or -1. */
static int64_t read_number(const char *folder, const char *name)
{
	char path[PATH_MAX] = "", text[32], *end;
	long long number;

	if (strlen(folder) + strlen(name) >= sizeof(path))
		return -1;
	stpcpy(stpcpy(path, folder), name);
	read_text(path, text, sizeof(text));
	number = strtoll(text, &end, 10);
	return end > text ? number : -1;
}

/* Appends the limit if the cgroup at root + path, or a parent up to `root`, is full. */
static bool append_full(char *buffer, const char *root, const char *path)
{
	char folder[PATH_MAX];
	size_t n_root = strlen(root);

	if (n_root + strlen(path) >= sizeof(folder))
		return false;
	stpcpy(stpcpy(folder, root), path);
	for (;;) {
		int64_t most = read_number(folder, "/pids.max");

		if (most >= 0 && read_number(folder, "/pids.current") + FEW_PIDS >= most) {
			append(buffer, " (the limit of processes and threads is ");
			append_number(buffer, (uint64_t)most);
			append(buffer, ", in ");
			append(buffer, folder);
			append(buffer, "/pids.max)");
			return true;
		}
		/* Also check `root`: in a container, the path may be the host's, and `root` is the
		 * container's cgroup. */
		if (strlen(folder) <= n_root)
			return false;
		*strrchr(folder, '/') = '\0';
	}
}

/* In cgroups v1, the pids controller has a separate tree. V2 has one tree, which is mounted
 * elsewhere if v1 is mounted, too. */
static bool append_cgroup(char *buffer)
{
	char text[2 * PATH_MAX], *line, *next = text;

	read_text("/proc/self/cgroup", text, sizeof(text));
	while ((line = strsep(&next, "\n"))) {
		const char *number = strsep(&line, ":"), *controllers = strsep(&line, ":");

		if (!line || !number)
			continue;
		if (strcmp(controllers, "pids") == 0 &&
		    append_full(buffer, "/sys/fs/cgroup/pids", line))
			return true;
		if (*controllers == '\0' && (append_full(buffer, "/sys/fs/cgroup", line) ||
					     append_full(buffer, "/sys/fs/cgroup/unified", line)))
			return true;
	}
	return false;
}

const char *errno_text(int error, char *buffer)
{
	char room[ERRNO_TEXT_BYTES];
	struct rlimit limit;

	buffer[0] = '\0';
	/* GNU's strerror_r() may return a text that is not in the buffer. */
	append(buffer, strerror_r(error, room, sizeof(room)));
	if (error == EAGAIN && append_cgroup(buffer))
		return buffer;
	for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
		if (limits[i].error != error || getrlimit(limits[i].resource, &limit) < 0 ||
		    limit.rlim_cur == RLIM_INFINITY)
			continue;
		append(buffer, " (");
		append(buffer, limits[i].name);
		append(buffer, ", is ");
		append_number(buffer, limit.rlim_cur);
		append(buffer, limits[i].unit);
		append(buffer, ")");
	}
	return buffer;
}
