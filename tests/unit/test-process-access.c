/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of daemon/process-access.c, also with pidfds of daemon/broker/target.c.
 */
#include "tests/unit/test.h"

#include "arch/base.h"
#include "daemon/broker/target.h"
#include "daemon/process-access.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define USER 65534
#define OTHER 65533

/* A process that runs `act`, reports that it did, and waits until it is killed. */
struct child {
	pid_t pid;
	int pidfd;
};

static int ready_fd;

static struct child start(void (*act)(void))
{
	int ready[2];
	struct child child;
	char byte;

	if (pipe(ready) != 0)
		abort();
	child.pid = fork();
	if (child.pid == 0) {
		ready_fd = ready[1];
		act();
		if (write(ready_fd, "", 1) == 1)
			for (;;)
				pause();
		_exit(1);
	}
	close(ready[1]);
	if (read(ready[0], &byte, 1) != 1)
		printf("# a child failed\n");
	close(ready[0]);
	child.pidfd = target_open(child.pid);
	return child;
}

static void end(struct child *child)
{
	kill(child->pid, SIGKILL);
	waitpid(child->pid, NULL, 0);
	close(child->pidfd);
}

static bool owned(const struct child *child, uid_t uid)
{
	return target_is_owned(child->pidfd, child->pid, uid);
}

static void do_nothing(void)
{
}

static void become(uid_t real, uid_t effective, uid_t saved)
{
	if (setresgid(USER, USER, USER) != 0 || setresuid(real, effective, saved) != 0)
		_exit(1);
}

/* Becomes a normal process of the user: dumpable, as after exec. */
static void be_user(void)
{
	become(USER, USER, USER);
	prctl(PR_SET_DUMPABLE, 1);
}

static void be_undumpable(void)
{
	become(USER, USER, USER);
}

static void keep_saved_root(void)
{
	become(USER, USER, 0);
	prctl(PR_SET_DUMPABLE, 1);
}

static void keep_real_root(void)
{
	become(0, USER, USER);
	prctl(PR_SET_DUMPABLE, 1);
}

static void keep_capability(void)
{
	prctl(PR_SET_KEEPCAPS, 1);
	be_user();
}

static void keep_group(void)
{
	if (setresgid(USER, USER, 0) != 0 || setresuid(USER, USER, USER) != 0)
		_exit(1);
	prctl(PR_SET_DUMPABLE, 1);
}

static pthread_barrier_t barrier;

static void *be_other(void *data)
{
	/* libc's function would change all threads, not only this one */
	if (syscall(SYS_setresuid, OTHER, OTHER, OTHER) != 0)
		_exit(1);
	prctl(PR_SET_DUMPABLE, 1);
	pthread_barrier_wait(&barrier);
	for (;;)
		pause();
}

static void have_other_thread(void)
{
	pthread_t thread;

	if (setresgid(USER, USER, USER) != 0)
		_exit(1);
	pthread_barrier_init(&barrier, NULL, 2);
	if (pthread_create(&thread, NULL, be_other, NULL) != 0)
		_exit(1);
	pthread_barrier_wait(&barrier);
	if (syscall(SYS_setresuid, USER, USER, USER) != 0)
		_exit(1);
	prctl(PR_SET_DUMPABLE, 1);
}

static void test_own(void)
{
	struct child child = start(do_nothing);

	CHECK(owned(&child, geteuid()));
	CHECK(!owned(&child, geteuid() + 1));
	end(&child);
}

static void test_gone(void)
{
	struct child child = start(do_nothing);

	kill(child.pid, SIGKILL);
	while (target_is_alive(child.pidfd))
		usleep(1000);
	/* nobody has waited for the process yet, so its pid and /proc entry still exist */
	CHECK(!owned(&child, geteuid()));
	waitpid(child.pid, NULL, 0);
	CHECK(!owned(&child, geteuid()));
	CHECK(!target_is_owned(child.pidfd, getpid(), geteuid()));
	CHECK(target_open(child.pid) < 0);
	close(child.pidfd);
}

static void test_not_the_users(void)
{
	static void (*const acts[])(void) = { be_undumpable,   keep_saved_root, keep_real_root,
					      keep_capability, keep_group,      have_other_thread };
	struct child child;

	if (geteuid() != 0)
		SKIP("needs root");
	child = start(be_user);
	CHECK(owned(&child, USER));
	CHECK(!owned(&child, OTHER));
	CHECK(!owned(&child, 0));
	end(&child);
	for (size_t i = 0; i < ARRAY_SIZE(acts); i++) {
		child = start(acts[i]);
		if (!CHECK(!owned(&child, USER)))
			printf("# act %zu\n", i);
		end(&child);
	}
}

