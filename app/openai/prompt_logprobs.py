"""vLLM's `prompt_logprobs`: the check of the parameter and the list that answers it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.errors import bad_request
from app.openai.protocol import GenerationRequest
from app.openai.sampling import check_top_logprobs
from app.text.logprobs import LogprobModel, TokenLogprob

_NAME = "prompt_logprobs"


def wanted_prompt_logprobs(request: GenerationRequest, most: int) -> int | None:
    """How many alternatives a position; None: none wanted. Raises ApiError 400, as for any stream."""
    if request.prompt_logprobs is None:
        return None
    top = check_top_logprobs(_NAME, request.prompt_logprobs, most)
    if top and request.stream:
        raise bad_request(
            "prompt_logprobs are not available when stream is true; leave one of them out.", _NAME
        )
    return top


def prompt_logprobs(
    model: LogprobModel, token_ids: Sequence[int], top: int
) -> list[dict[str, dict[str, Any]] | None]:
    """By position, by token id: the likeliest and the prompt's own token. The first has none."""
    found: list[dict[str, dict[str, Any]] | None] = [None]
    # A prompt's values do not depend on the answer's seed.
    for at in model.of_prompt(0, list(token_ids), top):
        found.append({str(item.token_id): _shown(item) for item in (at.sampled, *at.top)})
    return found


def _shown(item: TokenLogprob) -> dict[str, Any]:
    return {"logprob": item.logprob, "rank": item.rank, "decoded_token": item.token}
