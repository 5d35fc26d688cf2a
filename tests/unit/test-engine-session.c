/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of session.c and channel.c in daemon/engine: the test acts as the broker at the other end
 * of the socket. The session runs in a child without perf events, so that no privilege is needed.
 */
#include "daemon/datagram.h"
#include "daemon/engine/session/session.h"
#include "libcollector/control.h"
#include "tests/unit/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/wait.h>

struct broker {
	int socket, capture;
	pid_t engine;
	int status;
	unsigned int snapshots, started, warnings, ended;
	struct message_finished finished; /* without its losses */
};

static void run_engine(int socket)
{
	static const uint8_t boot_id[16];
	struct session *session = g_new(struct session, 1);
	struct session_threads threads;
	bool ok;

	signal(SIGPIPE, SIG_IGN);
	if (!session_threads_new(&threads, NULL))
		abort();
	session_init(session, socket, &threads, boot_id);
	ok = session_run(session);
	session_done(session);
	g_free(session);
	_exit(ok ? 0 : 1);
}

static void broker_init(struct broker *broker)
{
	int sockets[2];

	*broker = (struct broker){ .capture = memfd_create("capture", MFD_CLOEXEC) };
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0)
		abort();
	fflush(stdout);
	broker->engine = fork();
	if (broker->engine == 0) {
		close(sockets[0]);
		run_engine(sockets[1]);
	}
	close(sockets[1]);
	broker->socket = sockets[0];
}

static void send_fds(struct broker *broker, uint32_t type, const void *body, size_t length,
		     const int *fds, size_t n_fds)
{
	struct message head = { .type = type, .length = length };
	struct iovec parts[] = { { &head, sizeof(head) }, { (void *)body, length } };
	char control[CMSG_SPACE(8 * sizeof(int))] = { 0 };
	struct msghdr header = { .msg_iov = parts, .msg_iovlen = 2 };
	struct cmsghdr *rights;

	if (n_fds) {
		header.msg_control = control;
		header.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
		rights = CMSG_FIRSTHDR(&header);
		rights->cmsg_level = SOL_SOCKET;
		rights->cmsg_type = SCM_RIGHTS;
		rights->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
		memcpy(CMSG_DATA(rights), fds, n_fds * sizeof(int));
	}
	/* EPIPE: the engine has exited, which the test detects elsewhere. */
	if (sendmsg(broker->socket, &header, MSG_NOSIGNAL) < 0 && errno != EPIPE)
		abort();
}

static void send_config(struct broker *broker, const struct message_config *config)
{
	int stat = open("/proc/stat", O_RDONLY | O_CLOEXEC);
	int online = open("/sys/devices/system/cpu/online", O_RDONLY | O_CLOEXEC);
	const int fds[] = { broker->capture, stat, online };

	send_fds(broker, MESSAGE_CONFIG, config, sizeof(*config), fds, 3);
	close(stat);
	close(online);
}

static void send_snapshot(struct broker *broker, uint32_t serial)
{
	static const char self[] =
		"1 (name) S 1 1 1 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 100 0 0 0\n";
	const struct message_snapshot body = { .serial = serial };
	struct bytes bytes = { .length = 0 };
	int fd = memfd_create("snapshot", MFD_CLOEXEC);

	put_text(&bytes, SNAPSHOT_STAT, 4242, clock_now(), self);
	if (write(fd, bytes.data, bytes.length) != (ssize_t)bytes.length)
		abort();
	send_fds(broker, MESSAGE_SNAPSHOT, &body, sizeof(body), &fd, 1);
	close(fd);
}

/* Handles one message from the engine. Returns false if none arrives in time, or the engine has
 * exited. */
static bool broker_step(struct broker *broker, int timeout_ms)
{
	static _Alignas(8) uint8_t buffer[MESSAGE_MAX_BYTES];
	struct pollfd wait = { .fd = broker->socket, .events = POLLIN };
	const struct message *message = (const void *)buffer;
	ssize_t length;

	if (poll(&wait, 1, timeout_ms) <= 0)
		return false;
	length = recv(broker->socket, buffer, sizeof(buffer), 0);
	if (length < (ssize_t)sizeof(*message))
		return false;
	CHECK_INT(message->length, length - sizeof(*message));
	broker->started += message->type == MESSAGE_STARTED;
	broker->warnings += message->type == MESSAGE_WARNING;
	if (message->type == MESSAGE_SNAPSHOT_REQUEST) {
		broker->snapshots++;
		send_snapshot(broker,
			      ((const struct message_snapshot_request *)(message + 1))->serial);
	}
	if (message->type == MESSAGE_FINISHED) {
		memcpy(&broker->finished, message + 1, sizeof(broker->finished));
		broker->ended++;
	}
	return true;
}

