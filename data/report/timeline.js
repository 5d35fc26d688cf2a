// SPDX-License-Identifier: BSD-2-Clause-Patent
// The timeline: one time axis for activity, threads, memory, counters, marks and logs. Dragging
// selects the range that all panels count. Everything that does not depend on the selection is
// drawn once into a separate canvas; a drag only draws the selection over it.

import { lowerBound, KINDS } from './data.js';
import { eachWait, laneSums, partSums, pausesOf } from './profile.js';
import { byId, color, el, fill, fontFamily, rem, sizeCanvas } from './dom.js';
import { count, duration, inOrder, tickStep } from './format.js';
import {
	cpuTitle,
	REST_MS,
	range,
	sideName,
	spanOf,
	state,
	timeOf,
	view,
	wholeCommand,
} from './state.js';
import { layout, makeRows, numberOf, stateTexts, toX } from './rows.js';

const background = { canvas: document.createElement('canvas'), key: '' };

// The cursor of the keyboard: a row, and a time, which is null before the first use.
export const cursor = { row: 1, at: null };

// ---- rows that do not depend on the selection

const mix = (a, b, share) => {
	const parts = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
	const [x, y] = [parts(a), parts(b)];
	return (
		'#' +
		x
			.map((v, i) =>
				Math.round(v + (y[i] - v) * share)
					.toString(16)
					.padStart(2, '0'),
			)
			.join('')
	);
};

const heatCells = () => {
	const cell = Math.max(4, Math.round(rem() * 0.36));
	const columns = Math.floor(layout.width / cell);
	const parts = Math.max(4, Math.floor((Math.round(rem() * 3) - 2) / cell));
	return { cell, columns, parts, wide: layout.width / columns };
};

// Returns the part of the time that a cell shows.
const cellTimes = (column, part) => {
	const { columns, parts } = heatCells();
	const [from, to] = view();
	const width = (to - from) / (columns * parts);
	const begin = from + (column * parts + part) * width;
	return { from: begin, to: begin + width };
};

// cellAt() returns the times of the cell at a place of the canvas, cellOf() those of the cell that
// contains a time.
export const cellAt = (x, y) => {
	const { cell, columns, parts, wide } = heatCells();
	const { y: top } = layout.rows.find(({ kind }) => kind === 'heat');
	const within = (n, most) => Math.max(0, Math.min(most - 1, Math.floor(n)));
	return cellTimes(
		within((x - layout.gutter) / wide, columns),
		within((y - top - 1) / cell, parts),
	);
};
export const cellOf = (at) => {
	const { columns, parts } = heatCells();
	const [from, to] = view();
	return cellTimes(0, Math.floor(((at - from) / (to - from)) * columns * parts));
};

// A column is a part of the time; its cells, from the top down, are parts of the column's time.
const drawHeat = (g, row, c) => {
	const { data } = state;
	const s = data.samples;
	const [from, to] = view();
	const { cell, columns, parts, wide } = heatCells();
	const bins = new Float64Array(columns * parts);
	const width = (to - from) / bins.length;
	const unit = data.sample_unit_ns;
	const begin = lowerBound(s.time, Math.floor(from / unit), s.rows);
	// samples at the very end of the capture count, too
	const end = to === data.duration ? s.rows : lowerBound(s.time, Math.ceil(to / unit), s.rows);
	for (let i = begin; i < end; i++) {
		if (state.thread !== null && s.thread[i] !== state.thread) continue;
		const bin = Math.floor((s.time[i] * unit - from) / width);
		if (bin >= 0) bins[Math.min(bin, bins.length - 1)] += s.weight[i] * s.each;
	}
	const full =
		data.capture.is_time && !data.capture.metric
			? width * Math.max(1, data.capture.cpus)
			: Math.max(1, ...bins);
	const shades = Array.from({ length: 33 }, (_, i) =>
		i <= 16 ? mix(c.heat0, c.heat1, i / 16) : mix(c.heat1, c.heat2, (i - 16) / 16),
	);
	for (let x = 0; x < columns; x++) {
		for (let k = 0; k < parts; k++) {
			g.fillStyle = shades[Math.round(Math.min(1, bins[x * parts + k] / full) * 32)];
			g.fillRect(layout.gutter + x * wide, row.y + 1 + k * cell, wide - 0.5, cell - 0.5);
		}
	}
};

