"""Every error the core can raise, as one tree. The HTTP edge maps it to statuses in one place.

MockerError
├── ArgumentError            a wrong engine argument or trace: refused at start-up
├── RequestError             a request that this engine can never serve (HTTP 400)
├── DuplicateIdError         an id that is alive already (HTTP 409)
├── WrongWorkerTypeError     a handoff command on a worker without that role (HTTP 409)
├── HandoffProtocolError     a coordinator fact or acknowledgement that contradicts an earlier one
└── EngineDeadError          the scheduler loop ended; nothing will be served any more (HTTP 503)
"""

from __future__ import annotations


class MockerError(Exception):
    """Base of every error raised on purpose; its text is one sentence for a person."""


class ArgumentError(MockerError):
    """An argument is wrong; the text names the argument, the value and the allowed range."""


class RequestError(MockerError):
    """The request itself can never be served, for example a prompt larger than the pool."""


class DuplicateIdError(MockerError):
    """A request or handoff id is in use; the first owner is unharmed."""


class WrongWorkerTypeError(MockerError):
    """The worker does not play the role that the command needs."""


class HandoffProtocolError(MockerError):
    """A handoff fact or acknowledgement contradicts what was said before."""


class EngineDeadError(MockerError):
    """The scheduler loop has ended."""
