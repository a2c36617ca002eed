"""The grammar of rules between columns: a small parser, and errors that name the place.

rule       = any ["implies" any]
any        = all {"or" all}
all        = one {"and" one}
one        = "not" one | "(" any ")" | side sign side      with the signs == != < <= > >=
side       = term {("+" | "-") term}
term       = [number "*"] column | number | 'text'
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fedsynth.data.column import Column
from fedsynth.data.rules import (
    Compound,
    Condition,
    Constraint,
    RuleComparison,
    RuleText,
    Sum,
    is_text,
    literal,
)
from fedsynth.data.values import places
from fedsynth.errors import BadInput, nearest

_TOKEN = re.compile(r"""\s*(?:(?P<sign>==|!=|<=|>=|<|>)|(?P<mark>[-+*()])|(?P<number>\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)
    |'(?P<text>[^']*)'|"(?P<double>[^"]*)"|(?P<word>[^\W\d]\w*))""", re.VERBOSE)  # fmt: skip
_WORDS = ("and", "or", "not", "implies")


@dataclass(frozen=True)
class _Token:
    kind: str  # sign, mark, number, text, column, word, end
    text: str


_Terms = list[tuple[float, Column | _Token]]  # with their factors


def parse_rule(text: str, columns: Sequence[Column]) -> Constraint:
    """A rule between columns, from its text.

    >>> ages = [Column("age", "integer", min=0, max=99), Column("years at school", "integer", min=0, max=30)]
    >>> parse_rule("years at school <= age - 4", ages).columns
    ('years at school', 'age')
    """
    if not isinstance(text, str):
        raise BadInput(f"constraint {text!r}: expected a text such as 'discharge >= admission'")
    known = {column.name: column for column in columns if column.type != "id"}
    try:
        tokens = _tokens(text, known)
        parser = _Parser(tokens, known)
        condition = parser.rule()
    except BadInput as error:
        raise BadInput(f"constraint {text!r}: {error}") from None
    used = tuple(dict.fromkeys(token.text for token in tokens if token.kind == "column"))
    if not used:
        raise BadInput(
            f"constraint {text!r}: names no column; expected a rule such as 'discharge >= admission'"
        )
    return Constraint(text, condition, used)


def _tokens(text: str, known: dict[str, Column]) -> list[_Token]:
    """Names of columns are found first, the longest one, so that they may have spaces and signs in them."""
    names = sorted(known, key=len, reverse=True)
    tokens, at = [], 0
    while text[at:].strip():
        at += len(text[at:]) - len(text[at:].lstrip())
        rest = text[at:]
        name = next((n for n in names if rest.startswith(n) and not re.match(r"\w", rest[len(n) :])), None)
        if name is not None and name not in _WORDS:
            tokens.append(_Token("column", name))
            at += len(name)
            continue
        match = _TOKEN.match(rest)
        if match is None:
            raise BadInput(
                f"{rest[:12]!r} is not understood; expected a column, a sign, a number or a 'text'"
            )
        kind = str(match.lastgroup)
        word = match[kind]
        if kind == "word" and word not in (*_WORDS, "true", "false"):
            raise BadInput(f"there is no column {word!r}; {nearest(word, known)}")
        kind = "text" if kind == "double" or word in ("true", "false") else kind
        tokens.append(_Token(kind, word))
        at += match.end()
    return [*tokens, _Token("end", "")]


@dataclass
class _Parser:
    tokens: list[_Token]
    known: dict[str, Column]
    at: int = 0

    def rule(self) -> Condition:
        condition = self._any()
        if self._taken("word", "implies"):
            condition = Compound("implies", (condition, self._any()))
        if self._token.kind != "end":
            raise BadInput(f"{self._token.text!r} is unexpected here; join conditions by and, or, implies")
        return condition

    @property
    def _token(self) -> _Token:
        return self.tokens[self.at]

    def _taken(self, kind: str, text: str | None = None) -> bool:
        fits = self._token.kind == kind and text in (None, self._token.text)
        self.at += fits
        return fits

    def _any(self) -> Condition:
        return self._joined("or", lambda: self._joined("and", self._one))

    def _joined(self, word: str, part: Callable[[], Condition]) -> Condition:
        parts = [part()]
        while self._taken("word", word):
            parts.append(part())
        return parts[0] if len(parts) == 1 else Compound(word, tuple(parts))

    def _one(self) -> Condition:
        if self._taken("word", "not"):
            return Compound("not", (self._one(),))
        if self._taken("mark", "("):
            inner = self._any()
            if not self._taken("mark", ")"):
                raise BadInput("a bracket is not closed")
            return inner
        left = self._side()
        sign = self._token.text
        if not self._taken("sign"):
            raise BadInput(f"expected one of == != < <= > >= and then a value, not {sign or 'the end'!r}")
        return comparison(left, sign, self._side())

    def _side(self) -> _Terms:
        terms = [self._term(-1.0 if self._taken("mark", "-") else 1.0)]
        while self._token.kind == "mark" and self._token.text in "+-":
            factor = 1.0 if self._token.text == "+" else -1.0
            self.at += 1
            terms.append(self._term(factor))
        return terms

    def _term(self, factor: float) -> tuple[float, Column | _Token]:
        token = self._token
        if token.kind not in ("column", "number", "text"):
            raise BadInput(f"expected a column, a number or a 'text', not {token.text or 'the end'!r}")
        self.at += 1
        if token.kind == "number" and self._taken("mark", "*"):
            return self._term(factor * float(token.text))
        return factor, self.known[token.text] if token.kind == "column" else token


def comparison(left: _Terms, sign: str, right: _Terms) -> RuleComparison:
    """The comparison of two sides, once it is known whether they are texts or numbers."""
    columns = [term for _, term in (*left, *right) if isinstance(term, Column)]
    texts = [column for column in columns if is_text(column)]
    if not columns:
        raise BadInput("a comparison names at least one column")
    if not texts:
        moments = [column for column in columns if column.moment] or columns
        return RuleComparison(_sum(left, moments[0]), sign, _sum(right, moments[0]))
    if len(left) > 1 or len(right) > 1 or len(texts) < len(columns):
        raise BadInput(f"column {texts[0].name!r} is {texts[0].type}; compare it with one of its categories")
    if sign not in ("==", "!=") and any(column.type != "ordinal" for column in texts):
        raise BadInput(
            f"column {texts[0].name!r} is {texts[0].type} and has no order; compare it by == or !="
        )
    return RuleComparison(_text(left[0][1], texts[0]), sign, _text(right[0][1], texts[0]))


def _text(term: Column | _Token, column: Column) -> RuleText:
    if isinstance(term, Column):
        return RuleText(term)
    place = places(np.array([term.text], dtype=object), column.labels)[0]
    if place < 0:
        raise BadInput(
            f"{term.text!r} is not a category of {column.name!r}; {nearest(term.text, column.labels)}"
        )
    return RuleText(None, column.labels[place])


def _sum(terms: _Terms, moment: Column) -> Sum:
    """The side as a sum; a text is read as a value of the moments that it is compared with."""
    constant = sum(
        factor * (literal(moment, term.text) if term.kind == "text" else float(term.text))
        for factor, term in terms
        if isinstance(term, _Token)
    )
    return Sum(tuple((factor, term) for factor, term in terms if isinstance(term, Column)), constant)
