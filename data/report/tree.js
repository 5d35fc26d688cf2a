// SPDX-License-Identifier: BSD-2-Clause-Patent
// The call tree, in which the hottest path is open.

import {
	bar,
	column,
	el,
	indent,
	muted,
	note,
	nothing,
	originColor,
	swatch,
	treeAttributes,
	twist,
	virtualTable,
} from './dom.js';
import { count, percent } from './format.js';
import { nothingHere, state, toggled, update } from './state.js';

// The hottest path ends at the last node that has most of the samples of the node above it.
const hotPath = (stacks, sums) => {
	const hot = new Set([0]);
	for (let at = 0; ; ) {
		let best = -1;
		for (let c = stacks.first[at]; c >= 0; c = stacks.next[c]) {
			if (best < 0 || sums.total[c] > sums.total[best]) best = c;
		}
		if (best < 0 || !(sums.total[best] > 0)) return hot;
		if (at && sums.total[best] < 0.5 * sums.total[at]) return hot;
		hot.add(best);
		at = best;
	}
};

const MOST_TREE_ROWS = 20000;

const treeRows = ({ stacks, sums }) => {
	const hot = hotPath(stacks, sums);
	const rows = [];
	const work = [{ i: 0, level: 0 }];
	while (work.length && rows.length < MOST_TREE_ROWS) {
		const row = work.pop();
		const children = [];
		for (let c = stacks.first[row.i]; c >= 0; c = stacks.next[c]) {
			if (sums.total[c] > 0) children.push(c);
		}
		row.isHot = hot.has(row.i);
		row.isOpen = row.i === 0 || state.open.has(row.i) !== row.isHot;
		row.hasChildren = children.length > 0;
		if (row.i) rows.push(row);
		if (!row.isOpen) continue;
		children.sort((a, b) => sums.total[a] - sums.total[b] || b - a);
		const size = children.length;
		children.forEach((i, k) => work.push({ i, level: row.level + 1, place: size - k, size }));
	}
	return { rows, left: work.length };
};

export const treePanel = (shown) => {
	const { stacks, sums, functions, format } = shown;
	if (!(sums.sum > 0)) return nothing(nothingHere());
	const { rows, left } = treeRows(shown);
	const nameCell = (row) => {
		const f = functions[stacks.func[row.i]];
		const found = shown.matches?.[stacks.func[row.i]] ? ' found' : '';
		return el(
			'span',
			{
				class: `name${row.isHot ? ' strong' : ''}${found}`,
				title: f.full || f.name,
				style: indent(row.level),
			},
			twist(row),
			swatch(originColor(f)),
			f.name,
			muted(`  ${f.library}${f.inlined ? ' · inlined' : ''}`),
		);
	};
	const table = virtualTable({
		label: 'Call tree',
		treegrid: true,
		rows: rows.length,
		columns: [
			{ title: '% of all', width: 5.5, number: true },
			{ title: '', width: 6 },
			{ title: 'Total', width: 6, number: true },
			{ title: 'Self', width: 6, number: true },
			{ title: 'Function', class: 'wide' },
		],
		onRow: (k) => {
			const { i, hasChildren } = rows[k];
			const open = hasChildren ? toggled(state.open, i) : state.open;
			update({ fn: stacks.func[i], open });
		},
		attributes: (k) => ({
			...treeAttributes(rows[k]),
			'aria-selected': stacks.func[rows[k].i] === state.fn ? 'true' : 'false',
		}),
		cells: (k) => {
			const { i } = rows[k];
			return [
				percent(sums.total[i] / sums.sum, sums.events),
				bar(sums.total[i] / sums.sum, shown.color),
				format(sums.total[i]),
				sums.self[i] ? format(sums.self[i]) : '–',
				nameCell(rows[k]),
			];
		},
	});
	if (!left) return table;
	return column(
		note(
			`Only the first ${count(MOST_TREE_ROWS)} rows are shown; `,
			`${count(left)} or more are not. `,
			'Close branches, or run the copied command.',
		),
		table,
	);
};
