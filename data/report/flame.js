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
import { count, fitName, inOrder, percent, signed, uncertainty } from './format.js';
import { branchWith, pathTo, treeOf } from './branches.js';
import { isNoise } from './changes.js';
import { nothingHere, state, update } from './state.js';

const LEAST_WIDTH = 1.5; // pixels; smaller boxes are joined into one
const FOLD_SHARE = 0.985;
const MOST_PAPER_ROWS = 150;
let boxes = [];
let rowHeight = 0;
let selected = 0;

const canFold = (f) => f.origin !== 'own' && f.kind !== 'task';
const folder = (f) => (f.origin === 'kernel' ? 'kernel' : f.kind === 'jit' ? 'jit' : 'library');

// A chain of frames of libraries, of the kernel, or of generated code is one box while nearly all
// weight goes to one branch.
const foldedEnd = (first, functions) => {
	const f = functions[first.fn];
	let end = first;
	let length = 1;
	if (!canFold(f) || state.unfolded.has(first.id)) return [end, length];
	for (;;) {
		const [next] = end.children();
		if (!(next?.weight > FOLD_SHARE * end.weight)) break;
		if (!canFold(functions[next.fn]) || folder(functions[next.fn]) !== folder(f)) break;
		end = next;
		length++;
	}
	return [end, length];
};

// Returns the boxes of the whole tree, or of the zoomed branch and its closest callers. A box
// without a branch represents branches that are too small to draw.
const placeBoxes = (root, functions, width) => {
	const list = [];
	const zoomed = state.zoom && branchWith(root, state.zoom);
	const top = zoomed ?? root;
	// an explicit stack, because recorded stacks can be deeper than a script may recurse
	const work = [];
	const place = (branch, x, w, row) => {
		let end = branch;
		let below = row;
		if (branch !== root) {
			let length;
			[end, length] = foldedEnd(branch, functions);
			list.push({ branch, end, length, x, w, row });
			below = row + 1;
		}
		const scale = w / end.weight;
		let at = x;
		let hidden = 0;
		let hiddenWidth = 0;
		for (const child of end.children()) {
			const part = child.weight * scale;
			if (part < LEAST_WIDTH) {
				hidden++;
				hiddenWidth += part;
				continue;
			}
			work.push([child, at, part, below]);
			at += part;
		}
		if (hidden && hiddenWidth > LEAST_WIDTH * 2) {
			list.push({ branch: null, hidden, x: at, w: hiddenWidth, row: below });
		}
	};
	let row = 0;
	for (const branch of pathTo(top).slice(0, -1).slice(-3)) {
		list.push({ branch, end: branch, length: 1, x: 0, w: width, row: row++, above: true });
	}
	if (top.weight > 0) place(top, 0, width, row);
	while (work.length) place(...work.pop());
	return list;
};

// ---- drawing

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

const boxText = (box, shown) => {
	const { functions, base, sums } = shown;
	if (!box.branch) return `+${box.hidden} small`;
	const { fn, value, before } = box.branch;
	const { name } = functions[fn];
	const folded =
		box.length > 1 ? `${name} ⋯ ${functions[box.end.fn].name} (${box.length})` : name;
	if (!base) return [folded, percent(value / sums.sum, sums.events)];
	const change = value - before;
	return [folded, isNoise(shown, value, before) ? '' : signed(shown.format(change), change)];
};

const fillOf = ({ branch }, shown, c) => {
	if (!branch) return c.none;
	const { fn, value, before } = branch;
	if (!shown.base) return c[originColor(shown.functions[fn])];
	if (isNoise(shown, value, before)) return c.none;
	return value > before ? c.more : c.less;
};

// The element `frame` scrolls over the boxes. Its canvas is only as large as the element, because a
// canvas for all boxes of deep stacks would be larger than browsers can draw.
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
	boxes = placeBoxes(treeOf(shown), shown.functions, frame.clientWidth);
	rowHeight = Math.round(rem() * 1.45);
	selected = Math.min(selected, boxes.length - 1);
	const rows = 1 + boxes.reduce((most, box) => Math.max(most, box.row), 0);
	frame.firstChild.style.height = rows * rowHeight + 4 + 'px';
	frame.style.height = paper.isOn ? Math.min(rows, MOST_PAPER_ROWS) * rowHeight + 4 + 'px' : '';
	canvas.dataset.boxes = boxes.length;
	drawBoxes();
};

function drawBoxes() {
	const { functions } = shown;
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
		const fn = box.branch?.fn;
		const isFound = shown.matches?.[fn];
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
		if (box.branch && fn === state.fn) outline(g, c.focus, 2, box, y);
		else if (isFound) outline(g, c.text, 1, box, y);
		const room = Math.floor((w - 8) / letter);
		if (room < 3) continue;
		const text = boxText(box, shown);
		const [name, number] = Array.isArray(text) ? text : [text, ''];
		const label =
			number && name.length + 2 + number.length <= room
				? `${name}  ${number}`
				: fitName(name, room);
		const style = functions[fn]?.inlined ? 'italic ' : '';
		g.font = `${style}${small}px ui-monospace, "DejaVu Sans Mono", monospace`;
		// the background shows through pale boxes
		g.fillStyle = box.above ? c.text : isPale ? c.muted : c.box;
		g.fillText(inOrder(label), box.x + (box.length > 1 ? 6 : 4), y + rowHeight / 2);
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
	if (!box.branch) return [`${count(box.hidden)} functions that are too small to draw`];
	const { functions, sums, base, format } = shown;
	const { fn, value, before, self } = box.branch;
	const f = functions[fn];
	const share = value / sums.sum;
	const lines = [f.full || f.name];
	if (box.length > 1) {
		lines.push(`… ${count(box.length)} frames, to ${functions[box.end.fn].name}`);
	}
	const off = (uncertainty(share, sums.events) * 100).toFixed(1);
	const interval = shown.measure === 'cpu' ? ` ± ${off}` : '';
	lines.push(
		`${format(value)}, ${percent(share, sums.events)}${interval} of ${format(sums.sum)}`,
	);
	if (base) {
		lines.push(
			`before: ${format(before)}` + (isNoise(shown, value, before) ? ' (within noise)' : ''),
		);
	}
	if (self !== undefined) lines.push(`self ${format(self)}`);
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
	if (!box?.branch) return;
	const { branch, end, length } = box;
	const { id, fn } = branch;
	if (length > 1) {
		const folded = pathTo(end).slice(-length);
		const unfolded = new Set([...state.unfolded, ...folded.map((each) => each.id)]);
		return update({ unfolded, fn });
	}
	const zoom = pathTo(branch).map((each) => each.id);
	return update({ zoom: state.zoom?.at(-1) === id ? null : zoom, fn });
};

// Selects the nearest box in the next row, or beside the selected box in the same row.
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
	const isOf = (box) => box.branch?.fn === fn;
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
