/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "config.h"

#include "tools/profcapture/annotate-code.h"

#include "base/each.h"
#include "base/order.h"
#include "tools/common/keyed.h"
#include "tools/common/sorted.h"
#include "tools/profcapture/disassembly.h"
#include "tools/symbols/symbols-source.h"

#include <glib/gi18n.h>
#include <inttypes.h>
#include <string.h>

#define MAX_CONTAINERS 8 /* at most this many functions that inline the shown one are read */
#define MAX_CODE_BYTES (4u << 20)
#define TIMEOUT_MS 20000

/* The code of the shown function, or of a function that inlines it. */
struct code_range {
	uint64_t start, end;
	struct amount self;
};

/* A function at an offset, and its source line there. */
struct inline_frame {
	const char *name, *raw_name; /* NULL: the outermost function, which contains the others */
	const char *file;            /* NULL = unknown */
	uint32_t line;               /* 0 = unknown */
};

static struct sampled_frame *frame_at(const struct annotate_code *code, guint index)
{
	return sampled_frame_at(code->frames, index);
}

uint64_t annotate_code_end(const struct annotate_code *code, const struct function *function)
{
	const struct symbol_rows *rows = code->profile->functions->symbols;
	const struct symbol_row *symbol = symbol_rows_find(rows, function->image, function->offset);
	uint64_t length = 1, beyond = MAX_CODE_BYTES;

	if (function->length)
		return function->offset + MIN_OF(function->length, beyond);
	if (!symbol || symbol->start != function->offset)
		return function->offset + 1;
	if (symbol->length)
		return function->offset + MIN_OF(symbol->length, beyond);
	while (beyond - length > 1) {
		uint64_t middle = length + (beyond - length) / 2;

		if (symbol_rows_find(rows, function->image, function->offset + middle) == symbol)
			length = middle;
		else
			beyond = middle;
	}
	return function->offset + beyond;
}

/* ---- places ---------------------------------------------------------------------------------- */

static const char *intern(const struct annotate_code *code, const char *text)
{
	return text ? names_intern(code->reader->capture->names, text, strlen(text)) : NULL;
}

static bool is_own_code(const struct annotate_code *code, uint64_t offset)
{
	return offset >= code->start && offset < code->end;
}

/* Returns whether the names are those of the shown function. For inlined copies of a static
 * function, debug information may have the name without parameters. */
static bool is_called_so(const struct annotate_code *code, const char *name, const char *raw_name)
{
	return strcmp(name, code->shown.name) == 0 || strcmp(raw_name, code->shown.raw_name) == 0 ||
	       (code->plain && strcmp(raw_name, code->plain) == 0);
}

/* Determines whether inlined copies can be recognized by name. Sums up the counts of the function
 * and of these copies. */
static void join_inlined(struct annotate_code *code)
{
	const struct functions *functions = code->profile->functions;
	const struct function *shown = &code->shown;
	g_autofree char *plain = function_name_plain(shown->name);
	guint overloads = 0;

	code->has_inlined = !annotate_code_is_generated(code) && !code->no_inline;
	for (uint32_t i = FUNCTION_LOST + 1; i < functions->all->len; i++) {
		const struct function *at = functions_at(functions, i);
		g_autofree char *other = NULL;

		if (at->image != shown->image || at->is_inlined)
			continue;
		/* Inlined copies are ambiguous if the image has several static functions with this
		 * name. */
		code->has_inlined &= i == code->function || at->name != shown->name;
		if (g_str_has_prefix(at->name, plain))
			other = function_name_plain(at->name);
		overloads += g_strcmp0(other, plain) == 0;
	}
	code->plain = overloads == 1 ? intern(code, plain) : NULL;
	for (uint32_t i = FUNCTION_LOST + 1; i < functions->all->len; i++) {
		const struct function *at = functions_at(functions, i);
		struct profile_count count = profile_count_at(code->profile->counts, i);

		if (i != code->function &&
		    (!code->has_inlined || !at->is_inlined || at->image != shown->image ||
		     !is_called_so(code, at->name, at->raw_name)))
			continue;
		amount_add(&code->own_self, count.self);
		amount_add(&code->total, count.total);
	}
}

