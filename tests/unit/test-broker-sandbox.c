/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of daemon/broker/sandbox.c: actions that profd must be able to perform, and actions that
 * it must not, in children that enter the sandbox as profd does.
 */
#include "config.h"

#include "daemon/broker/sandbox.h"
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <glib/gstdio.h>
#include <linux/capability.h>
#include <linux/openat2.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ALLOWED = 100, NO_SANDBOX = 101 };

static char *folder, *file, *fresh;

/* Returns 0 or an errno. */
static int errno_of(long result)
{
	return result < 0 ? errno : 0;
}

static int try_open_writing(void)
{
	return errno_of(open(file, O_WRONLY | O_CLOEXEC));
}

static int try_open_read_write(void)
{
	return errno_of(open(file, O_RDWR | O_CLOEXEC));
}

static int try_truncate(void)
{
	return errno_of(open(file, O_RDONLY | O_TRUNC | O_CLOEXEC));
}

static int try_create(void)
{
	return errno_of(open(fresh, O_RDONLY | O_CREAT | O_CLOEXEC, 0600));
}

static int try_nameless(void)
{
	return errno_of(open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
}

static int try_openat(void)
{
	return errno_of(openat(AT_FDCWD, file, O_WRONLY | O_CLOEXEC));
}

static int try_openat2(void)
{
	struct open_how how = { .flags = O_RDWR | O_CLOEXEC };

	return errno_of((int)syscall(SYS_openat2, AT_FDCWD, file, &how, sizeof(how)));
}

static int try_memory_of_another(void)
{
	g_autofree char *path = g_strdup_printf("/proc/%d/mem", getppid());

	return errno_of(open(path, O_RDWR | O_CLOEXEC));
}

static int try_creat(void)
{
	return errno_of(creat(fresh, 0600));
}

static int try_unlink(void)
{
	return errno_of(g_unlink(file));
}

static int try_rename(void)
{
	return errno_of(g_rename(file, fresh));
}

static int try_link(void)
{
	return errno_of(link(file, fresh));
}

static int try_symlink(void)
{
	return errno_of(symlink(file, fresh));
}

static int try_mkdir(void)
{
	return errno_of(g_mkdir(fresh, 0700));
}

static int try_mknod(void)
{
	return errno_of(mkfifo(fresh, 0600));
}

static int try_chmod(void)
{
	return errno_of(g_chmod(file, 0777));
}

static int try_chown(void)
{
	return errno_of(chown(file, getuid(), getgid()));
}

static int try_path_truncate(void)
{
	return errno_of(truncate(file, 0));
}

static int try_ptrace(void)
{
	return errno_of(ptrace(PTRACE_TRACEME, 0, NULL, NULL));
}

static int try_write_memory(void)
{
	return errno_of(syscall(SYS_process_vm_writev, getppid(), NULL, 0, NULL, 0, 0));
}

static int try_bpf(void)
{
	return errno_of(syscall(SYS_bpf, -1, NULL, 0));
}

static int try_mount(void)
{
	return errno_of(mount("none", "/nonexistent", "tmpfs", 0, NULL));
}

static int try_module(void)
{
	return errno_of(syscall(SYS_finit_module, -1, "", 0));
}

static int try_unshare(void)
{
	return errno_of(unshare(CLONE_NEWUTS));
}

static int try_namespace_by_clone(void)
{
	return errno_of(syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, NULL, NULL, NULL, NULL));
}

static int try_network(void)
{
	return errno_of(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

static int try_netlink(void)
{
	return errno_of(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 0));
}

static int try_listen(void)
{
	return errno_of(listen(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), 1));
}

static int try_terminal_input(void)
{
	return errno_of(syscall(SYS_ioctl, 0, 0x5412 /* TIOCSTI */, "x"));
}

static int try_writable_code(void)
{
	void *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return memory == MAP_FAILED ? errno : 0;
}

