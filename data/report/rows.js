// SPDX-License-Identifier: BSD-2-Clause-Patent
// The rows of the timeline: which rows it has, where they are, and their numbers in the range.

import { lowerBound } from './data.js';
import { laneSums, threadWeights } from './profile.js';
import { rem } from './dom.js';
import { bytes, count, duration, significant } from './format.js';
import { madeOf, range, state, view } from './state.js';

export const layout = { rows: [], gutter: 0, width: 0, height: 0 };
const MOST_MARK_ROWS = 12;
const MOST_LANES = 500; // because a canvas has a maximum height

export const toX = (ns) =>
	layout.gutter + ((ns - view()[0]) / (view()[1] - view()[0])) * layout.width;
export const toTime = (x) => {
	const [from, to] = view();
	return from + Math.max(0, Math.min(1, (x - layout.gutter) / layout.width)) * (to - from);
};

const counterLabel = (data, { group, name, pid, comm }) => {
	const several = new Set(data.counters.map((counter) => counter.pid)).size > 1;
	const of = pid && several ? `${comm || ''} ${pid}` : '';
	return `${pid ? '' : group || ''} ${name || 'counter'} ${of}`.trim();
};

const runOf = (lanes) => lanes.reduce((sum, lane) => sum + lane.sums[0], 0);

// Returns the lanes that did something, by process; the process with the most CPU time first.
const processesOf = (data) => {
	const processes = new Map();
	for (const lane of data.lanes) {
		if (!(lane.sums[0] > 0) && lane.n === 0) continue;
		const lanes = processes.get(lane.process);
		if (lanes) lanes.push(lane);
		else processes.set(lane.process, [lane]);
	}
	return [...processes].sort((a, b) => runOf(b[1]) - runOf(a[1]) || a[0] - b[0]);
};

const sideOf = (data, lane) => (data.compare ? (lane.is_later ? 'B ' : 'A ') : '');

// Returns a row for each thread. If several threads have the same name, their labels have the tid.
const threadRows = (data, lanes, level = 0) => {
	if (!data.namesakes) {
		data.namesakes = new Map();
		for (const { name } of data.lanes) {
			data.namesakes.set(name, (data.namesakes.get(name) || 0) + 1);
		}
	}
	return lanes.map((lane) => {
		const name = data.namesakes.get(lane.name) > 1 ? `${lane.name} ${lane.tid}` : lane.name;
		return { lanes: [lane], label: sideOf(data, lane) + name, level };
	});
};

// Returns the rows of processes: a process with several threads has a row with their sum, below
// which the threads unfold. Unfolds as many processes as fit; the user can fold and unfold each.
const processRows = (data, processes, most) => {
	let room = most - processes.length;
	return processes.map(([process, lanes]) => {
		if (lanes.length === 1) return threadRows(data, lanes);
		const fits = lanes.length <= room;
		const isOpen = fits !== state.toggledProcesses.has(process);
		if (fits) room -= lanes.length;
		const label = sideOf(data, lanes[0]) + data.processes[process].name;
		const sum = { lanes, label, process, isOpen };
		return isOpen ? [sum, ...threadRows(data, lanes, 1)] : [sum];
	});
};

// Returns the rows of processes and threads; the last row is the sum of all that have no row. If
// all processes but the first used hardly any time, threads need no rows with sums of processes.
const laneRows = (data) => {
	const few = innerHeight > 1000 ? 10 : 7;
	const processes = processesOf(data);
	const all = processes.flatMap(([, lanes]) => lanes);
	const others = processes.slice(1).reduce((sum, [, lanes]) => sum + runOf(lanes), 0);
	const isOnly = others <= 0.01 * data.duration;
	const blocks = isOnly
		? threadRows(data, all).map((row) => [row])
		: processRows(data, processes, few);
	const most = state.allThreads ? MOST_LANES : few;
	const shown = blocks.length > most ? most - 1 : blocks.length;
	const rows = blocks.slice(0, shown).flat().slice(0, MOST_LANES);
	const known = new Set(rows.flatMap((row) => row.lanes));
	const rest = all.filter((lane) => !known.has(lane));
	if (rest.length) {
		rows.push({ lanes: rest, label: `+ ${count(rest.length)} threads`, isRest: true });
	} else if (state.allThreads && blocks.length > few) {
		rows.push({ lanes: [], label: 'only the busiest', isRest: true });
	}
	return rows.map((row) => ({ kind: 'lane', ...row }));
};

const markRows = (data) => {
	const names = data.mark_names.map((mark, index) => index);
	if (names.length > MOST_MARK_ROWS) {
		names.sort((a, b) => data.marksOf[b].length - data.marksOf[a].length || a - b);
	}
	const most = names.length > MOST_MARK_ROWS ? MOST_MARK_ROWS - 1 : MOST_MARK_ROWS;
	const others = names.splice(most);
	const rows = names.map((index) => ({
		kind: 'mark',
		names: [index],
		label: data.mark_names[index].name || 'mark',
	}));
	if (others.length) {
		rows.push({ kind: 'mark', names: others, label: `+ ${count(others.length)} marks` });
	}
	return rows;
};

