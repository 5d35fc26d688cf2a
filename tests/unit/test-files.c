/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of daemon/files: which files are opened for which user, and what is read about which
 * process.
 */
#include "config.h"

#include "arch/base.h"
#include "arch/uapi.h"
#include "daemon/files/image.h"
#include "daemon/files/probe.h"
#include "daemon/files/proc.h"
#include "daemon/files/sandbox.h"
#include "daemon/process-access.h"
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <glib/gstdio.h>
#include <limits.h>
#include <linux/fs.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#define SOMEBODY 4711 /* any uid */

static const struct files_config everything = { .any_image = 1, .kernel = 1 };
static char *folder;

static char *path_of(const char *name)
{
	return g_build_filename(folder, name, NULL);
}

static char *put(const char *name, const char *text)
{
	char *path = path_of(name);

	g_file_set_contents(path, text, -1, NULL);
	return path;
}

static int open_as(const struct files_config *config, struct files_image request, const char *path,
		   struct files_answer *answer, int *ret_fd)
{
	struct client client;

	client_init(&client, config->uid);
	*answer = (struct files_answer){ 0 };
	return image_open(config, &client, &request, path, answer, ret_fd);
}

static int open_image(const struct message_image_request *request, const char *path, int *ret_fd)
{
	struct files_answer answer;

	return open_as(&everything, (struct files_image){ .request = *request }, path, &answer,
		       ret_fd);
}

/* Opens by path only: there is no mapping at 0. */
static int by_path(const char *path, int *ret_fd)
{
	struct message_image_request request = { .pid = getpid() };

	return open_image(&request, path, ret_fd);
}

static void test_path(void)
{
	g_autofree char *path = put("plain", "hello");
	char text[8] = { 0 };
	int fd = -1;

	REQUIRE(CHECK_INT(by_path(path, &fd), 0));
	CHECK_INT(read(fd, text, sizeof(text)), 5);
	CHECK_STR(text, "hello");
	CHECK_INT(write(fd, "x", 1), -1);
	CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	close(fd);
	CHECK_INT(by_path("plain", &fd), ENOENT);
	CHECK_INT(by_path("", &fd), ENOENT);
	CHECK_INT(by_path("/no/such/file", &fd), ENOENT);
	/* the path of a deleted file, as the kernel shows it; another file really has this path */
	g_autofree char *deleted = put("gone (deleted)", "other");
	CHECK_INT(by_path(deleted, &fd), ENOENT);
}

static void test_only_regular_files(void)
{
	g_autofree char *fifo = path_of("fifo");
	int fd = -1;

	REQUIRE(mkfifo(fifo, 0600) == 0); /* opening it would block */
	CHECK_INT(by_path(fifo, &fd), EINVAL);
	CHECK_INT(by_path("/dev/zero", &fd), EINVAL);
	CHECK_INT(by_path(folder, &fd), EINVAL);
	CHECK_INT(by_path("/proc/version", &fd), EINVAL);
	CHECK_INT(by_path("/sys/devices/system/cpu/online", &fd), EINVAL);
	CHECK_INT(fd, -1);
}

static void test_links(void)
{
	g_autofree char *file = put("file", "file");
	g_autofree char *link = path_of("link");
	g_autofree char *folder_link = path_of("folder");
	g_autofree char *through = g_build_filename(folder_link, "file", NULL);
	int fd = -1;

	REQUIRE(symlink(file, link) == 0 && symlink(folder, folder_link) == 0);
	CHECK_INT(by_path(link, &fd), ELOOP);
	CHECK_INT(by_path(through, &fd), ELOOP);
	CHECK_INT(by_path("/../../etc/passwd", &fd), EXDEV);
	CHECK_INT(fd, -1);
	CHECK_INT(by_path(file, &fd), 0);
	close(fd);
}

static void test_too_large(void)
{
	g_autofree char *path = put("sparse", "");
	int fd = -1;

	if (truncate(path, INT64_C(100) << 30) < 0)
		SKIP("no file of 100 GB here");
	CHECK_INT(by_path(path, &fd), EFBIG);
	g_unlink(path);
}

static void test_strange_names(void)
{
	g_autofree char *path = put("two\nlines", "text");
	int fd = -1;

	CHECK_INT(by_path(path, &fd), 0);
	close(fd);
}

