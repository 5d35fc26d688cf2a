/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Attach - asks the dormant collector of a running process to record its allocations
 *
 * The other end is libcollector/heap-attach.c. Its structure is found in the writable pages of the
 * library by its magic. All access goes through one descriptor of /proc/PID/mem, which becomes
 * useless once the process executes another program: an address found in one is never written in
 * another. The kernel decides who may open it (ptrace(2)).
 * Invariants: (1) nothing is written except into a structure of the right magic, version and size,
 *                 and the word that it points to  [test_attach: hostile]
 *             (2) a process is not asked if a seccomp filter could kill the thread that registers
 *                 [test_attach: filtered]
 */
#include "config.h"

#include "arch/errno-text.h"
#include "tools/profctl/attach.h"

#include "libcollector/attach.h"
#include "libcollector/control.h"
#include "tools/common/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <glib/gi18n.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LIBRARY "/libprofpreload-memory.so"
#define MAX_DATA_BYTES (UINT64_C(1) << 20) /* of the library's writable pages */
#define PAGE_BYTES UINT64_C(4096)

static const uint8_t magic[] = ATTACH_MAGIC;

/* ---- Its memory ------------------------------------------------------------------------------ */

static bool read_all(const struct attach_target *target, uint64_t address, void *buffer, size_t n)
{
	return pread(target->memory, buffer, n, (off_t)address) == (ssize_t)n;
}

static bool write_all(const struct attach_target *target, uint64_t address, const void *buffer,
		      size_t n)
{
	return pwrite(target->memory, buffer, n, (off_t)address) == (ssize_t)n;
}

static bool find_in(struct attach_target *target, uint64_t start, uint64_t end)
{
	uint8_t page[PAGE_BYTES];

	for (uint64_t at = start; at < end && at - start < MAX_DATA_BYTES; at += sizeof(page)) {
		if (!read_all(target, at, page, sizeof(page)))
			continue;
		for (size_t i = 0; i < sizeof(page); i += ATTACH_ALIGNMENT)
			if (memcmp(page + i, magic, sizeof(magic)) == 0) {
				target->address = at + i;
				return true;
			}
	}
	return false;
}

static bool is_library(const char *path)
{
	g_autofree char *name = g_strdup(path);

	if (g_str_has_suffix(name, " (deleted)"))
		name[strlen(name) - strlen(" (deleted)")] = 0;
	return g_str_has_suffix(name, LIBRARY);
}

/* Searches the mapping of a line of /proc/PID/maps. */
static bool find_in_mapping(struct attach_target *target, const char *line)
{
	uint64_t start, end;
	char rights[5];
	int at = 0;

	if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %*s %*s %*s %n", &start, &end, rights, &at) <
		    3 ||
	    at == 0 || rights[0] != 'r' || rights[1] != 'w')
		return false;
	return is_library(line + at) && find_in(target, start, end);
}

static bool find(struct attach_target *target)
{
	g_autofree char *path = g_strdup_printf("/proc/%" PRId32 "/maps", target->pid);
	g_autofree char *text = NULL;
	g_auto(GStrv) lines = NULL;

	if (!g_file_get_contents(path, &text, NULL, NULL))
		return false;
	lines = g_strsplit(text, "\n", -1);
	for (char **line = lines; *line; line++)
		if (find_in_mapping(target, *line))
			return true;
	return false;
}

static bool read_request(const struct attach_target *target, struct attach_request *ret_request)
{
	return read_all(target, target->address, ret_request, sizeof(*ret_request)) &&
	       memcmp(ret_request->magic, magic, sizeof(magic)) == 0;
}

/* ---- Obstacles ------------------------------------------------------------------------------- */

/* Returns whether a thread has a filter. An unreadable thread has ended. */
static bool is_filtered(int32_t pid, const char *tid)
{
	g_autofree char *path = g_strdup_printf("/proc/%" PRId32 "/task/%s/status", pid, tid);
	g_autofree char *text = NULL;
	const char *found;

	if (!g_file_get_contents(path, &text, NULL, NULL))
		return false;
	found = strstr(text, "\nSeccomp:");
	return found && atoi(found + strlen("\nSeccomp:")) != 0;
}

