// SPDX-License-Identifier: BSD-2-Clause-Patent
// The timeline: one time axis for activity, threads, memory, counters, marks and logs. Dragging
// selects the range that all panels count. What does not depend on the selection is drawn once
// into a separate canvas; a drag only draws the selection over it.

import { lowerBound, KINDS } from './data.js';
import { eachWait, laneSums, partSums, pausesOf, threadWeights } from './profile.js';
import { byId, color, el, fill, fontFamily, hideTip, rem, showTip, sizeCanvas } from './dom.js';
import { bytes, count, duration, significant, tickStep } from './format.js';
import {
	cpuTitle,
	madeOf,
	onGrid,
	REST_MS,
	range,
	sideName,
	spanOf,
	state,
	threadChanges,
	timeOf,
	update,
	view,
} from './state.js';

const layout = { rows: [], gutter: 0, width: 0, height: 0 };
const MOST_MARK_ROWS = 12;
const MOST_LANES = 500; // a canvas has a largest height
const background = { canvas: document.createElement('canvas'), key: '' };

const toX = (ns) => layout.gutter + ((ns - view()[0]) / (view()[1] - view()[0])) * layout.width;
const toTime = (x) => {
	const [from, to] = view();
	return from + Math.max(0, Math.min(1, (x - layout.gutter) / layout.width)) * (to - from);
};

const lanesShown = (data) => {
	const most = state.allThreads ? MOST_LANES : innerHeight > 1000 ? 10 : 7;
	const busy = data.lanes.filter((lane) => lane.sums[0] > 0 || lane.n > 0);
	return busy.length > most ? [busy.slice(0, most - 1), busy.slice(most - 1)] : [busy, []];
};

const countersShown = (data) => {
	const most = innerHeight > 1000 ? 12 : 8;
	const shown = data.counters.filter((counter) => !(data.live && counter === data.rss));
	return shown.slice(0, shown.length > most ? most - 1 : most);
};

const counterLabel = (data, { group, name, pid }) => {
	const of =
		new Set(data.counters.map((counter) => counter.pid)).size > 1 &&
		data.processes.find((process) => process.pid === pid);
	return `${pid ? '' : group || ''} ${name || 'counter'} ${of ? of.name : ''}`.trim();
};

const makeRows = () => {
	const { data } = state;
	const R = rem();
	const big = innerHeight > 1000;
	const laneHeight = Math.round(R * (big ? 1.6 : 1.3));
	const lineHeight = Math.round(R * (big ? 2.6 : 2));
	const rows = [
		{ kind: 'axis', height: Math.round(R * 1.6) },
		{ kind: 'heat', height: Math.round(R * 3) },
	];
	const [lanes, rest] = lanesShown(data);
	const named = new Map();
	for (const lane of lanes) named.set(lane.name, (named.get(lane.name) || 0) + 1);
	for (const lane of lanes) {
		rows.push({
			kind: 'lane',
			height: laneHeight,
			lanes: [lane],
			label:
				(data.compare ? (lane.is_later ? 'B ' : 'A ') : '') +
				(named.get(lane.name) > 1 ? `${lane.name} ${lane.tid}` : lane.name),
		});
	}
	if (rest.length) {
		rows.push({
			kind: 'lane',
			height: laneHeight,
			lanes: rest,
			label: `+ ${count(rest.length)} threads`,
		});
	}
	if (data.live) {
		rows.push({
			kind: 'live',
			height: lineHeight,
			label: data.rss ? 'Heap, RSS ┄' : 'Live heap',
		});
	}
	const counters = countersShown(data);
	const hidden = data.counters.length - counters.length - (data.live && data.rss ? 1 : 0);
	for (const counter of counters) {
		rows.push({
			kind: 'counter',
			height: lineHeight,
			counter,
			label: counterLabel(data, counter),
		});
	}
	if (hidden) {
		rows.push({
			kind: 'more',
			height: laneHeight,
			label: `+ ${count(hidden)} counters: profcapture counters`,
		});
	}
	const names = data.mark_names.map((mark, index) => index);
	if (names.length > MOST_MARK_ROWS) {
		names.sort((a, b) => data.marksOf[b].length - data.marksOf[a].length || a - b);
	}
	const markHeight = Math.round(R * 1.1);
	const others = names.splice(
		names.length > MOST_MARK_ROWS ? MOST_MARK_ROWS - 1 : MOST_MARK_ROWS,
	);
	for (const index of names) {
		rows.push({
			kind: 'mark',
			height: markHeight,
			names: [index],
			label: data.mark_names[index].name || 'mark',
		});
	}
	if (others.length) {
		rows.push({
			kind: 'mark',
			height: markHeight,
			names: others,
			label: `+ ${count(others.length)} marks`,
		});
	}
	if (data.logs.length) rows.push({ kind: 'log', height: Math.round(R * 1.2), label: 'Logs' });
	let y = 0;
	for (const row of rows) {
		row.y = y;
		y += row.height;
	}
	layout.rows = rows;
	layout.height = y + 4;
	layout.gutter = Math.round(R * 13.5);
	layout.width = Math.max(50, document.body.clientWidth - layout.gutter - 10);
};

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
	return { cell, columns, parts };
};

