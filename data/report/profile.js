// SPDX-License-Identifier: BSD-2-Clause-Patent
// Sums over a range of time: by stack, by function, and by callee of a function.

import { indexStacks, lowerBound } from './data.js';

// Groups stacks by process or thread: each group has its own root, below which are copies of the
// stacks that occur in the group. Returns a table of stacks, with the row of each event.
const splitStacks = (data, keyOf, labelOf) => {
	const { stacks } = data;
	const functions = data.functions;
	const parent = [0];
	const func = [0];
	const known = new Map();
	const roots = new Map();
	const source = [0];
	const row = (thread, stack) => {
		const key = keyOf(thread);
		if (stack === 0) {
			let root = roots.get(key);
			if (root === undefined) {
				roots.set(key, (root = parent.length));
				functions.push({
					name: labelOf(thread),
					origin: 'unknown',
					kind: 'task',
					image: '',
					library: '',
				});
				parent.push(0);
				func.push(functions.length - 1);
				source.push(0);
			}
			return root;
		}
		const id = key * stacks.n + stack;
		let at = known.get(id);
		if (at === undefined) {
			const above = row(thread, stacks.parent[stack]);
			known.set(id, (at = parent.length));
			parent.push(above);
			func.push(stacks.func[stack]);
			source.push(stack);
		}
		return at;
	};
	const map = (table) => {
		const rows = new Uint32Array(table.rows);
		for (let i = 0; i < table.rows; i++) rows[i] = row(table.thread[i], table.stack[i]);
		return rows;
	};
	const rowsOf = {
		samples: map(data.samples),
		allocations: map(data.allocations),
		within: map(data.waits.within),
		across: map(data.waits.across),
	};
	return {
		...indexStacks(Uint32Array.from(parent), Uint32Array.from(func), functions),
		rowsOf,
		source,
	};
};

export const GROUPS = ['merged', 'process', 'thread'];

// Returns the table without the stacks and functions that filters leave out, as report does: the
// self time of a hidden function counts for its caller. `place` has the new row of each old one;
// -1: left out.
const filterStacks = (table, functions, filters) => {
	const { focus, ignore, hide } = filters;
	const isFocus = functions.map((f) => focus.has(f.full || f.name));
	const isIgnored = functions.map((f) => ignore.has(f.full || f.name));
	const isHidden = functions.map((f) => hide.has(f.full || f.name));
	const [parent, func] = [[0], [0]];
	const known = new Map();
	const place = new Int32Array(table.n);
	const isKept = new Uint8Array(table.n);
	isKept[0] = focus.size ? 0 : 1;
	const below = (above, f) => {
		const key = above * functions.length + f;
		if (!known.has(key)) {
			known.set(key, parent.length);
			parent.push(above);
			func.push(f);
		}
		return known.get(key);
	};
	const isLeftOut = new Uint8Array(table.n);
	for (let i = 1; i < table.n; i++) {
		const above = table.parent[i];
		const f = table.func[i];
		isLeftOut[i] = isLeftOut[above] || isIgnored[f] ? 1 : 0;
		isKept[i] = isKept[above] || isFocus[f] ? 1 : 0;
		place[i] = isHidden[f] ? place[above] : below(place[above], f);
	}
	for (let i = 0; i < table.n; i++) {
		if (isLeftOut[i] || !isKept[i] || (i && !place[i])) place[i] = -1;
	}
	return {
		...indexStacks(Uint32Array.from(parent), Uint32Array.from(func), functions),
		rowsOf: table.rowsOf,
		place,
	};
};

let filtered = { key: '' };
// Returns the table of stacks, grouped by `group`. `filters`: sets of names by filter, or null.
export const stacksOf = (data, group, filters) => {
	const table = groupedStacks(data, group);
	if (!filters) return table;
	const key = [group, ...Object.values(filters).map((names) => [...names].join('\n'))].join(
		'\n\n',
	);
	if (filtered.key !== key) {
		filtered = { key, table: filterStacks(table, data.functions, filters) };
	}
	return filtered.table;
};

