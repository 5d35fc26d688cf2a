/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Attach - requests that the idle collector in a running process records allocations
 *
 * The other end is libcollector/hooks/heap-attach.c. Its struct attach_request is found by
 * searching the library's writable pages for the magic. All access uses one descriptor of
 * /proc/PID/mem, which becomes invalid when the process executes another program, so an address in
 * the old program is never used to write to the new one. The kernel decides who may open that file
 * (ptrace(2)).
 * Invariants: (1) only a structure with the right magic, version and size, and the word that it
 *                 points to, are written  [test_attach: hostile]
 *             (2) no request is made if a seccomp filter could kill the thread that registers
 *                 [test_attach: filtered]
 */
#include "config.h"

#include "tools/profctl/attach.h"

#include "arch/errno-text.h"
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
#define MAX_DATA_BYTES (UINT64_C(1) << 20) /* limit on the library's writable pages */
#define PAGE_BYTES UINT64_C(4096)

static const uint8_t magic[] = ATTACH_MAGIC;

struct attach_target {
	int32_t pid;
	int memory;         /* descriptor of /proc/PID/mem; -1: none */
	uint64_t address;   /* address of the process's struct attach_request */
	uint32_t requested; /* value of attach_request.requested that was written; 0: none */
};

/* ---- The memory of a process ----------------------------------------------------------------- */

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

static bool find(struct attach_target *target)
{
	g_autofree char *path = g_strdup_printf("/proc/%" PRId32 "/maps", target->pid);
	g_autofree char *text = NULL;
	g_auto(GStrv) lines = NULL;

	if (!g_file_get_contents(path, &text, NULL, NULL))
		return false;
	lines = g_strsplit(text, "\n", -1);
	for (char **line = lines; *line; line++) {
		uint64_t start, end;
		char rights[5];
		int at = 0;

		if (sscanf(*line, "%" SCNx64 "-%" SCNx64 " %4s %*s %*s %*s %n", &start, &end,
			   rights, &at) == 3 &&
		    at > 0 && g_str_has_prefix(rights, "rw") &&
		    (g_str_has_suffix(*line + at, LIBRARY) ||
		     g_str_has_suffix(*line + at, LIBRARY " (deleted)")) &&
		    find_in(target, start, end))
			return true;
	}
	return false;
}

static bool read_request(const struct attach_target *target, struct attach_request *ret_request)
{
	return read_all(target, target->address, ret_request, sizeof(*ret_request)) &&
	       memcmp(ret_request->magic, magic, sizeof(magic)) == 0;
}

/* ---- Opening --------------------------------------------------------------------------------- */

/* Returns whether any thread of the process has a seccomp filter. A thread without readable status
 * has ended. */
static bool has_filter(int32_t pid)
{
	g_autofree char *path = g_strdup_printf("/proc/%" PRId32 "/task", pid);
	g_autoptr(GDir) threads = g_dir_open(path, 0, NULL);
	bool is_found = false;
	const char *tid;

	while (threads && !is_found && (tid = g_dir_read_name(threads))) {
		g_autofree char *file = g_strdup_printf("%s/%s/status", path, tid);
		g_autofree char *text = NULL;
		const char *field;

		if (!g_file_get_contents(file, &text, NULL, NULL))
			continue;
		field = strstr(text, "\nSeccomp:");
		is_found = field && atoi(field + strlen("\nSeccomp:")) != 0;
	}
	return is_found;
}

static bool fail_to_open(int32_t pid, int failed, GError **error)
{
	if (failed == ENOENT || failed == ESRCH)
		return cli_set_error(error, CLI_FAILURE, _("there is no process %" PRId32), pid);
	if (failed == EACCES || failed == EPERM)
		return cli_set_error(
			error, CLI_NOT_PERMITTED,
			_("process %" PRId32
			  ": recording its allocations needs the right to trace it (ptrace, kernel.yama.ptrace_scope); "
			  "try as root"),
			pid);
	return cli_set_error(error, CLI_FAILURE,
			     _("cannot open the memory of process %" PRId32 ": %s"), pid,
			     ERRNO_TEXT(failed));
}

/* Opens a process's memory and finds its request. `library`: path, for messages. */
static bool attach_open(struct attach_target *target, const char *library, GError **error)
{
	g_autofree char *path = g_strdup_printf("/proc/%" PRId32 "/mem", target->pid);
	struct attach_request request;

	target->memory = open(path, O_RDWR | O_CLOEXEC);
	if (target->memory < 0)
		return fail_to_open(target->pid, errno, error);
	if (!find(target) || !read_request(target, &request))
		return cli_set_error(
			error, CLI_FAILURE,
			_("process %" PRId32
			  " has no collector, so its allocations cannot be recorded; start the program with LD_PRELOAD=%s, "
			  "which records nothing until requested, or with 'profctl record --memory -- COMMAND'"),
			target->pid, library);
	if (request.version != ATTACH_VERSION || request.bytes != sizeof(request))
		return cli_set_error(
			error, CLI_FAILURE,
			_("the collector of process %" PRId32
			  " is of another version of profd; start the program with LD_PRELOAD=%s"),
			target->pid, library);
	if (has_filter(target->pid))
		return cli_set_error(
			error, CLI_FAILURE,
			_("process %" PRId32
			  " has a seccomp filter, which could kill it for system calls that recording needs; "
			  "record it from its start with 'profctl record --memory -- COMMAND'"),
			target->pid);
	return true;
}

