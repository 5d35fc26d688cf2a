// SPDX-License-Identifier: BSD-2-Clause-Patent
// Elements, tables and canvases. Names become text nodes: they are never parsed as HTML.

import { inOrder } from './format.js';

export const byId = (id) => document.getElementById(id);

// Describes an element. fill() makes the element, or changes an existing one to match. If only a
// text changes, for example while a range is dragged, changing the element takes a tenth of the
// time of making the element, and keeps the focus.
export const el = (tag, attributes = {}, ...children) => ({ tag, attributes, children });

const described = new WeakMap(); // element → the attributes in its last description
const filled = new WeakSet(); // elements that fill() made, and may change
const isSet = (value) => value !== undefined && value !== null && value !== false;
const setStyle = (element, now = {}, before = {}) => {
	for (const key of Object.keys(before)) if (!(key in now)) element.style[key] = '';
	for (const [key, value] of Object.entries(now)) {
		if (value !== before[key]) element.style[key] = value;
	}
};
const setAttribute = (element, key, value) => {
	if (key.startsWith('on')) element[key] = value;
	else if (isSet(value)) element.setAttribute(key, value === true ? '' : value);
	else element.removeAttribute(key);
};
const describe = (element, { attributes, children }) => {
	const before = described.get(element) || {};
	for (const key of Object.keys(before)) {
		if (key !== 'style' && !(key in attributes)) setAttribute(element, key, null);
	}
	for (const [key, value] of Object.entries(attributes)) {
		if (key !== 'style' && value !== before[key]) setAttribute(element, key, value);
	}
	if (attributes.style || before.style) setStyle(element, attributes.style, before.style);
	described.set(element, attributes);
	fill(element, ...children);
	// last, because a <select> needs its options first
	if ('value' in attributes) element.value = attributes.value;
	return element;
};

// Sets an element's children: descriptions, texts, or elements, which are used unchanged.
export const fill = (element, ...children) => {
	let at = element.firstChild;
	for (const child of children.flat(3)) {
		if (!isSet(child) || child === '') continue;
		const text = child instanceof Node || child.tag ? '' : inOrder(String(child));
		if (child === at) {
			at = at.nextSibling;
		} else if (child instanceof Node) {
			element.insertBefore(child, at);
		} else if (child.tag && at?.localName === child.tag && filled.has(at)) {
			describe(at, child);
			at = at.nextSibling;
		} else if (child.tag) {
			const made = make(child);
			filled.add(made);
			element.insertBefore(made, at);
		} else if (at?.nodeType === Node.TEXT_NODE) {
			if (at.data !== text) at.data = text;
			at = at.nextSibling;
		} else {
			element.insertBefore(document.createTextNode(text), at);
		}
	}
	while (at) {
		const next = at.nextSibling;
		at.remove();
		at = next;
	}
};

export const make = (description) => describe(document.createElement(description.tag), description);

// Asking for a style makes the browser compute the styles of all changed elements, so answers are
// kept until the theme or the size of the window changes.
const styles = new Map();
const style = (name, ask) => {
	const { theme } = document.documentElement.dataset;
	const key = `${name} ${theme} ${innerWidth} ${devicePixelRatio}`;
	if (!styles.has(key)) styles.set(key, ask());
	return styles.get(key);
};
export const color = (name) =>
	style(name, () =>
		getComputedStyle(document.documentElement)
			.getPropertyValue('--' + name)
			.trim(),
	);
export const rem = () =>
	style('size', () => parseFloat(getComputedStyle(document.documentElement).fontSize));
export const fontFamily = () => style('font', () => getComputedStyle(document.body).fontFamily);

// Returns the name of the color of a function, which shows whose code it is.
export const originColor = (f) => (f.color ||= colorOf(f));
const colorOf = (f) => {
	if (f.kind === 'task' || f.kind === 'unresolved' || f.origin === 'unknown') return 'none';
	if (f.kind === 'jit') return 'jit';
	if (f.origin === 'kernel') return 'kernel';
	if (f.origin === 'own') return 'own';
	let hash = 0;
	for (const c of f.library) hash = (hash * 31 + c.charCodeAt(0)) >>> 0;
	return 'lib' + (hash % 3);
};

export const note = (...text) => el('p', { class: 'note' }, text);
export const muted = (...text) => el('span', { class: 'muted' }, text);
export const column = (...parts) => el('div', { class: 'column' }, parts);
export const split = (...parts) => el('div', { class: 'split' }, parts);
// The first part is wider.
export const lead = (...parts) => el('div', { class: 'split lead' }, parts);

