// SPDX-License-Identifier: BSD-2-Clause-Patent
// What the user selected. Every change goes through update(), which remembers it for undo() and
// stores it in the fragment of the address, so that a link shows a finding.

import { moment } from './format.js';

export const state = {
	data: null,
	tab: 'flame',
	measure: 'cpu',
	group: 'merged',
	range: null, // [from, to) in ns; null: everything
	base: null, // the range to compare with
	view: null, // the part of the time axis that is shown
	thread: null,
	fn: null,
	zoom: null, // the path of functions to the zoomed box
	inverted: false,
	sort: 'self',
	search: '',
	mark: null,
	line: null, // the selected source line: { fn, index }
	unfolded: new Set(), // boxes and branches that the user opened or closed
	open: new Set(),
	openPath: new Set(), // branches of the critical path that the user opened or closed
};

// Returns the title of the time that samples represent.
export const cpuTitle = (data) => ({ 'off-cpu': 'Waiting time', wall: 'Wall time' })[data.capture.metric] || 'CPU time';

// Fill in what needs a pass over all samples when the selection has not changed for this time, which
// is longer than the time between two mouse moves of a drag.
export const REST_MS = 200;

const KEPT = ['tab', 'measure', 'group', 'range', 'base', 'view', 'thread', 'fn', 'inverted', 'sort', 'search', 'mark'];
const past = [];
let redraw = () => {};
export const onChange = (draw) => (redraw = draw);

const toText = (key) => (Array.isArray(state[key]) ? state[key].join('-') : String(state[key]));
const store = (defaults) => {
	const parts = KEPT.filter((key) => toText(key) !== defaults[key]).map((key) => `${key}=${encodeURIComponent(toText(key))}`);
	if (state.theme) parts.push(`theme=${state.theme}`);
	try {
		history.replaceState(null, '', '#' + parts.join('&'));
	} catch { /* a page inside another may not change its address */ }
};

let defaults = {};
export const setDefaults = (changes) => {
	Object.assign(state, changes);
	defaults = Object.fromEntries(KEPT.map((key) => [key, toText(key)]));
};

const numbers = (text) => {
	const pair = text.split('-').map(Number);
	return pair.length === 2 && pair.every(Number.isFinite) && pair[0] < pair[1] ? pair : null;
};

