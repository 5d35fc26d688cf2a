// SPDX-License-Identifier: BSD-2-Clause-Patent
// Where threads waited, the critical path, and the states of threads.

import { laneSums, medianWait, pathTimes, waitPlaces } from './profile.js';
import {
	bar,
	column,
	el,
	fileOf,
	indent,
	lead,
	muted,
	note,
	nothing,
	swatch,
	treeAttributes,
	twist,
	virtualTable,
} from './dom.js';
import { count, duration, percent } from './format.js';
import { absence, countedRange, madeOf, onGrid, pathCommand, range, state } from './state.js';
import { threadChanges, toggled, update } from './state.js';
import { stateTexts } from './rows.js';

const CAUSE_COLORS = { futex: 'lock', file: 'io', network: 'io', pipe: 'io', fault: 'io' };

const placeCells = (place, most) => {
	const { ns, waits, cause, call, owner, isIntended, longest, longestAt, mostMerged } = place;
	const f = owner >= 0 ? state.data.functions[owner] : null;
	const color = (!isIntended && CAUSE_COLORS[cause]) || 'muted';
	return [
		duration(ns),
		bar(ns / most, color),
		count(waits),
		(mostMerged ? '≈ ' : '') + duration(medianWait(place)),
		el(
			'button',
			{
				type: 'button',
				class: 'link',
				title: 'select its time',
				onclick: (event) => {
					event.stopPropagation();
					update({ range: onGrid(longestAt) });
				},
			},
			(mostMerged > longest ? '≥ ' : '') + duration(longest),
		),
		[swatch(color), call || (cause === 'other' ? 'something else' : cause)],
		el(
			'span',
			{ class: 'name', title: f?.full || f?.name },
			f ? f.name : 'no function of the program',
			muted(f ? `  ${fileOf(f)}` : ''),
		),
	];
};

const placesTable = () => {
	const all = waitPlaces(state.data, { ...countedRange(), thread: state.thread });
	const intended = all.filter((place) => place.isIntended);
	const rows = all.filter((place) => !place.isIntended);
	if (intended.length) rows.push(null, ...intended);
	const most = all.reduce((high, { ns }) => Math.max(high, ns), 0);
	if (!all.length) {
		return nothing(`No waits${state.range || state.thread !== null ? ' here' : ''}.`);
	}
	return virtualTable({
		label: 'Places',
		rows: rows.length,
		columns: [
			{ title: 'Waited', width: 6.5, number: true },
			{ title: '', width: 3 },
			{ title: 'Waits', width: 5, number: true },
			{ title: 'Median', width: 6, number: true },
			{ title: 'Longest', width: 6.5, number: true },
			{ title: 'For', width: 10 },
			{ title: 'In', class: 'wide' },
		],
		onRow: (i) =>
			rows[i]?.owner >= 0 &&
			update({ fn: rows[i].owner, tab: 'functions', measure: 'wait', zoom: null }),
		cells: (i) =>
			rows[i]
				? placeCells(rows[i], most)
				: ['', '', '', '', '', muted('usually intended:'), ''],
	});
};

// Returns the time of each node of the critical path, and the number of samples: those in the range
// if the page has the path's steps, else all.
const timesOfPath = () => {
	const { data } = state;
	const { nodes, samples } = data.path;
	if (!data.steps || !state.range) return { times: nodes.map(([, , , ns]) => ns), samples };
	return pathTimes(data, ...range());
};

// Returns the visible rows of the critical path. Branches with at least a tenth of the time are
// open, unless the user closed them; others are closed, unless the user opened them.
const pathRows = ({ nodes, least_pct: least }, times) => {
	const children = [[], ...nodes.map(() => [])];
	const rows = [];
	const whole = nodes.reduce((sum, [parent], i) => sum + (parent ? 0 : times[i]), 0);
	nodes.forEach(([parent], i) => {
		if (times[i] > 0 && times[i] >= (least / 100) * whole) children[parent].push(i + 1);
	});
	const add = (i, level) => {
		const byTime = [...children[i]].sort((a, b) => times[b - 1] - times[a - 1] || a - b);
		byTime.forEach((c, k) => {
			const [, name, where] = nodes[c - 1];
			const ns = times[c - 1];
			const isOpen = ns >= 0.1 * whole !== state.openPath.has(c);
			const row = { i: c, name, where, ns, share: ns / whole, level, isOpen };
			row.place = k + 1;
			row.size = byTime.length;
			row.hasChildren = children[c].length > 0;
			rows.push(row);
			if (isOpen) add(c, level + 1);
		});
	};
	add(0, 1);
	return rows;
};

