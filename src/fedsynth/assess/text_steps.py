"""The pieces of an evaluation of texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedsynth.assess.scores.reader import LanguageReader
from fedsynth.assess.scores.score import Score
from fedsynth.assess.scores.text_fidelity import (
    TrigramModel,
    duplicates,
    ngram_overlap,
    unknown_by_position,
    vocabulary_overlap,
    words,
)
from fedsynth.assess.step import Comparison, Found, Step
from fedsynth.errors import BadInput
from fedsynth.rng import Rng

PERPLEXITY, NEXT_WORD = "perplexity of synthetic texts", "next word: accuracy"
LEARNED = "perplexity of real texts after synthetic ones"
PREDICTED = "perplexity of unseen texts under the generator"
GUESSED = "next word: accuracy of the generator"
VOCABULARY, UNKNOWN = "vocabulary overlap", "unknown words"
EXACT, NEAR = "copied texts", "nearly copied texts"
ROWS = {False: 20_000, True: 200_000}  # texts of each
_POSITIONS = 20
_SHOWN = 20
_UNBOUNDED = (1.0, float(2**31))


def ngram_name(size: int) -> str:
    """The name of the score.

    >>> ngram_name(2)
    '2-gram overlap'
    """
    return f"{size}-gram overlap"


def text_steps(compared: Comparison) -> Sequence[Step]:
    """Every piece for texts; words are compared whatever the schema's vocabulary is."""
    sets = (compared.real, compared.synthetic, compared.test or ())
    few, written, unseen = (_some(texts, ROWS[compared.deep], compared.seed) for texts in sets)
    work, reader = _Work(few, written, unseen, split=compared.test is None), compared.reader
    sizes = (1, 2, 3)
    own = [] if reader is None else [Step("generator", (PREDICTED, GUESSED), lambda: work.generator(reader))]
    return [
        Step("n-grams", tuple(ngram_name(size) for size in sizes), lambda: work.ngrams(sizes)),
        Step("vocabulary", (VOCABULARY, UNKNOWN), work.vocabulary),
        Step("language model", (PERPLEXITY, LEARNED, NEXT_WORD), work.language_model),
        *own,
        Step("duplicates", (EXACT, NEAR), work.duplicates),
    ]


class _Work:
    def __init__(
        self, real: Sequence[str], synthetic: Sequence[str], test: Sequence[str], *, split: bool
    ) -> None:
        """Without test texts, every fifth real one is held out."""
        self._all, self._synthetic = real, synthetic
        self._real = [text for row, text in enumerate(real) if row % 5] if split else real
        self._test = real[::5] if split else test
        self._source = (
            "a fifth of the real texts, which the generator may have seen" if split else "test texts"
        )

    def _require(self) -> None:
        for what, texts in (("real", self._real), ("synthetic", self._synthetic), ("test", self._test)):
            if not any(words(text) for text in texts):
                raise BadInput(f"the {what} texts have no words; expected at least one text with words")

    def ngrams(self, sizes: Sequence[int]) -> Found:
        self._require()
        scores = []
        for size in sizes:
            beside = ngram_overlap(self._real, self._test, size)
            value = ngram_overlap(self._real, self._synthetic, size)
            scores.append(Score(ngram_name(size), value, detail={"real": beside, "of": self._source}))
        return Found(tuple(scores))

    def vocabulary(self) -> Found:
        self._require()
        known = {word for text in self._real for word in words(text)}
        by_position = {
            what: unknown_by_position(known, texts, _POSITIONS)
            for what, texts in (("synthetic", self._synthetic), ("real", self._test))
        }
        shares = {what: _unknown(known, texts) for what, texts in (("s", self._synthetic), ("r", self._test))}
        detail = {"real": shares["r"], "by_position": by_position["synthetic"], "of": self._source}
        scores = (
            Score(VOCABULARY, vocabulary_overlap(self._real, self._synthetic)),
            Score(UNKNOWN, shares["s"], "min", detail=detail),
        )
        return Found(scores, {"texts": {"unknown_by_position": by_position}})

    def language_model(self) -> Found:
        self._require()
        of_real, of_synthetic = TrigramModel.fit(self._real), TrigramModel.fit(self._synthetic)
        model = {"model": "trigrams, mixed", "of": self._source}
        real = {**model, "real": of_real.perplexity(self._test)}
        learned = {**model, "train_on_real": real["real"]}
        next_word = {
            **model,
            "train_on_real": of_real.accuracy(self._test),
            "majority": _most_frequent(self._real, self._test),
        }
        scores = (
            _perplexity(PERPLEXITY, of_real.perplexity(self._synthetic), real),
            _perplexity(LEARNED, of_synthetic.perplexity(self._test), learned),
            Score(NEXT_WORD, of_synthetic.accuracy(self._test), detail=next_word),
        )
        return Found(scores)

    def generator(self, reader: LanguageReader) -> Found:
        own, beside = reader.predict(self._test), reader.beside(self._real, self._test)
        of = {"model": "the run's own", "of": self._source}
        scores = (
            _perplexity(PREDICTED, own.perplexity, {**of, "unigrams": beside.perplexity}),
            Score(GUESSED, own.accuracy, detail={**of, "unigrams": beside.accuracy}),
        )
        return Found(scores)

    def duplicates(self) -> Found:
        self._require()
        same, near = duplicates(self._all, self._synthetic)
        count = len(self._synthetic)
        unseen = duplicates(self._real, self._test)
        beside = [len(rows) / len(self._test) for rows in unseen]
        scores = (
            Score(EXACT, len(same) / count, "min", detail={"texts": len(same), "real": beside[0]}),
            Score(NEAR, len(near) / count, "min", detail={"texts": len(near), "real": beside[1]}),
        )
        shown = {
            "synthetic": list(self._synthetic[:_SHOWN]),
            "duplicates": [{"synthetic": self._synthetic[row]} for row in same[:_SHOWN]],
            "near_duplicates": [
                {"synthetic": self._synthetic[row], "real": self._all[place], "share": share}
                for row, place, share in near[:_SHOWN]
            ],
        }
        return Found(scores, {"texts": shown})


def _perplexity(name: str, value: float, detail: Mapping[str, Any]) -> Score:
    return Score(name, value, "min", _UNBOUNDED, detail=detail)


def _unknown(known: set[str], texts: Sequence[str]) -> float:
    return float(np.mean([word not in known for text in texts for word in words(text)]))


def _most_frequent(real: Sequence[str], test: Sequence[str]) -> float:
    counts: dict[str, int] = {}
    for text in real:
        for word in words(text):
            counts[word] = counts.get(word, 0) + 1
    frequent = max(counts, key=counts.__getitem__)
    return float(np.mean([word == frequent for text in test for word in words(text)]))


def _some(texts: Sequence[str], rows: int, seed: int) -> Sequence[str]:
    if len(texts) <= rows:
        return texts
    kept = Rng(seed).at("texts").numpy().choice(len(texts), rows, replace=False)
    return [texts[row] for row in np.sort(kept)]
