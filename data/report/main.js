// SPDX-License-Identifier: BSD-2-Clause-Patent
// Connects the parts of the page: the sums, the panels and the keyboard.

import { load, sumOf } from './data.js';
import { aggregate, GROUPS, heapOf, matchingSum, stacksOf } from './profile.js';
import { byId, el, fill, note, originColor, paper, revealRow } from './dom.js';
import { bytes, count, duration, inOrder, percent, significant } from './format.js';
import {
	absence,
	canFilter,
	command,
	comparesAll,
	comparison,
	cpuTitle,
	FILTERS,
	filtersOf,
	fullName,
	onChange,
	onGrid,
	range,
	restore,
	setDefaults,
	spanOf,
	state,
	undo,
	update,
} from './state.js';
import { drawTimeline } from './timeline.js';
import {
	keepRange,
	listenTimeline,
	moveRange,
	scaleRange,
	showThreads,
	stepCursor,
	zoomLevel,
	zoomToRange,
} from './input.js';
import { flamePanel, layOut, showBox } from './flame.js';
import { butterfly, changesTable, functionsPanel, functionTable, listed } from './functions.js';
import { treePanel } from './tree.js';
import { waitingPanel } from './waiting.js';
import { memoryPanel } from './memory.js';
import { markCount, marksPanel } from './marks.js';
import { aboutPanel } from './about.js';
import { sourcePanel } from './source.js';

const TABS = {
	flame: 'Flame graph',
	functions: 'Functions',
	tree: 'Call tree',
	source: 'Source',
	waiting: 'Waiting',
	memory: 'Memory',
	marks: 'Marks',
	about: 'About',
};
const MEASURES = {
	cpu: { title: 'CPU time', color: 'run', missing: () => absence('cpu', 'Samples were') },
	wait: {
		title: 'Waiting',
		color: 'lock',
		missing: () => absence('wait', 'Where threads waited was', 'profctl record --off-cpu'),
	},
	alloc: {
		title: 'Allocated',
		color: 'heap',
		missing: () => absence('alloc', 'Allocations were', 'profctl record --memory'),
	},
	live: {
		title: 'Not freed',
		color: 'heap',
		missing: () => absence('alloc', 'Allocations were', 'profctl record --memory'),
	},
};
const KEYS = [
	['c w a l', 'measure: CPU time, waiting, allocated, not freed'],
	['g', 'flame graph: all, by process, by thread'],
	['/', 'search (a regular expression)'],
	['f x h', 'focus on stacks with the selected function, ignore these stacks, hide the function'],
	['n N', 'next and previous function that matches the search'],
	['i', 'callers first, or hottest functions first'],
	['← →', 'move the range (Shift: only its end)'],
	['+ −', 'wider and narrower range'],
	['b', 'compare with this range: then select another one; again: do not compare'],
	['[ ]', 'previous and next event of a row of the timeline, with its value or text'],
	['↑ ↓', 'the row, after Tab to the timeline; a box or a row of the panel'],
	['Enter', 'in the timeline: unfold a process, or show only a thread; else zoom or open'],
	['t', 'a row for each process or thread, or only for the busiest'],
	['z', 'zoom to the range, or show everything'],
	['y', 'copy the command that prints the same numbers'],
	['u Esc', 'back one step'],
	['?', 'these keys'],
];

const has = (measure) =>
	measure === 'cpu'
		? state.data.samples.rows > 0
		: measure === 'wait'
			? state.data.has_waits
			: state.data.allocations.rows > 0;

const formatTime = (value) => (state.data.capture.is_time ? duration(value) : count(value));
const formats = { cpu: formatTime, wait: duration, alloc: bytes, live: bytes };
const unitTitle = (measure) =>
	({ cpu: state.data.capture.is_time ? 'Time' : 'Weight', wait: 'Time' })[measure] || 'Bytes';
const EVENTS = { cpu: 'samples', wait: 'waits', alloc: 'blocks', live: 'blocks' };

// The measures of the panels that do not show every measure. The panel of marks shows none.
const TAB_MEASURES = {
	source: ['cpu'],
	waiting: ['wait'],
	memory: ['live', 'alloc'],
	marks: [],
};
// If the panel is limited to some measures, and the selected one is not among them or has no data,
// returns the first of them that has data, if any. Otherwise, returns the selected measure.
const shownMeasure = () => {
	const measures = (TAB_MEASURES[state.tab] || []).filter(has);
	return measures.includes(state.measure) ? state.measure : (measures[0] ?? state.measure);
};

