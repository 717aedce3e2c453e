"""What an ordinary node may say to end a run, or to steer it: each costs that node its reply, and nothing else."""

import json
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest
from flwr.app import Array, Error, Message
from flwr.common.constant import ErrorCode
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_deployment import SETTINGS, events, grid_of, incidents, quick, reasons
from test_fleet import INPUTS, LIMITS, deployment, device

from fedclade import UserError
from fedclade.config import DeploymentConfig
from fedclade.deployment.flower.client_app import app
from fedclade.deployment.flower.federation import FAILURES, Inbox
from fedclade.deployment.flower.messages import pack, unpack
from fedclade.deployment.flower.server_app import deploy
from fedclade.deployment.register import PROBE_BYTES, Inputs, Register, by_name, described
from fedclade.deployment.transport import ASK, TRAIN, Reply
from fedclade.fleet.questions import Compare, Evaluate, SurveyModels, TryCut
from fedclade.fleet.told import Told, Unreadable

_ = quick  # a fixture for all tests here
HELD_OUT = "population.validation_share=0.3"
PROBE = {"probe": np.zeros(PROBE_BYTES // 4, np.int32)}
DESCRIPTION = {
    "name": "kitchen",
    "train_samples": 40,
    "validation_samples": 4,
    "test_samples": 10,
    "shape": [1, 8, 8],
    "dtype": "uint8",
    "classes": 10,
    "mean": [0.5],
    "std": [0.2],
    "group": -1,
    "flops_per_second": 1e9,
    "seconds": 0.5,
}


def description(**told: object) -> tuple:
    return described(Told({**DESCRIPTION, **told}, PROBE), 1.0, "", LIMITS)


def says(**told: object):
    """A node that is honest but for some of what it says of itself."""

    def describe(message, context):
        facts, arrays = unpack(app(message, context).content)
        return Message(pack({**facts, **told}, arrays), reply_to=message)

    return describe


def run_with(fault, node: int, tmp_path, **settings):
    """A whole run with six honest nodes and one that describes itself as it likes."""
    grid = grid_of()
    grid.join(node, partition_id=0, num_partitions=6).faults[("query.describe", "0")] = fault
    return deploy(
        grid, {**SETTINGS, "run.rounds": 1, "devices": 7, "wait-seconds": 1.0, "out": str(tmp_path / "run"), **settings}
    )


def answered(question, arrays: dict, device_: int = 2):
    """What becomes of a question when one device of six sends these arrays."""
    deployed, transport = deployment(HELD_OUT)
    transport.faults[device_, ASK, 0] = lambda: ({}, arrays)
    answers = deployed.fleet.ask(question(deployed.fleet.initial_model()))
    (incident,) = answers.incidents
    return answers.value, incident


# -------------------------------------------------------------------------------- one by one


@pytest.mark.parametrize("name", ["²", "9" * 5000, "", "a b", "x\n", "\x1b[2J", "a" * 65, "é", 7, None])
def test_a_device_name_of_strange_digits_or_too_long_is_refused(tmp_path, name):
    with pytest.raises(Unreadable, match=r"^name = .{0,60}: must be 1 to 64 ASCII letters"):
        description(name=name)
    if name in ("²", "9" * 5000):
        run = run_with(says(name=name), 1, tmp_path)
        assert run.summary["devices"] == 6
        assert "node 1 cannot take part: name = " in incidents(run)
        assert deploy(grid_of(), {"resume": str(run.folder)}).summary == run.summary
    assert by_name(["b", "10", "9", "9" * 64, "a"]) == ["9", "10", "9" * 64, "a", "b"]


@pytest.mark.parametrize(
    "claim",
    [
        {"train_samples": 10**12},
        {"test_samples": 10**12},
        {"validation_samples": 2**62},
        {"classes": 10**9},
        {"shape": [1, 60000, 60000]},
        {"shape": [1] * 99},
        {"shape": []},
        {"mean": [0.0] * (2**20 + 1)},
    ],
    ids=lambda claim: next(iter(claim)),
)
def test_nothing_is_allocated_by_a_claim_of_samples_classes_or_shape(claim):
    tracemalloc.start()
    with pytest.raises(Unreadable, match="must be"):
        description(**claim)
    assert tracemalloc.get_traced_memory()[1] < 2**26
    tracemalloc.stop()


def test_an_array_is_as_large_as_what_arrived_whatever_its_header_says():
    honest = Array(np.ones((2, 3), np.float32))
    (found,) = unpack(pack({}, {"x": np.ones((2, 3), np.float32)}))[1].values()
    assert found.tolist() == [[1.0] * 3] * 2
    for wrong in (
        honest.data.replace(b"(2, 3)", b"(9**9,"),
        honest.data.replace(b"(2, 3), }      ", b"(99999999,), }"),
        honest.data[:-1],
        honest.data + b"0",
        honest.data.replace(b"'<f4'", b"'|O4'"),
        b"",
        b"PK\x03\x04",
        b"\x93NUMPY\x02\x00" + honest.data[8:],
    ):
        content = pack({}, {"x": np.zeros(1)})
        content["arrays"]["x"] = Array("float32", (2, 3), "numpy.ndarray", wrong)
        with pytest.raises(Unreadable, match=r"^x: "):
            unpack(content)


def test_a_claim_of_very_many_samples_counts_for_ten_times_the_medians():
    register = Register(LIMITS)
    for name, samples in (("a", 40), ("b", 50), ("c", 60), ("liar", 10**7)):
        (one, _) = description(name=name, train_samples=samples)
        register.seat(one, INPUTS)
    assert register.samples.tolist() == [40, 50, 60, 550]
    assert register.declared(3).credit == pytest.approx(550 / 10**7)
    told = Told({}, {"samples": np.full(10, 10**6)}, register.declared(3))
    assert told.counts("samples", (10,), "train").sum() == 550


@pytest.mark.parametrize(
    "claim",
    [
        {"flops_per_second": 1e-6},
        {"flops_per_second": float("nan")},
        {"flops_per_second": float("inf")},
        {"seconds": -1e6},
        {"seconds": float("nan")},
        {"seconds": 1e308},
    ],
    ids=lambda claim: "-".join(f"{name}={value}" for name, value in claim.items()),
)
def test_a_speed_or_seconds_that_cannot_be_do_not_set_the_deadline(claim):
    with pytest.raises(Unreadable, match="must be a number from"):
        description(**claim)


def test_the_slowest_device_that_is_believed_cannot_exceed_the_cap_of_the_deadline(tmp_path):
    settings = {"deployment.deadline_cap_seconds": 50.0}
    run = run_with(says(name="snail", flops_per_second=1e3), 1, tmp_path, **settings)
    lines = [json.loads(line) for line in (run.folder / "messages.jsonl").read_text("utf-8").splitlines()]
    assert [line["deadline_seconds"] for line in lines if line["kind"] == "round"] == [50.0]
    assert run.summary["uploads"] == 7
    assert "NaN" not in (run.folder / "summary.json").read_text("utf-8")


def test_a_node_that_comes_again_and_again_under_new_names_is_refused_from_some_number_on():
    register = Register(LIMITS.model_copy(update={"devices_max": 3}))
    for name in ("a", "b", "c", "a"):
        register.seat(*description(name=name))
    with pytest.raises(UserError, match=r"there are 3 devices, and deployment\.devices_max is no more"):
        register.seat(*description(name="d"))


def test_most_devices_say_what_the_data_looks_like_not_whoever_sorts_first_by_name(tmp_path):
    run = run_with(says(name="0000", shape=[3, 9, 9], mean=[0.0], std=[9.0]), 1, tmp_path)
    assert (run.summary["devices"], run.summary["uploads"]) == (6, 6)
    assert "node 1 cannot take part: data are uint8 of shape (3, 9, 9), not uint8 of shape (1, 8, 8)" in incidents(run)


def test_the_config_says_what_the_data_looks_like_before_all_devices():
    other = Inputs((1, 9, 9), 10, (0.5,), (0.2,))
    register = Register(DeploymentConfig(shape=(1, 8, 8), mean=(0.5,)))
    register.settle([other, other, INPUTS])
    assert register.settled == INPUTS
    with pytest.raises(UserError, match="not uint8 of shape"):
        register.seat(device("a"), other)
    with pytest.raises(UserError, match="not what the section deployment says"):
        Register(DeploymentConfig(std=(3.0,))).seat(device("a"), INPUTS)
    with pytest.raises(
        UserError, match=r"as many devices say .* \(1, 8, 8\) as .* \(1, 9, 9\): set shape, mean and std"
    ):
        Register(LIMITS).settle([INPUTS, other])


def test_a_fifth_of_the_devices_cannot_make_a_model_larger_by_claiming_classes():
    honest, liar = Inputs((1, 8, 8), 10, (0.5,), (0.2,)), Inputs((1, 8, 8), 9999, (0.5,), (0.2,))
    register = Register(LIMITS)
    register.settle([honest] * 4 + [liar])
    assert register.settled.classes == 10
    with pytest.raises(UserError, match="9999 classes, not 10: set classes in the run config"):
        register.seat(device("liar"), liar)


STRANGE = {
    "string": np.array(["1.0"] * 10),
    "bytes": np.array([b"1.0"] * 10),
    "void": np.zeros(10, dtype="V8"),
    "datetime": np.zeros(10, dtype="M8[s]"),
    "span of time": np.zeros(10, dtype="m8[s]"),
    "complex": np.zeros(10, dtype=complex),
    "truth": np.zeros(10, dtype=bool),
    "fields": np.zeros(10, dtype=[("a", "f8")]),
}
ASKED = {
    "compare": lambda model: Compare(np.stack([model, model]), np.arange(6), np.zeros(6, int), np.ones(6, int)),
    "survey": lambda model: SurveyModels(np.stack([model]), np.arange(6)),
    "cut": lambda model: TryCut(np.stack([model] * 3), np.arange(6), np.arange(6) > 2, 3.0),
}
FIELDS = {
    "compare": {"samples": (1, 10), "mean": (1, 10), "squares": (1, 10)},
    "survey": {"samples": (10,), "misfit": (1, 10)},
    "cut": {f"{part}.{name}": (10,) for part in ("preference", "gain") for name in ("samples", "mean", "squares")},
}


def good_answer(question: str) -> dict[str, np.ndarray]:
    return {
        name: np.zeros(shape, np.int64 if name.endswith("samples") else np.float64)
        for name, shape in FIELDS[question].items()
    }


@pytest.mark.parametrize("question", ASKED)
@pytest.mark.parametrize("kind", STRANGE)
def test_string_void_or_datetime_arrays_in_answers_cost_that_answer(question, kind):
    for name, shape in FIELDS[question].items():
        value, incident = answered(ASKED[question], {**good_answer(question), name: STRANGE[kind].reshape(shape)})
        assert f"device 2 gave no answer ({ASKED[question](np.zeros(1)).kind}): unreadable: {name}: " in incident
        samples = value.gain.samples if question == "cut" else value.samples
        assert samples.any(axis=1).tolist() == [k != 2 for k in range(6)]


@pytest.mark.parametrize("accuracy", [float("inf"), 1e308, -5.0, float("nan"), 1.5])
def test_an_accuracy_of_inf_1e308_or_minus_5_is_no_answer_and_every_device_gets_its_model(tmp_path, accuracy):
    deployed, transport = deployment("run.rounds=1")
    wrong = {"score": np.array([accuracy]), "loss": np.array([1.0]), "samples": np.array([[10]])}
    transport.faults[2, ASK, 1] = lambda: ({}, wrong)
    run = deployed.run(tmp_path / "run")
    assert deployed.deliver(run) == 6
    summary = json.loads((run.folder / "summary.json").read_text("utf-8"), parse_constant=pytest.fail)
    assert 0 <= summary["accuracy_min"] <= summary["accuracy_mean"] <= 1
    assert run.evaluations["accuracy"].isna().tolist() == [k == 2 for k in range(6)]


@pytest.mark.parametrize("loss", [float("inf"), 1e308, -5.0])
def test_a_loss_beyond_all_bounds_is_no_answer(loss):
    wrong = {"score": np.array([0.5]), "loss": np.array([loss]), "samples": np.array([[10]])}
    value, incident = answered(lambda model: Evaluate(model[None], np.arange(6), np.zeros(6, int)), wrong)
    assert np.isnan(value.loss).tolist() == [k == 2 for k in range(6)]
    assert "unreadable: loss: must be" in incident


@pytest.mark.parametrize("question", ASKED)
def test_a_claim_of_a_billion_samples_in_an_answer_is_held_against_what_was_declared(question):
    name = next(field for field in FIELDS[question] if field.endswith("samples"))
    claimed = np.full(FIELDS[question][name], 10**9)
    _, incident = answered(ASKED[question], {**good_answer(question), name: claimed})
    assert f"unreadable: {name}: 10000000000 samples of its " in incident
    assert "but it has declared " in incident


@pytest.mark.parametrize("factor", [1e30, 100.0])
def test_one_finite_update_of_1e30_or_a_hundred_times_too_large_under_fixed_thresholds_is_rejected(tmp_path, factor):
    served = {}
    for hostile in (False, True):
        deployed, transport = deployment("run.rounds=5", "clustering.min_cluster_size=2")
        if hostile:
            spoil(transport, 2, factor)
        run = deployed.run(tmp_path / f"{factor}-{hostile}")
        last = run.evaluations[run.evaluations["round"] == 5]
        served[hostile] = last[last["device"] != 2]["accuracy"].to_numpy()
    rejected = [device for _, device in events(run, "rejected")]
    assert rejected == [2] * 5  # also once the cluster is too small to tell what is usual
    assert served[True].mean() > served[False].mean() - 0.1


def spoil(transport, device_: int, factor: float) -> None:
    """Let a device send its honest update so many times too large, in every round."""
    work = transport._work

    def larger(device, kind, round_, facts, found):
        told, sent = work(device, kind, round_, facts, found)
        if device == device_ and "update" in sent:
            sent = {"update": (sent["update"] * np.float32(factor)).astype(np.float32)}
        return told, sent

    transport._work = larger


def test_a_second_node_of_the_same_name_never_displaces_the_first(tmp_path):
    grid = grid_of()
    grid.join(1, device="0", partition_id=5, num_partitions=6)  # its node's number comes before all others
    grid.join(999, device="3", partition_id=5, num_partitions=6)
    run = deploy(grid, {**SETTINGS, "run.rounds": 2, "devices": 8, "wait-seconds": 1.0, "out": str(tmp_path / "run")})
    trained = {node for kind, node, _ in grid.seen if kind == TRAIN}
    assert len(run.devices) == 6
    assert len(trained) == 6
    assert len(trained & {1, 100}) == len(trained & {103, 999}) == 1  # of two who come together one
    assert "is that of another node, which is connected" in incidents(run)


def test_a_name_is_free_again_once_its_node_is_gone_unless_it_is_bound_to_a_key(tmp_path):
    for bound in (False, True):
        grid, keys = grid_of(), {}
        grid.get_nodes = lambda grid=grid, keys=keys: [
            SimpleNamespace(node_id=node, public_key=keys.get(node, f"key of {node}").encode()) for node in grid.nodes
        ]

        def swap(message, grid=grid):
            if 102 in grid.nodes and (message.metadata.message_type, message.metadata.group_id) == (TRAIN, "2"):
                grid.leave(102)
                grid.join(7, partition_id=2, num_partitions=6)

        grid.on_push = swap
        settings = {"run.rounds": 4, "deployment.bound_names": bound, "out": str(tmp_path / f"run-{bound}")}
        run = deploy(grid, {**SETTINGS, **settings})
        heard = run.uploads.query("device == 2 and missed == 0")["round"].tolist()
        assert (heard == [1], heard[-1] == 4) == (bound, not bound)
        assert ("the name 2 belongs to the key of another node" in incidents(run)) == bound
        resumed = grid_of(3)
        resumed.get_nodes = lambda grid=resumed: [SimpleNamespace(node_id=n, public_key=b"new") for n in grid.nodes]
        known = json.loads((run.folder / "devices.json").read_text("utf-8"))["devices"]
        assert len({one["key"] for one in known}) == 6


def test_a_node_keeps_the_name_it_gave_first(tmp_path):
    grid = grid_of()
    names = iter(["2", "another", "and another"])
    grid.nodes[102].faults[("query.describe", "0")] = lambda message, context: says(name=next(names))(message, context)
    grid.nodes[102].faults[(TRAIN, "1")] = lambda message, context: None  # late: it is asked again who it is
    run = deploy(grid, {**SETTINGS, "out": str(tmp_path / "run")})
    assert len(run.devices) == 6
    assert "it said before that its name is 2, and now another" in incidents(run)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.NODE_UNAVAILABLE, "gone"),
        (ErrorCode.REPLY_MESSAGE_UNAVAILABLE, "late"),
        (ErrorCode.MESSAGE_UNAVAILABLE, "late"),
        (ErrorCode.CLIENT_APP_CRASHED, "refused"),
        (ErrorCode.CLIENT_APP_RAISED_EXCEPTION, "refused"),
        (4711, "refused"),
    ],
)
def test_under_load_a_node_that_is_unavailable_late_or_dead_is_told_by_flowers_error_code(tmp_path, code, kind):
    grid, said = grid_of(), "\x1b[31mwords\nthat may change" + "!" * 9999
    grid.nodes[102].faults[(TRAIN, "1")] = lambda message, context: Message(Error(code, said), reply_to=message)
    run = deploy(grid, {**SETTINGS, "run.rounds": 2, "out": str(tmp_path / "run")})
    assert events(run, "missed")[0] == (1, 2)
    first = run.events[run.events["kind"] == "missed"]["detail"].iloc[0]
    assert first["failure"] == FAILURES.get(code, "refused") == kind
    assert len(reasons(run)[0]) < 320
    assert reasons(run)[0].isprintable()


