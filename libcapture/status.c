/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Status - texts for results, names for reasons of damage
 *
 * All texts of this library for people are here; they are not translated.
 */
#include "arch/base.h"
#include "libcapture/prof-capture.h"

static const char *const statuses[] = {
	[0] = "success",
	[PROF_END] = "no more rows",
	[PROF_NOT_CAPTURE] = "not a profd capture",
	[PROF_TOO_SHORT] = "shorter than the header of a capture",
	[PROF_BAD_HEADER] = "both copies of the capture's header are damaged",
	[PROF_UNSUPPORTED] = "the capture needs a feature that this version does not know",
	[PROF_DAMAGED] = "the data is damaged",
	[PROF_LIMIT] = "a limit of the capture format is exceeded",
	[PROF_NO_TABLE] = "the capture has no such table",
	[PROF_OVER_BUDGET] = "reading it takes more memory than a capture of this size may take",
};

static const char *const reasons[] = {
	[PROF_DAMAGE_HEADER] = "header",     [PROF_DAMAGE_PAYLOAD] = "payload",
	[PROF_DAMAGE_CHECKSUM] = "checksum", [PROF_DAMAGE_DECODE] = "decode",
	[PROF_DAMAGE_ORDER] = "order",       [PROF_DAMAGE_DICTIONARY] = "dictionary",
	[PROF_DAMAGE_INDEX] = "index",       [PROF_DAMAGE_CUT] = "cut",
};

PROF_PUBLIC const char *prof_strerror(int result)
{
	const char *text = NULL;

	if (result < 0)
		text = strerrordesc_np(-result);
	else if ((size_t)result < ARRAY_SIZE(statuses))
		text = statuses[result];
	return text ? text : "unknown error";
}

PROF_PUBLIC const char *prof_damage_reason_name(enum prof_damage_reason reason)
{
	return (size_t)reason < ARRAY_SIZE(reasons) ? reasons[reason] : "unknown";
}
