"""Send the same long prompt twice: the second answer starts sooner, because its KV blocks are still cached.

make serve                          # in another terminal
python examples/02_prefix_cache.py  # [BASE_URL]
"""

from __future__ import annotations

import sys
import time

from openai import OpenAI

LONG_PROMPT = "You are a careful librarian who knows every shelf by heart. " * 200


def main(base_url: str = "http://127.0.0.1:8000/v1") -> None:
    client = OpenAI(base_url=base_url, api_key="any")
    for attempt in ("first", "second"):
        started = time.perf_counter()
        answer = client.chat.completions.create(
            model="mocker",
            messages=[
                {"role": "system", "content": LONG_PROMPT},
                {"role": "user", "content": "Where is Moby-Dick?"},
            ],
            max_tokens=1,
        )
        elapsed_ms = (time.perf_counter() - started) * 1000
        assert answer.usage is not None and answer.usage.prompt_tokens_details is not None
        cached = answer.usage.prompt_tokens_details.cached_tokens
        print(
            f"{attempt}: {elapsed_ms:6.1f} ms, {cached} of {answer.usage.prompt_tokens} prompt tokens cached"
        )


if __name__ == "__main__":
    main(*sys.argv[1:2])
