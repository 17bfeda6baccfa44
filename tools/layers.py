#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The layers of tools/build/layers.bzl: that no file includes one above its own, that each package
is visible only from its layer upwards, that README's table is made from that list, that nobody
but isa looks into an instruction's bytes (copying them is everybody's right), and that the headers of
the engine name addresses by their types (base/types.h).

Usage: layers.py [--write] [ROOT]

--write makes README's table anew. Else exit status 1, and a line for each thing that is wrong.
"""

import argparse
import ast
import pathlib
import re
import sys

ENDINGS = {'.c', '.cc', '.h', '.inc', '.S'}
BEGIN, END = '<!-- layers:begin -->\n', '<!-- layers:end -->\n'
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"/]+)/([^"]+)"', re.M)
DEFAULT = re.compile(r'^package\(default_visibility = (.+)\)$', re.M)
LOOKS_AT_BYTES = re.compile(r'\binstr\w*(?:\.|->)(?:layout\b|bytes\[)')
# Lists encodings, which is about nothing but bytes.
ENCODERS = 'testsuite/coverage'
# Their headers know three kinds of addresses. Those of tests may say them as numbers.
ENGINE = {'abi', 'mmu', 'isa', 'translator', 'adapt', 'runtime', 'inspect'}
PLAIN_ADDRESS = re.compile(
    r'^[^/"]*\bu64\*? (?:\w+_)?(pc|phys|phys_page|linear|linear_page|host|host_pc|gs_base)\b',
    re.M)
TEST_HEADERS = re.compile(r'(?:^|_)(?:test|fake)_|_bench\.h$')
# What these folders' headers are included as.
ALIASES = {'alibi': 'include'}


def layers(root):
    tree = ast.parse((root / 'tools/build/layers.bzl').read_text())
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and statement.targets[0].id == 'LAYERS':
            return ast.literal_eval(statement.value)
    sys.exit('layers.bzl: no LAYERS')


def files(root, folder):
    for path in sorted((root / folder).rglob('*')):
        if path.is_file() and not any(part.startswith('bazel-') for part in path.parts):
            yield path


def is_test_support(path, folder, rest):
    """Tests of any layer use the headers right in testsuite/, whose libraries are `testonly`."""
    return folder == 'testsuite' and '/' not in rest and path.name.endswith('_test.cc')


def wrong_includes(root, names):
    for own in names:
        for path in files(root, own):
            if path.suffix not in ENDINGS:
                continue
            for folder, rest in INCLUDE.findall(path.read_text(encoding='utf-8')):
                folder = ALIASES.get(folder, folder)
                if folder not in names or is_test_support(path, folder, rest):
                    continue
                if names.index(folder) > names.index(own):
                    yield f'{path.relative_to(root)}: includes {folder}/{rest}, a layer above'


def wrong_looks(root, names):
    for own in names:
        for path in files(root, own):
            if own == 'isa' or path.suffix not in ENDINGS or path.is_relative_to(root / ENCODERS):
                continue
            if LOOKS_AT_BYTES.search(path.read_text(encoding='utf-8')):
                yield f"{path.relative_to(root)}: looks at an instruction's bytes, as isa alone does"


def plain_addresses(root, names):
    for own in sorted(ENGINE.intersection(names)):
        for path in files(root, own):
            if path.suffix != '.h' or TEST_HEADERS.search(path.name):
                continue
            for name in PLAIN_ADDRESS.findall(path.read_text(encoding='utf-8')):
                yield f"{path.relative_to(root)}: '{name}' is an address and a plain number"


def wrong_visibility(root, names):
    for own in names:
        for path in files(root, own):
            if path.name != 'BUILD':
                continue
            default = DEFAULT.search(path.read_text())
            if default and default[1] not in (f'visible_above("{own}")',
                                              f'["//{own}:__subpackages__"]'):
                yield f'{path.relative_to(root)}: its default is not visible_above("{own}")'


def unlisted(root, names):
    # Not into Bazel's own folders, which change while one looks.
    folders = [folder for folder in root.iterdir()
               if folder.is_dir() and not folder.name.startswith(('bazel-', '.'))]
    found = {folder.name for folder in folders if any(folder.glob('**/BUILD'))}
    for name in sorted(found - set(names) - {'third_party'}):
        yield f'{name}: not in tools/build/layers.bzl'
    for name in names:
        if not (root / name).is_dir():
            yield f'tools/build/layers.bzl: there is no folder {name}'


def table(rows):
    return '| folder | what |\n|---|---|\n' + ''.join(f'| `{name}` | {what} |\n'
                                                      for name, what in rows)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--write', action='store_true')
    parser.add_argument('root', nargs='?', type=pathlib.Path, default=pathlib.Path('.'))
    arguments = parser.parse_args()
    root = arguments.root
    rows = layers(root)
    names = [name for name, _ in rows]
    readme = root / 'README.md'
    text = readme.read_text()
    before, _, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        sys.exit(f'README.md: no table between {BEGIN.strip()} and {END.strip()}')
    made = before + BEGIN + table(rows) + END + after
    if arguments.write:
        readme.write_text(made)
        return
    wrong = [*unlisted(root, names), *wrong_includes(root, names), *wrong_looks(root, names),
             *plain_addresses(root, names), *wrong_visibility(root, names)]
    if made != text:
        wrong.append('README.md: its folders are not those of layers.bzl: tools/layers.py --write')
    print(*wrong, sep='\n', end='\n' if wrong else '')
    sys.exit(1 if wrong else 0)


if __name__ == '__main__':
    main()
