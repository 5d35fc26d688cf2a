// SPDX-License-Identifier: BSD-2-Clause-Patent
// Source lines and instructions of the hottest functions (html --with-source), with the samples of
// the range. A sample has the number of a place in the code. An instruction lists its places, and
// belongs to one line.

import { placeSums } from './profile.js';
import { bar, el, nothing, originColor, swatch, virtualTable } from './dom.js';
import { percent } from './format.js';
import { firstSource, nothingHere, range, state, update } from './state.js';

const CONTEXT = 5; // number of lines shown before and after a line with code; as in html-sources.c

export const hasSource = (fn) => !!state.data.sources?.functions.some((entry) => entry.fn === fn);

const textsOf = (file) => {
	if (!file.lines) {
		file.lines = new Map();
		for (const [first, ...texts] of file.text || []) {
			texts.forEach((text, i) => file.lines.set(first + i, text));
		}
	}
	return file.lines;
};

// Returns the weight at each instruction and line in the range. Lines of generated code have their
// weight in the whole capture.
const count = (entry) => {
	const [from, to] = range();
	const { data } = state;
	const sums = placeSums(data, {
		from,
		to: to === data.duration ? Infinity : to,
		thread: state.thread,
	});
	const instructions = entry.instructions.map(
		([index, address, text, line, inlined, ...places]) => ({
			index,
			address,
			text,
			line,
			inlined,
			self: places.reduce((sum, place) => sum + (sums.weight[place] || 0), 0),
		}),
	);
	const lines = entry.lines.map(([file, line, callee, weight = 0], index) => ({
		index,
		file,
		line,
		callee,
		self: weight,
	}));
	for (const { line, self } of instructions) if (lines[line]) lines[line].self += self;
	return {
		instructions,
		lines,
		sum: lines.reduce((sum, line) => sum + line.self, 0),
		samples: entry.is_generated ? Infinity : sums.events,
	};
};

// Returns the rows of the source table: for each file, the lines with code of the function and the
// lines around them, each followed by the functions that are inlined there.
const sourceRows = (lines) => {
	const rows = [];
	const files = [...new Set(lines.map(({ file }) => file))].filter((file) => file >= 0);
	for (const file of files) {
		const texts = textsOf(state.data.sources.files[file]);
		const own = new Map();
		const inlined = new Map();
		const shown = new Set();
		for (const line of lines.filter((each) => each.file === file)) {
			if (line.callee === null) own.set(line.line, line);
			else if (line.self > 0) {
				inlined.set(line.line, [...(inlined.get(line.line) || []), line]);
			}
			if (line.callee !== null && !(line.self > 0)) continue;
			shown.add(line.line);
			for (let at = line.line - CONTEXT; at <= line.line + CONTEXT; at++) {
				if (texts.has(at)) shown.add(at);
			}
		}
		if (files.length > 1) rows.push({ title: state.data.sources.files[file].path });
		let before = 0;
		for (const number of [...shown].sort((a, b) => a - b)) {
			if (before && number > before + 1) rows.push({ gap: true });
			before = number;
			rows.push({ number, text: texts.get(number), line: own.get(number) });
			for (const line of (inlined.get(number) || []).sort((a, b) => b.self - a.self)) {
				rows.push({ line, callee: line.callee });
			}
		}
	}
	for (const line of lines) {
		if (line.file < 0 && line.self > 0) {
			rows.push({ line, callee: line.callee || 'code without a line' });
		}
	}
	return rows;
};

const NUMBERS = [
	{ title: 'Self', width: 6, number: true },
	{ title: '%', width: 5.5, number: true },
	{ title: '', width: 4 },
];
const numbers = (shown, self, { sum, samples }) =>
	self > 0
		? [shown.formatTime(self), percent(self / sum, samples), bar(self / sum, 'run')]
		: ['', '', ''];

const sourceTable = (shown, fn, counted) => {
	const rows = sourceRows(counted.lines);
	if (!rows.length) return nothing('No line information was found for this function.');
	return virtualTable({
		label: 'Source',
		rows: rows.length,
		columns: [
			...NUMBERS,
			{ title: 'Line', width: 5, number: true },
			{ title: 'Source', class: 'wide' },
		],
		onRow: (i) =>
			rows[i].line &&
			update({
				line:
					state.line?.index === rows[i].line.index
						? null
						: { fn, index: rows[i].line.index },
			}),
		attributes: (i) => ({
			'aria-selected': String(
				!!rows[i].line && state.line?.fn === fn && state.line.index === rows[i].line.index,
			),
		}),
		cells: (i) => {
			const { title, gap, number, text, line, callee } = rows[i];
			return [
				...numbers(shown, line?.self, counted),
				gap ? '…' : number ? String(number) : '',
				title
					? el('span', { class: 'name strong' }, title)
					: callee
						? el(
								'i',
								{ class: 'name', style: { paddingLeft: '2em' } },
								`inlined: ${callee}`,
							)
						: el('code', {}, text || ''),
			];
		},
	});
};

