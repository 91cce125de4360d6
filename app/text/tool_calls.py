"""Which tools an answer calls, and with which arguments.

Must not know requests or plans: tools, a choice and a seed go in, calls come out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from app.text.json_schema import SchemaError, check_schema, generate_json
from app.text.plan import ToolCallText

_SECOND_CALL_PROBABILITY = 0.25


def plan_calls(
    tools: Sequence[Mapping[str, Any]],
    tool_choice: str | Mapping[str, Any] | None,
    seed: int,
    *,
    parallel: bool = True,
    answered: bool = False,
    auto_probability: float = 1.0,
) -> list[ToolCallText]:
    """The calls of one answer; [] means: answer in text.

    tools, tool_choice: as on the wire, Chat's shape or that of Responses, already checked (a named function
    exists). "auto" (and None) calls with auto_probability, but not once the last message is a tool's result
    (`answered`), so that agent loops end. Raises SchemaError for a parameters schema that is not usable."""
    functions = [function for tool in tools if (function := _function_of(tool))]
    for function in functions:
        check_function(function)
    random = Random(f"calls/{seed}")
    choice = tool_choice or "auto"
    if isinstance(choice, Mapping):
        name, required, allowed = _read_choice(choice)
        functions = [function for function in functions if allowed is None or function["name"] in allowed]
    else:
        name, required = None, choice == "required"
    is_auto = name is None and not required
    skipped = choice == "none" or (is_auto and (answered or random.random() >= auto_probability))
    if not functions or skipped:
        return []
    count = 1
    if parallel and name is None and len(functions) > 1 and random.random() < _SECOND_CALL_PROBABILITY:
        count = 2
    chosen = random.sample(functions, count)
    return [_call(function, random.getrandbits(63)) for function in chosen]


def call_id(seed: int, index: int) -> str:
    """A tool call's id, deterministic: "chatcmpl-tool-" and 32 hex digits, as vLLM's."""
    return f"chatcmpl-tool-{Random(f'call-id/{seed}/{index}').getrandbits(128):032x}"


def _function_of(tool: Mapping[str, Any]) -> Mapping[str, Any] | None:
    function = tool.get("function", tool)
    is_function = isinstance(function, Mapping) and isinstance(function.get("name"), str)
    return function if is_function and tool.get("type", "function") == "function" else None


def _read_choice(choice: Mapping[str, Any]) -> tuple[str | None, bool, list[str] | None]:
    """(the one function named, whether a call must come, the functions allowed) of an object tool_choice."""
    if choice.get("type") == "allowed_tools":
        allowed = choice.get("allowed_tools", choice)
        named = [_function_of(tool) for tool in allowed.get("tools", ())]
        return None, allowed.get("mode") == "required", [function["name"] for function in named if function]
    function = _function_of(choice)
    return (function["name"], True, [function["name"]]) if function else (None, True, None)


def check_function(function: Mapping[str, Any]) -> None:
    """Raises SchemaError if the parameters of {name, parameters} are no usable JSON Schema."""
    try:
        check_schema(_parameters(function))
    except SchemaError as error:
        raise SchemaError(
            f"The parameters of the function {function['name']!r} are not usable: {error}"
        ) from None


def _call(function: Mapping[str, Any], seed: int) -> ToolCallText:
    try:
        return ToolCallText(function["name"], generate_json(_parameters(function), seed))
    except SchemaError as error:
        raise SchemaError(
            f"The parameters of the function {function['name']!r} are not usable: {error}"
        ) from None


def _parameters(function: Mapping[str, Any]) -> Any:
    """The arguments' schema; arguments are always an object."""
    parameters = function.get("parameters") or {"type": "object", "properties": {}}
    if isinstance(parameters, dict) and "type" not in parameters and "$ref" not in parameters:
        return {**parameters, "type": "object"}
    return parameters