def test_a_message_that_flower_cannot_read_costs_its_sender_only():
    class Broken:
        """Hands out nothing at all if one of the messages cannot be read."""

        def pull_messages(self, names):
            if "bad" in names:
                raise ValueError("cannot inflate")
            return [SimpleNamespace(metadata=SimpleNamespace(reply_to_message_id=name)) for name in names]

    inbox = Inbox(Broken())
    assert [(name, reply is None) for name, reply in inbox.pull(["a", "bad", "b"])] == [
        ("a", False),
        ("bad", True),
        ("b", False),
    ]
    assert [name for name, _ in inbox.pull(["c"])] == ["c"]


# -------------------------------------------------------------------------------- any field, any value


BAD_NUMBERS = st.sampled_from(
    [float("nan"), float("inf"), float("-inf"), 1e308, -1e308, -1, 2**62, 2**63, 10**5000, 0, 1, -0.0, 0.5]
)
BAD_VALUES = st.one_of(
    BAD_NUMBERS,
    st.sampled_from([None, True, False, "", "text", "²", b"\0", [], [[1]], ["a"], {}, 1j, np.float64(1), object()]),
    st.lists(BAD_NUMBERS, max_size=3),
    st.text(max_size=3),
)
MISSING = object()


@settings(max_examples=300)
@given(st.sampled_from(sorted(DESCRIPTION)), st.one_of(BAD_VALUES, st.just(MISSING)))
def test_whatever_a_node_says_of_itself_is_within_bounds_or_refused(name, value):
    facts = {key: told for key, told in {**DESCRIPTION, name: value}.items() if told is not MISSING}
    register, refused = Register(LIMITS), ""
    try:
        one, inputs = described(Told(facts, PROBE), 1.0, "", LIMITS)
        register.seat(one, inputs)
    except (Unreadable, UserError) as error:
        refused = str(error)
    assert len(refused) < 300
    assert refused.isprintable()
    if refused:
        return
    json.dumps(register.to_json(), allow_nan=False)
    assert 1 <= one.train_samples <= LIMITS.samples_max
    assert 0 < one.probe_seconds <= LIMITS.deadline_cap_seconds
    assert inputs.classes <= LIMITS.classes_max
    assert np.prod(inputs.shape) <= LIMITS.values_max


