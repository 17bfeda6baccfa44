# SPDX-License-Identifier: Apache-2.0
"""Man pages from the program's --help, so that the two cannot disagree: one for the program, one
for each command (alibi-run.1, alibi-lab-replay.1, ...)."""

import help_text

# What the program's help cannot know: where the package puts things.
FILES = [
    help_text.Item('/usr/lib/alibi/frobos', 'FrobOS: guests for tests and benchmarks, such as '
                   'tests/hello.elf'),
    help_text.Item('/usr/share/doc/alibi/examples', 'programs that embed Alibi, in C++ and C, and '
                   'a policy of one\'s own'),
]


def escape(text):
    text = text.replace('\\', '\\e').replace('-', '\\-')
    # A line that begins like a request would be one.
    return '\\&' + text if text[:1] in ".'" else text


def paragraph(lines):
    """Lines as they are filled, but those that are indented stay lines of their own."""
    out = []
    for line in lines:
        if line.startswith(' '):
            out += ['.br', escape(line.strip())]
        elif line:
            out.append(escape(line))
    return out


def _items(items):
    out = []
    for item in items:
        out += ['.TP', '\\fB' + escape(item.head) + '\\fR']
        out += paragraph(item.text) or ['\\&']
    return out


def page(command, summary, version, date, names):
    """The page's text. `names`: of all pages."""
    name = command.name()
    summary = summary.removeprefix('Alibi ').rstrip('.')
    title = f'.TH {name.upper()} 1 "{date}" "Alibi {version}" "User Commands"'
    out = [title, '.SH NAME', f'{escape(name)} \\- {escape(summary)}', '.SH SYNOPSIS']
    for usage in command.usage:
        out += ['.B ' + escape(usage.split('   ')[0]), '.br']
    out += ['.SH DESCRIPTION'] + paragraph(command.description)
    for section, items in command.sections.items():
        out += [f'.SH {section.upper()}'] + _items(items)
    if not command.words:
        out += ['.SH FILES'] + _items(FILES)
    others = [other for other in names if other != name]
    out += ['.SH SEE ALSO', ',\n'.join(f'.BR {escape(other)} (1)' for other in others)]
    return '\n'.join(out) + '\n'


def pages(program, date):
    """File name -> text."""
    commands = list(help_text.read(program))
    names = [command.name() for command, _ in commands]
    version = help_text.version(program)
    return {f'{command.name()}.1': page(command, summary, version, date, names)
            for command, summary in commands}
