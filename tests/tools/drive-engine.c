/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * drive-engine - records to a file without D-Bus, clients and command-line parsing
 *
 *     drive-engine FILE SECONDS [KEY=VALUE…]
 *
 * Uses the broker's session as profd does, without the layers above it. Keys are the options of
 * CreateSession: frequency=10000 events=cpu-clock,page-faults pids=12,34 children=false
 * call-graph=none max-bytes=1000000 max-duration=2000000000 append=true paused=true kernel=false.
 * Two more keys restrict the recorded data: uid=1000 is the client's uid, and own-only=true
 * excludes data of other users. Prints "started" when sampling begins, and at the end the summary
 * as GVariant text.
 */
#include "arch/base.h"
#include "daemon/broker/child.h"
#include "daemon/broker/session.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>

struct drive {
	GMainLoop *loop;
	unsigned int seconds;
	int status;
};

static gboolean on_end(gpointer data)
{
	g_autoptr(GError) error = NULL;

	if (!session_stop(data, ENGINE_REASON_STOPPED, &error))
		fprintf(stderr, "drive-engine: %s\n", error->message);
	return G_SOURCE_REMOVE;
}

static void on_state(struct session *session, void *data)
{
}

static void on_started(struct session *session, const GError *error, void *data)
{
	const struct drive *drive = data;

	if (error) {
		fprintf(stderr, "drive-engine: %s\n", error->message);
		return;
	}
	puts("started");
	fflush(stdout);
	g_timeout_add_seconds(drive->seconds, on_end, session);
}

static void on_progress(struct session *session, void *data)
{
}

static void on_warning(struct session *session, const char *code, const char *text, void *data)
{
	fprintf(stderr, "drive-engine: %s: %s\n", code, text);
}

static void on_finished(struct session *session, bool ok, const char *reason, GVariant *summary,
			void *data)
{
	struct drive *drive = data;
	g_autofree char *text = summary ? g_variant_print(summary, FALSE) : NULL;

	printf("%s %s %s\n", ok ? "ok" : "failed", reason, text ? text : "");
	drive->status = ok ? 0 : 1;
	g_main_loop_quit(drive->loop);
}

static const struct session_listener listener = {
	.state_changed = on_state,
	.started = on_started,
	.progress = on_progress,
	.warning = on_warning,
	.finished = on_finished,
};

static GVariant *numbers(const char *text)
{
	g_auto(GStrv) words = g_strsplit(text, ",", -1);
	GVariantBuilder builder;
	char **word;

	g_variant_builder_init(&builder, G_VARIANT_TYPE("au"));
	for (word = words; *word; word++)
		g_variant_builder_add(&builder, "u", (guint32)strtoul(*word, NULL, 10));
	return g_variant_builder_end(&builder);
}

static GVariant *words(const char *text)
{
	g_auto(GStrv) split = g_strsplit(text, ",", -1);

	return g_variant_new_strv((const char *const *)split, -1);
}

static GVariant *value_of(const char *key, const char *text)
{
	static const char *const wide[] = { "max-bytes", "max-duration", "ring-bytes", NULL };

	if (strcmp(key, "pids") == 0)
		return numbers(text);
	if (strcmp(key, "events") == 0)
		return words(text);
	if (strcmp(key, "frequency") == 0)
		return g_variant_new_uint32(strtoul(text, NULL, 10));
	if (g_strv_contains(wide, key))
		return g_variant_new_uint64(strtoull(text, NULL, 10));
	if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0)
		return g_variant_new_boolean(text[0] == 't');
	return g_variant_new_string(text);
}

static bool take_access(struct access *access, const char *key, const char *text)
{
	if (strcmp(key, "uid") == 0)
		access->uid = strtoul(text, NULL, 10);
	else if (strcmp(key, "own-only") == 0)
		access->any_image = !(access->own_only = strcmp(text, "true") == 0);
	else
		return false;
	return true;
}

static GVariant *read_options(int n, char **arguments, struct access *access)
{
	GVariantDict dict;
	bool targets = false;
	int i;

	g_variant_dict_init(&dict, NULL);
	for (i = 0; i < n; i++) {
		g_auto(GStrv) pair = g_strsplit(arguments[i], "=", 2);

		if (!pair[0] || !pair[1] || take_access(access, pair[0], pair[1]))
			continue;
		targets |= strcmp(pair[0], "pids") == 0;
		g_variant_dict_insert_value(&dict, pair[0], value_of(pair[0], pair[1]));
	}
	if (!targets)
		g_variant_dict_insert(&dict, "system", "b", TRUE);
	return g_variant_ref_sink(g_variant_dict_end(&dict));
}

static bool append_wanted(GVariant *options)
{
	gboolean append = FALSE;

	return g_variant_lookup(options, "append", "b", &append) && append;
}

int main(int argc, char **argv)
{
	g_autoptr(GVariant) given = NULL;
	g_autoptr(GError) error = NULL;
	struct options *options;
	struct session *session = NULL;
	struct drive drive = { .status = 1 };
	struct access access = { .uid = geteuid(), .any_image = true };
	int capture;

	if (argc < 3 || !child_keep_numbers()) {
		fprintf(stderr, "Usage: drive-engine FILE SECONDS [KEY=VALUE…]\n");
		return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	given = read_options(argc - 3, argv + 3, &access);
	drive.seconds = strtoul(argv[2], NULL, 10);
	drive.loop = g_main_loop_new(NULL, FALSE);
	capture = open(argv[1],
		       append_wanted(given) ? O_RDWR | O_CLOEXEC
					    : O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC,
		       0600);
	if (capture < 0) {
		fprintf(stderr, "drive-engine: %s: %s\n", argv[1], g_strerror(errno));
		return 1;
	}
	if (!options_parse(given, NULL, &options, &error) ||
	    !options_find_events(options, &error) ||
	    !session_new(&access, 1, options, capture, &listener, &drive, &session, &error) ||
	    !session_start(session, &error)) {
		fprintf(stderr, "drive-engine: %s\n", error->message);
	} else {
		g_main_loop_run(drive.loop);
	}
	session_free(session);
	g_main_loop_unref(drive.loop);
	return drive.status;
}