@st.composite
def arrays(draw, shape: tuple[int, ...]):
    """Arrays of the right shape, or of a wrong one, filled with whatever a device might send."""
    shape = draw(st.sampled_from([shape, shape, shape, (*shape, 1), shape[1:], (0,), (3,)]))
    kind = draw(
        st.sampled_from(["f8", "f4", "f2", "g", "i8", "u8", "i1", "?", "c16", "U5", "S3", "V8", "M8[s]", "m8[D]"])
    )
    dtype = np.dtype(kind)
    if dtype.kind == "f":
        number = draw(st.sampled_from([np.nan, np.inf, -np.inf, 1e308, -1e308, -1, 2.0**62, 0, 0.25, 1, 1 + 1e-7]))
        with np.errstate(over="ignore"):
            return np.full(shape, number).astype(dtype)
    if dtype.kind in "iu":
        return np.full(shape, draw(st.sampled_from([0, 1, 3, 2**62, 2**63 - 1, -1])), dtype="i8").astype(dtype)
    return np.zeros(shape, dtype=dtype)


@pytest.fixture(scope="module")
def at_hand():
    """Devices that answer at once, so that one of them can be made to answer anything, hundreds of times."""
    return deployment(HELD_OUT)


def honest(question: str):
    """The others' answers, without work."""
    return lambda: (
        {},
        {name: array + 1 if name.endswith("samples") else array for name, array in good_answer(question).items()},
    )


