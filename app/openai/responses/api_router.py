"""The routes of /v1/responses."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import Response as HttpResponse

from app.errors import bad_request
from app.openai.pages import After, Limit, Order, answer_of, page_of
from app.openai.responses import examples
from app.openai.responses.job import ResponseJob
from app.openai.responses.protocol import (
    InputTokens,
    InputTokensRequest,
    Response,
    ResponseDeleted,
    ResponseItemList,
    ResponsesRequest,
    ResponseStreamEvent,
)
from app.openai.responses.serving import start_input_tokens, start_response
from app.openai.responses.store import response_store
from app.routes import HotRoute
from app.state import State
from app.stream_response import HotResponse, Receive, Scope, Send

hot_routes = [
    HotRoute(
        path="/v1/responses",
        name="create_response",
        summary="Answer an input with items: whole, as a stream, or in the background",
        tag="OpenAI",
        start=start_response,
        request=ResponsesRequest,
        response=Response,
        chunk=ResponseStreamEvent,
        stream_ends="",
        request_example=examples.REQUEST,
        response_example=examples.RESPONSE,
        more=(ResponseItemList, ResponseDeleted),
    ),
    HotRoute(
        path="/v1/responses/input_tokens",
        name="count_response_input_tokens",
        summary="Count the tokens that an input would have",
        tag="OpenAI",
        start=start_input_tokens,
        request=InputTokensRequest,
        response=InputTokens,
        request_example=examples.COUNT_REQUEST,
        response_example=examples.COUNT,
    ),
]

router = APIRouter(prefix="/v1/responses", tags=["OpenAI"])


@router.get(
    "/{response_id}",
    summary="A kept response, or its stream of events",
    response_model=None,
    responses=answer_of(Response, examples.RESPONSE),
)
async def retrieve_response(
    response_id: str,
    state: State,
    stream: Annotated[bool, Query(description="Follow a background response as a stream.")] = False,
    starting_after: Annotated[
        int | None, Query(ge=0, description="With stream: begin after the event of this sequence number.")
    ] = None,
) -> dict[str, Any] | HttpResponse:
    """With `stream` the events of a background response come again from the first on, then as they happen."""
    job = response_store(state).get(response_id)
    if not stream:
        if starting_after is not None:
            raise bad_request("starting_after is set without stream; set stream=true too.", "starting_after")
        return job.body()
    if not job.facts.background:
        raise bad_request(
            f"Response {response_id} cannot be streamed: it was not created with background set to true.",
            "stream",
        )
    return _Following(job, starting_after)


@router.delete(
    "/{response_id}",
    summary="Forget a response; one that still runs is cancelled",
    response_model=None,
    responses=answer_of(ResponseDeleted, examples.DELETED),
)
async def delete_response(response_id: str, state: State) -> dict[str, Any]:
    response_store(state).pop(response_id).cancel()
    return {"id": response_id, "object": "response", "deleted": True}


@router.post(
    "/{response_id}/cancel",
    summary="Cancel a background response; one that has ended is shown as it is",
    response_model=None,
    responses=answer_of(Response, examples.CANCELLED),
)
async def cancel_response(response_id: str, state: State) -> dict[str, Any]:
    job = response_store(state).get(response_id)
    if not job.facts.background:
        raise bad_request(
            f"Response {response_id} cannot be cancelled: it was not created with background set to true."
        )
    job.cancel()
    return job.body()


@router.get(
    "/{response_id}/input_items",
    summary="The items that a response was made from",
    response_model=None,
    responses=answer_of(ResponseItemList, examples.ITEMS),
)
async def list_input_items(
    response_id: str,
    state: State,
    after: After = None,
    limit: Limit = 20,
    order: Order = "desc",
) -> dict[str, Any]:
    """Earlier turns' items are there too."""
    return page_of(response_store(state).get(response_id).facts.context, after, limit, order)


class _Following(HttpResponse):
    """Hands the connection to a `HotResponse` that the job feeds."""

    def __init__(self, job: ResponseJob, starting_after: int | None) -> None:
        super().__init__()
        self._job = job
        self._starting_after = starting_after

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # type: ignore[override] # looser
        response = HotResponse(scope, send, self._job.state.dispatcher.writes)
        self._job.replay_to(response, self._starting_after)
        await response.wait_closed(receive)
