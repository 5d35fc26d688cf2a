// SPDX-License-Identifier: BSD-2-Clause-Patent
// What the page knows about the recording.

import { el, note } from './dom.js';
import { duration } from './format.js';
import { filtersOf, state } from './state.js';

// Options are recorded as JSON.
const factOf = (value) => {
	try {
		const options = Object.entries(JSON.parse(value)).map(([key, of]) => {
			return `${key}: ${typeof of === 'string' ? of : JSON.stringify(of)}`;
		});
		return options.join(', ') || value;
	} catch {
		return value;
	}
};

const list = (texts) =>
	el(
		'ul',
		{},
		texts.map((text) => el('li', {}, text)),
	);

export const aboutPanel = () => {
	const { capture, notes, sample_unit_ns: unit } = state.data;
	const filters = filtersOf(state.data);
	const facts = capture.facts.map(([key, value]) => [
		el('dt', {}, key),
		el('dd', {}, factOf(value)),
	]);
	const kept =
		capture.state === 'finished'
			? 'Nothing was lost.'
			: `The capture is ${capture.state}: how much is missing is unknown.`;
	return el(
		'div',
		{ class: 'scroll' },
		filters && [
			el('h2', {}, 'Selection'),
			note('The page was made with ', el('code', {}, filters), '.'),
		],
		notes.length > 0 && [el('h2', {}, 'What this page leaves out'), list(notes)],
		el('h2', {}, 'Recording'),
		el('dl', {}, facts.flat()),
		el('h2', {}, 'Lost'),
		capture.losses.length ? list(capture.losses.map((loss) => loss.text)) : note(kept),
		el('h2', {}, 'Times'),
		note(`Times of samples are rounded down to ${duration(unit)}.`),
	);
};
