"""Puts the sources over one another: flags, then environment, then the YAML file, then defaults.

The only place that reads the environment and the settings file. Returns the settings with what a person
should be told (ignored flags, suspicious variables); prints and logs nothing itself.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from app.settings.declared import ServeSettings, settings_by_name
from app.settings.flags import CONFIG_FLAG, find_flag, known_flags, parse_flags
from app.settings.values import parse_text, parse_value
from mocker_core.errors import ArgumentError

_PREFIX = "MOCKER_"
_OTHER_VARIABLES = frozenset({"MOCKER_SHARED_DIR"})


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """`settings` is None only when help was asked for."""

    settings: ServeSettings | None
    notices: tuple[str, ...] = ()


def load_settings(argv: Sequence[str], environ: Mapping[str, str]) -> LoadedSettings:
    """Build the settings of one server, checked down to the engine's arguments.

    Raises ArgumentError with one sentence that names the source, the value and what is right.
    """
    given = parse_flags(argv)
    if given.help:
        return LoadedSettings(None)
    notices: list[str] = []
    from_environment = _environment(environ, notices)
    config = given.config or environ.get(CONFIG_FLAG.env)
    from_file, ignored_in_file = _file(config) if config else ({}, [])
    ignored = list(dict.fromkeys(given.ignored + ignored_in_file))
    if ignored:
        notices.append(f"Accepted and ignored, as the mocker does not model them: {', '.join(ignored)}.")
    values: dict[str, Any] = {**from_file, **from_environment, **given.values}
    settings = ServeSettings(**values)
    settings.engine_args()
    return LoadedSettings(settings, tuple(notices))


def settings_from_environment() -> ServeSettings:
    """As load_settings without flags, from this process's environment."""
    settings = load_settings((), os.environ).settings
    assert settings is not None
    return settings


def _environment(environ: Mapping[str, str], notices: list[str]) -> dict[str, object]:
    settings = {setting.env: setting for setting in settings_by_name().values()}
    values: dict[str, object] = {}
    for variable in sorted(environ):
        text = environ[variable]
        setting = settings.get(variable)
        if not text:
            continue  # Compose files and charts pass an unset value on as an empty one.
        if setting is None:
            if variable.startswith(_PREFIX) and variable not in _OTHER_VARIABLES:
                _suspect(variable, settings, notices)
        elif setting.name == "port" and "://" in text:
            # Kubernetes gives every pod NAME_PORT=tcp://... for a service of that name.
            notices.append(f"{variable} is {text!r}, an address that Kubernetes set for a service; ignored.")
        else:
            values[setting.name] = parse_text(setting, text, variable)
    return values


def _suspect(variable: str, known: Mapping[str, object], notices: list[str]) -> None:
    near = get_close_matches(variable, known, n=1, cutoff=0.85)
    if near and variable != CONFIG_FLAG.env:
        notices.append(f"{variable} is not a setting; did you mean {near[0]}?")


def _file(name: str) -> tuple[dict[str, object], list[str]]:
    """The file's values by setting name, and the ignored flags it sets."""
    import yaml

    try:
        content = yaml.safe_load(Path(name).expanduser().read_text(encoding="utf-8"))
    except OSError as error:
        raise ArgumentError(f"--config {name} cannot be read: {error.strerror}.") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise ArgumentError(f"--config {name} is not YAML: {reason}") from None
    if content is None:
        return {}, []
    if not isinstance(content, dict):
        raise ArgumentError(f"--config {name} holds a {type(content).__name__}; it must map names to values.")
    values: dict[str, object] = {}
    ignored: list[str] = []
    for key, value in content.items():
        target = find_flag(f"--{key}")
        where = f"{key} in {name}"
        if target is None or target.setting is CONFIG_FLAG:
            raise _unknown_key(str(key), name)
        if target.setting is None:
            ignored.append(f"--{str(key).replace('_', '-')}")
            continue
        parsed = parse_value(target.setting, value, where)
        values[target.setting.name] = not parsed if target.negated else parsed
    return values, ignored


def _unknown_key(key: str, name: str) -> ArgumentError:
    names = [flag[2:] for flag in known_flags() if flag.startswith("--")]
    near = get_close_matches(key.replace("_", "-"), names, n=1)
    hint = f"Did you mean {near[0]}?" if near else "The names are those of the flags of `mocker serve`."
    return ArgumentError(f"{key} in {name} is not a setting. {hint}")