/* Sets the names of the last frame, and adds the frame that it is inlined into. */
static void add_outer(GArray *frames, const char *name, const char *raw_name, const char *file,
		      uint32_t line)
{
	const struct inline_frame outer = { .file = file, .line = line };
	struct inline_frame *last = &g_array_index(frames, struct inline_frame, frames->len - 1);

	last->name = name;
	last->raw_name = raw_name;
	g_array_append_val(frames, outer);
}

/* Returns the functions at an offset, innermost first, from `symbols` (of the file) or, if that is
 * NULL, from the capture. Stores the index of the shown function, or UINT_MAX if it is not among
 * them. */
static GArray *frames_at(const struct annotate_code *code, const struct symbols *symbols,
			 uint64_t offset, guint *ret_shown)
{
	const struct symbol_rows *known = code->profile->functions->symbols;
	const struct line_row *line = symbols ? NULL
					      : symbol_rows_line(known, code->shown.image, offset);
	size_t n = symbols ? sorted_upto(symbols->lines, symbols->n_lines, sizeof(*symbols->lines),
					 offset)
			   : 0;
	GArray *frames = g_array_new(FALSE, FALSE, sizeof(struct inline_frame));
	struct inline_frame first = { 0 };

	if (line)
		first = (struct inline_frame){ .file = line->file, .line = line->line };
	g_array_append_val(frames, first);
	for (uint32_t i = line ? line->call : 0; i; i = symbol_rows_call(known, i)->parent) {
		const struct line_call *call = symbol_rows_call(known, i);

		add_outer(frames, call->name, call->raw_name, call->file, call->line);
	}
	if (n > 0 && offset - symbols->lines[n - 1].start < symbols->lines[n - 1].length) {
		const struct symbol_line *at = &symbols->lines[n - 1];
		const struct symbol *call;

		g_array_index(frames, struct inline_frame, 0).file = at->file;
		g_array_index(frames, struct inline_frame, 0).line = at->line;
		for (uint32_t i = at->symbol;
		     i != SYMBOLS_NONE && (call = &symbols->rows[i])->inline_depth > 0;
		     i = call->inline_parent)
			add_outer(frames, call->name, call->raw_name, call->file, call->line);
	}
	*ret_shown = is_own_code(code, offset) ? frames->len - 1 : UINT_MAX;
	for (guint i = 0; *ret_shown == UINT_MAX && code->has_inlined && i + 1 < frames->len; i++) {
		const struct inline_frame *at = &g_array_index(frames, struct inline_frame, i);

		if (is_called_so(code, at->name, at->raw_name))
			*ret_shown = i;
	}
	return frames;
}

/* Returns the name of the row for a call that is inlined at a line: the function's name or, for a
 * library, the name of its class or function without template arguments, such as "std::vector". */
static const char *name_callee(const struct annotate_code *code, const struct inline_frame *call)
{
	g_autofree char *name = function_name_for_people(call->name, call->raw_name);
	char *arguments = strchr(name, '<'), *first = strstr(name, "::"), *last;

	if (!code_origin_is_library(name))
		return intern(code, name);
	if (arguments && !g_str_has_suffix(name, "operator<")) {
		*arguments = '\0';
	} else {
		last = g_strrstr(name, "::");
		if (first && last > first)
			*last = '\0';
	}
	return intern(code, name);
}

/* An offset as seen from the shown function. */
struct seen_place {
	struct annotate_place at, own; /* place in the innermost function, and in the shown one */
	const char *callee;            /* name for the call that is inlined here; NULL: none */
	bool is_of_it;                 /* the offset belongs to the shown function */
};

static struct seen_place place_at(const struct annotate_code *code, uint64_t offset)
{
	struct seen_place place = { 0 };
	guint shown;
	g_autoptr(GArray) frames = frames_at(code, code->symbols, offset, &shown);
	const struct inline_frame *all;