// Colors of a lane: waits for a lock, and for input and output, differ from other waits.
const laneColors = ['run', 'ready', 'lock', 'io', 'idle'];
const [LOCK, IO, IDLE] = [2, 3, 4];
const CAUSE_KINDS = { futex: LOCK, file: IO, network: IO, pipe: IO, fault: IO };

const drawLane = (g, row, c) => {
	const [from, to] = view();
	const n = Math.ceil(layout.width);
	const scale = layout.width / (to - from);
	const { data } = state;
	const shares = laneColors.map(() => new Float32Array(n + 1));
	const cover = (into, begin, end, part) => {
		for (let x = Math.floor(begin); x < end && x < n; x++) {
			into[x] += part * (Math.min(x + 1, end) - Math.max(x, begin));
		}
	};
	for (const lane of row.lanes) {
		for (let i = lowerBound(lane.to, from); i < lane.n && lane.from[i] < to; i++) {
			const begin = (Math.max(lane.from[i], from) - from) * scale;
			const end = (Math.min(lane.to[i], to) - from) * scale;
			const part = lane.amount[i] / Math.max(1, lane.to[i] - lane.from[i]);
			cover(shares[lane.kind[i] === 2 ? IDLE : lane.kind[i]], begin, end, part);
		}
		if (!data.has_waits || row.lanes.length > 1) continue;
		const pauses = pausesOf(data);
		eachWait(data, lane, from, to, (stack, begin, end) => {
			const kind =
				!pauses[stack] && CAUSE_KINDS[data.wait_calls[data.stacks.cause[stack] - 1]?.cause];
			if (kind) cover(shares[kind], (begin - from) * scale, (end - from) * scale, 1);
		});
	}
	const height = row.height - 3;
	const most = row.lanes.length > 1 ? Math.max(1, state.data.capture.cpus) : 1;
	const kinds = row.lanes.length > 1 ? [0, 1] : [...laneColors.keys()];
	for (let x = 0; x < n; x++) {
		let y = row.y + 1 + height;
		shares[IDLE][x] -= shares[LOCK][x] + shares[IO][x];
		for (const kind of kinds) {
			const part = Math.min(y - row.y - 1, (shares[kind][x] / most) * height);
			if (part <= 0.01) continue;
			g.fillStyle = c[laneColors[kind]];
			g.fillRect(layout.gutter + x, y - part, 1, part);
			y -= part;
		}
	}
};

const drawLine = (g, row, c) => {
	const { data } = state;
	const live = row.kind === 'live';
	const { times, values, end_ns: end = data.duration } = live ? data.live : row.counter;
	const low = Math.min(0, ...values);
	const high = Math.max(...values, low + 1e-9);
	const height = row.height - 4;
	const y = (v) => row.y + 2 + height - ((v - low) / (high - low)) * height;
	const shade = live ? c.heap : c.mark;
	g.save();
	g.beginPath();
	g.rect(layout.gutter, row.y, layout.width, row.height);
	g.clip();
	g.beginPath();
	let last = y(low);
	g.moveTo(toX(times[0]), last);
	for (let i = 0; i < times.length; i++) {
		const x = toX(times[i]);
		g.lineTo(x, last);
		g.lineTo(x, (last = y(values[i])));
	}
	g.lineTo(toX(end), last);
	g.strokeStyle = shade;
	g.lineWidth = 1;
	g.stroke();
	g.lineTo(toX(end), y(low));
	g.lineTo(toX(times[0]), y(low));
	g.globalAlpha = 0.25;
	g.fillStyle = shade;
	g.fill();
	g.globalAlpha = 1;
	if (live && data.rss) {
		g.setLineDash([3, 2]);
		g.strokeStyle = c.muted;
		g.beginPath();
		data.rss.times.forEach((t, i) =>
			g[i ? 'lineTo' : 'moveTo'](
				toX(t),
				Math.max(row.y + 1, y(Math.min(high, data.rss.values[i]))),
			),
		);
		g.stroke();
	}
	g.restore();
};

