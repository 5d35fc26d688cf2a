// SPDX-License-Identifier: BSD-2-Clause-Patent
// The selection of the user. The page changes it with update(), which remembers the previous
// selection for undo(), and stores the new one in the fragment of the address, so that a link to
// the page reproduces it.

import { moment, shellWord } from './format.js';

export const state = {
	data: null,
	tab: 'flame',
	measure: 'cpu',
	group: 'merged',
	range: null, // [from, to) in ns; null: everything
	base: null, // the range to compare with
	view: null, // the part of the time axis that is shown
	thread: null,
	allThreads: false, // each process, or each thread of the only process, has its own row
	toggledProcesses: new Set(), // processes that the user unfolded or folded in the timeline
	fn: null,
	zoom: null, // the ids of the branches on the path to the zoomed box
	inverted: false,
	focus: [], // only stacks with one of these functions count
	ignore: [], // only stacks without these functions
	hide: [], // these functions are removed from stacks
	sort: 'self',
	search: '',
	mark: null,
	line: null, // the selected source line: { fn, index }
	unfolded: new Set(), // boxes of the flame graph that the user unfolded
	open: new Set(), // branches of the call tree that the user opened or closed
	openPath: new Set(), // branches of the critical path that the user opened or closed
};

// Returns the title of the time that samples represent.
export const cpuTitle = (data) =>
	({ 'off-cpu': 'Waiting time', wall: 'Wall time' })[data.capture.metric] || 'CPU time';

// The filters that the user adds are options of `profcapture report`. The commands on memory, and
// panels without stacks, do not have these filters.
export const FILTERS = ['focus', 'ignore', 'hide'];
export const canFilter = () =>
	['flame', 'functions', 'tree'].includes(state.tab) &&
	['cpu', 'wait'].includes(state.measure) &&
	!state.data.filters.frames;
export const fullName = (fn) => {
	const { full, name } = state.data.functions[fn];
	return full || name;
};

// Parts of the page that need a pass over all samples are filled in when the selection has not
// changed for this time, which is longer than the time between two mouse moves of a drag.
export const REST_MS = 200;

const KEPT = [
	'tab',
	'measure',
	'group',
	'range',
	'base',
	'view',
	'thread',
	'fn',
	'inverted',
	'focus',
	'ignore',
	'hide',
	'sort',
	'search',
	'mark',
];
const past = [];
let redraw = () => {};
export const onChange = (draw) => (redraw = draw);

