// SPDX-License-Identifier: BSD-2-Clause-Patent
// The capture that the page contains.
//
// The data is one gzip stream in base64: the length of a JSON header (32 bits, little-endian), the
// header, and then the columns in the header's order. A column of n numbers of k bytes is k planes
// of n bytes, the low bytes first, because planes compress better than words. A column with `delta`
// holds differences to the row above; one with `value` has no planes, because all of its numbers
// are that value; the numbers of a column are divided by its `scale`. Samples without a weight have
// the capture's `sample_weight` each.

const ORIGINS = ['own', 'library', 'libc', 'kernel', 'unknown'];
export const KINDS = ['run', 'ready', 'wait']; // kinds of slices: the states of a thread

const fromBase64 = (text) => {
	if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
	const letters = atob(text);
	const bytes = new Uint8Array(letters.length);
	for (let i = 0; i < bytes.length; i++) bytes[i] = letters.charCodeAt(i);
	return bytes;
};

// Yields the parts of the stream as they are inflated.
const inflate = async function* (base64) {
	const reader = new Blob([fromBase64(base64)])
		.stream()
		.pipeThrough(new DecompressionStream('gzip'))
		.getReader();
	for (let part = await reader.read(); !part.done; part = await reader.read()) yield part.value;
};

// Returns an array of another size that begins with the same bytes.
const resized = (bytes, size) => {
	const all = new Uint8Array(size);
	all.set(bytes.subarray(0, size));
	return all;
};

const joinPlanes = (out, low, high) => {
	for (let i = 0; i < out.length; i++) out[i] = low[i] | (high[i] << 8);
};

// A column of small numbers stays small, because memory speed limits passes over all samples.
const decodeColumn = (planes, { rows, bytes, delta, scale, value }) => {
	if (value !== undefined) {
		return (value <= 255 ? new Uint8Array(rows) : new Float64Array(rows)).fill(value / scale);
	}
	const plane = (k) => planes.subarray(k * rows, (k + 1) * rows);
	let out;
	if (bytes > 4 || scale > 1) {
		out = new Float64Array(rows);
		for (let k = 0, factor = 1 / scale; k < bytes; k++, factor *= 256) {
			for (let i = 0, p = plane(k); i < rows; i++) out[i] += p[i] * factor;
		}
	} else if (bytes === 1 && !delta) {
		out = plane(0);
	} else {
		out = bytes === 2 && !delta ? new Uint16Array(rows) : new Uint32Array(rows);
		if (bytes > 1) joinPlanes(out, plane(0), plane(1));
		else out.set(plane(0));
		for (let k = 2; k < bytes; k++) {
			for (let i = 0, p = plane(k); i < rows; i++) out[i] |= p[i] << (8 * k);
		}
	}
	if (delta) for (let i = 1, sum = rows ? out[0] : 0; i < rows; i++) out[i] = sum += out[i];
	return out;
};

const headerLength = (raw) => new DataView(raw.buffer, raw.byteOffset).getUint32(0, true);
const decodeHeader = (raw) =>
	JSON.parse(new TextDecoder().decode(raw.subarray(4, 4 + headerLength(raw))));

// Returns the header with its columns as typed arrays in `tables`.
const decode = (header, raw) => {
	let at = 4 + headerLength(raw);
	const tables = {};
	for (const column of header.columns) {
		const [table, name] = column.name.split('.');
		const size = column.rows * column.bytes;
		(tables[table] ||= { rows: column.rows })[name] = decodeColumn(
			raw.subarray(at, at + size),
			column,
		);
		at += size;
	}
	return { ...header, tables };
};

// Indexes the table of stacks. Parents come before their children, so that one pass from the end
// sums up a tree and one from the start visits callers first.
export const indexStacks = (parent, func, functions) => {
	const n = parent.length;
	const first = new Int32Array(n).fill(-1);
	const next = new Int32Array(n).fill(-1);
	// 1: no caller is the same function, so the stack counts for the function's total
	const outer = new Uint8Array(n);
	const owner = new Int32Array(n).fill(-1); // the innermost function of the program itself
	for (let i = n - 1; i > 0; i--) {
		next[i] = first[parent[i]];
		first[parent[i]] = i;
	}
	for (let i = 1; i < n; i++) {
		owner[i] = functions[func[i]].origin === 'own' ? func[i] : owner[parent[i]];
	}
	// how often each function is on the path to the root
	const above = new Uint32Array(functions.length);
	for (let i = n > 1 ? first[0] : 0; i > 0; ) {
		outer[i] = above[func[i]]++ === 0 ? 1 : 0;
		if (first[i] > 0) {
			i = first[i];
			continue;
		}
		above[func[i]]--;
		while (i > 0 && next[i] < 0) {
			i = parent[i];
			if (i > 0) above[func[i]]--;
		}
		if (i > 0) i = next[i];
	}
	return { n, parent, func, first, next, outer, owner };
};

