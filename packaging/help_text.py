# SPDX-License-Identifier: Apache-2.0
"""The program's own --help, taken apart: what the man pages and the completion are made from.

A help text is a description, a line `Usage: ...`, and sections: a title with a colon, then items
indented by two spaces, each a head and a text in a column of its own.
"""

import re
import subprocess

# Where CLI11 puts an item's text, unless the head reaches into it: then it begins a line below.
TEXT_COLUMN = 30


class Item:
    def __init__(self, head, text):
        self.head = head
        self.text = [text] if text else []  # lines; deeper indentation is kept


class Help:
    def __init__(self, words, text):
        self.words = words  # of the command, [] for the program
        self.description = []
        self.usage = []
        self.sections = {}  # title -> items
        items = None
        for line in text.rstrip().splitlines():
            if line.startswith('Usage: '):
                self.usage.append(line.removeprefix('Usage: '))
            elif self.usage and items is None and line.startswith('       '):
                self.usage.append(line.strip())
            elif re.fullmatch(r'[A-Z][\w ]*:', line) and self.usage:
                items = self.sections.setdefault(line[:-1], [])
            elif items is not None and line.strip():
                self._add(items, line)
            elif items is None and line.strip():
                self.description.append(line)
        if not self.usage:
            raise ValueError(f'alibi {" ".join(words)} --help has no line "Usage: ..."')

    @staticmethod
    def _add(items, line):
        if line.startswith(' ' * (TEXT_COLUMN - 2)):
            items[-1].text.append(line[TEXT_COLUMN:].rstrip())
            return
        if line[TEXT_COLUMN - 2:TEXT_COLUMN] == '  ' and line[TEXT_COLUMN:]:
            items.append(Item(line[:TEXT_COLUMN].strip(), line[TEXT_COLUMN:].rstrip()))
            return
        # Our own lists (commands, exit status): narrower, and two spaces may be one.
        head, _, text = line.strip().partition(' ')
        if head.startswith('-') or head.isupper():
            head, text = line.strip(), ''
        items.append(Item(head, text.strip()))

    def items(self, title):
        return self.sections.get(title, [])

    def name(self):
        return '-'.join(['alibi'] + self.words)


class Option:
    """One item of the section Options: `-h,--help`, `--entry BITS:{16,32,64}`, `--disk FILE ...`."""

    def __init__(self, head):
        names, _, value = head.partition(' ')
        self.names = names.split(',')
        self.value = value
        for name in self.names:
            if not re.fullmatch(r'-\w|--[\w-]+', name):
                raise ValueError(f'this is no option: {head}')

    def choices(self):
        match = re.search(r':\{(.*)\}', self.value)
        return match.group(1).split(',') if match else []


def read(program):
    """Yields each command's Help, the program's own first, with a one-line summary."""
    yield from _read(program, [], '')


def _read(program, words, summary):
    text = subprocess.run([program] + words + ['--help'], capture_output=True, text=True,
                          check=True).stdout
    command = Help(words, text)
    yield command, summary or command.description[0]
    for item in command.items('Commands'):
        yield from _read(program, words + [item.head], item.text[0])


def version(program):
    """"alibi 0.1.0" -> "0.1.0"."""
    line = subprocess.run([program, '--version'], capture_output=True, text=True,
                          check=True).stdout
    return line.split()[1]
