// SPDX-License-Identifier: BSD-2-Clause-Patent
// Input of the timeline: ranges, zoom, and the tips of its rows, by mouse and by keyboard. The
// keyboard has a cursor, which is a row and a time.

import { lowerBound } from './data.js';
import { eachWait, laneSums, partSums } from './profile.js';
import { byId, hideTip, showTip } from './dom.js';
import { bytes, count, duration } from './format.js';
import { onGrid, state, threadChanges, timeOf, toggled, undo, update, view } from './state.js';
import { amount, layout, numberOf, rowAt, toTime, toX } from './rows.js';
import { cellAt, cellOf, cursor, drawTimeline } from './timeline.js';

const ordered = (a, b) => (a < b ? [a, b] : [b, a]);

// ---- tips

const laneLines = (row, at, width) => {
	const sums = [0, 0, 0];
	const [from, to] = [at - 2 * width, at + 2 * width];
	for (const lane of row.lanes) {
		laneSums(lane, from, to).forEach((v, kind) => (sums[kind] += v));
	}
	const all = sums.reduce((sum, v) => sum + v, 0);
	const parts = ['running', 'ready', 'waiting'].map((name, kind) => {
		return sums[kind] ? `${name} ${Math.round((sums[kind] / all) * 100)}\u00a0%` : '';
	});
	const waits = sums[2] && row.lanes.length === 1 ? longestWait(row.lanes[0], from, to) : [];
	return [parts.filter(Boolean).join(', '), ...waits];
};

// Returns an array with a text about the stack in which a lane waited longest in [from, to). The
// array is empty without waits.
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

const heatLines = (at) => {
	const { data, thread } = state;
	const { from, to } = cellOf(at);
	// samples at the very end of the capture count, too
	const [sum] = partSums(data, { from, to: to + (to > data.duration - 1), thread }, 1);
	return [data.capture.is_time ? `${duration(sum)} in ${duration(to - from)}` : count(sum)];
};

const lineLines = (row, at) => {
	const { times, values, end_ns: end } = row.kind === 'live' ? state.data.live : row.counter;
	const value = values[lowerBound(times, at + 1) - 1];
	if (value === undefined) return ['no value yet'];
	if (at > end) return ['the process has ended'];
	return [row.kind === 'live' ? bytes(value) : amount(row.counter, value)];
};

// maximum number of marks of a name that are checked to find the marks open at the cursor
const MOST_BEFORE = 1000;

const markLines = (row, at, width) => {
	const { data } = state;
	const { time, length, thread } = data.marks;
	const unit = data.mark_unit_ns;
	const lines = [];
	for (const name of row.names) {
		const list = data.marksOf[name];
		let i = lowerBound(list, lowerBound(time, (at + width) / unit, data.marks.rows));
		for (const least = Math.max(0, i - MOST_BEFORE); i > least && lines.length < 5; ) {
			const mark = list[--i];
			if (time[mark] * unit + length[mark] < at - width) continue;
			const { name: whose, tid } = data.threads[thread[mark]];
			const took = length[mark] ? duration(length[mark]) : 'an instant';
			lines.push(`${data.mark_names[name].name} of ${whose} ${tid}: ${took}`);
		}
	}
	return lines;
};

const logLines = (row, at, width) => {
	const far = (log) => Math.abs(log.time_ns - at);
	return state.data.logs
		.filter((log) => far(log) < 6 * width)
		.sort((a, b) => far(a) - far(b))
		.slice(0, 5)
		.map((log) => log.text || 'a log without text');
};

const lines = {
	axis: () => [],
	heat: (row, at) => heatLines(at),
	lane: laneLines,
	live: lineLines,
	counter: lineLines,
	mark: markLines,
	log: logLines,
	more: () => [],
};

const tipOf = (row, at) => {
	const width = (view()[1] - view()[0]) / layout.width;
	const time = timeOf(at, view()[1] - view()[0]);
	return [row.label, time, ...lines[row.kind](row, at, width)].filter(Boolean);
};

const describe = (event, canvas) => {
	const box = canvas.getBoundingClientRect();
	const x = event.clientX - box.left;
	const row = rowAt(event.clientY - box.top);
	if (!row || x < layout.gutter) return hideTip();
	const cell = row.kind === 'heat' && cellAt(x, event.clientY - box.top);
	return showTip(event, tipOf(row, cell ? (cell.from + cell.to) / 2 : toTime(x)));
};

// ---- ranges

