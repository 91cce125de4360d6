"""The names this server answers to, as vLLM's model cards; GET /v1/models and /v1/models/{id}.

LoRA adapters register here too. Must not know the engine.
"""

from __future__ import annotations

import time
from typing import Any

from app.errors import model_not_found


class ModelRegistry:
    """Model names in order; the first is the base model. `created` is the server's start, in seconds."""

    def __init__(self, names: tuple[str, ...], root: str, max_model_len: int) -> None:
        self._created = int(time.time())
        self._root = root
        self._max_model_len = max_model_len
        self._parents: dict[str, str | None] = dict.fromkeys(names)
        self._roots: dict[str, str] = {}
        self._base = names[0]

    @property
    def base(self) -> str:
        return self._base

    def resolve(self, name: str | None) -> str:
        """The name to show in the answer; a missing one means the base model. Raises ApiError 404."""
        if not name:
            return self._base
        if name not in self._parents:
            raise model_not_found(name)
        return name

    def __contains__(self, name: object) -> bool:
        return name in self._parents

    def is_adapter(self, name: str) -> bool:
        return self._parents.get(name) is not None

    def add_adapter(self, name: str, path: str, parent: str | None = None) -> None:
        """The caller has checked that `name` is free."""
        self._parents[name] = parent or self._base
        self._roots[name] = path

    def remove_adapter(self, name: str) -> None:
        del self._parents[name]
        self._roots.pop(name, None)

    def card(self, name: str) -> dict[str, Any]:
        """One model card. Raises ApiError 404."""
        self.resolve(name)
        return {
            "id": name,
            "object": "model",
            "created": self._created,
            "owned_by": "vllm",
            "root": self._roots.get(name, self._root),
            "parent": self._parents[name],
            "max_model_len": None if self.is_adapter(name) else self._max_model_len,
            "permission": [self._permission(name)],
        }

    def cards(self) -> list[dict[str, Any]]:
        return [self.card(name) for name in self._parents]

    def _permission(self, name: str) -> dict[str, Any]:
        return {
            "id": f"modelperm-{name}",
            "object": "model_permission",
            "created": self._created,
            "allow_create_engine": False,
            "allow_sampling": True,
            "allow_logprobs": True,
            "allow_search_indices": False,
            "allow_view": True,
            "allow_fine_tuning": False,
            "organization": "*",
            "group": None,
            "is_blocking": False,
        }
