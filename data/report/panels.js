// SPDX-License-Identifier: BSD-2-Clause-Patent
// The call tree, waiting, memory, marks, and what the page knows about the recording.

import { eachAllocation, laneSums, liveHeap, waitPlaces } from './profile.js';
import { bar, el, nothing, originColor, swatch, virtualTable } from './dom.js';
import { bytes, byteStep, count, duration, percent, tickStep } from './format.js';
import { absence, filtersOf, madeOf, nothingHere, onGrid, range, state, threadChanges, timeOf, update } from './state.js';

// ---- call tree

// The hottest path is open, down to the first node without a callee that has most of its samples.
const hotPath = (stacks, sums) => {
	const hot = new Set([0]);
	for (let at = 0; ;) {
		let best = -1;
		for (let c = stacks.first[at]; c >= 0; c = stacks.next[c]) if (best < 0 || sums.total[c] > sums.total[best]) best = c;
		if (best < 0 || !(sums.total[best] > 0) || (at && sums.total[best] < 0.5 * sums.total[at])) return hot;
		hot.add(best);
		at = best;
	}
};

const MOST_TREE_ROWS = 20000;

const treeRows = ({ stacks, sums }) => {
	const hot = hotPath(stacks, sums), rows = [], work = [[0, 0]];
	const isOpen = (i) => i === 0 || (state.open.has(i) ? !hot.has(i) : hot.has(i));
	while (work.length && rows.length < MOST_TREE_ROWS) {
		const [i, level, place, size] = work.pop();
		const children = [];
		for (let c = stacks.first[i]; c >= 0; c = stacks.next[c]) if (sums.total[c] > 0) children.push(c);
		if (i) rows.push({ i, level, place, size, hasChildren: children.length > 0, isOpen: isOpen(i), isHot: hot.has(i) });
		if (!isOpen(i)) continue;
		children.sort((a, b) => sums.total[a] - sums.total[b] || b - a);
		children.forEach((c, k) => work.push([c, level + 1, children.length - k, children.length]));
	}
	return rows;
};

export const treePanel = (shown) => {
	const { stacks, sums, functions, format } = shown;
	if (!(sums.sum > 0)) return nothing(nothingHere());
	const rows = treeRows(shown);
	const toggle = (i) => {
		const open = new Set(state.open);
		if (!open.delete(i)) open.add(i);
		return open;
	};
	const table = virtualTable({
		label: 'Call tree', treegrid: true, rows: rows.length,
		columns: [{ title: '% of all', width: 5.5, number: true }, { title: '', width: 6 }, { title: 'Total', width: 6, number: true }, { title: 'Self', width: 6, number: true }, { title: 'Function', class: 'wide' }],
		onRow: (k) => update({ fn: stacks.func[rows[k].i], ...(rows[k].hasChildren ? { open: toggle(rows[k].i) } : {}) }),
		attributes: (k) => ({
			'aria-level': rows[k].level, 'aria-setsize': rows[k].size, 'aria-posinset': rows[k].place,
			'aria-expanded': rows[k].hasChildren ? String(rows[k].isOpen) : undefined,
			'aria-selected': stacks.func[rows[k].i] === state.fn ? 'true' : 'false',
		}),
		cells: (k) => {
			const { i, level, hasChildren, isOpen, isHot } = rows[k], f = functions[stacks.func[i]], found = shown.matches?.[stacks.func[i]];
			return [percent(sums.total[i] / sums.sum, sums.events), bar(sums.total[i] / sums.sum, shown.color), format(sums.total[i]), sums.self[i] ? format(sums.self[i]) : '–',
				el('span', { class: `name${isHot ? ' strong' : ''}${found ? ' found' : ''}`, title: f.full || f.name, style: { paddingLeft: Math.min(level - 1, 60) * 0.9 + 'rem' } },
					el('span', { class: 'twist' }, hasChildren ? (isOpen ? '▾' : '▸') : '·'), swatch(originColor(f)), f.name,
					el('span', { class: 'muted' }, `  ${f.library}${f.inlined ? ' · inlined' : ''}`))];
		},
	});
	return rows.length < MOST_TREE_ROWS ? table : el('div', { class: 'column' }, el('p', { class: 'note' }, `Only the first ${count(MOST_TREE_ROWS)} rows are shown. Close branches, or run the copied command.`), table);
};

