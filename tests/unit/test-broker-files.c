/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of daemon/broker/files.c and files-worker.c: the answers to requests if the worker is
 * stuck, dies or lies. Started as profd-files, this program acts as the worker; the pid in a
 * request selects what the worker does.
 */
#include "tests/unit/test.h"

#include "arch/base.h"
#include "daemon/broker/child.h"
#include "daemon/broker/files.h"
#include "daemon/broker/stall-quota.h"
#include "daemon/datagram.h"
#include "daemon/files/status.h"

#include <errno.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <limits.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>

/* Pids that no process has. */
enum target {
	EASY = INT_MAX - 100, /* answered, like all pids that are not listed here */
	HANGS,                /* answered only if `careful` is set */
	HANGS_ALWAYS,
	WAITS, /* answered after the test has created the file `go_path` */
	DIES,
	LIES, /* answered with the serial of another request; then the worker hangs */
};

/* ---- In place of profd-files ----------------------------------------------------------------- */

static const char *log_path, *go_path;

static void hang(void)
{
	for (;;)
		pause();
}

/* Logs each request that is started, so that the test can count them. */
static void write_log(uint32_t serial)
{
	int fd = open(log_path, O_WRONLY | O_APPEND | O_CLOEXEC);

	if (write(fd, &serial, sizeof(serial)) != (ssize_t)sizeof(serial))
		_exit(1);
	close(fd);
}

static void open_file(const struct files_image *image, struct files_answer *answer)
{
	status_set_pid(image->request.pid);
	switch (image->request.pid) {
	case HANGS:
		if (!image->careful)
			hang();
		break;
	case HANGS_ALWAYS:
		hang();
		break;
	case WAITS:
		while (access(go_path, F_OK) != 0)
			usleep(10000);
		break;
	case DIES:
		_exit(1);
	case LIES:
		answer->serial++;
		break;
	}
	answer->error = image->careful ? EACCES : ENOENT;
}

/* Acts as the worker for memory usage. Hangs at process 2 unless bare_pid of the request is 2. */
static void read_memory_usage(const struct files_snapshot *snapshot, int memfd,
			      struct files_answer *answer)
{
	uint64_t at = snapshot->offset;

	status_set_bytes(at);
	for (uint32_t i = 0; i < snapshot->n_usage_pids; i++) {
		int32_t pid = snapshot->usage_pids[i];
		char letter = (char)('P' + abs(pid) - 1);

		if (abs(pid) < snapshot->from_pid)
			continue;
		status_set_pid(abs(pid));
		if (pid == 2 && snapshot->bare_pid != 2)
			hang();
		if (abs(pid) == 2)
			letter = 'q';
		if (pwrite(memfd, &letter, 1, (off_t)at++) != 1)
			_exit(1);
		status_set_bytes(at);
	}
	answer->error = 0;
	answer->snapshot_bytes = at;
}

/* Writes a letter for each of three processes. The second process can be read only without its
 * mappings; then its letter is lowercase. */
static void read_processes(const struct files_snapshot *snapshot, int memfd,
			   struct files_answer *answer)
{
	uint64_t at = snapshot->offset;

	status_set_bytes(at);
	for (pid_t pid = MAX_OF(snapshot->from_pid, 1); pid <= 3; pid++) {
		char letter = (char)('A' + pid - 1);

		status_set_pid(pid);
		if (pid == 2 && snapshot->bare_pid != 2)
			hang();
		if (pid == 2)
			letter = 'b';
		if (pwrite(memfd, &letter, 1, (off_t)at++) != 1)
			_exit(1);
		status_set_bytes(at);
	}
	answer->error = 0;
	answer->snapshot_bytes = at;
}

