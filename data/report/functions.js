// SPDX-License-Identifier: BSD-2-Clause-Patent
// The functions with their callers and callees, and the table of changes between two ranges.

import { histograms, MOST_HISTOGRAMS, neighbors } from './profile.js';
import { CHANGE_COLUMNS, changeCells, isNoise } from './changes.js';
import {
	bar,
	el,
	lead,
	nothing,
	originColor,
	paper,
	refreshTable,
	swatch,
	virtualTable,
} from './dom.js';
import { count, percent } from './format.js';
import { nothingHere, range, REST_MS, state, update } from './state.js';
import { hasSource } from './source.js';

const WHEN_BINS = 36;

const nameCell = (f, place = true) =>
	el(
		'span',
		{ class: 'name', title: f.full || f.name },
		swatch(originColor(f)),
		f.name,
		place &&
			el(
				'span',
				{ class: 'muted' },
				`  ${f.file ? f.file.split('/').pop() + (f.line ? ':' + f.line : '') : f.library}`,
			),
	);

export const listed = ({ sums, functions, matches }) => {
	const list = [];
	for (let f = 0; f < functions.length; f++) {
		if (sums.fnTotal[f] > 0 && functions[f].kind !== 'task' && (!matches || matches[f])) {
			list.push(f);
		}
	}
	const key = state.sort === 'total' ? sums.fnTotal : sums.fnSelf;
	const other = state.sort === 'total' ? sums.fnSelf : sums.fnTotal;
	return list.sort((a, b) => key[b] - key[a] || other[b] - other[a] || a - b);
};

// A box with a clip path costs less to lay out than an image for each row.
const sparkline = (values) => {
	const most = values.reduce((high, v) => Math.max(high, v), 1e-9);
	const x = (i) => `${((i / WHEN_BINS) * 100).toFixed(1)}%`;
	const steps = Array.from(values, (v, i) =>
		[i, i + 1].map((at) => `${x(at)} ${(100 - (v / most) * 95).toFixed(0)}%`).join(),
	);
	return el('span', {
		class: 'spark',
		'aria-hidden': 'true',
		style: { clipPath: `polygon(0 100%,${steps},100% 100%)` },
	});
};

// The column "When" needs a pass over the samples for the visible rows, so it is filled in when the
// selection has not changed for a while.
let whenTimer = 0;
let when = new Map();
let wanted = new Set();
const whenOf = (f) => {
	if (!when.has(f)) wanted.add(f);
	return when.get(f);
};
const fillWhen = (shown) => {
	clearTimeout(whenTimer);
	whenTimer = setTimeout(fillWhenNow, REST_MS, shown);
};
const fillWhenNow = (shown) => {
	const [from, to] = range();
	const functions = [...wanted].slice(-MOST_HISTOGRAMS);
	wanted = new Set();
	if (!functions.length) return;
	for (const [f, bins] of histograms(
		state.data,
		shown.stacks,
		functions,
		state.measure,
		{ from, to, thread: state.thread },
		WHEN_BINS,
	)) {
		when.set(f, sparkline(bins));
	}
	refreshTable('Functions');
	if (wanted.size) fillWhen(shown);
};

export const functionTable = (shown, { side = false } = {}) => {
	const { sums, functions, format } = shown;
	const list = listed(shown);
	if (!list.length) {
		return nothing(
			state.search && shown.sums.sum > 0
				? 'No function in this range matches the search.'
				: nothingHere(),
		);
	}
	const most = list.reduce((high, f) => Math.max(high, sums.fnSelf[f]), 0);
	const withWhen = !side && (state.measure === 'cpu' || state.measure === 'wait');
	[when, wanted] = [new Map(), new Set()];
	const columns = [
		{ title: 'Self', width: 6, number: true, sort: 'self' },
		{ title: '', width: 5 },
		...(side ? [] : [{ title: 'Self %', width: 5.5, number: true }]),
		{ title: side ? 'Total' : 'Total %', width: 6, number: true, sort: 'total' },
		...(withWhen ? [{ title: 'When', width: 8 }] : []),
		{ title: 'Function', class: 'wide' },
	];
	if (withWhen && paper.isOn) wanted = new Set(list.slice(0, paper.rows));
	if (withWhen) (paper.isOn ? fillWhenNow : fillWhen)(shown);
	return virtualTable({
		label: 'Functions',
		columns,
		rows: list.length,
		sorted: state.sort,
		onSort: (sort) => update({ sort }),
		onRow: (i) => update({ fn: list[i] === state.fn && side ? null : list[i] }),
		attributes: (i) => ({ 'aria-selected': list[i] === state.fn ? 'true' : 'false' }),
		cells: (i) => {
			const f = list[i];
			const cells = [
				sums.fnSelf[f] ? format(sums.fnSelf[f]) : '–',
				bar(sums.fnSelf[f] / most, shown.color),
			];
			if (!side) cells.push(percent(sums.fnSelf[f] / sums.sum, sums.events));
			cells.push(
				side ? format(sums.fnTotal[f]) : percent(sums.fnTotal[f] / sums.sum, sums.events),
			);
			if (withWhen) cells.push(whenOf(f));
			cells.push(nameCell(functions[f], !side));
			return cells;
		},
		onScroll: () => withWhen && fillWhen(shown),
	});
};