static bool leads(const struct child *child, uid_t uid)
{
	char path[32];
	bool found;
	int dir;

	snprintf(path, sizeof(path), "/proc/%d", child->pid);
	dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	found = process_access_first(dir, uid);
	close(dir);
	return found;
}

static void test_leads(void)
{
	static void (*const acts[])(void) = { be_undumpable, keep_saved_root, keep_real_root,
					      keep_capability, keep_group };
	struct child child;

	if (geteuid() != 0)
		SKIP("needs root");
	child = start(have_other_thread);
	CHECK(leads(&child, USER) && !leads(&child, OTHER) && !leads(&child, 0));
	end(&child);
	for (size_t i = 0; i < ARRAY_SIZE(acts); i++) {
		child = start(acts[i]);
		if (!CHECK(!leads(&child, USER)))
			printf("# act %zu\n", i);
		end(&child);
	}
}

/* An open /proc/PID does not refer to the next process with that pid. */
static void test_folder(void)
{
	struct child child = start(do_nothing);
	char path[32];
	int dir;

	snprintf(path, sizeof(path), "/proc/%d", child.pid);
	dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	CHECK(process_access_all(dir, geteuid()));
	end(&child);
	CHECK(!process_access_all(dir, geteuid()) && !process_access_first(dir, geteuid()));
	close(dir);
}

/* ---- User namespaces ------------------------------------------------------------------------- */

static bool write_file(pid_t pid, const char *name, const char *text)
{
	char path[48];
	int fd;
	bool ok;

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
	if (fd >= 0)
		close(fd);
	return ok;
}

/* Enters a user namespace with identity-mapped ids. Only a process outside of it may write such a
 * map. */
static void enter_roots_namespace(void)
{
	pid_t self = getpid(), helper = fork();
	int status = 1;

	if (helper == 0) {
		while (!write_file(self, "uid_map", "0 0 65536"))
			usleep(1000);
		_exit(!write_file(self, "gid_map", "0 0 65536"));
	}
	if (unshare(CLONE_NEWUSER) != 0)
		kill(helper, SIGKILL);
	waitpid(helper, &status, 0);
	if (status != 0)
		_exit(1);
	be_user();
}

static void enter_own_namespace(void)
{
	be_user();
	if (unshare(CLONE_NEWUSER) != 0)
		_exit(1);
}

static void enter_second_namespace(void)
{
	enter_own_namespace();
	if (!write_file(getpid(), "setgroups", "deny") ||
	    !write_file(getpid(), "uid_map", "0 65534 1") ||
	    !write_file(getpid(), "gid_map", "0 65534 1") || unshare(CLONE_NEWUSER) != 0)
		_exit(1);
}

static bool can(void (*act)(void))
{
	pid_t pid = fork();
	int status = 1;

	if (pid == 0) {
		act();
		_exit(0);
	}
	waitpid(pid, &status, 0);
	return status == 0;
}

static void test_namespaces(void)
{
	static const struct {
		void (*act)(void);
		bool owned;
	} cases[] = {
		{ enter_own_namespace, true },
		{ enter_second_namespace, true },
		{ enter_roots_namespace, false },
	};

	if (geteuid() != 0)
		SKIP("needs root");
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct child child;

		if (!can(cases[i].act))
			SKIP("no user namespace can be made here");
		child = start(cases[i].act);
		if (!CHECK(owned(&child, USER) == cases[i].owned))
			printf("# case %zu\n", i);
		CHECK(!owned(&child, OTHER));
		CHECK(!owned(&child, 0));
		end(&child);
	}
}

static void *stay(void *data)
{
	char path[64], state = 0;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", getpid());
	while (state != 'Z') {
		FILE *file = fopen(path, "re");

		if (!file || fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
			_exit(1);
		fclose(file);
	}
	if (write(ready_fd, "", 1) == 1)
		for (;;)
			pause();
	_exit(1);
}

static void lose_leader(void)
{
	pthread_t thread;

	be_user();
	if (pthread_create(&thread, NULL, stay, NULL) == 0)
		syscall(SYS_exit, 0);
	_exit(1);
}

static void test_leader_gone(void)
{
	struct child child;

	if (geteuid() != 0)
		SKIP("needs root");
	child = start(lose_leader);
	CHECK(owned(&child, USER) && leads(&child, USER));
	end(&child);
}

int main(void)
{
	RUN(test_own);
	RUN(test_gone);
	RUN(test_not_the_users);
	RUN(test_leads);
	RUN(test_folder);
	RUN(test_leader_gone);
	RUN(test_namespaces);
	return test_end();
}
