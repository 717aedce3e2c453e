"""How cuts are tried: how much is asked for them, how long a cluster waits, and when devices differ one by one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedclade import config as configuration
from fedclade.clustering.method import Conversation
from fedclade.clustering.methods.cross_evaluation.memory import Known
from fedclade.clustering.methods.cross_evaluation.proposals import Proposals
from fedclade.clustering.methods.cross_evaluation.split_test import Outlook, SplitTest
from fedclade.core.tree import ROOT, Tree
from made_up import arrival_of, state_of

DEVICES = 8


def proposals(*overrides: str, heard: int = DEVICES) -> Proposals:
    config = configuration.load(None, ["clustering.method=cross-evaluation", *overrides])
    return Proposals(config, arrival_of({device: [1.0] for device in range(heard)}), Conversation(None, DEVICES))


def state(**known):
    tree = Tree.planted(DEVICES)
    return state_of(tree, {ROOT: [0.0]}, method=Known(np.full(DEVICES, np.nan), {}, None, **known))


def told(p_group: float, gain_group: float) -> SplitTest:
    return SplitTest(gain_group, p_group, (0.1, 0.1), (0.01, 0.01))


class Rehearsed:
    """Answers that were made up beforehand, one after the other; keeps which devices were cut."""

    def __init__(self, *answers: SplitTest | None) -> None:
        self.answers, self.cut = iter(answers), list[list[int]]()

    def split_test(self, state, leaf, devices, side):
        assert abs(2 * int(side.sum()) - len(side)) <= 1
        self.cut.append(devices.tolist())
        return next(self.answers)


def control(*answers: SplitTest | None, second: int = 2, heard: int = DEVICES) -> tuple[bool, list[list[int]]]:
    """Whether devices differ one by one by these answers to random cuts, and of whom these were.

    The cut that passed has a gain of 0.2; its second child has so many devices, the first ones.
    """
    mine, now = proposals(f"cross_evaluation.controls={len(answers)}", heard=heard), state()
    mine._rehearsal = Rehearsed(*answers)
    side = np.arange(DEVICES) < second
    found = mine._differ_one_by_one(now, now.tree.nodes[ROOT], np.arange(DEVICES), side, told(0.0, 0.2))
    return found is not None, mine._rehearsal.cut


WELL = told(1e-6, 0.2)


@pytest.mark.parametrize("other", [told(0.4, -0.1), None])
def test_devices_differ_one_by_one_where_most_random_cuts_do_well(other):
    assert control(WELL, WELL, other)[0]


@pytest.mark.parametrize("weak", [told(0.01, 0.2), told(1e-9, 0.049)])
def test_they_do_not_where_these_are_unsure_or_a_small_matter_beside_the_cut(weak):
    assert not control(WELL, weak, weak)[0]


def test_random_cuts_that_could_not_be_tried_say_nothing():
    assert not control(None, None)[0]


@pytest.mark.parametrize(("second", "child"), [(2, range(2, 8)), (6, range(6)), (4, range(4, 8))])
def test_random_cuts_are_made_of_one_child_for_the_other_may_be_another_group(second, child):
    assert control(WELL, second=second)[1] == [list(child)]


def test_if_too_few_of_one_child_were_heard_they_are_made_of_all():
    assert control(WELL, second=2, heard=5)[1] == [list(range(5))]


def test_more_is_asked_while_something_speaks_for_a_cut():
    mine = proposals("training.epochs=4", "cross_evaluation.survey_work=1.0", "cross_evaluation.survey_work_later=0.1")
    never, quiet, suspect = Outlook(1), Outlook(9, tests=3, p_value=0.5), Outlook(9, tests=3, p_value=0.01)
    fractions = [mine._affordable(outlook, 24) for outlook in (never, quiet, suspect)]
    assert fractions == pytest.approx([0.5, 0.05, 0.5])  # 24 models, a third of a step each: eight steps an image


@given(st.integers(2, DEVICES))
def test_where_devices_differ_one_by_one_a_cluster_waits_less_the_fewer_were_heard(heard):
    mine, now = proposals(heard=heard), state()
    leaf, settings = now.tree.nodes[ROOT], mine._settings
    assert mine._waits(now, leaf) == settings.wait
    one_by_one = mine._waits(state(one_by_one=True), leaf)
    assert one_by_one == pytest.approx(settings.wait_one_by_one * (heard / DEVICES) ** 2)
