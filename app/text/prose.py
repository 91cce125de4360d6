"""Natural sentences as ready token lists, strung together by a seeded generator.

Owns the phrase bank (made once per tokenizer) and the two token streams, prose and random
words. Must not know requests; a stream is told its seed and how many tokens it fills.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import chain
from random import Random

from app.text.tokenizer import Tokenizer
from app.text.vocabulary import read_lines

Ids = tuple[int, ...]

MASK64 = (1 << 64) - 1
_MULTIPLIER, _INCREMENT = 6364136223846793005, 1442695040888963407
_BANK_SEED = 20260101
_SUBJECTS, _PREDICATES, _WORDS = 512, 512, 4096


class PhraseBank:
    """Clauses, places and joins as token ids of one tokenizer. Every sentence is at most `longest` tokens."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._encode = tokenizer.encode
        lists = read_phrases()
        random = Random(_BANK_SEED)
        sentences = lists["short"] + [_sentence(random, lists) for _ in range(400)]
        subjects = [_noun_phrase(random, lists, "subjects") for _ in range(_SUBJECTS)]
        self.starts = [self._ids(" " + _capital(text)) for text in subjects]
        self.first_starts = [self._ids(_capital(text)) for text in subjects]
        self.subjects = [self._ids(" " + text) for text in subjects]
        self.predicates = [self._ids(_predicate(random, lists)) for _ in range(_PREDICATES)]
        self.places = [self._ids(" " + text) for text in lists["places"]]
        self.openers = [self._ids(f" {text},") for text in lists["openers"]]
        self.joins = [self._ids(text) for text in lists["joins"]]
        self.stop, self.paragraph = self._ids("."), self._ids("\n\n")
        self.single = self._ids("Yes")[:1]
        parts = (self.subjects, self.predicates, self.places)
        clause = sum(max(map(len, part)) for part in parts)
        self.longest = 2 * clause + max(map(len, self.openers + self.joins)) + 3
        self._endings = self._build_endings([f" {text}." for text in sentences])
        self.first_endings = self._build_endings([f"{text}." for text in ("Yes", *sentences)])

    @cached_property
    def words(self) -> list[int]:
        """Single-token words, for random content."""
        return single_token_words(self._ids)

    def prose_ids(self) -> set[int]:
        """Every token that prose from this bank can hold."""
        lists: list[list[Ids]] = [self.starts, self.first_starts, self.subjects, self.predicates]
        lists += [self.places, self.openers, self.joins, *self._endings.values()]
        lists += self.first_endings.values()
        found = {token_id for ids in chain(*lists) for token_id in ids}
        return found.union(self.stop, self.paragraph, self.single)

    def _ids(self, text: str) -> Ids:
        return tuple(self._encode(text))

    def _build_endings(self, texts: Sequence[str]) -> dict[int, list[Ids]]:
        """Whole sentences by their exact number of tokens."""
        endings: dict[int, list[Ids]] = {}
        for text in texts:
            sentence = self._ids(text)
            endings.setdefault(len(sentence), []).append(sentence)
        return endings

    def append_ending(self, ids: list[int], count: int, bits: int) -> None:
        """Append exactly `count` tokens that end a text: whole sentences where the lengths allow it."""
        endings = self._endings
        while count > 0:
            choices = endings.get(count)
            if choices is None:
                size = next((n for n in (8, 7, 9, 6, 5) if n in endings and count - n >= 4), 0)
                choices = endings.get(size) or [self._cut_sentence(bits, count)]
            sentence = choices[(bits >> 32) % len(choices)]
            ids += sentence
            count -= len(sentence)
            bits = bits * _MULTIPLIER + _INCREMENT & MASK64

    def _cut_sentence(self, bits: int, count: int) -> Ids:
        """For a length that no sentence has: a sentence cut to it, with its full stop if there is room."""
        if count <= len(self.stop):
            return self.single if count == 1 else self.stop[:count]
        text = (self.starts[bits % _SUBJECTS] + self.predicates[bits % _PREDICATES]) * count
        return text[: count - len(self.stop)] + self.stop


