// SPDX-License-Identifier: BSD-2-Clause-Patent
// The lengths of marks, and the longest marks over time.

import { column, el, note, nothing, split, virtualTable } from './dom.js';
import { count, duration, shellWord } from './format.js';
import {
	absence,
	countedRange,
	onGrid,
	range,
	state,
	timeOf,
	update,
	wholeCommand,
} from './state.js';

const MOST_LONGEST = 500;

const quantile = (sorted, q) =>
	sorted[Math.min(sorted.length - 1, Math.max(0, Math.ceil(q * sorted.length) - 1))];

// A mark counts, with its whole length, where it begins, as in `profcapture marks`.
const insideRange = () => {
	const { data, thread } = state;
	const m = data.marks;
	const { from, to } = countedRange();
	return (i) => {
		const begin = m.time[i] * data.mark_unit_ns;
		return begin >= from && begin < to && (thread === null || m.thread[i] === thread);
	};
};

const isCut = (name) => state.data.marksOf[name].length < state.data.mark_names[name].count;

export const markCount = () => {
	const { marks, mark_names: names } = state.data;
	const isInside = insideRange();
	let n = 0;
	for (let i = 0; i < marks.rows; i++) if (isInside(i)) n++;
	return (names.some((mark, name) => isCut(name)) ? '≥ ' : '') + count(n);
};

const marksInRange = () => {
	const { data } = state;
	const m = data.marks;
	const isInside = insideRange();
	return data.marksOf.map((rows, name) => {
		const list = Array.from(rows).filter(isInside);
		const lengths = list.map((i) => m.length[i]).sort((a, b) => a - b);
		return { name, list, lengths, total: lengths.reduce((sum, ns) => sum + ns, 0) };
	});
};

const markCells = ({ lengths, name, total }) => {
	const { data } = state;
	const mark = data.mark_names[name];
	const longest = lengths[lengths.length - 1];
	const title = (mark.group ? mark.group + ': ' : '') + mark.name;
	// if even the longest mark has no length, all marks of the name are instants
	const took = (ns) => (longest ? duration(ns) : '–');
	// the page may have only the longest marks of a name; the numbers are then bounds
	const [least, most] = isCut(name) ? ['≥ ', '≤ '] : ['', ''];
	return [
		least + count(lengths.length),
		least + took(total),
		...[0.5, 0.95, 0.99].map((q) => most + took(quantile(lengths, q))),
		took(longest),
		el('span', { title }, title),
	];
};

const marksTable = (rows) =>
	virtualTable({
		label: 'Marks',
		rows: rows.length,
		columns: [
			{ title: 'Count', width: 6, number: true },
			{ title: 'Total', width: 6.5, number: true },
			{ title: 'Median', width: 6.5, number: true },
			{ title: 'p95', width: 6.5, number: true },
			{ title: 'p99', width: 6.5, number: true },
			{ title: 'Longest', width: 6.5, number: true },
			{ title: 'Mark', class: 'wide' },
		],
		onRow: (i) => update({ mark: rows[i].name }),
		attributes: (i) => ({ 'aria-selected': rows[i].name === state.mark ? 'true' : 'false' }),
		cells: (i) => markCells(rows[i]),
	});

const longestTable = (longest) => {
	const { data } = state;
	const m = data.marks;
	const [from, to] = range();
	const beginOf = (i) => m.time[i] * data.mark_unit_ns;
	const share = (ns) => (ns / (to - from)) * 100;
	return virtualTable({
		label: 'Longest',
		rows: longest.length,
		columns: [
			{ title: 'Begin', width: 7, number: true },
			{ title: 'Took', width: 6.5, number: true },
			{ title: 'Thread', width: 12 },
			{ title: '', class: 'wide' },
		],
		onRow: (k) => {
			const begin = beginOf(longest[k]);
			update({ range: onGrid([begin, begin + m.length[longest[k]]]) });
		},
		cells: (k) => {
			const i = longest[k];
			const thread = data.threads[m.thread[i]];
			const style = {
				marginLeft: Math.max(0, share(beginOf(i) - from)) + '%',
				width: Math.max(0.2, share(m.length[i])) + '%',
				background: 'var(--mark)',
			};
			return [
				timeOf(beginOf(i), data.duration),
				duration(m.length[i]),
				`${thread.name} ${thread.tid}`,
				el('span', { class: 'bar', style }),
			];
		},
	});
};

// Returns a note if the page has only the longest marks, else null.
const cutNote = () => {
	const { data } = state;
	if (!data.mark_names.some((mark, name) => isCut(name))) return null;
	const all = data.mark_names.reduce((sum, mark) => sum + mark.count, 0);
	return note(
		`Only the longest ${count(data.marks.rows)} of ${count(all)} marks are here: `,
		'counts are too low (≥), and lengths too high (≤). The copied command counts all.',
	);
};

export const marksPanel = () => {
	const { data } = state;
	const m = data.marks;
	if (!m.rows) {
		const how = 'prof_mark_begin() in the program, see the manual';
		return nothing(...absence('marks', 'Marks were', how));
	}
	const rows = marksInRange()
		.filter(({ list }) => list.length)
		.sort((a, b) => b.total - a.total);
	const chosen = rows.find(({ name }) => name === state.mark) || rows[0];
	if (!chosen) return nothing('No marks in this range.');
	const longest = chosen.list
		.slice()
		.sort((a, b) => m.length[b] - m.length[a] || m.time[a] - m.time[b])
		.slice(0, MOST_LONGEST);
	const cut = cutNote();
	const { name } = data.mark_names[chosen.name];
	const query =
		`SELECT * FROM marks WHERE name = '${name.replaceAll("'", "''")}' ` +
		'ORDER BY duration_ns DESC';
	const rest = longest.length < chosen.list.length && [
		`The longest ${count(longest.length)} of ${count(chosen.list.length)}. All: `,
		el('code', {}, wholeCommand('sql', shellWord(query))),
	];
	return split(
		cut ? column(cut, marksTable(rows)) : marksTable(rows),
		column(
			el('h2', {}, name, el('small', {}, ' by length; click: its time becomes the range')),
			longestTable(longest),
			rest && note(rest),
		),
	);
};
