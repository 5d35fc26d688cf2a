/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "config.h"

#include "tools/common/cct.h"

#include <string.h>

static char *node_at(const GArray *nodes, guint index)
{
	return nodes->data + (size_t)index * g_array_get_element_size((GArray *)nodes);
}

uint32_t cct_child(GArray *nodes, struct number_map *index, uint32_t parent, uint32_t function)
{
	uint32_t *known = number_map_at(index, (uint64_t)parent << 32 | function);

	if (*known == 0) {
		*known = nodes->len;
		g_array_set_size(nodes, nodes->len + 1);
		memcpy(node_at(nodes, *known), (const uint32_t[]){ parent, function },
		       2 * sizeof(uint32_t));
	}
	return *known;
}

struct cct_children cct_children_new(const GArray *nodes)
{
	struct cct_children of = { g_new0(uint32_t, nodes->len), g_new0(uint32_t, nodes->len) };

	for (uint32_t i = nodes->len; i-- > 1;) {
		uint32_t parent;

		memcpy(&parent, node_at(nodes, i), sizeof(parent));
		of.next[i] = of.first[parent];
		of.first[parent] = i;
	}
	return of;
}

void cct_children_done(struct cct_children *children)
{
	g_free(children->first);
	g_free(children->next);
}
