"""Who is compared, in which populations: the words of a comparison, and mistakes in them."""

import pytest

from data_builders import error_line
from fedclade import config as configuration
from fedclade.data import build_population
from fedclade.study import POPULATIONS, against, contenders, plan_jobs, populations, prepare

GROUPS = ("incongruence.kind=rotate", "incongruence.groups=[1, 1, 1]")


def made(*overrides: str) -> configuration.Config:
    return configuration.load(None, [*GROUPS, *overrides])


def test_policies_alone_are_contenders_of_their_own_names():
    config = made('compare.policies=["fair", "random"]')
    assert contenders(config) == {name: [f'scheduling.policy="{name}"'] for name in ("fair", "random")}
    assert against(config) == "fair"


def test_every_method_goes_with_every_policy():
    config = made('compare.policies=["fair", "random"]', 'compare.methods=["none", "ifca@k"]')
    assert list(contenders(config)) == ["none+fair", "ifca@k+fair", "none+random", "ifca@k+random"]
    assert contenders(config)["ifca@k+random"] == [
        'scheduling.policy="random"',
        'clustering.method="ifca"',
        "ifca.clusters=3",
    ]
    assert against(config) == "none+fair"
    assert against(made('compare.policies=["random"]', 'compare.methods=["ifca", "local"]')) == "ifca"


@pytest.mark.parametrize(("word", "clusters"), [("ifca@k", 3), ("ifca@k+2", 5), ("ifca@k-9", 1), ("ifca@7", 7)])
def test_a_method_may_be_told_the_true_number_of_groups_or_a_wrong_one(word, clusters):
    config = made('compare.policies=["fair"]', f'compare.methods=["{word}"]')
    assert contenders(config)[word][-1] == f"ifca.clusters={clusters}"
    none = made('compare.policies=["fair"]', f'compare.methods=["{word}"]', "incongruence.kind=none")
    assert contenders(none)[word][-1] == f"ifca.clusters={max(1, clusters if word == 'ifca@7' else clusters - 2)}"


def test_populations_have_names_or_are_written_out():
    config = made('compare.populations=["rotated-4", "tiny: population.devices=6; incongruence.kind=none"]')
    found = populations(config)
    assert list(found) == ["rotated-4", "tiny"]
    assert found["rotated-4"].incongruence.groups == (1, 1, 1, 1)
    assert (found["tiny"].population.devices, found["tiny"].compare.populations) == (6, ())
    assert populations(made()) == {}
    for name in POPULATIONS:
        assert populations(made(f'compare.populations=["{name}"]'))[name].incongruence.kind


def test_the_runs_of_several_populations_alternate_and_lie_in_folders_of_their_own(tmp_path):
    config = made('compare.populations=["iid", "rotated-2"]', "compare.seeds=1", 'compare.policies=["fair"]')
    jobs = prepare(config, tmp_path / "all")
    assert [job.folder.relative_to(tmp_path).as_posix() for job in jobs] == [
        "all/iid/runs/K20/fair/seed-1",
        "all/rotated-2/runs/K20/fair/seed-1",
    ]
    assert [job.config.incongruence.kind for job in jobs] == ["none", "rotate"]


@pytest.mark.parametrize(
    ("field", "words", "told"),
    [
        ("methods", ["icfa"], "clustering.method = \"icfa\": no such method; did you mean 'ifca'?"),
        ("methods", ["none@3"], "compare.methods = 'none@3': 'none' has no number of clusters to set"),
        ("methods", ["ifca@many"], "compare.methods = 'ifca@many': after @ comes a number of clusters, or k, k+1"),
        ("populations", ["rotated-5"], "compare.populations = 'rotated-5': no such population"),
        ("populations", ["iid", "iid"], "compare.populations = 'iid': 'iid' is compared in already"),
        ("variants", ["fair: run.seed=1"], "'fair' is compared already: choose another name"),
        ("variants", ["no colon"], "must be 'name: section.field=value; section.field=value'"),
    ],
)
def test_mistakes_are_one_line(field, words, told):
    config = configuration.load({"compare": {field: words}})

    def planned() -> None:
        for each in populations(config).values() or [config]:
            contenders(each)

    assert told in error_line(planned)


def test_whoever_asks_nothing_of_held_out_images_trains_on_all(tmp_path):
    config = made('compare.policies=["fair"]', 'compare.methods=["none", "cross-evaluation"]', "compare.seeds=1")
    plain, ours = (build_population(job.config) for job in plan_jobs(config, tmp_path))
    for k in range(plain.devices):
        assert len(plain.validation[k]) == 0 < len(ours.validation[k])
        assert sorted(plain.train[k]) == sorted([*ours.train[k], *ours.validation[k]])
        assert list(plain.test[k]) == list(ours.test[k])
