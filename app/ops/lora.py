"""POST /v1/load_lora_adapter and /v1/unload_lora_adapter, and the adapters of --lora-modules.

An adapter is a name that the server answers to; nothing is read from its path.
"""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Body
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel, Field

from app.errors import ApiError, bad_request
from app.state import AppState, State
from mocker_core.errors import ArgumentError

router = APIRouter(tags=["vLLM"], default_response_class=PlainTextResponse)


class LoadLora(BaseModel, strict=True):
    """`base_model_name`: the parent that its card shows. `load_inplace`: replace one of the same name."""

    lora_name: str = Field(min_length=1)
    lora_path: str = Field(min_length=1)
    base_model_name: str | None = None
    load_inplace: bool = False
    is_3d_lora_weight: bool = False


class UnloadLora(BaseModel, strict=True):
    lora_name: str = Field(min_length=1)
    lora_int_id: int | None = None


_LOAD = {"lora_name": "sql", "lora_path": "adapters/sql"}


@router.post("/v1/load_lora_adapter", summary="Answer to an adapter's name as well")
async def load_lora_adapter(state: State, request: Annotated[LoadLora, Body(examples=[_LOAD])]) -> str:
    """Plain text on success, as vLLM answers."""
    name, models = request.lora_name, state.models
    if name in models and not (request.load_inplace and models.is_adapter(name)):
        raise bad_request(
            f"The lora adapter '{name:.200}' has already been loaded; unload it first or set load_inplace.",
            "lora_name",
        )
    parent = request.base_model_name
    if parent is not None:
        models.resolve(parent)
    if name in models:
        models.remove_adapter(name)
    models.add_adapter(name, request.lora_path, parent)
    return f"Success: LoRA adapter '{name}' added successfully."


@router.post("/v1/unload_lora_adapter", summary="Answer to an adapter's name no longer")
async def unload_lora_adapter(
    state: State, request: Annotated[UnloadLora, Body(examples=[{"lora_name": "sql"}])]
) -> str:
    """Requests under its name that run go on. Plain text on success."""
    name = request.lora_name
    if not state.models.is_adapter(name):
        raise ApiError(404, f"The lora adapter '{name:.200}' cannot be found.", param="lora_name")
    state.models.remove_adapter(name)
    return f"Success: LoRA adapter '{name}' removed successfully."


def install_lora(state: AppState) -> None:
    """The adapters of --lora-modules. Raises ArgumentError for a form that is neither NAME=PATH nor JSON."""
    for text in state.settings.lora_modules:
        name, path, parent = _module(text)
        if name in state.models:
            raise ArgumentError(f"--lora-modules names {name!r} twice, or as a model; names must differ.")
        state.models.add_adapter(name, path, parent)


def _module(text: str) -> tuple[str, str, str | None]:
    if text.startswith("{"):
        try:
            values: Any = json.loads(text)
        except ValueError:
            values = None
    else:
        values = dict(zip(("name", "path"), text.split("=", 1), strict=False))
    found = values if isinstance(values, dict) else {}
    name, path, parent = (found.get(key) for key in ("name", "path", "base_model_name"))
    if not (isinstance(name, str) and name and isinstance(path, str) and path):
        raise ArgumentError(
            f"--lora-modules has {text!r}; each must be NAME=PATH or JSON such as "
            '{"name": "a", "path": "b"}.'
        )
    return name, path, parent if isinstance(parent, str) else None
