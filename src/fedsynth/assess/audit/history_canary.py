"""Canaries in noisy sums of histories: persons whose rows, several in each view, fall into cells of their own.

The recipe's own sums place and weigh the rows, its own mechanism adds the noise, its own loop and transport open sums.
Only views and questions are others: two views of three columns, any two of which tell which canary a row is.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from fedsynth.assess.audit.canary import CanaryGame, CanaryObservations, log_likelihood
from fedsynth.assess.audit.table_canary import asked_again, canary_codes, watch_sums
from fedsynth.data.clients import Clients
from fedsynth.federation.algorithm import Algorithm
from fedsynth.models.histories import HistoryModel
from fedsynth.models.table_question import Question, QuestionForm, unmerged
from fedsynth.training.history_sums import HistorySums

_TABLES = ((0, 1), (0, 2), (1, 2))
_ROWS = (1, 5)  # of a canary in each view: it must weigh as one person however many there are


def watch_histories(game: CanaryGame) -> CanaryObservations:
    """Run all rounds with canary persons, each in or out by a coin."""
    inside = game.rng.at("coins").uniforms(game.canaries) > 0.5
    played, sums, questions = counting(game.algorithm, game.canaries)
    codes = canary_codes(np.arange(game.canaries), questions[0].sizes[0])
    pairs = zip(questions, sums.starts, strict=True)
    places = np.concatenate([question.places(codes).numpy() + start for question, start in pairs], axis=1)
    scale = np.concatenate(sums.scales(questions))
    sent = watch_sums(game, played, _persons(inside, codes))
    return CanaryObservations(
        inside,
        np.sum([log_likelihood(one[places] @ scale, game.event, swapped=False) for one in sent], axis=0),
    )


def counting(algorithm: Algorithm, canaries: int) -> tuple[Algorithm, HistorySums, list[Question]]:
    """The algorithm with its own noise, clip and rounds, asking each time for tables with a cell for each canary."""
    sums = algorithm.record_sums
    assert isinstance(sums, HistorySums) and isinstance(algorithm.model, HistoryModel)
    base = max(2, math.ceil(math.sqrt(canaries)))
    questions = [Question(unmerged((base,) * 3), _TABLES, (1.0, 2.0, weight)) for weight in (1.0, 3.0)]
    form = QuestionForm((base,) * 3, len(_TABLES), questions[0].cells)
    cells = form.most_cells * len(questions)
    written = torch.cat([form.write(question) for question in questions])
    model = replace(algorithm.model, question=len(written), answer=cells)
    game = asked_again(algorithm, canaries, model, written, cells, "client")
    counted = replace(sums, forms=(form,) * len(questions), mechanism=game.mechanism)
    return replace(game, record_sums=counted), counted, questions


def _persons(inside: np.ndarray, codes: Tensor) -> Clients:
    """The rows of the canaries that are in, in both views."""
    rows = np.where(inside, sum(_ROWS), 0)
    views = torch.cat([torch.full((count,), view) for view, count in enumerate(_ROWS)])
    numbers = torch.from_numpy(np.repeat(np.arange(len(inside)), rows))
    offsets = np.concatenate([[0], np.cumsum(rows)])
    return Clients(codes[numbers].float(), views.repeat(int(inside.sum())), offsets)
