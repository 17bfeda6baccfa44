# SPDX-License-Identifier: Apache-2.0
"""Debian's packages for a test: the files, or a line that says why not."""

import os
import pathlib

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