// Returns the names of the functions of each filter, or null without a filter.
const filtersByName = () =>
	canFilter() && FILTERS.some((key) => state[key].length)
		? Object.fromEntries(FILTERS.map((key) => [key, new Set(state[key].map(fullName))]))
		: null;

// Changes a filter, and resets the state that refers to rows of the stacks, because these rows
// change.
const setFilter = (key, list) =>
	update({ [key]: list, zoom: null, unfolded: new Set(), open: new Set() });

const addFilter = (key) => {
	if (canFilter() && state.fn !== null) {
		if (!state[key].includes(state.fn)) setFilter(key, [...state[key], state.fn]);
		return;
	}
	byId('announcement').textContent = canFilter()
		? 'select a function first'
		: 'only for functions in samples and waits, on a page without frame filters';
};

// Computes what the panels show: the sums of the range and of the range to compare with, and the
// matches of the search.
const compute = (measure) => {
	const { data } = state;
	const format = formats[measure];
	const stacks = stacksOf(data, state.group, filtersByName());
	const [from, to] = range();
	const scope = { from, to: to === data.duration ? Infinity : to, thread: state.thread };
	const sums = aggregate(data, stacks, measure, scope);
	let base = null;
	let baseScale = 1;
	if (state.base) {
		base = aggregate(data, stacks, measure, {
			...scope,
			from: state.base[0],
			to: state.base[1],
		});
		// scale to the same duration; scale whole captures as `profcapture diff` does
		baseScale = comparesAll()
			? { cpu: data.compare.scale, wait: data.compare.wait_scale }[measure] || 1
			: (to - from) / (state.base[1] - state.base[0]);
		for (const key of ['self', 'total', 'fnSelf', 'fnTotal']) {
			base[key] = base[key].map((v) => v * baseScale);
		}
	}
	let matches = null;
	let invalid = false;
	if (state.search) {
		try {
			// search only shown names, because "alloc" is in the template arguments of most names
			const full = state.search.startsWith('full:');
			const pattern = new RegExp(full ? state.search.slice(5) : state.search, 'i');
			matches = Uint8Array.from(data.functions, (f) =>
				f.kind !== 'task' && pattern.test(full ? f.full || f.name : f.name) ? 1 : 0,
			);
		} catch {
			invalid = true;
		}
	}
	return {
		stacks,
		sums,
		base,
		baseScale,
		matches,
		invalid,
		functions: data.functions,
		format,
		formatTime,
		color: MEASURES[measure].color,
		unitTitle: unitTitle(measure),
		measure,
	};
};

const chip = (text, remove) =>
	el(
		'span',
		{ class: 'chip' },
		text,
		el('button', { type: 'button', 'aria-label': `remove ${text}`, onclick: remove }, '✕'),
	);
const choice = (label, entries, current, onclick) =>
	el(
		'span',
		{ class: 'choice', role: 'group', 'aria-label': label },
		entries.map(([key, title, disabled]) =>
			el(
				'button',
				{
					type: 'button',
					'aria-pressed': key === current ? 'true' : 'false',
					disabled: !!disabled,
					title: disabled || undefined,
					onclick: () => onclick(key),
				},
				title,
			),
		),
	);

// Returns the sum of the measure and the number of samples, waits or blocks; on the panel of marks,
// the number of marks.
const quantityOf = ({ sums, format, measure }) =>
	state.tab === 'marks'
		? state.data.marks.rows > 0 && [el('b', { id: 'sum' }, markCount()), ' marks']
		: [
				el('b', { id: 'sum' }, format(sums.sum)),
				el('span', {}, `in ${count(sums.events)} ${EVENTS[measure]}`),
			];