static bool has_filter(int32_t pid)
{
	g_autofree char *path = g_strdup_printf("/proc/%" PRId32 "/task", pid);
	g_autoptr(GDir) threads = g_dir_open(path, 0, NULL);
	bool is_found = false;
	const char *tid;

	while (threads && !is_found && (tid = g_dir_read_name(threads)))
		is_found = is_filtered(pid, tid);
	return is_found;
}

static bool fail_to_open(int32_t pid, int failed, GError **error)
{
	if (failed == ENOENT || failed == ESRCH)
		g_set_error(error, CLI_ERROR, CLI_FAILURE, _("there is no process %" PRId32), pid);
	else if (failed == EACCES || failed == EPERM)
		g_set_error(
			error, CLI_ERROR, CLI_NOT_PERMITTED,
			_("process %" PRId32
			  " may not be asked to record its allocations, as that takes the right to trace it (ptrace, kernel.yama.ptrace_scope); "
			  "try as root"),
			pid);
	else
		g_set_error(error, CLI_ERROR, CLI_FAILURE,
			    _("cannot open the memory of process %" PRId32 ": %s"), pid,
			    ERRNO_TEXT(failed));
	return false;
}

static bool fail_to_find(int32_t pid, const char *library, GError **error)
{
	g_set_error(
		error, CLI_ERROR, CLI_FAILURE,
		_("process %" PRId32
		  " has no collector, so its allocations cannot be recorded; start the program with 'LD_PRELOAD=%s', "
		  "which records nothing until it is asked to, or by 'profctl record --memory -- COMMAND'"),
		pid, library);
	return false;
}

/* ---- A process ------------------------------------------------------------------------------- */

bool attach_open(int32_t pid, const char *library, struct attach_target *ret_target, GError **error)
{
	g_autofree char *path = g_strdup_printf("/proc/%" PRId32 "/mem", pid);
	struct attach_target target = { .pid = pid, .memory = open(path, O_RDWR | O_CLOEXEC) };
	struct attach_request request;

	if (target.memory < 0)
		return fail_to_open(pid, errno, error);
	if (!find(&target) || !read_request(&target, &request)) {
		attach_close(&target);
		return fail_to_find(pid, library, error);
	}
	if (request.version != ATTACH_VERSION || request.bytes != sizeof(request)) {
		attach_close(&target);
		g_set_error(
			error, CLI_ERROR, CLI_FAILURE,
			_("the collector of process %" PRId32
			  " is of another version of profd; start the program with 'LD_PRELOAD=%s'"),
			pid, library);
		return false;
	}
	if (has_filter(pid)) {
		attach_close(&target);
		g_set_error(error, CLI_ERROR, CLI_FAILURE,
			    _("process %" PRId32
			      " has a seccomp filter, which could end it for what recording takes; "
			      "record it from its start with 'profctl record --memory -- COMMAND'"),
			    pid);
		return false;
	}
	*ret_target = target;
	return true;
}

void attach_close(struct attach_target *target)
{
	if (target->memory >= 0)
		close(steal_fd(&target->memory));
}

/* Sets a bit in the word that its hooks check and leaves the other bits, which belong to the
 * collector. */
static bool set_mode(const struct attach_target *target, const struct attach_request *request)
{
	uint64_t address = (uintptr_t)request->mode;
	uint32_t mode;

	if (address % sizeof(mode) != 0 || !read_all(target, address, &mode, sizeof(mode)))
		return false;
	mode |= ATTACH_REQUESTED;
	return write_all(target, address, &mode, sizeof(mode));
}

