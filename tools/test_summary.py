# SPDX-License-Identifier: Apache-2.0
"""Counts test cases in a Bazel build event file and prints `N passed, N failed`.

Usage: test_summary.py EVENTS.json

Bazel's own summary counts targets; this one opens each target's test.xml. A target that did not
build, or did not report, counts as one failed case. Exit status 0 when at least one case passed
and none failed.
"""

import json
import sys
import urllib.parse
import xml.etree.ElementTree


def cases(xml_uri):
    """Yields (name, failed) for every test case of one test.xml."""
    path = urllib.parse.unquote(urllib.parse.urlparse(xml_uri).path)
    for case in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
        failed = case.find("failure") is not None or case.find("error") is not None
        yield case.get("name", "?"), failed


class Summary:
    def __init__(self):
        self.passed = 0
        self.failures = []
        self.results = {}  # (label, run, shard) -> the last attempt's testResult
        self.expected = set()
        self.aborted = set()

    def read(self, event):
        ident = event.get("id", {})
        if "testResult" in ident:
            test = ident["testResult"]
            key = (test["label"], test.get("run", 1), test.get("shard", 1))
            self.results[key] = event.get("testResult", {})
        elif "targetConfigured" in ident:
            if event.get("configured", {}).get("testSize"):
                self.expected.add(ident["targetConfigured"]["label"])
        elif "targetCompleted" in ident and not event.get("completed", {}).get("success", False):
            self.aborted.add(ident["targetCompleted"]["label"])

    def finish(self):
        for (label, _, _), result in sorted(self.results.items(), key=lambda item: item[0]):
            self.count(label, result)
        reported = {label for label, _, _ in self.results}
        for label in sorted((self.expected | self.aborted) - reported):
            self.failures.append(f"{label}: did not build or did not run")

    def count(self, label, result):
        target_passed = result.get("status") in ("PASSED", "FLAKY")
        failed_before = len(self.failures)
        for output in result.get("testActionOutput", []):
            if output["name"] != "test.xml":
                continue
            try:
                for name, failed in cases(output["uri"]):
                    if failed:
                        self.failures.append(f"{label}: {name}")
                    else:
                        self.passed += 1
            except (OSError, xml.etree.ElementTree.ParseError) as error:
                self.failures.append(f"{label}: unreadable report: {error}")
        # A crash after the last case, a timeout, a non-zero exit with every case passed.
        if not target_passed and len(self.failures) == failed_before:
            self.failures.append(f"{label}: {result.get('status', 'no status')}")


def main():
    summary = Summary()
    try:
        with open(sys.argv[1], encoding="utf-8") as events:
            for line in events:
                summary.read(json.loads(line))
    except (OSError, json.JSONDecodeError) as error:
        print(f"test_summary: {error}", file=sys.stderr)
    summary.finish()
    for failure in summary.failures:
        print(f"FAILED {failure}")
    if not summary.passed and not summary.failures:
        print("no tests ran")
    print(f"{summary.passed} passed, {len(summary.failures)} failed")
    return 0 if summary.passed and not summary.failures else 1


if __name__ == "__main__":
    sys.exit(main())