const pathTable = () => {
	const { path, steps } = state.data;
	const { times, samples } = timesOfPath();
	const rows = pathRows(path, times);
	const table = virtualTable({
		label: 'Critical path',
		treegrid: true,
		rows: rows.length,
		columns: [
			{ title: '%', width: 5.5, number: true },
			{ title: '', width: 5 },
			{ title: 'Time', width: 6.5, number: true },
			{ title: 'What', class: 'wide' },
		],
		onRow: (k) =>
			rows[k].hasChildren &&
			update({ openPath: toggled(state.openPath, rows[k].i) }, { keep: false }),
		attributes: (k) => treeAttributes(rows[k]),
		cells: (k) => {
			const { name, where, ns, share, level } = rows[k];
			return [
				percent(share, Infinity),
				bar(share, 'run'),
				duration(ns),
				el(
					'span',
					{ class: 'name', title: name, style: indent(level) },
					twist(rows[k]),
					name,
					muted(where ? `  ${where}` : ''),
				),
			];
		},
	});
	const made = path.is_whole ? 'the whole recording' : 'the time that this page was made of';
	const meaning =
		' what its time consisted of: below a wait is what the thread did that ended it';
	const cut = steps
		? state.thread === null
			? ''
			: 'It is not of the selected thread. '
		: `It has too many parts to follow the selected range, and is of ${made}. `;
	return [
		el('h2', {}, `Critical path of ${path.comm} ${path.tid}`, el('small', {}, meaning)),
		rows.length ? table : nothing('The thread did not exist in this range.'),
		note(
			cut,
			`Branches below ${path.least_pct} % are left out. `,
			samples
				? `Which functions ran is estimated from ${count(samples)} samples. `
				: 'There is no sample, so it is unknown which functions ran. ',
			el('code', {}, pathCommand()),
		),
	];
};

const places = () => {
	const { data } = state;
	if (data.has_waits) return [placesTable(), data.wait_notes.map((text) => note(text))];
	return data.capture.metric
		? nothing('The waits are part of all numbers of this page.')
		: nothing(...absence('wait', 'Where threads waited was', 'profctl record --off-cpu'));
};

export const waitingPanel = () =>
	lead(
		column(places()),
		column(threads(), state.data.has_waits && state.data.path ? pathTable() : null),
	);

const threads = () => {
	const { data } = state;
	const [from, to] = madeOf(range());
	if (!data.hasSlices) {
		const how = 'profctl record (without --no-switches)';
		return nothing(...absence('switches', 'When threads ran and waited was', how));
	}
	const rows = data.lanes
		.filter((lane) => lane.n && (state.thread === null || lane.index === state.thread))
		.map((lane) => ({ lane, sums: laneSums(lane, from, to) }))
		.filter(({ sums }) => sums.some((v) => v > 0))
		.sort((a, b) => b.sums[2] - a.sums[2] || a.lane.index - b.lane.index);
	const stack = (sums, life) =>
		['run', 'ready', 'idle'].map((name, kind) => {
			const width = (sums[kind] / life) * 100 + '%';
			return el('span', { style: { width, background: `var(--${name})` } });
		});
	const table = virtualTable({
		label: 'Threads',
		rows: rows.length,
		columns: [
			{ title: [swatch('idle'), 'Waited'], width: 6, number: true },
			{ title: [swatch('ready'), 'Ready'], width: 6, number: true },
			{ title: [swatch('run'), 'Ran'], width: 6, number: true },
			{ title: '% ran', width: 5, number: true },
			{ title: '', width: 4 },
			{ title: 'Thread', class: 'wide' },
		],
		onRow: (i) => update(threadChanges(rows[i].lane.index)),
		attributes: (i) => ({
			'aria-selected': rows[i].lane.index === state.thread ? 'true' : 'false',
		}),
		cells: (i) => {
			const { lane, sums } = rows[i];
			const life = sums.reduce((all, v) => all + v, 0);
			const [ran, ready, waited] = stateTexts(sums);
			return [
				waited,
				sums[1] || !data.has_wakeups ? ready : '–',
				ran,
				percent(sums[0] / life, 1e6),
				el('span', { class: 'stack' }, stack(sums, life)),
				`${lane.name} ${lane.tid}`,
			];
		},
	});
	const meaning = data.has_wakeups
		? 'Ready: able to run, but no CPU was free.'
		: 'Wake-ups were not recorded: a thread that was woken counts as waiting until it runs.';
	return [table, note(meaning)];
};