/* Handles all messages until the engine exits. Then the capture can be read. */
static void broker_end(struct broker *broker)
{
	while (broker_step(broker, 5000))
		;
	waitpid(broker->engine, &broker->status, 0);
	close(broker->socket);
}

static enum prof_state state_of(struct broker *broker)
{
	struct prof_reader *reader;
	enum prof_state state = PROF_STATE_DAMAGED;

	if (prof_reader_open(broker->capture, &reader) == 0) {
		state = prof_reader_info(reader)->state;
		prof_reader_free(reader);
	}
	close(broker->capture);
	return state;
}

static void start(struct broker *broker, const struct message_config *config)
{
	send_config(broker, config);
	send_fds(broker, MESSAGE_START, NULL, 0, NULL, 0);
	while (!broker->started && broker_step(broker, 2000))
		;
}

static void send_stop(struct broker *broker)
{
	const struct message_stop stop = { .reason = ENGINE_REASON_STOPPED };

	send_fds(broker, MESSAGE_STOP, &stop, sizeof(stop), NULL, 0);
}

static void test_stop(void)
{
	const struct message_config config = { .system = 1 };
	struct broker broker;

	broker_init(&broker);
	start(&broker, &config);
	CHECK_INT(broker.started, 1);
	CHECK_INT(broker.snapshots, 1);
	send_stop(&broker);
	broker_end(&broker);
	CHECK_INT(broker.ended, 1);
	CHECK_INT(broker.finished.ok, 1);
	CHECK_INT(broker.finished.reason, ENGINE_REASON_STOPPED);
	CHECK(broker.finished.start_ns > 0 && broker.finished.stop_ns >= broker.finished.start_ns);
	CHECK(WIFEXITED(broker.status) && WEXITSTATUS(broker.status) == 0);
	CHECK_INT(state_of(&broker), PROF_STATE_FINISHED);
}

/* The broker may refuse the programs for an interpreter before the first snapshot is answered. */
static void test_refused_early(void)
{
	const struct message_config config = { .system = 1 };
	static const char reason[] = "refused";
	struct broker broker;

	broker_init(&broker);
	send_config(&broker, &config);
	send_fds(&broker, MESSAGE_START, NULL, 0, NULL, 0);
	send_fds(&broker, MESSAGE_NO_OUTPUTS, reason, strlen(reason), NULL, 0);
	while (!broker.started && broker_step(&broker, 2000))
		;
	CHECK_INT(broker.started, 1);
	send_stop(&broker);
	broker_end(&broker);
	CHECK_INT(broker.finished.ok, 1);
	close(broker.capture);
}

static void test_broker_gone(void)
{
	const struct message_config config = { .system = 1 };
	struct broker broker;

	broker_init(&broker);
	start(&broker, &config);
	close(broker.socket);
	waitpid(broker.engine, &broker.status, 0);
	CHECK(WIFEXITED(broker.status) && WEXITSTATUS(broker.status) == 0);
	CHECK_INT(state_of(&broker), PROF_STATE_FINISHED);
}

/* FINISHED arrives even if the engine has unread messages when it exits. */
static void test_end_unread(void)
{
	const struct message_config config = { .system = 1 };
	const struct message_image image = { .image_id = 5 };
	struct broker broker;
	int i, round;

	for (round = 0; round < 20; round++) {
		broker_init(&broker);
		start(&broker, &config);
		send_stop(&broker);
		for (i = 0; i < 50; i++)
			send_fds(&broker, MESSAGE_IMAGE, &image, sizeof(image), NULL, 0);
		broker_end(&broker);
		CHECK_INT(broker.ended, 1);
		close(broker.capture);
	}
}

static void test_duration(void)
{
	const struct message_config config = { .system = 1, .max_duration_ns = 300000000 };
	struct broker broker;

	broker_init(&broker);
	start(&broker, &config);
	broker_end(&broker);
	CHECK_INT(broker.finished.reason, ENGINE_REASON_DURATION);
	CHECK(broker.finished.stop_ns - broker.finished.start_ns < 600000000);
	CHECK_INT(state_of(&broker), PROF_STATE_FINISHED);
}

