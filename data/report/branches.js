// SPDX-License-Identifier: BSD-2-Clause-Patent
// Branches of the call tree: from the roots to their callees or, inverted, from the functions that
// were hit to their callers. The flame graph and the call tree show them. A branch finds its
// children only when they are needed, because an inverted tree can have far more branches than
// there are stacks.

import { state } from './state.js';

// A branch has an id that is unique in its tree, its function, the branch above it, and its weights
// in the range and in the range to compare with. Its children are sorted by the sum of these
// weights, the heaviest first.
const branch = (id, fn, above, value, before, findChildren) => {
	let children = null;
	const made = { id, fn, above, value, before, weight: value + before };
	made.children = () => (children ??= findChildren(made).sort((a, b) => b.weight - a.weight));
	return made;
};

const callees = (shown, i, above) => {
	const { stacks, sums, base } = shown;
	const before = base ? base.total[i] : 0;
	const made = branch(i, stacks.func[i], above, sums.total[i], before, (it) => {
		const list = [];
		for (let c = stacks.first[i]; c >= 0; c = stacks.next[c]) {
			if (sums.total[c] > 0 || base?.total[c] > 0) list.push(callees(shown, c, it));
		}
		return list;
	});
	made.self = sums.self[i];
	return made;
};

// `hits`: an array of [row of the table of stacks, weight in the range, weight in the range to
// compare with].
const callers = (shown, hits, id, fn, above) => {
	const { parent, func } = shown.stacks;
	const sumOf = (side) => hits.reduce((sum, hit) => sum + hit[side], 0);
	return branch(id, fn, above, sumOf(1), sumOf(2), (it) => {
		const byFunction = new Map();
		for (const [row, value, before] of hits) {
			if (row === 0) continue;
			const hit = [parent[row], value, before];
			const known = byFunction.get(func[row]);
			if (known) known.push(hit);
			else byFunction.set(func[row], [hit]);
		}
		return Array.from(byFunction, ([f, list]) => callers(shown, list, `${id} ${f}`, f, it));
	});
};

// Returns where the inverted tree begins for a stack. Stacks of allocations all end in an
// allocator, so for them it begins at the innermost function of the program.
const endOf = ({ stacks, functions, measure }, row) => {
	let end = row;
	if ((measure === 'alloc' || measure === 'live') && stacks.owner[row] >= 0) {
		while (functions[stacks.func[end]].origin !== 'own') end = stacks.parent[end];
	}
	return end;
};

// Returns the branch above all others.
export const treeOf = (shown) => {
	if (!state.inverted) return callees(shown, 0, null);
	const { stacks, sums, base } = shown;
	const hits = [];
	for (let i = 1; i < stacks.n; i++) {
		const before = base ? base.self[i] : 0;
		if (sums.self[i] + before > 0) hits.push([endOf(shown, i), sums.self[i], before]);
	}
	return callers(shown, hits, '', -1, null);
};

// Returns the branches on the path from the root, which is left out, to `branchAt`.
export const pathTo = (branchAt) => {
	const path = [];
	for (let at = branchAt; at.above; at = at.above) path.unshift(at);
	return path;
};

// Returns the branch with this path of ids, or undefined if the range does not have it.
export const branchWith = (root, ids) =>
	ids.reduce((at, id) => at?.children().find((child) => child.id === id), root);