@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data())
def test_whatever_one_device_answers_the_others_answers_stand_and_all_is_within_bounds(at_hand, data):
    deployed, transport = at_hand
    question = data.draw(st.sampled_from(sorted(ASKED)))
    name = data.draw(st.sampled_from(sorted(FIELDS[question])))
    for k in range(6):
        transport.faults[k, ASK, 0] = honest(question)
    wrong = good_answer(question)
    if data.draw(st.booleans()):
        wrong[name] = data.draw(arrays(FIELDS[question][name]))
    else:
        del wrong[name]
    transport.faults[2, ASK, 0] = data.draw(st.sampled_from([lambda: ({}, wrong), "late", "refused"]))
    answers = deployed.fleet.ask(ASKED[question](deployed.fleet.initial_model()))
    transport.gather(1, 1.0)  # a late device is there again
    value = answers.value
    for part in (value.preference, value.gain) if question == "cut" else (value,):
        assert part.samples.sum(axis=1)[[0, 1, 3, 4, 5]].tolist() == [10] * 5
        assert part.samples.sum(axis=1)[2] <= 40
        for field, array in vars(part).items():
            assert np.isfinite(array).all(), field
            assert field == "samples" or np.abs(array).max() <= 1
    assert len(answers.incidents) <= 1


def test_a_reply_that_comes_twice_counts_once():
    deployed, transport = deployment()
    replies = transport.replies

    def twice(until):
        for reply in replies(until):
            yield reply
            yield Reply(reply.device, reply.kind, reply.sent, reply.arrived, reply.facts, {"samples": np.zeros(3)})

    transport.replies = twice
    answers = deployed.fleet.ask(ASKED["survey"](deployed.fleet.initial_model()))
    assert answers.value.samples.any(axis=1).all()
    assert answers.incidents == tuple(f"device {k} sent a reply that is not due (survey)" for k in range(6))


