/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of daemon/broker/stall-quota.c: which users are blocked, and for how long.
 */
#include "tests/unit/test.h"

#include "arch/base.h"
#include "daemon/broker/stall-quota.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define USER 65534
#define OTHER 65533
#define TARGET 100 /* any pid: only root's processes are special */

static int64_t now_us;
static GArray *helpers; /* pids of children that have not ended */

static int64_t fake_clock(void)
{
	return now_us;
}

/* Starts a process that stands for a worker that was killed but has not ended. */
static pid_t start(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	g_array_append_val(helpers, pid);
	return pid;
}

static void hang(uid_t uid, pid_t target)
{
	stall_quota_add(start(), uid, target);
}

static void on_exit_of_last(GPid pid, gint wait_status, gpointer data)
{
	*(bool *)data = true;
}

/* Ends all workers. Waits for the exit of a later child, which is reported after the exits of the
 * workers. */
static void let_go(void)
{
	bool heard = false;
	pid_t last;

	for (unsigned i = 0; i < helpers->len; i++) {
		pid_t pid = g_array_index(helpers, pid_t, i);

		kill(pid, SIGKILL);
		waitid(P_PID, (id_t)pid, &(siginfo_t){ 0 }, WEXITED | WNOWAIT);
	}
	g_array_set_size(helpers, 0);
	last = fork();
	if (last == 0)
		_exit(0);
	g_child_watch_add(last, on_exit_of_last, &heard);
	while (!heard)
		g_main_context_iteration(NULL, TRUE);
}

static void pass(int64_t seconds)
{
	now_us += seconds * G_USEC_PER_SEC;
}

static void test_at_once(void)
{
	for (unsigned i = 0; i < 3; i++) {
		CHECK(!stall_quota_is_blocked(USER, TARGET));
		hang(USER, TARGET);
	}
	CHECK(stall_quota_is_blocked(USER, TARGET));
	/* blocked as long as the workers exist */
	pass(3600);
	CHECK(stall_quota_is_blocked(USER, TARGET));
	let_go();
	CHECK(!stall_quota_is_blocked(USER, TARGET));
}

static void test_pause(void)
{
	for (unsigned i = 0; i < 4; i++) {
		CHECK(!stall_quota_is_blocked(USER, TARGET));
		hang(USER, TARGET);
		let_go();
		pass(20);
	}
	CHECK(stall_quota_is_blocked(USER, TARGET));
	pass(20);
	CHECK(!stall_quota_is_blocked(USER, TARGET));
	/* after the block, the count starts again */
	hang(USER, TARGET);
	let_go();
	CHECK(!stall_quota_is_blocked(USER, TARGET));
	pass(31);
}

static void test_users(void)
{
	struct files_bare bare[4];

	for (unsigned i = 0; i < 3; i++)
		hang(USER, TARGET + (pid_t)i);
	CHECK(stall_quota_is_blocked(USER, TARGET + 7));
	CHECK(!stall_quota_is_blocked(OTHER, TARGET));
	CHECK(!stall_quota_is_blocked(0, TARGET));
	CHECK_INT(stall_quota_list_blocked(bare, ARRAY_SIZE(bare)), 1);
	CHECK_INT(bare[0].uid, USER);
	CHECK_INT(bare[0].pid, 0);
	CHECK_INT(stall_quota_list_blocked(bare, 0), 0);
	let_go();
	pass(31);
	CHECK_INT(stall_quota_list_blocked(bare, ARRAY_SIZE(bare)), 0);
}

static void test_root(void)
{
	struct files_bare bare[4];

	hang(0, TARGET);
	CHECK(!stall_quota_is_blocked(0, TARGET));
	hang(0, TARGET);
	CHECK(stall_quota_is_blocked(0, TARGET));
	for (pid_t other = 1; other < 6; other++) {
		hang(0, TARGET + other);
		CHECK(!stall_quota_is_blocked(0, TARGET + other));
	}
	CHECK_INT(stall_quota_list_blocked(bare, ARRAY_SIZE(bare)), 1);
	CHECK_INT(bare[0].uid, 0);
	CHECK_INT(bare[0].pid, TARGET);
	let_go();
	CHECK(stall_quota_is_blocked(0, TARGET));
	pass(31);
	CHECK(!stall_quota_is_blocked(0, TARGET));
}

static void test_full(void)
{
	struct files_bare bare[4];

	/* one hang less than the limit for all of root's processes */
	for (pid_t i = 0; i < 15; i++)
		hang(0, TARGET + i);
	CHECK(!stall_quota_is_blocked(0, 1));
	hang(0, TARGET + 15);
	CHECK(stall_quota_is_blocked(0, 1));
	CHECK(!stall_quota_is_blocked(USER, 1));
	REQUIRE(CHECK(stall_quota_list_blocked(bare, ARRAY_SIZE(bare)) > 0));
	CHECK(bare[0].uid == 0 && bare[0].pid == 0);
	for (uid_t i = 0; i < 16; i++) {
		CHECK(!stall_quota_is_full());
		stall_quota_reap(start(), USER + i, TARGET);
	}
	CHECK(stall_quota_is_full());
	let_go();
	CHECK(!stall_quota_is_full());
	CHECK(!stall_quota_is_blocked(0, 1));
	pass(31);
}

/* Ending a worker that is no longer needed does not count as a hang. */
static void test_reap(void)
{
	for (unsigned i = 0; i < 6; i++) {
		stall_quota_reap(start(), USER, TARGET);
		CHECK(!stall_quota_is_blocked(USER, TARGET));
		let_go();
	}
}

static void test_owner(void)
{
	pid_t gone = fork();

	if (gone == 0)
		_exit(0);
	waitpid(gone, NULL, 0);
	CHECK_INT(stall_quota_owner(getpid()), geteuid());
	CHECK_INT(stall_quota_owner(gone), STALL_QUOTA_NOBODY);
	CHECK_INT(stall_quota_owner(0), STALL_QUOTA_NOBODY);
	CHECK_INT(stall_quota_owner(-1), STALL_QUOTA_NOBODY);
}

int main(void)
{
	stall_quota_clock = fake_clock;
	helpers = g_array_new(FALSE, FALSE, sizeof(pid_t));
	RUN(test_at_once);
	RUN(test_pause);
	RUN(test_users);
	RUN(test_root);
	RUN(test_full);
	RUN(test_reap);
	RUN(test_owner);
	g_array_unref(helpers);
	return test_end();
}
