# SPDX-License-Identifier: Apache-2.0
"""The verdicts of a test: lines PASS and FAIL, and test cases in the XML that Bazel counts."""

import os
import re
from xml.sax.saxutils import quoteattr

results = []


def report(name, problem=None):
    results.append((name, problem))
    print(f"FAIL {name}: {problem}" if problem else f"PASS {name}", flush=True)


def take(steps, *troubles):
    """Each step; what it raises of these exceptions is its failure."""
    for step in steps:
        try:
            step()
        except troubles as trouble:
            report(getattr(step, "__name__", "step"), str(trouble))


def conclude(suite):
    """Counts, writes the XML file where Bazel wants one; the program's exit status."""
    failed = sum(1 for _, problem in results if problem)
    print(f"{len(results) - failed} passed, {failed} failed")
    if os.environ.get("XML_OUTPUT_FILE"):
        write_xml(os.environ["XML_OUTPUT_FILE"], quoteattr(suite))
    return 1 if failed else 0


def write_xml(path, suite):
    with open(path, "w", encoding="utf-8") as xml:
        xml.write(f"<testsuites><testsuite name={suite}>\n")
        for name, problem in results:
            xml.write(f"<testcase classname={suite} name={quoteattr(name)}>")
            if problem:
                printable = re.sub(r"[^\t\n\x20-\x7e]", "?", problem)
                xml.write(f"<failure message={quoteattr(printable)}/>")
            xml.write("</testcase>\n")
        xml.write("</testsuite></testsuites>\n")