const cache = new Map();
const groupedStacks = (data, group) => {
	if (cache.has(group)) return cache.get(group);
	let table;
	if (group === 'merged') {
		table = {
			...data.stacks,
			rowsOf: {
				samples: data.samples.stack,
				allocations: data.allocations.stack,
				within: data.waits.within.stack,
				across: data.waits.across.stack,
			},
		};
	} else if (group === 'process') {
		const processOf = (t) => data.processes[data.threads[t].process];
		table = splitStacks(
			data,
			(t) => processOf(t).same ?? data.threads[t].process,
			(t) => processOf(t).name,
		);
	} else {
		table = splitStacks(
			data,
			(t) => data.threads[t].same ?? t,
			(t) =>
				data.compare
					? data.threads[t].name
					: `${data.threads[t].name} (${data.threads[t].tid})`,
		);
	}
	cache.set(group, table);
	return table;
};

// Returns the first row of a table of samples at or after a time.
const rowAt = (s, ns) => lowerBound(s.time, Math.ceil(ns / s.unit), s.rows);

// Adds the samples of [from, to) in a table to `self`, whose values are 0. Returns the number of
// samples.
const addSamples = (s, rows, { from, to, thread, place }, self) => {
	const begin = rowAt(s, from);
	const end = rowAt(s, to);
	const { weight, count, each } = s;
	let events = 0;
	for (let i = begin; i < end; i++) {
		if ((thread !== null && s.thread[i] !== thread) || place?.[rows[i]] < 0) continue;
		self[rows[i]] += weight[i] * each;
		events += count[i];
	}
	return events;
};

// For each wait across cells of the time grid (prepareWaits() in data.js), calls `add` with the
// wait's row, and with the begin and the end of the part of the wait in [from, to).
const eachAcross = (data, { from, to, thread }, add) => {
	const { begin, length, rows, thread: of } = data.waits.across;
	for (let i = 0, n = lowerBound(begin, to, rows); i < n; i++) {
		const end = Math.min(begin[i] + length[i], to);
		if (end > from && (thread === null || of[i] === thread)) {
			add(i, Math.max(begin[i], from), end);
		}
	}
};

// Adds the parts of waits in [from, to). Returns the number of these waits.
const addWaits = (data, rowsOf, scope, self) => {
	let events = addSamples(data.waits.within, rowsOf.within, scope, self);
	eachAcross(data, scope, (i, begin, end) => {
		if (scope.place?.[rowsOf.across[i]] < 0) return;
		self[rowsOf.across[i]] += end - begin;
		events++;
	});
	return events;
};

// Kinds of blocks; 0: freed. KEPT: not freed before the process or the recording ended. RUNTIME:
// not freed either, but in a pool of the runtime, which `profcapture memory` omits. EARLIER:
// allocated before the time range of the page.
const [KEPT, RUNTIME, EARLIER] = [1, 2, 3];

// For each row of blocks that were allocated in [from, to), calls `add` with the row, whether it is
// KEPT, and whether it is RUNTIME.
export const eachAllocation = (data, { from, to, thread }, add) => {
	const a = data.allocations;
	const scale = data.allocation_unit_ns;
	for (let i = 0; i < a.rows; i++) {
		const time = a.time[i] * scale;
		if (
			time >= from &&
			time < to &&
			a.kind[i] !== EARLIER &&
			(thread === null || a.thread[i] === thread)
		) {
			add(i, a.kind[i] === KEPT, a.kind[i] === RUNTIME);
		}
	}
};

// Adds the blocks that were allocated in [from, to); with `live`, only those that were KEPT.
const addAllocations = (data, rows, scope, self, live) => {
	const a = data.allocations;
	let events = 0;
	eachAllocation(data, scope, (i, isKept) => {
		if (live && !isKept) return;
		self[rows[i]] += a.bytes[i];
		events += a.blocks[i];
	});
	return events;
};

