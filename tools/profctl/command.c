/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Command - the child of `profctl record -- COMMAND`
 *
 * The child is forked before the recording, because the session needs its pid. It waits on a
 * socket, so that sampling is enabled when the program's first instruction runs. It inherits the
 * environment (except PROF_LIB_DIR and the variables of preload.c), working directory, signals and
 * terminal of the caller. PROF_CONTROL and SYSPROF_CONTROL_FD are sent through the socket, because
 * they are unknown when the child is forked. If profctl dies before it releases the child, the
 * socket is closed and the child exits.
 */
#include "config.h"

#include "arch/errno-text.h"
#include "tools/profctl/command.h"

#include "arch/packet.h"
#include "libcollector/control.h"
#include "tools/common/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <glib/gi18n.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define NOT_FOUND 127
#define NOT_RUNNABLE 126

static int exec_status(int failed)
{
	return failed == ENOENT ? NOT_FOUND : NOT_RUNNABLE;
}

static bool fail_exec(const char *name, int failed, GError **error)
{
	return cli_set_error(error, exec_status(failed), _("cannot run '%s': %s"), name,
			     failed == ENOENT && !strchr(name, '/') ? _("command not found")
								    : ERRNO_TEXT(failed));
}

/* Reads a byte, and the descriptor that may be sent with it. */
static bool read_byte(int fd, char *ret_byte, int *ret_sysprof)
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec part = { ret_byte, 1 };
	struct msghdr message = {
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control.space),
	};
	struct cmsghdr *item;
	ssize_t n;

	do {
		n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	item = n == 1 ? CMSG_FIRSTHDR(&message) : NULL;
	if (item && item->cmsg_type == SCM_RIGHTS && item->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(ret_sysprof, CMSG_DATA(item), sizeof(int));
	return n == 1;
}

/* Sets SYSPROF_CONTROL_FD to a rarely used number, because many programs close low descriptors and
 * open others. */
static void set_sysprof(int fd)
{
	static const int numbers[] = { 1000, 200, 3 };
	g_autofree char *text = NULL;
	int number = -1;

	for (size_t i = 0; fd >= 0 && number < 0 && i < ARRAY_SIZE(numbers); i++)
		number = fcntl(fd, F_DUPFD, numbers[i]);
	if (number < 0)
		return;
	text = g_strdup_printf("%d", number);
	g_setenv("SYSPROF_CONTROL_FD", text, TRUE);
}

/* Runs in the child. */
static void wait_and_exec(char **argv, const struct preload *preload, int go_fd, int error_fd,
			  bool stdout_to_stderr)
{
	const char *before = g_getenv(CONTROL_VARIABLE);
	g_auto(GStrv) entries = g_strsplit(before ? before : "", ",", -1);
	GString *control = g_string_new(NULL);
	int failed, sysprof = -1;
	char byte;

	do {
		if (!read_byte(go_fd, &byte, &sysprof))
			_exit(CLI_FAILURE);
		g_string_append_c(control, byte);
	} while (byte);
	g_string_truncate(control, control->len - 1);
	/* Our entry comes first. Drop the caller's token, which is invalid at our socket. */
	for (char **entry = entries; control->len && *entry; entry++)
		if (**entry && !g_str_has_prefix(*entry, "token:"))
			g_string_append_printf(control, ",%s", *entry);
	if (control->len)
		g_setenv(CONTROL_VARIABLE, control->str, TRUE);
	/* Programs that load the library on demand use this folder, as <prof/mark.h> documents,
	 * because the library may be outside the loader's search path. */
	if (access(PROF_DEFAULT_LIB_DIR "/libprofcollector.so.0", R_OK) == 0)
		g_setenv("PROF_LIB_DIR", PROF_DEFAULT_LIB_DIR, FALSE);
	preload_set(preload);
	set_sysprof(sysprof);
	cli_restore_signals();
	if (stdout_to_stderr)
		dup2(STDERR_FILENO, STDOUT_FILENO);
	execvp(argv[0], argv);
	failed = errno;
	if (write(error_fd, &failed, sizeof(failed)) < 0)
		_exit(CLI_FAILURE);
	_exit(exec_status(failed));
}

bool command_start(struct command *command, char **argv, const struct preload *preload,
		   bool stdout_to_stderr, GError **error)
{
	g_autofree char *found = g_find_program_in_path(argv[0]);
	int go[2], failure[2];
	pid_t pid;

	if (!found && (!strchr(argv[0], '/') || access(argv[0], F_OK) < 0))
		return fail_exec(argv[0], ENOENT, error);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, go) < 0)
		return cli_set_error(error, CLI_FAILURE, _("cannot make a socket: %s"),
				     ERRNO_TEXT(errno));
	if (pipe2(failure, O_CLOEXEC) < 0 || (pid = fork()) < 0)
		return cli_set_error(error, CLI_FAILURE, _("cannot start a process: %s"),
				     ERRNO_TEXT(errno));
	if (pid == 0) {
		close(go[1]);
		wait_and_exec(argv, preload, go[0], failure[1], stdout_to_stderr);
	}
	close(go[0]);
	close(failure[1]);
	*command = (struct command){ .pid = pid, .go_fd = go[1], .error_fd = failure[0] };
	return true;
}

bool command_release(struct command *command, const char *name, const char *control, int sysprof,
		     GError **error)
{
	const struct iovec part = { (char *)(control ? control : ""),
				    control ? strlen(control) + 1 : 1 };
	int failed = 0;
	ssize_t n;

	/* ignore a failure: the child has then exited, and its status shows why */
	(void)!packet_send(command->go_fd, &part, 1, sysprof, 0);
	close(steal_fd(&command->go_fd));
	/* read() returns 0 after a successful exec, which closes the other end */
	do {
		n = read(command->error_fd, &failed, sizeof(failed));
	} while (n < 0 && errno == EINTR);
	close(steal_fd(&command->error_fd));
	if (n == sizeof(failed)) {
		waitpid(command->pid, NULL, 0);
		command->pid = 0;
		return fail_exec(name, failed, error);
	}
	command->running = true;
	return true;
}

void command_cancel(struct command *command)
{
	if (!command->pid || command->go_fd < 0)
		return;
	close(steal_fd(&command->go_fd));
	close(steal_fd(&command->error_fd));
	waitpid(command->pid, NULL, 0);
	command->pid = 0;
}

int command_exit_status(const struct command *command)
{
	if (WIFSIGNALED(command->wait_status))
		return 128 + WTERMSIG(command->wait_status);
	return WEXITSTATUS(command->wait_status);
}