// Reads the fragment; ignores invalid values.
export const restore = (fragment, data) => {
	for (const part of fragment.replace(/^#/, '').split('&')) {
		const [key, text] = part.split('=').map(decodeURIComponent);
		if (key === 'range' || key === 'base' || key === 'view') state[key] = numbers(text);
		else if (key === 'thread' && data.threads[text]) state.thread = Number(text);
		else if (key === 'fn' && data.functions[text]) state.fn = Number(text);
		else if (key === 'mark' && data.mark_names[text]) state.mark = Number(text);
		else if (key === 'inverted') state.inverted = text === 'true';
		else if (key === 'theme') state.theme = text === 'dark' ? 'dark' : 'light';
		else if (['tab', 'measure', 'group', 'sort', 'search'].includes(key)) state[key] = text;
	}
};

// `keep`: also change the address. Browsers refuse many changes of the address in a short time.
export const update = (changes, { remember = true, keep = true } = {}) => {
	if (remember) {
		past.push({ ...state, unfolded: new Set(state.unfolded), open: new Set(state.open) });
		if (past.length > 200) past.shift();
	}
	Object.assign(state, changes);
	if (keep) store(defaults);
	redraw();
};

export const undo = () => {
	if (!past.length) return;
	Object.assign(state, past.pop());
	store(defaults);
	redraw();
};

// Shrinks the range to the grid, on which all sums are exact. Returns null if nothing is left.
export const onGrid = ([from, to]) => {
	const { duration, grid_ns: grid } = state.data;
	const low = Math.max(0, Math.floor(from / grid + 1e-9) * grid), high = Math.min(duration, Math.ceil(to / grid - 1e-9) * grid);
	return low < high ? [low, high] : null;
};

// Says why a panel is empty.
export const nothingHere = () => {
	const thread = state.thread !== null && state.data.threads[state.thread];
	return { cpu: 'No samples', wait: 'No waits', alloc: 'No allocations', live: 'No unfreed memory' }[state.measure] + (thread ? ` of ${thread.name} ${thread.tid}` : '') + (state.range ? ' in this range.' : '.');
};

export const range = () => state.range || [0, state.data.duration];
export const view = () => state.view || [0, state.data.duration];

// With two captures, each has its own time; the later one follows the earlier one on the axis.
const sideAt = (ns) => {
	const sides = state.data.compare?.sides;
	return sides && sides[ns < sides[1].from_ns ? 0 : 1];
};
export const sideName = (side) => (side === state.data.compare.sides[0] ? 'A' : 'B');
export const timeOf = (ns, span) => (state.data.compare ? `${sideName(sideAt(ns))} ` : '') + moment(ns - (sideAt(ns)?.from_ns || 0), span);
export const spanOf = ([from, to], span) => {
	const start = sideAt(from)?.from_ns || 0, ends = sideAt(to - 1)?.from_ns || 0;
	return `${timeOf(from, span)} – ${start === ends ? moment(to - start, span) : timeOf(to, span)}`;
};

const wholeOf = (side) => onGrid([side.from_ns, side.to_ns]);
const isSame = (a, b) => a && b && a[0] === b[0] && a[1] === b[1];
// Returns whether the whole captures are compared with each other.
export const comparesAll = () => {
	const sides = state.data.compare?.sides;
	return !!sides && isSame(state.base, wholeOf(sides[0])) && isSame(state.range, wholeOf(sides[1]));
};
export const comparison = () => ({ base: wholeOf(state.data.compare.sides[0]), range: wholeOf(state.data.compare.sides[1]) });

const sideOf = (thread) => state.data.compare.sides[state.data.threads[thread].is_later ? 1 : 0];

// A thread is in one capture, so there is nothing to compare.
export const threadChanges = (thread) => {
	if (state.thread === thread) return { thread: null };
	const side = state.data.compare && sideOf(thread);
	return side ? { thread, base: null, range: wholeOf(side) } : { thread };
};

const commandOf = (file, range, whole) => {
	const { data } = state, waits = state.measure === 'wait', memory = !waits && state.measure !== 'cpu';
	const words = ['profcapture', memory ? 'memory' : 'report', file];
	if (memory && state.measure === 'live') words.push('--leaks');
	if (waits) words.push('--metric', 'off-cpu');
	else if (!memory && data.capture.metric) words.push('--metric', data.capture.metric);
	if (!memory && state.tab === 'tree') words.push(state.inverted ? '--inverted' : '--tree');
	if (!whole) words.push('--from', `${(range[0] / 1e9).toFixed(9)}s`, '--to', `${((range[1] - (waits ? 0 : 1)) / 1e9).toFixed(9)}s`);
	if (state.thread !== null) words.push('--tid', data.threads[state.thread].tid);
	return words.join(' ');
};

// Returns the commands that print the same numbers. The end of a range is excluded, as in the page;
// a wait is cut there.
export const command = () => {
	const { data } = state, sides = data.compare?.sides;
	if (!sides) return commandOf(data.capture.file_word, state.range, !state.range);
	if (comparesAll() && state.thread === null && state.measure !== 'live')
		return ['profcapture diff', ...(state.measure === 'alloc' ? ['--memory'] : state.measure === 'wait' ? ['--metric', 'off-cpu'] : []), ...sides.map((side) => side.file_word)].join(' ');
	return [state.base, range()].filter(Boolean).flatMap(([from, to]) => sides.map((side) => {
		const whole = wholeOf(side), part = [Math.max(from, whole[0]), Math.min(to, whole[1])];
		return part[0] < part[1] && (state.thread === null || sideOf(state.thread) === side) ? commandOf(side.file_word, part.map((ns) => ns - side.from_ns), isSame(part, whole)) : '';
	})).filter(Boolean).join(' && ');
};