// Returns { self, total } by stack, { fnSelf, fnTotal } by function, their sum, and the number of
// samples, waits or blocks. A recursive function counts once.
export const aggregate = (data, stacks, measure, range) => {
	const { place } = stacks;
	const scope = { ...range, place };
	let self = new Float64Array(place ? place.length : stacks.n);
	const total = new Float64Array(stacks.n);
	const fnSelf = new Float64Array(data.functions.length);
	const fnTotal = new Float64Array(data.functions.length);
	const events =
		measure === 'cpu'
			? addSamples(data.samples, stacks.rowsOf.samples, scope, self)
			: measure === 'wait'
				? addWaits(data, stacks.rowsOf, scope, self)
				: addAllocations(data, stacks.rowsOf.allocations, scope, self, measure === 'live');
	if (place) {
		const old = self;
		self = new Float64Array(stacks.n);
		for (let i = 0; i < old.length; i++) if (place[i] >= 0) self[place[i]] += old[i];
	}
	total.set(self);
	for (let i = stacks.n - 1; i > 0; i--) total[stacks.parent[i]] += total[i];
	for (let i = 1; i < stacks.n; i++) {
		fnSelf[stacks.func[i]] += self[i];
		if (stacks.outer[i]) fnTotal[stacks.func[i]] += total[i];
	}
	return { self, total, fnSelf, fnTotal, sum: total[0], events };
};

// Returns the weight at each place in the code, and the number of samples.
export const placeSums = (data, scope) => {
	const weight = new Float64Array(data.places.size);
	return { weight, events: addSamples(data.places, data.places.place, scope, weight) };
};

// Returns the sum over all samples with a matching function in the stack. Each sample counts once.
export const matchingSum = (stacks, sums, matches) => {
	const inside = new Uint8Array(stacks.n);
	let found = 0;
	for (let i = 1; i < stacks.n; i++) {
		inside[i] = inside[stacks.parent[i]] || matches[stacks.func[i]] ? 1 : 0;
		if (inside[i]) found += sums.self[i];
	}
	return found;
};

// Returns the callers and callees of a function: [function or -1, weight], the largest first. In a
// recursion, callees of each frame count, but callers only of the outermost frame.
export const neighbors = (stacks, sums, f) => {
	const callers = new Map();
	const callees = new Map();
	const add = (map, key, value) => value > 0 && map.set(key, (map.get(key) || 0) + value);
	for (let i = 1; i < stacks.n; i++) {
		if (stacks.func[i] !== f || !sums.total[i]) continue;
		const above = stacks.parent[i];
		if (stacks.outer[i]) add(callers, above ? stacks.func[above] : -1, sums.total[i]);
		for (let c = stacks.first[i]; c >= 0; c = stacks.next[c]) {
			if (stacks.func[c] !== f) add(callees, stacks.func[c], sums.total[c]);
		}
	}
	const sorted = (map) => [...map].sort((a, b) => b[1] - a[1] || a[0] - b[0]);
	return { callers: sorted(callers), callees: sorted(callees) };
};

export const MOST_HISTOGRAMS = 31; // each function is a bit of a 32-bit number

// Returns when each of a few functions ran, or waited: its weight in `bins` equal parts of the
// range. Sums up samples by the set of these functions in their stacks.
export const histograms = (data, stacks, functions, measure, { from, to, thread }, bins) => {
	const s = measure === 'wait' ? data.waits.within : data.samples;
	const rows = measure === 'wait' ? stacks.rowsOf.within : stacks.rowsOf.samples;
	const { parent, func, place } = stacks;
	const rowOf = (old) => (place ? place[old] : old);
	const bit = new Int32Array(data.functions.length);
	functions.forEach((f, k) => (bit[f] = 1 << k));
	const setOf = new Int32Array(stacks.n);
	const idOf = new Uint32Array(stacks.n);
	const ids = new Map([[0, 0]]);
	for (let i = 1; i < stacks.n; i++) {
		const above = parent[i];
		const set = setOf[above] | bit[func[i]];
		setOf[i] = set;
		if (set === setOf[above]) idOf[i] = idOf[above];
		else if (ids.has(set)) idOf[i] = ids.get(set);
		else ids.set(set, (idOf[i] = ids.size));
	}
	const begin = rowAt(s, from);
	const end = rowAt(s, to);
	const sums = new Float64Array(ids.size * bins);
	const start = from / s.unit;
	const perUnit = (s.unit * bins) / (to - from);
	for (let i = begin; i < end; i++) {
		const row = rowOf(rows[i]);
		if ((thread !== null && s.thread[i] !== thread) || row < 0) continue;
		sums[idOf[row] * bins + Math.min(bins - 1, ((s.time[i] - start) * perUnit) | 0)] +=
			s.weight[i] * s.each;
	}
	if (measure === 'wait') {
		const width = (to - from) / bins;
		eachAcross(data, { from, to, thread }, (i, low, high) => {
			const row = rowOf(stacks.rowsOf.across[i]);
			if (row < 0) return;
			const at = idOf[row] * bins;
			let bin = Math.floor((low - from) / width);
			for (let now = low; now < high && bin < bins; bin++) {
				const until = bin === bins - 1 ? high : Math.min(high, from + (bin + 1) * width);
				sums[at + bin] += until - now;
				now = until;
			}
		});
	}
	return new Map(
		functions.map((f, k) => {
			const all = new Float64Array(bins);
			for (const [set, id] of ids) {
				if (set & (1 << k)) {
					for (let bin = 0; bin < bins; bin++) all[bin] += sums[id * bins + bin];
				}
			}
			return [f, all];
		}),
	);
};