export const moveRange = (direction, edge) => {
	const [from, to] = state.range || view();
	const step = Math.max(1, (to - from) / 10) * direction;
	if (edge) return update({ range: onGrid([from, Math.max(from + 1, to + step)]) });
	const shift = Math.max(-from, Math.min(state.data.duration - to, step));
	return update({ range: onGrid([from + shift, to + shift]) });
};

// Makes the range the one to compare with, and selects an equally long range after it or, if there
// is no room, before it. If there is a range to compare with already, removes that range instead.
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

// Shows the part 1 / `level` of the capture around the middle of the range.
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

// ---- rows

// Does what a click on the name of a row does.
const activate = (row) => {
	if (row?.isRest) return showThreads();
	if (row?.process !== undefined) {
		return update({ toggledProcesses: toggled(state.toggledProcesses, row.process) });
	}
	if (row?.kind === 'lane') {
		return update({ ...threadChanges(row.lanes[0].index), zoom: null });
	}
	if (row?.kind === 'mark') return update({ tab: 'marks', mark: row.names[0] });
	if (row?.kind === 'live') return update({ tab: 'memory' });
	return undefined;
};

// ---- the cursor

// Shows the tip at the cursor, and announces it to users who cannot see it.
const showCursor = () => {
	const canvas = byId('timeline-canvas');
	cursor.row = Math.max(0, Math.min(layout.rows.length - 1, cursor.row));
	const row = layout.rows[cursor.row];
	const [from, to] = view();
	cursor.at ??= state.range ? state.range[0] : from;
	if (cursor.at < from || cursor.at >= to) {
		const begin = Math.max(
			0,
			Math.min(state.data.duration - (to - from), cursor.at - (to - from) / 2),
		);
		update({ view: [begin, begin + to - from] }, { remember: false });
	}
	const box = byId('timeline');
	if (row.y < box.scrollTop) box.scrollTop = row.y;
	box.scrollTop = Math.max(box.scrollTop, row.y + row.height - box.clientHeight);
	drawTimeline();
	const area = canvas.getBoundingClientRect();
	const at = { clientX: area.left + toX(cursor.at), clientY: area.top + row.y + row.height / 2 };
	const said = tipOf(row, cursor.at);
	showTip(at, said);
	byId('announcement').textContent = [...said, numberOf(row)].filter(Boolean).join('. ');
};

// Returns the times of a row at which something begins or changes, in order.
const eventsOf = (row) => {
	const { data } = state;
	if (row.kind === 'live') return data.live.times;
	if (row.kind === 'counter') return row.counter.times;
	if (row.kind === 'log') return data.logs.map((log) => log.time_ns);
	if (row.kind === 'lane' && row.lanes.length === 1) return row.lanes[0].from;
	if (row.kind !== 'mark') return [];
	const begin = (i) => data.marks.time[i] * data.mark_unit_ns;
	return row.names.flatMap((name) => Array.from(data.marksOf[name], begin)).sort((a, b) => a - b);
};

// Moves the cursor to the next or the previous event of its row; in a row without events, by a
// hundredth of the view.
export const stepCursor = (direction) => {
	byId('timeline-canvas').focus();
	const row = layout.rows[Math.min(cursor.row, layout.rows.length - 1)];
	const [from, to] = view();
	const now = cursor.at ?? (direction > 0 ? from - 1 : to);
	const times = eventsOf(row);
	const next = direction > 0 ? lowerBound(times, now + 1) : lowerBound(times, now) - 1;
	const step = ((to - from) / 100) * direction;
	cursor.at = Math.max(
		0,
		Math.min(state.data.duration - 1, times.length ? (times[next] ?? now) : now + step),
	);
	showCursor();
};

const onKey = (event) => {
	const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
	if (step) cursor.row += step;
	else if (event.key === 'Enter' || event.key === ' ') activate(layout.rows[cursor.row]);
	else return;
	showCursor();
	event.preventDefault();
	event.stopPropagation();
};

export const listenTimeline = () => {
	const canvas = byId('timeline-canvas');
	let drag = null;
	canvas.addEventListener('keydown', onKey);
	canvas.addEventListener('focus', drawTimeline);
	canvas.addEventListener('blur', () => {
		hideTip();
		drawTimeline();
	});
	canvas.addEventListener('pointerdown', (event) => {
		const x = event.clientX - canvas.getBoundingClientRect().left;
		const y = event.clientY - canvas.getBoundingClientRect().top;
		if (x < layout.gutter) {
			activate(rowAt(y));
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
	canvas.addEventListener('dblclick', (event) => {
		if (event.clientX - canvas.getBoundingClientRect().left < layout.gutter) return;
		// each of the two clicks has removed the range
		undo();
		undo();
		zoomToRange();
	});
};