static void test_no_magic_links(void)
{
	int fd = -1;

	CHECK_INT(by_path("/proc/self/exe", &fd), ELOOP);
	CHECK_INT(by_path("/proc/self/root/etc/passwd", &fd), ELOOP);
	CHECK_INT(fd, -1);
}

static void test_mapping_of_a_deleted_file(void)
{
	g_autofree char *path = put("mapped", "mapped bytes");
	g_autofree char *named = g_strconcat(path, " (deleted)", NULL);
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct message_image_request request = { .pid = getpid() };
	char text[16] = { 0 };
	int fd = open(path, O_RDONLY | O_CLOEXEC), found = -1;
	void *map = mmap(NULL, page, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);

	close(fd);
	g_unlink(path);
	REQUIRE(map != MAP_FAILED);
	if (geteuid() != 0)
		SKIP("map_files needs CAP_CHECKPOINT_RESTORE");
	request.start = (uintptr_t)map;
	request.end = request.start + page;
	REQUIRE(CHECK_INT(open_image(&request, named, &found), 0));
	CHECK_INT(read(found, text, sizeof(text)), 12);
	CHECK_STR(text, "mapped bytes");
	close(found);
	munmap(map, page);
}

/* At the address of a sample, another file is mapped now. */
static void test_mapping_of_another_file(void)
{
	g_autofree char *first = put("first", "first bytes");
	g_autofree char *second = put("second", "second bytes");
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct message_image_request request = { .pid = getpid() };
	int fd = open(second, O_RDONLY | O_CLOEXEC), found = -1;
	void *map = mmap(NULL, page, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	char text[16] = { 0 };
	struct stat status;

	close(fd);
	REQUIRE(map != MAP_FAILED && stat(first, &status) == 0);
	request.start = (uintptr_t)map;
	request.end = request.start + page;
	request.inode = status.st_ino;
	REQUIRE(CHECK_INT(open_image(&request, first, &found), 0));
	CHECK_INT(read(found, text, sizeof(text)), 11);
	CHECK_STR(text, "first bytes");
	close(found);
	g_unlink(first);
	CHECK_INT(open_image(&request, first, &found), ENOENT);
	munmap(map, page);
}

/* The mapped file was replaced: the file that now has its path is not opened. */
static void test_replaced(void)
{
	g_autofree char *path = put("replaced", "first");
	struct message_image_request request = { .pid = getpid() };
	struct stat status;
	int fd = -1;

	REQUIRE(stat(path, &status) == 0);
	request.inode = status.st_ino;
	CHECK_INT(open_image(&request, path, &fd), 0);
	close(fd);
	request.inode++;
	CHECK_INT(open_image(&request, path, &fd), ESTALE);
}

/* A file that only root may read is opened by path only if it is certainly the mapped file. */
static void test_unreadable(void)
{
	g_autofree char *path = put("secret", "secret");
	struct message_image_request request = { .pid = getpid() };
	struct stat status;
	int fd = open(path, O_RDONLY | O_CLOEXEC), generation = 0;

	if (geteuid() != 0)
		SKIP("needs root");
	REQUIRE(chmod(path, 0600) == 0 && fstat(fd, &status) == 0);
	CHECK_INT(by_path(path, &fd), EACCES);
	request.inode = status.st_ino;
	CHECK_INT(open_image(&request, path, &fd), EACCES);
	if (ioctl(fd, FS_IOC_GETVERSION, &generation) < 0 || generation == 0)
		SKIP("no generations on this filesystem");
	request.inode_generation = (uint32_t)generation;
	CHECK_INT(open_image(&request, path, &fd), 0);
	request.inode_generation++;
	CHECK_INT(open_image(&request, path, &fd), ESTALE);
}

/* A compromised engine must not get data that a process has mapped. */
static void test_only_executable(void)
{
	g_autofree char *path = put("data", "data");
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct message_image_request request = { .pid = getpid() };
	int fd = open(path, O_RDONLY | O_CLOEXEC), found = -1;
	void *map = mmap(NULL, page, PROT_READ, MAP_PRIVATE, fd, 0);
	struct uapi_procmap_query query = {
		.size = sizeof(query), .query_flags = UAPI_PROCMAP_QUERY_COVERING_OR_NEXT_VMA
	};
	CLEANUP_CLOSE int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);

	close(fd);
	REQUIRE(map != MAP_FAILED);
	if (geteuid() != 0)
		SKIP("map_files needs CAP_CHECKPOINT_RESTORE");
	if (ioctl(maps, UAPI_PROCMAP_QUERY, &query) < 0)
		SKIP("PROCMAP_QUERY needs Linux 6.11");
	chmod(path, 0600);
	request.start = (uintptr_t)map;
	request.end = request.start + page;
	CHECK_INT(open_image(&request, path, &found), EACCES);
	CHECK_INT(found, -1);
	munmap(map, page);
}