bool attach_request(struct attach_target *target, const char *control, const char *settings,
		    GError **error)
{
	struct attach_request request;
	size_t n;

	if (!read_request(target, &request)) {
		g_set_error(error, CLI_ERROR, CLI_FAILURE,
			    _("process %" PRId32 " has ended, or executes another program"),
			    target->pid);
		return false;
	}
	n = g_strlcpy(request.control, control, sizeof(request.control));
	if (n < sizeof(request.control))
		n = g_strlcpy(request.settings, settings, sizeof(request.settings));
	target->requested = request.requested + 1 ? request.requested + 1 : 1;
	if (n >= sizeof(request.settings) ||
	    !write_all(target, target->address + offsetof(struct attach_request, control),
		       request.control, sizeof(request.control)) ||
	    !write_all(target, target->address + offsetof(struct attach_request, settings),
		       request.settings, sizeof(request.settings)) ||
	    !write_all(target, target->address + offsetof(struct attach_request, requested),
		       &target->requested, sizeof(target->requested)) ||
	    !set_mode(target, &request)) {
		g_set_error(error, CLI_ERROR, CLI_FAILURE,
			    _("cannot ask process %" PRId32 " to record its allocations"),
			    target->pid);
		return false;
	}
	return true;
}

static const char *reason_of(int32_t status)
{
	switch (status) {
	case -EALREADY:
		return _("they are recorded by another session already");
	case -ENOTSUP:
		return _("its allocator comes before the library in LD_PRELOAD");
	case -EACCES:
		return _("it has a seccomp filter");
	case -ENOSPC:
		return _("it has been recorded too many times; start it anew");
	case -ENOENT:
	case -ECONNREFUSED:
		return _(
			"it does not reach profd, as it may be in another network namespace or root");
	case CONTROL_NOT_A_TARGET:
		return _("it is not a process of this recording");
	case CONTROL_NO_SESSION:
		return _("the recording has ended, or has not begun");
	case CONTROL_LIMIT:
		return _("the recording has as many collectors as it may have, or is too busy");
	case CONTROL_NOT_AUTHORISED:
		return _("it is a process of another user");
	default:
		return status < 0 ? ERRNO_TEXT(-status) : _("profd failed to take it");
	}
}

bool attach_check(struct attach_target *target, GError **error)
{
	struct attach_request request;

	if (target->requested == 0 || !read_request(target, &request))
		return true;
	if (request.received != target->requested && request.requested == target->requested) {
		write_all(target, target->address + offsetof(struct attach_request, requested),
			  &request.received, sizeof(request.received));
		g_set_error(
			error, CLI_ERROR, CLI_FAILURE,
			_("process %" PRId32
			  " allocated and freed nothing, so there is nothing of it in the recording"),
			target->pid);
		return false;
	}
	if (request.received == target->requested && request.status != 0) {
		g_set_error(error, CLI_ERROR, CLI_FAILURE,
			    _("allocations of process %" PRId32 " were not recorded: %s"),
			    target->pid, reason_of(request.status));
		return false;
	}
	return true;
}

/* ---- All processes of a recording ------------------------------------------------------------ */

bool attachments_open(struct attachments *attachments, const GArray *pids,
		      const struct preload *preload, GError **error)
{
	*attachments = (struct attachments){ 0 };
	if (!preload->library || !pids)
		return true;
	attachments->targets = g_new0(struct attach_target, pids->len);
	for (; attachments->n < pids->len; attachments->n++)
		if (!attach_open((int32_t)g_array_index(pids, uint32_t, attachments->n),
				 preload->library, &attachments->targets[attachments->n], error))
			return false;
	return true;
}

void attachments_request(struct attachments *attachments, const char *control,
			 const struct preload *preload)
{
	for (size_t i = 0; i < attachments->n; i++) {
		g_autoptr(GError) error = NULL;

		if (!attach_request(&attachments->targets[i], control, preload->settings, &error))
			cli_warning("%s", error->message);
	}
}

void attachments_check(struct attachments *attachments)
{
	for (size_t i = 0; i < attachments->n; i++) {
		g_autoptr(GError) error = NULL;

		if (!attach_check(&attachments->targets[i], &error))
			cli_warning("%s", error->message);
	}
}

void attachments_done(struct attachments *attachments)
{
	for (size_t i = 0; i < attachments->n; i++)
		attach_close(&attachments->targets[i]);
	g_clear_pointer(&attachments->targets, g_free);
	attachments->n = 0;
}
