/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Sysprof-record - records a program's own marks like sysprof-cli, but without a system bus
 *
 *     sysprof-record CAPTURE PROGRAM [ARGUMENT…]
 */
#include <stdlib.h>
#include <sysprof.h>

static void stopped(SysprofProfiler *profiler, GMainLoop *loop)
{
	g_main_loop_quit(loop);
}

static void failed(SysprofProfiler *profiler, const GError *error, GMainLoop *loop)
{
	g_printerr("sysprof-record: %s\n", error->message);
	exit(1);
}

int main(int argc, char **argv)
{
	GMainLoop *loop = g_main_loop_new(NULL, FALSE);
	SysprofProfiler *profiler = sysprof_local_profiler_new();
	SysprofCaptureWriter *writer = argc > 2 ? sysprof_capture_writer_new(argv[1], 0) : NULL;

	if (!writer)
		return 2;
	sysprof_profiler_set_writer(profiler, writer);
	sysprof_profiler_add_source(profiler, SYSPROF_SOURCE(sysprof_control_source_new()));
	sysprof_profiler_set_spawn(profiler, TRUE);
	sysprof_profiler_set_spawn_inherit_environ(profiler, TRUE);
	sysprof_profiler_set_spawn_argv(profiler, (const char *const *)argv + 2);
	g_signal_connect(profiler, "stopped", G_CALLBACK(stopped), loop);
	g_signal_connect(profiler, "failed", G_CALLBACK(failed), loop);
	sysprof_profiler_start(profiler);
	g_main_loop_run(loop);
	sysprof_capture_writer_flush(writer);
	return 0;
}
