# SPDX-License-Identifier: Apache-2.0
"""Debian's packages for a test: the files, or a line that says why not."""

import fcntl
import os
import pathlib
import subprocess
import tempfile

import packages
from verdicts import report


def fetched(folder, fetch, *words, name="Debian's packages"):
    """What fetch(cache, *words) returns; the cache is `folder` where the home cannot be written. None: they
    cannot be had, which fails the test unless ALIBI_OFFLINE forbids to get any."""
    if not os.access(pathlib.Path.home(), os.W_OK):
        os.environ["ALIBI_LINUX_CACHE"] = str(folder)
    try:
        return fetch(packages.cache_folder(), *words)
    except packages.Failure as failure:
        if os.environ.get("ALIBI_OFFLINE"):
            print(f"SKIP {failure}")
        else:
            report(name, str(failure))
        return None


def unpacked(cache, name, *names):
    """Debian's packages `names`, unpacked into one folder `name`; any number of processes may call it."""
    root = cache / name
    done = root / "done"
    if done.exists():
        return root
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / "lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if done.exists():
            return root
        if os.environ.get("ALIBI_OFFLINE"):
            raise packages.Failure(f"{', '.join(names)}: not in {cache}, and ALIBI_OFFLINE forbids to get them")
        with tempfile.TemporaryDirectory(dir=cache) as partial:
            packages.apt(cache, "amd64", "apt-get", "-q", "update")
            packages.apt(cache, "amd64", "apt-get", "-q", "download", *names, cwd=partial)
            for deb in pathlib.Path(partial).glob("*.deb"):
                subprocess.run(["dpkg-deb", "-x", str(deb), str(root)], check=True)
        done.touch()
    return root
