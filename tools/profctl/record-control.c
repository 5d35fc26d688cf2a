/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Record-control - a recording that the program itself starts and ends with libprofcollector's
 * prof_recorder_open()
 *
 *     profctl record --control FD --pid PID …
 *
 * The program has the other end of the socket FD (libcollector/control.h). On it, profctl reports
 * the start and the end of the recording. The first report carries one end of a switch: a socket
 * that turns sampling on and off (struct control_switch). profd's engine has the other end, so that
 * switching involves only the program and the engine. The recording ends when the program shuts
 * down its end of FD or exits. profctl watches both the socket FD and the process, because a forked
 * child may keep the socket open.
 */
#include "config.h"

#include "arch/errno-text.h"
#include "tools/profctl/record-control.h"

#include "arch/base.h"
#include "arch/packet.h"
#include "libcollector/control.h"
#include "tools/common/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <glib-unix.h>
#include <glib/gi18n.h>
#include <sys/pidfd.h>
#include <sys/socket.h>

bool record_control_open(int fd, struct record_control *ret_control, GError **error)
{
	int type, sockets[2];
	socklen_t bytes = sizeof(type);
	struct ucred peer; /* the process that created `fd` and its other end */

	if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &bytes) < 0 || type != SOCK_SEQPACKET ||
	    fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
		return cli_set_error(
			error, CLI_USAGE,
			_("--control: descriptor %d is not a socket of libprofcollector"), fd);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0)
		return cli_set_error(error, CLI_FAILURE, _("cannot make a socket: %s"),
				     ERRNO_TEXT(errno));
	bytes = sizeof(peer);
	*ret_control = (struct record_control){
		.fd = fd,
		.switch_fd = sockets[0],
		.program_fd = sockets[1],
		.pidfd = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) < 0
				 ? -1
				 : pidfd_open(peer.pid, 0),
	};
	return true;
}

static void remove_watches(struct record_control *control)
{
	for (size_t i = 0; i < ARRAY_SIZE(control->watches); i++)
		g_clear_handle_id(&control->watches[i], g_source_remove);
}

/* Handles the program's exit, and any event on the socket, on which the program sends nothing. */
static gboolean on_end(gint fd, GIOCondition condition, gpointer data)
{
	struct record_control *control = data;

	remove_watches(control);
	control->gone(control->data);
	return G_SOURCE_CONTINUE;
}

void record_control_watch(struct record_control *control, void (*gone)(void *data), void *data)
{
	control->gone = gone;
	control->data = data;
	control->watches[0] = g_unix_fd_add(control->fd, G_IO_IN | G_IO_HUP, on_end, control);
	if (control->pidfd >= 0)
		control->watches[1] = g_unix_fd_add(control->pidfd, G_IO_IN, on_end, control);
}

/* Sends a report. A program that does not receive it has exited or ignores it. `text` may be
 * NULL. */
static void send_report(const struct record_control *control, struct control_report report,
			const char *text, int fd)
{
	const struct iovec part = { &report, sizeof(report) };

	report.magic = CONTROL_REPORT_MAGIC;
	report.version = CONTROL_VERSION;
	g_strlcpy(report.text, text ? text : "", sizeof(report.text));
	(void)!packet_send(control->fd, &part, 1, fd, MSG_DONTWAIT);
}

void record_control_ready(struct record_control *control, const char *where)
{
	/* Close our copy, so that the program notices when the engine exits. */
	close(steal_fd(&control->switch_fd));
	send_report(control, (struct control_report){ .kind = CONTROL_REPORT_READY }, where,
		    control->program_fd);
	close(steal_fd(&control->program_fd));
}

void record_control_end(struct record_control *control, int status, const char *message)
{
	const int fds[] = { control->fd, control->switch_fd, control->program_fd, control->pidfd };

	if (control->fd >= 0)
		send_report(control,
			    (struct control_report){ .kind = CONTROL_REPORT_ENDED,
						     .status = (uint32_t)status },
			    message, -1);
	remove_watches(control);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		if (fds[i] >= 0)
			close(fds[i]);
}