// ---- waiting

const CAUSE_COLORS = { futex: 'lock', file: 'io', network: 'io', pipe: 'io', fault: 'io' };

const placesTable = () => {
	const { data } = state, [from, to] = range();
	const all = waitPlaces(data, { from, to: to === data.duration ? Infinity : to, thread: state.thread });
	const intended = all.filter((place) => place.isIntended), rows = [...all.filter((place) => !place.isIntended), ...(intended.length ? [null, ...intended] : [])];
	const most = all.reduce((high, { ns }) => Math.max(high, ns), 0);
	if (!all.length) return nothing(`No waits${state.range || state.thread !== null ? ' here' : ''}.`);
	return virtualTable({
		label: 'Places', rows: rows.length,
		columns: [{ title: 'Waited', width: 6.5, number: true }, { title: '', width: 5 }, { title: 'Waits', width: 6, number: true }, { title: 'For', width: 11 }, { title: 'In', class: 'wide' }],
		onRow: (i) => rows[i]?.owner >= 0 && update({ fn: rows[i].owner, tab: 'functions', measure: 'wait', zoom: null }),
		cells: (i) => {
			if (!rows[i]) return ['', '', '', el('span', { class: 'muted' }, 'usually intended:'), ''];
			const { ns, waits, cause, call, owner } = rows[i], f = owner >= 0 ? data.functions[owner] : null, color = (!rows[i].isIntended && CAUSE_COLORS[cause]) || 'muted';
			return [duration(ns), bar(ns / most, color), count(waits), [swatch(color), call || (cause === 'other' ? 'something else' : cause)],
				el('span', { class: 'name', title: f?.full || f?.name }, f ? f.name : 'no function of the program', el('span', { class: 'muted' }, f?.file ? `  ${f.file.split('/').pop()}${f.line ? ':' + f.line : ''}` : ''))];
		},
	});
};

// Returns the visible rows of the critical path: branches with a tenth of the time are open.
const pathRows = (nodes) => {
	const children = [[], ...nodes.map(() => [])], rows = [], whole = nodes.reduce((sum, [parent, , , ns]) => sum + (parent ? 0 : ns), 0);
	nodes.forEach(([parent], i) => children[parent].push(i + 1));
	const add = (i, level) => {
		const byTime = [...children[i]].sort((a, b) => nodes[b - 1][3] - nodes[a - 1][3] || a - b);
		byTime.forEach((c, k) => {
			const [, name, place, ns] = nodes[c - 1], isOpen = ns >= 0.1 * whole !== state.openPath.has(c);
			rows.push({ i: c, name, place, ns, share: ns / whole, level, at: k + 1, size: byTime.length, hasChildren: children[c].length > 0, isOpen });
			if (isOpen) add(c, level + 1);
		});
	};
	add(0, 1);
	return rows;
};

const pathTable = () => {
	const { path, capture } = state.data, rows = pathRows(path.nodes);
	const toggle = (i) => {
		const open = new Set(state.openPath);
		if (!open.delete(i)) open.add(i);
		return open;
	};
	return [el('h2', {}, `Critical path of ${path.comm} ${path.tid}`, el('small', {}, ' what its time consisted of: below a wait is what the thread did that ended it')),
		virtualTable({
			label: 'Critical path', treegrid: true, rows: rows.length,
			columns: [{ title: '%', width: 5.5, number: true }, { title: '', width: 5 }, { title: 'Time', width: 6.5, number: true }, { title: 'What', class: 'wide' }],
			onRow: (k) => rows[k].hasChildren && update({ openPath: toggle(rows[k].i) }, { keep: false }),
			attributes: (k) => ({
				'aria-level': rows[k].level, 'aria-setsize': rows[k].size, 'aria-posinset': rows[k].at,
				'aria-expanded': rows[k].hasChildren ? String(rows[k].isOpen) : undefined,
			}),
			cells: (k) => {
				const { name, place, ns, share, level, hasChildren, isOpen } = rows[k];
				return [percent(share, Infinity), bar(share, 'run'), duration(ns), el('span', { class: 'name', title: name, style: { paddingLeft: Math.min(level - 1, 60) * 0.9 + 'rem' } },
					el('span', { class: 'twist' }, hasChildren ? (isOpen ? '▾' : '▸') : '·'), name, el('span', { class: 'muted' }, place ? `  ${place}` : ''))];
			},
		}),
		el('p', { class: 'note' }, `It is of ${path.is_whole ? 'the whole recording' : 'the time that this page was made of'}, whatever is selected; profcapture critical-path ${capture.file_word} has --from, --to, --tid and --mark. Branches below ${path.least_pct} % are left out.`
			+ (path.samples ? ` Which functions ran is estimated from ${count(path.samples)} samples.` : ' There is no sample, so it is unknown which functions ran.'))];
};

