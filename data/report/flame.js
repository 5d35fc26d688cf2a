// SPDX-License-Identifier: BSD-2-Clause-Patent
// The flame graph: callers on top (icicle), or from the hottest functions to their callers
// (inverted). The call tree shows the same to users who cannot see the graph.

import {
	byId,
	color,
	el,
	hideTip,
	make,
	nothing,
	originColor,
	paper,
	rem,
	showTip,
	sizeCanvas,
} from './dom.js';
import { count, fitName, percent, signed, uncertainty } from './format.js';
import { nothingHere, state, update } from './state.js';

const LEAST_WIDTH = 1.5; // pixels; smaller boxes are joined into one
const FOLD_SHARE = 0.985;
const MOST_PAPER_ROWS = 150;
let boxes = [];
let rowHeight = 0;
let selected = 0;

const canFold = (f) => f.origin !== 'own' && f.kind !== 'task';
const folder = (f) => (f.origin === 'kernel' ? 'kernel' : f.kind === 'jit' ? 'jit' : 'library');

// ---- icicle: boxes of the table of stacks

const childrenOf = (stacks, weight, i) => {
	const children = [];
	for (let c = stacks.first[i]; c >= 0; c = stacks.next[c]) if (weight(c) > 0) children.push(c);
	return children.sort((a, b) => weight(b) - weight(a) || a - b);
};

// A chain of library frames, or of kernel frames, is one box if nearly all samples go to one
// callee.
const foldedEnd = (stacks, weight, functions, i) => {
	let end = i;
	let length = 1;
	const first = functions[stacks.func[i]];
	if (!canFold(first) || state.unfolded.has(i)) return [end, length];
	for (;;) {
		let only = -1;
		for (let c = stacks.first[end]; c >= 0; c = stacks.next[c]) {
			if (weight(c) > FOLD_SHARE * weight(end)) only = c;
		}
		if (only < 0) break;
		const f = functions[stacks.func[only]];
		if (!canFold(f) || folder(f) !== folder(first)) break;
		end = only;
		length++;
	}
	return [end, length];
};

const icicle = (stacks, weight, functions, width) => {
	const list = [];
	const root =
		state.zoom && !state.zoom.inverted && weight(state.zoom.node) > 0 ? state.zoom.node : 0;
	// an explicit stack, because recorded stacks can be deeper than a script may recurse
	const work = [];
	const place = (i, x, w, row) => {
		let end = i;
		let below = row;
		if (i) {
			let length;
			[end, length] = foldedEnd(stacks, weight, functions, i);
			list.push({ node: i, end, length, x, w, row });
			below = row + 1;
		}
		const scale = w / weight(end);
		let at = x;
		let hidden = 0;
		let hiddenWidth = 0;
		for (const c of childrenOf(stacks, weight, end)) {
			const part = weight(c) * scale;
			if (part < LEAST_WIDTH) {
				hidden++;
				hiddenWidth += part;
				continue;
			}
			work.push([c, at, part, below]);
			at += part;
		}
		if (hidden && hiddenWidth > LEAST_WIDTH * 2) {
			list.push({ node: -1, hidden, x: at, w: hiddenWidth, row: below });
		}
	};
	let row = 0;
	if (root) {
		const path = [];
		for (let p = stacks.parent[root]; p > 0; p = stacks.parent[p]) path.unshift(p);
		for (const p of path.slice(-3)) {
			list.push({ node: p, end: p, length: 1, x: 0, w: width, row: row++, above: true });
		}
	}
	if (weight(root) > 0) place(root, 0, width, row);
	while (work.length) place(...work.pop());
	return list;
};

// ---- inverted: groups of stacks by the function they end in, then by its callers

