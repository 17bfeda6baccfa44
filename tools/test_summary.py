# SPDX-License-Identifier: Apache-2.0
"""Sums up a Bazel build event file and prints `N passed, N failed`.

Usage: test_summary.py EVENTS.json

Bazel's own summary counts targets; this one opens each target's test.xml. A target that did not
build, or did not report, counts as one failed case. A line per target comes first, the fastest
target first, so that what is slow stands together at the end. Then three lines per failed case: its
name, the first line of its reason, and the command that repeats it. Exit status 0 when at least one
case passed and none failed.

Environment: ALIBI_BUILD_FLAGS, which the commands repeat.
"""

import json
import os
import re
import shlex
import sys
import urllib.parse
import xml.etree.ElementTree

# What Bazel makes up for a test that writes no report of its own: one case, named after the target.
MADE_UP = "exited with error code"


def first_line(text):
    """The first line of the text that says something, or ""."""
    return next((line.strip() for line in (text or "").splitlines() if line.strip()), "")


def last_line(text):
    return first_line("\n".join(reversed((text or "").splitlines())))


def reason_of(failure, output):
    """Why a case failed. A script's last words say it, since its report is made up by Bazel."""
    said = first_line(failure.get("message")) or first_line(failure.text)
    if said.startswith(MADE_UP):
        return last_line(output) or said
    return said or "no reason given"


def cases(xml_uri):
    """Yields (name, reason) for every test case of one test.xml; the reason of a success is None.

    The name is None where Bazel made up the report: no argument of the test selects such a case.
    """
    path = urllib.parse.unquote(urllib.parse.urlparse(xml_uri).path)
    root = xml.etree.ElementTree.parse(path).getroot()
    output = "\n".join(text.text or "" for text in root.iter("system-out"))
    for case in root.iter("testcase"):
        failure = case.find("failure")
        if failure is None:
            failure = case.find("error")
        if failure is None:
            yield case.get("name", "?"), None
        else:
            made_up = (failure.get("message") or "").startswith(MADE_UP)
            yield None if made_up else case.get("name", "?"), reason_of(failure, output)


def repeat_command(label, case):
    words = ["bazel", "test", "-c", "opt", *os.environ.get("ALIBI_BUILD_FLAGS", "").split(), label]
    if case is not None:
        # Catch2's way to say that these are of the name.
        words.append("--test_arg=" + re.sub(r"([,\[\]\\])", r"\\\1", case))
    return shlex.join(words)


class Failure:
    def __init__(self, label, case, reason):
        self.label, self.case, self.reason = label, case, reason

    def __str__(self):
        name = self.label if self.case is None else f"{self.label}: {self.case}"
        return f"FAILED {name}\n  {self.reason}\n  {repeat_command(self.label, self.case)}"


class Target:
    """What all runs and shards of one target came to."""

    def __init__(self, label):
        self.label = label
        self.seconds = 0.0
        self.passed = 0
        self.failed = 0
        self.cached = True

    def __str__(self):
        verdict = "FAIL" if self.failed else "ok"
        cases = f"{self.passed + self.failed}{', cached' if self.cached else ''}"
        return f"{verdict:<4} {self.seconds:7.1f} s  {self.label} ({cases})"


class Summary:
    def __init__(self):
        self.failures = []
        self.targets = {}
        self.results = {}  # (label, run, shard) -> the last attempt's testResult
        self.expected = set()
        self.aborted = set()

    @property
    def passed(self):
        return sum(target.passed for target in self.targets.values())

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
            self.failures.append(Failure(label, None, "did not build or did not run"))

    def count(self, label, result):
        target = self.targets.setdefault(label, Target(label))
        target.seconds += int(result.get("testAttemptDurationMillis", 0)) / 1000
        execution = result.get("executionInfo", {})
        if not (result.get("cachedLocally") or execution.get("cachedRemotely")):
            target.cached = False
        target_passed = result.get("status") in ("PASSED", "FLAKY")
        failed_before = len(self.failures)
        for output in result.get("testActionOutput", []):
            if output["name"] != "test.xml":
                continue
            try:
                for name, reason in cases(output["uri"]):
                    if reason is None:
                        target.passed += 1
                    else:
                        self.failures.append(Failure(label, name, reason))
            except (OSError, xml.etree.ElementTree.ParseError) as error:
                self.failures.append(Failure(label, None, f"unreadable report: {error}"))
        # A crash after the last case, a timeout, a non-zero exit with every case passed.
        if not target_passed and len(self.failures) == failed_before:
            self.failures.append(Failure(label, None, result.get("status", "no status")))
        target.failed += len(self.failures) - failed_before

    def __str__(self):
        lines = sorted(self.targets.values(), key=lambda target: (target.seconds, target.label))
        lines += self.failures
        if not self.passed and not self.failures:
            lines.append("no tests ran")
        lines.append(f"{self.passed} passed, {len(self.failures)} failed")
        return "\n".join(map(str, lines))


def main():
    summary = Summary()
    try:
        with open(sys.argv[1], encoding="utf-8") as events:
            for line in events:
                summary.read(json.loads(line))
    except (OSError, json.JSONDecodeError) as error:
        print(f"test_summary: {error}", file=sys.stderr)
    summary.finish()
    print(summary)
    return 0 if summary.passed and not summary.failures else 1


if __name__ == "__main__":
    sys.exit(main())