static int try_clock(void)
{
	return errno_of(syscall(SYS_clock_settime, CLOCK_REALTIME, NULL));
}

/* Runs an action in a child, in the sandbox or not. Returns the child's wait status. */
static int run_inside(int (*act)(void), bool with_sandbox)
{
	pid_t child = fork();
	int status = -1;

	if (child == 0) {
		int failed;

		setrlimit(RLIMIT_CORE, &(struct rlimit){ 0 });
		if (with_sandbox &&
		    (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || !sandbox_filter(NULL)))
			_exit(NO_SANDBOX);
		failed = act();
		_exit(failed ? failed : ALLOWED);
	}
	waitpid(child, &status, 0);
	return status;
}

static void test_calls(void)
{
	enum { DEADLY = 0 };
	static const struct {
		const char *name;
		int (*act)(void);
		int expected; /* errno, or DEADLY: killed by SIGSYS */
	} acts[] = {
		{ "open(O_WRONLY)", try_open_writing, EPERM },
		{ "open(O_RDWR)", try_open_read_write, EPERM },
		{ "open(O_TRUNC)", try_truncate, EPERM },
		{ "open(O_CREAT)", try_create, EPERM },
		{ "open(O_TMPFILE)", try_nameless, EPERM },
		{ "openat(O_WRONLY)", try_openat, EPERM },
		{ "openat2(O_RDWR)", try_openat2, ENOSYS },
		{ "/proc/PID/mem", try_memory_of_another, EPERM },
		{ "creat", try_creat, EPERM },
		{ "unlink", try_unlink, EPERM },
		{ "rename", try_rename, EPERM },
		{ "link", try_link, EPERM },
		{ "symlink", try_symlink, EPERM },
		{ "mkdir", try_mkdir, EPERM },
		{ "mkfifo", try_mknod, EPERM },
		{ "chmod", try_chmod, EPERM },
		{ "chown", try_chown, EPERM },
		{ "truncate", try_path_truncate, EPERM },
		{ "ptrace", try_ptrace, DEADLY },
		{ "process_vm_writev", try_write_memory, DEADLY },
		{ "bpf", try_bpf, EPERM },
		{ "mount", try_mount, DEADLY },
		{ "finit_module", try_module, DEADLY },
		{ "unshare", try_unshare, DEADLY },
		{ "clone(CLONE_NEWUSER)", try_namespace_by_clone, EPERM },
		{ "socket(AF_INET)", try_network, EPERM },
		{ "socket(AF_NETLINK)", try_netlink, EPERM },
		{ "listen", try_listen, EPERM },
		{ "ioctl(TIOCSTI)", try_terminal_input, EPERM },
		{ "mmap(PROT_WRITE | PROT_EXEC)", try_writable_code, EPERM },
		{ "clock_settime", try_clock, EPERM },
	};

	if (PROF_SANITIZED)
		SKIP("sanitizers need calls that the filter refuses");
	for (size_t i = 0; i < sizeof(acts) / sizeof(*acts); i++) {
		int status = run_inside(acts[i].act, true);
		bool as_expected = acts[i].expected == DEADLY
					   ? WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS
					   : WIFEXITED(status) &&
						     WEXITSTATUS(status) == acts[i].expected;

		if (!CHECK(as_expected))
			printf("# %s: status %#x\n", acts[i].name, (unsigned)status);
		g_unlink(fresh);
	}
}

/* These actions succeed without the filter, so test_calls() detects a missing filter. */
static void test_without(void)
{
	static int (*const acts[])(void) = {
		try_open_writing, try_open_read_write, try_openat, try_create, try_network,
		try_netlink,      try_symlink,         try_ptrace, try_chmod,
	};

	for (size_t i = 0; i < sizeof(acts) / sizeof(*acts); i++) {
		int status = run_inside(acts[i], false);

		if (!CHECK(WIFEXITED(status) && WEXITSTATUS(status) == ALLOWED))
			printf("# act %zu: status %#x\n", i, (unsigned)status);
		g_unlink(fresh);
	}
}

