# SPDX-License-Identifier: Apache-2.0
"""Frames to files, and the one kind of error that this package raises."""

import os

ENDINGS = ('.csv', '.parquet')


class Unreadable(Exception):
    """A file that is missing, damaged, or not what it should be; or that cannot be written here."""


def write(frame, path):
    """Writes a frame as CSV (RFC 4180) or as Parquet, as the path's ending says.

    Either the whole file is there afterwards or none. Parquet is written by pyarrow or fastparquet, whichever pandas
    finds. Debian 12 has neither: docs/notebook.md says how to get one.
    """
    ending = os.path.splitext(path)[1]
    if ending not in ENDINGS:
        raise Unreadable(f"{path}: its name must end with {' or '.join(ENDINGS)}")
    partial = f'{path}.partial'
    try:
        if ending == '.csv':
            frame.to_csv(partial, index=False)
        else:
            frame.to_parquet(partial, index=False)
        os.replace(partial, path)
    except ImportError:
        raise Unreadable(f'{path}: Parquet needs pyarrow or fastparquet, of a version that this pandas '
                         'can use (for pandas 1.5: pip install "pyarrow<21"); or write .csv') from None
    except OSError as error:
        raise Unreadable(f'{path}: {error.strerror or error}') from None
    finally:
        if os.path.exists(partial):
            os.remove(partial)
