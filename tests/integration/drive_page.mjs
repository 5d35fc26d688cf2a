// SPDX-License-Identifier: BSD-2-Clause-Patent
// drive_page.mjs BROWSER PLAYWRIGHT [SWITCH…] < requests: opens report pages in one browser. A
// request is a line of JSON, { page, size: [width, height], steps: […] }; the answer is a line with
// the results of the steps, the errors of the page, and the URLs that it requested.
import { createRequire } from 'node:module';
import readline from 'node:readline';

const [browserPath, playwright, ...switches] = process.argv.slice(2);
const { chromium } = createRequire(import.meta.url)(playwright);
const browser = await chromium.launch({
	executablePath: browserPath,
	args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', ...switches],
});

async function drive(context, page, steps) {
	const tab = await context.newPage();
	const errors = [];
	const requests = [];
	const results = [];
	tab.on(
		'console',
		(message) => ['error', 'warning'].includes(message.type()) && errors.push(message.text()),
	);
	tab.on('pageerror', (error) => errors.push(String(error.stack || error)));
	tab.on('request', (request) => requests.push(request.url()));

	// Does not use waitForFunction, which would compile playwright's whole script in each page.
	const ready = () =>
		tab.evaluate(
			() =>
				new Promise((done, fail) => {
					const { dataset } = document.documentElement;
					const look = () =>
						dataset.ready || dataset.failed ? done() : requestAnimationFrame(look);
					setTimeout(fail, 60000, Error('the page does not become ready'));
					look();
				}),
		);
	const settle = () =>
		tab.evaluate(
			() =>
				new Promise((done) =>
					requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 0))),
				),
		);
	const verbs = {
		open: async (fragment) => {
			if (tab.url() !== 'about:blank') await tab.goto('about:blank');
			await tab.goto(page + '#' + fragment);
			await ready();
		},
		key: (key) => tab.keyboard.press(key),
		type: async ([selector, text]) => {
			await tab.fill(selector, text);
			await tab.waitForTimeout(200);
		},
		click: (selector) => tab.click(selector),
		at: ([selector, x, y, options]) => tab.click(selector, { position: { x, y }, ...options }),
		drag: async ([selector, x0, x1, y, key]) => {
			const box = await tab.locator(selector).boundingBox();
			if (key) await tab.keyboard.down(key);
			await tab.mouse.move(box.x + x0, box.y + y);
			await tab.mouse.down();
			await tab.mouse.move(box.x + (x0 + x1) / 2, box.y + y);
			await tab.mouse.move(box.x + x1, box.y + y);
			await tab.mouse.up();
			if (key) await tab.keyboard.up(key);
		},
		// Drags from the first place (x) to each of the others in turn. The result is the ms from
		// each of these moves until the second frame after it, which shows the deferred parts.
		latency: async ([selector, y, places]) => {
			const box = await tab.locator(selector).boundingBox();
			await tab.evaluate(() => {
				globalThis.took = [];
				addEventListener(
					'pointermove',
					() => {
						const start = performance.now();
						requestAnimationFrame(() =>
							requestAnimationFrame(() => {
								const { port1, port2 } = new MessageChannel();
								port1.onmessage = () =>
									globalThis.took.push(performance.now() - start);
								port2.postMessage(null);
							}),
						);
					},
					{ capture: true },
				);
			});
			await tab.mouse.move(box.x + places[0], box.y + y);
			await settle();
			await tab.mouse.down();
			for (const [n, x] of places.slice(1).entries()) {
				await tab.mouse.move(box.x + x, box.y + y);
				await tab.waitForFunction((wanted) => globalThis.took.length >= wanted, n + 2);
			}
			await tab.mouse.up();
			results.push((await tab.evaluate(() => globalThis.took)).slice(1));
		},
		text: async (selector) =>
			results.push(
				await tab.evaluate(
					(s) => [...document.querySelectorAll(s)].map((e) => e.textContent),
					selector,
				),
			),
		eval: async (code) => results.push(await tab.evaluate(code)),
		// The nodes of Chromium's accessibility tree, which assistive technology sees.
		accessibility: async () => {
			const session = await context.newCDPSession(tab);
			const { nodes } = await session.send('Accessibility.getFullAXTree');
			const isFocusable = ({ properties }) =>
				!!properties?.find(({ name }) => name === 'focusable')?.value.value;
			results.push(
				nodes
					.filter(({ ignored }) => !ignored)
					.map((node) => [node.role.value, node.name?.value || '', isFocusable(node)]),
			);
		},
		media: (media) => tab.emulateMedia(media),
		shot: (path) => tab.screenshot({ path }),
	};
	for (const step of steps) {
		const [[verb, value]] = Object.entries(step);
		await verbs[verb](value);
		await settle();
	}
	return { results, errors, requests };
}

for await (const line of readline.createInterface({ input: process.stdin })) {
	const {
		page,
		size: [width, height],
		steps,
	} = JSON.parse(line);
	const context = await browser.newContext({ viewport: { width, height } });
	const answer = await drive(context, page, steps).catch((error) => ({
		failed: String(error.stack),
	}));
	await context.close();
	process.stdout.write(JSON.stringify(answer) + '\n');
}
await browser.close();