static gpointer in_thread(gpointer data)
{
	return data;
}

/* Normal work: runs a program, runs a thread, writes and seals a memfd, sends through a socket,
 * reads a file. Returns 0, or the number of the failed step. */
static int do_work(void)
{
	char *const argv[] = { (char *)"true", NULL };
	g_autofree char *text = NULL;
	int sockets[2], memfd, status = -1;
	pid_t pid;

	if (posix_spawnp(&pid, "true", NULL, NULL, argv, environ) != 0 ||
	    waitpid(pid, &status, 0) != pid || status != 0)
		return 1;
	if (g_thread_join(g_thread_new("test", in_thread, file)) != file)
		return 2;
	memfd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (memfd < 0 || write(memfd, "x", 1) != 1 ||
	    fcntl(memfd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SEAL) < 0)
		return 3;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0 ||
	    send(sockets[0], "x", 1, 0) != 1)
		return 4;
	if (!g_file_get_contents(file, &text, NULL, NULL) || g_access("/proc/self/maps", R_OK) != 0)
		return 5;
	/* fails, but not because of the filter (EPERM) */
	if (syscall(SYS_perf_event_open, NULL, 0, -1, -1, 0) >= 0 || errno == EPERM)
		return 6;
	return 0;
}

static void test_work(void)
{
	int status;

	if (PROF_SANITIZED)
		SKIP("sanitizers need calls that the filter refuses");
	status = run_inside(do_work, true);
	CHECK(WIFEXITED(status));
	CHECK_INT(WEXITSTATUS(status), ALLOWED);
}

/* Drops capabilities. Returns a bit for each kind of privilege that wrongly remains. */
static int find_privilege(void)
{
	const uint64_t kept = 1ull << CAP_PERFMON | 1ull << CAP_BPF | 1ull << CAP_IPC_LOCK |
			      1ull << CAP_SYS_PTRACE | 1ull << CAP_CHECKPOINT_RESTORE |
			      1ull << CAP_DAC_READ_SEARCH | 1ull << CAP_SYSLOG |
			      1ull << CAP_SETUID | 1ull << CAP_SETGID | 1ull << CAP_SETPCAP |
			      1ull << CAP_KILL | 1ull << CAP_SYS_NICE;
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct sets[2];
	bool was_root = geteuid() == 0;
	int wrong = 0;

	if (!sandbox_drop_capabilities(NULL))
		return 64;
	syscall(SYS_capget, &header, sets);
	for (int i = 0; i < 64; i++) {
		if (kept >> i & 1)
			continue;
		if ((sets[i / 32].effective | sets[i / 32].permitted) >> i % 32 & 1)
			wrong |= 1;
		if (was_root && prctl(PR_CAPBSET_READ, i, 0, 0, 0) == 1)
			wrong |= 2;
	}
	if (sets[0].inheritable || sets[1].inheritable)
		wrong |= 4;
	if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1)
		wrong |= 8;
	if (!PROF_SANITIZED && prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) != 0)
		wrong |= 16;
	/* changing the owner of a file requires CAP_CHOWN */
	if (was_root && chown(file, 1, 1) == 0)
		wrong |= 32;
	return wrong;
}

static void test_capabilities(void)
{
	CHECK_INT(test_in_child(find_privilege), 0);
}

int main(void)
{
	folder = g_dir_make_tmp("sandbox-XXXXXX", NULL);
	file = g_build_filename(folder, "file", NULL);
	fresh = g_build_filename(folder, "fresh", NULL);
	g_file_set_contents(file, "text", -1, NULL);
	RUN(test_capabilities);
	RUN(test_calls);
	RUN(test_without);
	RUN(test_work);
	g_unlink(file);
	g_rmdir(folder);
	return test_end();
}