// Draws how much of each pixel's time is inside of a mark, as opacity.
const drawMark = (g, row, c) => {
	const m = state.data.marks;
	const [from, to] = view();
	const n = Math.ceil(layout.width);
	const scale = layout.width / (to - from);
	const covered = new Float32Array(n + 1);
	const unit = state.data.mark_unit_ns;
	for (const name of row.names) {
		for (const i of state.data.marksOf[name]) {
			const begin = (m.time[i] * unit - from) * scale;
			const end = Math.max(begin + 0.4, (m.time[i] * unit + m.length[i] - from) * scale);
			for (let x = Math.max(0, Math.floor(begin)); x < Math.min(n, end); x++) {
				covered[x] += Math.min(x + 1, end) - Math.max(x, begin);
			}
		}
	}
	g.fillStyle = c.mark;
	for (let x = 0; x < n; x++) {
		if (covered[x] <= 0) continue;
		g.globalAlpha = 0.25 + 0.75 * Math.min(1, covered[x]);
		g.fillRect(layout.gutter + x, row.y + 2, 1, Math.max(3, row.height - 5));
	}
	g.globalAlpha = 1;
};

// Cuts a text to a width: units and names come from the capture, and may have any length.
const fit = (g, text, width) => {
	const letters = [...inOrder(text.slice(0, 60))];
	const all = text.length > 60 ? Infinity : letters.length;
	const shown = () => letters.join('') + (letters.length < all ? '…' : '');
	while (letters.length > 1 && g.measureText(shown()).width > width) letters.pop();
	return shown();
};

const drawLogs = (g, row, c) => {
	g.fillStyle = c.warn;
	g.textAlign = 'left';
	g.font = `${rem() * 0.85}px ${fontFamily()}`;
	const { logs } = state.data;
	for (const [i, log] of logs.entries()) {
		const x = toX(log.time_ns);
		if (x < layout.gutter || x > layout.gutter + layout.width) continue;
		g.beginPath();
		g.moveTo(x, row.y + 2);
		g.lineTo(x + 4, row.y + row.height - 4);
		g.lineTo(x - 4, row.y + row.height - 4);
		g.fill();
		// The text may extend up to the triangle of the next log.
		const next = i + 1 < logs.length ? toX(logs[i + 1].time_ns) - 6 : Infinity;
		const room = Math.min(next, layout.gutter + layout.width) - x - 8;
		if (room < 3 * rem()) continue;
		g.fillText(fit(g, log.text || '', room), x + 8, row.y + row.height / 2);
	}
};

const drawAxis = (g, row, c) => {
	const [from, to] = view();
	const step = tickStep(to - from, layout.width / (rem() * 7));
	const digits = Math.max(0, -Math.floor(Math.log10(step / 1e9)));
	g.font = `${rem() * 0.85}px ${fontFamily()}`;
	g.textAlign = 'center';
	for (const { from_ns: start, to_ns: end } of state.data.compare?.sides || [
		{ from_ns: 0, to_ns: to },
	]) {
		let unit = ' s'; // beside the first number
		for (
			let t = Math.max(0, Math.ceil((from - start) / step) * step);
			t + start <= Math.min(to, end);
			t += step
		) {
			const x = Math.round(toX(t + start)) + 0.5;
			g.strokeStyle = c.line;
			g.globalAlpha = 0.6;
			g.beginPath();
			g.moveTo(x, row.height - 4);
			g.lineTo(x, layout.height);
			g.stroke();
			g.globalAlpha = 1;
			g.fillStyle = c.muted;
			// beside the boundary, not below it
			g.textAlign = t === 0 && start > 0 ? 'left' : 'center';
			if (
				x <
				Math.min(
					layout.gutter + layout.width,
					toX(end) - (end < state.data.duration ? rem() : 0),
				) -
					rem()
			) {
				g.fillText(
					(t / 1e9).toFixed(digits) + unit,
					t === 0 && start > 0 ? x + 5 : x,
					row.height / 2,
				);
				unit = '';
			}
		}
	}
};

// Draws the boundary where the first capture ends and the later one begins.
const drawBoundary = (g, c) => {
	const sides = state.data.compare?.sides;
	const x = sides && Math.round(toX(sides[1].from_ns)) + 0.5;
	if (!sides || x < layout.gutter || x > layout.gutter + layout.width) return;
	g.strokeStyle = c.text;
	g.lineWidth = 2;
	g.beginPath();
	g.moveTo(x, 0);
	g.lineTo(x, layout.height);
	g.stroke();
	g.lineWidth = 1;
};

