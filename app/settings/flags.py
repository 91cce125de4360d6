"""Reads the arguments of `mocker serve`: the declared settings, and vLLM's other flags to ignore them.

vLLM's dialect: dashes or underscores, `--flag value` or `--flag=value`, `--no-flag`, several values after one
flag, `--json-flag.key value`, one-dash short names. Knows no other source than argv.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache

from app.settings.declared import settings_by_name
from app.settings.values import Group, Kind, Setting, parse_text
from app.settings.vllm_flags import IGNORED_FLAGS, SHORT_FLAGS, Arity
from mocker_core.errors import ArgumentError

CONFIG_FLAG = Setting(
    name="config",
    kind=Kind.TEXT,
    default=None,
    group=Group.MODEL,
    help="YAML file with settings by their names.",
    vllm=True,
)
_NUMBER = re.compile(r"-\d+(\.\d+)?([eE][+-]?\d+)?")


@dataclass(slots=True)
class GivenFlags:
    """What argv said: values by setting name, and the ignored flags in their order."""

    values: dict[str, object] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)
    config: str | None = None
    help: bool = False


@dataclass(frozen=True, slots=True)
class FlagTarget:
    """What a flag stands for: a setting (perhaps turned off), or with none an ignored flag of this arity."""

    setting: Setting | None = None
    arity: Arity = Arity.ONE
    negated: bool = False


def parse_flags(argv: Sequence[str]) -> GivenFlags:
    """Read argv. Raises ArgumentError for an unknown flag (with the nearest right one) or a wrong value."""
    given = GivenFlags()
    words = list(argv)
    positional: list[str] = []
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word == "--":
            positional += words[at:]
            break
        if word in ("-h", "--help"):
            given.help = True
        elif _looks_like_flag(word):
            at = _take_flag(given, words, at)
        else:
            positional.append(word)
    _take_positional(given, positional)
    return given


def find_flag(head: str) -> FlagTarget | None:
    """What this flag, written with dashes or underscores, stands for; None if nothing."""
    if not head.startswith("--"):
        name = SHORT_FLAGS.get(head)
        return _targets().get(head) if name is None else FlagTarget(arity=IGNORED_FLAGS[name])
    name = head[2:].replace("_", "-")
    target = _targets().get("--" + name)
    if target is not None:
        return target
    arity = IGNORED_FLAGS.get(name)
    if arity is None and IGNORED_FLAGS.get(name.removeprefix("no-")) is Arity.NONE:
        arity = Arity.NONE
    return None if arity is None else FlagTarget(arity=arity)


def known_flags() -> list[str]:
    """Every long flag that is accepted, for suggestions."""
    return sorted({*_targets(), *(f"--{name}" for name in IGNORED_FLAGS)})


@cache
def _targets() -> Mapping[str, FlagTarget]:
    targets: dict[str, FlagTarget] = {"--config": FlagTarget(CONFIG_FLAG)}
    for setting in settings_by_name().values():
        for name in (setting.flag, *setting.aliases):
            targets[name] = FlagTarget(setting)
        off = (f"--no-{setting.flag[2:]}", *setting.negations) if setting.kind is Kind.BOOL else ()
        for name in off:
            targets[name] = FlagTarget(setting, negated=True)
    return targets


def _looks_like_flag(word: str) -> bool:
    return len(word) > 1 and word.startswith("-") and _NUMBER.fullmatch(word) is None


def _take_flag(given: GivenFlags, words: list[str], at: int) -> int:
    """Read the flag at words[at - 1] and its values; the index of the next word."""
    shown, equals, inline = words[at - 1].partition("=")
    head, _, path = shown.partition(".")
    target = find_flag(head)
    if target is None and (glued := re.fullmatch(r"-O(\d)", head)):
        target, equals, inline = find_flag("-O"), "=", glued.group(1)
    if target is None:
        raise _unknown(head)
    values = [inline] if equals else _following_values(target, path, words, at)
    if target.setting is None:
        given.ignored.append(head)
    elif target.setting is CONFIG_FLAG:
        given.config = _one(shown, target.setting, values)
    else:
        _store(given, target, shown, path, values)
    return at if equals else at + len(values)


def _following_values(target: FlagTarget, path: str, words: list[str], at: int) -> list[str]:
    rest: list[str] = []
    for word in words[at:]:
        if _looks_like_flag(word):
            break
        rest.append(word)
    if target.setting is not None and not path:
        if target.setting.kind is Kind.LIST:
            return rest
        switch = target.setting.kind is Kind.BOOL
    else:
        if target.arity is Arity.MANY and not path:
            return rest
        switch = target.arity is Arity.NONE and not path
    if switch:
        # Older vLLM wrote `--enable-chunked-prefill False`.
        return rest[:1] if rest and rest[0].lower() in ("true", "false") else []
    return rest[:1]


def _store(given: GivenFlags, target: FlagTarget, shown: str, path: str, values: list[str]) -> None:
    setting = target.setting
    assert setting is not None
    name = setting.name
    if path:
        _store_nested(given, setting, shown, path, _one(shown, setting, values))
    elif setting.kind is Kind.BOOL:
        on = parse_text(setting, values[0], shown) if values else True
        given.values[name] = bool(on) is not target.negated
    elif setting.kind is Kind.LIST:
        items = _items(setting, shown, values)
        before = given.values.get(name, ())
        assert isinstance(before, tuple)
        given.values[name] = before + items
    else:
        given.values[name] = parse_text(setting, _one(shown, setting, values), shown)


def _items(setting: Setting, shown: str, values: list[str]) -> tuple[str, ...]:
    if not values:
        raise ArgumentError(f"{shown} needs at least one value.")
    items: list[str] = []
    for value in values:
        if value.lstrip().startswith("["):
            parsed = parse_text(setting, value, shown)
            assert isinstance(parsed, tuple)
            items += parsed
        elif value:
            items.append(value)
    return tuple(items)


def _store_nested(given: GivenFlags, setting: Setting, shown: str, path: str, text: str) -> None:
    """`--kv-transfer-config.kv_role kv_both` sets one key of a JSON setting."""
    if setting.kind is not Kind.MAPPING:
        raise ArgumentError(
            f"{shown} has a key after the dot, but {setting.flag} is not a JSON object; leave the key out."
        )
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    whole = given.values.get(setting.name)
    if not isinstance(whole, dict):
        whole = given.values[setting.name] = {}
    *parents, last = path.split(".")
    for key in parents:
        whole = whole.setdefault(key, {})
        if not isinstance(whole, dict):
            raise ArgumentError(
                f"{shown} goes into {key}, which already has a plain value; set one of the two."
            )
    whole[last] = value


def _one(shown: str, setting: Setting, values: list[str]) -> str:
    if not values:
        raise ArgumentError(f"{shown} needs a value; it must be {setting.rule}.")
    return values[0]


def _take_positional(given: GivenFlags, positional: list[str]) -> None:
    if not positional:
        return
    if len(positional) > 1:
        raise ArgumentError(
            f"{positional[1]!r} follows {positional[0]!r} without a flag; only the model may stand alone."
        )
    model = given.values.setdefault("model", positional[0])
    if model != positional[0]:
        raise ArgumentError(f"The model is given twice, as {positional[0]!r} and as --model {model!r}.")


def _unknown(head: str) -> ArgumentError:
    near = get_close_matches("--" + head.lstrip("-").replace("_", "-"), known_flags(), n=1)
    hint = f"Did you mean {near[0]}?" if near else "See `mocker serve --help`."
    return ArgumentError(f"{head} is not a flag of mocker serve. {hint}")