const toText = (key) => (Array.isArray(state[key]) ? state[key].join('-') : String(state[key]));
const store = (defaults) => {
	const parts = KEPT.filter((key) => toText(key) !== defaults[key]).map(
		(key) => `${key}=${encodeURIComponent(toText(key))}`,
	);
	if (state.theme) parts.push(`theme=${state.theme}`);
	try {
		history.replaceState(null, '', '#' + parts.join('&'));
	} catch {
		/* a page inside another page may not change its address */
	}
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

// Returns the index that a text names, or `before` if the list has no such index.
const indexIn = (list, text, before) =>
	/^\d+$/.test(text) && Number(text) < list.length ? Number(text) : before;

const indicesIn = (list, text) =>
	text
		.split('-')
		.map((part) => indexIn(list, part, -1))
		.filter((index) => index >= 0);

const decode = (text) => {
	try {
		return decodeURIComponent(text);
	} catch {
		// a link may be cut
		return '';
	}
};

// Reads the fragment; invalid values are ignored.
export const restore = (fragment, data) => {
	for (const part of fragment.replace(/^#/, '').split('&')) {
		const [key, text = ''] = part.split('=').map(decode);
		if (key === 'range' || key === 'base' || key === 'view') state[key] = numbers(text);
		else if (key === 'thread') state.thread = indexIn(data.threads, text, state.thread);
		else if (key === 'fn') state.fn = indexIn(data.functions, text, state.fn);
		else if (key === 'mark') state.mark = indexIn(data.mark_names, text, state.mark);
		else if (FILTERS.includes(key)) state[key] = indicesIn(data.functions, text);
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

// Limits the range to the time range of the page's data, and extends it to the grid, on which all
// sums are exact. Returns null if nothing is left.
export const onGrid = ([from, to]) => {
	const { duration, grid_ns: grid } = state.data;
	const [first, last] = madeOf([0, duration]);
	const low = Math.floor(Math.max(first, from) / grid + 1e-9) * grid;
	const high = Math.min(duration, Math.ceil(Math.min(last, to) / grid - 1e-9) * grid);
	return low < high ? [low, high] : null;
};

// Returns a sentence that says why a panel is empty.
export const nothingHere = () => {
	const thread = state.thread !== null && state.data.threads[state.thread];
	return (
		{ cpu: 'No samples', wait: 'No waits', alloc: 'No allocations', live: 'No unfreed memory' }[
			state.measure
		] +
		(thread ? ` of ${thread.name} ${thread.tid}` : '') +
		(state.range ? ' in this range.' : '.')
	);
};

// Returns the set with `member` added, or removed if it was there.
export const toggled = (set, member) => {
	const changed = new Set(set);
	if (!changed.delete(member)) changed.add(member);
	return changed;
};

export const range = () => state.range || [0, state.data.duration];
// Returns the range as limits for sums: events at the very end of the capture count, too.
export const countedRange = () => {
	const [from, to] = range();
	return { from, to: to === state.data.duration ? Infinity : to };
};
export const view = () => state.view || [0, state.data.duration];

// With two captures, each has its own time; the later one follows the earlier one on the axis.
const sideAt = (ns) => {
	const sides = state.data.compare?.sides;
	return sides && sides[ns < sides[1].from_ns ? 0 : 1];
};
export const sideName = (side) => (side === state.data.compare.sides[0] ? 'A' : 'B');
export const timeOf = (ns, span) =>
	(state.data.compare ? `${sideName(sideAt(ns))} ` : '') +
	moment(ns - (sideAt(ns)?.from_ns || 0), span);
export const spanOf = ([from, to], span) => {
	const start = sideAt(from)?.from_ns || 0;
	const ends = sideAt(to - 1)?.from_ns || 0;
	const end = start === ends ? moment(to - start, span) : timeOf(to, span);
	return `${timeOf(from, span)} – ${end}`;
};

const wholeOf = (side) => onGrid([side.from_ns, side.to_ns]);
const isSame = (a, b) => a && b && a[0] === b[0] && a[1] === b[1];
// Returns whether the whole captures are compared with each other.
export const comparesAll = () => {
	const sides = state.data.compare?.sides;
	return (
		!!sides && isSame(state.base, wholeOf(sides[0])) && isSame(state.range, wholeOf(sides[1]))
	);
};
export const comparison = () => ({
	base: wholeOf(state.data.compare.sides[0]),
	range: wholeOf(state.data.compare.sides[1]),
});

const sideOf = (thread) => state.data.compare.sides[state.data.threads[thread].is_later ? 1 : 0];

// Returns the changes that select or deselect a thread. A thread is in one capture, so selecting it
// ends the comparison of two captures.
export const threadChanges = (thread) => {
	if (state.thread === thread) return { thread: null };
	const side = state.data.compare && sideOf(thread);
	return side ? { thread, base: null, range: wholeOf(side) } : { thread };
};

// ---- what the page was made of

const seconds = (ns) => `${+(ns / 1e9).toFixed(9)}s`;

// Returns the options that limited the data of the page, or ''.
export const filtersOf = ({ filters, capture }) =>
	[
		...new Set(
			filters.ranges.map(([from, to]) =>
				[
					from === null ? '' : `--from ${seconds(from)}`,
					to === null ? '' : `--to ${seconds(to)}`,
				]
					.filter(Boolean)
					.join(' '),
			),
		),
		filters.threads,
		filters.tids,
		filters.samples,
		capture.metric ? `--metric ${capture.metric}` : '',
		filters.frames,
		filters.interpreter,
	]
		.filter(Boolean)
		.join(' ');

// Returns the part of [from, to) in the time range of the page's data. Only the states of threads
// cover the whole recording.
export const madeOf = ([from, to]) => {
	const [low, high] = state.data.compare ? [null, null] : state.data.filters.ranges[0];
	return [Math.max(from, low ?? from), Math.min(to, high ?? to)];
};

// Returns a sentence that says why the page lacks some kind of data and, if that kind was not
// recorded, the command that records it.
export const absence = (kind, what, command) => {
	const { data } = state;
	const filters = filtersOf(data);
	if (!data.recorded[kind]) return [`${what} not recorded.`, command];
	return [
		filters
			? `${what} recorded, but left out by ${filters}.`
			: `${what} recorded, but none could be read.`,
	];
};

// ---- the command

// Returns the function whose source is shown first: the hottest one of the program.
export const firstSource = ({ sources, functions }) => {
	const own = sources.functions.find(({ fn }) => functions[fn].origin === 'own');
	return (own ?? sources.functions[0]).fn;
};

// Returns the verb that prints the numbers of the panel, and the options and filters of the verb.
const verbOf = () => {
	const { data, tab, fn } = state;
	const { filters, capture } = data;
	const waits = state.measure === 'wait';
	const name = fn === null ? '' : shellWord(fullName(fn));
	const samples = { frames: true, metric: waits ? 'off-cpu' : capture.metric };
	if (tab === 'marks') return { verb: 'marks', words: [] };
	if (tab === 'memory') return { verb: 'memory', words: [] };
	if (tab === 'source' && data.sources.functions.length) {
		return {
			verb: 'annotate',
			words: [shellWord(fullName(fn ?? firstSource(data)))],
			metric: capture.metric,
			samples: true,
		};
	}
	if (tab === 'waiting' && !capture.metric && !filters.samples && !filters.frames) {
		return { verb: 'report', words: ['--by', 'state'], isCut: true };
	}
	if (!waits && state.measure !== 'cpu') {
		return {
			verb: 'memory',
			words: state.measure === 'live' ? ['--leaks'] : [],
			interpreter: true,
		};
	}
	if (tab === 'tree') {
		return { verb: 'report', words: [state.inverted ? '--inverted' : '--tree'], ...samples };
	}
	return {
		verb: 'report',
		words: tab === 'functions' && name ? ['--callers', name] : [],
		...samples,
	};
};

const filterOptions = () =>
	FILTERS.filter((key) => canFilter() && state[key].length).map((key) => {
		const names = state[key].map((fn) => fullName(fn).replace(/[\\^$.*+?()[\]{}|]/g, '\\$&'));
		return `--${key} ${shellWord(`^(${names.join('|')})$`)}`;
	});

// Returns the command that runs a verb on each capture of the page, without the selection.
export const wholeCommand = (verb, ...words) =>
	(state.data.compare?.sides || [state.data.capture])
		.map(({ file_word: file }) => ['profcapture', verb, file, ...words].join(' '))
		.join(' && ');

const commandOf = (file, [from, end], whole, limits, spec = verbOf()) => {
	const { data } = state;
	const { filters } = data;
	const { verb, words, metric, frames, isCut, anyThread, ...takes } = spec;
	const options = metric ? ['--metric', metric] : [];
	const to = metric === 'off-cpu' || isCut ? end : end - 1;
	const low = whole ? limits[0] : Math.max(from, limits[0] ?? 0);
	const high = whole ? limits[1] : Math.min(to, limits[1] ?? Infinity);
	if (low !== null) options.push('--from', `${(low / 1e9).toFixed(9)}s`);
	if (high !== null) options.push('--to', `${(high / 1e9).toFixed(9)}s`);
	options.push(
		filters.threads,
		state.thread === null || anyThread
			? filters.tids
			: `--tid ${data.threads[state.thread].tid}`,
	);
	if (frames || takes.samples) options.push(filters.samples);
	if (frames) options.push(filters.frames, ...filterOptions());
	if (frames || takes.interpreter) options.push(filters.interpreter);
	return ['profcapture', verb, file, ...words, ...options]
		.filter((word) => word !== '')
		.join(' ');
};

// Returns the command that prints the critical path of the range.
export const pathCommand = () => {
	const { capture, filters } = state.data;
	const spec = { verb: 'critical-path', words: [], isCut: true, anyThread: true };
	return commandOf(capture.file_word, range(), !state.range, filters.ranges[0], spec);
};

// Returns the commands that print the page's numbers. As in the page, a range excludes its end, and
// waits are cut at the end.
export const command = () => {
	const { data } = state;
	const sides = data.compare?.sides;
	const { ranges, threads, tids, samples, frames, interpreter } = data.filters;
	if (!sides) return commandOf(data.capture.file_word, range(), !state.range, ranges[0]);
	if (
		comparesAll() &&
		state.thread === null &&
		state.measure !== 'live' &&
		!ranges.flat().some((limit) => limit !== null)
	) {
		return [
			'profcapture diff',
			...(state.measure === 'alloc'
				? ['--memory']
				: state.measure === 'wait'
					? ['--metric', 'off-cpu']
					: []),
			...sides.map((side) => side.file_word),
			threads,
			tids,
			samples,
			frames,
			...filterOptions(),
			interpreter,
		]
			.filter(Boolean)
			.join(' ');
	}
	return [state.base, range()]
		.filter(Boolean)
		.flatMap(([from, to]) =>
			sides.map((side) => {
				const whole = wholeOf(side);
				const part = [Math.max(from, whole[0]), Math.min(to, whole[1])];
				return part[0] < part[1] && (state.thread === null || sideOf(state.thread) === side)
					? commandOf(
							side.file_word,
							part.map((ns) => ns - side.from_ns),
							isSame(part, whole),
							ranges[sides.indexOf(side)],
						)
					: '';
			}),
		)
		.filter(Boolean)
		.join(' && ');
};
