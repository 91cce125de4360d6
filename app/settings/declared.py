"""`ServeSettings`: everything `mocker serve` can be told, declared once with default, range and help.

Flags, environment variables, YAML keys, `--help` and docs/configuration.md all derive from it. It is built
once at the edge (`load`) and passed down. Must not know argv, files or the environment.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from app.settings.values import Group, Kind, Setting
from mocker_core.engine_args import MockEngineArgs
from mocker_core.errors import ArgumentError

# Where each heading of --help begins, by the first setting under it.
_GROUP_STARTS = {
    "model": Group.MODEL,
    "host": Group.SERVER,
    "max_num_seqs": Group.SCHEDULER,
    "engine_type": Group.ENGINE,
    "disaggregation_mode": Group.DISAGGREGATION,
    "content": Group.CONTENT,
    "enable_log_requests": Group.OBSERVABILITY,
}
_KINDS = {
    "str": Kind.TEXT,
    "int": Kind.INT,
    "float": Kind.FLOAT,
    "bool": Kind.BOOL,
    "tuple[str, ...]": Kind.LIST,
    "Mapping[str, object]": Kind.MAPPING,
}


def _vllm(default: object, help: str, **more: Any) -> Any:
    """A setting whose flag vLLM has too."""
    return _declare(default, {"default": default, "help": help, "vllm": True, **more})


def _mocker(default: object, help: str, **more: Any) -> Any:
    """A setting of the mocker's own."""
    return _declare(default, {"default": default, "help": help, "vllm": False, **more})