const lossSpan = (loss) => ({
	from: Math.max(layout.gutter, toX(loss.from_ns)),
	to: Math.min(layout.gutter + layout.width, Math.max(toX(loss.to_ns), toX(loss.from_ns) + 2)),
});

// Draws a text if it begins after `free`. Returns where the next text may begin.
const drawLossText = (g, c, { text, from, to }, free) => {
	const top = layout.rows[0].height + 2;
	const end = layout.gutter + layout.width;
	g.font = `600 ${rem() * 0.85}px ${fontFamily()}`;
	g.textAlign = 'center';
	const half = g.measureText(text).width / 2 + 4;
	const middle = Math.max(layout.gutter + half, Math.min(end - half, (from + to) / 2));
	if (middle - half < free) return free;
	g.fillStyle = c.bg;
	g.fillRect(middle - half, top, 2 * half, rem() * 1.3);
	g.fillStyle = c.warn;
	g.fillText(text, middle, top + rem() * 0.65);
	return middle + half;
};

const drawLosses = (g, c) => {
	const top = layout.rows[0].height;
	const losses = state.data.capture.losses
		.filter((loss) => !loss.is_tick)
		.map((loss) => ({
			text: `${loss.count ? count(loss.count) : 'some'} lost`,
			...lossSpan(loss),
		}))
		.filter(({ from, to }) => from < to);
	for (const { from, to } of losses) {
		g.save();
		g.beginPath();
		g.rect(from, top, to - from, layout.height);
		g.clip();
		g.fillStyle = c.bg;
		g.globalAlpha = 0.55;
		g.fillRect(from, top, to - from, layout.height);
		g.globalAlpha = 1;
		g.strokeStyle = c.warn;
		for (let x = from - layout.height; x < to; x += 7) {
			g.beginPath();
			g.moveTo(x, layout.height);
			g.lineTo(x + layout.height, 0);
			g.stroke();
		}
		g.restore();
	}
	// above the hatches of all losses
	let free = layout.gutter;
	for (const loss of losses) free = drawLossText(g, c, loss, free);
};

const NAMES = [
	'bg',
	'line',
	'text',
	'muted',
	...laneColors,
	'mark',
	'heap',
	'heat0',
	'heat1',
	'heat2',
	'shade',
	'focus',
	'warn',
];
const colors = () => Object.fromEntries(NAMES.map((name) => [name, color(name)]));

const draw = {
	axis: drawAxis,
	heat: drawHeat,
	lane: drawLane,
	live: drawLine,
	counter: drawLine,
	mark: drawMark,
	log: drawLogs,
	more: () => {},
};

const drawBackground = (c) => {
	const key = [
		...view(),
		layout.rows.map((row) => row.kind + row.label).join(),
		layout.width,
		layout.height,
		document.documentElement.dataset.theme,
		state.thread,
		devicePixelRatio,
	].join();
	if (background.key === key) return;
	background.key = key;
	const g = sizeCanvas(background.canvas, layout.gutter + layout.width + 10, layout.height);
	g.fillStyle = c.bg;
	g.fillRect(0, 0, layout.gutter + layout.width + 10, layout.height);
	for (const row of layout.rows) draw[row.kind](g, row, c);
	drawLosses(g, c);
	drawBoundary(g, c);
};

// ---- parts that depend on the selection

const threadOf = ({ lanes, isRest }) => (lanes.length === 1 && !isRest ? lanes[0].index : null);

// Draws the cursor of the keyboard.
const drawCursor = (g, c) => {
	const row = layout.rows[Math.min(cursor.row, layout.rows.length - 1)];
	g.strokeStyle = c.focus;
	g.lineWidth = 2;
	g.strokeRect(1, row.y + 1, layout.gutter + layout.width + 8, row.height - 2);
	const x = cursor.at === null ? 0 : toX(cursor.at);
	if (x >= layout.gutter) g.strokeRect(x - 0.5, row.y, 1, row.height);
	g.lineWidth = 1;
};

