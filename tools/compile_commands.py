# SPDX-License-Identifier: Apache-2.0
"""Turns `bazel aquery --output=jsonproto` on stdin into compile_commands.json on stdout.

Usage: compile_commands.py WORKSPACE_ROOT
"""

import json
import os
import sys

# What gcc knows and the clang tools do not.
GCC_ONLY = {"-fno-canonical-system-headers"}


def main():
    root = sys.argv[1]
    commands = {}
    for action in json.load(sys.stdin).get("actions", []):
        arguments = action.get("arguments", [])
        if "-c" not in arguments:
            continue
        arguments = [argument for argument in arguments if argument not in GCC_ONLY]
        source = arguments[arguments.index("-c") + 1]
        # The first command of a file wins: the same file may be built for several configurations.
        if os.path.exists(os.path.join(root, source)):
            commands.setdefault(source, {"directory": root, "file": source, "arguments": arguments})
    json.dump(list(commands.values()), sys.stdout, indent=1)


if __name__ == "__main__":
    main()
