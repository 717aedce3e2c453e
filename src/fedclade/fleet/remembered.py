"""Evaluations are remembered: a model that did not change is not evaluated again on the same device."""

import hashlib
from collections import OrderedDict
from collections.abc import Callable

import numpy as np

from fedclade.core.arrays import Singles
from fedclade.fleet.answers import Evaluation
from fedclade.fleet.questions import Evaluate

REMEMBERED_MODELS = 256


class EvaluationMemory:
    """What is known of the latest models: by model and share, then by device."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[bytes, str], dict[int, tuple[float, float, int]]] = OrderedDict()

    def answer(self, question: Evaluate, ask: Callable[[Evaluate], Evaluation]) -> Evaluation:
        """The answer; only what is not known yet is asked, each model and device once."""
        tables = [self._of_model(model, question.share) for model in question.models]
        pairs = list(zip(question.devices.tolist(), question.model_of.tolist(), strict=True))
        unknown = dict[tuple[int, int], int]()
        for entry, (device, model) in enumerate(pairs):
            if device not in tables[model]:
                unknown.setdefault((device, id(tables[model])), entry)
        if unknown:
            entries = np.array(sorted(unknown.values()))
            found = ask(question.only(entries))
            told = zip(entries.tolist(), found.score, found.loss, found.samples, strict=True)
            for entry, score, loss, samples in told:
                if not np.isnan(score):
                    device, model = pairs[entry]
                    tables[model][device] = (float(score), float(loss), int(samples))
        silent = (np.nan, np.nan, 0)
        rows = np.array([tables[model].get(device, silent) for device, model in pairs], dtype=np.float64).reshape(-1, 3)
        return Evaluation(rows[:, 0], rows[:, 1], rows[:, 2].astype(np.int64))

    def _of_model(self, model: Singles, share: str) -> dict[int, tuple[float, float, int]]:
        key = (hashlib.blake2b(model.tobytes(), digest_size=16).digest(), share)
        known = self._known.setdefault(key, {})
        self._known.move_to_end(key)
        if len(self._known) > REMEMBERED_MODELS:
            self._known.popitem(last=False)
        return known
