# SPDX-License-Identifier: Apache-2.0
"""The folder of an experiment: results.csv, experiment.json, logs/ (docs/lab.md)."""

import json
import os

import pandas

from alibi._write import Unreadable

BEFORE = ['run', 'workload', 'system', 'policy']
AFTER = ['repeat', 'metric', 'value', 'unit']
# The repeat of runs that were observed instead of timed.
OBSERVED = 0


def experiment(folder):
    """experiment.json: the host, versions, the experiment's text, every run's command and failure."""
    path = os.path.join(folder, 'experiment.json')
    try:
        with open(path, encoding='utf-8') as file:
            about = json.load(file)
    except OSError as error:
        raise Unreadable(f'{path}: {error.strerror}') from None
    except ValueError as error:
        raise Unreadable(f'{path}: {error}') from None
    if not isinstance(about, dict):
        raise Unreadable(f'{path}: not the JSON of an experiment')
    return about


def results(folder):
    """results.csv, a row for each value.

    Columns: run, workload, system, policy, host (of an experiment that was spread over hosts), one for each parameter
    (missing where a peer has none), repeat (0: the observed run, whose times are no figures), metric, value, unit.
    """
    path = os.path.join(folder, 'results.csv')
    # Nothing but empty cells is missing: "NA" or "nan" may be somebody's workload.
    texts = {'run': str, 'workload': 'category', 'system': 'category', 'metric': 'category',
             'unit': 'category'}
    try:
        with open(path, encoding='utf-8') as file:
            head = file.readline().rstrip('\n').split(',')
            file.seek(0)
            if head[:len(BEFORE)] != BEFORE or head[-len(AFTER):] != AFTER:
                raise Unreadable(f'{path}: these are not the columns of an experiment\'s results')
            settings = head[len(BEFORE) - 1:-len(AFTER)]
            frame = pandas.read_csv(
                file, keep_default_na=False,
                na_values={name: [''] for name in settings},
                dtype={**texts, **{name: 'category' for name in settings}, 'repeat': 'int64',
                       'value': 'float64'})
    except OSError as error:
        raise Unreadable(f'{path}: {error.strerror}') from None
    except ValueError as error:
        raise Unreadable(f'{path}: {error}') from None
    return frame


def runs(folder):
    """A row for each run that was made: run, workload, system, policy, repeat, parameters, command, failure ("": none)."""
    rows = []
    for run in experiment(folder).get('runs', []):
        parameters = run.get('parameters', {})
        rows.append({**{name: value for name, value in run.items() if name != 'parameters'},
                     **parameters, 'command': ' '.join(run.get('command', []))})
    return pandas.DataFrame(rows)


def logs(folder):
    """Event logs of observed runs: {run: path}. Those that were removed are not in it."""
    found = {}
    for run in experiment(folder).get('runs', []):
        path = os.path.join(folder, 'logs', f"{run['run']}.log")
        if os.path.exists(path):
            found[run['run']] = path
    return found


def _settings(frame):
    """The columns that tell configurations apart: all between workload and repeat."""
    columns = list(frame.columns)
    return columns[columns.index('system'):columns.index('repeat')]


def figures(frame):
    """Medians over repeats, as reports have them: a row for each workload, metric, host and configuration.

    Columns: workload, metric, unit, the configuration's, value (the median), least, most, repeats.
    """
    timed = frame[frame['repeat'] != OBSERVED]
    keys = ['workload', 'metric', 'unit'] + _settings(frame)
    # As plain texts: pandas 1.5 drops groups whose category is missing, whatever `dropna` says.
    timed = timed.astype({key: object for key in keys})
    groups = timed.groupby(keys, observed=True, dropna=False, sort=False)['value']
    return groups.agg(value='median', least='min', most='max', repeats='count').reset_index()


def ratios(frame, to='native'):
    """Figures in times of a peer's (`native` or `qemu-tcg`): as `figures`, with `peer` and `ratio`.

    Both parts of a ratio are of one host; what the peer did not measure there has no row.
    """
    all_figures = figures(frame)
    keys = ['workload', 'metric', 'unit'] + (['host'] if 'host' in frame else [])
    peers = all_figures[all_figures['system'] == to][keys + ['value']]
    ours = all_figures[all_figures['system'] != to]
    merged = ours.merge(peers.rename(columns={'value': 'peer'}), on=keys, validate='many_to_one')
    merged = merged[merged['peer'] != 0]
    return merged.assign(ratio=merged['value'] / merged['peer']).reset_index(drop=True)