// A column is a part of the time; its cells, from the top down, are parts of the column's time.
const drawHeat = (g, row, c) => {
	const { data } = state;
	const s = data.samples;
	const [from, to] = view();
	const { cell, columns, parts } = heatCells();
	const bins = new Float64Array(columns * parts);
	const width = (to - from) / bins.length;
	const unit = data.sample_unit_ns;
	const begin = lowerBound(s.time, Math.floor(from / unit), s.rows);
	const end = lowerBound(s.time, Math.ceil(to / unit), s.rows);
	for (let i = begin; i < end; i++) {
		if (state.thread !== null && s.thread[i] !== state.thread) continue;
		const bin = Math.floor((s.time[i] * unit - from) / width);
		if (bin >= 0 && bin < bins.length) bins[bin] += s.weight[i];
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
			g.fillRect(layout.gutter + x * cell, row.y + 1 + k * cell, cell - 0.5, cell - 0.5);
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
	const kinds = row.lanes.length > 1 ? [0] : [...laneColors.keys()];
	for (let x = 0; x < n; x++) {
		let y = row.y + 1 + height;
		shares[IDLE][x] -= shares[LOCK][x] + shares[IO][x];
		for (const kind of kinds) {
			const part = Math.min(1, shares[kind][x] / most) * height;
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
	const { times, values } = live ? data.live : row.counter;
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
	g.lineTo(toX(data.duration), last);
	g.strokeStyle = shade;
	g.lineWidth = 1;
	g.stroke();
	g.lineTo(toX(data.duration), y(low));
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

// How much of each pixel's time is inside of a mark, as opacity.
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

const drawLogs = (g, row, c) => {
	let free = layout.gutter;
	g.fillStyle = c.warn;
	g.textAlign = 'left';
	g.font = `${rem() * 0.85}px ${fontFamily()}`;
	for (const log of state.data.logs) {
		const x = toX(log.time_ns);
		if (x < layout.gutter || x > layout.gutter + layout.width) continue;
		g.beginPath();
		g.moveTo(x, row.y + 2);
		g.lineTo(x + 4, row.y + row.height - 4);
		g.lineTo(x - 4, row.y + row.height - 4);
		g.fill();
		const text = (log.text || '').slice(0, 60);
		const width = g.measureText(text).width;
		if (x + 8 < free || x + 8 + width > layout.gutter + layout.width) continue;
		g.fillText(text, x + 8, row.y + row.height / 2);
		free = x + 16 + width;
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
					(t / 1e9).toFixed(digits) + (t === 0 ? ' s' : ''),
					t === 0 && start > 0 ? x + 5 : x,
					row.height / 2,
				);
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

const drawLosses = (g, c) => {
	const top = layout.rows[0].height;
	for (const loss of state.data.capture.losses) {
		if (loss.is_tick) continue;
		const from = Math.max(layout.gutter, toX(loss.from_ns));
		const to = Math.min(
			layout.gutter + layout.width,
			Math.max(toX(loss.to_ns), toX(loss.from_ns) + 2),
		);
		if (to <= from) continue;
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
		const text = `${loss.count ? count(loss.count) : 'some'} lost`;
		g.font = `600 ${rem() * 0.85}px ${fontFamily()}`;
		g.textAlign = 'center';
		const width = g.measureText(text).width + 8;
		const middle = Math.max(
			layout.gutter + width / 2,
			Math.min(layout.gutter + layout.width - width / 2, (from + to) / 2),
		);
		g.fillStyle = c.bg;
		g.fillRect(middle - width / 2, top + 2, width, rem() * 1.3);
		g.fillStyle = c.warn;
		g.fillText(text, middle, top + 2 + rem() * 0.65);
	}
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
		state.allThreads,
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

// ---- what depends on the selection

const rangeOf = (times, from, to) => [lowerBound(times, from), lowerBound(times, to)];

// Returns the text beside a row: its number in the range.
const numberOf = (row) => {
	const { data } = state;
	const [from, to] = range();
	if (row.kind === 'heat') {
		if (!data.capture.is_time || data.capture.metric) return '';
		const [low, high] = madeOf([from, to]);
		const sum = data.lanes.reduce((all, lane) => all + laneRun(lane), 0);
		return `${significant(sum / (high - low))} of ${data.capture.cpus} CPUs`;
	}
	if (row.kind === 'lane') {
		return duration(row.lanes.reduce((all, lane) => all + laneRun(lane), 0));
	}
	if (row.kind === 'live' || row.kind === 'counter') {
		const { times, values } = row.kind === 'live' ? data.live : row.counter;
		const [begin, end] = rangeOf(times, from, to);
		const part = Array.prototype.slice.call(
			values,
			Math.max(0, begin - 1),
			Math.max(begin, end),
		);
		if (!part.length) return '–';
		const most = Math.max(...part);
		return 'max ' + (row.kind === 'live' ? bytes(most) : amount(row.counter, most));
	}
	if (row.kind === 'mark') {
		const { time } = data.marks;
		const unit = data.mark_unit_ns;
		const first = Math.ceil(from / unit);
		const before = to === data.duration ? Infinity : Math.ceil(to / unit);
		let n = 0;
		for (const name of row.names) {
			for (const i of data.marksOf[name]) if (time[i] >= first && time[i] < before) n++;
		}
		return (
			(row.names.some((name) => data.marksOf[name].length < data.mark_names[name].count)
				? '≥ '
				: '') +
			count(n) +
			'\u200a×'
		);
	}
	if (row.kind === 'log') {
		return count(data.logs.filter((log) => log.time_ns >= from && log.time_ns < to).length);
	}
	return '';
};

const significantOrCount = (x) => (Number.isInteger(x) ? count(x) : significant(x));
const amount = ({ unit }, x) =>
	/^bytes/.test(unit || '')
		? bytes(x) + unit.slice(5)
		: `${significantOrCount(x)} ${unit || ''}`.trim();

// Returns how long the lane's thread ran in the range.
let weights = { of: null, sums: null };
const laneRun = (lane) => {
	const { data } = state;
	if (data.hasSlices) return laneSums(lane, ...madeOf(range()))[0];
	if (!state.range) return lane.sums[0];
	if (weights.of !== state.range) {
		weights = { of: state.range, sums: threadWeights(data, ...state.range) };
	}
	return weights.sums[lane.index];
};

const drawLabels = (g, c) => {
	const font = fontFamily();
	const R = rem();
	for (const row of layout.rows) {
		if (row.kind === 'axis') continue;
		const number = numberOf(row);
		const middle = row.y + row.height / 2;
		g.font = `${R * 0.85}px ${font}`;
		g.textAlign = 'right';
		g.fillStyle = c.muted;
		g.fillText(number, layout.gutter - R * 0.6, middle);
		const room = layout.gutter - R * 2 - g.measureText(number).width;
		const letters = [...(row.kind === 'heat' ? 'Activity' : row.label).slice(0, 60)];
		const all = letters.length;
		const label = () => letters.join('') + (letters.length < all ? '…' : '');
		g.font = `${R * 0.92}px ${font}`;
		g.textAlign = 'left';
		g.fillStyle = c.text;
		while (letters.length > 1 && g.measureText(label()).width > room) letters.pop();
		g.fillText(label(), R, middle);
		if (row.kind === 'lane' && row.lanes.length === 1 && state.thread === row.lanes[0].index) {
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
	const span = view()[1] - view()[0];
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

// The same numbers as a table, for users who cannot see the canvas.
let twinTimer = 0;
const drawTwin = () => {
	const [from, to] = range();
	const { data } = state;
	const rows = data.lanes.slice(0, 50).map((lane) => {
		const sums = data.hasSlices ? laneSums(lane, from, to) : [laneRun(lane)];
		return el(
			'tr',
			{},
			el('th', { scope: 'row' }, `${lane.name} ${lane.tid}`),
			KINDS.map((_, kind) =>
				el('td', {}, sums[kind] === undefined ? 'unknown' : duration(sums[kind])),
			),
		);
	});
	fill(
		byId('timeline-table'),
		el(
			'caption',
			{},
			'Threads in the selected range' +
				(data.lanes.length > 50 ? `: the first 50 of ${count(data.lanes.length)}` : ''),
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

// What the tips say of counters, the heap and logs.
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
					? `: the first ${shown.length} of ${count(logs.length)}`
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

// ---- input

const rowAt = (y) => layout.rows.find((row) => y >= row.y && y < row.y + row.height);
const ordered = (a, b) => (a < b ? [a, b] : [b, a]);

const describe = (event, canvas) => {
	const box = canvas.getBoundingClientRect();
	const x = event.clientX - box.left;
	const row = rowAt(event.clientY - box.top);
	if (!row || x < layout.gutter) return hideTip();
	const at = toTime(x);
	const width = (view()[1] - view()[0]) / layout.width;
	const lines = [timeOf(at, view()[1] - view()[0])];
	if (row.kind === 'lane') {
		const sums = [0, 0, 0];
		const from = at - 2 * width;
		const to = at + 2 * width;
		for (const lane of row.lanes) {
			laneSums(lane, from, to).forEach((v, kind) => (sums[kind] += v));
		}
		const all = sums.reduce((p, v) => p + v, 0);
		const names = ['running', 'ready', 'waiting'];
		lines.unshift(row.label);
		if (all > 0) {
			lines.push(
				names
					.map((name, kind) =>
						sums[kind] ? `${name} ${Math.round((sums[kind] / all) * 100)} %` : '',
					)
					.filter(Boolean)
					.join(', '),
			);
		}
		if (sums[2] && row.lanes.length === 1) lines.push(...longestWait(row.lanes[0], from, to));
	} else if (row.kind === 'counter' || row.kind === 'live') {
		const { times, values } = row.kind === 'live' ? state.data.live : row.counter;
		const value = values[lowerBound(times, at) - 1];
		lines.unshift(row.label);
		if (value !== undefined) {
			lines.push(row.kind === 'live' ? bytes(value) : amount(row.counter, value));
		}
	} else if (row.kind === 'mark') {
		lines.unshift(row.label);
	} else if (row.kind === 'log') {
		const near = state.data.logs
			.filter((log) => Math.abs(log.time_ns - at) < 6 * width)
			.slice(0, 5);
		lines.push(...near.map((log) => log.text || 'a log without text'));
	}
	showTip(event, lines);
};

// Returns an array with a text on what a lane waited for longest in [from, to), or an empty one.
const longestWait = (lane, from, to) => {
	const { data } = state;
	const sums = new Map();
	if (!data.has_waits) return [];
	eachWait(data, lane, from, to, (stack, begin, end) =>
		sums.set(stack, (sums.get(stack) || 0) + end - begin),
	);
	const [stack] = [...sums].reduce((most, entry) => (entry[1] > most[1] ? entry : most), [0, 0]);
	const call = data.wait_calls[data.stacks.cause[stack] - 1];
	const owner = data.stacks.owner[stack];
	const where = owner >= 0 ? ` in ${data.functions[owner].name}` : '';
	return stack ? [`for ${call?.call || call?.cause || 'an unknown cause'}${where}`] : [];
};

export const moveRange = (direction, edge) => {
	const [from, to] = state.range || view();
	const step = Math.max(1, (to - from) / 10) * direction;
	if (edge) return update({ range: onGrid([from, Math.max(from + 1, to + step)]) });
	const shift = Math.max(-from, Math.min(state.data.duration - to, step));
	return update({ range: onGrid([from + shift, to + shift]) });
};

// The range becomes the one to compare with, and the time after it, or before it, is selected.
export const keepRange = () => {
	if (state.base) return update({ base: null });
	const [from, to] = state.range || view();
	const length = to - from;
	const start = to + length <= state.data.duration ? to : Math.max(0, from - length);
	return update({ base: [from, to], range: onGrid([start, start + length]) });
};

export const showThreads = () => update({ allThreads: !state.allThreads });

export const scaleRange = (factor) => {
	const [from, to] = state.range || view();
	const middle = (from + to) / 2;
	const half = ((to - from) / 2) * factor;
	update({ range: onGrid([middle - half, middle + half]) });
};

// Buttons for three zoom levels around the middle of the range, and for the range itself.
export const zoomLevel = (level) => {
	const end = state.data.duration;
	if (level === 1) return update({ view: null });
	const [from, to] = state.range || view();
	const middle = (from + to) / 2;
	const half = end / level / 2;
	const low = Math.max(0, Math.min(end - 2 * half, middle - half));
	return update({ view: [low, low + 2 * half] });
};

export const zoomToRange = () => update(state.view ? { view: null } : { view: state.range });

export const listenTimeline = () => {
	const canvas = byId('timeline-canvas');
	let drag = null;
	canvas.addEventListener('pointerdown', (event) => {
		const x = event.clientX - canvas.getBoundingClientRect().left;
		const y = event.clientY - canvas.getBoundingClientRect().top;
		if (x < layout.gutter) {
			const row = rowAt(y);
			if (row?.kind === 'lane' && row.lanes.length > 1) showThreads();
			if (row?.kind === 'lane' && row.lanes.length === 1) {
				update({ ...threadChanges(row.lanes[0].index), zoom: null });
			}
			if (row?.kind === 'mark') update({ tab: 'marks', mark: row.names[0] });
			return;
		}
		drag = {
			from: toTime(x),
			x,
			which: event.ctrlKey || event.metaKey ? 'base' : 'range',
			before: { range: state.range, base: state.base },
		};
		canvas.setPointerCapture(event.pointerId);
	});
	canvas.addEventListener('pointermove', (event) => {
		if (!drag) return describe(event, canvas);
		const x = event.clientX - canvas.getBoundingClientRect().left;
		if (Math.abs(x - drag.x) < 3) return undefined;
		const selected = onGrid(ordered(drag.from, toTime(x)));
		drag.moved = true;
		return update(
			{
				[drag.which]: selected,
				...(drag.which === 'base' && !state.range ? { range: view().slice() } : {}),
			},
			{ remember: false, keep: false },
		);
	});
	canvas.addEventListener('pointerup', () => {
		if (!drag) return;
		const now = { range: state.range, base: state.base };
		const { moved, before } = drag;
		drag = null;
		Object.assign(state, before);
		update(moved ? now : { range: null, base: null });
	});
	canvas.addEventListener('pointerleave', hideTip);
	canvas.addEventListener('dblclick', zoomToRange);
};