const drawScope = (shown) => {
	const { data } = state;
	const [from, to] = range();
	const span = to - from;
	const filters = filtersOf(data);
	fill(
		byId('scope'),
		choice(
			'Measure',
			Object.entries(MEASURES).map(([key, { title, missing }]) => [
				key,
				title,
				has(key) ? '' : missing().filter(Boolean).join(' '),
			]),
			state.tab === 'marks' ? null : shown.measure,
			setMeasure,
		),
		quantityOf(shown),
		filters ? el('span', { class: 'chip only' }, `only ${filters}`) : null,
		state.range && !state.base
			? chip(spanOf(state.range, span), () => update({ range: null }))
			: null,
		state.base ? chip(compared(shown, span), () => update({ base: null })) : null,
		data.compare && !comparesAll()
			? el(
					'button',
					{
						type: 'button',
						onclick: () => update({ ...comparison(), thread: null, zoom: null }),
					},
					'compare all',
				)
			: null,
		state.thread !== null
			? chip(`${data.threads[state.thread].name} ${data.threads[state.thread].tid}`, () =>
					update({ thread: null }),
				)
			: null,
		FILTERS.filter(canFilter).map((key) =>
			state[key].map((fn) =>
				chip(`${key} ${data.functions[fn].name}`, () =>
					setFilter(
						key,
						state[key].filter((other) => other !== fn),
					),
				),
			),
		),
		state.zoom ? chip('zoomed', () => update({ zoom: null })) : null,
		state.range
			? null
			: el(
					'span',
					{ class: 'muted' },
					`all ${duration(data.duration)}: drag in the timeline to select`,
				),
		el(
			'span',
			{ class: 'equal' },
			el('kbd', {}, 'y'),
			' copies ',
			el('code', { id: 'command' }, command()),
		),
	);
};

// Returns a text that says what is compared, and how.
const compared = ({ baseScale, measure }, span) => {
	const { compare } = state.data;
	if (comparesAll()) {
		return (
			`B ${compare.sides[1].name} against A ${compare.sides[0].name}, ` +
			(baseScale === 1 || compare.is_by_run
				? 'totals as they are'
				: `A scaled by ${significant(baseScale)}: shares of all ${EVENTS[measure]}`)
		);
	}
	const [b, a] = [state.range, state.base].map((part) => spanOf(part, span));
	return (
		(compare ? `${b} against ${a}` : `B ${b} against A ${a}`) +
		(baseScale !== 1 ? `, scaled to the length of ${compare ? 'the former' : 'B'}` : '')
	);
};

const drawTabs = () =>
	fill(
		byId('tabs'),
		...Object.entries(TABS).map(([key, title]) =>
			el(
				'button',
				{
					type: 'button',
					role: 'tab',
					id: `tab-${key}`,
					'aria-controls': 'panel',
					'aria-selected': key === state.tab ? 'true' : 'false',
					tabindex: key === state.tab ? 0 : -1,
					onclick: () => update({ tab: key }),
				},
				title,
			),
		),
		el(
			'span',
			{ class: 'tools' },
			state.tab === 'flame' || state.tab === 'tree'
				? choice(
						'Group',
						GROUPS.map((key) => [key, key === 'merged' ? 'all' : 'by ' + key]),
						state.group,
						(group) => update({ group, zoom: null }),
					)
				: null,
			state.tab === 'flame' || state.tab === 'tree'
				? choice(
						'Direction',
						[
							[false, 'callers first'],
							[true, 'hottest first'],
						],
						state.inverted,
						(inverted) => update({ inverted, zoom: null }),
					)
				: null,
			state.tab === 'flame' ? legend() : null,
		),
	);

// Returns a legend of the colors of boxes, without colors that the page does not use, which leaves
// room for the tabs.
const boxLegend = (data) => {
	data.colors ||= new Set(
		data.functions
			.filter((f) => f.kind !== 'task')
			.map((f) => originColor(f).replace(/\d/, '')),
	);
	return [
		['own', 'program'],
		['lib', 'libraries'],
		['kernel', 'kernel'],
		['jit', 'generated'],
		['none', 'no name'],
	]
		.filter(([name]) => data.colors.has(name))
		.map(([name, title]) => [name === 'lib' ? 'lib0' : name, title]);
};

const legend = () =>
	el(
		'span',
		{ class: 'legend' },
		(state.base
			? [
					['more', 'more in B'],
					['less', 'less'],
					['none', 'within noise'],
				]
			: boxLegend(state.data)
		).map(([name, title]) =>
			el(
				'span',
				{},
				el('span', { class: 'swatch', style: { background: `var(--${name})` } }),
				title,
			),
		),
		el('i', {}, 'inlined'),
	);

