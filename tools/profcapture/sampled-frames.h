/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Sampled-frames - the addresses in some images at which samples have frames
 *
 * One pass counts the frames for all functions of these images, so that the code of each function
 * can be annotated without reading the samples again.
 */
#pragma once

#include "tools/common/number-map.h"
#include "tools/profcapture/profile.h"

/* An address at which a frame was sampled. */
struct sampled_frame {
	uint64_t offset;
	uint32_t image;
	bool returns;
	uint32_t container; /* index of the function that contains this code */
	uint32_t entity;    /* for annotate-code.c: profile entity - SAMPLED_FRAME_FIRST */
	struct amount self, total;
};

/* The frames in some images, counted in one pass for all functions of these images. */
struct sampled_frames {
	const struct functions *functions; /* of a profile by function; borrowed */
	GHashTable *images; /* image → struct number_map: offset and kind → index + 1 */
	GArray *all;        /* struct sampled_frame */
};
/* The entity of the first frame. The profile reserves smaller entities. */
#define SAMPLED_FRAME_FIRST 2u
/* Fills in the address of a row of the epoch's frames. Returns false if the row has no address. */
bool sampled_frame_read(struct names_epoch *epoch, size_t row, struct sampled_frame *ret_frame);
void sampled_frames_init(struct sampled_frames *frames, const struct functions *functions);
void sampled_frames_done(struct sampled_frames *frames);
void sampled_frames_add_image(struct sampled_frames *frames, uint32_t image);
/* Runs a profile whose entities are the frames. The caller first sets the profile's other options,
 * and frees the profile with profile_done(). */
bool sampled_frames_count(struct sampled_frames *frames, struct profile *ret_profile,
			  struct reader *reader, GError **error);
static inline struct sampled_frame *sampled_frame_at(const GArray *frames, guint index)
{
	return &g_array_index(frames, struct sampled_frame, index);
}

/* Returns the key of a frame's address in one image. */
static inline uint64_t sampled_frame_key(uint64_t offset, bool returns)
{
	return offset * 2 + returns;
}
