"""`kv_transfer_params`, read and written. Pure; what a wrong value leads to is the caller's policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from app.errors import ApiError, bad_request

PARAM = "kv_transfer_params"
_LONGEST_ID = 128


class KvLoadFault(StrEnum):
    """Why KV could not be taken from a source; the label of a counter."""

    MALFORMED = "malformed"
    UNKNOWN = "unknown"
    FOREIGN = "foreign"
    USED = "used"
    EXPIRED = "expired"
    OTHER_PROMPT = "other_prompt"
    UNREACHABLE = "unreachable"
    BROKEN = "broken"
    WRONG_ROLE = "wrong_role"


class KvLoadError(Exception):
    """The KV of a request can't be loaded; the text is one sentence that says which value is wrong."""

    def __init__(self, fault: KvLoadFault, message: str) -> None:
        super().__init__(message)
        self.fault = fault

    def as_api_error(self) -> ApiError:
        """400 for wrong parameters, 502 for a source that is gone."""
        if self.fault in (KvLoadFault.UNREACHABLE, KvLoadFault.BROKEN):
            return ApiError(502, str(self), param=PARAM, code="kv_load_failed", err_type="server_error")
        return ApiError(400, str(self), param=PARAM, code="kv_load_failed")


class TransferRole(StrEnum):
    """What the parameters ask of this server."""

    NONE = "none"
    SOURCE = "source"
    DESTINATION = "destination"


def transfer_role(params: Mapping[str, Any] | None) -> TransferRole:
    """Raises ApiError 400 where both directions are asked for, or one of the two is no truth value."""
    if not params:
        return TransferRole.NONE
    asked = {}
    for key in ("do_remote_decode", "do_remote_prefill"):
        value = params.get(key)
        if value is not None and not isinstance(value, bool):
            raise bad_request(f"{PARAM}.{key} is {value!r}; it must be true or false.", PARAM)
        asked[key] = bool(value)
    if all(asked.values()):
        raise bad_request(
            f"{PARAM} has both do_remote_decode and do_remote_prefill true; set one of them only.",
            PARAM,
        )
    if asked["do_remote_decode"]:
        return TransferRole.SOURCE
    return TransferRole.DESTINATION if asked["do_remote_prefill"] else TransferRole.NONE


def given_handoff_id(params: Mapping[str, Any]) -> str | None:
    """The mocker's own key `handoff_id` of a prefill request. Raises ApiError 400 if it is no usable id."""
    value = params.get("handoff_id")
    if value is None:
        return None
    if not isinstance(value, str) or not value.isascii() or not 0 < len(value) <= _LONGEST_ID or "/" in value:
        raise bad_request(f"{PARAM}.handoff_id must be a short text of ASCII characters without /.", PARAM)
    return value


@dataclass(frozen=True, slots=True)
class Address:
    """Where a decode server finds this one."""

    host: str
    port: int
    scheme: str = "http"


@dataclass(frozen=True, slots=True)
class RemoteSource:
    """The source that a decode request names."""

    engine_id: str
    handoff_id: str
    address: Address

    @property
    def base_url(self) -> str:
        host = f"[{self.address.host}]" if ":" in self.address.host else self.address.host
        return f"{self.address.scheme}://{host}:{self.address.port}"


def source_params(engine_id: str, handoff_id: str, address: Address, prompt_blocks: int) -> dict[str, Any]:
    """What a prefill answer carries, in vLLM's keys. Block ids are numbers within this transfer only."""
    params: dict[str, Any] = {
        "do_remote_prefill": True,
        "do_remote_decode": False,
        "remote_engine_id": engine_id,
        "remote_block_ids": list(range(prompt_blocks)),
        "remote_host": address.host,
        "remote_port": address.port,
        "remote_request_id": handoff_id,
        "tp_size": 1,
    }
    if address.scheme != "http":
        params["remote_scheme"] = address.scheme
    return params


def remote_source(params: Mapping[str, Any]) -> RemoteSource:
    """Read a decode request's parameters. Raises KvLoadError naming the first wrong key."""
    engine_id = _text(params, "remote_engine_id")
    handoff_id = _text(params, "remote_request_id")
    host = _text(params, "remote_host")
    if any(c in host for c in "/?#@ \t\r\n\\"):
        raise malformed("remote_host", host, "must be a host name or an address")
    port = params.get("remote_port")
    if isinstance(port, str) and port.isascii() and port.isdigit():
        port = int(port)
    if isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 65536:
        raise malformed("remote_port", port, "must be a port number")
    blocks = params.get("remote_block_ids")
    if not isinstance(blocks, list) or not blocks:
        raise malformed("remote_block_ids", blocks, "must be a list of block ids")
    scheme = params.get("remote_scheme", "http")
    if scheme not in ("http", "https"):
        raise malformed("remote_scheme", scheme, "must be http or https")
    if "/" in handoff_id or not handoff_id.isascii() or not handoff_id.isprintable():
        raise malformed("remote_request_id", handoff_id, "must be what the prefill server answered")
    return RemoteSource(engine_id, handoff_id, Address(host, port, scheme))


def _text(params: Mapping[str, Any], key: str) -> str:
    value = params.get(key)
    if not isinstance(value, str) or not value or len(value) > 2 * _LONGEST_ID:
        raise malformed(key, value, "must be the text that the prefill server answered")
    return value


def malformed(key: str, value: object, rule: str) -> KvLoadError:
    """The error of one wrong key. `rule`: what it must be, to end the sentence."""
    shown = repr(value)
    shown = shown if len(shown) <= 80 else shown[:77] + "..."
    return KvLoadError(KvLoadFault.MALFORMED, f"{PARAM}.{key} is {shown}; it {rule}.")
