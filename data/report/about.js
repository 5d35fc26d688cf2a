// SPDX-License-Identifier: BSD-2-Clause-Patent
// The facts about the recording that the page shows.

import { el, note } from './dom.js';
import { bytes, count, duration } from './format.js';
import { filtersOf, state } from './state.js';

const stacks = {
	auto: 'stacks as well as the machine allows',
	dwarf: 'stacks by call frame information',
	fp: 'stacks by frame pointers',
	none: 'no stacks',
};

const items = (list) => [list].flat().join(', ');
const choice = (yes, no) => (value) => (value ? yes : no);

// Texts for options of the recorder (docs/dbus.md); others are shown by name.
const OPTIONS = {
	system: choice('the whole system', ''),
	pids: (pids, { children }) =>
		`process ${items(pids)}${children === false ? '' : ' and its children'}`,
	children: () => '',
	events: (events) => `event ${items(events)}`,
	frequency: (hertz) => `${count(hertz)} samples a second on each CPU`,
	'call-graph': (kind) => stacks[kind] || `stacks: ${kind}`,
	interpreters: choice('', 'no interpreted functions'),
	kernel: choice('kernel functions', 'no kernel functions'),
	'off-cpu': choice('waits', 'no waits'),
	'off-cpu-threshold': (ns) => `stacks of sleeps longer than ${duration(ns)}`,
	'off-cpu-max-rate': (rate) => `no stacks of waits above ${count(rate)} a second`,
	wakers: choice('who ended each wait', ''),
	memory: choice('allocations', ''),
	'memory-sample': (size) => `1 allocation per ${bytes(size)}`,
	'memory-min': (size) => `allocations of at least ${bytes(size)}`,
	'memory-pid': (pid) => `allocations of process ${pid}`,
	'memory-mmap': choice('mappings', ''),
	counters: (groups) => `counters ${items(groups)}`,
	policy: (policy) => (policy === 'drop' ? 'full rings drop' : 'full rings wait'),
	paused: choice('begins paused', ''),
	append: choice('appended to a capture', ''),
	'ring-bytes': (size) => `rings of ${bytes(size)}`,
	'max-bytes': (size) => `ends at ${bytes(size)}`,
	'max-duration': (ns) => `ends after ${duration(ns)}`,
	'max-rate': (rate) => `at most ${count(rate)} samples a second`,
};

const optionText =
	(options) =>
	([key, value]) => {
		if (Object.hasOwn(OPTIONS, key)) return OPTIONS[key](value, options);
		const name = key.replaceAll('-', ' ');
		if (typeof value === 'boolean') return value ? name : `no ${name}`;
		return `${name} ${typeof value === 'object' ? JSON.stringify(value) : value}`;
	};

// Options are recorded as a JSON object.
const factOf = (value) => {
	try {
		const options = JSON.parse(value);
		if (typeof options !== 'object' || options === null) return value;
		return (
			Object.entries(options).map(optionText(options)).filter(Boolean).join(' · ') || value
		);
	} catch {
		return value;
	}
};

const list = (texts) =>
	el(
		'ul',
		{},
		texts.map((text) => el('li', {}, text)),
	);

export const aboutPanel = () => {
	const { capture, notes, sample_unit_ns: unit } = state.data;
	const filters = filtersOf(state.data);
	const facts = capture.facts.map(([key, value]) => [
		el('dt', {}, key),
		el('dd', {}, factOf(value)),
	]);
	const kept =
		capture.state === 'finished'
			? 'Nothing was lost.'
			: `The capture is ${capture.state}: how much is missing is unknown.`;
	return el(
		'div',
		{ class: 'scroll' },
		filters && [
			el('h2', {}, 'Selection'),
			note('The page was made with ', el('code', {}, filters), '.'),
		],
		notes.length > 0 && [el('h2', {}, 'What this page leaves out'), list(notes)],
		el('h2', {}, 'Recording'),
		el('dl', {}, facts.flat()),
		el('h2', {}, 'Lost'),
		capture.losses.length ? list(capture.losses.map((loss) => loss.text)) : note(kept),
		el('h2', {}, 'Times'),
		note(`Times of samples are rounded down to ${duration(unit)}.`),
	);
};
