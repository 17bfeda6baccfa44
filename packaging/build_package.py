#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the Debian packages, alibi and python3-alibi, from what Bazel has built.

Usage: build_package.py --out FILE.deb --python-out FILE.deb --changelog CHANGELOG.md FILE...

The files are told apart by their paths: //packaging:package's list has them all. Needs dpkg-deb,
dpkg-shlibdeps and strip; no root. Equal inputs make equal packages.
"""

import argparse
import gzip
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from datetime import datetime, timezone

sys.dont_write_bytecode = True

import changelog
import completion
import man_pages

LIBRARIES = 'usr/lib/x86_64-linux-gnu'
DATA = 'usr/lib/alibi'  # where the program looks for guests, see cli/bench_files.cc
DOCUMENTS = 'usr/share/doc/alibi'
MODULES = 'usr/lib/python3/dist-packages/alibi'

CONTROL = '''\
Package: alibi
Version: {version}
Architecture: amd64
Maintainer: {maintainer}
Installed-Size: {size}
Depends: {depends}
Recommends: qemu-utils, seabios
Suggests: gdb, qemu-system-x86
Section: otherosfs
Priority: optional
Description: x86 virtual machines in an ordinary process
 Alibi runs x86 operating systems inside an unprivileged Linux process, by
 adaptive dynamic binary translation. It needs no kernel module, no hardware
 support for virtualization, no root and no changes to the guest.
 .
 This package has the program, the library with its C++ and C APIs, and FrobOS,
 a guest for tests and benchmarks.
'''

PYTHON_CONTROL = '''\
Package: python3-alibi
Version: {version}
Architecture: all
Maintainer: {maintainer}
Installed-Size: {size}
Depends: alibi (= {version}), python3:any, python3-pandas
Section: python
Priority: optional
Description: results and event logs of Alibi, for pandas
 Alibi runs x86 operating systems inside an unprivileged Linux process, by
 adaptive dynamic binary translation. Its laboratory leaves tables of results
 behind, and its runs event logs of all that adaptation saw and did.
 .
 This package has the Python package "alibi", which loads both into pandas'
 DataFrames, and writes them as CSV or Parquet.
'''

# Byte code of this system's Python, as dh_python3 has it made; not for another root's.
PYTHON_POSTINST = '''\
#!/bin/sh
set -e
if [ "$1" = configure ] && [ -z "$DPKG_ROOT" ] && command -v py3compile >/dev/null 2>&1; then
  py3compile -p python3-alibi
fi
'''
PYTHON_PRERM = '''\
#!/bin/sh
set -e
if [ -z "$DPKG_ROOT" ] && command -v py3clean >/dev/null 2>&1; then
  py3clean -p python3-alibi
fi
'''


def header_version(path):
    """alibi/version.h -> ("0", "1", "0")."""
    text = pathlib.Path(path).read_text()
    return tuple(re.search(rf'#define ALIBI_VERSION_{part} (\d+)\n', text).group(1)
                 for part in ('MAJOR', 'MINOR', 'PATCH'))


class Tree:
    """The package's files below a temporary root."""

    def __init__(self, root, time):
        self.root = pathlib.Path(root)
        self.time = time

    def path(self, name):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def copy(self, source, name, mode=0o644):
        path = self.path(name)
        shutil.copyfile(source, path)
        path.chmod(mode)
        return path

    def write(self, name, text, mode=0o644):
        path = self.path(name)
        path.write_text(text)
        path.chmod(mode)

    def write_compressed(self, name, text):
        path = self.path(name)
        path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
        path.chmod(0o644)

    def strip(self, path, *options):
        path.chmod(0o755)
        subprocess.run(['strip', '--remove-section=.comment', '--remove-section=.note', *options,
                        path], check=True)

    def finish(self):
        """Folders as Debian has them, and one time for everything."""
        for path in sorted(self.root.rglob('*')):
            if path.is_dir():
                path.chmod(0o755)
            os.utime(path, (self.time, self.time), follow_symlinks=False)

    def kilobytes(self):
        sizes = [path.lstat().st_size for path in self.root.rglob('*')]
        return sum(max(1, (size + 1023) // 1024) for size in sizes)


def add_library(tree, built, version, major):
    path = tree.copy(built, f'{LIBRARIES}/libalibi.so.{version}')
    tree.strip(path, '--strip-unneeded')
    path.chmod(0o644)
    os.symlink(f'libalibi.so.{version}', tree.path(f'{LIBRARIES}/libalibi.so.{major}'))
    os.symlink(f'libalibi.so.{major}', tree.path(f'{LIBRARIES}/libalibi.so'))


def place(tree, path, version):
    """Copies one file to where its path says that it belongs."""
    parts = re.sub(r'^bazel-out/[^/]+/bin/', '', path)
    name = os.path.basename(parts)
    if parts == 'cli/alibi':
        tree.strip(tree.copy(path, 'usr/bin/alibi'))
    elif parts == 'packaging/libalibi.so':
        add_library(tree, path, '.'.join(version), version[0])
    elif parts.startswith('include/alibi/'):
        tree.copy(path, f'usr/include/alibi/{name}')
    elif parts.startswith('examples/'):
        tree.copy(path, f'{DOCUMENTS}/{parts}')
    elif parts.startswith('frobos/'):
        if parts.endswith('.elf64'):  # the same kernel again, for debuggers
            return
        copy = tree.copy(path, f'{DATA}/{parts}')
        if name.startswith('native'):  # the host's programs; guests keep their symbols
            tree.strip(copy)
    elif parts == 'packaging/copyright':
        tree.copy(path, f'{DOCUMENTS}/copyright')
    elif parts.startswith(('python/', 'docs/')):
        return  # python3-alibi's
    elif parts == 'packaging/lintian-overrides':
        tree.copy(path, 'usr/share/lintian/overrides/alibi')
    elif parts.endswith('.in'):
        text = pathlib.Path(path).read_text()
        for word, value in zip(('MAJOR', 'MINOR', 'PATCH'), version):
            text = text.replace(f'@{word}@', value)
        folder = 'pkgconfig' if name == 'alibi.pc.in' else 'cmake/alibi'
        tree.write(f'{LIBRARIES}/{folder}/{name.removesuffix(".in")}',
                   text.replace('@VERSION@', '.'.join(version)))
    else:
        raise ValueError(f'{path}: the package has no place for it')


def symbols(tree, version):
    """What dpkg-shlibdeps makes dependencies of programs that use the library from."""
    library, = (tree.root / LIBRARIES).glob('libalibi.so.*.*')
    out = subprocess.run(['nm', '-D', '--defined-only', '--with-symbol-versions', library],
                         check=True, capture_output=True, text=True).stdout
    names = sorted(line.split()[2].replace('@@', '@') for line in out.splitlines())
    # The version itself is a symbol, too.
    lines = [name if '@' in name else f'{name}@{name}' for name in names]
    return (f'libalibi.so.{version[0]} alibi #MINVER#\n* Build-Depends-Package: alibi\n' +
            ''.join(f' {line} {".".join(version)}\n' for line in lines))


def dependencies(tree, work):
    """What the shared libraries' own packages say."""
    binaries = [tree.root / 'usr/bin/alibi', *(tree.root / LIBRARIES).glob('libalibi.so.*.*')]
    (work / 'debian').mkdir()
    (work / 'debian/control').write_text('Source: alibi\n\nPackage: alibi\nArchitecture: amd64\n')
    out = subprocess.run(['dpkg-shlibdeps', '-O', '--warnings=0', *binaries], cwd=work, check=True,
                         capture_output=True, text=True).stdout
    return re.search(r'^shlibs:Depends=(.*)$', out, re.M).group(1)


def build(tree, out, control, version):
    """DEBIAN/control and sums, then the package."""
    tree.write('DEBIAN/control', control.format(version='.'.join(version), size=tree.kilobytes(),
                                                maintainer=changelog.MAINTAINER))
    tree.finish()
    sums = [f'{hashlib.md5(path.read_bytes()).hexdigest()}  {path.relative_to(tree.root)}\n'
            for path in sorted((tree.root / 'usr').rglob('*'))
            if path.is_file() and not path.is_symlink()]
    tree.write('DEBIAN/md5sums', ''.join(sums))
    tree.finish()
    subprocess.run(['dpkg-deb', '--root-owner-group', '-Zxz', '--build', tree.root,
                    os.path.abspath(out)], check=True, stdout=subprocess.DEVNULL,
                   env=dict(os.environ, SOURCE_DATE_EPOCH=str(tree.time)))


def build_python(work, arguments, version, releases, time):
    tree = Tree(work / 'python', time)
    documents = 'usr/share/doc/python3-alibi'
    for path in arguments.files:
        if path.startswith('python/alibi/'):
            tree.copy(path, f'{MODULES}/{os.path.basename(path)}')
        elif path == 'packaging/copyright':
            tree.copy(path, f'{documents}/copyright')
        elif path == 'docs/notebook.md':
            tree.copy(path, f'{documents}/notebook.md')
    tree.write_compressed(f'{documents}/changelog.gz', changelog.debian(releases))
    tree.write('DEBIAN/postinst', PYTHON_POSTINST, 0o755)
    tree.write('DEBIAN/prerm', PYTHON_PRERM, 0o755)
    build(tree, arguments.python_out, PYTHON_CONTROL, version)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--out', required=True)
    parser.add_argument('--python-out', required=True)
    parser.add_argument('--changelog', required=True)
    parser.add_argument('files', nargs='+')
    arguments = parser.parse_args()

    program = next(path for path in arguments.files if path.endswith('cli/alibi'))
    header = next(path for path in arguments.files if path.endswith('alibi/version.h'))
    version = header_version(header)
    releases = changelog.read(arguments.changelog)
    if releases[0].version != '.'.join(version):
        sys.exit(f'{arguments.changelog}: the first version is {releases[0].version}, '
                 f'{header} says {".".join(version)}; they must agree')
    day = datetime.fromisoformat(releases[0].date).replace(tzinfo=timezone.utc)
    time = int(day.timestamp())
    with tempfile.TemporaryDirectory() as work_name:
        work = pathlib.Path(work_name)
        tree = Tree(work / 'root', time)
        for path in arguments.files:
            place(tree, path, version)
        for name, text in man_pages.pages(os.path.abspath(program), releases[0].date).items():
            tree.write_compressed(f'usr/share/man/man1/{name}.gz', text)
        tree.write('usr/share/bash-completion/completions/alibi',
                   completion.script(os.path.abspath(program)))
        tree.write_compressed(f'{DOCUMENTS}/changelog.gz', changelog.debian(releases))
        # A new library's name is looked up through the loader's cache.
        tree.write('DEBIAN/triggers', 'activate-noawait ldconfig\n')
        tree.write('DEBIAN/symbols', symbols(tree, version))
        tree.write('DEBIAN/shlibs', f'libalibi {version[0]} alibi (>= {".".join(version)})\n')
        control = CONTROL.replace('{depends}', dependencies(tree, work))
        build(tree, arguments.out, control, version)
        build_python(work, arguments, version, releases, time)


main()