// Lists the largest changes of self first. Functions that are in only one range are marked.
export const changesTable = (shown) => {
	const { sums, base, functions } = shown;
	const list = [];
	let noise = 0;
	for (let f = 0; f < functions.length; f++) {
		if (functions[f].kind === 'task' || sums.fnSelf[f] === base.fnSelf[f]) continue;
		if (isNoise(shown, sums.fnSelf[f], base.fnSelf[f])) noise++;
		else list.push({ f, change: sums.fnSelf[f] - base.fnSelf[f] });
	}
	list.sort((a, b) => Math.abs(b.change) - Math.abs(a.change) || a.f - b.f);
	const hidden = noise ? `${count(noise)} more changes are within noise.` : '';
	if (!list.length) return nothing(`No function changed by more than noise. ${hidden}`);
	const most = Math.abs(list[0].change);
	const box = virtualTable({
		label: 'Changes',
		rows: list.length,
		columns: [
			{ title: 'Change of self', width: 9, number: true },
			...CHANGE_COLUMNS.slice(1),
			{ title: 'Function', class: 'wide' },
		],
		onRow: (i) => update({ fn: list[i].f }),
		attributes: (i) => ({ 'aria-selected': list[i].f === state.fn ? 'true' : 'false' }),
		cells: (i) => {
			const { f } = list[i];
			return [
				...changeCells(shown, sums.fnSelf[f], base.fnSelf[f], most),
				nameCell(functions[f]),
			];
		},
	});
	return el('div', { class: 'column' }, box, hidden && el('p', { class: 'note' }, hidden));
};

const hottest = ({ sums, functions }) => {
	let best = -1;
	for (let f = 0; f < functions.length; f++) {
		if (
			functions[f].kind !== 'task' &&
			sums.fnTotal[f] > 0 &&
			(best < 0 || sums.fnSelf[f] > sums.fnSelf[best])
		) {
			best = f;
		}
	}
	return best;
};

const neighborTable = (shown, title, rows, whole) =>
	virtualTable({
		label: title,
		rows: rows.length,
		columns: [
			{ title: shown.unitTitle, width: 6, number: true },
			{ title: '%', width: 6, number: true },
			{ title: '', width: 5 },
			{ title, class: 'wide' },
		],
		onRow: (i) => rows[i][0] >= 0 && update({ fn: rows[i][0] }),
		cells: (i) => {
			const [f, value] = rows[i];
			return [
				shown.format(value),
				percent(value / whole, shown.sums.events),
				bar(value / whole, shown.color),
				f < 0
					? el('i', {}, 'no caller: the stack begins here')
					: nameCell(shown.functions[f]),
			];
		},
	});

export const butterfly = (shown) => {
	const { sums, functions, format } = shown;
	const f = state.fn !== null && sums.fnTotal[state.fn] > 0 ? state.fn : hottest(shown);
	if (f < 0) return nothing(nothingHere());
	const { callers, callees } = neighbors(shown.stacks, sums, f);
	const whole = sums.fnTotal[f];
	const fn = functions[f];
	const sized = (sum) => `${format(sum)} (${percent(sum / sums.sum, sums.events)})`;
	return el(
		'div',
		{ class: 'column' },
		neighborTable(shown, 'Called by', callers, whole),
		el(
			'div',
			{ class: 'focus' },
			el('div', { class: 'name strong' }, swatch(originColor(fn)), fn.full || fn.name),
			el(
				'div',
				{},
				`total ${sized(whole)}, self ${sized(sums.fnSelf[f])}  `,
				el(
					'span',
					{ class: 'muted' },
					[fn.image, fn.file ? `${fn.file}${fn.line ? ':' + fn.line : ''}` : '']
						.filter(Boolean)
						.join(' · '),
				),
				hasSource(f) &&
					el(
						'button',
						{
							type: 'button',
							class: 'link',
							onclick: () => update({ fn: f, tab: 'source' }),
						},
						'source',
					),
			),
		),
		callees.length
			? neighborTable(shown, 'Calls', callees, whole)
			: el('p', { class: 'note' }, 'It calls nothing: all is its own.'),
	);
};

export const functionsPanel = (shown) => {
	if (!(shown.sums.sum > 0) && !shown.base) return nothing(nothingHere());
	return lead(shown.base ? changesTable(shown) : functionTable(shown), butterfly(shown));
};
