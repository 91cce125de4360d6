"""The hot route of text completions."""

from __future__ import annotations

from app.openai.completion.protocol import Completion, CompletionRequest
from app.openai.completion.serving import start_completion
from app.routes import HotRoute

route = HotRoute(
    path="/v1/completions",
    name="create_completion",
    summary="Go on with a text or token ids, whole or as a stream",
    tag="OpenAI",
    start=start_completion,
    request=CompletionRequest,
    response=Completion,
    chunk=Completion,
)