export const waitingPanel = () => el('div', { class: 'split' }, threadsTable(),
	el('div', { class: 'column' }, state.data.has_waits ? [placesTable(), state.data.wait_notes.map((note) => el('p', { class: 'note' }, note)), state.data.path ? pathTable() : null]
		: state.data.capture.metric ? nothing('The waits are part of all numbers of this page.') : nothing(...absence('wait', 'Where threads waited was', 'profctl record --off-cpu'))));

const threadsTable = () => {
	const { data } = state, [from, to] = madeOf(range());
	if (!data.hasSlices) return nothing(...absence('switches', 'When threads ran and waited was', 'profctl record (without --no-switches)'));
	const rows = data.lanes.filter((lane) => lane.n && (state.thread === null || lane.index === state.thread)).map((lane) => ({ lane, sums: laneSums(lane, from, to) }))
		.filter(({ sums }) => sums.some((v) => v > 0)).sort((a, b) => b.sums[2] - a.sums[2] || a.lane.index - b.lane.index);
	const life = (sums) => sums.reduce((all, v) => all + v, 0);
	return el('div', { class: 'column' },
		virtualTable({
			label: 'Threads', rows: rows.length,
			columns: [{ title: [swatch('idle'), 'Waited'], width: 7, number: true }, { title: [swatch('ready'), 'Ready'], width: 7, number: true }, { title: [swatch('run'), 'Ran'], width: 7, number: true }, { title: '% ran', width: 6, number: true }, { title: '', width: data.has_waits ? 6 : 12 }, { title: 'Thread', class: 'wide' }],
			onRow: (i) => update(threadChanges(rows[i].lane.index)),
			attributes: (i) => ({ 'aria-selected': rows[i].lane.index === state.thread ? 'true' : 'false' }),
			cells: (i) => {
				const { lane, sums } = rows[i], all = life(sums);
				return [duration(sums[2]), sums[1] ? duration(sums[1]) : '–', duration(sums[0]), percent(sums[0] / all, 1e6),
					el('span', { class: 'stack' }, ['run', 'ready', 'idle'].map((name, kind) => el('span', { style: { width: (sums[kind] / all) * 100 + '%', background: `var(--${name})` } }))),
					`${lane.name} ${lane.tid}`];
			},
		}),
		el('p', { class: 'note' }, data.has_wakeups ? 'Ready: able to run, but no CPU was free.' : 'Wake-ups were not recorded: a thread that was woken counts as waiting until it runs.'));
};

// ---- memory

const STACK_COLORS = 7;

const HEAP_BINS = 480;

