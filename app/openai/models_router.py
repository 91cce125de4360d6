"""GET /v1/models and /v1/models/{id}."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from app.errors import ApiError
from app.state import State

router = APIRouter(tags=["OpenAI"])


@router.get("/v1/models", summary="The models this server answers to")
async def list_models(state: State) -> dict[str, Any]:
    return {"object": "list", "data": state.models.cards()}


@router.get("/v1/models/{model:path}", summary="One model's card")
async def retrieve_model(model: str, state: State) -> dict[str, Any]:
    return state.models.card(model)


@router.delete("/v1/models/{model:path}", summary="Always refused: models are fixed at the start")
async def delete_model(model: str, state: State) -> None:
    state.models.resolve(model)
    raise ApiError(
        403, f"The model `{model}` cannot be deleted; restart the server with other names.", param="model"
    )
