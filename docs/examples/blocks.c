/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * A program that records parts of its own execution, its slow frames, as blocks
 *
 *     blocks FILE [FRAMES]
 *
 *     cc -o blocks blocks.c $(pkg-config --cflags --libs libprofcollector)
 *     ./blocks frames.cap && profcapture report frames.cap --per-mark "slow frame"
 *
 * If nothing can be recorded, the program reports why, and does its work.
 */
#include <prof-collector.h>
#include <stdio.h>
#include <stdlib.h>

static volatile unsigned long sink;

static void draw_frame(unsigned long triangles)
{
	for (unsigned long i = 0; i < triangles * 1000; i++)
		sink += i * i;
}

static void report(const char *act, int status)
{
	const char *more = prof_recorder_message();

	if (status != 0)
		fprintf(stderr, "blocks: %s: %s%s%s\n", act, prof_recorder_error(status),
			*more ? ": " : "", more);
}

int main(int argc, char **argv)
{
	const struct prof_recorder_options options = { .append = 1, .group = "blocks" };
	int n_frames = argc > 2 ? atoi(argv[2]) : 16, status = 0;

	if (argc < 2) {
		fprintf(stderr, "usage: blocks FILE [FRAMES]\n");
		return 2;
	}
	report("open", prof_recorder_open(argv[1], &options));
	for (int frame = 0; frame < n_frames; frame++) {
		/* This program knows in advance that a frame is slow. If yours knows it only
		 * afterwards, set a mark after the frame: a mark costs less than a block. */
		int is_slow = frame % 4 == 0;

		if (is_slow)
			status = prof_recorder_begin("slow frame");
		draw_frame(is_slow ? 40000 : 4000);
		if (is_slow && status == 0)
			report("end", prof_recorder_end("slow frame"));
	}
	report("close", prof_recorder_close());
	return 0;
}
