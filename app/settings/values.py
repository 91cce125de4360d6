"""What one setting is, and how its value is read from text (flag, environment) or from YAML.

Owns the kinds of values and the sentence that refuses a wrong one. Knows no setting by name and no source by
order: `declared` has them, `load` puts the sources over one another.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from mocker_core.errors import ArgumentError


class Kind(StrEnum):
    """The form of a setting's value; the text is how docs and messages call it."""

    TEXT = "text"
    INT = "whole number"
    SIZE = "size"
    FLOAT = "number"
    BOOL = "true or false"
    LIST = "list of texts"
    MAPPING = "JSON object"


class Group(StrEnum):
    """The headings of `mocker serve --help`, in this order."""

    MODEL = "Model"
    SERVER = "HTTP server"
    SCHEDULER = "Scheduler and KV cache"
    ENGINE = "Simulated engine"
    DISAGGREGATION = "Prefill/decode disaggregation and offload"
    CONTENT = "Content of the answers"
    OBSERVABILITY = "Logging and tracing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting: its flag, environment variable and YAML key all derive from `name`."""

    name: str
    kind: Kind
    default: object
    group: Group
    help: str
    vllm: bool
    aliases: tuple[str, ...] = ()
    negations: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    lowest: float | None = None
    highest: float | None = None
    shorthand: str | None = None
    secret: bool = False

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def env(self) -> str:
        return "MOCKER_" + self.name.upper()

    @property
    def rule(self) -> str:
        """What a right value is, to end the sentence 'it must be ...'."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        noun = {
            Kind.TEXT: "a text",
            Kind.INT: "a whole number",
            Kind.SIZE: "a whole number such as 4096, 32k (32,000) or 32K (32,768)",
            Kind.FLOAT: "a finite number",
            Kind.BOOL: "true or false",
            Kind.LIST: "a list of texts",
            Kind.MAPPING: "a JSON object or @FILE with one",
        }[self.kind]
        if self.shorthand == "type":
            noun = "a name, a JSON object with a type, or @FILE with one"
        if self.shorthand == "thinking_ratio":
            noun = "a ratio from 0 to 1, or a JSON object"
        if self.lowest is not None and self.highest is not None:
            return f"{noun} from {self.lowest:g} to {self.highest:g}"
        return noun if self.lowest is None else f"{noun} >= {self.lowest:g}"


class _WrongValueError(Exception):
    """The value does not fit; the caller knows the sentence."""


_UNSET = frozenset({"none", "null", "auto"})
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})
BOOL_WORDS = _TRUE | _FALSE
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT]?)")
# vLLM's forms: a small letter is decimal, a capital one binary.
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def parse_text(setting: Setting, text: str, where: str) -> object:
    """Read a flag's or an environment variable's text. Raises ArgumentError with `where` in its sentence."""
    try:
        return _check(setting, _from_text(setting, text))
    except _WrongValueError:
        raise _refusal(setting, text, where) from None


def parse_value(setting: Setting, value: object, where: str) -> object:
    """Read a YAML value; null means the default. Raises ArgumentError with `where` in its sentence."""
    if value is None:
        return setting.default
    try:
        if isinstance(value, str):
            return _check(setting, _from_text(setting, value))
        return _check(setting, _from_yaml(setting, value))
    except _WrongValueError:
        raise _refusal(setting, value, where) from None


def split_list(text: str) -> tuple[str, ...]:
    """Items of a list in one text: a JSON list, or else separated by commas outside of braces."""
    stripped = text.strip()
    if stripped.startswith("["):
        try:
            items = json.loads(stripped)
        except ValueError:
            raise _WrongValueError from None
        return tuple(_item(item) for item in items)
    if stripped.startswith("{"):
        return (stripped,)
    return tuple(part.strip() for part in stripped.split(",") if part.strip())


def _refusal(setting: Setting, value: object, where: str) -> ArgumentError:
    shown = "not shown here" if setting.secret else repr(value)
    return ArgumentError(f"{where} is {shown}; it must be {setting.rule}.")


def _from_text(setting: Setting, text: str) -> object:
    stripped = text.strip()
    if setting.default is None and setting.kind is not Kind.LIST and stripped.lower() in _UNSET:
        return None
    try:
        match setting.kind:
            case Kind.TEXT:
                return text
            case Kind.INT:
                return int(stripped)
            case Kind.SIZE:
                return _size(stripped)
            case Kind.FLOAT:
                return float(stripped)
            case Kind.BOOL:
                return _bool(stripped)
            case Kind.LIST:
                return split_list(text)
            case Kind.MAPPING:
                return _mapping(setting, stripped)
    except (ValueError, OSError):
        raise _WrongValueError from None


def _from_yaml(setting: Setting, value: object) -> object:
    kind = setting.kind
    if kind is Kind.BOOL and isinstance(value, bool):
        return value
    if kind is Kind.MAPPING and isinstance(value, Mapping):
        return dict(value)
    if kind is Kind.LIST and isinstance(value, list):
        return tuple(_item(item) for item in value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        if kind is Kind.TEXT:
            return str(value)
        if kind is Kind.LIST:
            return (str(value),)
        if kind is Kind.FLOAT:
            return float(value)
        if kind in (Kind.INT, Kind.SIZE) and math.isfinite(value) and value == int(value):
            return int(value)
        if kind is Kind.MAPPING and setting.shorthand == "thinking_ratio":
            return {"thinking_ratio": float(value)}
    raise _WrongValueError


def _check(setting: Setting, value: object) -> object:
    if setting.choices and value is not None and value not in setting.choices:
        raise _WrongValueError
    if isinstance(value, int | float) and not isinstance(value, bool):
        if not math.isfinite(value):
            raise _WrongValueError
        if setting.lowest is not None and value < setting.lowest:
            raise _WrongValueError
        if setting.highest is not None and value > setting.highest:
            raise _WrongValueError
    return value


def _item(item: object) -> str:
    if isinstance(item, Mapping):
        return json.dumps(item)
    if isinstance(item, str | int | float) and not isinstance(item, bool):
        return str(item)
    raise _WrongValueError


def _bool(text: str) -> bool:
    word = text.lower()
    if word not in BOOL_WORDS:
        raise _WrongValueError
    return word in _TRUE


def _size(text: str) -> int:
    match = _SIZE.fullmatch(text)
    if match is None:
        raise _WrongValueError
    number, letter = match.groups()
    base = 1000 if letter == letter.lower() else 1024
    if "." in number and (not letter or base == 1024):
        raise _WrongValueError
    factor: int = base ** _POWERS[letter.lower()]
    return round(float(number) * factor) if "." in number else int(number) * factor


def _mapping(setting: Setting, text: str) -> Mapping[str, object]:
    if text.startswith("@"):
        text = Path(text[1:]).expanduser().read_text(encoding="utf-8")
    elif setting.shorthand == "thinking_ratio" and not text.startswith("{"):
        return {"thinking_ratio": float(text)}
    elif setting.shorthand is not None and re.fullmatch(r"[A-Za-z][\w-]*", text):
        return {setting.shorthand: text}
    value = json.loads(text)
    if not isinstance(value, dict):
        raise _WrongValueError
    return value
