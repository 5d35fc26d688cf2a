/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The style and the script of a flame graph in SVG, which bundle_svg.py makes from data/report. */
#pragma once

#include <stddef.h>

extern const unsigned char flame_svg_style[], flame_svg_script[];
extern const size_t flame_svg_style_size, flame_svg_script_size;