class Prose:
    """One stream of sentences. `total`: it ends naturally after so many tokens; None: it never ends."""

    __slots__ = ("_bank", "_origin", "_sentences", "_state", "_total")

    def __init__(self, bank: PhraseBank, seed: int, total: int | None, origin: int = 0) -> None:
        self._bank = bank
        self._state = seed
        self._origin = origin
        self._total = total
        self._sentences = 0  # in this paragraph

    def grow(self, ids: list[int], want: int) -> None:
        """Append until len(ids) >= want (or the natural end, counted from the origin, is reached)."""
        bank, total = self._bank, self._total
        while (size := len(ids) - self._origin) < want - self._origin:
            if total is not None and total - size <= bank.longest + 4:
                if size == 0:
                    self._append_short_answer(ids, total)
                else:
                    bank.append_ending(ids, total - size, self._state >> 7)
                return
            self._append_sentence(ids, first=size == 0)

    def _append_short_answer(self, ids: list[int], total: int) -> None:
        """The whole text is short: its first word has no blank before it."""
        bank, bits = self._bank, self._state >> 7
        if total == 1:
            ids += bank.single
        elif choices := bank.first_endings.get(total):
            ids += choices[bits % len(choices)]
        else:
            choices = bank.first_endings.get(7, [])
            first = choices[bits % len(choices)] if total > 10 and choices else ()
            ids += first
            bank.append_ending(ids, total - len(first), bits)

    def _append_sentence(self, ids: list[int], *, first: bool) -> None:
        # Hot: about one microsecond a sentence, whose choices all come from one 64-bit draw.
        bank = self._bank
        state = self._state = self._state * _MULTIPLIER + _INCREMENT & MASK64
        bits = state ^ (state >> 32)
        form = bits & 15
        starts, subjects = bank.starts, bank.subjects
        if first or (form >= 12 and self._sentences > 3):
            if not first:
                ids += bank.paragraph
            self._sentences = 0
            starts = bank.first_starts
        elif form < 4:
            ids += bank.openers[(bits >> 4) % len(bank.openers)]
            starts = subjects
        self._sentences += 1
        ids += starts[(bits >> 8) & 511]
        ids += bank.predicates[(bits >> 17) & 511]
        shape = bits >> 61
        if shape < 4:
            ids += bank.places[(bits >> 26) % len(bank.places)]
        elif shape < 6:
            ids += bank.joins[(bits >> 30) % len(bank.joins)]
            ids += subjects[(state >> 36) & 511]
            ids += bank.predicates[(state >> 45) & 511]
        ids += bank.stop


class RandomWords:
    """One stream of single-token words, without end."""

    __slots__ = ("_bank", "_state")

    def __init__(self, bank: PhraseBank, seed: int) -> None:
        self._bank = bank
        self._state = seed

    def grow(self, ids: list[int], want: int) -> None:
        state, words = self._state, self._bank.words
        while len(ids) < want:
            state = state * _MULTIPLIER + _INCREMENT & MASK64
            bits = state >> 16
            ids += (words[bits & 4095], words[(bits >> 12) & 4095], words[(bits >> 24) & 4095])
        self._state = state


def read_phrases() -> dict[str, list[str]]:
    """The sections of the packaged phrase file; lists of single words are split."""
    lists: dict[str, list[str]] = {}
    current: list[str] = []
    for line in read_lines("phrases.txt"):
        if line.startswith("["):
            current = lists.setdefault(line.strip("[]"), [])
        elif line and not line.startswith("#"):
            current.append(line)
    for name in ("adjectives", "subjects", "verbs", "objects"):
        lists[name] = " ".join(lists[name]).split()
    return lists


def _noun_phrase(random: Random, lists: dict[str, list[str]], nouns: str) -> str:
    words = [random.choice(lists[nouns])]
    if random.random() < 0.55:
        words.insert(0, random.choice(lists["adjectives"]))
    return " ".join(["the", *words])


def _predicate(random: Random, lists: dict[str, list[str]]) -> str:
    article = random.choice(("the", "the", "several", "a few", "many", "some", "all the"))
    words = [article, random.choice(lists["objects"])]
    if random.random() < 0.35:
        words.insert(1, random.choice(lists["adjectives"]))
    return " ".join(["", random.choice(lists["verbs"]), *words])


def _sentence(random: Random, lists: dict[str, list[str]]) -> str:
    place = f" {random.choice(lists['places'])}" if random.random() < 0.5 else ""
    return _capital(_noun_phrase(random, lists, "subjects")) + _predicate(random, lists) + place


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def single_token_words(encode: Callable[[str], Sequence[int]]) -> list[int]:
    """4,096 ids of words with a blank before them (repeated if the tokenizer knows fewer as one token)."""
    found: list[int] = []
    for word in read_lines("words.txt"):
        ids = encode(" " + word)
        if len(ids) == 1:
            found.append(ids[0])
            if len(found) == _WORDS:
                break
    found = found or list(encode(" the"))
    return (found * (_WORDS // len(found) + 1))[:_WORDS]
