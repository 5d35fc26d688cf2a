/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Doctor-names - checks what gives functions their names, besides the recorded files
 */
#include "config.h"

#include "tools/profctl/doctor.h"

#include "arch/base.h"
#include "base/cpython-layouts.h"
#include "base/perl-layouts.h"
#include "base/php-layouts.h"
#include "base/ruby-layouts.h"
#include "tools/common/text.h"
#include "tools/profctl/transport.h"
#include "tools/symbols/debuginfod.h"

#include <glib/gi18n.h>
#include <stdio.h>
#include <sys/stat.h>

#define URLS "DEBUGINFOD_URLS"
#define DEBUG_FILES "/usr/lib/debug"
#define MAX_LISTED 3
#define SLACK_SECONDS 2 /* tolerated difference between clocks or file times */
#define FIRST_PYTHON 12 /* first minor version of Python 3 that has -X perf */

/* ---- Debug files ----------------------------------------------------------------------------- */

void doctor_check_debuginfo(const struct doctor_host *host, struct doctor_finding *finding)
{
	g_autofree char *ids = g_strconcat(host->root, DEBUG_FILES "/.build-id", NULL);

	if (access(ids, F_OK) == 0)
		doctor_found(finding, DOCTOR_OK, NULL,
			     _("debug files are installed in %s, and are used for names and lines"),
			     DEBUG_FILES);
	else
		doctor_found(
			finding, DOCTOR_OK, NULL,
			_("debug files are not installed in %s: of stripped programs, only functions that other files can call have names"),
			DEBUG_FILES);
}

void doctor_check_debuginfod(const struct doctor_host *host, struct doctor_finding *finding)
{
	const char *urls = g_getenv(URLS);

	if (!urls || urls[strspn(urls, " ")] == '\0') {
		doctor_found(
			finding, DOCTOR_OK, NULL,
			_("not used: with your distribution's server in %s, 'profcapture symbolize --debuginfod' fetches debug files that are not here"),
			URLS);
		finding->off = _("set DEBUGINFOD_URLS to fetch missing debug files");
	} else if (host->probes->library(DEBUGINFOD_LIBRARY) < 0) {
		doctor_found(
			finding, DOCTOR_WARN,
			_("install libdebuginfod (on Debian the package libdebuginfod1)"),
			_("%s is set, but the library '%s' cannot be loaded: debug files that are not here cannot be fetched"),
			URLS, DEBUGINFOD_LIBRARY);
	} else {
		doctor_found(
			finding, DOCTOR_OK, NULL,
			_("'profcapture symbolize --debuginfod' fetches debug files that are not here from %s"),
			urls);
	}
}

/* ---- interpreters ---------------------------------------------------------------------------- */

/* Checks whether the functions of any interpreted program can be read. */
static void check_reading(const struct doctor_host *host, struct doctor_finding *finding)
{
	g_autofree char *types = g_strconcat(host->root, "/sys/kernel/btf/vmlinux", NULL);
	g_autofree char *lockdown = doctor_read(host, "/sys/kernel/security/lockdown");

	if (!host->interpreters)
		doctor_found(
			finding, DOCTOR_WARN,
			_("build profd with clang, libbpf 1.0 and bpftool, for x86-64"),
			_("this profd does not read the functions of Python, Ruby, PHP, Perl and Node.js programs"));
	else if (access(types, F_OK) != 0)
		doctor_found(
			finding, DOCTOR_WARN, _("run a kernel with CONFIG_DEBUG_INFO_BTF=y"),
			_("the functions of Python, Ruby, PHP, Perl and Node.js programs cannot be read: there is no /sys/kernel/btf/vmlinux"));
	else if (lockdown && strstr(lockdown, "[confidentiality]"))
		doctor_found(
			finding, DOCTOR_WARN, _("boot with lockdown=integrity"),
			_("the functions of Python, Ruby, PHP, Perl and Node.js programs cannot be read: the kernel is locked down"));
	else if (host->superuser && !(host->capabilities & DOCTOR_BPF))
		doctor_found(
			finding, DOCTOR_WARN,
			_("start the container with --cap-add=BPF --cap-add=PERFMON"),
			_("the functions of Python, Ruby, PHP, Perl and Node.js programs cannot be read: root is not allowed here to load the program that reads them (CAP_BPF, CAP_PERFMON)"));
	else if (!(host->capabilities & DOCTOR_BPF) && host->probes->bus_service(PROFD_NAME) <= 0)
		doctor_found(
			finding, DOCTOR_WARN, "sudo profctl record",
			_("only root and the profd service read the functions of Python, Ruby, PHP, Perl and Node.js programs"));
	else
		doctor_found(
			finding, DOCTOR_OK, NULL,
			_("the functions of programs for Python 3.8 to 3.14, 3.13t and 3.14t, Ruby 3.1 to 3.4, PHP 8.2 to 8.5, Perl 5.36 to 5.40 and Node.js 18, 20, 22 and 24 are read"));
}

