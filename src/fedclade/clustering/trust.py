"""Whose answers count: what a device says of the others is held against what they say of it.

Two devices of one kind help each other by their training, and two of different kinds do not. So what a device says of
another's model, and what that one says of its own, go together; where one of the two lies, they contradict each other.
Who is right cannot be told from a pair of devices, but from all of them: those who agree with each other are one party,
and the larger party is believed.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.linalg import eigh

from fedclade.core.arrays import Bools, Floats, Singles
from fedclade.fleet.answers import CutOpinion, Evaluation, Paired, Survey

LOUDEST = 3.0  # times its median word: more is not believed of anybody
LEAST_COMPARED = 8  # believed devices with which one must have exchanged answers before it can be doubted


def agreement(signal: Floats | Singles, weight: Floats | Singles) -> Floats:
    """How far each device's word goes with what believed devices say of it, from -1 to 1; NaN: not to be told.

    ``signal[k, m]`` is what k says that m's model does for it beyond what classes explain, times ``weight[k, m]``: 0
    where k was not asked. The product of what two devices say of each other is above 0 if both tell the truth or both
    lie; so the signs of the leading eigenvector of all products are the two parties.
    """
    known = (weight > 0) & (weight.T > 0)
    said = _as_loud_as_all(np.where(known, signal / np.sqrt(np.where(known, weight, 1.0)), 0.0), known)
    last = len(said) - 1
    party = eigh(said * said.T, subset_by_index=[last, last])[1][:, 0]
    believed = party * np.sign(party.sum()) > 0
    mine, theirs = said * believed, said.T * believed
    lengths = np.sqrt((mine**2).sum(axis=1) * (theirs**2).sum(axis=1))
    told = ((known & believed).sum(axis=1) >= LEAST_COMPARED) & (lengths > 0)
    return np.where(told, (mine * theirs).sum(axis=1) / np.where(told, lengths, 1.0), np.nan)


def _as_loud_as_all(said: Floats, known: Bools) -> Floats:
    """Each device's word (row) in units of its median, and cut off: no two devices can outshout all others."""
    silent = ~known.any(axis=1, keepdims=True)
    usual = np.nanmedian(np.where(known, np.abs(said), np.where(silent, 0.0, np.nan)), axis=1, keepdims=True)
    return np.where(usual > 0, np.clip(said / np.where(usual > 0, usual, 1.0), -LOUDEST, LOUDEST), np.sign(said))


def contradicted(
    signal: Floats | Singles, weight: Floats | Singles, clear: float, before: Bools | None = None
) -> Bools:
    """Devices whose word is the reverse of everybody else's; nobody's where devices do not agree as a rule.

    ``clear``: the median device's agreement must be above this, and that of a device that is doubted below its reverse.
    Who was doubted ``before`` is believed again when its word goes with the others' as clearly.
    """
    found = agreement(signal, weight)
    told, kept = ~np.isnan(found), np.zeros(len(found), dtype=bool) if before is None else before
    if not told.any() or np.median(found[told]) <= clear:
        return kept
    return np.asarray((told & (found < -clear)) | (kept & ~(told & (found > clear))))


def unheard(answer: Any, silent: Bools) -> Any:
    """An answer in which some entries are missing, as if nobody had answered there."""
    if isinstance(answer, Evaluation):
        score, loss = (np.where(silent, np.nan, values) for values in (answer.score, answer.loss))
        return Evaluation(score, loss, np.where(silent, 0, answer.samples))
    if isinstance(answer, Paired | Survey):
        return replace(answer, samples=np.where(silent[:, None], 0, answer.samples))
    if isinstance(answer, CutOpinion):
        return CutOpinion(unheard(answer.preference, silent), unheard(answer.gain, silent))
    return answer