// Returns the file and the line of a function, for the place after its name.
export const fileOf = (f) => (f.file ? f.file.split('/').pop() + (f.line ? ':' + f.line : '') : '');

// Returns the triangle of a row of a tree.
export const twist = ({ hasChildren, isOpen }) =>
	el('span', { class: 'twist' }, hasChildren ? (isOpen ? '▾' : '▸') : '·');
export const indent = (level) => ({ paddingLeft: Math.min(level - 1, 60) * 0.9 + 'rem' });
export const treeAttributes = ({ level, size, place, hasChildren, isOpen }) => ({
	'aria-level': level,
	'aria-setsize': size,
	'aria-posinset': place,
	'aria-expanded': hasChildren ? String(isOpen) : undefined,
});

export const swatch = (name) =>
	el('span', { class: 'swatch', style: { background: `var(--${name})` } });

export const sizeCanvas = (canvas, width, height) => {
	const ratio = devicePixelRatio || 1;
	canvas.width = Math.round(width * ratio);
	canvas.height = Math.round(height * ratio);
	canvas.style.width = width + 'px';
	canvas.style.height = height + 'px';
	const context = canvas.getContext('2d');
	context.setTransform(ratio, 0, 0, ratio, 0, 0);
	context.textBaseline = 'middle';
	return context;
};

// Tables by label, so that they can be filled again. The first rows of all new tables are laid out
// together, after the tables are in the document.
const tables = new Map();
let unmeasured = [];
const drawTables = () => {
	const measured = unmeasured.map((table) => [
		table,
		table.box.scrollTop,
		table.box.clientHeight || innerHeight,
	]);
	unmeasured = [];
	for (const [table, top, room] of measured) drawRows(table, top, room);
};

const classOf = ({ number, class: own }) =>
	[number && 'number', own].filter(Boolean).join(' ') || undefined;

const rowOf = ({ columns, cells, attributes = () => ({}) }, i, own) =>
	el(
		'tr',
		{ role: 'row', 'aria-rowindex': i + 2, ...attributes(i), ...own },
		cells(i).map((cell, c) =>
			el(
				'td',
				{
					role: 'gridcell',
					class: classOf(columns[c]),
				},
				cell,
			),
		),
	);

const isFocused = ({ moved, selected }, i) => moved && i === selected;
const focusedId = ({ label }) => `${label.replaceAll(' ', '-')}-row`;

const drawRows = (table, top, room) => {
	const {
		spec,
		spec: { rows, columns, onRow },
		height,
		body,
	} = table;
	const from = Math.max(0, Math.min(rows, Math.floor(top / height)) - 4);
	const to = Math.min(rows, from + Math.ceil(room / height) + 6);
	if (table.drawn && table.from === from && table.to === to) return;
	Object.assign(table, { drawn: true, from, to, top, room });
	const spacer = (count) =>
		el(
			'tr',
			{ 'aria-hidden': 'true', style: { height: count * height + 'px' } },
			el('td', { colspan: columns.length }),
		);
	const list = [];
	for (let i = from; i < to; i++) {
		list.push(
			rowOf(spec, i, {
				style: { height: height + 'px' },
				class: isFocused(table, i) ? 'focused' : undefined,
				id: isFocused(table, i) ? focusedId(spec) : undefined,
				onclick: () => {
					Object.assign(table, { selected: i, moved: true });
					onRow?.(i);
				},
			}),
		);
	}
	fill(body, from ? spacer(from) : null, list, to < rows ? spacer(rows - to) : null);
};

const drawAgain = (table) => {
	table.drawn = false;
	drawRows(table, table.box.scrollTop, table.box.clientHeight || innerHeight);
};
// Updates the rows of a table after their cells have changed.
export const refreshTable = (label) => {
	const table = tables.get(label);
	if (table?.box.isConnected) drawAgain(table);
};

// Selects a row of a table, and scrolls to it.
const selectRow = (table, i) => {
	const { box, height } = table;
	const top = i * height;
	table.selected = i;
	table.moved = true;
	if (top < box.scrollTop) box.scrollTop = top;
	if (top + 2 * height > box.scrollTop + box.clientHeight) {
		box.scrollTop = top + 3 * height - box.clientHeight;
	}
	drawAgain(table);
};
export const revealRow = (label, i) => {
	const table = tables.get(label);
	if (table?.box.isConnected) selectRow(table, i);
};

