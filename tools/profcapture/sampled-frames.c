/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "config.h"

#include "tools/profcapture/sampled-frames.h"

static void free_map(gpointer pointer)
{
	number_map_done(pointer);
	g_free(pointer);
}

void sampled_frames_init(struct sampled_frames *frames, const struct functions *functions)
{
	frames->functions = functions;
	frames->images = g_hash_table_new_full(NULL, NULL, NULL, free_map);
	frames->all = g_array_new(FALSE, FALSE, sizeof(struct sampled_frame));
}

void sampled_frames_done(struct sampled_frames *frames)
{
	g_hash_table_unref(frames->images);
	g_array_unref(frames->all);
}

void sampled_frames_add_image(struct sampled_frames *frames, uint32_t image)
{
	struct number_map *known;

	if (g_hash_table_contains(frames->images, GUINT_TO_POINTER(image)))
		return;
	known = g_new(struct number_map, 1);
	number_map_init(known);
	g_hash_table_insert(frames->images, GUINT_TO_POINTER(image), known);
}

bool sampled_frame_read(struct names_epoch *epoch, size_t row, struct sampled_frame *ret_frame)
{
	uint64_t id = 0, kind = PROF_FRAME_EXACT;

	*ret_frame = (struct sampled_frame){ 0 };
	if (!names_number(epoch, NAMES_FRAME, PROF_FRAME_IMAGE, row, &id) ||
	    !names_number(epoch, NAMES_FRAME, PROF_FRAME_OFFSET, row, &ret_frame->offset))
		return false;
	(void)names_number(epoch, NAMES_FRAME, PROF_FRAME_KIND, row, &kind);
	ret_frame->image = names_image(epoch, id);
	ret_frame->returns = kind == PROF_FRAME_RETURN;
	ret_frame->offset -= ret_frame->returns && ret_frame->offset > 0;
	return true;
}

static uint32_t entity_of_frame(struct names_epoch *epoch, size_t row, void *data)
{
	struct sampled_frames *frames = data;
	struct sampled_frame frame;
	struct number_map *known;
	uint32_t *index;

	if (!sampled_frame_read(epoch, row, &frame))
		return NAMES_NONE;
	known = g_hash_table_lookup(frames->images, GUINT_TO_POINTER(frame.image));
	if (!known)
		return NAMES_NONE;
	index = number_map_at(known, sampled_frame_key(frame.offset, frame.returns));
	if (*index == 0) {
		frame.container =
			functions_of_row((struct functions *)frames->functions, epoch, row);
		g_array_append_val(frames->all, frame);
		*index = frames->all->len;
	}
	return SAMPLED_FRAME_FIRST + *index - 1;
}

bool sampled_frames_count(struct sampled_frames *frames, struct profile *ret_profile,
			  struct reader *reader, GError **error)
{
	ret_profile->by = PROFILE_IMAGE;
	ret_profile->place_of = entity_of_frame;
	ret_profile->place_data = frames;
	if (!profile_run(ret_profile, reader, error))
		return false;
	for (guint i = 0; i < frames->all->len; i++) {
		struct sampled_frame *frame = sampled_frame_at(frames->all, i);
		struct profile_count count =
			profile_count_at(ret_profile->counts, SAMPLED_FRAME_FIRST + i);

		frame->total = count.total;
		frame->self = frame->returns ? (struct amount){ 0 } : count.self;
	}
	return true;
}
