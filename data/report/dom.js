// SPDX-License-Identifier: BSD-2-Clause-Patent
// Elements, tables and canvases. Names become text nodes: they are never parsed as HTML.

export const byId = (id) => document.getElementById(id);

const present = (children) => children.flat(3).filter((child) => child !== null && child !== undefined && child !== false && child !== '');
export const fill = (element, ...children) => element.replaceChildren(...present(children));

export const el = (tag, attributes = {}, ...children) => {
	const element = document.createElement(tag);
	for (const [key, value] of Object.entries(attributes)) {
		if (value === undefined || value === null || value === false) continue;
		if (key.startsWith('on')) element.addEventListener(key.slice(2), value);
		else if (key === 'style') Object.assign(element.style, value);
		else element.setAttribute(key, value === true ? '' : value);
	}
	element.append(...present(children));
	return element;
};

// Asking for a style makes the browser compute the styles of all changed elements, so answers are
// kept until the theme or the size of the window changes.
const styles = new Map();
const style = (name, ask) => {
	const key = `${name} ${document.documentElement.dataset.theme} ${innerWidth} ${devicePixelRatio}`;
	if (!styles.has(key)) styles.set(key, ask());
	return styles.get(key);
};
export const color = (name) => style(name, () => getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim());
export const rem = () => style('size', () => parseFloat(getComputedStyle(document.documentElement).fontSize));
export const fontFamily = () => style('font', () => getComputedStyle(document.body).fontFamily);

// The variable of the color of a function: whose code it is.
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

export const swatch = (name) => el('span', { class: 'swatch', style: { background: `var(--${name})` } });

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

// The first rows of new tables, after all of them were measured: each change in between would make
// the browser lay out everything again.
let unmeasured = [];
const drawTables = () => {
	const tables = unmeasured.map(([box, draw]) => [draw, box.scrollTop, box.clientHeight || innerHeight]);
	unmeasured = [];
	for (const [draw, top, room] of tables) draw(top, room);
};

// A table that keeps rows of the same height outside of the window out of the document.
// columns: { title, width in rem, number, sort }; cells(i): the row's cells, attributes(i): its own.
export const virtualTable = ({ label, columns, rows, cells, attributes = () => ({}), sorted, onSort, onRow, treegrid }) => {
	const height = Math.round(rem() * 1.5);
	const head = el('tr', { role: 'row' }, columns.map((column) => el('th', {
		class: column.number ? 'number' : undefined, scope: 'col', role: 'columnheader',
		'aria-sort': sorted && column.sort === sorted ? 'descending' : undefined,
		style: column.width ? { width: column.width + 'rem' } : {},
	}, column.sort && onSort ? el('button', { type: 'button', onclick: () => onSort(column.sort) }, column.title + (column.sort === sorted ? ' ▾' : '')) : column.title)));
	const body = el('tbody', { role: 'rowgroup' });
	const table = el('table', { role: treegrid ? 'treegrid' : 'grid', 'aria-label': label, 'aria-rowcount': rows + 1 }, el('thead', { role: 'rowgroup' }, head), body);
	const box = el('div', { class: 'scroll', tabindex: 0 }, table);
	let selected = 0;
	const row = (i) => el('tr', {
		role: 'row', 'aria-rowindex': i + 2, style: { height: height + 'px' }, ...attributes(i),
		onclick: () => { selected = i; onRow?.(i); },
	}, cells(i).map((cell, c) => el('td', { role: 'gridcell', class: [columns[c].number ? 'number' : '', columns[c].class || ''].join(' ').trim() || undefined }, cell)));
	const spacer = (count) => el('tr', { 'aria-hidden': true, style: { height: count * height + 'px' } }, el('td', { colspan: columns.length }));
	let shown = '';
	const draw = (top, room) => {
		const from = Math.max(0, Math.floor(top / height) - 4);
		const to = Math.min(rows, from + Math.ceil(room / height) + 6);
		if (shown === `${from}-${to}`) return;
		shown = `${from}-${to}`;
		const list = [];
		for (let i = from; i < to; i++) list.push(row(i));
		body.replaceChildren(...(from ? [spacer(from)] : []), ...list, ...(to < rows ? [spacer(rows - to)] : []));
	};
	const drawNow = () => draw(box.scrollTop, box.clientHeight || innerHeight);
	box.addEventListener('scroll', drawNow, { passive: true });
	box.addEventListener('keydown', (event) => {
		const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 20, PageUp: -20 }[event.key];
		if (step) {
			selected = Math.max(0, Math.min(rows - 1, selected + step));
			const top = selected * height;
			if (top < box.scrollTop) box.scrollTop = top;
			if (top + 2 * height > box.scrollTop + box.clientHeight) box.scrollTop = top + 3 * height - box.clientHeight;
			drawNow();
			for (const line of body.children) line.classList.toggle('focused', Number(line.getAttribute('aria-rowindex')) === selected + 2);
			event.preventDefault();
		} else if (event.key === 'Enter' || event.key === ' ') {
			onRow?.(selected);
			event.preventDefault();
		}
		if (step || event.key === 'Enter') event.stopPropagation();
	});
	unmeasured.push([box, draw]);
	if (unmeasured.length === 1) requestAnimationFrame(drawTables);
	return box;
};

export const bar = (share, name) => el('span', { class: 'bar', style: { width: Math.max(0, Math.min(1, share)) * 100 + '%', background: `var(--${name})` } });

// One sentence where a panel has nothing to show, and the command that records it.
export const nothing = (sentence, hint) => el('div', { class: 'empty' }, el('p', {}, sentence), hint && el('p', {}, el('code', {}, hint)));

const tip = () => byId('tip');
export const showTip = (event, lines) => {
	const box = tip();
	box.textContent = lines.join('\n');
	box.hidden = false;
	const { width, height } = box.getBoundingClientRect();
	box.style.left = Math.max(4, Math.min(innerWidth - width - 4, event.clientX + 14)) + 'px';
	box.style.top = (event.clientY + 18 + height > innerHeight ? Math.max(4, event.clientY - height - 10) : event.clientY + 18) + 'px';
};
export const hideTip = () => (tip().hidden = true);
