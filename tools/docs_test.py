#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The pages that lead into the source are no older than it.

- docs/glossary.md: terms are sorted, and each one's identifier occurs in the source.
- docs/design.md, between `life:begin` and `life:end`: each function is one of runtime's.
- docs/first_hour.md: its patches apply to the tree, each target named is in a BUILD file, the lines
  that `git diff` shows as removed are in the file, and `alibi dump` prints what the page shows. This
  test builds nothing: it does not see that a patch makes the test fail that the page names.

Usage: docs_test.py ALIBI, from the source tree's root or from the test's runfiles.
"""

import os
import re
import shlex
import subprocess
import sys

FOLDERS = ["abi", "adapt", "base", "cli", "devices", "inspect", "machine", "mmu", "pc", "runtime",
           "translator", "vcpu", "vmm"]
ENDINGS = (".h", ".cc", ".inc")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def source(root, folders):
    texts = []
    for folder in folders:
        for place, _, files in os.walk(os.path.join(root, folder)):
            texts += [read(os.path.join(place, name)) for name in files if name.endswith(ENDINGS)]
    return "\n".join(texts)


def occurs(identifier, text):
    return re.search(rf"\b{re.escape(identifier)}\b", text) is not None


def check_glossary(page, text):
    rows = re.findall(r"^\| (?!term )([^|]+) \|.*\| `([^`]+)` \|$", page, re.M)
    if len(rows) != page.count("\n| ") - 1:
        yield "glossary.md: a row does not end with one identifier"
    terms = [term.lower() for term, _ in rows]
    for before, after in zip(terms, terms[1:]):
        if before >= after:
            yield f"glossary.md: '{after}' stands behind '{before}'"
    for term, identifier in rows:
        if not occurs(identifier, text):
            yield f"glossary.md: '{term}': no {identifier} in the source"


def check_life(page, text):
    picture = page.partition("<!-- life:begin -->")[2].partition("<!-- life:end -->")[0]
    functions = set(re.findall(r"\b([A-Z]\w+)\(\)", picture))
    if not functions:
        yield "design.md: no picture of a fragment's life"
    for function in sorted(functions):
        if not re.search(rf"\b(?:EngineImpl|Fragments)::{function}\(", text):
            yield f"design.md: a fragment's life: runtime has no {function}()"


def blocks(page):
    """Yields (commands, output) of the fenced blocks; commands begin with '$ '."""
    for block in re.findall(r"^```\n(.*?)^```$", page, re.M | re.S):
        lines = block.splitlines()
        yield ([line[2:] for line in lines if line.startswith("$ ")],
               [line for line in lines if line and not line.startswith("$ ")])


def squeezed(text):
    return [" ".join(line.split()) for line in text.splitlines()]


def check_patch(root, patch):
    """The old lines of each hunk must stand together in the file; git finds them where they are."""
    for change in re.split(r"^diff .*\n", read(os.path.join(root, patch)), flags=re.M)[1:]:
        name = re.search(r"^--- a/(.+)$", change, re.M)[1]
        text = "\n" + read(os.path.join(root, name))
        for hunk in re.split(r"^@@ .*\n", change, flags=re.M)[1:]:
            old = [line[1:] for line in hunk.splitlines() if line[:1] in (" ", "-")]
            if "\n" + "\n".join(old) + "\n" not in text:
                yield f"{patch} does not apply to {name}"


def check_command(root, words, shown, alibi):
    if words[:2] == ["git", "apply"] and words[2] != "-R":
        yield from check_patch(root, words[2])
    elif words[:2] == ["git", "apply"]:
        if not os.path.exists(os.path.join(root, words[3])):
            yield f"no {words[3]}"
    elif words[:2] == ["git", "diff"]:
        golden = squeezed(read(os.path.join(root, words[2])))
        removed = [line[1:] for line in shown if line.startswith("-")]
        if not removed:
            yield f"{shlex.join(words)}: shows no removed line"
        for line in removed:
            if " ".join(line.split()) not in golden:
                yield f"{words[2]} has no line: {line}"
    elif words[:2] == ["git", "checkout"]:
        for name in words[2:]:
            if not os.path.exists(os.path.join(root, name)):
                yield f"no {name}"
    elif words[0] == "./alibi" and words[1] in ("dump", "cpu"):
        done = subprocess.run([alibi, *words[1:]], capture_output=True, text=True, timeout=60)
        printed = squeezed(done.stdout)
        if done.returncode:
            yield f"{shlex.join(words)}: exit status {done.returncode}"
        for line in shown:
            if not any(" ".join(line.split()) in other for other in printed):
                yield f"{shlex.join(words)} does not print: {line}"
    else:
        targets = [word for word in words if word.startswith("//")]
        if "bazel" not in words or not targets:
            yield f"nothing tests this command: {shlex.join(words)}"
        for target in targets:
            folder, _, name = target[2:].partition(":")
            build = os.path.join(root, folder, "BUILD")
            if not os.path.exists(build) or f'"{name}"' not in read(build):
                yield f"{shlex.join(words)}: no target {target}"


def check_first_hour(root, page, alibi):
    found = False
    for commands, shown in blocks(page):
        for command in commands:
            found = True
            last = command == commands[-1]
            words = shlex.split(command, comments=True)
            yield from check_command(root, words, shown if last else [], alibi)
    if not found:
        yield "first_hour.md: no commands"


def main():
    alibi = os.path.abspath(sys.argv[1])
    # The runfile is a link into the source tree.
    root = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    docs = os.path.join(root, "docs")
    problems = [
        *check_glossary(read(os.path.join(docs, "glossary.md")), source(root, FOLDERS)),
        *check_life(read(os.path.join(docs, "design.md")), source(root, ["runtime"])),
        *check_first_hour(root, read(os.path.join(docs, "first_hour.md")), alibi),
    ]
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