	/* The file may name the function differently: try the names of the capture. */
	if (shown == UINT_MAX && code->symbols) {
		g_array_unref(frames);
		frames = frames_at(code, NULL, offset, &shown);
	}
	all = (const struct inline_frame *)(void *)frames->data;
	place.is_of_it = shown != UINT_MAX;
	place.own = (struct annotate_place){ .function = code->shown.name,
					     .file = intern(code, all[0].file),
					     .line = all[0].line };
	place.at = place.own;
	if (place.is_of_it && shown > 0) {
		place.at.is_inlined = true;
		place.at.function = intern(code, all[0].name);
		place.own.file = intern(code, all[shown].file);
		place.own.line = all[shown].line;
		place.callee = name_callee(code, &all[shown - 1]);
	}
	if (code->no_inline) {
		place.at = place.own;
		place.callee = NULL;
	}
	return place;
}

/* ---- lines ----------------------------------------------------------------------------------- */

KEYED_BY(place, struct annotate_place, (uintptr_t)a->function, (uintptr_t)a->file,
	 (uint64_t)a->line << 1 | a->is_inlined)

static struct annotate_line *find_line(struct annotate_code *code,
				       const struct annotate_place *place)
{
	struct annotate_line *line = g_hash_table_lookup(code->known_lines, place);

	if (line)
		return line;
	line = g_new0(struct annotate_line, 1);
	line->at = *place;
	line->number = code->lines->len;
	g_hash_table_add(code->known_lines, line);
	g_ptr_array_add(code->lines, line);
	return line;
}

/* Returns the line at which samples of a place count. */
static struct annotate_line *line_of(struct annotate_code *code, const struct seen_place *place)
{
	struct annotate_place callee = place->own;
	struct annotate_line *own;

	if (!code->merges_callees)
		return find_line(code, &place->at);
	own = find_line(code, &place->own);
	if (!place->callee)
		return own;
	callee.function = place->callee;
	callee.is_inlined = true;
	return find_line(code, &callee);
}

/* ---- samples by frame ------------------------------------------------------------------------ */

/* Selects the frames of the shown function. */
static void select_frames(struct annotate_code *code, const struct sampled_frames *sampled)
{
	for (guint i = 0; i < sampled->all->len; i++) {
		struct sampled_frame frame = *sampled_frame_at(sampled->all, i);
		guint shown;

		if (frame.image != code->shown.image)
			continue;
		g_array_unref(frames_at(code, NULL, frame.offset, &shown));
		if (shown == UINT_MAX)
			continue;
		frame.entity = code->frames->len;
		g_array_append_val(code->frames, frame);
		*number_map_at(&code->known_frames,
			       sampled_frame_key(frame.offset, frame.returns)) = code->frames->len;
		amount_add(&code->self, frame.self);
	}
}

static bool find_frames(struct annotate_code *code, GError **error)
{
	struct sampled_frames sampled;
	struct profile profile = { 0 };
	bool ok;

	if (code->sampled) {
		select_frames(code, code->sampled);
		return true;
	}
	sampled_frames_init(&sampled, code->profile->functions);
	sampled_frames_add_image(&sampled, code->shown.image);
	ok = sampled_frames_count(&sampled, &profile, code->reader, error);
	if (ok)
		select_frames(code, &sampled);
	profile_done(&profile);
	sampled_frames_done(&sampled);
	return ok;
}

static uint32_t entity_of_selected(struct names_epoch *epoch, size_t row, void *data)
{
	const struct annotate_code *code = data;
	struct sampled_frame frame;
	uint32_t index = 0;

	if (sampled_frame_read(epoch, row, &frame) && frame.image == code->shown.image)
		index = number_map_get(&code->known_frames,
				       sampled_frame_key(frame.offset, frame.returns));
	return index ? SAMPLED_FRAME_FIRST + frame_at(code, index - 1)->entity : NAMES_NONE;
}

/* Runs the profile again, counting by the `entity` of the selected frames. */
static bool count_entities(struct annotate_code *code, struct profile *ret_profile, GError **error)
{
	*ret_profile = (struct profile){ .by = PROFILE_IMAGE,
					 .place_of = entity_of_selected,
					 .place_data = code };
	return profile_run(ret_profile, code->reader, error);
}

