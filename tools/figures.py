#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The figures that pages quote: docs/figures.json has each once, with what it is of and where it
was measured. A page quotes one as <!--name-->its text<!---->, which readers do not see.

Usage: figures.py [--write] [ROOT]

--write puts the current texts into the pages. Else exit status 1, and a line for each thing that is
wrong: a quotation that is not what figures.json says, a figure that nobody quotes, or a price (a
number of cycles or microseconds) in a page's prose that is no quotation. Tables and examples, and
the pages that hold measurements with their methods, are homes of their own.
"""

import argparse
import json
import pathlib
import re
import sys

MEASUREMENTS = {'performance.md', 'reproduction.md', 'coverage.md', 'bench_intel.md',
                'hosted_io.md'}
QUOTATION = re.compile(r'<!--([a-z][a-z0-9-]*)-->(.*?)<!---->', re.S)
EXAMPLE = re.compile(r'^( *)```.*?^\1```$', re.M | re.S)
PRICE = re.compile(r'\d[\d,.]* (?:cycles|us)\b')


def blank(match):
    """As many lines, with nothing in them."""
    return '\n' * match[0].count('\n')


def complaints(root, figures, pages):
    quoted = set()
    for page in pages:
        name, text = page.relative_to(root), page.read_text()
        for figure, shown in QUOTATION.findall(text):
            quoted.add(figure)
            if figure not in figures:
                yield f'{name}: quotes {figure}, which is not in docs/figures.json'
            elif ' '.join(shown.split()) != figures[figure]['text']:
                yield f'{name}: {figure} is "{figures[figure]["text"]}": tools/figures.py --write'
        if page.name in MEASUREMENTS:
            continue
        prose = QUOTATION.sub(blank, EXAMPLE.sub(blank, text))
        for number, line in enumerate(prose.splitlines(), 1):
            for price in PRICE.findall('' if line.startswith('|') else line):
                yield f'{name}:{number}: "{price}" is no quotation from docs/figures.json'
    for figure in sorted(set(figures) - quoted):
        yield f'docs/figures.json: no page quotes {figure}'


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--write', action='store_true')
    parser.add_argument('root', nargs='?', type=pathlib.Path, default=pathlib.Path('.'))
    arguments = parser.parse_args()
    root = arguments.root
    figures = json.loads((root / 'docs/figures.json').read_text())
    pages = [root / 'README.md', *sorted((root / 'docs').glob('*.md'))]
    if arguments.write:
        for page in pages:
            page.write_text(QUOTATION.sub(
                lambda m: f'<!--{m[1]}-->{figures[m[1]]["text"]}<!---->'
                if m[1] in figures else m[0], page.read_text()))
        return
    wrong = list(complaints(root, figures, pages))
    print(*wrong, sep='\n', end='\n' if wrong else '')
    sys.exit(1 if wrong else 0)


if __name__ == '__main__':
    main()
