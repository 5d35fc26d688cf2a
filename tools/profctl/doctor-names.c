/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Doctor names - sources of names that the recorded files lack
 */
#include "config.h"

#include "tools/profctl/doctor.h"

#include "tools/common/debuginfod.h"

#include <glib/gi18n.h>
#include <sys/stat.h>

#define URLS "DEBUGINFOD_URLS"
#define MAX_LISTED 3
#define SLACK_SECONDS 2 /* tolerance between two clocks, and of file system times */
#define FIRST_PYTHON 12 /* the first minor version of Python 3 with -X perf */

void doctor_debuginfod(const struct doctor_host *host, struct doctor_finding *finding)
{
	const char *urls = g_getenv(URLS);

	if (!urls || urls[strspn(urls, " ")] == '\0') {
		doctor_found(
			finding, DOCTOR_OK,
			_("not used: with your distribution's server in %s, 'profcapture symbolize --debuginfod' fetches debug files that are not here"),
			URLS);
	} else if (host->probes->library(DEBUGINFOD_LIBRARY) < 0) {
		doctor_found(
			finding, DOCTOR_WARN,
			_("%s is set, but the library '%s' cannot be loaded: debug files that are not here cannot be fetched"),
			URLS, DEBUGINFOD_LIBRARY);
		doctor_fix(finding,
			   _("install libdebuginfod (on Debian the package libdebuginfod1)"));
	} else {
		doctor_found(
			finding, DOCTOR_OK,
			_("'profcapture symbolize --debuginfod' fetches debug files that are not here from %s"),
			urls);
	}
}

/* ---- programs that generate code ------------------------------------------------------------- */

enum runtime { RUNTIME_NODE, RUNTIME_JAVA, RUNTIME_PYTHON, RUNTIMES };

/* SAYS_ANOTHERS: the map is from an earlier process with the same pid. */
enum says { SAYS_NOTHING, SAYS_ANOTHERS, SAYS_NAMES };

struct runtimes {
	unsigned n, others;       /* all; those without names */
	GString *listed;          /* the first few without names */
	char *first_of[RUNTIMES]; /* the pid */
};

static bool runtime_of(const char *name, enum runtime *ret_runtime)
{
	if (strcmp(name, "node") == 0 || strcmp(name, "nodejs") == 0)
		*ret_runtime = RUNTIME_NODE;
	else if (strcmp(name, "java") == 0)
		*ret_runtime = RUNTIME_JAVA;
	else if (g_str_has_prefix(name, "python3.") &&
		 g_ascii_strtoull(name + strlen("python3."), NULL, 10) >= FIRST_PYTHON)
		*ret_runtime = RUNTIME_PYTHON;
	else
		return false;
	return true;
}

/* Reads the effective uid of "Uid:" and the last pid of "NSpid:", which the process writes into
 * file names. */
static bool read_status(const struct doctor_host *host, const char *pid, uint64_t *ret_uid,
			uint64_t *ret_own_pid)
{
	g_autofree char *path = g_strdup_printf("/proc/%s/status", pid);
	g_autofree char *text = doctor_read(host, path);
	const char *uid = text ? strstr(text, "\nUid:\t") : NULL;
	const char *pids = text ? strstr(text, "\nNSpid:") : NULL;

	uid = uid ? strchr(uid + strlen("\nUid:\t"), '\t') : NULL;
	if (!uid)
		return false;
	*ret_uid = g_ascii_strtoull(uid, NULL, 10);
	*ret_own_pid = g_ascii_strtoull(pid, NULL, 10);
	if (pids) {
		g_autofree char *line = g_strndup(pids + 1, strcspn(pids + 1, "\n"));

		*ret_own_pid = g_ascii_strtoull(strrchr(line, ':') + 1, NULL, 10);
		if (strrchr(line, '\t'))
			*ret_own_pid = g_ascii_strtoull(strrchr(line, '\t'), NULL, 10);
	}
	return true;
}

/* Returns the start of the process in seconds of the file clock; 0: unknown. */
static int64_t read_start(const struct doctor_host *host, const char *pid)
{
	g_autofree char *path = g_strdup_printf("/proc/%s/stat", pid);
	g_autofree char *text = doctor_read(host, path);
	g_autofree char *machine = doctor_read(host, "/proc/stat");
	const char *behind = text ? strrchr(text, ')') : NULL; /* its name may contain spaces */
	const char *boot = machine ? strstr(machine, "\nbtime ") : NULL;
	g_auto(GStrv) fields = behind ? g_strsplit(behind, " ", 22) : NULL;

	if (!boot || !fields || g_strv_length(fields) < 21)
		return 0;
	return g_ascii_strtoll(boot + strlen("\nbtime "), NULL, 10) +
	       g_ascii_strtoll(fields[20], NULL, 10) / sysconf(_SC_CLK_TCK);
}

/* Looks for a map in the process's own /tmp, or a mapped jitdump. As in a recording, a map that is
 * older than the process does not count. */
