// SPDX-License-Identifier: BSD-2-Clause-Patent
// What the user selected. Every change goes through update(), which remembers it for undo() and
// stores it in the fragment of the address, so that a link shows a finding.

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
	unfolded: new Set(), // boxes and branches that the user opened or closed
	open: new Set(),
};

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

// Reads the fragment; values that make no sense are ignored.
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

// `keep`: in the address, too. Browsers refuse many changes of the address in a short time.
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

// Returns the range on the grid on which all sums are exact; null if nothing is left of it.
export const onGrid = ([from, to]) => {
	const { duration, grid_ns: grid } = state.data;
	const low = Math.max(0, Math.floor(from / grid + 1e-9) * grid), high = Math.min(duration, Math.ceil(to / grid - 1e-9) * grid);
	return low < high ? [low, high] : null;
};

export const range = () => state.range || [0, state.data.duration];
export const view = () => state.view || [0, state.data.duration];

// The command that prints the same numbers. A range ends before its end, as in the page.
export const command = () => {
	const { data } = state, memory = state.measure !== 'cpu';
	const words = ['profcapture', memory ? 'memory' : 'report', data.capture.file_word];
	if (memory && state.measure === 'live') words.push('--leaks');
	if (!memory && state.tab === 'tree') words.push(state.inverted ? '--inverted' : '--tree');
	if (state.range) words.push('--from', `${(state.range[0] / 1e9).toFixed(9)}s`, '--to', `${((state.range[1] - 1) / 1e9).toFixed(9)}s`);
	if (state.thread !== null) words.push('--tid', data.threads[state.thread].tid);
	return words.join(' ');
};