const heapCurve = (live) => {
	const { data } = state, [from, to] = range(), svg = (tag, attributes, text) => {
		const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
		for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
		if (text) element.textContent = text;
		return element;
	};
	const width = 640, height = 300, left = 70, top = 24, most = Math.max(1, live.all[live.peak]);
	const x = (bin) => left + (bin / live.bins) * (width - left - 8), y = (v) => top + (1 - v / most) * (height - top - 24);
	const root = svg('svg', { viewBox: `0 0 ${width} ${height}`, class: 'heap', role: 'img', 'aria-label': 'Live heap over time. The table shows the same by function.' });
	for (let value = 0, step = byteStep(most, 5); value <= most; value += step) {
		root.append(svg('line', { x1: left, x2: width - 8, y1: y(value), y2: y(value), class: 'grid' }));
		root.append(svg('text', { x: left - 6, y: y(value) + 4, 'text-anchor': 'end' }, bytes(value)));
	}
	const owners = live.byOwner.slice(0, STACK_COLORS - 1), below = new Float64Array(live.bins);
	const others = live.all.map((v, i) => v - owners.reduce((sum, [, line]) => sum + line[i], 0));
	[...owners, [-2, others]].forEach(([, line], k) => {
		const up = [], down = [];
		for (let i = 0; i < live.bins; i++) {
			down.push(`${x(i).toFixed(1)} ${y(below[i]).toFixed(1)}`);
			below[i] += Math.max(0, line[i]);
			up.push(`${x(i).toFixed(1)} ${y(below[i]).toFixed(1)}`);
		}
		const area = svg('path', { d: `M${up.join('L')}L${down.reverse().join('L')}Z` });
		area.style.fill = `var(--stack${k})`;
		root.append(area);
	});
	const at = x(live.peak);
	root.append(svg('line', { x1: at, x2: at, y1: top - 6, y2: height - 24, class: 'peak' }));
	const peak = !state.range && state.thread === null ? data.live.peak : { ns: from + live.peak * live.width, bytes: live.all[live.peak] };
	root.append(svg('text', { x: at, y: 12, 'text-anchor': at > width * 0.7 ? 'end' : at < width * 0.3 ? 'start' : 'middle', class: 'strong' }, `peak ${state.thread === null ? '' : 'at least '}${bytes(peak.bytes)} at ${timeOf(peak.ns, to - from)}`));
	for (let step = tickStep(to - from, 6), t = Math.ceil(from / step) * step, first = t; t <= to; t += step) root.append(svg('text', { x: x((t - from) / live.width), y: height - 6, 'text-anchor': t - from > 0.97 * (to - from) ? 'end' : 'middle' }, `${+(t / 1e9).toPrecision(6)}${t === first ? '\u00a0s' : ''}`));
	return root;
};

// Returns the sums of the range by owner and by size, and those that the runtime keeps.
const memorySums = () => {
	const { data } = state, a = data.allocations, [from, to] = range(), owners = new Map(), sizes = new Map(), runtime = { bytes: 0, blocks: 0 };
	const of = (map, key) => {
		let sums = map.get(key);
		if (!sums) map.set(key, (sums = { key, live: 0, bytes: 0, blocks: 0, brief: 0 }));
		return sums;
	};
	eachAllocation(data, { from, to: to === data.duration ? Infinity : to, thread: state.thread }, (i, isKept, isRuntime) => {
		for (const sums of [of(owners, data.stacks.owner[a.stack[i]]), of(sizes, a.size[i])]) {
			sums.bytes += a.bytes[i];
			sums.blocks += a.blocks[i];
			sums.brief += a.brief[i];
			if (isKept) sums.live += a.bytes[i];
		}
		if (!isRuntime) return;
		runtime.bytes += a.bytes[i];
		runtime.blocks += a.blocks[i];
	});
	return { owners: [...owners.values()].sort((p, q) => q.live - p.live || q.bytes - p.bytes || p.key - q.key), sizes: [...sizes.values()].sort((p, q) => p.key - q.key), runtime };
};

const SUM_COLUMNS = [{ title: 'Not freed', width: 6.5, number: true }, { title: '', width: 4 }, { title: 'Allocated', width: 6.5, number: true }, { title: 'Blocks', width: 7, number: true }, { title: '< 100 µs', width: 6.5, number: true }];
const sumCells = (row, most) => [row.live ? bytes(row.live) : '–', bar(row.live / most, 'heap'), bytes(row.bytes), count(row.blocks), percent(row.brief / row.blocks, row.blocks)];

