"""vLLM's flags that the mocker does not model: accepted, said once, ignored.

Only names and how many values each takes, so that a command line written for vLLM keeps its meaning. A flag
that is modelled does not belong here (a test checks it); it is in `declared`.
"""

from __future__ import annotations

from enum import Enum


class Arity(Enum):
    """How many values follow a flag."""

    NONE = "a switch; --no-NAME turns it off"
    ONE = "one value"
    MAYBE = "one value or none"
    MANY = "one value or more"


_SWITCHES = """
aggregate-engine-logging async-scheduling calculate-kv-scales cohere-is-reasoning-model
data-parallel-external-lb data-parallel-hybrid-lb disable-async-output-proc disable-cascade-attn
disable-chunked-mm-input disable-custom-all-reduce disable-fastapi-docs disable-frontend-multiprocessing
disable-hybrid-kv-cache-manager disable-log-stats disable-mm-preprocessor-cache
disable-nccl-for-dp-synchronization disable-sliding-window enable-dbo enable-eplb enable-expert-parallel
enable-flash-late-interaction enable-force-include-usage enable-log-deltas enable-log-outputs enable-lora-bias
enable-mm-embeds enable-multimodal-encoder-data-parallel enable-offline-docs enable-per-request-metrics
enable-prompt-adapter enable-prompt-embeds enable-reasoning enable-return-routed-experts
enable-server-load-tracking enable-sleep-mode enable-ssl-refresh enable-tokenizer-info-endpoint enforce-eager
eplb-log-balancedness exclude-tools-when-tool-choice-none fully-sharded-loras headless interleave-mm-strings
kv-cache-metrics kv-sharing-fast-prefill log-error-stack ray-workers-use-nsight return-tokens-as-token-ids
skip-mm-profiling skip-tokenizer-init speculative-disable-mqa-scorer tokens-only trust-remote-code
trust-request-chat-template use-tqdm-on-load use-v2-block-manager enable-layerwise-nvtx-tracing
enable-mfu-metrics cudagraph-metrics enable-logging-iteration-details disable-logprobs-during-spec-decoding
guided-decoding-disable-additional-properties guided-decoding-disable-any-whitespace
guided-decoding-disable-fallback multi-step-stream-outputs
"""
_ONE_VALUE = """
additional-config all2all-backend allowed-local-media-path api-server-count attention-backend attention-config
chat-template-content-format code-revision cohere-format compilation-config config-format convert
cpu-offload-gb cpu-offload-params cp-kv-cache-interleave-size data-parallel-address data-parallel-backend
data-parallel-rank data-parallel-rpc-port data-parallel-size-local data-parallel-start-rank
data-parallel-supervisor-port dbo-decode-token-threshold dbo-prefill-token-threshold dcp-comm-backend
dcp-kv-cache-interleave-size decode-context-parallel-size default-chat-template-kwargs default-mm-loras
device disable-access-log-for-endpoints distributed-executor-backend distributed-timeout-seconds download-dir
dp-supervisor-probe-failure-threshold dp-supervisor-probe-interval-s dp-supervisor-probe-timeout-s dtype
ec-transfer-config eplb-config eplb-step-interval eplb-window-size expert-placement-strategy fingerprint-mode
fingerprint-value generation-config gpu-memory-utilization grpc-port guided-decoding-backend
h11-max-header-count h11-max-incomplete-event-size hf-config-path hf-overrides io-processor-plugin
kernel-config kv-cache-dtype kv-cache-memory-bytes kv-offloading-backend kv-offloading-size
limit-mm-per-prompt load-format log-config-file logits-processor-pattern logprobs-mode
long-lora-scaling-factors long-prefill-token-threshold lora-dtype lora-extra-vocab-size mamba-backend
mamba-block-size mamba-cache-dtype mamba-cache-mode mamba-ssm-cache-dtype master-addr master-port
max-cpu-loras max-cudagraph-capture-size max-log-len max-long-partial-prefills max-lora-rank
max-num-partial-prefills max-parallel-loading-workers max-prompt-adapter-token max-prompt-adapters
max-seq-len-to-capture media-io-kwargs middleware mm-encoder-attn-backend mm-encoder-tp-mode
mm-processor-cache-gb mm-processor-cache-type mm-processor-kwargs mm-shm-cache-max-object-size-mb
model-class-overrides model-impl model-loader-extra-config ngram-prompt-lookup-max ngram-prompt-lookup-min
nnodes node-rank num-lookahead-slots num-redundant-experts num-scheduler-steps num-speculative-tokens
optimization-level override-attention-dtype override-generation-config override-neuron-config
override-pooler-config performance-mode pipeline-parallel-size pooler-config prefill-context-parallel-size
prefix-caching-hash-algo profiler-config pt-load-map-location qlora-adapter-name-or-path quantization
quantization-config reasoning-config reasoning-parser-plugin renderer-num-workers response-role revision
rope-scaling rope-theta runner safetensors-load-strategy scheduler-cls scheduler-delay-factor
scheduler-reserve-full-isl spec-decoding-acceptance-method speculative-config
speculative-disable-by-batch-size speculative-draft-tensor-parallel-size speculative-max-model-len
speculative-model speculative-model-quantization ssl-ca-certs ssl-cert-reqs ssl-ciphers
structured-outputs-config swap-space task tensor-parallel-size tokenizer-mode tokenizer-pool-extra-config
tokenizer-pool-size tokenizer-pool-type tokenizer-revision tool-parser-plugin tool-server
typical-acceptance-sampler-posterior-alpha typical-acceptance-sampler-posterior-threshold uds
video-pruning-rate weight-transfer-config worker-cls worker-extension-cls
"""
_MANY_VALUES = """
allowed-media-domains collect-detailed-traces cuda-graph-sizes cudagraph-capture-sizes ignore-patterns
logits-processors lora-target-modules
"""
IGNORED_FLAGS: dict[str, Arity] = {
    **dict.fromkeys(_SWITCHES.split(), Arity.NONE),
    **dict.fromkeys(_ONE_VALUE.split(), Arity.ONE),
    **dict.fromkeys(_MANY_VALUES.split(), Arity.MANY),
    "hf-token": Arity.MAYBE,
}
"""Flag names without their leading dashes, words joined by dashes."""

SHORT_FLAGS: dict[str, str] = {
    "-ac": "attention-config",
    "-asc": "api-server-count",
    "-cc": "compilation-config",
    "-dcp": "decode-context-parallel-size",
    "-dpa": "data-parallel-address",
    "-dpb": "data-parallel-backend",
    "-dpe": "data-parallel-external-lb",
    "-dph": "data-parallel-hybrid-lb",
    "-dpl": "data-parallel-size-local",
    "-dpn": "data-parallel-rank",
    "-dpp": "data-parallel-rpc-port",
    "-dpr": "data-parallel-start-rank",
    "-ep": "enable-expert-parallel",
    "-n": "nnodes",
    "-O": "optimization-level",
    "-pcp": "prefill-context-parallel-size",
    "-pp": "pipeline-parallel-size",
    "-q": "quantization",
    "-r": "node-rank",
    "-sc": "speculative-config",
    "-tp": "tensor-parallel-size",
}
"""vLLM's one-dash names of ignored flags."""