const inverted = (stacks, sums, base, functions, width) => {
	const list = [];
	const leaves = [];
	let all = 0;
	for (let i = 1; i < stacks.n; i++) {
		const v = sums.self[i];
		const b = base ? base.self[i] : 0;
		if (v + b <= 0) continue;
		leaves.push([i, v, b]);
		all += v + b;
	}
	const path = state.zoom?.inverted ? state.zoom.path : [];
	const group = (entries) => {
		const by = new Map();
		for (const [node, v, b] of entries) {
			if (node <= 0) continue;
			const f = stacks.func[node];
			let entry = by.get(f);
			if (!entry) by.set(f, (entry = { f, v: 0, b: 0, node, entries: [] }));
			entry.v += v;
			entry.b += b;
			entry.entries.push([stacks.parent[node], v, b]);
		}
		return [...by.values()].sort((x, y) => y.v + y.b - x.v - x.b || x.f - y.f);
	};
	const work = [];
	const place = (entries, x, w, whole, row, above) => {
		let at = x;
		let hidden = 0;
		let hiddenWidth = 0;
		for (const entry of group(entries)) {
			const part = (w * (entry.v + entry.b)) / whole;
			if (part < LEAST_WIDTH) {
				hidden++;
				hiddenWidth += part;
				continue;
			}
			const trail = [...above, entry.f];
			list.push({
				node: entry.node,
				end: entry.node,
				length: 1,
				x: at,
				w: part,
				row,
				value: entry.v,
				baseValue: entry.b,
				path: trail,
			});
			work.push([entry.entries, at, part, entry.v + entry.b, row + 1, trail]);
			at += part;
		}
		if (hidden && hiddenWidth > LEAST_WIDTH * 2) {
			list.push({ node: -1, hidden, x: at, w: hiddenWidth, row });
		}
	};
	let entries = leaves;
	let row = 0;
	let whole = all;
	for (const f of path) {
		const entry = group(entries).find((e) => e.f === f);
		if (!entry) break;
		list.push({
			node: entry.node,
			end: entry.node,
			length: 1,
			x: 0,
			w: width,
			row: row++,
			value: entry.v,
			baseValue: entry.b,
			above: row < path.length,
			path: path.slice(0, row),
		});
		({ entries } = entry);
		whole = entry.v + entry.b;
	}
	if (whole > 0) place(entries, 0, width, whole, row, path);
	while (work.length) place(...work.pop());
	return list;
};

// ---- drawing

export const isNoise = (now, before, scale) => {
	const { capture, sample_interval } = state.data;
	// waits, and allocations unless they were sampled, are exact
	const p =
		state.measure === 'cpu'
			? capture.sample_weight || 1
			: state.measure === 'wait'
				? 0
				: sample_interval;
	return Math.abs(now - before) <= 1.96 * Math.sqrt((now + scale * before) * p);
};

const boxColors = () =>
	Object.fromEntries(
		[
			'own',
			'lib0',
			'lib1',
			'lib2',
			'kernel',
			'jit',
			'none',
			'box',
			'bg',
			'text',
			'focus',
			'muted',
			'more',
			'less',
		].map((name) => [name, color(name)]),
	);

const valueOf = (box, sums) => (box.value !== undefined ? box.value : sums.total[box.node]);
const baseOf = (box, base) =>
	box.baseValue !== undefined ? box.baseValue : base ? base.total[box.node] : 0;

const boxText = (box, shown, value) => {
	const { functions, stacks, base, baseScale } = shown;
	if (box.node < 0) return `+${box.hidden} small`;
	const name = functions[stacks.func[box.node]].name;
	const folded =
		box.length > 1 ? `${name} ⋯ ${functions[stacks.func[box.end]].name} (${box.length})` : name;
	if (!base) return [folded, percent(value / shown.sums.sum, shown.sums.events)];
	const change = value - baseOf(box, base);
	return [
		folded,
		isNoise(value, baseOf(box, base), baseScale) ? '' : signed(shown.format(change), change),
	];
};

const fillOf = (box, shown, c) => {
	if (box.node < 0) return c.none;
	if (!shown.base) return c[originColor(shown.functions[shown.stacks.func[box.node]])];
	const now = valueOf(box, shown.sums);
	const before = baseOf(box, shown.base);
	if (isNoise(now, before, shown.baseScale)) return c.none;
	return now > before ? c.more : c.less;
};

// One frame with a canvas of the size of the window, which scrolls over the boxes; a canvas for all
// boxes of deep stacks would be larger than browsers can draw.
let frame = null;
let canvas = null;
let shown = null;
const makeFrame = () => {
	canvas = make(
		el('canvas', {
			id: 'flame',
			tabindex: 0,
			role: 'img',
			'aria-label': 'Flame graph. The call tree shows the same as a tree.',
		}),
	);
	frame = make(el('div', { class: 'scroll' }, el('div', { class: 'tall' }, canvas)));
	frame.addEventListener('scroll', drawBoxes, { passive: true });
	canvas.addEventListener('focus', drawBoxes);
	canvas.addEventListener('blur', drawBoxes);
	listen();
};