// Returns how long a lane was in each state in [from, to), in ns, in the order of KINDS.
export const laneSums = (lane, from, to) => {
	const begin = lowerBound(lane.to, from);
	const end = Math.max(begin, lowerBound(lane.from, to));
	const sums = lane.before.map((before) => before[end] - before[begin]);
	const cut = (i, ns) =>
		(sums[lane.kind[i]] -= (lane.amount[i] * ns) / Math.max(1, lane.to[i] - lane.from[i]));
	for (let i = begin; i < end && lane.from[i] < from; i++) {
		cut(i, Math.min(from, lane.to[i]) - lane.from[i]);
	}
	for (let i = end - 1; i >= begin && lane.to[i] > to; i--) cut(i, lane.to[i] - to);
	return sums.map((sum) => Math.max(0, sum));
};

// Returns the weights of the samples in equal parts of [from, to).
export const partSums = (data, { from, to, thread }, parts) => {
	const s = data.samples;
	const sums = new Float64Array(parts);
	const at = (part) => rowAt(s, from + ((to - from) * part) / parts);
	if (thread !== null) {
		for (let i = at(0), end = at(parts), width = (to - from) / parts; i < end; i++) {
			if (s.thread[i] === thread) {
				sums[Math.min(parts - 1, Math.floor((s.time[i] * s.unit - from) / width))] +=
					s.weight[i] * s.each;
			}
		}
		return sums;
	}
	if (!s.before) {
		// the sum before each row, so that a range needs no pass over its rows
		s.before = new Float64Array(s.rows + 1);
		for (let i = 0; i < s.rows; i++) s.before[i + 1] = s.before[i] + s.weight[i] * s.each;
	}
	for (let part = 0; part < parts; part++) {
		sums[part] = s.before[at(part + 1)] - s.before[at(part)];
	}
	return sums;
};

// Returns the weights of the samples of each thread in [from, to).
export const threadWeights = (data, from, to) => {
	const s = data.samples;
	const sums = new Float64Array(data.threads.length);
	for (let i = rowAt(s, from), end = rowAt(s, to); i < end; i++) {
		sums[s.thread[i]] += s.weight[i] * s.each;
	}
	return sums;
};

// Calls `add` with the stack, the begin and the end of each part of a lane's waits in [from, to).
// The begins of waits in data.waits.within are multiples of the time unit.
export const eachWait = (data, lane, from, to, add) => {
	const { within, across, withinOf, acrossOf } = data.waits;
	for (const i of acrossOf[lane.index]) {
		if (across.begin[i] >= to) break;
		const end = Math.min(to, across.begin[i] + across.length[i]);
		if (end > from) add(across.stack[i], Math.max(from, across.begin[i]), end);
	}
	for (const i of withinOf[lane.index]) {
		const begin = within.time[i] * within.unit;
		if (begin >= to) break;
		if (begin >= from) add(within.stack[i], begin, begin + within.weight[i]);
	}
};

const INTENDED = new Set(['timer', 'poll', 'process']);
const PAUSES = [
	[/^_*(pthread_cond_|cnd_)/, 'condition'],
	[/^_*(pthread_(timed|clock)?join|thrd_join)/, 'join'],
];

