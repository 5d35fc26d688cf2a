/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * profctl list - the events that can be recorded here
 *
 * Software, hardware and cache events are those that a profd has opened successfully: the service
 * if it is running, else a private one. Tracepoints and the events of other PMUs are those that the
 * kernel lists in tracefs and sysfs. If a list cannot be read, the reason is printed. An operand
 * that matches none of these may name a program or library: its static probes (USDT) are listed.
 * Its functions are listed only if a pattern follows the file's name, because there are many.
 */
#include "config.h"

#include "arch/errno-text.h"
#include "arch/probe-file.h"
#include "base/order.h"
#include "tools/common/cli.h"
#include "tools/common/text.h"
#include "tools/present/table.h"
#include "tools/profctl/probe-names.h"
#include "tools/profctl/transport.h"
#include "tools/profctl/verbs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glib/gi18n.h>
#include <sys/mount.h>

#define PATIENCE_MS 20000
#define PMUS "/sys/bus/event_source/devices"

/* Kinds before KIND_USDT are listed without a FILE operand. */
enum kind { KIND_EVENT, KIND_PMU, KIND_TRACEPOINT, KIND_USDT, KIND_FUNCTION, KINDS };

static const char *const kinds[] = { "event", "pmu", "tracepoint", "usdt", "function" };

struct listed_event {
	enum kind kind;
	char *name;
	char *arguments; /* arguments of a static probe, as in its ELF note; else NULL */
};

struct event_list {
	bool json;
	GPtrArray *patterns; /* char *, borrowed */
	GArray *all;         /* struct listed_event */
	char *missing[KINDS];
};

static void add(struct event_list *list, enum kind kind, char *name)
{
	bool matches = list->patterns->len == 0;

	for (guint i = 0; i < list->patterns->len && !matches; i++) {
		const char *pattern = list->patterns->pdata[i];

		matches = strcmp(pattern, kinds[kind]) == 0 ||
			  g_pattern_match_simple(pattern, name);
	}
	if (matches)
		g_array_append_val(list->all, ((struct listed_event){ kind, name, NULL }));
	else
		g_free(name);
}

static gint compare_names(gconstpointer left, gconstpointer right)
{
	return strcmp(*(const char *const *)left, *(const char *const *)right);
}

/* Returns the names in a directory, sorted, except those that begin with a dot. If the directory
 * cannot be read, returns NULL and sets errno. */
