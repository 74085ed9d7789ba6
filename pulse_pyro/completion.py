"""Scripts that complete commands in bash, zsh and fish, made from the parser itself."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from pulse_pyro.commands import OFFERS, SHELLS, parser
from pulse_pyro.errors import SettingError, nearest

ENDINGS = {"toml": "*.toml", "py": "*.py", "csv": "*.csv"}
FOLDER = "folder"


@dataclass(frozen=True)
class Verb:
    """A verb: its options with their words, and what stands in place of its argument.

    options : --name -> (help, takes a value, words it may take). offers : words, or kinds of file.
    """

    name: str
    text: str
    options: dict[str, tuple[str, bool, tuple[str, ...]]]
    offers: tuple[str, ...]


def completion(shell: str) -> str:
    """Return the script of a shell: ``eval "$(pulse-pyro completion bash)"`` in its start file."""
    makers = {"bash": _bash, "zsh": _zsh, "fish": _fish}
    if shell not in SHELLS:
        raise SettingError(f"completion: there is no script for {shell!r}{nearest(shell, SHELLS)}")
    return makers[shell](verbs())


def verbs() -> list[Verb]:
    """Return every verb of the parser."""
    [tree] = [a for a in parser()._actions if isinstance(a, argparse._SubParsersAction)]
    helps = {action.dest: action.help or "" for action in tree._choices_actions}
    return [_verb(name, helps.get(name, ""), made) for name, made in tree.choices.items()]


def _verb(name: str, text: str, made: argparse.ArgumentParser) -> Verb:
    options: dict[str, tuple[str, bool, tuple[str, ...]]] = {}
    offers: tuple[str, ...] = ()
    for action in made._actions:
        if action.option_strings:
            long = action.option_strings[-1]
            words = tuple(map(str, action.choices or OFFERS.get((name, long), ())))
            value = action.nargs is None
            if value and not words and long == "--out":
                words = (FOLDER,)
            options[long] = (action.help or "", value, words)
        else:
            offers = OFFERS.get((name, action.dest), ())
    return Verb(name, text, options, offers)


def _bash(known: list[Verb]) -> str:
    cases = []
    for verb in known:
        after = "".join(
            f"        {option}) {_bash_offer(words)}; return ;;\n"
            for option, (_, value, words) in verb.options.items()
            if value
        )
        cases.append(
            f"    {verb.name})\n"
            + (f'      case "$before" in\n{after}      esac\n' if after else "")
            + f'      if [[ "$word" == -* ]]; then\n'
            f'        COMPREPLY=($(compgen -W "{" ".join(verb.options)}" -- "$word"))\n'
            f"      else {_bash_offer(verb.offers)}; fi ;;\n"
        )
    names = " ".join(verb.name for verb in known)
    return (
        "_pulse_pyro() {\n"
        '  local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}"\n'
        "  COMPREPLY=()\n"
        "  if ((COMP_CWORD == 1)); then\n"
        f'    COMPREPLY=($(compgen -W "{names} --help --version" -- "$word")); return\n'
        "  fi\n"
        '  case "${COMP_WORDS[1]}" in\n' + "".join(cases) + "  esac\n}\n"
        "complete -o filenames -F _pulse_pyro pulse-pyro\n"
    )


def _bash_offer(offers: tuple[str, ...]) -> str:
    endings = [ENDINGS[kind] for kind in offers if kind in ENDINGS]
    if endings:  # folders lead to files
        found = "".join(f'$(compgen -f -X "!{ending}" -- "$word") ' for ending in endings)
        return f"local IFS=$'\\n'; COMPREPLY=({found}$(compgen -d -- \"$word\"))"
    if FOLDER in offers:  # by lines: names may hold spaces
        return "local IFS=$'\\n'; COMPREPLY=($(compgen -d -- \"$word\"))"
    return f'COMPREPLY=($(compgen -W "{" ".join(offers)}" -- "$word"))' if offers else ":"


def _zsh(known: list[Verb]) -> str:
    names = "\n".join(f"    {_quoted(f'{v.name}:{v.text}')}" for v in known)
    cases = ""
    for verb in known:
        specs = [
            _quoted(f"{option}[{_bare(text)}]" + (f":value:{_zsh_offer(words)}" if value else ""))
            for option, (text, value, words) in verb.options.items()
        ]
        if verb.offers:
            specs.append(_quoted(f"*:argument:{_zsh_offer(verb.offers)}"))
        cases += f"    {verb.name}) _arguments {' '.join(specs)} ;;\n"
    return (
        "#compdef pulse-pyro\n_pulse_pyro() {\n"
        f"  local -a commands\n  commands=(\n{names}\n  )\n"
        "  if ((CURRENT == 2)); then _describe command commands; return; fi\n"
        "  local verb=$words[2]\n  shift words; ((CURRENT--))\n"
        f'  case "$verb" in\n{cases}  esac\n}}\n'
        "compdef _pulse_pyro pulse-pyro\n"
    )


def _zsh_offer(offers: tuple[str, ...]) -> str:
    endings = [ENDINGS[kind] for kind in offers if kind in ENDINGS]
    if endings:
        return f'_files -g "{endings[0] if len(endings) == 1 else "(" + "|".join(endings) + ")"}"'
    if FOLDER in offers:
        return "_files -/"
    return f"({' '.join(offers)})" if offers else " "


def _fish(known: list[Verb]) -> str:
    lines = ["complete -c pulse-pyro -f"]
    for verb in known:
        lines.append(
            "complete -c pulse-pyro -n __fish_use_subcommand "
            f"-a {verb.name} -d {_quoted(verb.text)}"
        )
        here = f"complete -c pulse-pyro -n '__fish_seen_subcommand_from {verb.name}'"
        for option, (text, value, words) in verb.options.items():
            takes = f" -r {_fish_offer(words)}".rstrip() if value else ""
            lines.append(f"{here} -l {option[2:]} -d {_quoted(text)}{takes}")
        if verb.offers:
            lines.append(f"{here} {_fish_offer(verb.offers)}")
    return "\n".join(lines) + "\n"


def _fish_offer(offers: tuple[str, ...]) -> str:
    if any(kind in ENDINGS for kind in offers):
        found = "; ".join(f"__fish_complete_suffix .{kind}" for kind in offers)
        return f"-a '({found})'"
    if FOLDER in offers:
        return "-a '(__fish_complete_directories)'"
    return f"-a {_quoted(' '.join(offers))}" if offers else ""


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _bare(text: str) -> str:
    return text.replace("[", "(").replace("]", ")").replace(":", ",")
