/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Doctor system - our own programs, the container around them, and room for the capture
 */
#include "config.h"

#include "tools/profctl/doctor.h"

#include "tools/common/text.h"

#include <errno.h>
#include <glib/gi18n.h>

#define MIB (UINT64_C(1) << 20)

#define PROFD_SERVICE "org.profd.Profiler1"
#define POLKIT_SERVICE "org.freedesktop.PolicyKit1"

/* Checks the private form: profctl starts its own profd, which starts an engine. The system's profd
 * is optional. */
void doctor_daemon(const struct doctor_host *host, struct doctor_finding *finding)
{
	static const char *const programs[] = { "profd", "profd-engine", "profd-files" };

	for (unsigned i = 0; i < ARRAY_SIZE(programs); i++) {
		g_autofree char *path = g_build_filename(host->libexec_dir, programs[i], NULL);

		if (access(path, X_OK) == 0)
			continue;
		doctor_found(finding, DOCTOR_FAIL, _("'%s' cannot be run: %s"), path,
			     g_strerror(errno));
		doctor_fix(
			finding,
			_("install profd completely, or set PROF_LIBEXEC_DIR to the folder that has %s"),
			programs[i]);
		return;
	}
	if (host->probes->bus_service(PROFD_SERVICE) > 0)
		doctor_found(
			finding, DOCTOR_OK,
			_("profd, profd-engine and profd-files are in '%s', and the system bus has profd"),
			host->libexec_dir);
	else
		doctor_found(
			finding, DOCTOR_OK,
			_("profd, profd-engine and profd-files are in '%s'; the system bus has no profd, so recordings have your own rights"),
			host->libexec_dir);
}

void doctor_polkit(const struct doctor_host *host, struct doctor_finding *finding)
{
	if (host->probes->bus_service(PROFD_SERVICE) <= 0) {
		doctor_found(finding, DOCTOR_OK,
			     _("not needed: the system bus has no profd to ask it"));
		return;
	}
	if (host->probes->bus_service(POLKIT_SERVICE) > 0) {
		doctor_found(finding, DOCTOR_OK,
			     _("polkit decides what the system's profd records for whom"));
		return;
	}
	doctor_found(
		finding, DOCTOR_WARN,
		_("the system bus has no polkit, so the system's profd records for nobody, not even for root"));
	doctor_fix(finding, _("install polkit (polkitd), or use 'profctl record --bus private'"));
}

/* Returns "docker", "podman", …, or NULL outside of a container. */
static char *system_container(const struct doctor_host *host)
{
	static const struct {
		const char *path, *name;
	} marks[] = { { "/.dockerenv", "docker" }, { "/run/.containerenv", "podman" } };
	char *name = doctor_read(host, "/run/systemd/container");

	for (unsigned i = 0; !name && i < ARRAY_SIZE(marks); i++) {
		g_autofree char *path = g_strconcat(host->root, marks[i].path, NULL);

		if (access(path, F_OK) == 0)
			name = g_strdup(marks[i].name);
	}
	if (!name && (host->pid_namespace || host->user_namespace))
		name = g_strdup(host->pid_namespace ? _("a pid namespace") : _("a user namespace"));
	return name;
}

void doctor_container(const struct doctor_host *host, struct doctor_finding *finding)
{
	g_autofree char *name = system_container(host);

	if (!name) {
		doctor_found(finding, DOCTOR_OK, _("not in a container"));
		return;
	}
	if (!host->pid_namespace && !host->user_namespace) {
		doctor_found(finding, DOCTOR_OK,
			     _("in a container (%s) that shares the host's processes"), name);
		return;
	}
	doctor_found(
		finding, DOCTOR_WARN,
		host->user_namespace
			? _("in a container (%s): capabilities count for nothing outside of it, so you record as a plain user, and only processes in it")
			: _("in a container (%s): processes outside of it have no names here"),
		name);
	doctor_fix(
		finding,
		_("record on the host, or start the container with --pid=host --cap-add=PERFMON"));
}

void doctor_disk_space(const struct doctor_host *host, struct doctor_finding *finding)
{
	uint64_t bytes = 0;
	int error = host->probes->free_bytes(host->directory, &bytes);
	g_autofree char *free_text = text_bytes(bytes);

	if (error < 0) {
		doctor_found(finding, DOCTOR_WARN, _("the current folder cannot be written: %s"),
			     g_strerror(-error));
	} else if (bytes < 16 * MIB) {
		doctor_found(finding, DOCTOR_FAIL,
			     _("only %s are free in the current folder: a capture will not fit"),
			     free_text);
	} else if (bytes < 256 * MIB) {
		doctor_found(
			finding, DOCTOR_WARN,
			_("only %s are free in the current folder: enough for some minutes of samples"),
			free_text);
	} else {
		doctor_found(finding, DOCTOR_OK, _("%s are free in the current folder"), free_text);
		return;
	}
	doctor_fix(finding, "profctl record -o /var/tmp/profile.cap");
}
