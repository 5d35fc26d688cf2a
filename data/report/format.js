// SPDX-License-Identifier: BSD-2-Clause-Patent
// Numbers as people read them: three significant digits, the unit always shown.

const NARROW_SPACE = '\u202f';
const SPACE = '\u00a0';

export const significant = (x) => {
	const size = Math.abs(x);
	if (size >= 99.95) return count(x);
	return x.toFixed(size >= 9.995 ? 1 : 2);
};

export const count = (n) => {
	const digits = String(Math.round(Math.abs(n))).replace(/\B(?=(\d{3})+$)/g, NARROW_SPACE);
	return n < 0 ? '\u2212' + digits : digits;
};

export const duration = (ns) => {
	const size = Math.abs(ns);
	if (size === 0) return '0' + SPACE + 's';
	if (size < 999.5) return count(ns) + SPACE + 'ns';
	if (size < 999.5e3) return significant(ns / 1e3) + SPACE + 'µs';
	if (size < 999.5e6) return significant(ns / 1e6) + SPACE + 'ms';
	if (size < 600e9) return significant(ns / 1e9) + SPACE + 's';
	if (size < 360e11) return significant(ns / 60e9) + SPACE + 'min';
	return significant(ns / 3600e9) + SPACE + 'h';
};

export const bytes = (n) => {
	const size = Math.abs(n);
	if (size < 1024) return count(n) + SPACE + 'B';
	if (size < 999.5 * 1024) return significant(n / 1024) + SPACE + 'KiB';
	if (size < 999.5 * 1024 ** 2) return significant(n / 1024 ** 2) + SPACE + 'MiB';
	return significant(n / 1024 ** 3) + SPACE + 'GiB';
};

// Shares of fewer than 100 samples have no decimals.
export const percent = (share, events) => {
	if (!Number.isFinite(share)) return 'unknown';
	if (share === 0) return '0' + SPACE + '%';
	if (share < 0.001) return '<\u200a0.1' + SPACE + '%';
	return (share * 100).toFixed(events < 100 ? 0 : 1) + SPACE + '%';
};

// Returns half of the width of the 95 % interval of a share of `events` samples.
export const uncertainty = (share, events) =>
	events > 0 ? 1.96 * Math.sqrt(Math.max(0, share * (1 - share)) / events) : NaN;

export const signed = (text, value) => (value > 0 ? '+' : '') + text.replace(/^-/, '\u2212');

// Returns a time since the capture's start, with the digits that a span of this length needs.
export const moment = (ns, span) => {
	const digits = Math.max(1, Math.min(9, 3 - Math.floor(Math.log10(Math.max(span, 1) / 1e9))));
	return (ns / 1e9).toFixed(digits) + SPACE + 's';
};

// Returns the smallest power of two that divides `size` bytes into at most `most` steps.
export const byteStep = (size, most) => 2 ** Math.ceil(Math.log2(Math.max(1, size / most)));

// Returns the smallest of 1, 2, 5, 10, 20 … that divides `span` into at most `most` steps.
export const tickStep = (span, most) => {
	const raw = span / Math.max(1, most);
	const power = 10 ** Math.floor(Math.log10(raw));
	return [1, 2, 5, 10].find((factor) => factor * power >= raw * 0.999999) * power;
};

// Escapes characters that reorder the text around them, as the commands do, because names may
// contain any characters.
const REORDERING = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
export const inOrder = (text) =>
	text.replace(REORDERING, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);

// Cuts a name to `most` characters. Drops outer namespaces first, because names differ in the last
// identifier; then the middle of that identifier or, if `most` is below 14, its end.
export const fitName = (name, most) => {
	if (name.length <= most) return name;
	if (most < 2) return '';
	const last = name.replace(/^.*::(?=[^:]+$)/, '');
	if (last.length < most) return '…' + (most - last.length > 4 ? name.slice(-(most - 1)) : last);
	if (most < 14) return last.slice(0, most - 1) + '…';
	const head = Math.ceil((most - 1) / 2);
	return last.slice(0, head) + '…' + last.slice(-(most - 1 - head));
};

// Quotes a word for a shell.
export const shellWord = (word) =>
	/^[\w@%+=:,./-]+$/.test(word) ? word : "'" + word.replaceAll("'", "'\\''") + "'";
