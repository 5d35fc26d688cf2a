// SPDX-License-Identifier: BSD-2-Clause-Patent
// The capture as the page was given it.
//
// The data is one gzip stream in base64: the length of a JSON header (32 bits, little-endian), the
// header, and then the columns in the header's order. A column of n numbers of k bytes is k planes
// of n bytes, the low bytes first, because planes compress better than words. A column with `delta`
// holds differences to the row above; the numbers of a column are divided by its `scale`.

const ORIGINS = ['own', 'library', 'libc', 'kernel', 'unknown'];
export const KINDS = ['run', 'ready', 'wait']; // of slices: the states of a thread

const unpack = async (base64) => {
	const packed = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
	const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'));
	return new Uint8Array(await new Response(stream).arrayBuffer());
};

const decodeColumn = (planes, { rows, bytes, delta, scale }) => {
	const out = bytes > 4 || scale > 1 ? new Float64Array(rows) : new Uint32Array(rows);
	let factor = 1 / scale;
	for (let k = 0; k < bytes; k++, factor *= 256) {
		const plane = planes.subarray(k * rows, (k + 1) * rows);
		for (let i = 0; i < rows; i++) out[i] += plane[i] * factor;
	}
	if (delta) for (let i = 1; i < rows; i++) out[i] += out[i - 1];
	return out;
};

// Returns the header, with each of its columns as a typed array in `tables`.
export const decode = (raw) => {
	const length = new DataView(raw.buffer, raw.byteOffset).getUint32(0, true);
	const header = JSON.parse(new TextDecoder().decode(raw.subarray(4, 4 + length)));
	let at = 4 + length;
	const tables = {};
	for (const column of header.columns) {
		const [table, name] = column.name.split('.');
		const size = column.rows * column.bytes;
		(tables[table] ||= { rows: column.rows })[name] = decodeColumn(raw.subarray(at, at + size), column);
		at += size;
	}
	return { ...header, tables };
};

// Indexes the table of stacks. Parents come before their children, so that one pass from the end
// sums up a tree and one from the start visits callers first.
export const indexStacks = (parent, func, functions) => {
	const n = parent.length;
	const first = new Int32Array(n).fill(-1), next = new Int32Array(n).fill(-1);
	const outer = new Uint8Array(n); // no caller is the same function: it counts for the total
	const owner = new Int32Array(n).fill(-1); // the innermost function of the program itself
	const depth = new Uint16Array(n);
	for (let i = n - 1; i > 0; i--) {
		next[i] = first[parent[i]];
		first[parent[i]] = i;
	}
	for (let i = 1; i < n; i++) {
		const f = func[i];
		let p = parent[i];
		depth[i] = Math.min(65535, depth[p] + 1);
		while (p > 0 && func[p] !== f) p = parent[p];
		outer[i] = p > 0 ? 0 : 1;
		owner[i] = functions[f].origin === 'own' ? f : owner[parent[i]];
	}
	return { n, parent, func, first, next, outer, owner, depth };
};

// A slice has one state, or, if there were too many, the parts of its time in each.
const lanesOf = (data) => {
	const lanes = data.threads.map((thread, index) => ({
		...thread, index, from: [], to: [], kind: [], amount: [], sums: KINDS.map(() => 0),
	}));
	const s = data.tables.slices, unit = data.slice_unit_ns;
	const add = (lane, from, to, kind, amount) => {
		lane.from.push(from);
		lane.to.push(to);
		lane.kind.push(kind);
		lane.amount.push(amount);
		lane.sums[kind] += amount;
	};
	for (let i = 0, end = 0; s && i < s.rows; i++) {
		const lane = lanes[s.thread[i]];
		if (i === 0 || s.thread[i] !== s.thread[i - 1]) end = 0;
		const from = (end + s.gap[i]) * unit, to = from + s.length[i] * unit;
		end += s.gap[i] + s.length[i];
		if (s.kind) add(lane, from, to, s.kind[i], to - from);
		else KINDS.forEach((kind, k) => s[kind][i] && add(lane, from, to, k, s[kind][i]));
	}
	return lanes;
};

export const prepare = (header) => {
	const data = header;
	const { stacks, samples, allocations, marks } = data.tables;
	for (const f of data.functions) {
		f.origin = ORIGINS[f.origin];
		f.image = data.images[f.image] || '';
		f.library = f.image.split('/').pop();
	}
	data.duration = data.capture.duration_ns;
	data.stacks = indexStacks(stacks.parent, stacks.function, data.functions);
	data.samples = samples;
	data.allocations = allocations || { rows: 0 };
	data.marks = marks || { rows: 0 };
	data.lanes = lanesOf(data);
	data.hasSlices = !!data.tables.slices;
	if (!data.hasSlices) // the samples are all that is known of when a thread ran
		for (let i = 0; i < samples.rows; i++) data.lanes[samples.thread[i]].sums[0] += samples.weight[i];
	data.lanes.sort((a, b) => b.sums[0] - a.sums[0] || a.index - b.index);
	return data;
};

export const load = async (element) => prepare(decode(await unpack(element.textContent.trim())));

// Returns the index of the first element of a sorted array that is not below the value.
export const lowerBound = (sorted, value, length = sorted.length) => {
	let low = 0, high = length;
	while (low < high) {
		const middle = (low + high) >>> 1;
		if (sorted[middle] < value) low = middle + 1;
		else high = middle;
	}
	return low;
};