bool annotate_code_count_totals(struct annotate_code *code, GError **error)
{
	bool wants_lines = code->merges_callees || code->wants_total, ok = true;
	uint64_t sum = 0;
	struct profile profile;

	if (annotate_code_is_generated(code))
		return true;

	for (guint i = 0; i < code->frames->len; i++) {
		sum += frame_at(code, i)->total.samples;
		frame_at(code, i)->entity = 0;
	}
	code->has_callee_totals = sum == code->total.samples;
	if (!code->has_callee_totals) {
		ok = count_entities(code, &profile, error);
		if (ok)
			code->total = profile_count_at(profile.counts, SAMPLED_FRAME_FIRST).total;
		profile_done(&profile);
	}
	for (guint i = 0; ok && wants_lines && i < code->frames->len; i++) {
		struct sampled_frame *frame = frame_at(code, i);
		struct seen_place place = place_at(code, frame->offset);
		struct annotate_line *line = code->merges_callees ? find_line(code, &place.own)
								  : line_of(code, &place);

		frame->entity = line->number;
		if (!code->has_callee_totals)
			continue;
		amount_add(&line->at.total, frame->total);
		if (code->merges_callees && place.callee)
			amount_add(&line_of(code, &place)->at.total, frame->total);
	}
	if (!ok || code->has_callee_totals || !wants_lines)
		return ok;
	ok = count_entities(code, &profile, error);
	for (guint i = 0; ok && i < code->lines->len; i++)
		((struct annotate_line *)code->lines->pdata[i])->at.total =
			profile_count_at(profile.counts, SAMPLED_FRAME_FIRST + i).total;
	profile_done(&profile);
	return ok;
}

/* ---- where it is inlined --------------------------------------------------------------------- */

COMPARE_BY(compare_ranges, struct code_range, amount_compare(a->self, b->self),
	   ORDER(a->start, b->start))

COMPARE_AT(compare_sites, struct inline_site, amount_compare(a->self, b->self))

static char *site_name(const struct annotate_code *code, const char *name, const char *raw_name)
{
	return code->full_names ? g_strdup(name) : function_name_for_people(name, raw_name);
}

static void note_site(struct annotate_code *code, GHashTable *known,
		      const struct sampled_frame *frame)
{
	const struct function *container = functions_at(code->profile->functions, frame->container);
	guint shown;
	g_autoptr(GArray) frames = frames_at(code, NULL, frame->offset, &shown);
	g_autoptr(GString) key = g_string_new(NULL);
	struct inline_site *site;

	for (guint i = shown + 1; i < frames->len; i++) {
		const struct inline_frame *at = &g_array_index(frames, struct inline_frame, i);

		g_string_append_printf(key, "%s:%" PRIu32 "\n", at->file ? at->file : "", at->line);
	}
	g_string_append_printf(key, "%" PRIu32, frame->container);
	site = g_hash_table_lookup(known, key->str);
	if (!site) {
		site = g_new0(struct inline_site, 1);
		site->callers = g_ptr_array_new_with_free_func(g_free);
		for (guint i = shown + 1; i + 1 < frames->len; i++) {
			const struct inline_frame *at =
				&g_array_index(frames, struct inline_frame, i);

			g_ptr_array_add(site->callers, site_name(code, at->name, at->raw_name));
		}
		g_ptr_array_add(site->callers,
				site_name(code, container->name, container->raw_name));
		g_hash_table_insert(known, g_strdup(key->str), site);
		g_ptr_array_add(code->sites, site);
	}
	amount_add(&site->self, frame->self);
}

