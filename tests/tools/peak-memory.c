/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * peak-memory COMMAND [ARGUMENT…] - prints a command's peak resident size in bytes and exit status
 *
 * The command's stdout is discarded. This is a small C program, because a child starts with the
 * resident size of its parent, and the size of an interpreter would exceed that of the command.
 * Prints a line of JSON. Exits with 0 if the command exited, with 1 if a signal ended it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void run(char **command)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0)
		_exit(127);
	execvp(command[0], command);
	fprintf(stderr, "peak-memory: cannot run '%s': %s\n", command[0], strerror(errno));
	_exit(127);
}

int main(int argc, char **argv)
{
	struct rusage usage;
	int status;
	pid_t pid;

	if (argc < 2) {
		fprintf(stderr, "usage: peak-memory COMMAND [ARGUMENT…]\n");
		return 2;
	}
	pid = fork();
	if (pid == 0)
		run(argv + 1);
	if (pid < 0 || wait4(pid, &status, 0, &usage) != pid || !WIFEXITED(status)) {
		fprintf(stderr, "peak-memory: '%s' did not run to its end\n", argv[1]);
		return 1;
	}
	printf("{\"bytes\":%lu,\"status\":%d}\n", (unsigned long)usage.ru_maxrss * 1024,
	       WEXITSTATUS(status));
	return 0;
}