const GIL = /^(take_gil|PyCOND_TIMEDWAIT)$/;

// Returns for each stack the index + 1 of its pause (PAUSES); 0: none. A futex without a pause is a
// lock. Python waits for its interpreter lock with a condition variable, but that is a lock, too.
export const pausesOf = (data) => {
	const { stacks, functions } = data;
	if (stacks.pauses) return stacks.pauses;
	const pauseOf = functions.map((f) => 1 + PAUSES.findIndex(([pattern]) => pattern.test(f.name)));
	const hasGil = functions.map((f) => f.image.startsWith('[python ') || GIL.test(f.name));
	stacks.pauses = new Uint8Array(stacks.n);
	for (let i = 1; i < stacks.n; i++) {
		const parent = stacks.parent[i];
		const pause = pauseOf[stacks.func[i]];
		const caller = parent ? stacks.func[parent] : -1;
		if (!pause || pauseOf[caller]) stacks.pauses[i] = stacks.pauses[parent];
		else if (!hasGil[caller]) stacks.pauses[i] = pause;
	}
	return stacks.pauses;
};

const newPlace = ({ stacks, wait_calls: calls }, stack, pause) => {
	const { cause, call } = calls[stacks.cause[stack] - 1] || { cause: 'unknown', call: null };
	return {
		cause,
		call: pause ? `${call}, ${PAUSES[pause - 1][1]}` : call,
		isIntended: !!pause || INTENDED.has(cause),
		owner: stacks.owner[stack],
		ns: 0,
		waits: 0,
		lengths: [], // length of each row's wait; if a row has several waits, their mean
		counts: [], // number of waits of each row
		longest: 0,
		longestAt: null, // [begin, end] of the whole wait
		mostMerged: 0, // the longest waits of rows with several waits are unknown, but at most this
	};
};

// Returns the waits of the range by call and by the innermost function of the program, the longest
// first. `isIntended`: the wait is for a pause, timer, poll or process, so it is usually intended.
export const waitPlaces = (data, scope) => {
	const { stacks } = data;
	const places = new Map();
	const placeOf = new Array(stacks.n);
	const pauses = pausesOf(data);
	const find = (stack) => {
		const cause = stacks.cause[stack];
		const pause = data.wait_calls[cause - 1]?.cause === 'futex' ? pauses[stack] : 0;
		const key = `${cause} ${pause} ${stacks.owner[stack]}`;
		if (!places.has(key)) places.set(key, newPlace(data, stack, pause));
		return places.get(key);
	};
	const add = (stack, ns, n, begin, length) => {
		const place = (placeOf[stack] ??= find(stack));
		place.ns += ns;
		place.waits += n;
		place.lengths.push(ns / n);
		place.counts.push(n);
		if (n > 1) place.mostMerged = Math.max(place.mostMerged, ns);
		if (ns / n <= place.longest) return;
		place.longest = ns / n;
		place.longestAt = [begin, begin + length];
	};
	const { within, across } = data.waits;
	for (let i = rowAt(within, scope.from), end = rowAt(within, scope.to); i < end; i++) {
		if (scope.thread !== null && within.thread[i] !== scope.thread) continue;
		const { stack, weight, count, time, unit } = within;
		add(stack[i], weight[i], count[i], time[i] * unit, weight[i]);
	}
	eachAcross(data, scope, (i, begin, end) =>
		add(across.stack[i], end - begin, 1, across.begin[i], across.length[i]),
	);
	return [...places.values()].sort((a, b) => b.ns - a.ns || a.owner - b.owner);
};

// Returns the median of the lengths of a place's waits.
export const medianWait = ({ lengths, counts, waits }) => {
	const half = Math.ceil(waits / 2);
	if (waits === lengths.length) return Float64Array.from(lengths).sort()[half - 1];
	const order = lengths.map((ns, i) => i).sort((a, b) => lengths[a] - lengths[b]);
	let n = 0;
	return lengths[order.find((i) => (n += counts[i]) >= half)];
};

// The parts of steps of the critical path: see critical-path.h.
const [, STATE, RUNNING, SEGMENT, SAMPLE] = [0, 1, 2, 3, 4];

