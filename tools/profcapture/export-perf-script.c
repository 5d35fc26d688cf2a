/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Export-perf-script - the text of `perf script -F comm,pid,tid,cpu,time,period,event,ip,sym,
 * symoff,dso --ns`: a line for each sample, one for each of its frames, innermost first, and an
 * empty line
 *
 * Readers split lines at white space and brackets, so images are written without white space and
 * names without line breaks. Addresses are offsets in the image, because a capture has no others. A
 * sample without frames gets one that says so, because readers ignore samples without frames.
 */
#include "config.h"

#include "tools/profcapture/export.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NS_PER_S UINT64_C(1000000000)

struct script {
	const struct export *export;
	GString **lines;   /* lines of frames, by entity; NULL: not made yet */
	GHashTable *comms; /* interned name → escaped */
};

/* Returns the name of the image in perf's terms. */
static char *image_name(const struct script *script, const struct function *place)
{
	const struct names *names = script->export->reader.capture->names;
	const struct names_image *image = names_image_at(names, place->image);
	char *name;

	if (place->image <= NAMES_LOST || !image->path || *image->path == '<')
		return g_strdup("[unknown]");
	if (image->kind == PROF_IMAGE_KERNEL)
		return g_strdup("[kernel.kallsyms]");
	/* perf's readers recognize generated code by the file that names it */
	if (strcmp(place->kind, "jit") == 0)
		return g_strdup_printf("/tmp/perf-%" PRIu64 ".map",
				       names_process_at(names, image->process)->pid);
	name = text_escape_utf8(image->path, strlen(image->path));
	return g_strdelimit(name, " ", '_');
}

static GString *frame_line(const struct script *script, uint32_t entity)
{
	const struct functions *functions = script->export->profile.functions;
	const struct function *place = functions_at(functions, entity);
	uint64_t start = functions_at(functions, functions_whole(functions, entity))->offset;
	g_autofree char *image = image_name(script, place);
	/* Leave out a name such as "IMAGE+0xOFFSET", which repeats the rest of the line. */
	bool has_name = strcmp(place->kind, "unresolved") != 0 || strcmp(image, "[unknown]") == 0;
	const char *known = has_name ? place->name : "[unknown]";
	g_autofree char *name = text_escape_utf8(known, strlen(known));
	g_autofree char *shift = place->is_address && place->offset >= start
					 ? g_strdup_printf("+0x%" PRIx64, place->offset - start)
					 : g_strdup("");
	GString *line = g_string_new(NULL);

	g_string_printf(line, "\t%16" PRIx64 " %s%s (%s)\n", place->offset, name, shift,
			place->depth ? "inlined" : image);
	return line;
}

static const char *comm_at(struct script *script, const struct profile_sample *sample)
{
	const struct export *export = script->export;
	const char *comm = reader_comm_at(&export->reader, sample->thread, sample->time_ns);
	char *escaped;

	if (!comm)
		comm = export_thread_name(export, sample->thread);
	escaped = g_hash_table_lookup(script->comms, comm);
	if (!escaped) {
		escaped = g_strstrip(text_escape_utf8(comm, strlen(comm)));
		g_hash_table_insert(script->comms, (gpointer)comm, escaped);
	}
	return *escaped ? escaped : "-";
}

static void write_sample(struct script *script, struct out *out, const char *event,
			 const struct profile_sample *sample)
{
	const struct export *export = script->export;
	const struct names *names = export->reader.capture->names;
	const struct names_thread *thread = names_thread_at(names, sample->thread);
	const struct profile_node *nodes = (void *)export->profile.tree.nodes->data;
	uint64_t time_ns = (uint64_t)MAX_OF(sample->time_ns, INT64_C(0));
	char cpu[16] = "";

	if (sample->cpu != PROFILE_NO_CPU)
		(void)snprintf(cpu, sizeof(cpu), "[%03" PRIu32 "] ", sample->cpu);
	out_printf(out,
		   "%s %7" PRIu64 "/%-7" PRIu64 " %s%5" PRIu64 ".%09" PRIu64 ": %10" PRIu64
		   " %s: \n",
		   comm_at(script, sample), names_process_at(names, thread->process)->pid,
		   thread->tid, cpu, time_ns / NS_PER_S, time_ns % NS_PER_S, sample->weight, event);
	for (uint32_t at = sample->node; at != 0; at = nodes[at].parent) {
		GString **line = &script->lines[nodes[at].entity];

		if (!*line)
			*line = frame_line(script, nodes[at].entity);
		out_write(out, (*line)->str, (*line)->len);
	}
	out_char(out, '\n');
}

static gint compare_times(gconstpointer left, gconstpointer right)
{
	const struct profile_sample *a = left, *b = right;

	return a->time_ns < b->time_ns ? -1 : a->time_ns > b->time_ns;
}

/* Returns whether the samples are in order, so need no sorting, which would double the memory. */
static bool is_in_order(const GArray *each)
{
	const struct profile_sample *samples = (void *)each->data;
	guint i = 1;

	while (i < each->len && samples[i - 1].time_ns <= samples[i].time_ns)
		i++;
	return i >= each->len;
}

bool export_perf_script(struct export *export, struct out *out, GError **error)
{
	struct script script = {
		.export = export,
		.lines = g_new0(GString *, export->profile.functions->all->len),
		.comms = g_hash_table_new_full(NULL, NULL, NULL, g_free),
	};
	const char *name = profile_event_name(&export->profile);
	g_autofree char *event = text_escape_utf8(name, strlen(name));
	GArray *each = export->profile.each;

	g_strdelimit(event, " ", '_');
	if (!is_in_order(each))
		g_array_sort(each, compare_times);
	for (guint i = 0; i < each->len && !out_failed(out); i++)
		write_sample(&script, out, event, &g_array_index(each, struct profile_sample, i));
	for (guint i = 0; i < export->profile.functions->all->len; i++)
		if (script.lines[i])
			g_string_free(script.lines[i], TRUE);
	g_free(script.lines);
	g_hash_table_unref(script.comms);
	return true;
}