static int serve(void)
{
	static struct {
		struct files_request request;
		char path[PATH_MAX];
	} incoming;
	struct files_config config;
	int fd;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	datagram_receive(FILES_SOCKET_FD, &config, sizeof(config), 0, &fd);
	status_open(FILES_STATUS_FD);
	while (datagram_receive(FILES_SOCKET_FD, &incoming, sizeof(incoming), 0, &fd) > 0) {
		struct files_answer answer = { .serial = incoming.request.serial };
		const struct iovec part = { &answer, sizeof(answer) };

		if (!status_begin(incoming.request.serial))
			return 0;
		write_log(incoming.request.serial);
		if (incoming.request.type == FILES_SNAPSHOT &&
		    incoming.request.snapshot.n_usage_pids)
			read_memory_usage(&incoming.request.snapshot, fd, &answer);
		else if (incoming.request.type == FILES_SNAPSHOT)
			read_processes(&incoming.request.snapshot, fd, &answer);
		else
			open_file(&incoming.request.image, &answer);
		answer.image.image_id = incoming.request.image.request.image_id;
		datagram_send(FILES_SOCKET_FD, &part, 1, -1, 0);
		if (answer.serial != incoming.request.serial)
			hang();
		if (fd >= 0)
			close(fd);
	}
	return 0;
}

/* ---- The broker's side ----------------------------------------------------------------------- */

static struct files *files;
static GString *told; /* answers and calls of on_stuck(), in the order of arrival */
static unsigned n_answers;

static const char *word_for(int error)
{
	switch (error) {
	case ENOENT:
		return "tried";
	case EACCES:
		return "careful";
	case ETIMEDOUT:
		return "late";
	default:
		return "failed";
	}
}

static void on_snapshot(const struct files_snapshot *request, uint32_t tag, int fd,
			const GError *error, void *data)
{
	char text[16] = { 0 };

	CHECK(error == NULL && fd >= 0);
	CHECK(pread(fd, text, sizeof(text) - 1, 0) >= 0);
	g_string_append_printf(told, "%u:%s ", tag, text);
	if (fd >= 0)
		close(fd);
	n_answers++;
}

static void on_image(const struct files_answer *answer, int fd, void *data)
{
	g_string_append_printf(told, "%u:%s ", (unsigned)answer->image.image_id,
			       word_for(answer->error));
	n_answers++;
}

static void on_stuck(pid_t pid, uid_t uid, bool is_file, void *data)
{
	g_string_append_printf(told, "%s ", is_file ? "stuck" : "held");
}

static void begin(void)
{
	static const struct files_listener listener = { on_snapshot, on_image, on_stuck };
	const struct files_config config = { .any_image = 1 };

	g_file_set_contents(log_path, "", 0, NULL);
	g_unlink(go_path);
	told = g_string_new("");
	n_answers = 0;
	files = files_new(&config, &listener, NULL, NULL);
}

static int64_t passed_us;

static int64_t clock_of_tests(void)
{
	return g_get_monotonic_time() + passed_us;
}

/* Frees everything, and advances the clock of the stall quota so that its charges expire. */
static void end(void)
{
	files_free(files);
	g_string_free(told, TRUE);
	passed_us += 60 * G_USEC_PER_SEC;
}

static void ask(unsigned id, pid_t pid)
{
	const struct files_image image = { .request = { .image_id = id, .pid = pid } };

	files_open_image(files, &image, "/a/path");
}

static void await(unsigned n)
{
	while (n_answers < n)
		g_main_context_iteration(NULL, TRUE);
}

/* Returns how often the request was started. */
static unsigned times_begun(uint32_t serial)
{
	g_autofree char *text = NULL;
	gsize length = 0;
	unsigned n = 0;

	if (!g_file_get_contents(log_path, &text, &length, NULL))
		return 0;
	for (gsize i = 0; i + sizeof(serial) <= length; i += sizeof(serial))
		n += memcmp(text + i, &serial, sizeof(serial)) == 0;
	return n;
}

static void test_order(void)
{
	begin();
	REQUIRE(CHECK(files != NULL));
	for (unsigned i = 1; i <= 40; i++)
		ask(i, EASY);
	await(40);
	CHECK(g_str_has_prefix(told->str, "1:tried 2:tried 3:tried "));
	CHECK(g_str_has_suffix(told->str, "39:tried 40:tried "));
	end();
}