export const flamePanel = (next) => {
	shown = next;
	if (!(shown.sums.sum > 0) && !(shown.base?.sum > 0)) return nothing(nothingHere());
	if (!frame) makeFrame();
	if (frame.isConnected) layOut();
	else if (!paper.isOn) requestAnimationFrame(layOut);
	return frame;
};

export const layOut = () => {
	const { stacks, sums, base, functions } = shown;
	const width = frame.clientWidth;
	const weight = base ? (i) => sums.total[i] + base.total[i] : (i) => sums.total[i];
	boxes = state.inverted
		? inverted(stacks, sums, base, functions, width)
		: icicle(stacks, weight, functions, width);
	rowHeight = Math.round(rem() * 1.45);
	selected = Math.min(selected, boxes.length - 1);
	const rows = 1 + boxes.reduce((most, box) => Math.max(most, box.row), 0);
	frame.firstChild.style.height = rows * rowHeight + 4 + 'px';
	frame.style.height = paper.isOn ? Math.min(rows, MOST_PAPER_ROWS) * rowHeight + 4 + 'px' : '';
	canvas.dataset.boxes = boxes.length;
	drawBoxes();
};

function drawBoxes() {
	const { stacks, sums, functions } = shown;
	const top = frame.scrollTop;
	const height = frame.clientHeight;
	const g = sizeCanvas(canvas, frame.clientWidth, height);
	const c = boxColors();
	const small = rem() * 0.92;
	const letter = small * 0.602;
	g.textAlign = 'left';
	for (const box of boxes) {
		const y = box.row * rowHeight - top;
		if (y + rowHeight < 0 || y > height) continue;
		const f = box.node >= 0 ? functions[stacks.func[box.node]] : null;
		const isFound = f && shown.matches?.[stacks.func[box.node]];
		const w = Math.max(1, box.w - 0.6);
		const isPale = !box.above && shown.matches && !isFound;
		g.globalAlpha = box.above ? 0.55 : isPale ? 0.35 : 1;
		g.fillStyle = fillOf(box, shown, c);
		g.fillRect(box.x, y, w, rowHeight - 1);
		if (box.length > 1 && w > 6) {
			// folded: a double left edge
			g.fillStyle = c.bg;
			g.fillRect(box.x + 2, y, 1, rowHeight - 1);
		}
		g.globalAlpha = 1;
		if (f && stacks.func[box.node] === state.fn) outline(g, c.focus, 2, box, y);
		else if (isFound) outline(g, c.box, 1, box, y);
		const room = Math.floor((w - 8) / letter);
		if (room < 3) continue;
		const text = boxText(box, shown, valueOf(box, sums));
		const [name, number] = Array.isArray(text) ? text : [text, ''];
		const label =
			number && name.length + 2 + number.length <= room
				? `${name}  ${number}`
				: fitName(name, room);
		const style = f?.inlined ? 'italic ' : '';
		g.font = `${style}${small}px ui-monospace, "DejaVu Sans Mono", monospace`;
		// the background shows through pale boxes
		g.fillStyle = box.above ? c.text : isPale ? c.muted : c.box;
		g.fillText(label, box.x + (box.length > 1 ? 6 : 4), y + rowHeight / 2);
	}
	const box = boxes[selected];
	if (box && document.activeElement === canvas) {
		outline(g, c.focus, 3, box, box.row * rowHeight - top);
	}
}

const outline = (g, shade, width, box, y) => {
	g.strokeStyle = shade;
	g.lineWidth = width;
	g.strokeRect(
		box.x + width / 2,
		y + width / 2,
		Math.max(1, box.w - 0.6 - width),
		rowHeight - 1 - width,
	);
};