static bool are_interpreters_read(const struct doctor_host *host)
{
	struct doctor_finding finding = { 0 };
	bool is_read;

	check_reading(host, &finding);
	is_read = finding.status == DOCTOR_OK;
	doctor_finding_done(&finding);
	return is_read;
}

/* Returns the version in the name of the mapped library of Ruby, such as "3.3", if the process's
 * program is ruby; NULL: none. */
static char *ruby_of(const struct doctor_host *host, const char *pid)
{
	g_autofree char *link = g_strdup_printf("%s/proc/%s/exe", host->root, pid);
	g_autofree char *path = g_strdup_printf("/proc/%s/maps", pid);
	g_autofree char *exe = g_file_read_link(link, NULL);
	const char *name = exe ? strrchr(exe, '/') : NULL, *at;
	g_autofree char *maps = NULL;
	unsigned major, minor;

	if (!name || !g_str_has_prefix(name, "/ruby"))
		return NULL;
	maps = doctor_read(host, path);
	at = maps ? strstr(maps, "/libruby") : NULL;
	at = at ? strstr(at, ".so.") : NULL;
	return at && sscanf(at, ".so.%u.%u", &major, &minor) == 2
		       ? g_strdup_printf("%u.%u", major, minor)
		       : NULL;
}

static bool is_in(const char *version, unsigned of_major, unsigned first, unsigned last)
{
	unsigned major, minor;

	return sscanf(version, "%u.%u", &major, &minor) == 2 && major == of_major &&
	       minor >= first && minor <= last;
}

/* Returns the version in the name of the process's program, if the name begins with `prefix`, such
 * as "8.4" for php-fpm8.4; NULL: none. */
static char *version_in_name(const struct doctor_host *host, const char *pid, const char *prefix)
{
	g_autofree char *link = g_strdup_printf("%s/proc/%s/exe", host->root, pid);
	g_autofree char *exe = g_file_read_link(link, NULL);
	const char *name = exe ? strrchr(exe, '/') : NULL;
	unsigned major, minor;

	if (!name || !g_str_has_prefix(name, prefix))
		return NULL;
	name += strcspn(name, "0123456789");
	return sscanf(name, "%u.%u", &major, &minor) == 2 ? g_strdup_printf("%u.%u", major, minor)
							  : NULL;
}

/* Returns the version of Node.js that is in the path of the process's program, such as "22" for
 * v22.11.0/bin/node; NULL: none. */
static char *version_of_node(const struct doctor_host *host, const char *pid)
{
	g_autofree char *link = g_strdup_printf("%s/proc/%s/exe", host->root, pid);
	g_autofree char *exe = g_file_read_link(link, NULL);
	const char *at = exe && g_str_has_suffix(exe, "/bin/node") ? g_strrstr(exe, "/v") : NULL;
	unsigned major;

	if (exe && !at && g_str_has_suffix(exe, "/bin/node"))
		at = g_strrstr(exe, "-v");
	return at && sscanf(at + 2, "%u.", &major) == 1 ? g_strdup_printf("%u", major) : NULL;
}

static bool warn_of_version(struct doctor_finding *finding, const char *fix, const char *language,
			    const char *version, const char *pid)
{
	doctor_finding_done(finding);
	*finding = (struct doctor_finding){ 0 };
	doctor_found(
		finding, DOCTOR_WARN, fix,
		_("%s %s is not supported: the functions of process %s cannot be read. Supported: Python 3.8 to 3.14, 3.13t and 3.14t, Ruby 3.1 to 3.4, PHP 8.2 to 8.5, Perl 5.36 to 5.40, and Node.js 18, 20, 22 and 24"),
		language, version, pid);
	return true;
}

/* Warns if the process runs a version whose functions are not read. Returns whether it warned. */
static bool check_version(const struct doctor_host *host, const char *pid,
			  struct doctor_finding *finding)
{
	static const struct {
		const char *prefix, *language;
		unsigned major, first, last;
		const char *fix;
	} named[] = {
		{ "/python", "Python", 3, CPYTHON_FIRST_MINOR, CPYTHON_LAST_MINOR,
		  N_("run the program with Python 3.8 to 3.14") },
		{ "/php", "PHP", 8, PHP_FIRST_MINOR, PHP_LAST_MINOR,
		  N_("run the program with PHP 8.2 to 8.5") },
		{ "/perl", "Perl", 5, PERL_FIRST_MINOR, PERL_LAST_MINOR,
		  N_("run the program with Perl 5.36, 5.38 or 5.40") },
	};
	static const char *const node_versions[] = { "18", "20", "22", "24", NULL };
	g_autofree char *ruby = ruby_of(host, pid), *node = version_of_node(host, pid);

	if (ruby && !is_in(ruby, 3, RUBY_FIRST_MINOR, RUBY_LAST_MINOR))
		return warn_of_version(finding, _("run the program with Ruby 3.1 to 3.4"), "Ruby",
				       ruby, pid);
	if (node && !g_strv_contains(node_versions, node))
		return warn_of_version(
			finding,
			_("run the program with Node.js 18, 20, 22 or 24, or with --perf-basic-prof"),
			"Node.js", node, pid);
	for (size_t i = 0; i < ARRAY_SIZE(named); i++) {
		g_autofree char *version = version_in_name(host, pid, named[i].prefix);

		if (version && !is_in(version, named[i].major, named[i].first, named[i].last))
			return warn_of_version(finding, _(named[i].fix), named[i].language, version,
					       pid);
	}
	return false;
}