static GPtrArray *read_names(int dir, const char *path)
{
	int fd = openat(dir, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *stream = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;
	GPtrArray *names;

	if (!stream) {
		if (fd >= 0)
			close(fd);
		return NULL;
	}
	names = g_ptr_array_new_with_free_func(g_free);
	while ((entry = readdir(stream)))
		if (entry->d_name[0] != '.')
			g_ptr_array_add(names, g_strdup(entry->d_name));
	closedir(stream);
	g_ptr_array_sort(names, compare_names);
	return names;
}

static void add_events(struct event_list *list)
{
	struct transport transport = { 0 };
	g_autoptr(GError) error = NULL;
	g_autoptr(GVariant) reply = NULL, capabilities = NULL;
	g_autofree const char **names = NULL;

	if ((transport_open(&transport, TRANSPORT_RUNNING, NULL) ||
	     transport_open(&transport, TRANSPORT_PRIVATE, &error)))
		reply = g_dbus_connection_call_sync(transport.connection, transport.destination,
						    PROFD_PATH, PROFD_INTERFACE, "GetCapabilities",
						    NULL, G_VARIANT_TYPE("(a{sv})"),
						    G_DBUS_CALL_FLAGS_NONE, PATIENCE_MS, NULL,
						    &error);
	transport_close(&transport);
	if (!reply) {
		g_autoptr(GError) translated = transport_translate(error);

		list->missing[KIND_EVENT] = g_strdup(translated->message);
		return;
	}
	capabilities = g_variant_get_child_value(reply, 0);
	if (!g_variant_lookup(capabilities, "events", "^a&s", &names))
		return;
	for (size_t i = 0; names[i]; i++)
		add(list, KIND_EVENT, g_strdup(names[i]));
}

static void add_pmus(struct event_list *list)
{
	g_autoptr(GPtrArray) pmus = read_names(AT_FDCWD, PMUS);

	if (!pmus)
		list->missing[KIND_PMU] = g_strdup_printf("%s: %s", PMUS, ERRNO_TEXT(errno));
	for (guint i = 0; pmus && i < pmus->len; i++) {
		const char *pmu = pmus->pdata[i];
		g_autofree char *path = g_strdup_printf(PMUS "/%s/events", pmu);
		g_autoptr(GPtrArray) events = read_names(AT_FDCWD, path);

		for (guint k = 0; events && k < events->len; k++)
			/* event.unit and event.scale are not events. */
			if (!strchr(events->pdata[k], '.'))
				add(list, KIND_PMU,
				    g_strdup_printf("%s/%s/", pmu, (char *)events->pdata[k]));
	}
}

/* Opens the folder of tracepoints. If tracefs is not mounted, opens a detached mount of it. */
static int open_tracepoints(void)
{
	CLEANUP_CLOSE int context = -1, root = -1;
	int fd = open("/sys/kernel/tracing/events", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd >= 0 || errno != ENOENT)
		return fd;
	context = fsopen("tracefs", FSOPEN_CLOEXEC);
	if (context < 0 || fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return -1;
	root = fsmount(context, FSMOUNT_CLOEXEC, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOEXEC);
	return root < 0 ? -1 : openat(root, "events", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static void add_tracepoints(struct event_list *list)
{
	CLEANUP_CLOSE int dir = open_tracepoints();
	g_autoptr(GPtrArray) systems = dir < 0 ? NULL : read_names(dir, ".");
	int failed = systems ? 0 : errno;

	for (guint i = 0; systems && i < systems->len; i++) {
		const char *system = systems->pdata[i];
		g_autoptr(GPtrArray) names = read_names(dir, system);

		for (guint k = 0; names && k < names->len; k++) {
			g_autofree char *id =
				g_strdup_printf("%s/%s/id", system, (char *)names->pdata[k]);

			/* Files such as "filter", and events that only ftrace has, have no id. */
			if (faccessat(dir, id, R_OK, 0) == 0)
				add(list, KIND_TRACEPOINT,
				    g_strdup_printf("%s:%s", system, (char *)names->pdata[k]));
			else if (errno == EACCES || errno == EPERM)
				failed = errno;
		}
	}
	if (failed)
		list->missing[KIND_TRACEPOINT] = g_strdup_printf(
			_("cannot read tracefs (%s); root and its group can"), ERRNO_TEXT(failed));
}

/* ---- Files ----------------------------------------------------------------------------------- */

struct file_query {
	const char *file, *pattern; /* pattern: for names in the file; NULL: all static probes */
	GArray *found;              /* struct listed_event */
};

static void add_point(const struct probe_point *point, void *data)
{
	struct file_query *query = data;
	g_autofree char *name = point->provider
					? g_strconcat(point->provider, ":", point->name, NULL)
					: g_strdup(point->name);

	if (!query->pattern || g_pattern_match_simple(query->pattern, name))
		g_array_append_val(query->found,
				   ((struct listed_event){
					   point->provider ? KIND_USDT : KIND_FUNCTION,
					   g_strdup_printf("%s:%s", query->file, name),
					   point->provider ? g_strdup(point->arguments) : NULL }));
}

static void listed_clear(gpointer pointer)
{
	struct listed_event *listed = pointer;

	g_free(listed->name);
	g_free(listed->arguments);
}

COMPARE_BY(compare_listed, struct listed_event, ORDER(a->kind, b->kind), strcmp(a->name, b->name))

/* Lists the probes of "FILE" or "FILE:PATTERN". Lists a probe with several places once. */
static void add_file(struct event_list *list, const char *operand)
{
	const char *colon = strchr(operand, ':');
	g_autofree char *file =
		g_strndup(operand, colon ? (gsize)(colon - operand) : strlen(operand));
	g_autofree char *path = probe_names_find_file(file), *reason = NULL;
	struct file_query query = { .file = file, .pattern = colon ? colon + 1 : NULL };
	CLEANUP_CLOSE int fd = -1;
	struct probe_file *probes = path ? probe_names_open(path, &fd, &reason) : NULL;

	if (!path)
		return;
	if (!probes) {
		g_free(list->missing[KIND_USDT]);
		list->missing[KIND_USDT] = g_strdup_printf("%s: %s", path, reason);
		return;
	}
	query.found = g_array_new(FALSE, FALSE, sizeof(struct listed_event));
	probe_file_each(probes, colon != NULL, add_point, &query);
	probe_file_free(probes);
	g_array_sort(query.found, compare_listed);
	for (guint i = 0; i < query.found->len; i++) {
		struct listed_event *listed = &g_array_index(query.found, struct listed_event, i);

		if (i + 1 < query.found->len && compare_listed(listed, listed + 1) == 0)
			listed_clear(listed);
		else
			g_array_append_val(list->all, *listed);
	}
	g_array_unref(query.found);
}

/* Handles each operand as a file if it is not a kind and matches no event. */
static void add_files(struct event_list *list)
{
	guint listed = list->all->len;

	for (guint i = 0; i < list->patterns->len; i++) {
		const char *pattern = list->patterns->pdata[i];
		bool matches = false;

		for (size_t k = 0; k < KINDS; k++)
			matches |= strcmp(pattern, kinds[k]) == 0;
		for (guint k = 0; k < listed && !matches; k++)
			matches = g_pattern_match_simple(
				pattern, g_array_index(list->all, struct listed_event, k).name);
		if (!matches)
			add_file(list, pattern);
	}
}

/* Reads only the lists that the patterns need, because reading the events may start a profd. Only
 * names of tracepoints have a colon. */
static void read_all(struct event_list *list)
{
	static void (*const readers[])(struct event_list *) = { add_events, add_pmus,
								add_tracepoints };
	bool is_needed[ARRAY_SIZE(readers)] = { false };

	for (guint i = 0; i < list->patterns->len; i++) {
		bool is_kind = false;

		for (size_t k = 0; k < KINDS; k++) {
			bool is_this = strcmp(list->patterns->pdata[i], kinds[k]) == 0;

			is_kind |= is_this;
			if (k < ARRAY_SIZE(readers))
				is_needed[k] |= is_this;
		}
		is_kind |= strchr(list->patterns->pdata[i], '/') == list->patterns->pdata[i] ||
			   g_str_has_prefix(list->patterns->pdata[i], "./");
		for (size_t k = 0; k < ARRAY_SIZE(readers) && !is_kind; k++)
			is_needed[k] |= k == KIND_TRACEPOINT
						? strpbrk(list->patterns->pdata[i], ":*?[") != NULL
						: !strchr(list->patterns->pdata[i], ':');
	}
	for (size_t k = 0; k < ARRAY_SIZE(readers); k++)
		if (is_needed[k] || list->patterns->len == 0)
			readers[k](list);
	add_files(list);
}

enum field { NAME, KIND, ARGUMENTS };

static const struct table_member members[] = {
	{ "name", NAME }, { "kind", KIND }, { "arguments", ARGUMENTS }, { NULL }
};

static struct cell get_cell(const void *data, size_t row, unsigned field)
{
	const struct event_list *list = data;
	const struct listed_event *listed = &g_array_index(list->all, struct listed_event, row);

	return cell_text(field == NAME   ? listed->name
			 : field == KIND ? kinds[listed->kind]
					 : listed->arguments);
}

static void print_json(const struct event_list *list)
{
	struct table table = {
		.rows = list->all->len, .get = get_cell, .data = list, .members = members
	};
	struct json json;

	json_init(&json, out_stdout());
	json_begin_envelope(&json, "profctl.list/1");
	table_write_array(&table, &json, "events", table.rows);
	json_begin_array(&json, "unreadable");
	for (size_t i = 0; i < KINDS; i++) {
		if (!list->missing[i])
			continue;
		json_begin_object(&json, NULL);
		json_string(&json, "kind", kinds[i]);
		json_string(&json, "reason", list->missing[i]);
		json_end(&json);
	}
	json_end(&json);
	json_end_envelope(&json);
	json_done(&json);
}

static void complete(const char *verb)
{
	for (size_t i = 0; i < KIND_USDT; i++)
		out_printf(out_stdout(), "%s\n", kinds[i]);
}

int profctl_list(int argc, char **argv)
{
	static const struct cli_option options[] = {
		{ "json", 0, CLI_FLAG, offsetof(struct event_list, json), NULL,
		  N_("Print JSON (see 'profctl schema list')") },
		{ NULL },
	};
	static const struct cli_spec spec = {
		.synopsis = N_("[event|pmu|tracepoint|PATTERN|FILE[:PATTERN]]..."),
		.description = N_(
			"List what 'profctl record -e' can record here, one per line. Arguments select kinds, names that match a PATTERN such as 'sched:*', or the static probes (USDT) of FILE; FILE:PATTERN, as in 'libc.so.6:mall*', also lists its functions."),
		.max_operands = UINT_MAX,
		.complete = complete,
	};
	struct event_list list = { 0 };
	const struct cli_group groups[] = { { NULL, options, &list }, { NULL } };
	int status = cli_parse(&spec, groups, &argc, &argv);
	bool is_incomplete = false;

	if (status != CLI_CONTINUE)
		return status;
	list.patterns = g_ptr_array_new();
	for (int i = 0; i < argc; i++)
		g_ptr_array_add(list.patterns, argv[i]);
	list.all = g_array_new(FALSE, FALSE, sizeof(struct listed_event));
	g_array_set_clear_func(list.all, listed_clear);
	read_all(&list);
	if (list.json)
		print_json(&list);
	for (guint i = 0; i < list.all->len && !list.json; i++) {
		const struct listed_event *listed =
			&g_array_index(list.all, struct listed_event, i);
		g_autofree char *name = text_escape(listed->name);
		g_autofree char *arguments =
			text_escape(listed->arguments ? listed->arguments : "");

		out_printf(out_stdout(), "%s%s%s\n", name, *arguments ? "  " : "", arguments);
	}
	for (size_t i = 0; i < KINDS; i++) {
		if (!list.missing[i])
			continue;
		is_incomplete = true;
		if (!list.json)
			cli_error(_("cannot list events of kind '%s': %s"), kinds[i],
				  list.missing[i]);
		g_free(list.missing[i]);
	}
	status = list.all->len > 0 && !is_incomplete ? CLI_OK : CLI_FAILURE;
	if (list.all->len == 0 && !is_incomplete && !list.json)
		cli_error(_("no event matches"));
	g_array_unref(list.all);
	g_ptr_array_unref(list.patterns);
	return status;
}
