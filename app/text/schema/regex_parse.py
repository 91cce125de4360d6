"""Parses regular expressions into a tree, and translates them to Python's dialect on the way.

Must not know schemas or randomness. Assertions (anchors, boundaries, look-arounds) leave no node:
whoever writes a text checks it with the compiled pattern.
"""

from __future__ import annotations

from dataclasses import dataclass
from string import ascii_letters, ascii_lowercase, ascii_uppercase, digits

from app.text.schema.errors import SchemaError

_PRINTABLE = "".join(map(chr, range(0x20, 0x7F)))
_BEYOND_ASCII = "éüñßøλжя中文日本한글"
_WORD = ascii_letters + digits + "_"
_PLAIN = ascii_letters + digits
_MARKS = "!#$%&*+-.=?@_" * 2
_CLASSES = {"d": digits, "w": _WORD, "s": " "}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "0": "\0"}
_PROPERTIES = {
    "L": (ascii_letters, "A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02af\u0370-\u1fff\u3040-\ud7a3"),
    "Letter": (ascii_letters, "A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02af\u0370-\u1fff\u3040-\ud7a3"),
    "Lu": (ascii_uppercase, "A-Z\u00c0-\u00d6\u00d8-\u00de"),
    "Ll": (ascii_lowercase, "a-z\u00df-\u00f6\u00f8-\u00ff"),
    "N": (digits, r"\d"),
    "Nd": (digits, r"\d"),
    "P": (".,;:!?-", r"!-#%-*,-/:;?@\[-\]_{}"),
    "Z": (" ", r"\s"),
    "Zs": (" ", " \u00a0"),
}
_LARGE_RANGE = 2048


@dataclass(frozen=True, slots=True)
class Chars:
    """One of these characters."""

    pool: str


@dataclass(frozen=True, slots=True)
class Sequence:
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Alternatives:
    choices: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    inner: Node
    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class Group:
    inner: Node
    names: tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class Back:
    name: int | str


Node = Chars | Sequence | Alternatives | Repeat | Group | Back
_EMPTY = Sequence(())


@dataclass(frozen=True, slots=True)
class Parsed:
    """python: the pattern in Python's dialect.

    fragile: a text written from the tree may not match (inner assertions, back references), and to find
    that out may take re exponentially long (repeats of repeats)."""

    tree: Node
    python: str
    fragile: bool


def parse(source: str) -> Parsed:
    """Raises SchemaError."""
    parser = _Parser(source)
    try:
        tree = parser.alternatives()
    except RecursionError:
        raise parser.error("it is nested too deeply") from None
    if parser.at < len(source):
        raise parser.error("it has an unbalanced ')'")
    fragile = parser.has_inner_assertion and _repeats_repeats(tree, inside=False)
    return Parsed(tree, "".join(parser.out), fragile)


def _repeats_repeats(node: Node, *, inside: bool) -> bool:
    match node:
        case Sequence(parts) | Alternatives(parts):
            return any(_repeats_repeats(part, inside=inside) for part in parts)
        case Repeat(inner, _, high):
            many = high is None or high > 3
            return (many and inside) or _repeats_repeats(inner, inside=inside or many)
        case Group(inner, _):
            return _repeats_repeats(inner, inside=inside)
        case _:
            return False