/* Finds the code to show: the function's own code, and the functions with inlined copies of it. */
static void find_ranges(struct annotate_code *code)
{
	g_autoptr(GHashTable) sites = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
	CLEANUP(number_map_done) struct number_map known;
	GArray *found = code->ranges;

	number_map_init(&known);
	ARRAY_EACH(const struct sampled_frame, frame, code->frames) {
		uint32_t *index;

		if (is_own_code(code, frame->offset))
			continue;
		note_site(code, sites, frame);
		index = number_map_at(&known, frame->container);
		if (*index == 0) {
			const struct function *container =
				functions_at(code->profile->functions, frame->container);
			const struct code_range range = { .start = container->offset,
							  .end = annotate_code_end(code,
										   container) };

			g_array_append_val(found, range);
			*index = found->len;
		}
		amount_add(&g_array_index(found, struct code_range, *index - 1).self, frame->self);
	}
	g_array_sort(found, compare_ranges);
	g_ptr_array_sort(code->sites, compare_sites);
	if (found->len > MAX_CONTAINERS) {
		code->unread_containers = found->len - MAX_CONTAINERS;
		g_array_set_size(found, MAX_CONTAINERS);
	}
	if (code->end > code->start) {
		const struct code_range own = { code->start, code->end, { 0 } };

		g_array_prepend_val(found, own);
	}
}

/* ---- the file that ran ----------------------------------------------------------------------- */

/* Returns the symbols and lines at these offsets. Returns NULL and sets `why_no_code` if `fd`
 * cannot be read or is not the file that ran. */
static struct symbols *ask_file(struct annotate_code *code, int fd, const GArray *offsets,
				bool names_only)
{
	const struct names_image *image =
		names_image_at(code->reader->capture->names, code->shown.image);
	g_autoptr(GByteArray) build_id = g_byte_array_new();
	struct symbols_image identity = {
		.path = image->path,
		.dev = image->dev,
		.inode = image->inode,
		.size = image->size,
		.kind = (enum prof_image_kind)image->kind,
		.debug_files = code->debug_files,
		.names_only = names_only,
	};
	g_autoptr(GError) unreadable = NULL;
	struct symbols *symbols = NULL;

	for (const char *hex = image->build_id; hex && hex[0] && hex[1]; hex += 2) {
		uint8_t byte =
			(uint8_t)(g_ascii_xdigit_value(hex[0]) << 4 | g_ascii_xdigit_value(hex[1]));

		g_byte_array_append(build_id, &byte, 1);
	}
	identity.build_id = build_id->data;
	identity.build_id_size = build_id->len;
	if (!symbols_read(&identity, fd, (const uint64_t *)(void *)offsets->data, offsets->len,
			  &symbols, &unreadable)) {
		code->why_no_code = intern(code, unreadable->message);
		return NULL;
	}
	if (symbols->state == SYMBOLS_READ)
		return symbols;
	code->why_no_code =
		symbols->state == SYMBOLS_CHANGED
			? _("the file is not the one that ran: its build-id differs, or it was changed")
		: symbols->state == SYMBOLS_UNKNOWN_FORMAT
			? _("the file is not a readable ELF file")
			: _("the file is not here; --sysroot says where the files of the recorded machine are");
	symbols_free(symbols);
	return NULL;
}

static void disassemble(struct annotate_code *code, int fd, const struct code_range *range)
{
	struct elf_image *elf = elf_image_open(fd);
	struct annotate_instruction instruction = { 0 };
	g_autoptr(GError) error = NULL;
	g_autoptr(GArray) found = NULL;
	uint64_t start, last;

	if (!elf || !elf_image_get_address(elf, range->start, &start) ||
	    !elf_image_get_address(elf, range->end - 1, &last)) {
		code->why_no_code = _("the file does not have the code");
	} else {
		found = disassembly_read(fd, start, last + 1, TIMEOUT_MS, &error);
		if (!found)
			code->why_no_code = intern(code, error->message);
		else if (found->len == 0)
			code->why_no_code = _("objdump finds no code there");
	}
	for (guint i = 0; found && i < found->len; i++) {
		const struct disassembly_line *line =
			&g_array_index(found, struct disassembly_line, i);

		if (!elf_image_get_offset(elf, line->address, &instruction.offset)) {
			code->why_no_code = _("objdump finds no code there");
			break;
		}
		instruction.address = line->address;
		instruction.text = intern(code, line->text);
		g_array_append_val(code->instructions, instruction);
	}
	elf_image_free(elf);
}

