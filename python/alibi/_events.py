# SPDX-License-Identifier: Apache-2.0
"""Event logs (docs/event_log.md), read by the program itself, which alone knows the format's records."""

import json
import os
import shutil
import struct
import subprocess
import tempfile

import numpy
import pandas

from alibi._write import Unreadable

# By their names in docs/event_log.md; every other column is a number.
TEXT = {'record', 'event', 'from', 'to', 'access', 'bytes', 'instruction', 'why'}
FLAGS = {'trapped', 'user', 'site_table', 'written'}
# Rows that are turned into typed columns at once: bounds the memory for their text.
CHUNK = 1 << 19


def program():
    """The path of `alibi`: $ALIBI, or the one in PATH."""
    named = os.environ.get('ALIBI')
    found = shutil.which(named or 'alibi')
    if found is None:
        raise Unreadable(f"{named or 'alibi'}: no such program; install the package alibi, or set "
                         'ALIBI to its path')
    return found


def log_header(path):
    """The log's header: program, host_cpu, policy, engine, command, tsc_hz, prices of a trap and a callout, ..."""
    try:
        with open(path, 'rb') as file:
            preamble = file.read(24)
            if len(preamble) == 24 and preamble[:8] == b'AlibiLog':
                # Version, then the header's length: no more is read than the file has.
                length, = struct.unpack_from('<I', preamble, 12)
                return json.loads(file.read(length))
    except OSError as error:
        raise Unreadable(f'{path}: {error.strerror}') from None
    except ValueError:
        pass
    raise Unreadable(f'{path}: not an event log')


def _rows(path, options, read):
    """What read(FILE) makes of the rows that `alibi log` prints; its complaint is Unreadable."""
    with tempfile.TemporaryFile(mode='w+') as complaints:
        with subprocess.Popen([program(), 'log', *options, '--', path], text=True,
                              stdout=subprocess.PIPE, stderr=complaints) as child:
            made = read(child.stdout)
        if child.returncode != 0:
            complaints.seek(0)
            lines = complaints.read().strip().splitlines() or [f'exit status {child.returncode}']
            raise Unreadable(lines[-1].removeprefix('alibi: '))
    return made


def _numbers(texts):
    """Decimal and 0x numbers of 64 bits; an empty cell is missing."""
    kinds = texts.astype('category')
    # Each number once: logs have millions of rows and some thousands of addresses.
    # numpy makes floats of a list with numbers on both sides of 2^63 unless it is told.
    numbers = numpy.array([int(text, 0) for text in kinds.cat.categories], dtype='uint64')
    values = pandas.array(numbers, dtype='UInt64')
    return pandas.Series(values.take(kinds.cat.codes, allow_fill=True), index=texts.index)


def _typed(chunk):
    columns = {}
    for name in chunk.columns:
        if name in TEXT:
            columns[name] = chunk[name]
        elif name in FLAGS:
            columns[name] = chunk[name].map({'true': True, 'false': False}).astype('boolean')
        else:
            columns[name] = _numbers(chunk[name])
    return pandas.DataFrame(columns)


def event_log(path, kinds=None, sites=None):
    """A log's records, a row each, with the columns of docs/event_log.md that any of them has.

    kinds: names of records, such as ["occurrence", "verdict"]. sites: their numbers, or PCs as "0x..." strings.
    Addresses and counts are UInt64, with <NA> where a record has none; flags are boolean; texts are categories.
    A log that is damaged or cut off is Unreadable.
    """
    options = ['--csv']
    if kinds is not None:
        options += ['--kind', ','.join(kinds)]
    if sites is not None:
        options += ['--site', ','.join(str(site) for site in sites)]

    def read(file):
        try:
            chunks = pandas.read_csv(file, dtype=str, keep_default_na=False, na_values=[''],
                                     chunksize=CHUNK)
        except pandas.errors.EmptyDataError:
            return None  # the program says why
        return pandas.concat([_typed(chunk) for chunk in chunks], ignore_index=True)

    frame = _rows(path, options, read)
    if len(frame) != 0:
        frame = frame.dropna(axis='columns', how='all')
    for name in TEXT & set(frame.columns):
        frame[name] = frame[name].astype('category')
    return frame


def log_counters(path):
    """All counters at the end of a complete log, by their names: a Series."""
    rows = _rows(path, ['--json', '--kind', 'end'],
                 lambda file: [json.loads(line) for line in file])
    if not rows:
        raise Unreadable(f'{path}: has no end')
    return pandas.Series(rows[-1].get('counters', {}), dtype='float64')
