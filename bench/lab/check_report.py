#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Opens reports in headless Chromium, light and dark, wide and narrow, and checks what it shows.

usage: check_report.py [--sections] report.html...
--sections: every section must have its charts. Where there is no Chromium, a line says so.
"""
import os
import shutil
import sys

from browser import Browser

HEADINGS = ["Nanobenchmarks", "Where a run's overhead goes", "Counts", "Traps over time",
            "Traces, hidden faults, context switches", "Engines and kernel entries", "Macrobenchmarks",
            "Translation", "Sites by kind",
            "The guiltiest sites", "Hosted I/O", "A paravirtual guest", "Programs", "Method"]
CHARTS = ["nanobenchmarks", "convergence", "coherence", "translation", "sites", "overhead"]

# Texts that leave their drawing, or lie over each other: by more than a pixel or two, since boxes
# are those of a font's highest letters.
BAD_TEXTS = """(() => {
  const bad = [];
  for (const svg of document.querySelectorAll('svg.chart')) {
    const frame = svg.getBoundingClientRect();
    if (frame.width === 0) continue;
    const boxes = [...svg.querySelectorAll('text')].map(t => [t, t.getBoundingClientRect()]);
    boxes.forEach(([t, b], i) => {
      if (b.left < frame.left - 1 || b.right > frame.right + 1 || b.top < frame.top - 2 ||
          b.bottom > frame.bottom + 2) bad.push('clipped: ' + t.textContent);
      for (const [u, c] of boxes.slice(i + 1)) {
        if (Math.min(b.right, c.right) - Math.max(b.left, c.left) > 1 &&
            Math.min(b.bottom, c.bottom) - Math.max(b.top, c.top) > 4)
          bad.push('overlap: ' + t.textContent + ' / ' + u.textContent);
      }
    });
  }
  return bad;
})()"""

CONTRAST = """(() => {
  const light = c => { const v = c.match(/[\\d.]+/g).slice(0, 3).map(x => x / 255)
      .map(x => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
    return 0.2126 * v[0] + 0.7152 * v[1] + 0.0722 * v[2]; };
  const ground = light(getComputedStyle(document.body).backgroundColor);
  const ratio = c => { const l = light(c);
    return (Math.max(l, ground) + 0.05) / (Math.min(l, ground) + 0.05); };
  const low = [];
  for (const e of document.querySelectorAll('p, h2, td, th, a, svg.chart text')) {
    const style = getComputedStyle(e);
    const color = e.namespaceURI.endsWith('svg') ? style.fill : style.color;
    if (ratio(color) < 4.5) low.push(e.tagName + ' ' + color);
  }
  return [...new Set(low)];
})()"""


class Checker:
    def __init__(self):
        self.failures = []

    def check(self, condition, what):
        if not condition:
            self.failures.append(what)

    def look(self, browser, path, width, dark, sections):
        url = "file://" + os.path.abspath(path)
        where = f"{path}, {width} px, {'dark' if dark else 'light'}"
        browser.open(url, width, dark)
        # Tables in closed details are pages' content as well.
        browser.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        self.check(not browser.console, f"{where}: the console says {browser.console}")
        asked = [r for r in browser.requests if r != url and not r.startswith("data:")]
        self.check(not asked, f"{where}: asks for {asked}")
        headings = browser.evaluate("[...document.querySelectorAll('h2')].map(h => h.textContent)")
        self.check(headings == HEADINGS, f"{where}: headings are {headings}")
        visible = browser.evaluate("[...document.querySelectorAll('svg.chart')]"
                                   ".filter(s => s.getBoundingClientRect().width > 0).length")
        drawn = browser.evaluate("document.querySelectorAll('figure').length")
        self.check(visible > 0 and visible == drawn, f"{where}: {visible} of {drawn} charts show")
        wide = browser.evaluate("document.documentElement.scrollWidth")
        self.check(wide <= width, f"{where}: {wide} px wide")
        for what in browser.evaluate(BAD_TEXTS):
            self.check(False, f"{where}: {what}")
        for what in browser.evaluate(CONTRAST):
            self.check(False, f"{where}: too little contrast: {what}")
        if sections:
            for name in CHARTS:
                count = browser.evaluate(f"document.querySelectorAll('#{name} svg').length")
                self.check(count > 0, f"{where}: no chart in {name}")
        return browser.evaluate("getComputedStyle(document.body).backgroundColor")


def main():
    if shutil.which("chromium") is None:
        print("skipped the look at reports: no chromium here (./alibi setup installs it)")
        return 0
    arguments = sys.argv[1:]
    sections = "--sections" in arguments
    checker = Checker()
    with Browser() as browser:
        for path in [a for a in arguments if a != "--sections"]:
            grounds = {checker.look(browser, path, width, dark, sections)
                       for width in (1200, 400, 360) for dark in (False, True)}
            checker.check(len(grounds) == 2, f"{path}: light and dark have grounds {grounds}")
    for failure in checker.failures:
        print("FAILED:", failure)
    return 1 if checker.failures else 0


if __name__ == "__main__":
    sys.exit(main())
