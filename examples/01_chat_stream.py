"""Stream a chat with the OpenAI SDK and see when each token arrives.

make serve                         # in another terminal
python examples/01_chat_stream.py  # [BASE_URL]
"""

from __future__ import annotations

import sys
import time

from openai import OpenAI


def main(base_url: str = "http://127.0.0.1:8000/v1") -> None:
    client = OpenAI(base_url=base_url, api_key="any")
    started = time.perf_counter()
    stream = client.chat.completions.create(
        model="mocker",
        messages=[{"role": "user", "content": "Tell me a story."}],
        max_tokens=24,
        stream=True,
        stream_options={"include_usage": True},
    )
    for chunk in stream:
        at_ms = (time.perf_counter() - started) * 1000
        if chunk.choices and chunk.choices[0].delta.content:
            print(f"{at_ms:8.1f} ms  {chunk.choices[0].delta.content!r}")
        if chunk.usage is not None:
            print(f"{chunk.usage.prompt_tokens} prompt and {chunk.usage.completion_tokens} completion tokens")


if __name__ == "__main__":
    main(*sys.argv[1:2])
