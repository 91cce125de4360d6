"""Optional real tokenizers: tiktoken encodings and a local tokenizer.json. Never downloads.

Both give each token's bytes, so that streamed and whole text agree. Differences from the libraries:
decode() keeps markers and a first blank, which they may drop.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from app.text.tokenizer import BuiltinTokenizer, Tokenizer, stand_in

_LONE_SURROGATES = re.compile("[\ud800-\udfff]")
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class TokenizerError(ValueError):
    """The tokenizer that was asked for cannot be had here; the message says what to pass."""


def load_tokenizer(spec: str = "builtin") -> Tokenizer:
    """The tokenizer that a flag names: "builtin", "tiktoken:ENCODING", or a path to a tokenizer.json
    or to a folder that holds one. Raises TokenizerError with one sentence; never uses the network."""
    if spec == "builtin":
        return BuiltinTokenizer()
    if spec.startswith("tiktoken:"):
        return _load_tiktoken(spec.removeprefix("tiktoken:"))
    path = Path(spec).expanduser()
    file = path / "tokenizer.json" if path.is_dir() else path
    if not file.is_file():
        raise TokenizerError(
            f"There is no tokenizer at {spec!r}: pass builtin, tiktoken:ENCODING, or the path of a local"
            " tokenizer.json (nothing is downloaded)."
        )
    return _load_file(file)


class BytesTokenizer:
    """A tokenizer whose text is its tokens' bytes joined. Subclasses encode, and know one token's bytes."""

    def __init__(self, name: str, vocab_size: int, max_token_chars: int) -> None:
        self.name = name
        self.vocab_size = vocab_size
        self.max_token_chars = max_token_chars
        self.token_bytes: Callable[[int], bytes] = lru_cache(maxsize=65536)(self._find_bytes)

    def encode(self, text: str) -> list[int]:
        raise NotImplementedError

    def marker(self, name: str) -> list[int]:
        raise NotImplementedError

    def decode(self, ids: Iterable[int]) -> str:
        return b"".join(map(self.token_bytes, ids)).decode("utf-8", "replace")

    def token_text(self, token_id: int) -> str:
        return self.token_bytes(token_id).decode("utf-8", "replace")

    def _find_bytes(self, token_id: int) -> bytes:
        raise NotImplementedError


class TiktokenTokenizer(BytesTokenizer):
    """Wraps a tiktoken.Encoding."""

    def __init__(self, encoding: Any) -> None:
        longest = max(map(len, encoding.token_byte_values()))
        super().__init__(f"tiktoken:{encoding.name}", encoding.n_vocab, longest)
        self._encoding = encoding

    def encode(self, text: str) -> list[int]:
        return list(self._encoding.encode_ordinary(_whole(text)))

    def marker(self, name: str) -> list[int]:
        if name in self._encoding.special_tokens_set:
            return [self._encoding.encode_single_token(name)]
        return self.encode(name)

    def _find_bytes(self, token_id: int) -> bytes:
        try:
            return bytes(self._encoding.decode_single_token_bytes(token_id))
        except (KeyError, OverflowError):
            return stand_in(token_id).encode()


class FileTokenizer(BytesTokenizer):
    """Wraps a tokenizers.Tokenizer; `decoder` is the decoder object of its tokenizer.json."""

    def __init__(self, tokenizer: Any, decoder: Any, name: str) -> None:
        longest = max(map(len, tokenizer.get_vocab(with_added_tokens=True)), default=1)
        super().__init__(name, tokenizer.get_vocab_size(with_added_tokens=True), longest)
        self._tokenizer = tokenizer
        self._added = {
            token_id: added.content for token_id, added in tokenizer.get_added_tokens_decoder().items()
        }
        self._read_token = _token_reader(_decoder_parts(decoder))

    def encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(_whole(text), add_special_tokens=False).ids)

    def marker(self, name: str) -> list[int]:
        return self.encode(name)

    def _find_bytes(self, token_id: int) -> bytes:
        if (added := self._added.get(token_id)) is not None:
            return str(added).encode()
        token = self._tokenizer.id_to_token(token_id)
        return stand_in(token_id).encode() if token is None else self._read_token(token)


def _load_tiktoken(name: str) -> Tokenizer:
    try:
        import tiktoken
        import tiktoken.load
    except ImportError:
        raise TokenizerError(
            f"tiktoken:{name} needs the package tiktoken: install the extra 'tokenizers', or pass builtin."
        ) from None
    if name not in (known := tiktoken.list_encoding_names()):
        raise TokenizerError(
            f"tiktoken has no encoding {name!r}: pass tiktoken: and one of {', '.join(known)}."
        )
    with _no_download(tiktoken.load):
        try:
            return TiktokenTokenizer(tiktoken.get_encoding(name))
        except _DownloadRefusedError:
            raise TokenizerError(
                f"The data of tiktoken's {name} is not on this machine and nothing is downloaded: set"
                " TIKTOKEN_CACHE_DIR to a folder that holds it, or pass builtin or a local tokenizer.json."
            ) from None


class _DownloadRefusedError(Exception):
    """tiktoken wanted to fetch a file."""


@contextmanager
def _no_download(loader: Any) -> Iterator[None]:
    """While it lasts, tiktoken finds its files in its cache folder or not at all."""

    def refuse(path: str) -> bytes:
        raise _DownloadRefusedError(path)

    original, loader.read_file = loader.read_file, refuse
    try:
        yield
    finally:
        loader.read_file = original


def _load_file(path: Path) -> Tokenizer:
    try:
        from tokenizers import Tokenizer as HfTokenizer
    except ImportError:
        raise TokenizerError(
            f"{path} needs the package tokenizers: install the extra 'tokenizers', or pass builtin."
        ) from None
    try:
        text = path.read_text("utf-8")
        decoder = json.loads(text).get("decoder")
        # The library raises bare Exception for a file that it does not understand.
        return FileTokenizer(HfTokenizer.from_str(text), decoder, str(path))
    except Exception as error:
        raise TokenizerError(f"{path} is not a usable tokenizer.json: {error}.") from None


def _decoder_parts(decoder: Any) -> list[dict[str, Any]]:
    """The decoder's steps, sequences flattened."""
    if not isinstance(decoder, dict):
        return []
    if decoder.get("type") == "Sequence":
        return [part for step in decoder.get("decoders", ()) for part in _decoder_parts(step)]
    return [decoder]


def _token_reader(parts: list[dict[str, Any]]) -> Callable[[str], bytes]:
    """How a vocabulary entry reads as bytes, for the decoders in use."""
    kinds = {part.get("type") for part in parts}
    if "ByteLevel" in kinds:
        table = _byte_level_table()
        return lambda token: b"".join(table.get(char) or char.encode() for char in token)
    if "WordPiece" in kinds:
        return lambda token: (token[2:] if token.startswith("##") else " " + token).encode()
    blank = kinds & {"Metaspace", "ByteFallback", "Replace"}

    def read(token: str) -> bytes:
        if found := _BYTE_TOKEN.fullmatch(token):
            return bytes((int(found[1], 16),))
        return token.replace("▁", " ").encode() if blank else token.encode()

    return read


def _byte_level_table() -> dict[str, bytes]:
    """Byte-level BPE writes printable Latin-1 bytes as themselves, the others as U+0100 onwards, in order."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    table = {chr(byte): bytes((byte,)) for byte in printable}
    hidden = (byte for byte in range(256) if byte not in printable)
    return table | {chr(0x100 + place): bytes((byte,)) for place, byte in enumerate(hidden)}


def _whole(text: str) -> str:
    return _LONE_SURROGATES.sub("\ufffd", text)