const instructionTable = (shown, fn, counted) => {
	const rows = [];
	for (const each of counted.instructions) {
		if (rows.length && each.index !== rows[rows.length - 1].index + 1) {
			rows.push({ index: each.index - 1 });
		}
		rows.push(each);
	}
	return virtualTable({
		label: 'Instructions',
		rows: rows.length,
		columns: [
			...NUMBERS,
			{ title: 'Address', width: 7, number: true },
			{ title: 'Instruction', class: 'wide' },
			{ title: 'Line', width: 9 },
		],
		onRow: (i) =>
			rows[i].address &&
			update({
				line: state.line?.index === rows[i].line ? null : { fn, index: rows[i].line },
			}),
		attributes: (i) => ({
			'aria-selected': String(
				rows[i].line !== undefined &&
					state.line?.fn === fn &&
					state.line.index === rows[i].line,
			),
		}),
		cells: (i) => {
			const { address, text, line, inlined, self } = rows[i];
			const at = counted.lines[line];
			return [
				...numbers(shown, self, counted),
				address || '…',
				el('code', {}, address ? (text ?? 'unknown') : ''),
				el('span', { class: 'muted' }, inlined || (at?.line ? String(at.line) : '')),
			];
		},
	});
};

// Returns notes on what is missing or may be inaccurate, and why.
const notesOf = (entry, counted) => {
	const { files } = state.data.sources;
	const notes = [];
	for (const file of new Set(counted.lines.map((line) => line.file))) {
		if (file < 0) continue;
		if (!files[file].text) {
			notes.push(
				`${files[file].path} could not be read; give its folder with html --source-dir.`,
			);
		} else if (files[file].is_newer) {
			notes.push(
				`${files[file].path} has changed since the recording: its lines may differ.`,
			);
		}
	}
	if (entry.is_generated) {
		notes.push(
			'The code was generated while the program ran. ' +
				'Its lines have the sums of the whole capture.',
		);
	} else if (entry.no_code) notes.push(`No instructions: ${entry.no_code}.`);
	return notes;
};

export const sourcePanel = (shown) => {
	const { data } = state;
	const { functions } = data.sources;
	if (!functions.length) return nothing('No function has enough samples.');
	const fn = state.fn ?? firstSource(data);
	const entry = functions.find((each) => each.fn === fn);
	const f = data.functions[fn];
	const chooser = el(
		'select',
		{
			'aria-label': 'Function',
			value: entry ? String(fn) : '',
			onchange: (event) => event.target.value && update({ fn: Number(event.target.value) }),
		},
		entry ? null : el('option', { value: '' }, 'choose a function'),
		functions.map((each) =>
			el('option', { value: String(each.fn) }, data.functions[each.fn].name),
		),
	);
	const head = (text, notes = []) =>
		el(
			'div',
			{ class: 'focus' },
			el(
				'div',
				{},
				swatch(originColor(f)),
				el('span', { class: 'name strong on-paper' }, f.name),
				chooser,
				el('span', { title: f.full || f.name }, `  ${text}`),
			),
			notes.map((note) => el('div', { class: 'muted' }, note)),
		);
	if (!entry) {
		return el(
			'div',
			{ class: 'column' },
			head(''),
			nothing(
				f.origin === 'kernel'
					? 'Kernel code cannot be read from a file.'
					: `This page has the source of only the ${functions.length} hottest functions.`,
				f.origin === 'kernel'
					? ''
					: `profcapture annotate ${data.capture.file_word} FUNCTION`,
			),
		);
	}
	const counted = count(entry);
	return el(
		'div',
		{ class: 'column' },
		head(
			counted.sum > 0
				? `${shown.formatTime(counted.sum)} in its own code, including inlined functions`
				: nothingHere(),
			notesOf(entry, counted),
		),
		el(
			'div',
			{ class: 'split' },
			sourceTable(shown, fn, counted),
			entry.instructions.length ? instructionTable(shown, fn, counted) : null,
		),
	);
};
