"""Natural strings: values for `format`, and words that fit a property's name.

Must not know schemas: given a name and a random stream, it gives text.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from functools import cache
from random import Random
from uuid import UUID

from app.text.prose import read_phrases

_FIRST = ("Ada", "Grace", "Alan", "Maria", "Noor", "Kenji", "Lena", "Tomas", "Amara", "Oscar")
_LAST = ("Lovelace", "Novak", "Tanaka", "Silva", "Meyer", "Okafor", "Berg", "Costa", "Hughes", "Laurent")
_CITIES = ("Paris", "Lisbon", "Osaka", "Nairobi", "Oslo", "Lima", "Toronto", "Prague", "Hanoi", "Denver")
_COUNTRIES = ("France", "Portugal", "Japan", "Kenya", "Norway", "Peru", "Canada", "Vietnam", "Chile", "Italy")
_DOMAINS = ("example.com", "example.org", "example.net")


@cache
def _words() -> tuple[list[str], list[str]]:
    lists = read_phrases()
    return lists["adjectives"], lists["objects"]


def word(random: Random) -> str:
    """One plain lower-case word."""
    return random.choice(_words()[1])


def words(random: Random) -> str:
    """Two or three plain words."""
    adjectives, nouns = _words()
    return f"{random.choice(adjectives)} {random.choice(nouns)}"


def key(random: Random, attempt: int) -> str:
    """A property name; a later attempt is less likely to be taken."""
    return word(random) if attempt < 3 else f"{word(random)}_{random.randint(1, 10 ** min(attempt, 9))}"


def named_text(name: str, random: Random) -> str:
    """Text that suits a property of this name."""
    lowered = name.lower()
    for part, make in _BY_NAME:
        if part in lowered:
            return make(random)
    return words(random)


def formatted(name: str, random: Random) -> str | None:
    """A string of the format, or None for one that is not known (then it is only a remark)."""
    make = _FORMATS.get(name)
    return None if make is None else make(random)


def _date(random: Random) -> str:
    return f"{random.randint(2015, 2029)}-{random.randint(1, 12):02d}-{random.randint(1, 28):02d}"


def _time(random: Random) -> str:
    return f"{random.randint(0, 23):02d}:{random.randint(0, 59):02d}:{random.randint(0, 59):02d}Z"


def _date_time(random: Random) -> str:
    return f"{_date(random)}T{_time(random)}"


def _duration(random: Random) -> str:
    return random.choice((f"P{random.randint(1, 30)}D", f"PT{random.randint(1, 48)}H", "P1Y2M", "PT15M"))


def _email(random: Random) -> str:
    return f"{random.choice(_FIRST).lower()}@{random.choice(_DOMAINS)}"


def _hostname(random: Random) -> str:
    return f"{word(random)}.{random.choice(_DOMAINS)}"


def _uri(random: Random) -> str:
    return f"https://{_hostname(random)}/{word(random)}"


def _uuid(random: Random) -> str:
    return str(UUID(int=random.getrandbits(128), version=4))


def _ipv4(random: Random) -> str:
    return f"192.0.2.{random.randint(1, 254)}"


def _ipv6(random: Random) -> str:
    return f"2001:db8::{random.randint(1, 0xFFFF):x}"


def _person(random: Random) -> str:
    return f"{random.choice(_FIRST)} {random.choice(_LAST)}"


def _base64(random: Random) -> str:
    return b64encode(words(random).encode()).decode()


def _choice(values: tuple[str, ...]) -> Callable[[Random], str]:
    return lambda random: random.choice(values)


def _sentence(random: Random) -> str:
    return f"The {words(random)} and the {words(random)}."


_FORMATS: dict[str, Callable[[Random], str]] = {
    "date-time": _date_time,
    "datetime": _date_time,
    "date": _date,
    "time": _time,
    "duration": _duration,
    "email": _email,
    "idn-email": _email,
    "hostname": _hostname,
    "idn-hostname": _hostname,
    "ipv4": _ipv4,
    "ip": _ipv4,
    "ipv6": _ipv6,
    "uri": _uri,
    "url": _uri,
    "iri": _uri,
    "uri-reference": lambda random: f"/{word(random)}/{word(random)}",
    "iri-reference": lambda random: f"/{word(random)}/{word(random)}",
    "uri-template": lambda random: f"https://{_hostname(random)}/{{{word(random)}}}",
    "uuid": _uuid,
    "json-pointer": lambda random: f"/{word(random)}/{random.randint(0, 9)}",
    "relative-json-pointer": lambda random: f"{random.randint(0, 3)}/{word(random)}",
    "regex": lambda random: f"^{word(random)}[0-9]+$",
    "byte": _base64,
    "base64": _base64,
    "color": lambda random: f"#{random.getrandbits(24):06x}",
    "phone": lambda random: f"+1555{random.randint(0, 9_999_999):07d}",
}

# The first part found in a lower-case property name decides.
_BY_NAME: tuple[tuple[str, Callable[[Random], str]], ...] = (
    ("email", _email),
    ("first_name", _choice(_FIRST)),
    ("last_name", _choice(_LAST)),
    ("filename", lambda random: f"{word(random)}.txt"),
    ("file", lambda random: f"{word(random)}.txt"),
    ("path", lambda random: f"/{word(random)}/{word(random)}.txt"),
    ("author", _person),
    ("user", _person),
    ("name", _person),
    ("city", _choice(_CITIES)),
    ("location", _choice(_CITIES)),
    ("place", _choice(_CITIES)),
    ("country", _choice(_COUNTRIES)),
    ("language", _choice(("English", "French", "Japanese", "Spanish"))),
    ("currency", _choice(("EUR", "USD", "JPY", "GBP"))),
    ("timezone", _choice(("Europe/Paris", "Asia/Tokyo", "America/Lima"))),
    ("unit", _choice(("celsius", "metric", "kilometers"))),
    ("date", _date),
    ("time", _date_time),
    ("url", _uri),
    ("link", _uri),
    ("phone", lambda random: f"+1555{random.randint(0, 9_999_999):07d}"),
    ("uuid", _uuid),
    ("color", _choice(("red", "green", "blue", "amber"))),
    ("description", _sentence),
    ("summary", _sentence),
    ("explanation", _sentence),
    ("reason", _sentence),
    ("text", _sentence),
    ("message", _sentence),
    ("answer", _sentence),
)