const moveSelection = (table, event) => {
	if (event.target.localName === 'button' && !event.key.startsWith('Arrow')) return;
	const { rows, onRow } = table.spec;
	const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 20, PageUp: -20 }[event.key];
	if (step) {
		const next = table.selected + (table.moved ? step : 0);
		selectRow(table, Math.max(0, Math.min(rows - 1, next)));
	} else if (event.key === 'Enter' || event.key === ' ') {
		onRow?.(table.selected);
	} else {
		return;
	}
	event.preventDefault();
	if (event.key !== ' ') event.stopPropagation();
};

const newTable = () => {
	const body = make(el('tbody', { role: 'rowgroup' }));
	const head = make(el('thead', { role: 'rowgroup' }));
	const grid = make(el('table', {}, head, body));
	// only the grid takes the focus; Firefox would also stop at its box
	const box = make(el('div', { class: 'scroll', tabindex: -1 }, grid));
	const table = { box, grid, head, body, selected: 0, moved: false };
	box.addEventListener(
		'scroll',
		() => {
			drawRows(table, box.scrollTop, box.clientHeight || innerHeight);
			table.spec.onScroll?.();
		},
		{ passive: true },
	);
	box.addEventListener('keydown', (event) => moveSelection(table, event));
	return table;
};

const headOf = ({ columns, sorted, onSort }) =>
	el(
		'tr',
		{ role: 'row' },
		columns.map((spec) =>
			el(
				'th',
				{
					class: classOf(spec),
					scope: 'col',
					role: 'columnheader',
					'aria-sort': sorted && spec.sort === sorted ? 'descending' : undefined,
					style: spec.width ? { width: spec.width + 'rem' } : {},
				},
				spec.sort && onSort
					? el(
							'button',
							{ type: 'button', onclick: () => onSort(spec.sort) },
							spec.title + (spec.sort === sorted ? ' ▾' : ''),
						)
					: spec.title,
			),
		),
	);

// While the page is printed, a table has only its first rows, because paper does not scroll.
export const paper = { isOn: false, rows: 30 };
const paperTable = (spec) =>
	el(
		'div',
		{},
		el(
			'table',
			{ 'aria-label': spec.label },
			el('thead', {}, headOf(spec)),
			el(
				'tbody',
				{},
				Array.from({ length: Math.min(paper.rows, spec.rows) }, (_, i) => rowOf(spec, i)),
			),
		),
		spec.rows > paper.rows &&
			note(`the first ${paper.rows} of ${spec.rows}; the command with --limit 0 prints all`),
	);

// Returns a table of which only the visible rows are in the document. All rows have the same
// height. If a table with this label exists, changes that table. columns: { title, width in rem,
// number, sort }; cells(i): the row's cells, attributes(i): the row's attributes.
export const virtualTable = (spec) => {
	const { label, rows, treegrid } = spec;
	if (paper.isOn) return paperTable(spec);
	const table = tables.get(label) || newTable();
	const isShown = table.box.isConnected;
	tables.set(label, table);
	if (!isShown || table.selected >= rows) Object.assign(table, { selected: 0, moved: false });
	Object.assign(table, { spec, height: Math.round(rem() * 1.5), drawn: false });
	describe(
		table.grid,
		el(
			'table',
			{
				role: treegrid ? 'treegrid' : 'grid',
				tabindex: 0,
				'aria-activedescendant': focusedId(spec),
				'aria-label': label,
				'aria-rowcount': rows + 1,
			},
			table.head,
			table.body,
		),
	);
	fill(table.head, headOf(spec));
	if (isShown) drawRows(table, table.top, table.room);
	unmeasured.push(table);
	if (unmeasured.length === 1) requestAnimationFrame(drawTables);
	return table.box;
};

export const bar = (share, name) =>
	el('span', {
		class: 'bar',
		style: { width: Math.max(0, Math.min(1, share)) * 100 + '%', background: `var(--${name})` },
	});

// Returns a sentence for a panel without data, with the command that records the data.
export const nothing = (sentence, command) =>
	el(
		'div',
		{ class: 'empty' },
		el('p', {}, sentence),
		command && el('p', {}, el('code', {}, command)),
	);

const tip = () => byId('tip');
export const showTip = (event, lines) => {
	const box = tip();
	fill(box, lines.join('\n'));
	box.hidden = false;
	const { width, height } = box.getBoundingClientRect();
	box.style.left = Math.max(4, Math.min(innerWidth - width - 4, event.clientX + 14)) + 'px';
	box.style.top =
		(event.clientY + 18 + height > innerHeight
			? Math.max(4, event.clientY - height - 10)
			: event.clientY + 18) + 'px';
};
export const hideTip = () => (tip().hidden = true);
