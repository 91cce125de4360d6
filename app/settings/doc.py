"""Texts made from the declared settings: `mocker serve --help` and docs/configuration.md.

`python -m app.settings.doc` prints the document; `--write` puts it into docs/. A test fails when it drifts.
"""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

from app.settings.declared import settings_by_name
from app.settings.values import Group, Kind, Setting
from app.settings.vllm_flags import IGNORED_FLAGS

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "configuration.md"

_INTRODUCTION = """\
# Configuration

Generated from `app/settings/declared.py` by `make docs`; edit the settings there, not this file.

A setting has one name in four places. Who comes first in this list wins:

1. a flag: `mocker serve --max-num-seqs 64`
2. an environment variable: `MOCKER_MAX_NUM_SEQS=64` (an empty one counts as unset)
3. a key of the YAML file given with `--config FILE` or `MOCKER_CONFIG`: `max-num-seqs: 64`
4. the default

Flags and keys take dashes or underscores. `--flag value` and `--flag=value` are the same; a switch is turned
off with `--no-flag`. A list takes several values after one flag, the flag again, or a JSON list; in the
environment its items are separated by commas. A JSON object may be written out, taken from a file (`@FILE`),
or set key by key (`--kv-transfer-config.kv_role kv_producer`). Sizes may end in k, m, g, t (powers of 1000)
or K, M, G, T (powers of 1024). In YAML null means the default. A wrong value, an unknown flag or an unknown
key stops the start.

Settings marked **vLLM** have the name and the meaning that they have in vLLM.
"""


def serve_help(width: int | None = None) -> str:
    """The text of `mocker serve --help`, one heading for each group."""
    columns = min(width or shutil.get_terminal_size((100, 24)).columns, 110)
    lines = [
        "usage: mocker serve [MODEL] [--flag value ...]",
        "",
        "Serve the OpenAI API of a simulated vLLM engine. Flags win over environment variables",
        "(MOCKER_PORT for --port), and those over the file given with --config. Further flags of",
        f"vLLM ({len(IGNORED_FLAGS)}) are accepted and ignored; docs/configuration.md lists them.",
        "",
        "  -h, --help                Show this text.",
        "  --config FILE             Settings by name, as YAML.",
    ]
    for group in Group:
        lines += ["", f"{group.value}:"]
        for setting in _of(group):
            lines += _help_lines(setting, columns)
    return "\n".join(lines) + "\n"


def configuration_document() -> str:
    """The whole of docs/configuration.md."""
    parts = [_INTRODUCTION]
    for group in Group:
        parts.append(f"\n## {group.value}\n\n| flag | default | meaning |\n|---|---|---|\n")
        parts += [_row(setting) for setting in _of(group)]
    parts.append("\n## Flags of vLLM that are accepted and ignored\n\n")
    parts.append(
        "They change nothing here; the server names those it was given in one line when it starts.\n\n"
    )
    names = " ".join(f"`--{name}`" for name in sorted(IGNORED_FLAGS))
    parts.append(textwrap.fill(names, 110, break_on_hyphens=False, break_long_words=False) + "\n")
    return "".join(parts)


def _of(group: Group) -> Iterator[Setting]:
    return (setting for setting in settings_by_name().values() if setting.group is group)


def _help_lines(setting: Setting, columns: int) -> list[str]:
    left = f"  {_names(setting)}"
    text = setting.help + ("" if _default(setting) is None else f" [{_default(setting)}]")
    indent = " " * 28
    body = textwrap.wrap(text, columns, initial_indent=indent, subsequent_indent=indent)
    if len(left) < 27:
        return [left.ljust(28) + body[0].lstrip(), *body[1:]]
    return [left, *body]


def _names(setting: Setting) -> str:
    names = ", ".join((*(alias for alias in setting.aliases if not alias.startswith("--")), setting.flag))
    if setting.kind is Kind.BOOL:
        return f"--[no-]{setting.flag[2:]}"
    metavar = {
        Kind.TEXT: setting.name.rsplit("_", 1)[-1].upper(),
        Kind.INT: "N",
        Kind.SIZE: "N",
        Kind.FLOAT: "X",
        Kind.LIST: f"{setting.name.rsplit('_', 1)[-1].upper()} ...",
        Kind.MAPPING: "JSON",
    }[setting.kind]
    return f"{names} {'{' + ','.join(setting.choices) + '}' if setting.choices else metavar}"


def _default(setting: Setting) -> str | None:
    match setting.default:
        case None | () | "":
            return None
        case bool(value):
            return "on" if value else "off"
        case tuple(items):
            return " ".join(items)
        case Mapping() as mapping:
            return json.dumps(mapping)
        case float(number):
            return f"{number:.10g}"
        case other:
            return str(other)


def _row(setting: Setting) -> str:
    default = "" if _default(setting) is None else f"`{_default(setting)}`"
    also = [*setting.aliases, *setting.negations]
    meaning = setting.help
    if setting.choices:
        meaning += f" One of {', '.join(f'`{choice}`' for choice in setting.choices)}."
    if also:
        meaning += f" Also {', '.join(f'`{name}`' for name in also)}."
    if setting.vllm:
        meaning += " **vLLM**"
    return f"| `{_names(setting).split(' {')[0]}` | {default} | {meaning.replace('|', '/')} |\n"


def main(argv: list[str]) -> int:
    """Print the document, or with --write store it."""
    if "--write" in argv:
        DOCUMENT.write_text(configuration_document(), encoding="utf-8")
    else:
        sys.stdout.write(configuration_document())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
