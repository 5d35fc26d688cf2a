// SPDX-License-Identifier: BSD-2-Clause-Patent
// A deterministic JavaScript program whose chains of calls are all known.
//
//     node node_oracle.mjs record FILE    write each chain that can exist
//     node node_oracle.mjs run SECONDS    do the same work for this time, also in a worker thread
//
// A chain is innermost first: "NAME@FIRST_LINE:0|…", with V8's own functions at line 0. Its
// outermost function is once(), or an asynchronous one that the event loop continues. Each function
// first calls mark(); these calls are removed from the program that is recorded (nodes.py).
import fs from 'node:fs';
import { fileURLToPath } from 'node:url';
import { isMainThread, Worker, workerData } from 'node:worker_threads';

const chains = new Set();
let isRecording = false;

const lines = {};
const constructors = {};

function findLines() {
	let ofClass;
	fs.readFileSync(fileURLToPath(import.meta.url), 'utf8')
		.split('\n')
		.forEach((line, i) => {
			const begun = /^class (\w+)/.exec(line)?.[1];
			if (begun) {
				ofClass = begun;
				constructors[begun] = i + 1; // used if the class has no constructor
			}
			const found =
				/(?:function\*? |^\t(?:static |get )?)(#?\w+)\(.*\{$/.exec(line) ||
				/^const (\w+) = \(\w+\) =>/.exec(line);
			if (found) {
				lines[found[1] === 'constructor' ? ofClass : found[1]] ??= i + 1;
			}
			if (line.endsWith('\t// anonymous')) {
				lines.anonymous = i; // the line before
			}
		});
}

function nameOf(name) {
	return `${name} (node_oracle.mjs)@${lines[name.replace(/^get /, '')] ?? constructors[name]}:0`;
}

function mark() {
	if (!isRecording) {
		return;
	}
	const limit = Error.stackTraceLimit;
	const prepare = Error.prepareStackTrace;
	Error.stackTraceLimit = 200;
	Error.prepareStackTrace = (_, sites) => sites;
	const sites = new Error().stack.slice(1);
	Error.stackTraceLimit = limit;
	Error.prepareStackTrace = prepare;
	const frames = [];
	for (const site of sites) {
		const name = site.getFunctionName();
		const file = site.getFileName();
		if (site.isAsync() || site.isPromiseAll() || (file && file !== import.meta.url)) {
			break;
		}
		if (!file) {
			frames.push(`${name.split('.').pop()} (native)@0:0`);
		} else if (!name) {
			frames.push(`<anonymous> (node_oracle.mjs:${lines.anonymous})@${lines.anonymous}:0`);
		} else {
			const own = name.split('.').pop();
			frames.push(nameOf(own));
		}
		if (name === 'once') {
			break;
		}
	}
	chains.add(frames.join('|'));
}

function spin(n) {
	mark();
	let total = 0;
	for (let i = 0; i < n; i++) {
		total += (i * 7) & 3;
	}
	return total;
}

function recursion(n) {
	mark();
	return n === 0 ? spin(30) : recursion(n - 1) + 1;
}

function even(n) {
	mark();
	return n === 0 ? spin(3) : odd(n - 1);
}

function odd(n) {
	mark();
	return n === 0 ? 0 : even(n - 1);
}

function* numbers(n) {
	mark();
	for (let i = 0; i < n; i++) {
		spin(5);
		yield i;
	}
}

function* relayed(n) {
	mark();
	yield* numbers(n);
	spin(4);
}

function generators() {
	mark();
	let total = 0;
	for (const x of relayed(8)) {
		total += spin(3) + x;
	}
	return total;
}

const arrow = (x) => {
	mark();
	return spin(x);
};

function mapping() {
	mark();
	return [3, 1, 2].map(arrow).concat(
		[5, 6].map(function (x) {
			// anonymous
			mark();
			return spin(x);
		}),
	);
}

function comparing(a, b) {
	mark();
	return spin(2) + a - b;
}

function sorting() {
	mark();
	return [3, 1, 2, 9, 4].sort(comparing);
}

class Shape {
	constructor(n) {
		mark();
		this.n = n;
		spin(n);
	}
	area() {
		mark();
		return spin(this.n) + this.#hidden();
	}
	#hidden() {
		mark();
		return spin(2);
	}
	get size() {
		mark();
		return spin(3);
	}
	static make(n) {
		mark();
		return new Shape(n);
	}
}

class Square extends Shape {
	square() {
		mark();
		return super.area() + this.size;
	}
}

function classes() {
	mark();
	return Shape.make(3).area() + new Square(4).square();
}

function counter() {
	mark();
	let n = 0;
	return function counted() {
		mark();
		n += spin(2);
		return n;
	};
}

function closures() {
	mark();
	const one = counter();
	return one() + one();
}

function reviver(key, value) {
	mark();
	spin(2);
	return value;
}

function parsing() {
	mark();
	return JSON.parse('{"a":[1,2,3],"b":{"c":4}}', reviver);
}

function throwing(n) {
	mark();
	if (n === 0) {
		throw new Error('expected');
	}
	throwing(n - 1);
}

function catching() {
	mark();
	try {
		throwing(5);
	} catch {
		return spin(10);
	}
}

function replacing() {
	mark();
	return 'a-b-c-d'.replace(/[a-z]/g, replaced);
}

function replaced(text) {
	mark();
	spin(3);
	return text;
}

async function resumed(n) {
	mark();
	await null;
	mark();
	spin(n);
	return spin(2);
}

async function awaiting() {
	mark();
	await resumed(5);
	mark();
	recursion(3);
}

function once() {
	mark();
	// Between parts of awaiting(), no function of this file runs. Keep this share of time small.
	for (let i = isRecording ? 1 : 10; i > 0; i--) {
		recursion(12);
		even(7);
		generators();
		mapping();
		sorting();
		classes();
		closures();
		parsing();
		catching();
		replacing();
	}
	return awaiting();
}

async function main() {
	const [what, argument] = isMainThread ? process.argv.slice(2) : workerData;
	if (what === 'record') {
		findLines();
		isRecording = true;
		await once();
		const created = ['numbers', 'relayed'].map((name) => nameOf(name).slice(0, -2));
		fs.writeFileSync(argument, JSON.stringify({ chains: [...chains], generators: created }));
		return;
	}
	if (isMainThread) {
		new Worker(fileURLToPath(import.meta.url), { workerData: [what, argument] });
	}
	const end = performance.now() + 1000 * argument;
	while (performance.now() < end) {
		await once();
	}
}

main();
