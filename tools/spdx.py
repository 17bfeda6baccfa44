#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The licence line of source files: checks that each has it, or adds it.

Usage: spdx.py [--fix] [FILE OR FOLDER...]   (the whole tree, if none is given)

The line is a file's first, behind `#!` and `# -*-` lines. Without --fix prints the files that lack
it; exit status 1 if there are any. Of a folder only files are looked at whose kind has comments.
"""

import argparse
import os
import pathlib
import sys

LINE = 'SPDX-License-Identifier: Apache-2.0'

# How a comment of one line begins and ends, by the end of the name, or by all of it.
COMMENTS = {
    '.h': ('// ', ''), '.cc': ('// ', ''), '.inc': ('// ', ''),
    '.c': ('/* ', ' */'), '.S': ('/* ', ' */'), '.ld': ('/* ', ' */'),
    '.py': ('# ', ''), '.sh': ('# ', ''), '.bzl': ('# ', ''), '.toml': ('# ', ''),
    'BUILD': ('# ', ''), 'WORKSPACE': ('# ', ''), 'alibi': ('# ', ''), 'run': ('# ', ''),
}
SKIPPED_FOLDERS = {'.git', 'golden', 'testdata', '__pycache__'}


def comment(path):
    return COMMENTS.get(path.suffix) or COMMENTS.get(path.name)


def candidates(places):
    for place in map(pathlib.Path, places):
        if not place.is_dir():
            yield place
            continue
        for folder, folders, names in os.walk(place):
            folders[:] = sorted(f for f in folders
                                if f not in SKIPPED_FOLDERS and not f.startswith('bazel-'))
            for name in sorted(names):
                path = pathlib.Path(folder, name)
                if comment(path) and path.is_file() and not path.is_symlink():
                    yield path


def has_line(text):
    return any(LINE in line for line in text.splitlines()[:3])


def with_line(path, text):
    begin, end = comment(path)
    # A header that C includes, too, keeps to C's comments.
    if path.suffix in ('.h', '.inc') and text.startswith('/*'):
        begin, end = '/* ', ' */'
    lines = text.splitlines(keepends=True)
    at = 0
    while at < len(lines) and (lines[at].startswith('#!') or lines[at].startswith('# -*-')):
        at += 1
    return ''.join(lines[:at]) + begin + LINE + end + '\n' + ''.join(lines[at:])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--fix', action='store_true')
    parser.add_argument('places', nargs='*')
    arguments = parser.parse_args()
    places = arguments.places or [pathlib.Path(__file__).resolve().parent.parent]
    lacking = 0
    for path in candidates(places):
        if comment(path) is None:
            sys.exit(f'{path}: a file of this kind has no licence line; see COMMENTS in spdx.py')
        text = path.read_text(encoding='utf-8')
        if has_line(text):
            continue
        lacking += 1
        if arguments.fix:
            path.write_text(with_line(path, text), encoding='utf-8')
        else:
            print(f'{path}: lacks the line "{LINE}"; tools/spdx.py --fix {path} adds it')
    return 1 if lacking and not arguments.fix else 0


sys.exit(main())
