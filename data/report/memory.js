// SPDX-License-Identifier: BSD-2-Clause-Patent
// The live heap over time, by function and by size.

import { eachAllocation, liveHeap } from './profile.js';
import {
	bar,
	byId,
	column,
	el,
	fileOf,
	muted,
	note,
	nothing,
	paper,
	rem,
	split,
	swatch,
	virtualTable,
} from './dom.js';
import { bytes, byteStep, count, duration, fitName, inOrder, percent, tickStep } from './format.js';
import { absence, countedRange, range, state, timeOf, update } from './state.js';

const STACK_COLORS = 7;
const HEAP_BINS = 480;
const LABEL_LETTERS = 16;
const NO_OWNER = 'no function of the program';

// Returns the size of the curve, which takes half of the panel, and its margins. Units are pixels,
// so that the curve's texts have the size of all other texts.
const curveBox = () => {
	const size = rem();
	const { clientWidth, clientHeight } = byId('panel');
	const width = paper.isOn ? 48 * size : Math.max(24 * size, clientWidth / 2 - 2 * size);
	const room = paper.isOn ? Infinity : Math.max(10 * size, clientHeight - 6.5 * size);
	const height = Math.min(0.6 * width, room);
	return {
		size,
		width,
		height,
		left: 5.4 * size,
		right: width - 0.5 * LABEL_LETTERS * size,
		top: 1.9 * size,
		bottom: height - 1.9 * size,
	};
};

const svg = (tag, attributes, text) => {
	const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
	for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
	if (text) element.textContent = inOrder(text);
	return element;
};

// Returns stacked areas of the largest owners and of all others. An area has the owner's name at
// the right end, if the area is high enough there.
const heapAreas = (live, x, y, { size }) => {
	const { functions } = state.data;
	const owners = live.byOwner.slice(0, STACK_COLORS - 1);
	const below = new Float64Array(live.bins);
	const known = live.all.map((v, i) => owners.reduce((sum, [, line]) => sum + line[i], 0));
	const others = live.all.map((v, i) => v - known[i]);
	// the last process may end before the range does
	const last = Math.max(
		0,
		known.findLastIndex((v) => v > 0),
	);
	return [...owners, [-2, others]].flatMap(([owner, line], k) => {
		const up = [];
		const down = [];
		for (let i = 0; i < live.bins; i++) {
			down.push(`${x(i).toFixed(1)} ${y(below[i]).toFixed(1)}`);
			below[i] += Math.max(0, line[i]);
			up.push(`${x(i).toFixed(1)} ${y(below[i]).toFixed(1)}`);
		}
		const area = svg('path', { d: `M${up.join('L')}L${down.reverse().join('L')}Z` });
		area.style.fill = `var(--stack${k})`;
		const top = y(below[last]);
		const height = y(below[last] - Math.max(0, line[last])) - top;
		if (height < size) return [area];
		const name = owner >= 0 ? functions[owner].name : owner === -2 ? 'others' : NO_OWNER;
		const at = { x: x(last + 1) + size / 2, y: top + height / 2 + size / 3 };
		return [area, svg('text', at, fitName(name, LABEL_LETTERS))];
	});
};

const heapPeak = (live, at, { size: em, width, top, bottom }) => {
	const [from, to] = range();
	const isAll = !state.range && state.thread === null;
	const exact = isAll ? state.data.live.peak : null;
	const { ns, bytes: most } = exact ?? {
		ns: from + live.peak * live.width,
		bytes: live.all[live.peak],
	};
	const least = state.thread === null ? '' : 'at least ';
	const anchor = at > width * 0.7 ? 'end' : at < width * 0.3 ? 'start' : 'middle';
	return [
		svg('line', { x1: at, x2: at, y1: top - 0.5 * em, y2: bottom, class: 'peak' }),
		svg(
			'text',
			{ x: at, y: em, 'text-anchor': anchor, class: 'strong' },
			`peak ${least}${bytes(most)} at ${timeOf(ns, to - from)}`,
		),
	];
};

const heapCurve = (live) => {
	const [from, to] = range();
	const most = Math.max(1, live.all[live.peak]);
	const box = curveBox();
	const { size, width, height, left, right, top, bottom } = box;
	const x = (bin) => left + (bin / live.bins) * (right - left);
	const y = (v) => top + (1 - v / most) * (bottom - top);
	const root = svg('svg', {
		viewBox: `0 0 ${width} ${height}`,
		class: 'heap',
		role: 'img',
		'aria-label': 'Live heap over time. The table shows the same by function.',
	});
	for (let value = 0, step = byteStep(most, 5); value <= most; value += step) {
		const at = y(value);
		root.append(
			svg('line', { x1: left, x2: right, y1: at, y2: at, class: 'grid' }),
			svg(
				'text',
				{ x: left - size / 2, y: at + size / 3, 'text-anchor': 'end' },
				bytes(value),
			),
		);
	}
	root.append(...heapAreas(live, x, y, box), ...heapPeak(live, x(live.peak), box));
	const step = tickStep(to - from, width / (7 * size));
	const first = Math.ceil(from / step) * step;
	for (let t = first; t <= to; t += step) {
		const anchor = t - from > 0.97 * (to - from) ? 'end' : 'middle';
		const text = `${+(t / 1e9).toPrecision(6)}${t === first ? '\u00a0s' : ''}`;
		const at = x((t - from) / live.width);
		root.append(svg('text', { x: at, y: height - size / 2, 'text-anchor': anchor }, text));
	}
	return root;
};