const drawLabels = (g, c) => {
	const font = fontFamily();
	const R = rem();
	for (const row of layout.rows) {
		if (row.kind === 'axis') continue;
		g.font = `${R * 0.85}px ${font}`;
		const number = fit(g, numberOf(row), layout.gutter * 0.6);
		const middle = row.y + row.height / 2;
		g.textAlign = 'right';
		g.fillStyle = c.muted;
		g.fillText(number, layout.gutter - R * 0.6, middle);
		const left = R * (1 + (row.level || 0));
		const room = layout.gutter - R - left - g.measureText(number).width;
		const fold = row.isRest || row.process !== undefined ? (row.isOpen ? '▾ ' : '▸ ') : '';
		g.font = `${R * 0.92}px ${font}`;
		g.textAlign = 'left';
		g.fillStyle = c.text;
		g.fillText(fit(g, fold + row.label, room), left, middle);
		if (row.kind === 'lane' && state.thread !== null && state.thread === threadOf(row)) {
			g.strokeStyle = c.focus;
			g.lineWidth = 2;
			g.strokeRect(3, row.y + 1, layout.gutter - 7, row.height - 2);
			g.lineWidth = 1;
		}
	}
};

const drawBand = (g, [from, to], shade, name, c) => {
	const x0 = toX(from);
	const x1 = toX(to);
	const text = (name ? name + ' ' : '') + duration(to - from);
	g.save();
	g.beginPath();
	g.rect(layout.gutter - 2, 0, layout.width + 4, layout.height);
	g.clip();
	g.strokeStyle = shade;
	g.lineWidth = 2;
	g.strokeRect(x0, 1, Math.max(1, x1 - x0), layout.height - 2);
	g.restore();
	g.font = `600 ${rem() * 0.85}px ${fontFamily()}`;
	const width = g.measureText(text).width + 10;
	const x = Math.max(
		layout.gutter,
		Math.min(layout.gutter + layout.width - width, (x0 + x1) / 2 - width / 2),
	);
	g.fillStyle = shade;
	g.fillRect(x, 1, width, rem() * 1.35);
	g.fillStyle = c.bg;
	g.textAlign = 'left';
	g.fillText(text, x + 5, 1 + rem() * 0.7);
};

// Draws the names of both captures beside the boundary, in the row of the heat map, on a
// background.
const drawNames = (g, sides, c) => {
	const x = toX(sides[1].from_ns);
	const y = layout.rows[1].y + rem() * 0.8;
	g.font = `600 ${rem() * 0.85}px ${fontFamily()}`;
	for (const side of sides) {
		const text = `${sideName(side)} ${side.name}`;
		const width = g.measureText(text).width + 10;
		const left = side === sides[0] ? x - width - 4 : x + 4;
		if (left < layout.gutter || left + width > layout.gutter + layout.width) continue;
		g.fillStyle = c.bg;
		g.fillRect(left, y - rem() * 0.65, width, rem() * 1.3);
		g.fillStyle = c.text;
		g.textAlign = 'left';
		g.fillText(text, left + 5, y);
	}
};

export const drawTimeline = () => {
	makeRows();
	const c = colors();
	const canvas = byId('timeline-canvas');
	byId('timeline').style.maxHeight = Math.round(innerHeight * 0.42) + 'px';
	drawBackground(c);
	const width = layout.gutter + layout.width + 10;
	const g = sizeCanvas(canvas, width, layout.height);
	g.drawImage(background.canvas, 0, 0, width, layout.height);
	if (state.range && !state.base) {
		const x0 = Math.max(layout.gutter, toX(state.range[0]));
		const x1 = Math.min(width, Math.max(layout.gutter, toX(state.range[1])));
		g.fillStyle = c.shade;
		g.fillRect(layout.gutter, 0, x0 - layout.gutter, layout.height);
		g.fillRect(x1, 0, width - x1, layout.height);
	}
	drawLabels(g, c);
	const { compare } = state.data;
	if (state.base) drawBand(g, state.base, c.muted, compare ? '' : 'A', c);
	if (state.range) drawBand(g, state.range, c.focus, state.base && !compare ? 'B' : '', c);
	if (compare) drawNames(g, compare.sides, c);
	if (canvas.matches(':focus-visible')) drawCursor(g, c);
	const span = view()[1] - view()[0];
	byId('timeline').dataset.rows = JSON.stringify(layout.rows.map((row) => row.label));
	const sides = compare?.sides.map((side) => {
		return `${sideName(side)} ${side.name}, ${duration(side.to_ns - side.from_ns)}`;
	});
	byId('timeline-text').textContent =
		`Timeline of ${sides?.join(', then ') ?? duration(state.data.duration)}. ` +
		(state.range ? `Selected ${spanOf(state.range, span)}.` : 'Nothing is selected.') +
		(state.base ? ` Compared with ${spanOf(state.base, span)}.` : '');
	clearTimeout(twinTimer);
	twinTimer = setTimeout(drawTwin, REST_MS);
};