static void test_size(void)
{
	const struct message_config config = { .system = 1, .max_bytes = 1000 };
	struct broker broker;

	broker_init(&broker);
	start(&broker, &config);
	broker_end(&broker);
	CHECK_INT(broker.finished.reason, ENGINE_REASON_SIZE);
	CHECK_INT(state_of(&broker), PROF_STATE_FINISHED);
}

static void test_targets(void)
{
	struct message_config config = { .n_targets = 1, .targets = { 5 } };
	struct broker broker;

	broker_init(&broker);
	start(&broker, &config); /* the snapshot is of another process */
	broker_end(&broker);
	CHECK_INT(broker.finished.ok, 1);
	CHECK_INT(broker.finished.reason, ENGINE_REASON_TARGET_EXITED);
	CHECK_INT(state_of(&broker), PROF_STATE_FINISHED);
}

static void check_capture_error(int capture, enum engine_reason reason)
{
	const struct message_config config = { .system = 1 };
	struct broker broker;

	broker_init(&broker);
	close(broker.capture);
	broker.capture = capture;
	start(&broker, &config);
	if (broker.started)
		send_stop(&broker);
	broker_end(&broker);
	CHECK(WIFEXITED(broker.status));
	CHECK_INT(broker.ended, 1);
	CHECK_INT(broker.finished.ok, 0);
	CHECK_INT(broker.finished.reason, reason);
	CHECK(broker.finished.error != 0);
	close(capture);
}

/* The disk is full from the first byte; or another process writes to the file. */
static void test_capture_errors(void)
{
	int held = memfd_create("capture", MFD_CLOEXEC);
	char path[64];

	check_capture_error(open("/dev/full", O_WRONLY | O_CLOEXEC), ENGINE_REASON_DISK_FULL);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", held);
	REQUIRE(flock(held, LOCK_EX | LOCK_NB) == 0);
	check_capture_error(open(path, O_RDWR | O_CLOEXEC), ENGINE_REASON_IO_ERROR);
	close(held);
}

static void check_refused(uint32_t type, const void *body, size_t length, bool configured)
{
	const struct message_config config = { .system = 1 };
	struct broker broker;

	broker_init(&broker);
	if (configured)
		send_config(&broker, &config);
	send_fds(&broker, type, body, length, NULL, 0);
	broker_end(&broker);
	CHECK(WIFEXITED(broker.status) && WEXITSTATUS(broker.status) == 1);
	CHECK_INT(broker.ended, 1);
	CHECK_INT(broker.finished.ok, 0);
	CHECK_INT(broker.warnings, 1);
	if (configured)
		CHECK_INT(state_of(&broker), PROF_STATE_FINISHED);
	else
		close(broker.capture);
}

static void test_protocol(void)
{
	static const uint8_t zeros[sizeof(struct message_config)];
	const struct message_cpu cpu = { .cpu = ENGINE_MAX_CPUS };
	struct message_config config = { .n_sources = ENGINE_MAX_SOURCES + 1 };

	check_refused(MESSAGE_CONFIG, zeros, sizeof(zeros), false); /* no descriptors */
	check_refused(MESSAGE_CONFIG, zeros, 8, false);
	check_refused(MESSAGE_CONFIG, &config, sizeof(config), false);
	check_refused(MESSAGE_CONFIG, zeros, sizeof(zeros), true); /* a second time */
	check_refused(MESSAGE_START, NULL, 0, false);
	check_refused(MESSAGE_CPU, zeros, sizeof(struct message_cpu), false);
	check_refused(MESSAGE_CPU, zeros, 8, true);
	check_refused(MESSAGE_CPU, &cpu, sizeof(cpu), true);
	check_refused(MESSAGE_SNAPSHOT, zeros, sizeof(struct message_snapshot), true);
	check_refused(MESSAGE_EVENTS, zeros, sizeof(struct message_event), false);
	check_refused(MESSAGE_EVENTS, zeros, sizeof(struct message_event), true);
}

/* An idle engine sleeps. */
static void test_idle(void)
{
	const struct message_config config = { .system = 1, .paused = 1 };
	struct broker broker;
	char path[64], text[64] = "";
	FILE *file;

	broker_init(&broker);
	start(&broker, &config);
	usleep(500000);
	snprintf(path, sizeof(path), "/proc/%d/schedstat", broker.engine);
	file = fopen(path, "re");
	REQUIRE(file && fgets(text, sizeof(text), file));
	fclose(file);
	CHECK(strtoull(text, NULL, 10) < 100000000); /* CPU time, including that of the start */
	send_stop(&broker);
	broker_end(&broker);
	CHECK_INT(broker.finished.ok, 1);
	close(broker.capture);
}

