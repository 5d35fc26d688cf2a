// SPDX-License-Identifier: BSD-2-Clause-Patent
// Changes between two ranges, and their noise.

import { el, muted } from './dom.js';
import { signed } from './format.js';
import { state } from './state.js';

// Returns half the width of the 95 % interval of a change.
export const noiseOf = ({ measure, baseScale }, now, before) => {
	const { capture, sample_interval } = state.data;
	// waits, and allocations unless they were sampled, are exact
	const weight = { cpu: capture.sample_weight || 1, wait: 0 }[measure] ?? sample_interval;
	return 1.96 * Math.sqrt((now + baseScale * before) * weight);
};
export const isNoise = (shown, now, before) =>
	Math.abs(now - before) <= noiseOf(shown, now, before);

export const CHANGE_COLUMNS = [
	{ title: 'Change', width: 7, number: true },
	{ title: '±', width: 6, number: true },
	{ title: '', width: 6 },
	{ title: 'A', width: 6, number: true },
	{ title: 'B', width: 6, number: true },
];

// `most`: the change that fills half of the bar.
export const changeCells = (shown, now, before, most) => {
	const { format } = shown;
	const change = now - before;
	const noise = noiseOf(shown, now, before);
	const part = (50 * Math.abs(change)) / most;
	const isNoisy = Math.abs(change) <= noise;
	const text = signed(format(change), change);
	return [
		isNoisy ? muted(text) : text,
		noise ? format(noise) : '–',
		el('span', {
			class: 'bar',
			style: {
				marginLeft: (change < 0 ? 50 - part : 50) + '%',
				width: part + '%',
				background: `var(--${isNoisy ? 'none' : change > 0 ? 'more' : 'less'})`,
			},
		}),
		before ? format(before) : 'new',
		now ? format(now) : 'vanished',
	];
};