export const memoryPanel = () => {
	const { data } = state;
	if (!data.live) return nothing(...absence('alloc', 'Allocations were', 'profctl record --memory -- COMMAND'));
	const { owners, sizes, runtime } = memorySums(), [from, to] = range(), live = liveHeap(data, { from, to, thread: state.thread }, HEAP_BINS);
	const most = Math.max(1, ...owners.map((row) => row.live)), largest = Math.max(1, ...sizes.map((row) => row.live)), order = new Map(live.byOwner.map(([owner], i) => [owner, Math.min(i, STACK_COLORS - 1)]));
	const sum = (key) => owners.reduce((all, row) => all + row[key], 0);
	return el('div', { class: 'split' },
		el('div', { class: 'column' }, el('h2', {}, 'Live heap ', el('small', {}, 'by the innermost function of the program')), heapCurve(live),
			el('p', { class: 'note' }, state.thread === null ? 'The largest size in each part of the time. Blocks that live shorter than a part count with the others.' : `Blocks of the selected thread at the end of each ${duration(live.width)}.`)),
		el('div', { class: 'column' },
			el('h2', {}, `${bytes(sum('live'))} not freed at exit `, el('small', {}, `of ${bytes(sum('bytes'))} in ${count(sum('blocks'))} blocks${state.range ? ' of the range' : ''}` + (data.sample_interval ? `; estimated, 1 sample per ${bytes(data.sample_interval)}` : ''))),
			virtualTable({
				label: 'Allocating functions', rows: owners.length, columns: [...SUM_COLUMNS, { title: 'Function', class: 'wide' }],
				onRow: (i) => owners[i].key >= 0 && update({ fn: owners[i].key, tab: 'functions', measure: 'alloc' }),
				cells: (i) => {
					const row = owners[i], f = row.key >= 0 ? data.functions[row.key] : null;
					return [...sumCells(row, most),
						el('span', { class: 'name', title: f?.full || f?.name }, swatch('stack' + (order.get(row.key) ?? STACK_COLORS - 1)), f ? f.name : 'no function of the program', el('span', { class: 'muted' }, f?.file ? `  ${f.file.split('/').pop()}${f.line ? ':' + f.line : ''}` : ''))];
				},
			}),
			el('h2', {}, 'Sizes'),
			virtualTable({
				label: 'Sizes', rows: sizes.length, columns: [...SUM_COLUMNS, { title: 'Bytes of a block', class: 'wide' }],
				cells: (i) => [...sumCells(sizes[i], largest), sizes[i].key ? `from ${bytes(2 ** (sizes[i].key - 1))}` : '0'],
			}),
			runtime.blocks ? el('p', { class: 'note' }, `Not counted as not freed: ${bytes(runtime.bytes)} in ${count(runtime.blocks)} blocks that runtimes keep until exit (profcapture memory --no-suppressions).`) : null));
};

// ---- marks

const quantile = (sorted, q) => sorted[Math.min(sorted.length - 1, Math.max(0, Math.ceil(q * sorted.length) - 1))];

// A mark counts, with its whole length, where it begins, as in `marks`.
const marksInRange = () => {
	const m = state.data.marks, unit = state.data.mark_unit_ns, [from, end] = range(), to = end === state.data.duration ? Infinity : end;
	return state.data.marksOf.map((rows) => Array.from(rows).filter((i) => m.time[i] * unit < to && m.time[i] * unit >= from && (state.thread === null || m.thread[i] === state.thread)));
};