static unsigned long long count_sleeps(const struct broker *broker)
{
	unsigned long long n = 0;
	char path[64], line[256];
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/status", broker->engine);
	file = fopen(path, "re");
	CHECK(file != NULL);
	while (file && n == 0 && fgets(line, sizeof(line), file))
		(void)sscanf(line, "voluntary_ctxt_switches: %llu", &n);
	if (file)
		fclose(file);
	return n;
}

/* The session does little when idle, but handles a message at once. */
static void test_quiet(void)
{
	const struct message_config config = { .system = 1, .paused = 1 };
	unsigned long long before;
	struct broker broker;

	broker_init(&broker);
	start(&broker, &config);
	usleep(2500000);
	before = count_sleeps(&broker);
	usleep(1500000);
	CHECK(count_sleeps(&broker) - before < 5); /* ten sleeps per second would give 15 */
	before = count_sleeps(&broker);
	send_fds(&broker, MESSAGE_RESUME, NULL, 0, NULL, 0);
	usleep(500000);
	CHECK(count_sleeps(&broker) - before >= 2);
	send_stop(&broker);
	broker_end(&broker);
	CHECK_INT(broker.finished.ok, 1);
	close(broker.capture);
}

static void start_switched(struct broker *broker, bool by_task, int *ret_switch)
{
	const struct message_config config = { .system = 1, .by_task = by_task };
	int sockets[2];

	broker_init(broker);
	REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) == 0);
	send_config(broker, &config);
	send_fds(broker, MESSAGE_SWITCH, NULL, 0, &sockets[1], 1);
	close(sockets[1]);
	send_fds(broker, MESSAGE_START, NULL, 0, NULL, 0);
	while (!broker->started && broker_step(broker, 2000))
		;
	*ret_switch = sockets[0];
}

/* Returns the engine's answer; UINT32_MAX: the engine closed the connection. */
static uint32_t ask_switch(int fd, uint64_t serial, uint32_t on)
{
	struct control_switch packet = { CONTROL_SWITCH_MAGIC, serial, on, { 0 } };

	if (send(fd, &packet, sizeof(packet), MSG_NOSIGNAL) != sizeof(packet) ||
	    recv(fd, &packet, sizeof(packet), 0) != sizeof(packet))
		return UINT32_MAX;
	CHECK(packet.magic == CONTROL_SWITCH_MAGIC);
	CHECK_INT(packet.serial, serial);
	return packet.on;
}

/* Events are enabled only if both the switch and the client have enabled them. */
static void test_switch(void)
{
	struct broker broker;
	int fd;

	start_switched(&broker, false, &fd);
	CHECK_INT(ask_switch(fd, 5, 1), 1);
	CHECK_INT(ask_switch(fd, 6, 1), 1);
	CHECK_INT(ask_switch(fd, 7, 0), 0);
	send_fds(&broker, MESSAGE_PAUSE, NULL, 0, NULL, 0);
	while (ask_switch(fd, 8, 1) == 1)
		;
	CHECK_INT(ask_switch(fd, 9, 1), 0);
	send_fds(&broker, MESSAGE_RESUME, NULL, 0, NULL, 0);
	while (ask_switch(fd, 10, 1) == 0)
		;
	CHECK_INT(ask_switch(fd, 11, 0), 0);
	send_stop(&broker);
	broker_end(&broker);
	CHECK_INT(broker.finished.ok, 1);
	CHECK_INT(ask_switch(fd, 12, 1), UINT32_MAX);
	close(fd);
	close(broker.capture);
}

/* Checks that the session continues without the switch. */
static void check_hostile(int fd, struct broker *broker)
{
	CHECK_INT(ask_switch(fd, 1, 1), UINT32_MAX);
	close(fd);
	send_stop(broker);
	broker_end(broker);
	CHECK_INT(broker->finished.ok, 1);
	CHECK_INT(broker->finished.reason, ENGINE_REASON_STOPPED);
	CHECK_INT(state_of(broker), PROF_STATE_FINISHED);
}