bool attachments_open(struct attachments *attachments, const GArray *pids,
		      const struct preload *preload, GError **error)
{
	*attachments = (struct attachments){ 0 };
	if (!preload->library || !pids)
		return true;
	attachments->targets = g_new0(struct attach_target, pids->len);
	while (attachments->n < pids->len) {
		struct attach_target *target = &attachments->targets[attachments->n];

		target->pid = (int32_t)g_array_index(pids, uint32_t, attachments->n++);
		if (!attach_open(target, preload->library, error))
			return false;
	}
	return true;
}

void attachments_done(struct attachments *attachments)
{
	for (size_t i = 0; i < attachments->n; i++)
		if (attachments->targets[i].memory >= 0)
			close(attachments->targets[i].memory);
	g_free(attachments->targets);
	*attachments = (struct attachments){ 0 };
}

/* ---- Requests -------------------------------------------------------------------------------- */

void attachments_request(struct attachments *attachments, const char *control,
			 const struct preload *preload)
{
	for (size_t i = 0; i < attachments->n; i++) {
		struct attach_target *target = &attachments->targets[i];
		uint64_t at = target->address;
		uint32_t mode;
		struct attach_request request;
		size_t n;

		if (!read_request(target, &request)) {
			cli_error(_("process %" PRId32 " has ended, or executes another program"),
				  target->pid);
			continue;
		}
		n = g_strlcpy(request.control, control, sizeof(request.control));
		if (n < sizeof(request.control))
			n = g_strlcpy(request.settings, preload->settings,
				      sizeof(request.settings));
		target->requested = request.requested + 1 ? request.requested + 1 : 1;
		if (n < sizeof(request.settings) &&
		    write_all(target, at + offsetof(struct attach_request, control),
			      request.control, sizeof(request.control)) &&
		    write_all(target, at + offsetof(struct attach_request, settings),
			      request.settings, sizeof(request.settings)) &&
		    write_all(target, at + offsetof(struct attach_request, requested),
			      &target->requested, sizeof(target->requested)) &&
		    (uintptr_t)request.mode % sizeof(mode) == 0 &&
		    read_all(target, (uintptr_t)request.mode, &mode, sizeof(mode))) {
			/* The other bits belong to the collector. */
			mode |= ATTACH_REQUESTED;
			if (write_all(target, (uintptr_t)request.mode, &mode, sizeof(mode)))
				continue;
		}
		cli_error(_("cannot ask process %" PRId32 " to record its allocations"),
			  target->pid);
	}
}

static const char *reason_of(int32_t status)
{
	static const struct {
		int32_t status;
		const char *text;
	} reasons[] = {
		{ -EALREADY, N_("they are recorded by another session already") },
		{ -ENOTSUP, N_("its allocator comes before the library in LD_PRELOAD") },
		{ -EACCES, N_("it has a seccomp filter") },
		{ -ENOSPC, N_("it has been recorded too many times; restart it") },
		{ -ENOENT,
		  N_("it does not reach profd: it may be in another network namespace or root") },
		{ CONTROL_NOT_A_TARGET, N_("it is not a process of this recording") },
		{ CONTROL_NO_SESSION, N_("the recording has ended, or has not begun") },
		{ CONTROL_LIMIT,
		  N_("the recording has as many collectors as it may have, or is too busy") },
		{ CONTROL_NOT_AUTHORISED, N_("it is a process of another user") },
	};

	if (status == -ECONNREFUSED)
		status = -ENOENT;
	for (size_t i = 0; i < ARRAY_SIZE(reasons); i++)
		if (reasons[i].status == status)
			return _(reasons[i].text);
	return status < 0 ? g_strerror(-status) : _("profd failed to register it");
}

void attachments_check(struct attachments *attachments)
{
	for (size_t i = 0; i < attachments->n; i++) {
		const struct attach_target *target = &attachments->targets[i];
		struct attach_request request;

		if (target->requested == 0 || !read_request(target, &request))
			continue;
		if (request.received != target->requested &&
		    request.requested == target->requested) {
			write_all(target,
				  target->address + offsetof(struct attach_request, requested),
				  &request.received, sizeof(request.received));
			cli_error(
				_("process %" PRId32
				  " allocated and freed nothing, so there is nothing of it in the recording"),
				target->pid);
		} else if (request.received == target->requested && request.status != 0) {
			cli_error(_("allocations of process %" PRId32 " were not recorded: %s"),
				  target->pid, reason_of(request.status));
		}
	}
}