// Returns the sums of the range by owner and by size, and the sums of the blocks that the runtime
// keeps.
const memorySums = () => {
	const { data } = state;
	const a = data.allocations;
	const owners = new Map();
	const sizes = new Map();
	const runtime = { bytes: 0, blocks: 0 };
	const of = (map, key) => {
		let sums = map.get(key);
		if (!sums) map.set(key, (sums = { key, live: 0, bytes: 0, blocks: 0, brief: 0 }));
		return sums;
	};
	const scope = { ...countedRange(), thread: state.thread };
	eachAllocation(data, scope, (i, isKept, isRuntime) => {
		for (const sums of [of(owners, data.stacks.owner[a.stack[i]]), of(sizes, a.size[i])]) {
			sums.bytes += a.bytes[i];
			sums.blocks += a.blocks[i];
			sums.brief += a.brief[i];
			if (isKept) sums.live += a.bytes[i];
		}
		if (!isRuntime) return;
		runtime.bytes += a.bytes[i];
		runtime.blocks += a.blocks[i];
	});
	const byLive = (p, q) => q.live - p.live || q.bytes - p.bytes || p.key - q.key;
	return {
		owners: [...owners.values()].sort(byLive),
		sizes: [...sizes.values()].sort((p, q) => p.key - q.key),
		runtime,
	};
};

const SUM_COLUMNS = [
	{ title: 'Not freed', width: 6.5, number: true },
	{ title: '', width: 4 },
	{ title: 'Allocated', width: 6.5, number: true },
	{ title: 'Blocks', width: 7, number: true },
	{ title: '< 100 µs', width: 6.5, number: true },
];
const sumCells = (row, most) => [
	row.live ? bytes(row.live) : '–',
	bar(row.live / most, 'heap'),
	bytes(row.bytes),
	count(row.blocks),
	percent(row.brief / row.blocks, row.blocks),
];
const mostLive = (rows) => rows.reduce((most, row) => Math.max(most, row.live), 1);

const ownersTable = (owners, live) => {
	const { functions } = state.data;
	const most = mostLive(owners);
	const order = new Map(live.byOwner.map(([owner], i) => [owner, Math.min(i, STACK_COLORS - 1)]));
	return virtualTable({
		label: 'Allocating functions',
		rows: owners.length,
		columns: [...SUM_COLUMNS, { title: 'Function', class: 'wide' }],
		onRow: (i) =>
			owners[i].key >= 0 && update({ fn: owners[i].key, tab: 'functions', measure: 'alloc' }),
		cells: (i) => {
			const row = owners[i];
			const f = row.key >= 0 ? functions[row.key] : null;
			const name = el(
				'span',
				{ class: 'name', title: f?.full || f?.name },
				swatch('stack' + (order.get(row.key) ?? STACK_COLORS - 1)),
				f ? f.name : NO_OWNER,
				muted(f ? `  ${fileOf(f)}` : ''),
			);
			return [...sumCells(row, most), name];
		},
	});
};

const sizesTable = (sizes) => {
	const most = mostLive(sizes);
	return virtualTable({
		label: 'Sizes',
		rows: sizes.length,
		columns: [...SUM_COLUMNS, { title: 'Bytes of a block', class: 'wide' }],
		cells: (i) => [
			...sumCells(sizes[i], most),
			sizes[i].key ? `from ${bytes(2 ** (sizes[i].key - 1))}` : bytes(0),
		],
	});
};

export const memoryPanel = () => {
	const { data } = state;
	if (!data.live) {
		return nothing(
			...absence('alloc', 'Allocations were', 'profctl record --memory -- COMMAND'),
		);
	}
	const { owners, sizes, runtime } = memorySums();
	const [from, to] = range();
	const live = liveHeap(data, { from, to, thread: state.thread }, HEAP_BINS);
	const sum = (key) => owners.reduce((all, row) => all + row[key], 0);
	const pools =
		`Not counted as not freed: ${bytes(runtime.bytes)} in ${count(runtime.blocks)} blocks ` +
		'that runtimes keep until exit (profcapture memory --no-suppressions).';
	const where = state.range ? ' of the range' : '';
	const sampled = data.sample_interval
		? `; estimated, 1 sample per ${bytes(data.sample_interval)}`
		: '';
	return split(
		column(
			el('h2', {}, 'Live heap ', el('small', {}, 'by the innermost function of the program')),
			heapCurve(live),
			state.thread === null
				? note(
						'The largest size in each part of the time. ',
						'Blocks that live shorter than a part count with the others.',
					)
				: note(`Blocks of the selected thread at the end of each ${duration(live.width)}.`),
		),
		column(
			el(
				'h2',
				{},
				`${bytes(sum('live'))} not freed at exit `,
				el(
					'small',
					{},
					`of ${bytes(sum('bytes'))} in ${count(sum('blocks'))} blocks${where}${sampled}`,
				),
			),
			ownersTable(owners, live),
			el('h2', {}, 'Sizes'),
			sizesTable(sizes),
			runtime.blocks > 0 && note(pools),
		),
	);
};