def _declare(default: object, spec: dict[str, Any]) -> Any:
    if isinstance(default, dict):
        return dataclasses.field(default_factory=lambda: dict(default), metadata=spec)
    return dataclasses.field(default=default, metadata=spec, repr=not spec.get("secret", False))


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings:
    """Settings of one server, validated. Lengths in tokens or blocks, times in ms where a name says so.

    A value of None means "not set". Cross-checks run in `__post_init__` and raise ArgumentError.
    """

    model: str = _vllm("mocker", "Name of the model; nothing is ever downloaded. Also positional.")
    served_model_name: tuple[str, ...] = _vllm(
        (), "Names the API answers to; the first is shown in answers. Default: the model's name."
    )
    max_model_len: int | None = _vllm(
        None, "Longest prompt + output, in tokens. Default: all that the KV pool holds.", size=True, lowest=1
    )
    max_logprobs: int = _vllm(20, "Most log probabilities a request may ask for; -1: no limit.", lowest=-1)
    seed: int = _vllm(0, "Seed of everything random in this server.")
    tokenizer: str | None = _vllm(
        None,
        "tiktoken:ENCODING or the path of a local tokenizer.json. Default: the built-in tokenizer.",
    )
    chat_template: str | None = _vllm(None, "Accepted; prompts always have the built-in template.")
    tool_call_parser: str | None = _vllm(None, "Accepted; tool calls always have OpenAI's shape.")
    enable_auto_tool_choice: bool = _vllm(False, "Accepted; tool_choice auto always works here.")
    reasoning_parser: str | None = _vllm(None, "Any name turns on reasoning_content in answers.")
    enable_lora: bool = _vllm(False, "Serve LoRA adapters.")
    max_loras: int = _vllm(1, "Most LoRA adapters in one batch.", lowest=1)
    lora_modules: tuple[str, ...] = _vllm((), "Adapters to serve: NAME=PATH or JSON, several.")

    host: str = _vllm("0.0.0.0", "Address to listen on; like vLLM, every interface by default.")
    port: int = _vllm(8000, "Port to listen on; 0 takes a free one.", lowest=0, highest=65535)
    api_key: tuple[str, ...] = _vllm((), "Keys of which each request needs one.", secret=True)
    admin_key: str | None = _mocker(None, "Key for /admin. Default: any of --api-key.", secret=True)
    ssl_keyfile: str | None = _vllm(None, "TLS key file; needs --ssl-certfile.")
    ssl_certfile: str | None = _vllm(None, "TLS certificate file; needs --ssl-keyfile.")
    root_path: str = _vllm("", "Path prefix under which a reverse proxy serves this server.")
    allowed_origins: tuple[str, ...] = _vllm(("*",), "CORS origins.")
    allowed_methods: tuple[str, ...] = _vllm(("*",), "CORS methods.")
    allowed_headers: tuple[str, ...] = _vllm(("*",), "CORS headers.")
    allow_credentials: bool = _vllm(False, "CORS credentials.")
    enable_request_id_headers: bool = _vllm(True, "Put X-Request-Id on every answer (vLLM: off by default).")
    enable_prompt_tokens_details: bool = _vllm(True, "Show cached_tokens in usage (vLLM: off by default).")
    wire_profile: str = _mocker(
        "vllm", "Whose details of errors and stream chunks to follow.", choices=("vllm", "openai")
    )
    stream_interval: int = _vllm(1, "Tokens per streamed chunk.", lowest=1)
    ping_seconds: float = _mocker(
        0.0, "Seconds of silence after which a stream gets an SSE comment; 0: never.", lowest=0
    )
    max_waiting: int | None = _mocker(None, "Waiting requests beyond which a new one gets 429.", lowest=0)
    max_body_mb: float = _mocker(32.0, "Largest request body, in MB (1e6 bytes).", lowest=0.001)
    rate_limit_requests_per_minute: int | None = _mocker(
        None, "Requests per minute and key beyond which the answer is 429.", lowest=1
    )
    rate_limit_tokens_per_minute: int | None = _mocker(
        None, "Tokens per minute and key beyond which the answer is 429.", lowest=1
    )

    fault_headers: bool = _mocker(True, "Obey the fault headers X-Mocker-Error, X-Mocker-Stall-After, ...")
    faults: Mapping[str, object] | None = _mocker(
        None, 'Random faults: JSON with the rates error, disconnect and stall, such as {"error": 0.01}.'
    )

    max_num_seqs: int = _vllm(256, "Most requests running at once, per rank.", lowest=1)
    max_num_batched_tokens: int = _vllm(
        8192, "Most tokens computed in one pass, per rank.", size=True, lowest=1
    )
    block_size: int = _vllm(64, "Tokens per KV block (vLLM: 16).", lowest=2)
    num_gpu_blocks_override: int = _vllm(
        16384, "KV blocks on the device, per rank.", size=True, lowest=1, aliases=("--num-gpu-blocks",)
    )
    enable_prefix_caching: bool = _vllm(True, "Reuse the KV blocks of equal prompt prefixes.")
    enable_chunked_prefill: bool = _vllm(True, "Let a prompt be computed over several passes.")
    data_parallel_size: int = _vllm(
        1, "Ranks, each with a scheduler and a KV pool.", lowest=1, aliases=("-dp", "--dp-size")
    )
    scheduling_policy: str = _vllm(
        "fcfs", "priority: the lowest priority number first.", choices=("fcfs", "priority")
    )

    engine_type: str = _mocker("vllm", "Engine to simulate.", choices=("vllm", "trtllm"))
    timing_model: Mapping[str, object] = _mocker(
        {"type": "polynomial"},
        'Pass durations: polynomial, or JSON such as {"type": "fixed", "prefill_ms": 50, "decode_ms": 8}.',
        shorthand="type",
    )
    speedup_ratio: float = _mocker(
        1.0, "How many times faster than modelled; 1e6 for as fast as possible, 0: not scaled.", lowest=0
    )
    decode_speedup_ratio: float = _mocker(1.0, "Further factor for decode passes.", lowest=0)
    preemption_mode: str = _mocker(
        "lifo", "Which running request gives way: the newest or the oldest.", choices=("lifo", "fifo")
    )
    startup_time: float = _mocker(0.0, "Seconds before /health says ready.", lowest=0)
    max_catch_up_ms: float = _mocker(
        1000.0, "Lag beyond which the loop gives up its plan and starts anew.", lowest=0
    )
    reasoning: Mapping[str, object] | None = _mocker(
        None, "Share of an answer that is thinking.", shorthand="thinking_ratio"
    )

    disaggregation_mode: str | None = _mocker(
        None, "Role in a prefill/decode pair. Default: both in one.", choices=("prefill", "decode")
    )
    kv_transfer_config: Mapping[str, object] | None = _vllm(
        None, "vLLM's KV connector; kv_role kv_producer or kv_consumer sets the role."
    )
    kv_events_config: Mapping[str, object] | None = _vllm(
        None, "vLLM's KV event publisher: endpoint, topic, replay_endpoint."
    )
    kv_load_failure_policy: str = _mocker(
        "fail", "What a decode server does with bad transfer parameters.", choices=("fail", "recompute")
    )
    kv_bytes_per_token: int | None = _mocker(
        None, "Bytes of KV per token; transfers take time only if set.", lowest=1
    )
    kv_transfer_bandwidth: float = _mocker(64.0, "GB/s from prefill to decode; 0: no delay.", lowest=0)
    kv_transfer_timing_mode: str = _mocker(
        "full_prompt", "Tokens that a transfer counts.", choices=("full_prompt", "destination_missing")
    )
    handoff_session_timeout_ms: float = _mocker(
        300_000.0, "How long an unclaimed handoff keeps its blocks.", lowest=0
    )
    num_g2_blocks: int | None = _mocker(
        None, "KV blocks of the host tier; turns offload on.", size=True, lowest=0
    )
    num_g3_blocks: int | None = _mocker(None, "KV blocks of the disk tier.", size=True, lowest=0)
    bandwidth_g1_to_g2_gbps: float = _mocker(14.0, "GB/s device to host; <= 0: instant.")
    bandwidth_g2_to_g1_gbps: float = _mocker(14.0, "GB/s host to device; <= 0: instant.")
    bandwidth_g2_to_g3_gbps: float = _mocker(7.0, "GB/s host to disk; <= 0: instant.")
    bandwidth_g3_to_g2_gbps: float = _mocker(7.0, "GB/s disk to host; <= 0: instant.")

    content: str = _mocker(
        "lorem",
        "What answers say.",
        choices=("lorem", "echo", "random", "dataset", "fixtures", "record", "replay"),
    )
    content_path: str | None = _mocker(
        None, "File for dataset and fixtures; file or directory for record and replay."
    )
    upstream: str | None = _mocker(None, "Base URL of the server that --content record asks.")
    output_length_mean: float = _mocker(
        128.0, "Mean length of an answer that ends by itself, in tokens (seeded).", lowest=1
    )
    output_length_stddev: float = _mocker(64.0, "Its standard deviation, in tokens.", lowest=0)
    output_length_min: int = _mocker(1, "Its least value, in tokens.", lowest=1)
    output_length_max: int | None = _mocker(None, "Its greatest value, in tokens.", lowest=1)

    enable_log_requests: bool = _vllm(
        True, "One log line per request.", negations=("--disable-log-requests",)
    )
    explain: bool = _mocker(
        False, "Explain every answer: x-mocker-* headers and a `mocker` field (else: x-mocker-explain: 1)."
    )
    timeline_requests: int = _mocker(
        1024, "Ended requests whose timeline /admin/requests keeps.", lowest=1, highest=100_000
    )
    show_hidden_metrics_for_version: str | None = _vllm(
        None, "Any version: /metrics also has the names that vLLM has since given up."
    )
    log_format: str = _mocker("text", "Form of the log lines.", choices=("text", "json"))
    log_prompts: bool = _mocker(False, "Put prompts into the log.")
    uvicorn_log_level: str = _vllm(
        "info", "Log level.", choices=("critical", "error", "warning", "info", "debug", "trace")
    )
    disable_uvicorn_access_log: bool = _vllm(False, "No access log of uvicorn's.")
    otlp_endpoint: str | None = _mocker(
        None,
        "Where OpenTelemetry spans go; needs the extra otel.",
        aliases=("--otlp-traces-endpoint",),
    )

    def __post_init__(self) -> None:
        if (self.ssl_keyfile is None) != (self.ssl_certfile is None):
            raise ArgumentError("TLS needs both --ssl-keyfile and --ssl-certfile; only one of them is set.")
        if self.content in ("dataset", "fixtures", "record", "replay") and self.content_path is None:
            raise ArgumentError(f"--content {self.content} needs --content-path.")
        if self.content == "record" and self.upstream is None:
            raise ArgumentError("--content record needs --upstream, the base URL of the server to record.")
        if self.upstream is not None and not self.upstream.startswith(("http://", "https://")):
            raise ArgumentError(
                f"--upstream is {self.upstream!r}; it must be a URL such as https://api.example.com/v1."
            )
        if self.output_length_max is not None and self.output_length_max < self.output_length_min:
            raise ArgumentError(
                f"--output-length-max is {self.output_length_max}; it must be at least --output-length-min, "
                f"{self.output_length_min}."
            )
        if self.max_model_len is not None and self.max_model_len > self.pool_tokens:
            raise ArgumentError(
                f"--max-model-len is {self.max_model_len}; it must be at most {self.pool_tokens}, what "
                f"{self.num_gpu_blocks_override} blocks of {self.block_size} tokens hold. "
                "Lower it or raise --num-gpu-blocks-override."
            )

    @property
    def pool_tokens(self) -> int:
        """Tokens that one rank's KV pool holds."""
        return self.num_gpu_blocks_override * self.block_size

    @property
    def model_names(self) -> tuple[str, ...]:
        """Names the API answers to, the shown one first; never empty."""
        return self.served_model_name or (self.model,)

    @property
    def worker_type(self) -> str:
        """aggregated, prefill or decode: --disaggregation-mode, else what kv_transfer_config's role says."""
        if self.disaggregation_mode is not None:
            return self.disaggregation_mode
        role = (self.kv_transfer_config or {}).get("kv_role")
        return {"kv_producer": "prefill", "kv_consumer": "decode"}.get(str(role), "aggregated")

    def public_values(self) -> dict[str, object]:
        """Every setting by name for a person to read; a secret that is set shows as "***"."""
        values = {name: getattr(self, name) for name in settings_by_name()}
        secrets = {name for name, setting in settings_by_name().items() if setting.secret and values[name]}
        return values | dict.fromkeys(secrets, "***")

    def engine_args(self) -> MockEngineArgs:
        """The engine's part of these settings. Raises ArgumentError for a value that the engine refuses."""
        same = {item.name for item in dataclasses.fields(MockEngineArgs)} & settings_by_name().keys()
        values: dict[str, object] = {name: getattr(self, name) for name in same}
        values |= {
            "num_gpu_blocks": self.num_gpu_blocks_override,
            "max_model_len": self.max_model_len or self.pool_tokens,
            "dp_size": self.data_parallel_size,
            "worker_type": self.worker_type,
            # /admin/events/kv shows them whether or not they are published by kv_events_config.
            "enable_kv_events": True,
        }
        return MockEngineArgs.from_mapping(values)


@cache
def settings_by_name() -> Mapping[str, Setting]:
    """Every setting in declared order."""
    settings: dict[str, Setting] = {}
    group = Group.MODEL
    for item in dataclasses.fields(ServeSettings):
        group = _GROUP_STARTS.get(item.name, group)
        kind = _KINDS[str(item.type).removesuffix(" | None")]
        spec = dict(item.metadata)
        if spec.pop("size", False):
            kind = Kind.SIZE
        settings[item.name] = Setting(name=item.name, kind=kind, group=group, **spec)
    return settings
