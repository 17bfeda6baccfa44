#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""docs/notebook.md, typed as it stands: its shell blocks, then its Python ones, in one session.

Usage: tutorial_test.py PAGE ALIBI (Debian's own Python, which Debian's pandas belongs to)
"""

import doctest
import importlib.util
import os
import re
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True


def main():
    page, program = sys.argv[1], os.path.abspath(sys.argv[2])
    if importlib.util.find_spec('pandas') is None:
        print('skipped: no pandas here (./alibi setup installs it)')
        return 0
    package = os.path.join(os.path.dirname(os.path.abspath(__file__)))
    sys.path.insert(0, package)
    with open(page, encoding='utf-8') as file:
        blocks = re.findall(r'^```(sh|python)\n(.*?)^```$', file.read(), re.M | re.S)
    kinds = [kind for kind, _ in blocks]
    assert kinds.count('sh') >= 2 and kinds.count('python') >= 5, kinds
    work = tempfile.mkdtemp(dir=os.environ.get('TEST_TMPDIR'))
    os.chdir(work)
    os.makedirs('bin')
    os.symlink(program, 'bin/alibi')
    os.symlink('/usr/bin/python3', 'bin/python3')
    os.environ.update(PATH=f'{work}/bin:/usr/bin:/bin', PYTHONPATH=package, PYTHONDONTWRITEBYTECODE='1',
                      ALIBI_DATA=os.path.dirname(os.path.dirname(program)))
    os.environ.pop('ALIBI', None)
    session, failed = {}, 0
    runner = doctest.DocTestRunner()
    for number, (kind, text) in enumerate(blocks):
        if kind == 'sh':
            status = subprocess.run(['bash', '-euo', 'pipefail', '-c', text], check=False).returncode
            if status != 0:
                print(f'status {status} of:\n{text}')
                return 1
            continue
        test = doctest.DocTestParser().get_doctest(text, session, f'block {number + 1}', page, 0)
        failed += runner.run(test, clear_globs=False).failed
        session.update(test.globs)
    return 1 if failed else 0


sys.exit(main())