static void read_file(struct annotate_code *code)
{
	const struct names_image *image =
		names_image_at(code->reader->capture->names, code->shown.image);
	g_autoptr(GArray) offsets = g_array_new(FALSE, FALSE, sizeof(uint64_t));
	CLEANUP_CLOSE int fd = -1;

	if (image->kind == PROF_IMAGE_INTERPRETER) {
		code->why_no_code = _("the function is interpreted");
		return;
	}
	if (image->kind != PROF_IMAGE_FILE && image->kind != PROF_IMAGE_VDSO) {
		code->why_no_code = strcmp(code->shown.kind, "kernel") == 0
					    ? _("kernel code cannot be read from a file")
					    : _("generated code is in no file");
		return;
	}
	fd = image->kind == PROF_IMAGE_VDSO ? symbols_vdso_open()
					    : debug_files_open_path(code->debug_files, image->path);
	for (guint i = 0; i < code->frames->len; i++)
		g_array_append_val(offsets, frame_at(code, i)->offset);
	/* Check that this is the file that ran. */
	symbols_free(ask_file(code, fd, offsets, true));
	if (code->why_no_code)
		return;
	for (guint i = 0; i < code->ranges->len && !code->why_no_code; i++)
		disassemble(code, fd, &g_array_index(code->ranges, struct code_range, i));
	for (guint i = 0; i < code->instructions->len; i++)
		g_array_append_val(offsets, annotate_instruction_at(code, i)->offset);
	code->symbols = ask_file(code, fd, offsets, false);
	if (code->symbols && code->symbols->n_lines == 0)
		g_clear_pointer(&code->symbols, symbols_free);
}

/* ---- instructions ---------------------------------------------------------------------------- */

/* Returns the instruction that contains an offset. `n_known`: number of disassembled instructions,
 * which are sorted. Adds an instruction if the code at the offset was not disassembled. */
static struct annotate_instruction *instruction_of(struct annotate_code *code, uint64_t offset,
						   guint n_known)
{
	const struct annotate_instruction new = { .offset = offset, .address = offset };
	guint upto = (guint)sorted_upto(code->instructions->data, n_known, sizeof(new), offset);
	uint64_t start = offset;

	ARRAY_EACH(const struct code_range, range, code->ranges)
		if (offset >= range->start && offset < range->end)
			start = range->start;
	if (upto > 0 && annotate_instruction_at(code, upto - 1)->offset >= start)
		return annotate_instruction_at(code, upto - 1);
	g_array_append_val(code->instructions, new);
	return annotate_instruction_at(code, code->instructions->len - 1);
}

/* Assigns samples and source lines to the instructions, drops instructions of other functions, and
 * adds the samples to the lines. */
static void place_instructions(struct annotate_code *code)
{
	guint n_known = code->instructions->len, kept = 0;

	g_array_sort(code->instructions, sorted_compare);
	ARRAY_EACH(const struct sampled_frame, frame, code->frames)
		if (frame->self.samples > 0)
			amount_add(&instruction_of(code, frame->offset, n_known)->at.self,
				   frame->self);
	g_array_sort(code->instructions, sorted_compare);
	for (guint i = 0; i < code->instructions->len; i++) {
		struct annotate_instruction at = *annotate_instruction_at(code, i);
		struct seen_place place = place_at(code, at.offset);
		struct annotate_line *line;

		if (!place.is_of_it && at.at.self.samples == 0)
			continue;
		line = line_of(code, &place);
		amount_add(&line->at.self, at.at.self);
		place.at.self = at.at.self;
		at.at = place.at;
		at.line = line->number;
		at.callee = place.callee;
		*annotate_instruction_at(code, kept++) = at;
		if (!place.callee)
			continue;
		if (!line->functions)
			line->functions = g_hash_table_new(NULL, NULL);
		g_hash_table_add(line->functions, (gpointer)at.at.function);
		if (line->hottest.self.samples == 0 ||
		    amount_compare(at.at.self, line->hottest.self) < 0)
			line->hottest = at.at;
	}
	g_array_set_size(code->instructions, kept);
}