export const marksPanel = () => {
	const { data } = state, m = data.marks, unit = data.mark_unit_ns;
	if (!m.rows) return nothing(...absence('marks', 'Marks were', 'prof_mark_begin() in the program, see the manual'));
	const lists = marksInRange();
	const rows = lists.map((list, name) => ({ name, list, lengths: list.map((i) => m.length[i]).sort((a, b) => a - b) })).filter(({ list }) => list.length)
		.sort((a, b) => b.lengths.reduce((s, v) => s + v, 0) - a.lengths.reduce((s, v) => s + v, 0));
	const table = virtualTable({
		label: 'Marks', rows: rows.length,
		columns: [{ title: 'Count', width: 6, number: true }, { title: 'Total', width: 6.5, number: true }, { title: 'Median', width: 6.5, number: true }, { title: 'p95', width: 6.5, number: true }, { title: 'p99', width: 6.5, number: true }, { title: 'Longest', width: 6.5, number: true }, { title: 'Mark', class: 'wide' }],
		onRow: (i) => update({ mark: rows[i].name }),
		attributes: (i) => ({ 'aria-selected': rows[i].name === state.mark ? 'true' : 'false' }),
		cells: (i) => {
			const { lengths, name } = rows[i], mark = data.mark_names[name];
			const took = (ns) => (lengths[lengths.length - 1] ? duration(ns) : '–'); // marks without an end are instants
			// the longest marks of each name are here, so without the others the numbers are limits
			const [least, most] = data.marksOf[name].length < mark.count ? ['≥ ', '≤ '] : ['', ''];
			return [least + count(lengths.length), least + took(lengths.reduce((s, v) => s + v, 0)), ...[0.5, 0.95, 0.99].map((q) => most + took(quantile(lengths, q))), took(lengths[lengths.length - 1]), (mark.group ? mark.group + ': ' : '') + mark.name];
		},
	});
	const chosen = rows.find(({ name }) => name === state.mark) || rows[0];
	if (!chosen) return nothing('No marks in this range.');
	const longest = chosen.list.slice().sort((a, b) => m.length[b] - m.length[a] || m.time[a] - m.time[b]).slice(0, 500), [from, to] = range();
	const waterfall = virtualTable({
		label: 'Longest', rows: longest.length,
		columns: [{ title: 'Begin', width: 7, number: true }, { title: 'Took', width: 6.5, number: true }, { title: 'Thread', width: 12 }, { title: '', class: 'wide' }],
		onRow: (k) => {
			const begin = m.time[longest[k]] * unit;
			update({ range: onGrid([begin, begin + m.length[longest[k]]]) });
		},
		cells: (k) => {
			const i = longest[k], begin = m.time[i] * unit, thread = data.threads[m.thread[i]];
			return [timeOf(begin, data.duration), duration(m.length[i]), `${thread.name} ${thread.tid}`,
				el('span', { class: 'bar', style: { marginLeft: Math.max(0, ((begin - from) / (to - from)) * 100) + '%', width: Math.max(0.2, ((m.length[i]) / (to - from)) * 100) + '%', background: 'var(--mark)' } })];
		},
	});
	const mark = data.mark_names[chosen.name];
	const note = data.mark_names.some(({ count: all }, name) => data.marksOf[name].length < all) && el('p', { class: 'note' }, `Only the longest ${count(m.rows)} of ${count(data.mark_names.reduce((all, each) => all + each.count, 0))} marks are here: counts are too low (≥), and lengths too high (≤). profcapture marks counts all.`);
	return el('div', { class: 'split' }, note ? el('div', { class: 'column' }, note, table) : table, el('div', { class: 'column' }, el('h2', {}, mark.name, el('small', {}, longest.length < chosen.list.length ? ` the longest ${count(longest.length)} of ${count(chosen.list.length)}` : ' by length; click: its time becomes the range')), waterfall));
};

// ---- about

// Options are recorded as JSON.
const factOf = (value) => {
	try {
		return Object.entries(JSON.parse(value)).map(([key, of]) => `${key}: ${typeof of === 'string' ? of : JSON.stringify(of)}`).join(', ') || value;
	} catch {
		return value;
	}
};

export const aboutPanel = () => {
	const { capture, notes } = state.data, filters = filtersOf(state.data);
	return el('div', { class: 'scroll' },
		filters ? [el('h2', {}, 'Selection'), el('p', { class: 'note' }, 'The page was made with ', el('code', {}, filters), '.')] : null,
		notes.length ? [el('h2', {}, 'What this page leaves out'), el('ul', {}, notes.map((note) => el('li', {}, note)))] : null,
		el('h2', {}, 'Recording'), el('dl', {}, capture.facts.map(([key, value]) => [el('dt', {}, key), el('dd', {}, factOf(value))]).flat()),
		el('h2', {}, 'Lost'), capture.losses.length ? el('ul', {}, capture.losses.map((loss) => el('li', {}, loss.text)))
			: el('p', { class: 'note' }, capture.state === 'finished' ? 'Nothing was lost.' : `The capture is ${capture.state}: how much is missing is unknown.`),
		el('h2', {}, 'Times'), el('p', { class: 'note' }, `Times of samples are rounded down to ${duration(state.data.sample_unit_ns)}.`));
};

