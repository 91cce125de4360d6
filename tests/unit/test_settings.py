"""Settings: their sources and order, their values, what is refused, and what is generated from them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from app.settings import ServeSettings, settings_by_name
from app.settings.doc import DOCUMENT, configuration_document, serve_help
from app.settings.load import load_settings
from app.settings.values import Group
from app.settings.vllm_flags import IGNORED_FLAGS, SHORT_FLAGS
from mocker_core.engine_args import EngineType, MockEngineArgs, PreemptionMode, WorkerType
from mocker_core.errors import ArgumentError


def load(*argv: str, env: dict[str, str] | None = None) -> ServeSettings:
    loaded = load_settings(argv, env or {})
    assert loaded.settings is not None
    return loaded.settings


def notices(*argv: str, env: dict[str, str] | None = None) -> str:
    return " ".join(load_settings(argv, env or {}).notices)


def refusal(*argv: str, env: dict[str, str] | None = None) -> str:
    with pytest.raises(ArgumentError) as caught:
        load_settings(argv, env or {})
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "mocker.yaml"


# Sources


def test_nothing_given_yields_the_documented_defaults() -> None:
    settings = load()
    assert settings == ServeSettings()
    assert (settings.host, settings.port, settings.model_names) == ("0.0.0.0", 8000, ("mocker",))


def test_flag_wins_over_environment_over_file_over_default(config: Path) -> None:
    config.write_text("port: 1001\nseed: 1002\nblock-size: 32\n")
    settings = load("--port", "1", "--config", str(config), env={"MOCKER_PORT": "11", "MOCKER_SEED": "12"})
    assert (settings.port, settings.seed, settings.block_size, settings.max_num_seqs) == (1, 12, 32, 256)


def test_config_named_by_the_environment_is_read(config: Path) -> None:
    config.write_text("max_num_seqs: 7\n")
    assert load(env={"MOCKER_CONFIG": str(config)}).max_num_seqs == 7


def test_every_setting_can_be_set_in_the_environment_and_in_the_file(config: Path) -> None:
    for name, setting in settings_by_name().items():
        if setting.default in (None, ()) or isinstance(setting.default, dict | str):
            continue
        text = str(setting.default[0] if isinstance(setting.default, tuple) else setting.default)
        assert getattr(load(env={setting.env: text}), name) == setting.default
        config.write_text(f"{name.replace('_', '-')}: {text!r}\n")
        assert getattr(load("--config", str(config)), name) == setting.default


def test_yaml_values_keep_their_types(config: Path) -> None:
    config.write_text(
        "served-model-name: [a, b]\napi_key: 123\nspeedup_ratio: 2\nenable-prefix-caching: no\n"
        "timing-model: {type: fixed, prefill_ms: 1, decode_ms: 2}\nmax-model-len: null\nseed: 5.0\n"
        "disable-log-requests: true\n"
    )
    settings = load("--config", str(config))
    assert settings.model_names == ("a", "b")
    assert settings.api_key == ("123",)
    assert settings.speedup_ratio == 2.0
    assert settings.enable_prefix_caching is False
    assert settings.timing_model == {"type": "fixed", "prefill_ms": 1, "decode_ms": 2}
    assert settings.max_model_len is None
    assert settings.seed == 5
    assert settings.enable_log_requests is False


def test_environment_list_is_separated_by_commas_or_json() -> None:
    assert load(env={"MOCKER_API_KEY": "a, b"}).api_key == ("a", "b")
    assert load(env={"MOCKER_API_KEY": '["a,b"]'}).api_key == ("a,b",)


def test_unknown_yaml_key_is_refused_with_the_right_one(config: Path) -> None:
    config.write_text("max-num-seq: 4\n")
    assert refusal("--config", str(config)).endswith("Did you mean max-num-seqs?")


@pytest.mark.parametrize("text", ["- 1\n", "3\n", "a: [\n"])
def test_file_that_is_no_mapping_is_refused(config: Path, text: str) -> None:
    config.write_text(text)
    assert str(config) in refusal("--config", str(config))


def test_wrong_yaml_value_names_the_file_and_the_key(config: Path) -> None:
    config.write_text("port: [1]\n")
    assert refusal("--config", str(config)).startswith(f"port in {config} is [1]; it must be a whole number")


@pytest.mark.parametrize("value", [".inf", "2020-01-01", "true", "{a: 1}", "1.5"])
def test_wrong_yaml_number_is_refused(config: Path, value: str) -> None:
    config.write_text(f"port: {value}\n")
    assert "it must be a whole number" in refusal("--config", str(config))


def test_missing_file_is_refused(tmp_path: Path) -> None:
    assert "cannot be read" in refusal("--config", str(tmp_path / "absent.yaml"))


def test_kubernetes_service_address_in_the_port_variable_is_ignored() -> None:
    env = {"MOCKER_PORT": "tcp://10.0.0.1:80", "MOCKER_PORT_80_TCP_ADDR": "10.0.0.1"}
    assert load(env=env).port == 8000
    assert "Kubernetes" in notices(env=env)


def test_empty_variable_counts_as_unset() -> None:
    assert load(env={"MOCKER_PORT": "", "MOCKER_MODEL": ""}) == ServeSettings()


def test_misspelt_variable_is_noticed_and_others_are_left_alone() -> None:
    assert "MOCKER_BLOCK_SIZE" in notices(env={"MOCKER_BLOCKSIZE": "16"})
    assert notices(env={"MOCKER_SHARED_DIR": "x", "MOCKER_CONFIG": "", "OTHER": "y"}) == ""


# Flags


def test_model_may_stand_alone_or_follow_its_flag() -> None:
    assert load("qwen", "--port", "1").model == "qwen"
    assert load("--model", "qwen").model_names == ("qwen",)
    assert load("qwen", "--model", "qwen").model == "qwen"
    assert "twice" in refusal("qwen", "--model", "other")
    assert "'b'" in refusal("a", "b")


@pytest.mark.parametrize("flag", ["--max-num-seqs", "--max_num_seqs"])
def test_flag_takes_dashes_underscores_and_equals(flag: str) -> None:
    assert load(flag, "3").max_num_seqs == 3
    assert load(f"{flag}=4").max_num_seqs == 4


def test_switches_go_on_and_off() -> None:
    assert load("--no-enable-prefix-caching").enable_prefix_caching is False
    assert load("--enable-prefix-caching=false").enable_prefix_caching is False
    assert load("--enable-chunked-prefill", "False").enable_chunked_prefill is False
    assert load("--no-enable-lora", "--enable-lora").enable_lora is True
    assert load("--disable-log-requests").enable_log_requests is False
    assert load("--enable-lora", "name").model == "name"


def test_list_takes_several_values_repeats_and_json() -> None:
    settings = load(
        "--served-model-name", "a", "b", "--served-model-name=c", "--allowed-origins", '["x","y"]'
    )
    assert settings.served_model_name == ("a", "b", "c")
    assert settings.allowed_origins == ("x", "y")
    assert load("--lora-modules", "a=p,q", '{"name": "b"}').lora_modules == ("a=p,q", '{"name": "b"}')


@pytest.mark.parametrize(
    ("text", "tokens"), [("4096", 4096), ("32k", 32_000), ("1K", 1024), ("25.6k", 25_600), ("1m", 1_000_000)]
)
def test_sizes_take_vllms_forms(text: str, tokens: int) -> None:
    assert load("--max-model-len", text).max_model_len == tokens


@pytest.mark.parametrize("text", ["32x", "1.5K", "1.5", "-4", "0", "k", ""])
def test_wrong_size_is_refused(text: str) -> None:
    assert refusal(f"--max-model-len={text}").startswith("--max-model-len is")


def test_negative_number_is_a_value_and_no_flag() -> None:
    assert load("--seed", "-1", "--bandwidth-g1-to-g2-gbps", "-2.5").seed == -1


def test_timing_model_comes_as_name_json_file_or_key(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_text('{"type": "fixed", "prefill_ms": 3, "decode_ms": 4}')
    assert load("--timing-model", "polynomial").timing_model == {"type": "polynomial"}
    assert load("--timing-model", f"@{path}").timing_model["prefill_ms"] == 3
    nested = load("--timing-model.type=fixed", "--timing-model.prefill_ms", "5")
    assert nested.timing_model == {"type": "fixed", "prefill_ms": 5}
    assert "it must be a name, a JSON object" in refusal("--timing-model", "@nowhere.json")


def test_reasoning_comes_as_ratio_or_mapping() -> None:
    args = load("--reasoning", "0.25").engine_args()
    assert args.reasoning is not None
    assert args.reasoning.thinking_ratio == 0.25
    assert "within 0 and 1" in refusal("--reasoning", "1.5")


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("--prot", "--port"),
        ("--max-num-batch-tokens", "--max-num-batched-tokens"),
        ("--tensor-paralel-size", "--tensor-parallel-size"),
        ("--no-enable-prefix-cache", "--no-enable-prefix-caching"),
    ],
)
def test_misspelt_flag_is_refused_with_the_right_one(wrong: str, right: str) -> None:
    assert refusal(wrong, "1") == f"{wrong} is not a flag of mocker serve. Did you mean {right}?"


def test_flag_without_its_value_is_refused() -> None:
    assert refusal("--port").startswith("--port needs a value")
    assert refusal("--api-key", "--port", "1") == "--api-key needs at least one value."


def test_key_after_a_dot_needs_a_json_setting() -> None:
    assert "not a JSON object" in refusal("--port.x", "1")
    settings = load("--kv-transfer-config", "none", "--kv-transfer-config.extra.deep", "[1]")
    assert settings.kv_transfer_config == {"extra": {"deep": [1]}}
    assert "plain value" in refusal("--timing-model", "fixed", "--timing-model.type.x", "1")


# vLLM's other flags


def test_vllm_flags_that_are_not_modelled_are_named_once_and_ignored() -> None:
    argv = (
        "--tensor-parallel-size 2 -tp=2 --dtype bfloat16 --enforce-eager -O3 --compilation-config.mode 3 "
        "--gpu_memory_utilization=0.9 --no-async-scheduling --cudagraph-capture-sizes 1 2 4 --hf-token "
        "--trust-remote-code model --port 5"
    ).split()
    settings = load(*argv)
    assert (settings.model, settings.port) == ("model", 5)
    said = notices(*argv)
    for name in ("--tensor-parallel-size", "--dtype", "-tp", "--trust-remote-code"):
        assert said.count(f" {name}") == 1


def test_ignored_key_in_the_file_is_named(config: Path) -> None:
    config.write_text("gpu-memory-utilization: 0.9\n")
    assert "--gpu-memory-utilization" in notices("--config", str(config))


def test_a_flag_is_either_modelled_or_ignored() -> None:
    modelled = {setting.flag[2:] for setting in settings_by_name().values()}
    assert not modelled & IGNORED_FLAGS.keys()
    assert set(SHORT_FLAGS.values()) <= IGNORED_FLAGS.keys()


# Checks


@pytest.mark.parametrize(
    ("argv", "part"),
    [
        (["--port", "99999"], "from 0 to 65535"),
        (["--port", "x"], "--port is 'x'"),
        (["--speedup-ratio", "nan"], "a finite number"),
        (["--speedup-ratio", "-1"], ">= 0"),
        (["--block-size", "1"], ">= 2"),
        (["--engine-type", "sglang"], "one of vllm, trtllm"),
        (["--disaggregation-mode", "both"], "one of prefill, decode"),
        (["--ssl-keyfile", "k"], "--ssl-certfile"),
        (["--content", "dataset"], "--content-path"),
        (["--content", "record", "--content-path", "p"], "--upstream"),
        (["--upstream", "notaurl"], "must be a URL such as"),
        (["--output-length-min", "9", "--output-length-max", "8"], "at least"),
        (["--timing-model", "{}"], "timing_model"),
        (["--kv-transfer-config", "[1]"], "JSON object"),
        (["--max-model-len", "2M"], "at most 1048576"),
        (["--max-model-len", "65", "--num-gpu-blocks", "4", "--block-size", "16"], "at most 64"),
    ],
)
def test_wrong_value_is_refused_in_one_sentence(argv: list[str], part: str) -> None:
    assert part in refusal(*argv)


def test_secrets_are_neither_printed_nor_public() -> None:
    settings = load("--api-key", "private-a", "--admin-key", "private-b")
    assert "private" not in repr(settings)
    public = settings.public_values()
    assert (public["api_key"], public["admin_key"], public["port"]) == ("***", "***", 8000)
    assert load().public_values()["admin_key"] is None


def test_refused_secret_is_not_shown(config: Path) -> None:
    config.write_text("admin-key: [hidden-value]\n")
    assert "hidden-value" not in refusal("--config", str(config))


# The engine's arguments


def test_defaults_agree_with_the_engines() -> None:
    args = load().engine_args()
    expected = dataclasses.replace(MockEngineArgs(), max_model_len=16384 * 64, enable_kv_events=True)
    assert args == expected


def test_engine_arguments_follow_the_flags() -> None:
    args = load(
        "--num-gpu-blocks-override=100", "--block-size=16", "-dp", "2", "--engine-type", "trtllm",
        "--preemption-mode", "fifo", "--disaggregation-mode", "prefill", "--kv-bytes-per-token", "1000",
        "--num-g2-blocks", "1k", "--speedup-ratio", "0",
    ).engine_args()  # fmt: skip
    assert (args.num_gpu_blocks, args.max_model_len, args.dp_size) == (100, 1600, 2)
    assert (args.engine_type, args.preemption_mode) == (EngineType.TRTLLM, PreemptionMode.FIFO)
    assert (args.worker_type, args.num_g2_blocks) == (WorkerType.PREFILL, 1000)
    assert args.speedup_ratio == 0.0
    assert args.offload_enabled


@pytest.mark.parametrize(
    ("role", "worker"), [("kv_producer", "prefill"), ("kv_consumer", "decode"), ("kv_both", "aggregated")]
)
def test_vllms_transfer_role_sets_the_worker_type(role: str, worker: str) -> None:
    assert load("--kv-transfer-config", f'{{"kv_role": "{role}"}}').worker_type == worker
    assert load("--kv-transfer-config.kv_role", role, "--disaggregation-mode=decode").worker_type == "decode"


# What is generated


def test_configuration_document_is_up_to_date() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == configuration_document(), "run `make docs`"


@pytest.mark.parametrize("width", [60, 100])
def test_help_names_every_setting_under_its_heading_within_the_width(width: int) -> None:
    text = serve_help(width)
    for setting in settings_by_name().values():
        assert setting.flag[2:] in text
        assert setting.help.split()[0] in text
    assert [line[:-1] for line in text.splitlines() if line.endswith(":") and line[0] != " "] == list(Group)
    assert max(len(line) for line in text.splitlines() if line.startswith(" " * 28)) <= width