@pytest.mark.parametrize("more", [[], ["edge.bandwidth_hz=2e6"]], ids=["one message", "called one by one"])
def test_an_upload_that_comes_twice_or_uncalled_counts_once(tmp_path, more):
    deployed, transport = deployment("run.rounds=1", *more)
    replies = transport.replies

    def twice(until):
        for reply in replies(until):
            yield reply
            if reply.kind.startswith("train"):
                yield Reply(reply.device, "train.upload", reply.sent, reply.arrived, {}, {"update": np.ones(650, "f4")})
                yield Reply(77, reply.kind, reply.sent, reply.arrived, {}, {"update": np.ones(650, "f4")})

    transport.replies = twice
    run = deployed.run(tmp_path / "run")
    assert run.summary["uploads"] == 6
    assert "sent a reply that is not due" in incidents(run)


@settings(max_examples=40, deadline=None)
@given(arrays((650,)), st.one_of(BAD_VALUES, st.just(0.1)))
def test_whatever_one_device_uploads_the_others_updates_stand(update, seconds):
    deployed, transport = deployment("run.rounds=1")
    for k in range(6):
        transport.faults[k, TRAIN, 1] = lambda k=k: ({"seconds": 0.0}, {"update": np.full(650, 1e-3 * k, np.float32)})
    transport.faults[2, TRAIN, 1] = lambda: ({"seconds": seconds}, {"update": update})
    server = deployed.server
    after, record = server.step(server.initial_state())
    heard = record.timeline.arrived
    assert set(heard) >= {0, 1, 3, 4, 5}
    assert np.isfinite(after.models["0"]).all()
    assert np.isfinite(record.timeline.ready[~record.timeline.missed]).all()