static enum says says_names(const struct doctor_host *host, const char *pid, uint64_t own_pid)
{
	g_autofree char *map = g_strdup_printf("%s/proc/%s/root/tmp/perf-%" G_GUINT64_FORMAT ".map",
					       host->root, pid, own_pid);
	g_autofree char *maps = g_strdup_printf("/proc/%s/maps", pid);
	g_autofree char *dump = g_strdup_printf("/jit-%" G_GUINT64_FORMAT ".dump", own_pid);
	g_autofree char *text = NULL;
	struct stat status;
	bool has_map = stat(map, &status) == 0;

	if (has_map && status.st_mtim.tv_sec >= read_start(host, pid) - SLACK_SECONDS)
		return SAYS_NAMES;
	text = doctor_read(host, maps);
	if (text && strstr(text, dump))
		return SAYS_NAMES;
	return has_map ? SAYS_ANOTHERS : SAYS_NOTHING;
}

static void add_to_list(GString *listed, const char *name, const char *pid, enum says says)
{
	if (listed->len > 0)
		g_string_append(listed, ", ");
	g_string_append_printf(listed,
			       says == SAYS_ANOTHERS ? _("%s (%s, whose map is older than it)")
						     : "%s (%s)",
			       name, pid);
}

static void look_at_process(const struct doctor_host *host, const char *pid, uint64_t own_uid,
			    struct runtimes *runtimes)
{
	g_autofree char *link = g_strdup_printf("%s/proc/%s/exe", host->root, pid);
	g_autofree char *exe = g_file_read_link(link, NULL);
	const char *name = exe && strrchr(exe, '/') ? strrchr(exe, '/') + 1 : NULL;
	char *deleted = exe ? strstr(exe, " (deleted)") : NULL;
	enum runtime runtime;
	uint64_t uid, own_pid;
	enum says says;

	if (deleted)
		*deleted = '\0';
	if (!name || !runtime_of(name, &runtime) || !read_status(host, pid, &uid, &own_pid) ||
	    (uid != own_uid && !host->superuser))
		return;
	runtimes->n++;
	says = says_names(host, pid, own_pid);
	if (says == SAYS_NAMES)
		return;
	if (runtimes->others++ < MAX_LISTED)
		add_to_list(runtimes->listed, name, pid, says);
	if (!runtimes->first_of[runtime])
		runtimes->first_of[runtime] = g_strdup(pid);
}

static void look_at_processes(const struct doctor_host *host, struct runtimes *runtimes)
{
	g_autofree char *proc = g_strconcat(host->root, "/proc", NULL);
	g_autoptr(GDir) dir = g_dir_open(proc, 0, NULL);
	uint64_t own_uid = 0, own_pid;
	const char *name;

	if (!dir || !read_status(host, "self", &own_uid, &own_pid))
		return;
	while ((name = g_dir_read_name(dir)))
		if (g_ascii_isdigit(name[0]))
			look_at_process(host, name, own_uid, runtimes);
}

/* Returns the fix for each kind of runtime that was found. */
static char *fix_of(const struct runtimes *runtimes)
{
	g_autoptr(GPtrArray) fixes = g_ptr_array_new_with_free_func(g_free);

	if (runtimes->first_of[RUNTIME_JAVA])
		g_ptr_array_add(fixes, g_strdup_printf("jcmd %s Compiler.perfmap",
						       runtimes->first_of[RUNTIME_JAVA]));
	if (runtimes->first_of[RUNTIME_NODE])
		g_ptr_array_add(fixes, g_strdup(_("start node with --perf-basic-prof")));
	if (runtimes->first_of[RUNTIME_PYTHON])
		g_ptr_array_add(fixes, g_strdup(_("start python3 with -X perf")));
	g_ptr_array_add(fixes, NULL);
	return g_strjoinv("; ", (char **)fixes->pdata);
}

void doctor_jit_maps(const struct doctor_host *host, struct doctor_finding *finding)
{
	g_autoptr(GString) listed = g_string_new(NULL);
	struct runtimes runtimes = { .listed = listed };
	g_autofree char *fix = NULL;

	look_at_processes(host, &runtimes);
	if (runtimes.others > 0) {
		fix = fix_of(&runtimes);
		if (runtimes.others > MAX_LISTED)
			g_string_append(listed, ", …");
		doctor_found(
			finding, DOCTOR_WARN,
			_("%u of %u running programs that make code do not say what it is called: %s; their functions will have no names"),
			runtimes.others, runtimes.n, listed->str);
		doctor_fix(finding, "%s", fix);
	} else if (runtimes.n > 0) {
		doctor_found(
			finding, DOCTOR_OK,
			_("the running programs that make code say what it is called (%u of node, java and Python)"),
			runtimes.n);
	} else {
		doctor_found(finding, DOCTOR_OK,
			     _("no node, java or Python from 3.%d on runs that you may record"),
			     FIRST_PYTHON);
	}
	for (int i = 0; i < RUNTIMES; i++)
		g_free(runtimes.first_of[i]);
}
