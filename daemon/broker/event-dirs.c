/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Event dirs - finds events that the kernel lists in sysfs and tracefs
 *
 * tracefs has the number of each tracepoint. A dynamic PMU is a directory in sysfs: "type" has its
 * number, "events/" has named sets of terms, and "format/" says which bits of which config word
 * hold a term.
 * events.c has checked the names. The files come from the kernel, but are still read with limits.
 */
#include "config.h"

#include "daemon/broker/events.h"

#include "arch/base.h"
#include "arch/probe-file.h"
#include "daemon/broker/error.h"
#include "daemon/broker/event-format.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/mount.h>
#include <sys/stat.h>

#define MAX_FILE_BYTES 1024
#define MAX_FORMAT_BYTES 65536 /* the longest format file of Linux 6.18 has 5523 bytes */
#define MAX_TERM_DEPTH 1       /* a named set of terms contains no other set */

static int own_tracefs = -1;

static int tracefs_open(void)
{
	static const char *const paths[] = { "/sys/kernel/tracing/events",
					     "/sys/kernel/debug/tracing/events" };
	int first_error;

	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		int fd = open(paths[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		if (fd >= 0)
			return fd;
		if (i == 0)
			first_error = errno;
	}
	if (own_tracefs >= 0)
		return openat(own_tracefs, "events", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	errno = first_error;
	return -1;
}

void event_dirs_prepare(void)
{
	CLEANUP_CLOSE int fd = tracefs_open();
	CLEANUP_CLOSE int context = -1;

	if (fd >= 0)
		return;
	/* This mount has no path, so it changes nothing for other processes. */
	context = fsopen("tracefs", FSOPEN_CLOEXEC);
	if (context >= 0 && fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) >= 0)
		own_tracefs =
			fsmount(context, FSMOUNT_CLOEXEC, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOEXEC);
}

void event_dirs_open(struct event_dirs *ret_dirs)
{
	*ret_dirs = (struct event_dirs){ .pmus = -1, .tracepoints = -1 };
	ret_dirs->pmus = open("/sys/bus/event_source/devices", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ret_dirs->pmus_error = ret_dirs->pmus < 0 ? errno : 0;
	ret_dirs->tracepoints = tracefs_open();
	ret_dirs->tracepoints_error = ret_dirs->tracepoints < 0 ? errno : 0;
}

void event_dirs_done(struct event_dirs *dirs)
{
	if (dirs->pmus >= 0)
		close(dirs->pmus);
	if (dirs->tracepoints >= 0)
		close(dirs->tracepoints);
	dirs->pmus = dirs->tracepoints = -1;
}

/* Reads the first bytes of a file, without the newline. */
static bool read_text(int dir, const char *path, char text[MAX_FILE_BYTES])
{
	CLEANUP_CLOSE int fd = openat(dir, path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return false;
	n = read(fd, text, MAX_FILE_BYTES - 1);
	if (n < 0)
		return false;
	text[n] = '\0';
	g_strchomp(text);
	return true;
}

static GStrv list_names(int dir, const char *path)
{
	GPtrArray *names = g_ptr_array_new();
	int fd = openat(dir, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *stream = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *entry;

	while (stream && (entry = readdir(stream)))
		if (entry->d_name[0] != '.')
			g_ptr_array_add(names, g_strdup(entry->d_name));
	if (stream)
		closedir(stream);
	else if (fd >= 0)
		close(fd);
	g_ptr_array_add(names, NULL);
	return (GStrv)g_ptr_array_free(names, FALSE);
}

static bool fail_tracepoint(const struct event_dirs *dirs, const char *system, const char *name,
			    const char *text, GError **error)
{
	g_auto(GStrv) systems = list_names(dirs->tracepoints, ".");
	g_auto(GStrv) names = NULL;
	const char *nearest_system = system, *nearest = NULL;

	if (!g_strv_contains((const char *const *)systems, system))
		nearest_system = event_suggest(system, (const char *const *)systems);
	if (nearest_system) {
		names = list_names(dirs->tracepoints, nearest_system);
		nearest = event_suggest(name, (const char *const *)names);
	}
	if (nearest)
		return broker_fail(error, BROKER_ERROR_INVALID_OPTION,
				   "unknown event \"%s\"; did you mean \"%s:%s\"?", text,
				   nearest_system, nearest);
	return broker_fail(error, BROKER_ERROR_INVALID_OPTION,
			   "unknown event \"%s\": the kernel has no such tracepoint "
			   "(`profctl list tracepoint` shows all)",
			   text);
}

bool event_has_field(const struct event_dirs *dirs, const char *system, const char *name,
		     const char *field, unsigned offset, unsigned bytes)
{
	g_autofree char *path = g_strdup_printf("%s/%s/format", system, name);
	g_autofree char *wanted =
		g_strdup_printf(" %s;\toffset:%u;\tsize:%u;", field, offset, bytes);
	char text[MAX_FILE_BYTES];

	return dirs->tracepoints >= 0 && read_text(dirs->tracepoints, path, text) &&
	       strstr(text, wanted);
}

bool event_parse_tracepoint(const struct event_dirs *dirs, const char *system, const char *name,
			    struct event *event, GError **error)
{
	g_autofree char *path = g_strdup_printf("%s/%s/id", system, name);
	char text[MAX_FILE_BYTES];
	int failed = dirs->tracepoints_error;

	if (dirs->tracepoints >= 0) {
		if (read_text(dirs->tracepoints, path, text)) {
			event->attr.type = PERF_TYPE_TRACEPOINT;
			event->attr.config = g_ascii_strtoull(text, NULL, 10);
			event->attr.sample_period = 1;
			event->every_one = true;
			event->kernel_only = true;
			return true;
		}
		failed = errno;
		if (failed == ENOENT)
			return fail_tracepoint(dirs, system, name, event->name, error);
	}
	if (failed == EACCES || failed == EPERM)
		return broker_fail(
			error, BROKER_ERROR_NOT_AUTHORIZED,
			"event '%s' needs access to /sys/kernel/tracing. Use sudo or the profd service.",
			event->name);
	return broker_fail(error, BROKER_ERROR_NOT_SUPPORTED,
			   "event \"%s\": tracefs is not there; "
			   "`mount -t tracefs tracefs /sys/kernel/tracing` as root mounts it",
			   event->name);
}

GArray *event_fields(const struct event_dirs *dirs, const struct event *event)
{
	g_auto(GStrv) parts = g_strsplit_set(event->name, ":/", 3);
	g_autofree char *path = NULL, *text = NULL;
	CLEANUP_CLOSE int fd = -1;
	size_t used = 0;
	ssize_t n;

	if (event->kind != PROF_SOURCE_TRACEPOINT || dirs->tracepoints < 0)
		return NULL;
	path = g_strdup_printf("%s/%s/format", parts[0], parts[1]);
	fd = openat(dirs->tracepoints, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	text = g_malloc(MAX_FORMAT_BYTES);
	/* One read from tracefs returns at most a page. */
	while (used < MAX_FORMAT_BYTES - 1 &&
	       (n = read(fd, text + used, MAX_FORMAT_BYTES - 1 - used)) > 0)
		used += (size_t)n;
	text[used] = '\0';
	return event_format_parse(text);
}

/* Stores `value` in the bits of "config1:0-7,32" or the like. Returns false if it does not fit. */
static bool set_bits(struct perf_event_attr *attr, const char *format, uint64_t value)
{
	uint64_t *word;

	if (g_str_has_prefix(format, "config:"))
		word = (uint64_t *)&attr->config;
	else if (g_str_has_prefix(format, "config1:"))
		word = (uint64_t *)&attr->config1;
	else if (g_str_has_prefix(format, "config2:"))
		word = (uint64_t *)&attr->config2;
	else
		return false;
	for (const char *at = strchr(format, ':'); *at == ':' || *at == ',';) {
		char *end;
		uint64_t first = g_ascii_strtoull(at + 1, &end, 10), last = first;

		if (*end == '-')
			last = g_ascii_strtoull(end + 1, &end, 10);
		if (first > last || last > 63)
			return false;
		for (uint64_t bit = first; bit <= last; bit++, value >>= 1)
			*word |= (value & 1) << bit;
		at = end;
	}
	return value == 0;
}

/* Sets a term that every PMU has. Returns false for any other term. */
static bool set_common(struct event *event, const char *name, uint64_t value)
{
	if (strcmp(name, "config") == 0) {
		event->attr.config = value;
	} else if (strcmp(name, "config1") == 0) {
		event->attr.config1 = value;
	} else if (strcmp(name, "config2") == 0) {
		event->attr.config2 = value;
	} else if (strcmp(name, "period") == 0 && value > 0) {
		event->attr.sample_period = value;
		event->every_one = true;
	} else {
		return false;
	}
	return true;
}

static bool parse_terms(int pmu, const char *text, unsigned depth, struct event *event,
			GError **error);

static bool parse_term(int pmu, const char *term, unsigned depth, struct event *event,
		       GError **error)
{
	g_auto(GStrv) sides = g_strsplit(term, "=", 2);
	const char *name = sides[0] ? sides[0] : "";
	char text[MAX_FILE_BYTES];
	uint64_t value = 1;
	char *end = NULL;

	if (sides[0] && sides[1]) {
		value = g_ascii_strtoull(sides[1], &end, 0);
		if (end == sides[1] || *end)
			return broker_fail(error, BROKER_ERROR_INVALID_OPTION,
					   "event \"%s\": \"%s\" is not a number", event->name,
					   sides[1]);
	}
	if (*name == '\0' || *name == '.' || strchr(name, '/'))
		return broker_fail(error, BROKER_ERROR_INVALID_OPTION,
				   "event \"%s\": a term is empty or malformed", event->name);
	if (!sides[1] && depth < MAX_TERM_DEPTH) {
		g_autofree char *path = g_strconcat("events/", name, NULL);

		if (read_text(pmu, path, text))
			return parse_terms(pmu, text, depth + 1, event, error);
	}
	if (set_common(event, name, value))
		return true;
	g_autofree char *path = g_strconcat("format/", name, NULL);
	if (!read_text(pmu, path, text))
		return broker_fail(error, BROKER_ERROR_INVALID_OPTION,
				   "event \"%s\": this PMU has no event and no term \"%s\"",
				   event->name, name);
	if (!set_bits(&event->attr, text, value))
		return broker_fail(error, BROKER_ERROR_INVALID_OPTION,
				   "event \"%s\": the value of \"%s\" does not fit into %s",
				   event->name, name, text);
	return true;
}

static bool parse_terms(int pmu, const char *text, unsigned depth, struct event *event,
			GError **error)
{
	g_auto(GStrv) terms = g_strsplit(text, ",", -1);

	for (char **term = terms; *term; term++)
		if (!parse_term(pmu, *term, depth, event, error))
			return false;
	return true;
}

bool event_parse_dynamic(const struct event_dirs *dirs, const char *pmu, const char *terms,
			 struct event *event, GError **error)
{
	CLEANUP_CLOSE int dir = -1;
	char text[MAX_FILE_BYTES];

	if (dirs->pmus >= 0)
		dir = openat(dirs->pmus, pmu, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0 || !read_text(dir, "type", text)) {
		g_auto(GStrv) names = dirs->pmus >= 0 ? list_names(dirs->pmus, ".") : NULL;
		g_autofree char *valid = names ? g_strjoinv(", ", names) : g_strdup("none");

		return broker_fail(error, BROKER_ERROR_INVALID_OPTION,
				   "event \"%s\": there is no PMU \"%s\"; this machine has %s",
				   event->name, pmu, valid);
	}
	event->attr.type = (uint32_t)g_ascii_strtoull(text, NULL, 10);
	return parse_terms(dir, terms, 0, event, error);
}

bool event_set_probe(const struct event_dirs *dirs, struct event *event, int fd, uint64_t offset,
		     uint64_t semaphore, GError **error)
{
	bool is_return = g_str_has_suffix(event->name, PROBE_RETURN);
	g_autofree char *terms = g_strdup_printf("retprobe=%d,ref_ctr_offset=%" PRIu64
						 ",config2=%" PRIu64,
						 is_return, semaphore, offset);

	event->probe_fd = fd;
	g_snprintf(event->probe_path, sizeof(event->probe_path), "/proc/self/fd/%d", fd);
	if (dirs->pmus < 0 || faccessat(dirs->pmus, "uprobe/type", R_OK, 0) < 0)
		return broker_fail(error, BROKER_ERROR_NOT_SUPPORTED,
				   "event \"%s\": this kernel has no probes of programs (uprobes)",
				   event->name);
	return event_parse_dynamic(dirs, "uprobe", terms, event, error);
}
