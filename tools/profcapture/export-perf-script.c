/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Export-perf-script - the text of `perf script -F comm,pid,tid,cpu,time,period,event,ip,sym,
 * symoff,dso --ns`: a line for each sample, one for each of its frames, innermost first, and an
 * empty line
 *
 * Readers split lines at white space and brackets, so images are written without white space and
 * names without line breaks. Addresses are offsets in the image, because a capture has no others.
 * Readers ignore samples without frames, so such a sample gets a frame that says so. Texts of
 * stacks and threads are kept, because the same stacks and threads are sampled often.
 */
#include "config.h"

#include "base/order.h"
#include "tools/profcapture/export.h"

#include <inttypes.h>
#include <string.h>

#define NS_PER_S UINT64_C(1000000000)
/* Texts of stacks are kept up to this total size; other stacks are written line by line. */
#define KEPT_BYTES (32 << 20)

/* The beginning of a sample's line: "COMM PID/TID ". */
struct beginning {
	const char *comm; /* the thread's name at its last sample; interned */
	GString *text;    /* NULL: not made yet */
};

struct script {
	const struct export *export;
	struct out *out;
	GString **lines;              /* lines of frames, by entity; NULL: not made yet */
	GString **stacks;             /* texts, by node; NULL: not made yet, or not kept */
	size_t kept_bytes;            /* total size of `stacks` */
	struct beginning *beginnings; /* by thread */
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

static const GString *beginning_of(struct script *script, const struct profile_sample *sample)
{
	const struct export *export = script->export;
	const struct names *names = export->reader.capture->names;
	const struct names_thread *thread = names_thread_at(names, sample->thread);
	const char *comm = reader_comm_at(&export->reader, sample->thread, sample->time_ns);
	struct beginning *beginning = &script->beginnings[sample->thread];
	g_autofree char *escaped = NULL;

	if (!comm)
		comm = export_thread_name(export, sample->thread);
	if (beginning->text && beginning->comm == comm)
		return beginning->text;
	escaped = g_strstrip(text_escape_utf8(comm, strlen(comm)));
	if (!beginning->text)
		beginning->text = g_string_new(NULL);
	g_string_printf(beginning->text, "%s %7" PRIu64 "/%-7" PRIu64 " ", *escaped ? escaped : "-",
			names_process_at(names, thread->process)->pid, thread->tid);
	beginning->comm = comm;
	return beginning->text;
}

/* Writes a number, padded to a width, directly before `end`. Returns where the text begins. */
static char *put_before(char *end, uint64_t number, int width, char padding)
{
	char *at = end;

	do {
		*--at = (char)('0' + number % 10);
		number /= 10;
	} while (number);
	while (end - at < width)
		*--at = padding;
	return at;
}

/* Writes "[CPU] SECONDS.NANOSECONDS: WEIGHT", which differs in every sample. */
static void write_numbers(struct script *script, const struct profile_sample *sample)
{
	uint64_t time_ns = (uint64_t)MAX_OF(sample->time_ns, INT64_C(0));
	char text[96], *end = text + sizeof(text), *at;

	at = put_before(end, sample->weight, 10, ' ');
	*--at = ' ';
	*--at = ':';
	at = put_before(at, time_ns % NS_PER_S, 9, '0');
	*--at = '.';
	at = put_before(at, time_ns / NS_PER_S, 5, ' ');
	if (sample->cpu != PROFILE_NO_CPU) {
		*--at = ' ';
		*--at = ']';
		at = put_before(at, sample->cpu, 3, '0');
		*--at = '[';
	}
	out_write(script->out, at, (size_t)(end - at));
}

static const GString *line_of(struct script *script, uint32_t entity)
{
	if (!script->lines[entity])
		script->lines[entity] = frame_line(script, entity);
	return script->lines[entity];
}

/* Writes the lines of a node's frames, and an empty line. */
static void write_stack(struct script *script, uint32_t node)
{
	const struct profile_node *nodes = (void *)script->export->profile.tree.nodes->data;
	GString *text = script->stacks[node];
	size_t bytes = 1;

	if (text) {
		out_write(script->out, text->str, text->len);
		return;
	}
	for (uint32_t at = node; at != 0; at = nodes[at].parent)
		bytes += line_of(script, nodes[at].entity)->len;
	if (bytes <= KEPT_BYTES - script->kept_bytes) {
		script->stacks[node] = text = g_string_sized_new(bytes);
		script->kept_bytes += bytes;
	}
	for (uint32_t at = node; at != 0; at = nodes[at].parent) {
		const GString *line = line_of(script, nodes[at].entity);

		if (text)
			g_string_append_len(text, line->str, (gssize)line->len);
		else
			out_write(script->out, line->str, line->len);
	}
	if (text)
		g_string_append_c(text, '\n');
	out_write(script->out, text ? text->str : "\n", text ? text->len : 1);
}

COMPARE_BY(compare_times, struct profile_sample, ORDER(a->time_ns, b->time_ns))

/* Returns whether the samples are in order already. Sorting them would double the memory. */
static bool is_in_order(const GArray *each)
{
	const struct profile_sample *samples = (void *)each->data;
	guint i = 1;

	while (i < each->len && samples[i - 1].time_ns <= samples[i].time_ns)
		i++;
	return i >= each->len;
}

static void free_texts(GString **texts, guint n)
{
	for (guint i = 0; i < n; i++)
		if (texts[i])
			g_string_free(texts[i], TRUE);
	g_free(texts);
}

bool export_perf_script(struct export *export, struct out *out, GError **error)
{
	const guint n_entities = export->profile.functions->all->len;
	const guint n_nodes = export->profile.tree.nodes->len;
	const guint n_threads = export->reader.capture->names->threads->len;
	const char *name = export_weight_name(export);
	g_autofree char *event = text_escape_utf8(name, strlen(name)), *after = NULL;
	GArray *each = export->profile.each;
	struct script script = {
		.export = export,
		.out = out,
		.lines = g_new0(GString *, n_entities),
		.stacks = g_new0(GString *, n_nodes),
		.beginnings = g_new0(struct beginning, n_threads),
	};

	after = g_strdup_printf(" %s: \n", g_strdelimit(event, " ", '_'));
	if (!is_in_order(each))
		g_array_sort(each, compare_times);
	for (guint i = 0; i < each->len && !out_failed(out); i++) {
		const struct profile_sample *sample =
			&g_array_index(each, struct profile_sample, i);
		const GString *beginning = beginning_of(&script, sample);

		out_write(out, beginning->str, beginning->len);
		write_numbers(&script, sample);
		out_text(out, after);
		write_stack(&script, sample->node);
	}
	free_texts(script.lines, n_entities);
	free_texts(script.stacks, n_nodes);
	for (guint i = 0; i < n_threads; i++)
		if (script.beginnings[i].text)
			g_string_free(script.beginnings[i].text, TRUE);
	g_free(script.beginnings);
	return true;
}