static void test_switch_hostile(void)
{
	struct control_switch packets[] = {
		{ 0, 1, 1, { 0 } },
		{ CONTROL_SWITCH_MAGIC, 1, 2, { 0 } },
	};
	struct control_switch flood = { CONTROL_SWITCH_MAGIC, 1, 0, { 0 } };
	const char long_packet[100] = "";
	struct broker broker;
	int fd;

	for (size_t i = 0; i < ARRAY_SIZE(packets); i++) {
		start_switched(&broker, false, &fd);
		REQUIRE(send(fd, &packets[i], sizeof(packets[i]), 0) == sizeof(packets[i]));
		check_hostile(fd, &broker);
	}
	start_switched(&broker, false, &fd);
	REQUIRE(send(fd, long_packet, sizeof(long_packet), 0) == sizeof(long_packet));
	check_hostile(fd, &broker);
	/* a program that never reads: the engine does not wait for it */
	start_switched(&broker, false, &fd);
	while (send(fd, &flood, sizeof(flood), MSG_NOSIGNAL) == sizeof(flood))
		flood.on = !flood.on;
	close(fd);
	send_stop(&broker);
	broker_end(&broker);
	CHECK_INT(broker.finished.ok, 1);
	close(broker.capture);
	check_refused(MESSAGE_SWITCH, NULL, 0, true);
}

static void test_descriptors(void)
{
	struct channel channel;
	struct channel_message message;
	struct broker broker = { .capture = -1 };
	int sockets[2], fds[3] = { 0, 0, 0 }, kept;

	REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) == 0);
	broker.socket = sockets[0];
	channel_init(&channel, sockets[1]);
	CHECK_INT(channel_receive(&channel, &message), CHANNEL_EMPTY);
	send_fds(&broker, MESSAGE_START, "12345678", 8, fds, 3);
	send_fds(&broker, MESSAGE_STOP, NULL, 0, NULL, 0);
	REQUIRE(channel_receive(&channel, &message) == CHANNEL_MESSAGE);
	CHECK_INT(message.n_fds, 3);
	CHECK_INT(message.length, 8);
	CHECK(fcntl(message.fds[1], F_GETFD) == FD_CLOEXEC);
	kept = message.fds[0];
	memcpy(fds, message.fds, sizeof(fds));
	message.fds[0] = -1;
	channel_message_done(&message);
	CHECK(fcntl(fds[1], F_GETFD) < 0 && fcntl(kept, F_GETFD) >= 0);
	close(kept);
	REQUIRE(channel_receive(&channel, &message) == CHANNEL_MESSAGE);
	CHECK_INT(message.type, MESSAGE_STOP);
	/* a false length */
	REQUIRE(send(sockets[0], "\1\0\0\0\377\0\0\0abc", 11, 0) == 11);
	CHECK_INT(channel_receive(&channel, &message), CHANNEL_CLOSED);
	close(sockets[0]);
	CHECK_INT(channel_receive(&channel, &message), CHANNEL_CLOSED);
	channel_done(&channel);
	close(sockets[1]);
}

/* If the broker does not read, messages to it wait, in order. */
static void test_waiting(void)
{
	struct message_progress progress = { 0 };
	struct channel channel;
	_Alignas(8) uint8_t buffer[256];
	int sockets[2];
	uint64_t i;

	REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) == 0);
	channel_init(&channel, sockets[1]);
	for (progress.samples = 0; progress.samples < 3000; progress.samples++)
		channel_send(&channel, MESSAGE_PROGRESS, &progress, sizeof(progress), NULL, 0);
	for (i = 0; i < 3000; i++) {
		channel_flush(&channel);
		REQUIRE(recv(sockets[0], buffer, sizeof(buffer), MSG_DONTWAIT) ==
			sizeof(struct message) + sizeof(progress));
		memcpy(&progress, buffer + sizeof(struct message), sizeof(progress));
		CHECK_INT(progress.samples, i);
	}
	channel_done(&channel);
	close(sockets[0]);
	close(sockets[1]);
}

int main(void)
{
	RUN(test_stop);
	RUN(test_refused_early);
	RUN(test_broker_gone);
	RUN(test_end_unread);
	RUN(test_duration);
	RUN(test_size);
	RUN(test_targets);
	RUN(test_capture_errors);
	RUN(test_protocol);
	RUN(test_idle);
	RUN(test_quiet);
	RUN(test_switch);
	RUN(test_switch_hostile);
	RUN(test_descriptors);
	RUN(test_waiting);
	return test_end();
}
