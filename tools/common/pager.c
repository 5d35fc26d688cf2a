/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Pager - shows long text on a terminal page by page
 *
 * The pager is run without a shell. Ctrl-C goes to the pager while it runs: the program exits when
 * the pager does. Quitting the pager before the end of the text is not an error.  [test_terminal]
 */
#include "config.h"

#include "tools/common/pager.h"

#include "tools/common/cli.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static GPid running; /* 0: none */

static void set_up_child(gpointer unused)
{
	cli_restore_signals();
}

void pager_start(void)
{
	const char *own = g_getenv("PROFCTL_PAGER"), *usual = g_getenv("PAGER");
	const char *pager = own ? own : usual ? usual : "less";
	g_auto(GStrv) argv = NULL, environment = NULL;
	struct out *out = out_stdout();
	int fd;

	if (running || !isatty(out->fd) || !g_shell_parse_argv(pager, NULL, &argv, NULL) ||
	    strcmp(argv[0], "cat") == 0)
		return;
	environment = g_environ_setenv(g_get_environ(), "LESS", "FRX", FALSE);
	if (!g_spawn_async_with_pipes(NULL, argv, environment,
				      G_SPAWN_SEARCH_PATH | G_SPAWN_DO_NOT_REAP_CHILD |
					      G_SPAWN_CLOEXEC_PIPES,
				      set_up_child, NULL, &running, &fd, NULL, NULL, NULL))
		return;
	out->fd = fd;
	signal(SIGINT, SIG_IGN);
	signal(SIGQUIT, SIG_IGN);
}

bool pager_end(void)
{
	struct out *out = out_stdout();

	if (!running)
		return false;
	close(out->fd);
	out->fd = STDOUT_FILENO;
	while (waitpid(running, NULL, 0) < 0 && errno == EINTR)
		;
	running = 0;
	return true;
}
