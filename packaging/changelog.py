# SPDX-License-Identifier: Apache-2.0
"""CHANGELOG.md, and the same in Debian's format."""

import re
import textwrap
from datetime import datetime

MAINTAINER = 'Alibi maintainers <maintainers@alibi.example>'


class Release:
    def __init__(self, version, date):
        self.version = version
        self.date = date
        self.changes = []


def read(path):
    releases = []
    for number, line in enumerate(open(path, encoding='utf-8'), 1):
        line = line.rstrip()
        heading = re.fullmatch(r'## (\d+\.\d+\.\d+) - (\d{4}-\d\d-\d\d)', line)
        if heading:
            releases.append(Release(*heading.groups()))
        elif line.startswith('#') and releases:
            raise ValueError(f'{path}:{number}: a heading is "## 1.2.3 - 2026-12-31"')
        elif line.startswith('- ') and releases:
            releases[-1].changes.append(line[2:])
        elif line.startswith('  ') and releases:
            releases[-1].changes[-1] += ' ' + line.strip()
    if not releases:
        raise ValueError(f'{path}: it has no version')
    return releases


def debian(releases):
    out = []
    for release in releases:
        day = datetime.fromisoformat(release.date).strftime('%a, %d %b %Y 00:00:00 +0000')
        out += [f'alibi ({release.version}) unstable; urgency=medium', '']
        for change in release.changes:
            out += textwrap.wrap(change.replace('`', ''), 76, initial_indent='  * ',
                                 subsequent_indent='    ')
        out += ['', f' -- {MAINTAINER}  {day}', '']
    return '\n'.join(out)