/* With `careful`, files on a server are not accessed, not even through mappings. */
static void test_careful(void)
{
	struct files_image request = { .request = { .pid = getpid() }, .careful = 1 };
	g_autofree char *path = put("careful", "local");
	struct files_answer answer;
	int fd = -1;

	REQUIRE(CHECK_INT(open_as(&everything, request, path, &answer, &fd), 0));
	CHECK_INT(answer.image.size, 5);
	close(fd);
	fd = -1;
	CHECK_INT(by_path("/proc/version", &fd), EINVAL);
	CHECK_INT(open_as(&everything, request, "/proc/version", &answer, &fd), EACCES);
	CHECK_INT(open_as(&everything, request, "/no/such/file", &answer, &fd), ENOENT);
	CHECK_INT(fd, -1);
}

static void test_build_id(void)
{
	g_autofree char *text = put("no-elf", "text");
	g_autofree char *exe = g_file_read_link("/proc/self/exe", NULL);
	struct files_image request = { .request = { .pid = getpid() } };
	struct uapi_procmap_query query = {
		.size = sizeof(query), .query_flags = UAPI_PROCMAP_QUERY_COVERING_OR_NEXT_VMA
	};
	CLEANUP_CLOSE int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	struct files_answer answer;
	int fd = -1;

	if (ioctl(maps, UAPI_PROCMAP_QUERY, &query) < 0)
		SKIP("PROCMAP_QUERY needs Linux 6.11");
	REQUIRE(open_as(&everything, request, exe, &answer, &fd) == 0);
	/* The build passes -Wl,--build-id=sha1, Debian's default, to cc and clang. */
	CHECK_INT(answer.image.build_id_size, 20);
	close(fd);
	REQUIRE(open_as(&everything, request, text, &answer, &fd) == 0);
	CHECK_INT(answer.image.build_id_size, 0);
	CHECK_INT(answer.image.size, 4);
	close(fd);
}

/* ---- Users ---- */

static void become_somebody(void)
{
	if (setresgid(SOMEBODY, SOMEBODY, SOMEBODY) < 0 ||
	    setresuid(SOMEBODY, SOMEBODY, SOMEBODY) < 0)
		_exit(1);
	prctl(PR_SET_DUMPABLE, 1);
}

static void become_undumpable(void)
{
	become_somebody();
	prctl(PR_SET_DUMPABLE, 0);
}

static void *nap(void *unused)
{
	pause();
	return unused;
}

/* Changes the user of the first thread only. Makes system calls directly, because glibc's functions
 * would change all threads. */
static void become_half(void)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, nap, NULL) != 0 ||
	    syscall(SYS_setresgid, SOMEBODY, SOMEBODY, SOMEBODY) < 0 ||
	    syscall(SYS_setresuid, SOMEBODY, SOMEBODY, SOMEBODY) < 0)
		_exit(1);
	prctl(PR_SET_DUMPABLE, 1);
}

static void keep_capabilities(void)
{
	prctl(PR_SET_KEEPCAPS, 1);
	become_somebody();
}

static void enter_namespace(void)
{
	become_somebody();
	if (unshare(CLONE_NEWUSER) < 0)
		_exit(1);
}

/* Ends the first thread. Another thread lives on. */
static void end_leader(void)
{
	pthread_t thread;

	become_somebody();
	if (pthread_create(&thread, NULL, nap, NULL) == 0)
		pthread_exit(NULL);
}

