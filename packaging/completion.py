# SPDX-License-Identifier: Apache-2.0
"""Completion for bash from the program's --help: commands, options, the values of those that have a
list, and files otherwise."""

import help_text

_TEMPLATE = '''\
# bash completion for alibi, made from its --help.

_alibi() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}}
  local command='' word
  # The words that name the command: those before the first option, as far as there are any.
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case "$command $word" in
      {prefixes}) command="$command $word" ;;
      *) break ;;
    esac
  done
  local commands='' options='' values=''
  case "$command" in
{commands}
  esac
  # Bash takes --option=value for three words.
  [[ $current == '=' ]] && current=''
  [[ $previous == '=' ]] && previous=${{COMP_WORDS[COMP_CWORD-2]}}
  case "$command $previous" in
{values}
  esac
  if [[ -n $values ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$values" -- "$current")
  elif [[ $current == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$current")
  elif [[ -n $commands ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$current")
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
  fi
}}
complete -o filenames -F _alibi alibi
'''


def script(program):
    prefixes, commands, values = [], [], []
    for command, _ in help_text.read(program):
        key = ''.join(' ' + word for word in command.words)
        if command.words:
            prefixes.append(f'"{key}"')
        options = [help_text.Option(item.head) for item in command.items('Options')]
        names = [name for option in options for name in option.names] or ['--help', '--version']
        below = [item.head for item in command.items('Commands')]
        commands.append(f"    '{key}') commands='{' '.join(below)}' options='{' '.join(names)}' ;;")
        for option in options:
            if option.choices():
                patterns = ' | '.join(f"'{key} {name}'" for name in option.names)
                values.append(f"    {patterns}) values='{' '.join(option.choices())}' ;;")
    return _TEMPLATE.format(prefixes=' | '.join(prefixes), commands='\n'.join(commands),
                            values='\n'.join(values))