const panels = {
	flame: flamePanel,
	functions: functionsPanel,
	tree: treePanel,
	source: sourcePanel,
	waiting: waitingPanel,
	memory: memoryPanel,
	marks: marksPanel,
	about: aboutPanel,
};

const drawPanel = (shown) => {
	byId('panel').setAttribute('aria-labelledby', `tab-${state.tab}`);
	fill(byId('panel'), panels[state.tab](shown));
	document.documentElement.dataset.stacks = shown.stacks.n;
	const isWide =
		matchMedia('(min-width: 1700px)').matches &&
		(state.tab === 'flame' || state.tab === 'tree');
	byId('side').hidden = !isWide;
	fill(
		byId('side'),
		isWide &&
			(shown.base
				? changesTable(shown)
				: state.fn !== null
					? butterfly(shown)
					: functionTable(shown, { side: true })),
	);
};

const matchesText = ({ stacks, sums, matches, format }) => {
	const sum = matchingSum(stacks, sums, matches);
	return `${format(sum)}, ${percent(sum / sums.sum, sums.events)}`;
};

const drawSearch = (shown) => {
	const found = byId('found');
	if (byId('search').value !== state.search) byId('search').value = state.search;
	if (shown.invalid) found.textContent = 'not a regular expression';
	else found.textContent = shown.matches ? matchesText(shown) : '';
};