void doctor_check_interpreters(const struct doctor_host *host, struct doctor_finding *finding)
{
	g_autofree char *proc = g_strconcat(host->root, "/proc", NULL);
	g_autoptr(GDir) dir = NULL;
	const char *pid;

	check_reading(host, finding);
	if (finding->status != DOCTOR_OK)
		return;
	dir = g_dir_open(proc, 0, NULL);
	while (dir && (pid = g_dir_read_name(dir)))
		if (g_ascii_isdigit(pid[0]) && check_version(host, pid, finding))
			return;
}

/* ---- programs that generate code ------------------------------------------------------------- */

enum runtime { RUNTIME_NODE, RUNTIME_JAVA, RUNTIME_PYTHON, RUNTIMES };

/* SAYS_ANOTHERS: the map was written by an earlier process with the same pid. */
enum says { SAYS_NOTHING, SAYS_ANOTHERS, SAYS_NAMES };

struct runtimes {
	unsigned n, others;       /* n: all processes; others: processes without names */
	GString *listed;          /* the first processes without names */
	char *first_of[RUNTIMES]; /* by kind: pid of the first process without names */
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

/* Reads the effective uid from "Uid:", and the last pid from "NSpid:", which the process uses in
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

/* Returns when the process started, in seconds of the wall clock; 0: unknown. */
static int64_t read_start(const struct doctor_host *host, const char *pid)
{
	g_autofree char *path = g_strdup_printf("/proc/%s/stat", pid);
	g_autofree char *text = doctor_read(host, path);
	g_autofree char *machine = doctor_read(host, "/proc/stat");
	const char *behind = text ? strrchr(text, ')') : NULL; /* the name may contain spaces */
	const char *boot = machine ? strstr(machine, "\nbtime ") : NULL;
	g_auto(GStrv) fields = behind ? g_strsplit(behind, " ", 22) : NULL;

	if (!boot || !fields || g_strv_length(fields) < 21)
		return 0;
	return g_ascii_strtoll(boot + strlen("\nbtime "), NULL, 10) +
	       g_ascii_strtoll(fields[20], NULL, 10) / sysconf(_SC_CLK_TCK);
}

/* Looks for a perf map in the process's own /tmp, or for a mapped jitdump. As in a recording,
 * ignores a map that is older than the process. */
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
	    (uid != own_uid && !host->superuser) ||
	    (runtime != RUNTIME_JAVA && are_interpreters_read(host)))
		return;
	runtimes->n++;
	says = says_names(host, pid, own_pid);
	if (says == SAYS_NAMES)
		return;
	if (runtimes->others > 0 && runtimes->others < MAX_LISTED)
		g_string_append(runtimes->listed, ", ");
	if (runtimes->others++ < MAX_LISTED)
		g_string_append_printf(runtimes->listed,
				       says == SAYS_ANOTHERS
					       ? _("%s (%s, whose map is older than it)")
					       : "%s (%s)",
				       name, pid);
	if (!runtimes->first_of[runtime])
		runtimes->first_of[runtime] = g_strdup(pid);
}

/* Returns the fixes for all runtimes that have processes without names. */
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

void doctor_check_jit_maps(const struct doctor_host *host, struct doctor_finding *finding)
{
	g_autoptr(GString) listed = g_string_new(NULL);
	struct runtimes runtimes = { .listed = listed };
	g_autofree char *proc = g_strconcat(host->root, "/proc", NULL);
	g_autoptr(GDir) dir = g_dir_open(proc, 0, NULL);
	uint64_t own_uid = 0, own_pid;
	g_autofree char *fix = NULL;
	const char *name;

	if (dir && read_status(host, "self", &own_uid, &own_pid))
		while ((name = g_dir_read_name(dir)))
			if (g_ascii_isdigit(name[0]))
				look_at_process(host, name, own_uid, &runtimes);
	if (runtimes.others > 0) {
		fix = fix_of(&runtimes);
		if (runtimes.others > MAX_LISTED)
			g_string_append_printf(listed, ", %s", text_sign(TEXT_ELLIPSIS));
		doctor_found(
			finding, DOCTOR_WARN, fix,
			_("%u of %u running programs that generate code do not name it: %s; their functions will have no names"),
			runtimes.others, runtimes.n, listed->str);
	} else if (runtimes.n > 0) {
		doctor_found(
			finding, DOCTOR_OK, NULL,
			_("the running programs that generate code name it (%u of node, java and Python)"),
			runtimes.n);
	} else {
		doctor_found(finding, DOCTOR_OK, NULL,
			     _("no node, java or Python from 3.%d on runs that you may record"),
			     FIRST_PYTHON);
	}
	for (int i = 0; i < RUNTIMES; i++)
		g_free(runtimes.first_of[i]);
}
