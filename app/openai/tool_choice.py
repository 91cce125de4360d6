"""Checks tools and tool_choice of Chat or Responses; the legacy functions become tools. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.errors import bad_request
from app.text.json_schema import SchemaError
from app.text.tool_calls import check_function

_USAGE = 'name a function as {"type": "function", "function": {"name": "my_function"}}'


def check_tools(
    tools: Sequence[Mapping[str, Any]] | None,
    tool_choice: str | Mapping[str, Any] | None,
    *,
    kinds: Sequence[str] = ("function", "custom"),
) -> None:
    """Raises ApiError 400 with the param; afterwards `plan_calls` takes both as they are.

    kinds: the types of tools that may stand in the list; only functions are ever called."""
    if tools is None:
        if tool_choice not in (None, "none"):
            raise bad_request("tool_choice is set without tools; set tools too.", "tool_choice")
        return
    if not tools:
        raise bad_request("tools is an empty list; give at least one tool or leave it out.", "tools")
    names = {name for at, tool in enumerate(tools) if (name := _check_tool(tool, f"tools.{at}", kinds))}
    if isinstance(tool_choice, Mapping):
        _check_object(tool_choice, names)
    elif tool_choice not in (None, "none", "auto", "required"):
        raise bad_request(
            f"tool_choice is {tool_choice!r}; it must be none, auto, required or an object.", "tool_choice"
        )
    elif tool_choice == "required" and not names:
        raise bad_request("tool_choice is required, but tools has no function; add one.", "tool_choice")


def tools_of_functions(
    functions: Sequence[Mapping[str, Any]] | None, function_call: object
) -> tuple[list[dict[str, Any]] | None, str | dict[str, Any] | None]:
    """OpenAI's deprecated functions and function_call as (tools, tool_choice). Raises ApiError 400."""
    if functions is None:
        if function_call not in (None, "none"):
            raise bad_request("function_call is set without functions; set functions too.", "function_call")
        return None, None
    if not functions:
        raise bad_request("functions is an empty list; give one or leave it out.", "functions")
    tools = [{"type": "function", "function": function} for function in functions]
    if function_call is None or function_call in ("none", "auto"):
        return tools, str(function_call or "auto")
    name = function_call.get("name") if isinstance(function_call, Mapping) else None
    if not isinstance(name, str) or all(function.get("name") != name for function in functions):
        raise bad_request(
            f"function_call is {function_call!r:.100}; it must be none, auto or "
            'an object with the name of one of the functions, such as {"name": "my_function"}.',
            "function_call",
        )
    return tools, {"type": "function", "function": {"name": name}}


def _check_tool(tool: object, where: str, kinds: Sequence[str]) -> str | None:
    """The function's name, or None for a tool of another kind."""
    if not isinstance(tool, Mapping):
        raise bad_request(f"{where} is {tool!r:.60}; a tool must be an object.", where)
    kind = tool.get("type", "function")
    if kind not in kinds:
        raise bad_request(f"{where}.type is {kind!r:.60}; it must be {' or '.join(kinds)}.", f"{where}.type")
    if kind != "function":
        return None
    function, place = (tool["function"], f"{where}.function") if "function" in tool else (tool, where)
    if not isinstance(function, Mapping):
        raise bad_request(f"{place} must be an object with a name.", place)
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise bad_request(f"{place}.name must be a text that is not empty.", f"{place}.name")
    parameters = function.get("parameters")
    if parameters is not None and not isinstance(parameters, Mapping):
        raise bad_request(
            f"{place}.parameters is {parameters!r:.60}; it must be a JSON Schema object.",
            f"{place}.parameters",
        )
    try:
        check_function(function)
    except SchemaError as error:
        raise bad_request(str(error), f"{place}.parameters") from None
    return name


def _check_object(choice: Mapping[str, Any], names: set[str]) -> None:
    kind = choice.get("type", "function")
    if kind == "allowed_tools":
        _check_allowed(choice, names)
        return
    if kind != "function":
        raise bad_request(
            f"tool_choice.type is {kind!r:.60}; only functions can be named: {_USAGE}.", "tool_choice.type"
        )
    _check_named(choice, names, "tool_choice")


def _check_allowed(choice: Mapping[str, Any], names: set[str]) -> None:
    nested = "allowed_tools" in choice
    where = "tool_choice.allowed_tools" if nested else "tool_choice"
    allowed = choice["allowed_tools"] if nested else choice
    if not isinstance(allowed, Mapping):
        raise bad_request(f"{where} must be an object with mode and tools.", where)
    if allowed.get("mode") not in ("auto", "required"):
        raise bad_request(f"{where}.mode is {allowed.get('mode')!r:.60}; it must be auto or required.", where)
    tools = allowed.get("tools")
    if not isinstance(tools, Sequence) or isinstance(tools, str) or not tools:
        raise bad_request(f"{where}.tools must be a list of at least one tool.", where)
    for at, tool in enumerate(tools):
        if not isinstance(tool, Mapping):
            raise bad_request(f"{where}.tools.{at} must be an object.", where)
        if tool.get("type", "function") == "function":
            _check_named(tool, names, f"{where}.tools.{at}")


def _check_named(choice: Mapping[str, Any], names: set[str], where: str) -> None:
    function, place = (choice["function"], f"{where}.function") if "function" in choice else (choice, where)
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str) or not name:
        raise bad_request(f"{place} has no function name; {_USAGE}.", place)
    if name not in names:
        known = ", ".join(sorted(names)) or "none"
        raise bad_request(
            f"{where} names the function {name!r:.80}, which is not among the tools: {known:.200}.",
            "tool_choice",
        )
