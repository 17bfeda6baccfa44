# SPDX-License-Identifier: Apache-2.0
"""What `alibi lab run` and `--log` leave behind, as pandas DataFrames.

    import alibi
    results = alibi.results("policies-lab")
    alibi.ratios(results, to="native")
    alibi.event_log("boot.log", kinds=["verdict"])

docs/notebook.md is a tutorial. Everything that cannot be read is an Unreadable, with one line that says why.
"""

from alibi._events import event_log, log_counters, log_header, program
from alibi._lab import experiment, figures, logs, ratios, results, runs
from alibi._write import Unreadable, write

__all__ = ['Unreadable', 'event_log', 'experiment', 'figures', 'log_counters', 'log_header', 'logs',
           'program', 'ratios', 'results', 'runs', 'write']
