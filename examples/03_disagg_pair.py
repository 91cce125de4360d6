"""Do by hand what a prefill/decode proxy made for vLLM does: prefill here, decode there.

    mocker serve --port 8100 --disaggregation-mode prefill   # in one terminal
    mocker serve --port 8200 --disaggregation-mode decode    # in another
    python examples/03_disagg_pair.py                        # [PREFILL_URL DECODE_URL]

`mocker demo disagg` starts both with a router in front.
"""

from __future__ import annotations

import sys
import uuid

import httpx

REQUEST = {"model": "mocker", "messages": [{"role": "user", "content": "Tell me a story."}], "max_tokens": 16}


def main(prefill_url: str = "http://127.0.0.1:8100", decode_url: str = "http://127.0.0.1:8200") -> None:
    headers = {"X-Request-Id": str(uuid.uuid4())}
    prefill = REQUEST | {"max_tokens": 1, "stream": False}
    prefill["kv_transfer_params"] = {"do_remote_decode": True, "do_remote_prefill": False}
    with httpx.Client(headers=headers, timeout=30) as client:
        held = client.post(f"{prefill_url}/v1/chat/completions", json=prefill).raise_for_status().json()
        print("prefill holds the KV:", held["kv_transfer_params"])
        decode = REQUEST | {"kv_transfer_params": held["kv_transfer_params"]}
        answer = client.post(f"{decode_url}/v1/chat/completions", json=decode).raise_for_status().json()
        print("decode says:", answer["choices"][0]["message"]["content"])
        print("usage:", answer["usage"])


if __name__ == "__main__":
    main(*sys.argv[1:3])
