"""What runs on every device. Each message has a process of its own, so heavy modules are imported where needed."""

import time
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message
from flwr.clientapp import ClientApp

from fedclade.core.errors import UserError
from fedclade.deployment.flower.messages import About, pack, unpack_request
from fedclade.deployment.register import PROBE_BYTES
from fedclade.deployment.transport import QUESTION

if TYPE_CHECKING:
    from fedclade.config import Config
    from fedclade.deployment.flower.data import DeviceData
    from fedclade.deployment.flower.own_tensors import OwnTensors
    from fedclade.fleet.questions import Examiner, Question
    from fedclade.fleet.simulated.sgd import Local

KEPT_UPDATE, KEPT_ROUND, MODEL = "fedclade.update", "fedclade.round", "fedclade.model"

app = ClientApp()


@app.query("describe")
def describe(message: Message, context: Context) -> Message:
    """Who I am, how much data I have, how fast I am; and a probe of my link."""
    begun = time.perf_counter()
    from fedclade.deployment.flower.data import device_name

    request, _, _ = unpack_request(message.content)
    _, data = _data(request, context)
    told = {
        "name": device_name(context.node_config, context.node_id),
        "train_samples": len(data.shares["train"]),
        "validation_samples": len(data.shares["validation"]),
        "test_samples": len(data.shares["test"]),
        "shape": list(data.images.shape[1:]),
        "dtype": str(data.images.dtype),
        "classes": data.task.outputs,
        "mean": list(data.mean),
        "std": list(data.std),
        "group": data.group,
        "flops_per_second": _speed(),
        "seconds": time.perf_counter() - begun,
    }
    if data.task.numbers:
        told |= {"y_mean": list(data.task.mean), "y_std": list(data.task.std)}
    return Message(pack(told, {"probe": np.arange(PROBE_BYTES // 4, dtype=np.int32)}), reply_to=message)


@app.train("local")
def train(message: Message, context: Context) -> Message:
    """E epochs of mini-batch SGD from the model; the update goes back at once, or is kept until called for."""
    begun = time.perf_counter()
    request, facts, arrays = unpack_request(message.content)
    me = np.array([request.device])
    config, local = _local(request, context)
    own, models = _own_tensors(config, local, context), arrays["models"]
    start = models if own is None else own.start(models, request.round)
    (update,) = local.train_many(request.round, start, me, np.array([0]))
    if own is not None:
        update = own.keep(start[0], update, request.round)
    told = {"seconds": time.perf_counter() - begun}
    context.state[KEPT_UPDATE] = ArrayRecord([update])
    context.state[KEPT_ROUND] = ConfigRecord({"round": request.round})
    return Message(pack(told, {"update": update} if facts["upload"] else None), reply_to=message)


@app.train("upload")
def upload(message: Message, context: Context) -> Message:
    """The update I kept. I go on keeping it, to leave it out of models that I judge in this round."""
    request, _, _ = unpack_request(message.content)
    update = _kept_update(request, context)
    if update is None:
        raise UserError(f"no update of round {request.round} is kept here")
    return Message(pack({"seconds": 0.0}, {"update": update}), reply_to=message)


@app.evaluate("ask")
def answer(message: Message, context: Context) -> Message:
    """My answer to a question. The question itself knows how to find it: see ``fedclade.fleet.questions``."""
    from fedclade.fleet.questions import OWN_UPDATE, find_question

    request, facts, arrays = unpack_request(message.content)
    own = _kept_update(request, context)
    if own is not None:
        arrays[OWN_UPDATE] = own
    question = find_question(str(facts.pop(QUESTION))).read(facts, arrays, request.device)
    config, local = _local(request, context)
    own_tensors = _own_tensors(config, local, context)
    found = _answer(config, question, local if own_tensors is None else own_tensors.examiner(local, request.device))
    return Message(pack(*question.reply(found)), reply_to=message)


@app.query("deliver")
def deliver(message: Message, context: Context) -> Message:
    """Take my cluster's model: into the file that the node config names as ``model``, and into my state."""
    request, facts, tensors = unpack_request(message.content)
    if _config(request).model.local:
        config, local = _local(request, context)
        own = _own_tensors(config, local, context)
        tensors |= {} if own is None else own.named()
    context.state[MODEL] = ArrayRecord({name: Array(tensor) for name, tensor in tensors.items()})
    place = str(context.node_config.get("model", ""))
    if place:
        from safetensors.numpy import save_file

        Path(place).parent.mkdir(parents=True, exist_ok=True)
        save_file(tensors, place, metadata={"cluster": str(facts["cluster"])})
    return Message(pack({"place": place}), reply_to=message)


def _own_tensors(config: "Config", local: "Local", context: Context) -> "OwnTensors | None":
    """Those that stay with me; None where all are shared."""
    from fedclade.deployment.flower.own_tensors import OwnTensors

    return OwnTensors.of(context, config, local)


def _answer(config: "Config", question: "Question[Any]", examiner: "Examiner") -> Any:
    """An answer, with noise in it if the config says so: drawn here, from what nobody else knows."""
    if not config.privacy.noise:
        return question.run(examiner)
    from fedclade.fleet.privacy import Private

    chance = np.random.default_rng()
    return Private(config.privacy.noise, lambda device: chance).run(question, examiner)


def _kept_update(request: About, context: Context) -> np.ndarray | None:
    """The update that I made in this round, if I made one."""
    kept = context.state.config_records.get(KEPT_ROUND)
    if kept is None or kept["round"] != request.round:
        return None
    (update,) = context.state.array_records[KEPT_UPDATE].to_numpy_ndarrays()
    return update


def _config(request: About) -> "Config":
    """The server's config."""
    from fedclade import config as configuration

    return configuration.load(tomllib.loads(request.config))


def _data(request: About, context: Context) -> "tuple[Config, DeviceData]":
    """The server's config, and this device's data."""
    from fedclade.deployment.flower.data import load_data

    config = _config(request)
    classes = request.classes or context.run_config.get("classes", 0)
    return config, load_data(config, context.node_config, {**context.run_config, "classes": classes})


def _local(request: About, context: Context) -> "tuple[Config, Local]":
    """The server's config, and the simulator's own training, on this device's data alone."""
    from fedclade.fleet.simulated.engines import STEPS
    from fedclade.fleet.simulated.sgd import Local

    config, data = _data(request, context)
    step = STEPS["sequential" if config.training.engine == "sequential" else "workers"]
    return config, Local(config, data.seated(request.device), step)


def _speed() -> float:
    """Floating-point operations a second, by multiplying two matrices."""
    matrix = np.ones((512, 512), dtype=np.float32)
    begun = time.perf_counter()
    for _ in range(4):
        matrix @ matrix
    return float(4 * 2 * 512**3 / (time.perf_counter() - begun))
