from itertools import product

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from data_builders import config, error_line, image_set
from fedclade.data import Population, populate
from fedclade.data.planted_groups import group_of_devices
from fedclade.data.variations.rotate import rotate

DEVICES = {"devices": 6, "partition": "iid"}
SOURCE = image_set(600, classes=10)


def planted(**incongruence: object) -> Population:
    return populate(config(population=DEVICES, incongruence=incongruence), SOURCE)


def devices_of(population: Population, group: int) -> np.ndarray:
    """Positions of all images of a group's devices."""
    members = np.flatnonzero(population.group == group)
    return np.concatenate([np.r_[population.train[k], population.test[k]] for k in members])


# -------------------------------------------------------------------------------- sizes of groups

weights_and_devices = st.lists(st.integers(1, 30), min_size=1, max_size=4).flatmap(
    lambda weights: st.tuples(st.just(tuple(weights)), st.integers(len(weights), 9))
)


@given(weights_and_devices)
@example(((1, 1, 1, 30, 67), 10))  # three groups are lifted to 1 at the cost of the others
def test_group_sizes_come_as_near_to_the_weights_as_whole_devices_can(case):
    weights, devices = case
    exact = np.array(weights) * devices / sum(weights)
    sizes = np.bincount(group_of_devices(weights, devices), minlength=len(weights))
    all_sizes = (s for s in product(range(1, devices + 1), repeat=len(weights)) if sum(s) == devices)
    assert sizes.sum() == devices
    assert sizes.min() >= 1
    assert ((sizes - exact) ** 2).sum() == pytest.approx(min(((s - exact) ** 2).sum() for s in all_sizes))


@given(st.lists(st.integers(1, 50), min_size=1, max_size=6), st.integers(1, 5))
def test_group_sizes_are_exact_where_the_weights_divide_the_devices(weights, times):
    group = group_of_devices(tuple(weights), times * sum(weights))
    assert np.bincount(group).tolist() == [times * weight for weight in weights]


def test_a_fraction_goes_to_the_largest_remainder():
    # 10 devices over 5 : 3 : 1 are 5.56, 3.33 and 1.11: the first is nearest to one more
    assert group_of_devices((5, 3, 1), 10).tolist() == [0] * 6 + [1] * 3 + [2]


def test_without_incongruence_all_devices_are_one_group():
    assert set(planted(kind="none", groups=[1, 1]).group) == {0}


# -------------------------------------------------------------------------------- rotation


def test_a_quarter_turn_is_counter_clockwise_and_exact():
    image = np.array([[[[1, 2], [3, 4]]]], np.uint8)
    assert rotate(image, 90.0).tolist() == [[[[2, 4], [1, 3]]]]
    assert rotate(image, 180.0).tolist() == [[[[4, 3], [2, 1]]]]
    assert rotate(image, 270.0).tolist() == rotate(image, -90.0).tolist() == [[[[3, 1], [4, 2]]]]
    assert rotate(image, 360.0).tolist() == rotate(image, 0.0).tolist() == image.tolist()


@pytest.mark.parametrize("quarter", [0.0, 90.0, 180.0, 270.0])
@pytest.mark.parametrize("nearly", [-0.01, 0.01])
def test_an_angle_next_to_a_quarter_turn_looks_like_it(quarter, nearly):
    bar = np.zeros((1, 1, 21, 21), np.uint8)
    bar[0, 0, 2:6, 9:12] = 200
    np.testing.assert_allclose(rotate(bar, quarter + nearly), rotate(bar, quarter).astype(float), atol=2)


def test_any_other_angle_moves_the_ink_counter_clockwise():
    # a dot 8 pixels right of the centre (10, 10), turned by 30°: 8 cos 30° = 6.9 right, 8 sin 30° = 4 up
    dot = np.zeros((1, 1, 21, 21), np.uint8)
    dot[0, 0, 9:12, 17:20] = 255
    turned = rotate(dot, 30.0)[0, 0]
    assert (turned.dtype, turned.shape) == (np.uint8, (21, 21))
    rows, columns = np.indices(turned.shape)
    centre = [(turned * axis).sum() / turned.sum() for axis in (rows, columns)]
    np.testing.assert_allclose(centre, [10 - 4.0, 10 + 6.93], atol=0.1)


def test_images_and_channels_turn_each_by_itself():
    images = image_set(6, classes=2, shape=(3, 12, 12)).x
    for degrees in (90.0, 33.0):
        turned = rotate(images, degrees)
        alone = [[rotate(channel[None, None], degrees)[0, 0] for channel in image] for image in images]
        np.testing.assert_array_equal(turned, alone)


@pytest.mark.parametrize(
    ("groups", "angles", "quarters"), [([4, 2], [0.0, 180.0], [0, 2]), ([2, 1, 2, 1], None, [0, 1, 2, 3])]
)
def test_each_group_sees_its_images_turned_by_its_angle(groups, angles, quarters):
    """Without angles the groups spread evenly over the circle: four groups are four quarter turns."""
    upright = planted()
    turned = planted(kind="rotate", groups=groups, **({} if angles is None else {"angles": angles}))
    np.testing.assert_array_equal(turned.labels, upright.labels)
    for group, k in enumerate(quarters):
        own = devices_of(turned, group)
        np.testing.assert_array_equal(turned.images[own], np.rot90(upright.images[own], k, axes=(2, 3)))


# -------------------------------------------------------------------------------- labels


def test_permuted_labels_are_one_bijection_for_each_group_and_the_first_group_keeps_its_own():
    plain, permuted = planted(), planted(kind="permute-labels", groups=[2, 2, 2])
    np.testing.assert_array_equal(plain.images, permuted.images)
    maps = []
    for group in range(3):
        own = devices_of(permuted, group)
        pairs = set(zip(plain.labels[own].tolist(), permuted.labels[own].tolist(), strict=True))
        before, after = zip(*sorted(pairs), strict=True)
        assert before == tuple(range(10))  # a function
        assert sorted(after) == list(range(10))  # of which no two labels share a value
        maps.append(after)
    assert maps[0] == tuple(range(10))
    assert len(set(maps)) == 3


@pytest.mark.parametrize("partition", ["iid", "dirichlet", "classes"])
@pytest.mark.parametrize("groups", [[3, 3], [3, 2, 1]])
def test_disjoint_classes_do_not_overlap_between_groups(partition, groups):
    population = populate(
        config(
            population={"devices": 6, "partition": partition, "classes_per_device": 3, "alpha": 5.0},
            incongruence={"kind": "disjoint-classes", "groups": groups},
        ),
        SOURCE,
    )
    held = [set(population.labels[devices_of(population, group)].tolist()) for group in range(len(groups))]
    assert min(map(len, held)) >= 1
    assert sum(map(len, held)) == len(set.union(*held))


def test_more_groups_than_classes_cannot_be_disjoint():
    plan = config(population={"devices": 4}, incongruence={"kind": "disjoint-classes", "groups": [1, 1, 1, 1]})
    line = error_line(populate, plan, image_set(90, classes=3))
    assert line == "incongruence.groups: 4 groups cannot share 3 classes without overlap"