const describe = (box) => {
	if (box.node < 0) return [`${count(box.hidden)} functions that are too small to draw`];
	const { functions, stacks, sums, base, format } = shown;
	const f = functions[stacks.func[box.node]];
	const value = valueOf(box, sums);
	const share = value / sums.sum;
	const lines = [f.full || f.name];
	if (box.length > 1) {
		lines.push(`… ${count(box.length)} frames, to ${functions[stacks.func[box.end]].name}`);
	}
	const off = (uncertainty(share, sums.events) * 100).toFixed(1);
	const interval = state.measure === 'cpu' ? ` ± ${off}` : '';
	lines.push(
		`${format(value)}, ${percent(share, sums.events)}${interval} of ${format(sums.sum)}`,
	);
	if (base) {
		lines.push(
			`before: ${format(baseOf(box, base))}` +
				(isNoise(value, baseOf(box, base), shown.baseScale) ? ' (within noise)' : ''),
		);
	}
	if (box.value === undefined) lines.push(`self ${format(sums.self[box.node])}`);
	lines.push(
		[
			f.library,
			f.file ? `${f.file}${f.line ? ':' + f.line : ''}` : '',
			f.inlined ? 'inlined' : '',
		]
			.filter(Boolean)
			.join(' · '),
	);
	return lines.filter(Boolean);
};

const boxAt = (event) => {
	const area = canvas.getBoundingClientRect();
	const x = event.clientX - area.left;
	const row = Math.floor((event.clientY - area.top + frame.scrollTop) / rowHeight);
	return boxes.find((box) => box.row === row && x >= box.x && x < box.x + box.w);
};

const activate = (box) => {
	if (!box || box.node < 0) return;
	const { func, parent } = shown.stacks;
	const fn = func[box.node];
	if (box.length > 1) {
		const unfolded = new Set(state.unfolded).add(box.node);
		for (let i = box.end; i !== box.node; i = parent[i]) unfolded.add(i);
		return update({ unfolded, fn });
	}
	if (state.inverted) return update({ zoom: { inverted: true, path: box.path }, fn });
	return update({ zoom: state.zoom?.node === box.node ? null : { node: box.node }, fn });
};

// Moves to the nearest box of a neighboring row or place.
const step = (key) => {
	const at = boxes[selected];
	if (!at) return;
	const middle = at.x + at.w / 2;
	const wanted = {
		ArrowDown: (b) => b.row === at.row + 1,
		ArrowUp: (b) => b.row === at.row - 1,
		ArrowRight: (b) => b.row === at.row && b.x > at.x,
		ArrowLeft: (b) => b.row === at.row && b.x < at.x,
	}[key];
	let best = -1;
	let distance = Infinity;
	boxes.forEach((box, i) => {
		const far = Math.abs(box.x + box.w / 2 - middle);
		if (wanted(box) && far < distance) [best, distance] = [i, far];
	});
	if (best >= 0) selected = best;
};

// Selects the widest box of a function, and scrolls to it.
export const showBox = (fn) => {
	const isOf = (box) => box.node >= 0 && shown.stacks.func[box.node] === fn;
	const widest = boxes.reduce(
		(most, box) => (isOf(box) && box.w > (most?.w ?? 0) ? box : most),
		null,
	);
	if (!widest) return;
	selected = boxes.indexOf(widest);
	scrollToBox(widest);
	drawBoxes();
};

const scrollToBox = (box) => {
	const y = box.row * rowHeight;
	if (y < frame.scrollTop) frame.scrollTop = y;
	frame.scrollTop = Math.max(frame.scrollTop, y + rowHeight - frame.clientHeight);
};

const listen = () => {
	canvas.addEventListener('pointermove', (event) => {
		const box = boxAt(event);
		if (box) showTip(event, describe(box));
		else hideTip();
	});
	canvas.addEventListener('pointerleave', hideTip);
	canvas.addEventListener('click', (event) => activate(boxAt(event)));
	canvas.addEventListener('keydown', (event) => {
		if (event.key.startsWith('Arrow') && !event.shiftKey) {
			step(event.key);
			const box = boxes[selected];
			if (box) scrollToBox(box);
			drawBoxes();
			byId('announcement').textContent = box ? describe(box).join('. ') : '';
		} else if (event.key === 'Enter') {
			activate(boxes[selected]);
		} else {
			return;
		}
		event.preventDefault();
		event.stopPropagation();
	});
};