/* Starts a process that runs `act`, then sleeps. */
static pid_t start(void (*act)(void))
{
	pid_t pid = fork();

	if (pid != 0) {
		g_usleep(100000);
		return pid;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	act();
	for (;;)
		pause();
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void test_client(void)
{
	g_autofree char *path = put("private", "private");
	struct client nobody, root;
	CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (geteuid() != 0)
		SKIP("needs root");
	client_init(&nobody, SOMEBODY);
	client_init(&root, 0);
	REQUIRE(chmod(path, 0600) == 0 && chmod(folder, 0755) == 0);
	CHECK(!client_may_read(&nobody, fd));
	CHECK(client_may_read(&root, fd));
	REQUIRE(chown(path, SOMEBODY, 0) == 0);
	CHECK(client_may_read(&nobody, fd));
	/* the privileges were restored */
	REQUIRE(chown(path, SOMEBODY + 1, 0) == 0);
	CHECK_INT(access(path, R_OK), 0);
	CHECK_INT(geteuid(), 0);
	REQUIRE(chmod(folder, 0700) == 0 && chmod(path, 0644) == 0);
	CHECK(client_find(&nobody, path, false) < 0);
	CHECK(client_find(&root, path, false) >= 0);
}

static GArray *pids_of(const struct files_config *config, const struct files_snapshot *request,
		       bool *ret_kernel)
{
	GArray *pids = g_array_new(FALSE, FALSE, sizeof(pid_t));
	CLEANUP_CLOSE int memfd = memfd_create("test", MFD_CLOEXEC);
	struct snapshot_record record;
	off_t at = 0;

	*ret_kernel = false;
	CHECK_INT(proc_snapshot(config, request, memfd), 0);
	while (pread(memfd, &record, sizeof(record), at) == (ssize_t)sizeof(record)) {
		if (record.kind == SNAPSHOT_STAT)
			g_array_append_val(pids, record.pid);
		if (record.kind == SNAPSHOT_MODULES)
			*ret_kernel = true;
		at += (off_t)(sizeof(record) + ((record.length + 7) & ~7u));
	}
	return pids;
}

static GArray *pids_of_snapshot(const struct files_config *config, pid_t pid, bool *ret_kernel)
{
	return pids_of(config, &(struct files_snapshot){ .pid = pid }, ret_kernel);
}

static unsigned count_kind_for(const struct files_config *config,
			       const struct files_snapshot *request, uint32_t kind)
{
	CLEANUP_CLOSE int memfd = memfd_create("test", MFD_CLOEXEC);
	struct snapshot_record record;
	unsigned n = 0;
	off_t at = 0;

	CHECK_INT(proc_snapshot(config, request, memfd), 0);
	while (pread(memfd, &record, sizeof(record), at) == (ssize_t)sizeof(record)) {
		n += record.kind == kind;
		at += (off_t)(sizeof(record) + ((record.length + 7) & ~7u));
	}
	return n;
}

static unsigned count_kind(const struct files_snapshot *request, uint32_t kind)
{
	return count_kind_for(&everything, request, kind);
}

static bool has_pid(const GArray *pids, pid_t pid)
{
	for (guint i = 0; i < pids->len; i++)
		if (g_array_index(pids, pid_t, i) == pid)
			return true;
	return false;
}

static void test_snapshot(void)
{
	g_autoptr(GArray) pids = NULL;
	bool kernel;

	pids = pids_of_snapshot(&everything, 0, &kernel);
	CHECK(has_pid(pids, getpid()));
	CHECK(has_pid(pids, 1));
	CHECK(kernel == (access("/proc/modules", F_OK) == 0));
	g_array_unref(pids);
	pids = pids_of_snapshot(&everything, getpid(), &kernel);
	CHECK_INT(pids->len, 1);
}

/* If the side band reported a program's start, the engine has its mappings already. */
static void test_maps_known(void)
{
	struct files_snapshot request = { .pid = getpid() };

	CHECK(count_kind(&request, SNAPSHOT_MAPPING) + count_kind(&request, SNAPSHOT_MAPS) > 0);
	request.maps_known = 1;
	CHECK_INT(count_kind(&request, SNAPSHOT_MAPPING) + count_kind(&request, SNAPSHOT_MAPS), 0);
	CHECK_INT(count_kind(&request, SNAPSHOT_CMDLINE), 1);
	CHECK_INT(count_kind(&request, SNAPSHOT_EXE), 1);
}

/* Requests the memory usage or the counters of this process and of one that does not exist. */
static void test_memory_usage(void)
{
	struct files_snapshot request = { .n_usage_pids = 2,
					  .usage = FILES_USAGE_MEMORY,
					  .usage_pids = { getpid(), INT_MAX } };
	const struct files_config somebody = { .uid = SOMEBODY, .own_only = 1 };
	g_autoptr(GArray) pids = NULL;
	bool kernel;

	CHECK_INT(count_kind(&request, SNAPSHOT_ROLLUP), 1);
	CHECK_INT(count_kind(&request, SNAPSHOT_STATM), 0);
	CHECK_INT(count_kind(&request, SNAPSHOT_STAT), 0);
	CHECK_INT(count_kind(&request, SNAPSHOT_END), 1);
	request.usage = FILES_USAGE_COUNTERS;
	CHECK_INT(count_kind(&request, SNAPSHOT_ROLLUP) + count_kind(&request, SNAPSHOT_STATM), 0);
	CHECK_INT(count_kind(&request, SNAPSHOT_STAT), 1);
	CHECK_INT(count_kind(&request, SNAPSHOT_IO), 1);
	CHECK_INT(count_kind(&request, SNAPSHOT_FDS), 1);
	request.usage = FILES_USAGE_MEMORY;
	/* a negative pid: the rollup is left out, because reading it may block */
	request.usage_pids[0] = -getpid();
	CHECK_INT(count_kind(&request, SNAPSHOT_ROLLUP), 0);
	CHECK_INT(count_kind(&request, SNAPSHOT_STATM), 1);
	request.usage_pids[0] = request.bare_pid = getpid();
	CHECK_INT(count_kind(&request, SNAPSHOT_STATM), 1);
	request.from_pid = getpid() + 1;
	CHECK_INT(count_kind(&request, SNAPSHOT_STATM), 0);
	request = (struct files_snapshot){ .n_usage_pids = 1,
					   .usage = FILES_USAGE_MEMORY,
					   .usage_pids = { getpid() } };
	CHECK_INT(count_kind_for(&somebody, &request, SNAPSHOT_ROLLUP), 0);
	CHECK_INT(count_kind_for(&somebody, &request, SNAPSHOT_STATM), 0);
	pids = pids_of(&everything, &request, &kernel);
	CHECK(pids->len == 0 && !kernel);
}

static unsigned threads_of_snapshot(void)
{
	bool kernel;
	g_autoptr(GArray) pids = pids_of_snapshot(&everything, getpid(), &kernel);

	return pids->len;
}

static void *wait_for(void *data)
{
	sem_wait(data);
	return NULL;
}

/* A snapshot has all threads. If a process has one thread, its list of threads is not read. */
static void test_threads(void)
{
	unsigned before = threads_of_snapshot();
	pthread_t threads[3];
	sem_t end;

	sem_init(&end, 0, 0);
	for (unsigned i = 0; i < ARRAY_SIZE(threads); i++) {
		CHECK_INT(pthread_create(&threads[i], NULL, wait_for, &end), 0);
		CHECK_INT(threads_of_snapshot(), before + i + 1);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(threads); i++)
		sem_post(&end);
	for (unsigned i = 0; i < ARRAY_SIZE(threads); i++)
		pthread_join(threads[i], NULL);
	sem_destroy(&end);
}

/* The first snapshot has only targets, because the engine would drop data of other processes. */
static void test_targets_only(void)
{
	struct files_config config = everything;
	struct files_snapshot request = { .targets_only = 1 };
	g_autoptr(GArray) pids = NULL;
	bool kernel;

	config.n_targets = 2;
	config.targets[0] = getpid();
	config.targets[1] = INT_MAX;
	pids = pids_of(&config, &request, &kernel);
	CHECK_INT(pids->len, 1);
	CHECK(has_pid(pids, getpid()));
	CHECK(kernel == (access("/proc/modules", F_OK) == 0));
	g_array_unref(pids);
	/* as if another worker continued after the test's own process */
	request.from_pid = getpid() + 1;
	pids = pids_of(&config, &request, &kernel);
	CHECK_INT(pids->len, 0);
	g_array_unref(pids);
	request = (struct files_snapshot){ 0 };
	pids = pids_of(&config, &request, &kernel);
	CHECK(has_pid(pids, 1));
}

static void test_own_only(void)
{
	const struct files_config config = { .uid = SOMEBODY, .own_only = 1 };
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	g_autofree char *path = put("program", "program");
	struct files_image request = { 0 };
	struct files_snapshot stacks = { 0 };
	g_autoptr(GArray) pids = NULL;
	struct files_answer answer;
	pid_t own, foreign[4];
	void *map;
	bool kernel;
	int fd;

	if (geteuid() != 0)
		SKIP("needs root");
	/* child processes have the mapping, too */
	fd = open(path, O_RDONLY | O_CLOEXEC);
	map = mmap(NULL, page, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	close(fd);
	fd = -1;
	REQUIRE(map != MAP_FAILED && chmod(folder, 0755) == 0);
	own = start(become_somebody);
	foreign[0] = start(become_undumpable);
	foreign[1] = start(keep_capabilities);
	foreign[2] = getpid();
	foreign[3] = start(become_half);
	pids = pids_of_snapshot(&config, 0, &kernel);
	CHECK(has_pid(pids, own));
	CHECK_INT(pids->len, 1);
	CHECK(!kernel);

	request.request = (struct message_image_request){ .pid = own,
							  .start = (uintptr_t)map,
							  .end = (uintptr_t)map + page };
	CHECK_INT(open_as(&config, request, path, &answer, &fd), 0);
	CHECK(answer.client_read);
	close(fd);
	fd = -1;
	REQUIRE(chmod(path, 0600) == 0);
	CHECK_INT(open_as(&config, request, path, &answer, &fd), EACCES);
	REQUIRE(chmod(path, 0644) == 0);
	for (size_t i = 0; i < ARRAY_SIZE(foreign); i++) {
		g_array_unref(pids);
		pids = pids_of_snapshot(&config, foreign[i], &kernel);
		CHECK_INT(pids->len, 0);
		request.request.pid = foreign[i];
		CHECK_INT(open_as(&config, request, path, &answer, &fd), EACCES);
	}
	/* A request for stacks of several processes gets only stacks of the user's processes. */
	stacks.n_usage_pids = 4;
	stacks.usage = FILES_USAGE_STACKS;
	stacks.usage_pids[0] = foreign[3];
	stacks.usage_pids[1] = own;
	stacks.usage_pids[2] = foreign[1];
	stacks.usage_pids[3] = own;
	CHECK_INT(count_kind_for(&config, &stacks, SNAPSHOT_STACK), 2);
	CHECK_INT(count_kind_for(&config, &stacks, SNAPSHOT_END), 1);
	CHECK_INT(count_kind(&stacks, SNAPSHOT_STACK), 4);
	end(own);
	end(foreign[0]);
	end(foreign[1]);
	end(foreign[3]);
	munmap(map, page);
}

/* A user gets a file of a process that has ended only if the user can reach and read the file. */
static void test_ended(void)
{
	const struct files_config config = { .uid = SOMEBODY, .own_only = 1 };
	g_autofree char *path = put("program", "program");
	pid_t pid = start(become_somebody);
	struct files_image request = { .request = { .pid = pid } };
	struct files_answer answer;
	struct stat status;
	int fd = -1;

	if (geteuid() != 0)
		SKIP("needs root");
	REQUIRE(stat(path, &status) == 0 && chmod(folder, 0755) == 0);
	kill(pid, SIGKILL);
	waitid(P_PID, (id_t)pid, NULL, WEXITED | WNOWAIT);
	/* without an inode, the file may be another one of that name */
	CHECK_INT(open_as(&config, request, path, &answer, &fd), ESRCH);
	request.request.inode = status.st_ino;
	/* first the process is a zombie, then its pid is free */
	for (int i = 0; i < 2; i++) {
		waitid(P_PID, (id_t)pid, NULL, WEXITED | (i == 0 ? WNOWAIT : 0));
		REQUIRE(chmod(folder, 0755) == 0);
		CHECK_INT(open_as(&config, request, path, &answer, &fd), 0);
		CHECK(answer.client_read);
		close(fd);
		fd = -1;
		REQUIRE(chmod(folder, 0700) == 0);
		CHECK_INT(open_as(&config, request, path, &answer, &fd), ESRCH);
		REQUIRE(chmod(folder, 0755) == 0 && chmod(path, 0600) == 0);
		CHECK_INT(open_as(&config, request, path, &answer, &fd), ESRCH);
		CHECK_INT(fd, -1);
		REQUIRE(chmod(path, 0644) == 0);
	}
}

/* The user must be able to reach a file that was found by its path, even if the process is the
 * user's. This is also true after the process's leader has ended, while other threads live on. */
static void test_unreachable(void)
{
	void (*const acts[])(void) = { become_somebody, end_leader };
	const struct files_config configs[] = { { .uid = SOMEBODY, .own_only = 1 },
						{ .uid = SOMEBODY } };
	g_autofree char *path = put("program", "program");
	struct files_answer answer;
	struct stat status;
	int fd = -1;

	if (geteuid() != 0)
		SKIP("needs root");
	REQUIRE(stat(path, &status) == 0);
	for (size_t i = 0; i < 2 * ARRAY_SIZE(acts); i++) {
		const pid_t pid = start(acts[i / 2]);
		const struct files_image request = { .request = { .pid = pid,
								  .inode = status.st_ino } };

		REQUIRE(chmod(folder, 0755) == 0);
		CHECK_INT(open_as(&configs[i % 2], request, path, &answer, &fd), 0);
		CHECK(answer.client_read);
		close(fd);
		fd = -1;
		REQUIRE(chmod(folder, 0700) == 0);
		CHECK(open_as(&configs[i % 2], request, path, &answer, &fd) != 0 ||
		      !answer.client_read);
		if (fd >= 0)
			close(fd);
		fd = -1;
		end(pid);
	}
	REQUIRE(chmod(folder, 0755) == 0);
}

/* A file of another user's process is readable for the client only if all users may reach and read
 * the file. */
static void test_others(void)
{
	const struct files_config config = { .uid = SOMEBODY };
	struct files_image request = { .request = { .pid = getpid() } };
	g_autofree char *path = put("seen", "seen");
	struct files_answer answer;
	int fd = -1;

	if (geteuid() != 0)
		SKIP("needs root");
	REQUIRE(chmod(folder, 0755) == 0);
	CHECK_INT(open_as(&config, request, path, &answer, &fd), 0);
	CHECK(answer.client_read);
	REQUIRE(chmod(folder, 0700) == 0);
	CHECK_INT(open_as(&config, request, path, &answer, &fd), 0);
	CHECK(!answer.client_read);
	close(fd);
}

/* ---- The sandbox ----------------------------------------------------------------------------- */

static bool try_write(void)
{
	return open("/dev/null", O_WRONLY | O_CLOEXEC) >= 0;
}

static bool try_create(void)
{
	return open("/tmp/profd-files-test", O_RDONLY | O_CREAT | O_CLOEXEC, 0600) >= 0;
}

static bool try_socket(void)
{
	return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0) >= 0;
}

static bool try_exec(void)
{
	execl("/bin/true", "true", NULL);
	return false;
}

static bool try_fork(void)
{
	return fork() >= 0;
}

static bool try_kill(void)
{
	return kill(1, 0) == 0;
}

static bool try_become(void)
{
	return setuid(SOMEBODY) == 0;
}

/* Runs an action in a sandboxed child. Returns the child's wait status. */
static int in_sandbox(const struct files_config *config, bool (*act)(void))
{
	pid_t pid = fork();
	int status = 0;

	if (pid == 0) {
		if (!sandbox_enter(config))
			_exit(3);
		_exit(act() ? 1 : 2);
	}
	waitpid(pid, &status, 0);
	return status;
}

static bool read_something(void)
{
	struct message_image_request request = { .pid = getpid() };
	const struct files_snapshot all = { 0 };
	int memfd = memfd_create("test", MFD_CLOEXEC), fd = -1;

	return open_image(&request, "/etc/passwd", &fd) == 0 &&
	       proc_snapshot(&everything, &all, memfd) == 0;
}

static pid_t namespaced;

static bool ask_for_owner(void)
{
	g_autofree char *path = g_strdup_printf("/proc/%d", namespaced);
	CLEANUP_CLOSE int dir = open(path, O_PATH | O_CLOEXEC);

	return process_access_all(dir, SOMEBODY);
}

static void test_sandbox(void)
{
	const struct files_config own_only = { .uid = SOMEBODY, .own_only = 1 };
	bool (*const acts[])(void) = { try_write, try_create, try_socket, try_exec,
				       try_fork,  try_kill,   try_become };
	int status;

	if (PROF_SANITIZED)
		SKIP("the sanitizer needs system calls that the filter refuses");
	for (size_t i = 0; i < ARRAY_SIZE(acts); i++) {
		status = in_sandbox(&everything, acts[i]);
		CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS);
	}
	status = in_sandbox(&everything, read_something);
	CHECK(WIFEXITED(status));
	CHECK_INT(WEXITSTATUS(status), 1);
	if (geteuid() != 0)
		SKIP("needs root");
	namespaced = start(enter_namespace);
	if (waitpid(namespaced, NULL, WNOHANG) != 0)
		SKIP("no user namespace can be made here");
	status = in_sandbox(&own_only, ask_for_owner);
	CHECK(WIFEXITED(status));
	CHECK_INT(WEXITSTATUS(status), 1);
	end(namespaced);
}

/* Returns the number of places of a probe, or -errno. */
static int probe_as(const struct files_config *config, const char *path, const char *name,
		    struct files_answer *answer)
{
	const struct files_probe request = { 0 };
	g_autofree char *text = g_strconcat(path, name, NULL);
	CLEANUP_CLOSE int fd = -1;
	struct client client;
	int error;

	client_init(&client, config->uid);
	*answer = (struct files_answer){ 0 };
	error = probe_open(config, &client, &request, text, answer, &fd);
	CHECK_INT(fd >= 0, error == 0);
	return error ? -error : (int)answer->n_places;
}

static void test_probe(void)
{
	const struct files_config somebody = { .uid = SOMEBODY };
	g_autofree char *path = path_of("probed"), *bytes = NULL;
	struct files_answer answer;
	gsize length;

	REQUIRE(g_file_get_contents("/proc/self/exe", &bytes, &length, NULL) &&
		g_file_set_contents(path, bytes, (gssize)length, NULL) && chmod(path, 0700) == 0);
	CHECK_INT(probe_as(&everything, path, ":main", &answer), 1);
	CHECK_INT(probe_as(&everything, path, ":no_such_function", &answer), -ENOENT);
	CHECK(strstr(answer.reason, "no function"));
	CHECK_INT(probe_as(&everything, "/no/such/file", ":main", &answer), -EINVAL);
	CHECK(strstr(answer.reason, "not there"));
	CHECK_INT(probe_as(&everything, folder, ":main", &answer), -EINVAL);
	CHECK(strstr(answer.reason, "regular"));
	CHECK_INT(probe_as(&everything, path, "main", &answer), -EINVAL);
	CHECK_INT(probe_as(&everything, "probed", ":main", &answer), -EINVAL);
	if (geteuid() == 0) {
		CHECK_INT(probe_as(&somebody, path, ":main", &answer), -EINVAL);
		CHECK(strstr(answer.reason, "may not read") || strstr(answer.reason, "not there"));
	}
	REQUIRE(chmod(path, 0707) == 0);
	CHECK_INT(probe_as(&everything, path, ":main", &answer), -EINVAL);
	CHECK(strstr(answer.reason, "everybody"));
}

int main(void)
{
	folder = g_dir_make_tmp("files-XXXXXX", NULL);
	RUN(test_path);
	RUN(test_only_regular_files);
	RUN(test_no_magic_links);
	RUN(test_mapping_of_a_deleted_file);
	RUN(test_mapping_of_another_file);
	RUN(test_replaced);
	RUN(test_careful);
	RUN(test_build_id);
	RUN(test_unreadable);
	RUN(test_only_executable);
	RUN(test_links);
	RUN(test_too_large);
	RUN(test_strange_names);
	RUN(test_client);
	RUN(test_snapshot);
	RUN(test_maps_known);
	RUN(test_memory_usage);
	RUN(test_threads);
	RUN(test_targets_only);
	RUN(test_own_only);
	RUN(test_ended);
	RUN(test_unreachable);
	RUN(test_others);
	RUN(test_probe);
	RUN(test_sandbox);
	return test_end_without(folder);
}