// The timeline's sums as a table, for users who cannot see the canvas.
let twinTimer = 0;
const drawTwin = () => {
	const [from, to] = range();
	const { data } = state;
	const rows = data.lanes.slice(0, 50).map((lane) => {
		const texts = data.hasSlices
			? stateTexts(laneSums(lane, from, to))
			: [numberOf({ kind: 'lane', lanes: [lane] })];
		return el(
			'tr',
			{},
			el('th', { scope: 'row' }, `${lane.name} ${lane.tid}`),
			KINDS.map((_, kind) => el('td', {}, texts[kind] ?? 'unknown')),
		);
	});
	fill(
		byId('timeline-table'),
		el(
			'caption',
			{},
			'Threads in the selected range' +
				(data.lanes.length > 50
					? `: the first 50 of ${count(data.lanes.length)}; CPU time of all: ` +
						wholeCommand('report', '--by', 'thread', '--limit', '0')
					: ''),
		),
		el(
			'tr',
			{},
			['Thread', 'Running', 'Ready', 'Waiting'].map((title) =>
				el('th', { scope: 'col' }, title),
			),
		),
		...rows,
	);
	drawBusiest();
	drawLines();
};

// The heat map as a table: the busiest of equal parts of the range.
const drawBusiest = () => {
	const { data } = state;
	const [from, to] = range();
	const parts = 50;
	const width = (to - from) / parts;
	const sums = partSums(data, { from, to, thread: state.thread }, parts);
	const busiest = Array.from(sums, (sum, i) => [sum, i])
		.filter(([sum]) => sum > 0)
		.sort((a, b) => b[0] - a[0] || a[1] - b[1])
		.slice(0, 10);
	fill(
		byId('busiest-table'),
		el('caption', {}, `The busiest of ${parts} equal parts of the range`),
		el(
			'tr',
			{},
			['From', 'To', data.capture.is_time ? cpuTitle(data) : 'Weight'].map((title) =>
				el('th', { scope: 'col' }, title),
			),
		),
		...busiest.map(([sum, i]) =>
			el(
				'tr',
				{},
				[
					timeOf(from + i * width, to - from),
					timeOf(from + (i + 1) * width, to - from),
					data.capture.is_time ? duration(sum) : count(sum),
				].map((text) => el('td', {}, text)),
			),
		),
	);
};

// Two tables: the numbers of counters, the heap and marks in the range, and the logs in the range.
const drawLines = () => {
	const { data } = state;
	const [from, to] = range();
	const rows = layout.rows.filter(
		({ kind }) => kind === 'counter' || kind === 'live' || kind === 'mark',
	);
	fill(
		byId('lines-table'),
		el('caption', {}, 'Counters and marks in the selected range'),
		...rows.map((row) =>
			el('tr', {}, el('th', { scope: 'row' }, row.label), el('td', {}, numberOf(row))),
		),
	);
	const logs = data.logs.filter((log) => log.time_ns >= from && log.time_ns < to);
	const shown = logs.slice(0, 50);
	fill(
		byId('logs-table'),
		el(
			'caption',
			{},
			'Logs in the selected range' +
				(shown.length < logs.length
					? `: the first ${shown.length} of ${count(logs.length)}; all: ` +
						wholeCommand('dump', '-t', 'log', '--limit', '0')
					: ''),
		),
		...shown.map((log) =>
			el(
				'tr',
				{},
				el('th', { scope: 'row' }, timeOf(log.time_ns, to - from)),
				el('td', {}, log.text || 'a log without text'),
			),
		),
	);
};
