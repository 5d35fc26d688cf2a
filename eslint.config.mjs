// SPDX-License-Identifier: BSD-2-Clause-Patent
// The rules for JavaScript. tests/lint/javascript.py runs ESLint, which is installed outside of the
// repository, so its own package finds the recommended rules.
import { createRequire } from 'node:module';

const { configs } = createRequire(process.argv[1])('@eslint/js');

const names = (text) => Object.fromEntries(text.split(' ').map((name) => [name, 'readonly']));
const browser = names(
	'Blob DecompressionStream MessageChannel Node TextDecoder addEventListener atob console ' +
		'devicePixelRatio document getComputedStyle getSelection history innerHeight ' +
		'innerWidth location matchMedia navigator performance requestAnimationFrame',
);
const everywhere = names('clearTimeout console performance setTimeout');

export default [
	configs.recommended,
	{
		files: ['data/report/*.js', 'tests/integration/drive_page.mjs'],
		languageOptions: { globals: browser },
	},
	{
		languageOptions: { globals: { ...everywhere, process: 'readonly' } },
		rules: {
			'array-callback-return': 'error',
			curly: ['error', 'multi-line'],
			eqeqeq: 'error',
			'no-implicit-globals': 'error',
			'no-shadow': 'error',
			'no-throw-literal': 'error',
			'no-unused-expressions': 'error',
			'no-use-before-define': ['error', { functions: false, variables: false }],
			'no-useless-return': 'error',
			'no-var': 'error',
			'object-shorthand': 'error',
			'one-var': ['error', 'never'],
			'prefer-const': ['error', { destructuring: 'all' }],
		},
		linterOptions: { reportUnusedDisableDirectives: 'error' },
	},
];