const setTheme = () =>
	(document.documentElement.dataset.theme =
		state.theme || (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light'));

// The result of compute() that the screen shows.
let drawn = null;

const render = () => {
	if (paper.isOn) return;
	const start = performance.now();
	const shown = (drawn = compute(shownMeasure()));
	const computed = performance.now();
	setTheme();
	drawTimeline();
	drawScope(shown);
	drawTabs();
	drawPanel(shown);
	drawSearch(shown);
	document.documentElement.dataset.computed = (computed - start).toFixed(1);
	document.documentElement.dataset.drawn = (performance.now() - start).toFixed(1);
};

// Gives the whole width to sentences that are longer than a column.
const fitVerdict = () => {
	const items = [...byId('verdict').children];
	for (const item of items) item.classList.remove('whole');
	const isCut = ({ lastChild: text }) => text.scrollWidth > text.clientWidth;
	for (const item of items.filter(isCut)) item.classList.add('whole');
};

// Each sentence is a link to its evidence.
const drawVerdict = () => {
	fill(
		byId('verdict'),
		state.data.verdict.map(({ figure, text, color, show: { compares, ...show } }) => {
			const changes = {
				range: null,
				base: null,
				thread: null,
				zoom: null,
				search: '',
				...show,
			};
			return el(
				'li',
				{},
				el('span', { class: 'swatch', style: { background: `var(--${color})` } }),
				el('b', {}, figure),
				el(
					'a',
					{
						href: '#',
						title: text,
						onclick: (event) => {
							event.preventDefault();
							update({
								...changes,
								range: changes.range && onGrid(changes.range),
								...(compares ? comparison() : {}),
							});
						},
					},
					text,
				),
			);
		}),
		state.data.quality.map((text) =>
			el(
				'li',
				{},
				el('span', { class: 'swatch', style: { background: 'var(--warn)' } }),
				el('b', {}, '!'),
				el('span', { title: text }, text),
			),
		),
	);
	fitVerdict();
};

const SHOWN_LOSSES = 8;

const drawHead = () => {
	const { capture, compare } = state.data;
	const lost = capture.losses.filter((loss) => !loss.is_tick);
	const filters = filtersOf(state.data);
	document.title = inOrder(capture.title + (filters ? ` · only ${filters}` : ''));
	fill(byId('title'), capture.title);
	fill(
		byId('meta'),
		[
			capture.summary,
			filters ? `only ${filters}` : '',
			lost.length || capture.state !== 'finished' ? '' : 'nothing lost',
		]
			.filter(Boolean)
			.join(' · '),
	);
	const said = lost.length
		? [
				...lost.slice(0, SHOWN_LOSSES).map((loss) => loss.text),
				lost.length > SHOWN_LOSSES
					? `${count(lost.length - SHOWN_LOSSES)} more losses: About.`
					: '',
				'Numbers of ranges that touch this are too low.',
			]
		: [];
	for (const { name, state: its } of compare ? compare.sides : [{ state: capture.state }]) {
		if (its !== 'finished') {
			said.unshift(`${name || 'The capture'} is ${its}: some of it may be missing.`);
		}
	}
	byId('loss').hidden = !said.length;
	fill(byId('loss'), said.join(' '));
};

const copyCommand = async () => {
	try {
		await navigator.clipboard.writeText(command());
		byId('announcement').textContent = 'copied';
	} catch {
		// a page from a disk may not use the clipboard: select the text instead
		const selection = getSelection();
		selection.selectAllChildren(byId('command'));
		byId('announcement').textContent = 'selected: press Ctrl+C';
	}
};

const showKeys = () => {
	const dialog = byId('keys');
	fill(
		dialog,
		el('h2', {}, 'Keys'),
		el(
			'dl',
			{},
			[[`1 … ${Object.keys(TABS).length}`, 'panel'], ...KEYS]
				.map(([key, text]) => [
					el(
						'dt',
						{},
						key.split(' ').map((k) => [el('kbd', {}, k), ' ']),
					),
					el('dd', {}, text),
				])
				.flat(),
		),
		el('form', { method: 'dialog' }, el('button', {}, 'Close')),
	);
	dialog.showModal();
};

const toggleTheme = () =>
	update(
		{ theme: document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark' },
		{ remember: false },
	);

// If the panel does not show the measure, opens the flame graph; if the measure was not recorded,
// opens the panel that says how to record it.
const setMeasure = (measure) => {
	const isShown = TAB_MEASURES[state.tab]?.includes(measure) ?? true;
	if (has(measure)) update({ measure, tab: isShown ? state.tab : 'flame', zoom: null });
	else if (measure !== 'cpu') update({ tab: measure === 'wait' ? 'waiting' : 'memory' });
};

// Selects the next or previous function that matches the search, in the order of their table.
const findNext = (direction) => {
	const functions = drawn.matches ? listed(drawn) : [];
	if (!functions.length) {
		byId('announcement').textContent = drawn.matches ? 'no match' : 'search first: /';
		return;
	}
	const at = functions.indexOf(state.fn);
	const first = direction > 0 ? 0 : functions.length - 1;
	const next = at < 0 ? first : (at + direction + functions.length) % functions.length;
	const fn = functions[next];
	update({ fn });
	if (state.tab === 'flame') showBox(fn);
	else if (state.tab === 'functions') revealRow('Functions', next);
	const total = drawn.format(drawn.sums.fnTotal[fn]);
	byId('announcement').textContent =
		`${next + 1} of ${functions.length}: ${drawn.functions[fn].name}, ${total}`;
};

const nextGroup = () => GROUPS[(GROUPS.indexOf(state.group) + 1) % GROUPS.length];

const ACTIONS = {
	c: () => setMeasure('cpu'),
	w: () => setMeasure('wait'),
	a: () => setMeasure('alloc'),
	l: () => setMeasure('live'),
	'/': () => byId('search').focus(),
	n: () => findNext(1),
	N: () => findNext(-1),
	f: () => addFilter('focus'),
	x: () => addFilter('ignore'),
	h: () => addFilter('hide'),
	i: () => update({ inverted: !state.inverted, zoom: null }),
	g: () => update({ group: nextGroup(), zoom: null }),
	ArrowLeft: ({ shiftKey }) => moveRange(-1, shiftKey),
	ArrowRight: ({ shiftKey }) => moveRange(1, shiftKey),
	'+': () => scaleRange(1.5),
	'=': () => scaleRange(1.5),
	'-': () => scaleRange(1 / 1.5),
	b: keepRange,
	'[': () => stepCursor(-1),
	']': () => stepCursor(1),
	t: showThreads,
	z: zoomToRange,
	y: () => copyCommand(),
	u: undo,
	Escape: undo,
	'?': () => showKeys(),
};

const onKey = (event) => {
	if (event.ctrlKey || event.metaKey || event.altKey || byId('keys').open) return;
	if (event.target.id === 'search') {
		if (event.key !== 'Escape' && event.key !== 'Enter') return;
		event.target.blur();
		event.preventDefault(); // Escape would clear the text
		return;
	}
	const tab = Object.keys(TABS)[Number(event.key) - 1];
	if (tab) update({ tab });
	else if (Object.hasOwn(ACTIONS, event.key)) ACTIONS[event.key](event);
	else return;
	event.preventDefault();
};

const listen = () => {
	let timer = 0;
	byId('search').addEventListener('input', (event) => {
		clearTimeout(timer);
		timer = setTimeout(() => update({ search: event.target.value }, { remember: false }), 120);
	});
	byId('theme').addEventListener('click', toggleTheme);
	byId('help').addEventListener('click', showKeys);
	document
		.querySelectorAll('#levels button')
		.forEach((button) =>
			button.addEventListener('click', () => zoomLevel(Number(button.dataset.level))),
		);
	byId('tabs').addEventListener('keydown', (event) => {
		const keys = Object.keys(TABS);
		const next = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
		if (!next || event.target.role !== 'tab') return;
		update({ tab: keys[(keys.indexOf(state.tab) + next + keys.length) % keys.length] });
		byId(`tab-${state.tab}`).focus();
		event.stopPropagation();
		event.preventDefault();
	});
	addEventListener('keydown', onKey);
	addEventListener('resize', render);
	addEventListener('resize', fitVerdict);
	matchMedia('(prefers-color-scheme: dark)').addEventListener('change', render);
	listenTimeline();
	// print all panels, one after the other
	let [theme, tab] = [null, null];
	addEventListener('beforeprint', () => {
		({ theme, tab } = state);
		state.theme = 'light';
		paper.isOn = true;
		setTheme();
		drawTimeline();
		fill(byId('panel'));
		fill(
			byId('paper'),
			Object.entries(TABS).map(([key, title]) => {
				state.tab = key;
				return el(
					'section',
					{},
					el('h1', {}, title),
					key === 'about' ? null : note(el('code', {}, command())),
					panels[key](compute(shownMeasure())),
				);
			}),
		);
		state.tab = tab;
		if (byId('flame')) layOut();
	});
	addEventListener('afterprint', () => {
		paper.isOn = false;
		state.theme = theme;
		fill(byId('paper'));
		render();
	});
};

// Shows the content of the header before the columns are read.
const paintHead = async (header) => {
	state.data = header;
	setTheme();
	drawHead();
	drawVerdict();
	await new Promise((painted) => requestAnimationFrame(() => setTimeout(painted, 0)));
	document.documentElement.dataset.painted = performance.now().toFixed(0);
};

const start = async () => {
	state.theme = /[#&]theme=(\w+)/.exec(location.hash)?.[1];
	state.data = await load(byId('data'), paintHead);
	const { data } = state;
	if (data.allocations.rows) data.live = heapOf(data);
	data.rss = sumOf(data.counters.filter((counter) => counter.is_rss));
	setDefaults({
		...(data.compare ? comparison() : {}),
		group: data.capture.is_system ? 'process' : 'merged',
		measure: has('cpu') || !has('alloc') ? 'cpu' : 'live',
		tab: has('cpu') || has('alloc') ? 'flame' : data.marks.rows ? 'marks' : 'about',
	});
	if (!data.sources) delete TABS.source;
	restore(location.hash, data);
	for (const key of ['range', 'base', 'view']) state[key] &&= onGrid(state[key]);
	if (!Object.hasOwn(TABS, state.tab)) state.tab = 'flame';
	MEASURES.cpu.title = cpuTitle(data);
	if (!Object.hasOwn(MEASURES, state.measure) || !has(state.measure)) {
		state.measure = has('cpu') || !has('alloc') ? 'cpu' : 'live';
	}
	if (!GROUPS.includes(state.group)) state.group = 'merged';
	onChange(render);
	listen();
	render();
	document.documentElement.dataset.ready = performance.now().toFixed(0);
};

start().catch((error) => {
	fill(
		byId('panel'),
		el(
			'p',
			{ class: 'empty' },
			`This page cannot be shown: ${error.message}. It needs a browser from 2023 or later.`,
		),
	);
	document.documentElement.dataset.failed = error.message;
	throw error;
});