// A slice has one state or, if there were too many slices, the parts of its time in each state. A
// lane is a thread with its slices, in the order of time; `before` has, for each slice, the sums of
// all slices before it.
const lanesOf = (data) => {
	const s = data.tables.slices;
	const unit = data.slice_unit_ns;
	const n = s ? s.rows : 0;
	const most = s && !s.kind ? n * KINDS.length : n;
	const from = new Float64Array(most);
	const to = new Float64Array(most);
	const amount = new Float64Array(most);
	const kind = new Uint8Array(most);
	const before = KINDS.map(() => new Float64Array(most + 1));
	const begins = new Uint32Array(data.threads.length);
	const ends = new Uint32Array(data.threads.length);
	let at = 0;
	const add = (start, end, k, ns) => {
		from[at] = start;
		to[at] = end;
		kind[at] = k;
		amount[at] = ns;
		for (let other = 0; other < KINDS.length; other++) {
			before[other][at + 1] = before[other][at] + (other === k ? ns : 0);
		}
		at++;
	};
	for (let i = 0, end = 0; i < n; i++) {
		const thread = s.thread[i];
		if (i === 0 || thread !== s.thread[i - 1]) {
			end = 0;
			begins[thread] = at;
		}
		const start = end + s.gap[i];
		end = start + s.length[i];
		if (s.kind) add(start * unit, end * unit, s.kind[i], (end - start) * unit);
		else KINDS.forEach((name, k) => s[name][i] && add(start * unit, end * unit, k, s[name][i]));
		ends[thread] = at;
	}
	return data.threads.map((thread, index) => {
		const [begin, end] = [begins[index], ends[index]];
		const part = (array) => array.subarray(begin, end);
		return {
			...thread,
			index,
			n: end - begin,
			from: part(from),
			to: part(to),
			kind: part(kind),
			amount: part(amount),
			before: before.map((sums) => sums.subarray(begin, end + 1)),
			sums: before.map((sums) => sums[end] - sums[begin]),
		};
	});
};

// Returns for each key an array of its rows, in order.
const rowsBy = (keys, rows, n) => {
	const ends = new Uint32Array(n + 1);
	const all = new Uint32Array(rows);
	for (let i = 0; i < rows; i++) ends[keys[i] + 1]++;
	for (let k = 0; k < n; k++) ends[k + 1] += ends[k];
	const begins = ends.slice();
	for (let i = 0; i < rows; i++) all[begins[keys[i]]++] = i;
	return Array.from({ length: n }, (_, k) => all.subarray(ends[k], ends[k + 1]));
};

// Returns the sum of counters of processes over time.
export const sumOf = (counters) => {
	if (counters.length < 2) return counters[0];
	const steps = [];
	for (const { times, values, end_ns: end } of counters) {
		times.forEach((time, i) => steps.push([time, values[i] - (i ? values[i - 1] : 0)]));
		if (end !== undefined) steps.push([end, -values.at(-1)]);
	}
	steps.sort((a, b) => a[0] - b[0]);
	let sum = 0;
	return { times: steps.map(([time]) => time), values: steps.map(([, step]) => (sum += step)) };
};

// A counter of the later capture continues the counter of the same name in the earlier one.
const joinCounters = (counters) => {
	const joined = counters.filter((counter) => !counter.is_later);
	const free = new Set(joined);
	for (const counter of counters.filter((each) => each.is_later)) {
		const same = [...free].find(
			({ group, name }) => group === counter.group && name === counter.name,
		);
		free.delete(same);
		if (!same) joined.push(counter);
		else {
			Object.assign(same, {
				times: [...same.times, ...counter.times],
				values: [...same.values, ...counter.values],
				end_ns: counter.end_ns,
			});
		}
	}
	return joined;
};