// Returns whether a counter is the memory usage of a process, which profd records for each process.
const isUsage = ({ group, name }) => group === 'memory' && ['rss', 'pss'].includes(name);

const heapRow = (data) => ({ kind: 'live', label: data.rss ? 'Heap, RSS ┄' : 'Live heap' });

const counterRows = (data, counters) => {
	const rows = [];
	const most = innerHeight > 1000 ? 12 : 8;
	const shown = counters.slice(0, counters.length > most ? most - 1 : most);
	for (const counter of shown) {
		rows.push({ kind: 'counter', counter, label: counterLabel(data, counter) });
	}
	const hidden = counters.length - shown.length;
	if (hidden) {
		rows.push({ kind: 'more', label: `+ ${count(hidden)} counters: profcapture counters` });
	}
	return rows;
};

// Heights in rem, in a low and in a high window.
const HEIGHTS = {
	axis: [1.6, 1.6],
	heat: [3, 3],
	lane: [1.3, 1.6],
	live: [2, 2.6],
	counter: [2, 2.6],
	more: [1.3, 1.6],
	mark: [1.1, 1.1],
	log: [1.2, 1.2],
};

export const makeRows = () => {
	const { data } = state;
	const size = rem();
	const counters = data.counters.filter((counter) => !(data.live && counter === data.rss));
	// The memory of processes comes last, because many processes would leave no room for the rest.
	const rows = [
		{ kind: 'axis', label: 'Time' },
		{ kind: 'heat', label: 'Activity' },
		...laneRows(data),
		...(data.live ? [heapRow(data)] : []),
		...counterRows(
			data,
			counters.filter((counter) => !isUsage(counter)),
		),
		...markRows(data),
		...(data.logs.length ? [{ kind: 'log', label: 'Logs' }] : []),
		...counterRows(data, counters.filter(isUsage)),
	];
	let y = 0;
	for (const row of rows) {
		row.y = y;
		row.height = Math.round(size * HEIGHTS[row.kind][innerHeight > 1000 ? 1 : 0]);
		y += row.height;
	}
	layout.rows = rows;
	layout.height = y + 4;
	layout.gutter = Math.round(size * (innerWidth < 1700 ? 13.5 : 18));
	layout.width = Math.max(50, document.body.clientWidth - layout.gutter - 10);
};

export const rowAt = (y) => layout.rows.find((row) => y >= row.y && y < row.y + row.height);

const rangeOf = (times, from, to) => [lowerBound(times, from), lowerBound(times, to)];

// Returns the text beside a row: its number in the range.
export const numberOf = (row) => {
	const { data } = state;
	const [from, to] = range();
	if (row.kind === 'heat') {
		if (!data.capture.is_time || data.capture.metric) return '';
		const [low, high] = madeOf([from, to]);
		const sum = data.lanes.reduce((all, lane) => all + laneRun(lane), 0);
		const { cpus } = data.capture; // 0: unknown
		return `${significant(sum / (high - low))}${cpus ? ` of ${cpus}` : ''} CPUs`;
	}
	if (row.kind === 'lane') {
		// samples of another event, or of waits, do not show how long a thread ran
		if (!data.hasSlices && (!data.capture.is_time || data.capture.metric)) return 'unknown';
		return duration(row.lanes.reduce((all, lane) => all + laneRun(lane), 0));
	}
	if (row.kind === 'live' || row.kind === 'counter') {
		const { times, values, end_ns: ended } = row.kind === 'live' ? data.live : row.counter;
		if (from > ended) return '–';
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
export const amount = ({ unit }, x) =>
	/^bytes/.test(unit || '')
		? bytes(x) + unit.slice(5)
		: `${significantOrCount(x)} ${unit || ''}`.trim();

// Returns the times that a thread ran, was ready and waited, as texts. If wake-ups were not
// recorded, a thread that was woken counts as waiting until it runs.
export const stateTexts = ([run, ready, wait]) => {
	const { has_wakeups: isExact } = state.data;
	return [
		duration(run),
		isExact ? duration(ready) : ready ? `≥ ${duration(ready)}` : 'unknown',
		(isExact || !wait ? '' : '≤ ') + duration(wait),
	];
};

let weights = { of: null, sums: null };
// Returns how long the lane's thread ran in the range.
export const laneRun = (lane) => {
	const { data } = state;
	if (data.hasSlices) return laneSums(lane, ...madeOf(range()))[0];
	if (!state.range) return lane.sums[0];
	if (weights.of !== state.range) {
		weights = { of: state.range, sums: threadWeights(data, ...state.range) };
	}
	return weights.sums[lane.index];
};
