#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pictures of a report as a browser shows it: light and dark, wide and narrow.

usage: look.py report.html FOLDER
"""
import os
import sys

from browser import Browser

PIECE = 1300  # pixels: more would be too small to look at


def main():
    report, folder = sys.argv[1], sys.argv[2]
    os.makedirs(folder, exist_ok=True)
    with Browser() as browser:
        for width in (1000, 400):
            for dark in (False, True):
                browser.open("file://" + os.path.abspath(report), width, dark)
                height = browser.evaluate("document.documentElement.scrollHeight")
                for piece in range(0, height, PIECE):
                    name = f"{width}-{'dark' if dark else 'light'}-{piece // PIECE:02}.png"
                    browser.screenshot(os.path.join(folder, name),
                                       (0, piece, width, min(PIECE, height - piece)))


if __name__ == "__main__":
    main()
