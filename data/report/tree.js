// SPDX-License-Identifier: BSD-2-Clause-Patent
// The call tree, in which the hottest path is open. With a range to compare with, it shows the
// changes.

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
import { treeOf } from './branches.js';
import { CHANGE_COLUMNS, changeCells } from './changes.js';
import { count, percent } from './format.js';
import { nothingHere, state, toggled, update } from './state.js';

// The hottest path ends at the last branch with at least half of the weight of the branch above.
const hotPath = (root) => {
	const hot = new Set([root]);
	for (let at = root; ; ) {
		const [next] = at.children();
		if (!next || (at !== root && next.weight < 0.5 * at.weight)) return hot;
		hot.add(next);
		at = next;
	}
};

const MOST_TREE_ROWS = 20000;

const treeRows = (root) => {
	const hot = hotPath(root);
	const rows = [];
	const work = [{ branch: root, level: 0 }];
	while (work.length && rows.length < MOST_TREE_ROWS) {
		const row = work.pop();
		const { branch, level } = row;
		row.isHot = hot.has(branch);
		row.isOpen = branch === root || state.open.has(branch.id) !== row.isHot;
		row.hasChildren = branch.children().length > 0;
		if (branch !== root) rows.push(row);
		if (!row.isOpen) continue;
		const size = branch.children().length;
		for (let k = size; k > 0; k--) {
			work.push({ branch: branch.children()[k - 1], level: level + 1, place: k, size });
		}
	}
	return { rows, left: work.length };
};

const columnsOf = (base) => {
	const number = (title) => ({ title, width: 6, number: true });
	const sums = state.inverted ? [number('Self')] : [number('Total'), number('Self')];
	const title = state.inverted ? 'Function, below it its callers' : 'Function';
	return [
		...(base ? CHANGE_COLUMNS : [number('% of all'), { title: '', width: 6 }, ...sums]),
		{ title, class: 'wide' },
	];
};

export const treePanel = (shown) => {
	const { sums, base, functions, format } = shown;
	if (!(sums.sum > 0) && !(base?.sum > 0)) return nothing(nothingHere());
	const root = treeOf(shown);
	const { rows, left } = treeRows(root);
	const most = rows.reduce(
		(high, { branch }) => Math.max(high, Math.abs(branch.value - branch.before)),
		1e-9,
	);
	const nameCell = (row) => {
		const { branch, isHot } = row;
		const f = functions[branch.fn];
		const found = shown.matches?.[branch.fn] ? ' found' : '';
		return el(
			'span',
			{
				class: `name${isHot ? ' strong' : ''}${found}`,
				title: f.full || f.name,
				style: indent(row.level),
			},
			twist(row),
			swatch(originColor(f)),
			f.name,
			muted(`  ${f.library}${f.inlined ? ' · inlined' : ''}`),
		);
	};
	const numberCells = ({ value, before, self }) =>
		base
			? changeCells(shown, value, before, most)
			: [
					percent(value / sums.sum, sums.events),
					bar(value / sums.sum, shown.color),
					format(value),
					...(state.inverted ? [] : [self ? format(self) : '–']),
				];
	const table = virtualTable({
		label: state.inverted ? 'Inverted call tree' : 'Call tree',
		treegrid: true,
		rows: rows.length,
		columns: columnsOf(base),
		onRow: (k) => {
			const { branch, hasChildren } = rows[k];
			const open = hasChildren ? toggled(state.open, branch.id) : state.open;
			update({ fn: branch.fn, open });
		},
		attributes: (k) => ({
			...treeAttributes(rows[k]),
			'aria-selected': rows[k].branch.fn === state.fn ? 'true' : 'false',
		}),
		cells: (k) => [...numberCells(rows[k].branch), nameCell(rows[k])],
	});
	if (!left) return table;
	return column(
		note(
			`Only the first ${count(MOST_TREE_ROWS)} rows are shown; `,
			`${count(left)} or more are not. `,
			'Close branches, or add --limit 0 to the copied command.',
		),
		table,
	);
};
