# SPDX-License-Identifier: Apache-2.0
"""python3 -m alibi: experiments' folders and event logs as CSV or Parquet files.

Exit status: 0; 64 if the command line is wrong; 66 if something cannot be read or written.
"""

import argparse
import os
import sys

import alibi

USAGE, NO_INPUT = 64, 66


class Parser(argparse.ArgumentParser):
    def error(self, message):
        sys.stderr.write(f'alibi: {message}\n')
        sys.exit(USAGE)


def export(source, out, ending):
    """Yields (frame, name of its file) for a folder or a log; makes each frame when it is asked for."""
    name = os.path.splitext(os.path.basename(os.path.normpath(source)))[0]
    if not os.path.isdir(source):
        yield alibi.event_log(source), os.path.join(out, name + ending)
        return
    yield alibi.results(source), os.path.join(out, f'{name}-results{ending}')
    yield alibi.runs(source), os.path.join(out, f'{name}-runs{ending}')
    for run, path in alibi.logs(source).items():
        yield alibi.event_log(path), os.path.join(out, f'{name}-log-{run}{ending}')


def main():
    parser = Parser(prog='python3 -m alibi', description='Writes what alibi lab run left in a '
                    'folder (results, runs, event logs), or an event log, as tidy tables.')
    parser.add_argument('sources', metavar='FOLDER|LOG', nargs='+')
    parser.add_argument('--out', metavar='FOLDER', default='.', help='where the files go (.)')
    parser.add_argument('--format', choices=['csv', 'parquet'], default='csv')
    arguments = parser.parse_args()
    try:
        os.makedirs(arguments.out, exist_ok=True)
        for source in arguments.sources:
            for frame, path in export(source, arguments.out, f'.{arguments.format}'):
                alibi.write(frame, path)
                print(path)
    except (alibi.Unreadable, OSError) as error:
        sys.stderr.write(f'alibi: {error}\n')
        return NO_INPUT
    return 0


if __name__ == '__main__':
    sys.exit(main())