// Returns the time of each node of the critical path in [from, to), and the number of samples. As
// in `critical-path`, running time is divided among the functions that samples hit.
export const pathTimes = ({ path, steps }, from, to) => {
	const n = path.nodes.length + 1;
	const [total, run, hits, allHits] = [0, 1, 2, 3].map(() => new Float64Array(n));
	const [segment, known] = [0, 1].map(() => new Float64Array(n));
	const parentOf = (node) => path.nodes[node - 1][0];
	let samples = 0;
	for (let i = 0; i < steps.rows; i++) {
		const begin = steps.time[i] * path.unit_ns + steps.rest[i];
		if (begin >= to) break;
		const node = steps.node[i];
		const part = steps.part[i];
		if (part === SAMPLE) {
			if (begin < from) continue;
			hits[node]++;
			allHits[parentOf(node)]++;
			samples++;
			continue;
		}
		const ns = Math.min(begin + steps.length[i], to) - Math.max(begin, from);
		if (ns <= 0) continue;
		if (part === RUNNING) run[node] += ns;
		else if (part === SEGMENT) segment[node] += ns;
		else total[node] += ns;
		if (part === RUNNING || part === STATE) known[parentOf(node)] += ns;
	}
	for (let node = 1; node < n; node++) {
		const above = parentOf(node);
		if (!allHits[node]) total[node] += run[node];
		if (hits[node]) total[node] += (run[above] * hits[node]) / allHits[above];
		if (segment[node]) total[node] += Math.max(0, segment[node] - known[above]);
	}
	for (let node = n - 1; node > 0; node--) total[parentOf(node)] += total[node];
	return { times: total.subarray(1), samples };
};

// Returns the live heap: times, each with the largest size until the next time, and the peak.
export const heapOf = ({ heap }) => {
	const points = heap.flatMap((side) => side.points);
	const highest = heap.reduce((a, b) => (b.peak_bytes > a.peak_bytes ? b : a));
	return {
		times: points.map(([time]) => time),
		values: points.map(([, size]) => size),
		peak: { ns: highest.peak_ns, bytes: highest.peak_bytes },
	};
};

// Returns the live bytes in equal parts of [from, to): of all owners together, the maximum in each
// part; of each owner (the innermost function of the program), the value at the end of the part.
// For a single thread, the maximum is unknown, so all values are those at the ends of the parts.
export const liveHeap = (data, { from, to, thread }, bins) => {
	const a = data.allocations;
	const { stacks, live } = data;
	const width = (to - from) / bins;
	const unit = data.allocation_unit_ns;
	const all = new Float64Array(bins);
	const byOwner = new Map();
	const bin = (units) => Math.max(0, Math.floor((units * unit - from) / width));
	for (let i = 0; i < a.rows; i++) {
		const begin = bin(a.time[i]);
		const end = a.freed[i] ? bin(a.freed[i] - 1) : bins;
		const owner = stacks.owner[a.stack[i]];
		if (begin >= bins || begin === end || (thread !== null && a.thread[i] !== thread)) continue;
		let own = byOwner.get(owner);
		if (!own) byOwner.set(owner, (own = new Float64Array(bins)));
		for (const line of [all, own]) {
			line[begin] += a.bytes[i];
			if (end < bins) line[end] -= a.bytes[i];
		}
	}
	for (const line of [all, ...byOwner.values()]) {
		for (let i = 1; i < bins; i++) line[i] += line[i - 1];
	}
	if (thread === null) {
		for (let i = 0, k = Math.max(0, lowerBound(live.times, from + 1) - 1); i < bins; i++) {
			all[i] = live.values[k];
			while (k + 1 < live.times.length && live.times[k + 1] < from + (i + 1) * width) {
				all[i] = Math.max(all[i], live.values[++k]);
			}
		}
	}
	let peak = 0;
	for (let i = 1; i < bins; i++) if (all[i] > all[peak]) peak = i;
	const most = (line) => line.reduce((x, y) => Math.max(x, y));
	return {
		bins,
		width,
		all,
		peak,
		byOwner: [...byOwner].sort((x, y) => most(y[1]) - most(x[1])),
	};
};