/* Other requests are answered before a stuck request times out. */
static void test_aside(void)
{
	begin();
	ask(1, HANGS);
	for (unsigned i = 2; i <= 4; i++)
		ask(i, EASY);
	await(4);
	CHECK_STR(told->str, "2:tried 3:tried 4:tried stuck 1:careful ");
	/* a second request for the same process is careful at once */
	ask(5, HANGS);
	await(5);
	CHECK(g_str_has_suffix(told->str, "1:careful 5:careful "));
	end();
}

static void test_always(void)
{
	begin();
	ask(1, HANGS_ALWAYS);
	await(1);
	CHECK_STR(told->str, "stuck stuck 1:late ");
	end();
}

/* A worker that responds again does not start requests that another worker has taken. */
static void test_comes_back(void)
{
	begin();
	ask(1, WAITS);
	for (unsigned i = 2; i <= 9; i++)
		ask(i, EASY);
	await(8);
	g_file_set_contents(go_path, "", 0, NULL);
	await(9);
	CHECK_STR(told->str,
		  "2:tried 3:tried 4:tried 5:tried 6:tried 7:tried 8:tried 9:tried 1:tried ");
	ask(10, EASY);
	await(10);
	for (uint32_t serial = 1; serial <= 10; serial++)
		if (!CHECK_INT(times_begun(serial), 1))
			printf("# request %u\n", serial);
	end();
}

static void test_dies(void)
{
	begin();
	ask(1, DIES);
	ask(2, EASY);
	ask(3, LIES);
	ask(4, EASY);
	await(4);
	CHECK_STR(told->str, "1:late 2:tried 3:late 4:tried ");
	/* requests fail after too many workers have died */
	for (unsigned i = 0; i < 12; i++)
		ask(10 + i, DIES);
	ask(30, EASY);
	await(17);
	CHECK(g_str_has_suffix(told->str, "30:failed "));
	end();
}

static void test_snapshot(void)
{
	begin();
	files_read_processes(files, 0, 0, 7);
	ask(1, EASY);
	await(2);
	CHECK_STR(told->str, "1:tried held 7:AbC ");
	end();
}

/* Only the first request waits for a process that blocks. */
static void test_memory_usage(void)
{
	static const int32_t pids[] = { 1, 2, 3 };

	begin();
	files_read_usage(files, FILES_USAGE_MEMORY, pids, ARRAY_SIZE(pids), 7);
	await(1);
	CHECK_STR(told->str, "held 7:PqR ");
	files_read_usage(files, FILES_USAGE_MEMORY, pids, ARRAY_SIZE(pids), 8);
	files_read_usage(files, FILES_USAGE_MEMORY, pids, 1, 9);
	await(3);
	CHECK_STR(told->str, "held 7:PqR 8:PqR 9:P ");
	end();
}

/* files_free() does not wait: it drops pending requests. */
static void test_free(void)
{
	begin();
	ask(1, HANGS);
	ask(2, EASY);
	await(1);
	CHECK_STR(told->str, "2:tried ");
	end();
}

int main(int argc, char **argv)
{
	g_autofree char *folder = NULL;
	g_autofree char *self = NULL;
	g_autofree char *program = NULL;

	log_path = g_getenv("PROF_TEST_LOG");
	go_path = g_getenv("PROF_TEST_GO");
	if (g_str_has_suffix(argv[0], "profd-files"))
		return serve();
	g_assert_true(child_keep_numbers());
	folder = g_dir_make_tmp("broker-files-XXXXXX", NULL);
	self = g_file_read_link("/proc/self/exe", NULL);
	program = g_build_filename(folder, "profd-files", NULL);
	log_path = g_build_filename(folder, "log", NULL);
	go_path = g_build_filename(folder, "go", NULL);
	g_setenv("PROF_TEST_LOG", log_path, TRUE);
	g_setenv("PROF_TEST_GO", go_path, TRUE);
	g_setenv("PROF_LIBEXEC_DIR", folder, TRUE);
	if (symlink(self, program) != 0)
		return 1;
	stall_quota_clock = clock_of_tests;
	RUN(test_order);
	RUN(test_aside);
	RUN(test_always);
	RUN(test_comes_back);
	RUN(test_dies);
	RUN(test_snapshot);
	RUN(test_memory_usage);
	RUN(test_free);
	return test_end_without(folder);
}