/* ---- generated code -------------------------------------------------------------------------- */

static bool read_generated(struct annotate_code *code, GError **error)
{
	const struct names *names = code->reader->capture->names;
	uint32_t process = names_image_at(names, code->shown.image)->process;
	struct profile profile = { .by = PROFILE_LINE };
	bool ok = profile_run(&profile, code->reader, error);

	code->why_no_code = _("generated code is in no file");
	for (uint32_t i = FUNCTION_LOST + 1; ok && i < profile.functions->all->len; i++) {
		const struct function *at = functions_at(profile.functions, i);
		struct profile_count count = profile_count_at(profile.counts, i);
		const struct annotate_place place = { .function = at->name,
						      .file = at->file,
						      .line = at->line };
		struct annotate_line *line;

		/* Names are interned. In one process, code with equal names is one function, even
		 * at different addresses. */
		if (count.total.samples == 0 || !at->is_line || !at->length ||
		    at->name != code->shown.name ||
		    names_image_at(names, at->image)->process != process)
			continue;
		line = find_line(code, &place);
		amount_add(&line->at.self, count.self);
		amount_add(&line->at.total, count.total);
		amount_add(&code->self, count.self);
	}
	profile_done(&profile);
	return ok;
}

/* ---- all of the code ------------------------------------------------------------------------- */

static void free_line(gpointer pointer)
{
	struct annotate_line *line = pointer;

	g_clear_pointer(&line->functions, g_hash_table_unref);
	g_free(line);
}

static void free_site(gpointer pointer)
{
	struct inline_site *site = pointer;

	g_ptr_array_unref(site->callers);
	g_free(site);
}

bool annotate_code_read(struct annotate_code *code, GError **error)
{
	code->frames = g_array_new(FALSE, FALSE, sizeof(struct sampled_frame));
	number_map_init(&code->known_frames);
	code->ranges = g_array_new(FALSE, FALSE, sizeof(struct code_range));
	code->sites = g_ptr_array_new_with_free_func(free_site);
	code->instructions = g_array_new(FALSE, FALSE, sizeof(struct annotate_instruction));
	code->lines = g_ptr_array_new_with_free_func(free_line);
	code->known_lines = g_hash_table_new(place_hash, place_equal);
	code->shown = *functions_at(code->profile->functions, code->function);
	if (!code->shown.is_inlined) {
		code->start = code->shown.offset;
		code->end = annotate_code_end(code, &code->shown);
	}
	join_inlined(code);
	if (annotate_code_is_generated(code))
		return read_generated(code, error);
	if (!find_frames(code, error))
		return false;
	find_ranges(code);
	read_file(code);
	place_instructions(code);
	/* Offsets of interpreted functions represent lines, not instructions. */
	if (names_image_at(code->reader->capture->names, code->shown.image)->kind ==
	    PROF_IMAGE_INTERPRETER)
		g_array_set_size(code->instructions, 0);
	return true;
}

guint annotate_code_find(const struct annotate_code *code, uint64_t offset)
{
	size_t upto = sorted_upto(code->instructions->data, code->instructions->len,
				  sizeof(struct annotate_instruction), offset);

	/* Every offset with samples is in the nearest instruction at or before the offset. */
	return number_map_get(&code->known_frames, sampled_frame_key(offset, false)) && upto > 0
		       ? (guint)upto - 1
		       : ANNOTATE_NOWHERE;
}

void annotate_code_done(struct annotate_code *code)
{
	if (code->frames) {
		g_array_unref(code->frames);
		number_map_done(&code->known_frames);
		g_array_unref(code->ranges);
		g_ptr_array_unref(code->sites);
		g_array_unref(code->instructions);
		g_hash_table_unref(code->known_lines);
		g_ptr_array_unref(code->lines);
	}
	if (code->candidates)
		g_string_free(code->candidates, TRUE);
	symbols_free(code->symbols);
}