// Ids differ between two captures, so processes and threads with equal names count as the same.
const matchTasks = (data) => {
	const first = new Map();
	data.processes.forEach((process, i) => {
		process.name = process.name.replace(/ \(\d+\)$/, '');
		process.same = first.get(process.name) ?? i;
		first.set(process.name, process.same);
	});
	first.clear();
	data.threads.forEach((thread, i) => {
		thread.same = first.get(thread.name) ?? i;
		first.set(thread.name, thread.same);
	});
};

// Waits within a cell of the grid are rows like samples; a wait across cells has its begin and its
// length instead. Returns both tables, and the rows of each by thread.
const prepareWaits = (data, within = { rows: 0, thread: [] }, across = { rows: 0, thread: [] }) => {
	within.unit = across.unit = data.wait_unit_ns;
	within.each = 1;
	across.begin = Float64Array.from(
		{ length: across.rows },
		(_, i) => across.time[i] * across.unit + across.rest[i],
	);
	const of = (table) => rowsBy(table.thread, table.rows, data.threads.length);
	return { within, across, withinOf: of(within), acrossOf: of(across) };
};

const prepare = (data) => {
	const { stacks, samples, places, allocations, marks, waits, sleeps } = data.tables;
	for (const f of data.functions) {
		f.origin = ORIGINS[f.origin];
		f.image = data.images[f.image] || '';
		f.library = f.image.split('/').pop();
	}
	for (const { process, tid, name } of data.threads) {
		const p = data.processes[process];
		if (tid === p.pid || !p.name) p.name = name; // the main thread's last name
	}
	for (const p of data.processes) p.name += ` (${p.pid})`;
	if (data.compare) {
		matchTasks(data);
		data.counters = joinCounters(data.counters);
	}
	data.duration = data.capture.duration_ns;
	data.stacks = indexStacks(stacks.parent, stacks.function, data.functions);
	data.stacks.cause = stacks.cause;
	data.samples = samples;
	data.waits = prepareWaits(data, waits, sleeps);
	data.places = places || { rows: 0, place: [] };
	samples.unit = data.sample_unit_ns;
	data.places.unit = data.place_unit_ns;
	data.places.size = data.places.place.reduce((most, place) => Math.max(most, place + 1), 0);
	for (const table of [samples, data.places]) {
		table.each = table.weight ? 1 : data.capture.sample_weight;
		table.weight ||= table.count;
	}
	data.allocations = allocations || { rows: 0 };
	data.marks = marks || { rows: 0 };
	data.steps = data.tables.path || null;
	data.marksOf = rowsBy(data.marks.name, data.marks.rows, data.mark_names.length);
	data.lanes = lanesOf(data);
	data.hasSlices = !!data.tables.slices;
	if (!data.hasSlices) {
		// without slices, only the samples show how long a thread ran
		for (let i = 0; i < samples.rows; i++) {
			data.lanes[samples.thread[i]].sums[0] += samples.weight[i] * samples.each;
		}
	}
	data.lanes.sort((a, b) => b.sums[0] - a.sums[0] || a.index - b.index);
	return data;
};

// Calls `paint` with the header as soon as the header is read, long before the columns are. The
// header has the size of all data, so that the parts of the stream need not be kept.
export const load = async (element, paint) => {
	let raw = new Uint8Array(0);
	let size = 0;
	let header = null;
	for await (const part of inflate(element.textContent.trim())) {
		if (size + part.length > raw.length) raw = resized(raw, size + part.length);
		raw.set(part, size);
		size += part.length;
		if (header || size < 4 || size < 4 + headerLength(raw)) continue;
		header = decodeHeader(raw);
		const columns = header.columns.reduce((sum, { rows, bytes }) => sum + rows * bytes, 0);
		raw = resized(raw, 4 + headerLength(raw) + columns);
		await paint(header);
	}
	return prepare(decode(header, raw));
};

// Returns the index of the first element of a sorted array that is not below the value.
export const lowerBound = (sorted, value, length = sorted.length) => {
	let low = 0;
	let high = length;
	while (low < high) {
		const middle = (low + high) >>> 1;
		if (sorted[middle] < value) low = middle + 1;
		else high = middle;
	}
	return low;
};
