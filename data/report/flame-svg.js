// SPDX-License-Identifier: BSD-2-Clause-Patent
// Search and zoom of a flame graph that `profcapture export --to svg` wrote. Without this script,
// the picture is the same and still has tooltips.
'use strict';
(() => {
	const svg = document.documentElement;
	const found = document.getElementById('found');
	const graph = document.getElementById('boxes');
	const LETTER = 7.3;
	const PADDING = 3;
	const LEFT = Number(graph.dataset.left);
	const WIDTH = Number(graph.dataset.width);
	const number = (element, name) => Number(element.getAttribute(name));
	// in the order of the tree: a box comes before the boxes below it
	const boxes = [...graph.children].map((g) => {
		const rect = g.querySelector('rect');
		const text = g.querySelector('text');
		const name = g.querySelector('title').textContent.split('\n')[0];
		return {
			g,
			rect,
			text,
			name,
			label: text?.textContent ?? '',
			short: g.dataset.n ?? name,
			x: number(rect, 'x'),
			y: number(rect, 'y'),
			w: number(rect, 'width'),
			now: Number(g.dataset.v ?? 0),
			before: Number(g.dataset.b ?? 0),
		};
	});
	const all = { now: Number(graph.dataset.v), before: Number(graph.dataset.b ?? 0) };
	const percent = (part, whole) => (whole > 0 ? (100 * part) / whole : 0).toFixed(2) + ' %';
	let zoomed = boxes[0];

	const fit = (name, width) => {
		const room = Math.floor((width - 2 * PADDING) / LETTER);
		const letters = [...name];
		return room < 3
			? ''
			: letters.length <= room
				? name
				: letters.slice(0, room - 1).join('') + '…';
	};

	const place = (box, x, width, isWhole) => {
		box.rect.setAttribute('x', x);
		box.rect.setAttribute('width', width);
		const label = isWhole ? box.label : fit(box.short, width);
		if (!box.text && label) {
			box.text = document.createElementNS(svg.namespaceURI, 'text');
			box.text.setAttribute('y', box.y + 12);
			box.g.append(box.text);
		}
		if (!box.text) return;
		box.text.textContent = label;
		box.text.setAttribute('x', x + PADDING);
	};

	const zoom = (to) => {
		const scale = WIDTH / to.w;
		const middle = to.x + to.w / 2;
		zoomed = to;
		for (const box of boxes) {
			const isAbove = box.y < to.y && box.x <= middle && box.x + box.w >= middle;
			const center = box.x + box.w / 2;
			const isBelow = box.y >= to.y && center >= to.x && center <= to.x + to.w;
			box.g.classList.toggle('away', !isAbove && !isBelow);
			box.g.classList.toggle('above', isAbove);
			if (isAbove) place(box, LEFT, WIDTH, false);
			else if (isBelow) {
				place(box, LEFT + (box.x - to.x) * scale, box.w * scale, to === boxes[0]);
			}
		}
	};

	// A match below another match is not counted again, so the sum is at most 100 %.
	const search = (pattern) => {
		let test = null;
		let now = 0;
		let before = 0;
		let lowest = Infinity;
		try {
			test = pattern ? new RegExp(pattern, 'i') : null;
		} catch {
			found.textContent = 'not a regular expression';
			return;
		}
		for (const box of boxes) {
			const isFound =
				test !== null &&
				box !== boxes[0] &&
				box.g.dataset.v !== undefined &&
				test.test(box.name);
			box.g.classList.toggle('found', isFound);
			box.g.classList.toggle('faded', test !== null && !isFound);
			if (box.y <= lowest) lowest = Infinity;
			if (!isFound || lowest < Infinity) continue;
			lowest = box.y;
			now += box.now;
			before += box.before;
		}
		found.textContent = !test
			? ''
			: `matched: ${percent(now, all.now)}` +
				(all.before > 0 ? `, before: ${percent(before, all.before)}` : '');
	};

	const holder = document.createElementNS(svg.namespaceURI, 'foreignObject');
	const input = document.createElementNS('http://www.w3.org/1999/xhtml', 'input');
	for (const [name, value] of Object.entries({
		x: LEFT + WIDTH - 300,
		y: 8,
		width: 300,
		height: 24,
	})) {
		holder.setAttribute(name, value);
	}
	for (const [name, value] of Object.entries({
		id: 'search',
		type: 'search',
		placeholder: 'Search (regular expression): /',
		'aria-label': 'Search functions',
	})) {
		input.setAttribute(name, value);
	}
	holder.append(input);
	svg.append(holder);
	input.addEventListener('input', () => search(input.value));
	graph.addEventListener('click', (event) => {
		const g = event.target.closest('#boxes > g');
		const box = boxes.find((one) => one.g === g);
		if (box && box.g.dataset.v !== undefined) zoom(box === zoomed ? boxes[0] : box);
	});
	document.addEventListener('keydown', (event) => {
		if (event.key === '/' && event.target !== input) {
			input.focus();
			event.preventDefault();
		} else if (event.key === 'Escape') {
			input.value = '';
			search('');
			zoom(boxes[0]);
		}
	});
	svg.dataset.ready = 'yes';
})();
