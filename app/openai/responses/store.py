"""The responses that a server keeps: for GET, for the next turn, for background polling. Bounded.

Owns what "not found" and "cannot be used" mean. What still runs is never dropped.
"""

from __future__ import annotations

from app.errors import ApiError, bad_request
from app.openai.bounded_store import BoundedStore
from app.openai.responses.input_items import FindItem, Item
from app.openai.responses.job import ResponseJob
from app.state import AppState

_KEY = "responses"
_BYTES_PER_TOKEN = 64


class ResponseStore:
    """Jobs by their ids."""

    def __init__(self, jobs: BoundedStore[ResponseJob] | None = None) -> None:
        if jobs is None:
            jobs = BoundedStore(weigh=_weight_bytes, is_pinned=lambda job: not job.ended)
        self._jobs = jobs

    def __len__(self) -> int:
        return len(self._jobs)

    def __contains__(self, response_id: object) -> bool:
        return response_id in self._jobs

    def put(self, job: ResponseJob) -> None:
        self._jobs.put(job.facts.id, job)

    def ended(self, job: ResponseJob) -> None:
        """A job that may be kept has come to its end."""
        self._jobs.weigh_again(job.facts.id)

    def get(self, response_id: str) -> ResponseJob:
        """Raises ApiError 404."""
        job = self._jobs.get(response_id)
        if job is None:
            raise _not_found(response_id, None)
        return job

    def pop(self, response_id: str) -> ResponseJob:
        """Raises ApiError 404."""
        job = self.get(response_id)
        self._jobs.pop(response_id)
        return job

    def context(self, previous_id: str) -> list[Item]:
        """Input and output of a turn and all turns before it. Raises ApiError: unknown, or not complete."""
        job = self._jobs.get(previous_id)
        if job is None:
            raise _not_found(previous_id, "previous_response_id")
        if not job.ended:
            raise bad_request(
                f"Response with id '{previous_id}' is {job.status}; wait until it is complete.",
                "previous_response_id",
            )
        return [*job.facts.context, *job.output]

    def item_finder(self) -> FindItem:
        """Finds items of kept responses by their ids; looks through them once, when it is first asked."""
        found: dict[str, Item] | None = None

        def find(item_id: str) -> Item | None:
            nonlocal found
            if found is None:
                found = {item["id"]: item for job in self._jobs for item in (*job.facts.context, *job.output)}
            return found.get(item_id)

        return find

    def weight_of_context(self, previous_id: str | None) -> int:
        """Bytes that the next turn keeps alive by going on from this one."""
        job = None if previous_id is None else self._jobs.get(previous_id)
        return 0 if job is None else _weight_bytes(job)


def response_store(state: AppState) -> ResponseStore:
    """The server's store, made when it is first needed."""
    found = state.extras.get(_KEY)
    if found is None:
        found = state.extras[_KEY] = ResponseStore()
    store: ResponseStore = found
    return store


def _weight_bytes(job: ResponseJob) -> int:
    return job.facts.weight_bytes + _BYTES_PER_TOKEN * job.run.generated


def _not_found(response_id: str, param: str | None) -> ApiError:
    code = "previous_response_not_found" if param else "not_found"
    return ApiError(404, f"Response with id '{response_id:.100}' not found.", param=param, code=code)