class _Parser:
    def __init__(self, source: str) -> None:
        self.source = source
        self.at = 0
        self.groups = 0
        self.has_inner_assertion = False
        self.out: list[str] = []
        self.wide = "(?=" in source  # a look-ahead may ask for any sort of character

    def error(self, why: str) -> SchemaError:
        return SchemaError(f"The pattern {self.source!r} is not a supported regular expression: {why}.")

    def peek(self) -> str:
        return self.source[self.at : self.at + 1]

    def take(self) -> str:
        """The next character, also copied to the translation."""
        char = self.skip()
        self.out.append(char)
        return char

    def skip(self) -> str:
        if self.at >= len(self.source):
            raise self.error("it ends too early")
        self.at += 1
        return self.source[self.at - 1]

    def alternatives(self) -> Node:
        choices = [self.sequence()]
        while self.peek() == "|":
            self.take()
            choices.append(self.sequence())
        return choices[0] if len(choices) == 1 else Alternatives(tuple(choices))

    def sequence(self) -> Node:
        parts: list[Node] = []
        while self.peek() not in ("", "|", ")"):
            node = self.atom()
            parts.append(self.repeated(node))
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def atom(self) -> Node:
        char = self.peek()
        if char == "(":
            return self.group()
        if char == "[":
            return self.char_class()
        if char == "\\":
            return self.escape()
        self.take()
        if char in "^$":
            at_end = self.at == (1 if char == "^" else len(self.source))
            self.has_inner_assertion |= not at_end
            return _EMPTY
        if char == ".":
            return Chars(_PLAIN + _MARKS if self.wide else _PLAIN)
        if char in "*+?":
            raise self.error(f"there is nothing to repeat before {char!r}")
        return Chars(char)

    def repeated(self, node: Node) -> Node:
        bounds = self.bounds()
        while bounds is not None:
            node = Repeat(node, *bounds)
            if self.peek() and self.peek() in "?+":
                self.take()
            bounds = self.bounds()
        return node

    def bounds(self) -> tuple[int, int | None] | None:
        simple: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        char = self.peek()
        if char in simple:
            self.take()
            return simple[char]
        end = self.source.find("}", self.at)
        if char != "{" or end < 0:
            return None
        low, comma, high = self.source[self.at + 1 : end].partition(",")
        if not ((low.isdecimal() or (comma and not low)) and (not high or high.isdecimal())):
            return None
        self.out.append(self.source[self.at : end + 1])
        self.at = end + 1
        bottom = int(low or 0)
        top = (int(high) if high else None) if comma else bottom
        if top is not None and top < bottom:
            raise self.error("a repeat's upper limit is below its lower one")
        return bottom, top

    def group(self) -> Node:
        if self.source.startswith("(?P=", self.at):
            return self.named_back(len("(?P="), ")")
        self.take()
        names: tuple[int | str, ...] = ()
        visible = True
        if self.peek() == "?":
            names, visible = self.group_head()
        else:
            self.groups += 1
            names = (self.groups,)
        inner = self.alternatives()
        if self.peek() != ")":
            raise self.error("a group is not closed")
        self.take()
        if not visible:
            return _EMPTY
        return Group(inner, names) if names else inner

    def group_head(self) -> tuple[tuple[int | str, ...], bool]:
        """(names of the group, whether its text is part of the match) after "(?"."""
        self.take()
        for head, visible in (
            ("<=", False),
            ("<!", False),
            ("=", False),
            ("!", False),
            (":", True),
            (">", True),
        ):
            if self.source.startswith(head, self.at):
                self.out.append(self.source[self.at : self.at + len(head)])
                self.at += len(head)
                self.has_inner_assertion |= not visible
                return (), visible
        if self.source.startswith(("<", "P<"), self.at):
            start = self.source.index("<", self.at) + 1
            end = self.source.find(">", start)
            name = self.source[start:end]
            if end < 0 or not name.isidentifier():
                raise self.error("a group's name is not valid")
            self.out.append(f"P<{name}>")
            self.at = end + 1
            self.groups += 1
            return (self.groups, name), True
        flags = ""
        while self.peek() and self.peek() in "aimsux-":
            flags += self.take()
        if flags and self.peek() == ":":
            self.take()
            return (), True
        if flags and self.peek() == ")":
            return (), False
        raise self.error("it has a group of a kind that is not supported")

    def escape(self) -> Node:
        self.skip()
        char = self.skip()
        if char in "bB":
            self.out.append("\\" + char)
            self.has_inner_assertion = True
            return _EMPTY
        if char in "AZz":
            self.out.append("\\Z" if char == "z" else "\\" + char)
            return _EMPTY
        if char.isdecimal() and char != "0":
            self.out.append("\\" + char)
            self.has_inner_assertion = True
            return Back(int(char))
        if char == "k" and self.peek() == "<":
            return self.named_back(1, ">")
        pool, python = self.escaped(char)
        self.out.append(f"[{python}]" if char == "p" else python)
        return Chars(pool)

    def named_back(self, skipped: int, closing: str) -> Node:
        end = self.source.find(closing, self.at)
        name = self.source[self.at + skipped : end]
        self.out.append(f"(?P={name})")
        self.has_inner_assertion = True
        self.at = end + 1
        return Back(name)

    def escaped(self, char: str) -> tuple[str, str]:
        """(characters, Python's spelling inside a class) of the escape that begins with `char`."""
        if char in _CLASSES:
            return _CLASSES[char], "\\" + char
        if char in "DWS":
            left = [other for other in _PRINTABLE if other not in _CLASSES[char.lower()]]
            return "".join(left), "\\" + char
        if char in _CONTROLS:
            return _CONTROLS[char], "\\" + char
        if char == "p" and self.peek() == "{":
            end = self.source.find("}", self.at)
            name = self.source[self.at + 1 : end]
            self.at = end + 1
            if name not in _PROPERTIES:
                raise self.error(f"the Unicode property {name!r} is not known here")
            return _PROPERTIES[name]
        if char in "xuU":
            return self.code_point({"x": 2, "u": 4, "U": 8}[char])
        if char == "c":
            letter = chr(ord(self.skip()) % 32)
            return letter, f"\\x{ord(letter):02x}"
        if char.isalnum() and char.isascii():
            raise self.error(f"the escape \\{char} is not known here")
        return char, "\\" + char

    def code_point(self, length: int) -> tuple[str, str]:
        text = self.source[self.at : self.at + length]
        if self.peek() == "{":
            end = self.source.find("}", self.at)
            text = self.source[self.at + 1 : end]
            self.at = end + 1
        else:
            self.at += length
        try:
            code = int(text, 16)
            char = chr(code)
        except (ValueError, OverflowError):
            raise self.error("it has a code point that is not valid") from None
        return char, f"\\U{code:08x}"

    def char_class(self) -> Node:
        self.take()
        negated = self.peek() == "^"
        if negated:
            self.take()
        pools: list[str] = []
        first = True
        while first or self.peek() != "]":
            if first and self.peek() == "]":
                # ECMA: [] matches nothing. Python: a literal bracket. Neither is of use here.
                raise self.error("it has an empty class")
            first = False
            pools.append(self.class_item())
        self.take()
        chars = "".join(pools)
        if negated:
            chars = "".join(char for char in _PRINTABLE if char not in chars) or _outside(chars)
        pool = _readable(chars, self.wide)
        if not pool:
            raise self.error("it has a class without a usable character")
        return Chars(pool)

    def class_item(self) -> str:
        low, spelled = self.class_char()
        is_range = self.peek() == "-" and self.source[self.at + 1 : self.at + 2] not in ("]", "")
        if not is_range or len(low) != 1:
            self.out.append(spelled)
            return low
        self.skip()
        high, spelled_high = self.class_char()
        if len(high) != 1 or ord(high) < ord(low):
            raise self.error("it has a class with a wrong range")
        self.out.append(f"{spelled}-{spelled_high}")
        count = ord(high) - ord(low) + 1
        step = 1 if count <= _LARGE_RANGE else count // 256
        return "".join(map(chr, range(ord(low), ord(high) + 1, step)))

    def class_char(self) -> tuple[str, str]:
        char = self.skip()
        if char != "\\":
            # Python warns of what may become a set operation: [[, --, &&, ~~, ||.
            return char, "\\" + char if char in "[-&~|" else char
        char = self.skip()
        if char == "b":
            return "\b", "\\b"
        return self.escaped(char)


def _outside(chars: str) -> str:
    return "".join(char for char in _BEYOND_ASCII if char not in chars)


def _readable(chars: str, wide: bool) -> str:
    """The characters that read well, if there are any (wide: all that print); never a surrogate."""
    plain = "".join(sorted({char for char in chars if char in _PLAIN}))
    if plain and not wide:
        return plain
    usable = sorted({char for char in chars if not 0xD800 <= ord(char) <= 0xDFFF})
    printable = "".join(char for char in usable if char.isprintable())
    return printable or "".join(usable)
