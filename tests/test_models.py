from collections import Counter

import pytest
import torch
from torch import nn

from data_builders import error_line, stand_in_folder_with
from fedclade.config import ModelConfig
from fedclade.models import build_model, count_parameters, fitted

FEMNIST, CIFAR10, DIGITS = ((1, 28, 28), 62), ((3, 32, 32), 10), ((1, 8, 8), 10)
FITTING = [
    ("logistic", DIGITS),
    ("logistic", CIFAR10),
    ("mlp", DIGITS),
    ("mlp", FEMNIST),
    ("cnn", FEMNIST),
    ("cnn", ((1, 16, 16), 3)),
    ("cnn-large", FEMNIST),
    ("cnn-large", DIGITS),
    ("alexnet", CIFAR10),
    ("alexnet", FEMNIST),
]


def build(name: str, problem: tuple[tuple[int, int, int], int], seed: int = 1, **settings: float) -> nn.Module:
    return build_model(ModelConfig(name=name, **settings), *problem, seed)


def weights(module: nn.Module) -> bytes:
    return nn.utils.parameters_to_vector(module.parameters()).detach().numpy().tobytes()


@pytest.mark.parametrize(("name", "problem"), FITTING)
@pytest.mark.parametrize("settings", [{}, {"hidden": 5, "width": 0.1}])
def test_a_model_tells_its_size_without_being_built(name, problem, settings):
    size = len(nn.utils.parameters_to_vector(build(name, problem, **settings).parameters()))
    assert count_parameters(ModelConfig(name=name, **settings), *problem) == size


def test_a_model_of_texts_tells_its_size_too():
    config = ModelConfig(name="embedding-bag", hidden=5, vocabulary=30)
    module = build_model(config, (1, 1, 9), 4, 1, tokens=True)
    assert count_parameters(config, (1, 1, 9), 4, tokens=True) == sum(each.numel() for each in module.parameters())


@pytest.mark.parametrize(
    ("name", "problem", "settings", "layers"),
    [
        ("logistic", DIGITS, {}, [64 * 10 + 10]),
        ("logistic", CIFAR10, {}, [3072 * 10 + 10]),
        ("mlp", ((1, 28, 28), 10), {}, [784 * 64 + 64, 64 * 10 + 10]),
        ("mlp", DIGITS, {"hidden": 5}, [64 * 5 + 5, 5 * 10 + 10]),
        # 28 - 4 = 24, pooled 12; 12 - 4 = 8, pooled 4: 16 maps of 4 × 4 are 256; 156 + 2,416 + 15,934 = 18,506
        ("cnn", FEMNIST, {}, [1 * 25 * 6 + 6, 6 * 25 * 16 + 16, 256 * 62 + 62]),
        # 28, pooled 14, pooled 7: 64 maps of 7 × 7 are 3,136; 832 + 51,264 + 1,606,144 + 31,806 = 1,690,046
        ("cnn-large", FEMNIST, {}, [1 * 25 * 32 + 32, 32 * 25 * 64 + 64, 3136 * 512 + 512, 512 * 62 + 62]),
        # 32, strided 16, pooled 8, pooled 4, pooled 2: 256 maps of 2 × 2 are 1,024
        (
            "alexnet",
            CIFAR10,
            {},
            [
                3 * 9 * 64 + 64,
                64 * 9 * 192 + 192,
                192 * 9 * 384 + 384,
                384 * 9 * 256 + 256,
                256 * 9 * 256 + 256,
                1024 * 512 + 512,
                512 * 512 + 512,
                512 * 10 + 10,
            ],
        ),
    ],
)
def test_every_layer_has_the_parameters_that_arithmetic_gives_it(name, problem, settings, layers):
    module = build(name, problem, **settings)
    own = [sum(p.numel() for p in layer.parameters()) for layer in module.children()]
    assert [count for count in own if count] == layers


def test_the_femnist_nets_have_the_papers_sizes():
    assert sum(p.numel() for p in build("cnn", FEMNIST).parameters()) == 18_506
    assert sum(p.numel() for p in build("cnn-large", FEMNIST).parameters()) == 1_690_046


def test_the_alexnet_has_the_papers_thirteen_layers_at_any_width():
    for width in (1.0, 0.01):
        kinds = Counter(type(layer) for layer in build("alexnet", CIFAR10, width=width).children())
        assert (kinds[nn.Conv2d], kinds[nn.MaxPool2d], kinds[nn.Dropout], kinds[nn.Linear]) == (5, 3, 2, 3)


def test_half_the_width_halves_the_layers():
    outputs = [layer.weight.shape[0] for layer in build("alexnet", CIFAR10, width=0.5) if hasattr(layer, "weight")]
    assert outputs == [32, 96, 192, 128, 128, 256, 256, 10]


@pytest.mark.parametrize(("name", "problem"), FITTING)
def test_a_model_scores_every_class_of_every_image(name, problem):
    shape, classes = problem
    assert build(name, problem, width=0.1)(torch.zeros(2, *shape)).shape == (2, classes)


@pytest.mark.parametrize("name", ["logistic", "mlp", "cnn", "cnn-large", "alexnet"])
def test_weights_depend_on_the_seed_alone_and_leave_torchs_generator_alone(name):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = weights(build(name, FEMNIST, width=0.1))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(6)
    assert weights(build(name, FEMNIST, width=0.1)) == first
    assert weights(build(name, FEMNIST, seed=2, width=0.1)) != first


@pytest.mark.parametrize(
    ("name", "shape"), [("cnn", (1, 8, 8)), ("cnn", (1, 15, 28)), ("cnn", (1, 28, 15)), ("alexnet", (1, 8, 8))]
)
def test_images_too_small_for_the_model_are_refused(name, shape):
    line = error_line(build, name, (shape, 10))
    assert line.startswith(f'model.name = "{name}": needs images of at least 16×16, not {shape[1]}×{shape[2]}')


def test_an_unknown_model_suggests_the_near_one():
    line = error_line(build, "alexnt", CIFAR10)
    assert line == "model.name = \"alexnt\": no such model; did you mean 'alexnet'?"
    assert error_line(build, "zzz", CIFAR10).endswith("known: alexnet, cnn, cnn-large, embedding-bag, logistic, mlp")


@pytest.mark.parametrize(
    ("shape", "tokens", "name"),
    [
        ((1, 28, 28), False, "cnn"),
        ((3, 16, 16), False, "cnn"),
        ((1, 8, 8), False, "mlp"),
        ((1, 1, 13), False, "mlp"),  # a table
        ((2, 9, 20, 20), False, "mlp"),
        ((1, 1, 30), True, "embedding-bag"),
    ],
)
def test_a_model_that_is_not_named_fits_the_data(shape, tokens, name):
    samples = torch.zeros(2, *shape, dtype=torch.long if tokens else torch.float32)
    module = build_model(ModelConfig(), shape, 5, 1, tokens)
    assert module(samples).shape == (2, 5)
    assert weights(module) == weights(build_model(ModelConfig(name=name), shape, 5, 1, tokens))
    assert fitted(ModelConfig(), shape, tokens) == ModelConfig(name=name)
    assert fitted(ModelConfig(name="logistic"), shape, tokens).name == "logistic"


FACTORIES = """
from torch import nn

def net(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0] * shape[1] * shape[2], classes))

def normed(shape, classes):
    return nn.Sequential(nn.BatchNorm2d(shape[0]), net(shape, classes))

def narrow(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0] * shape[1] * shape[2], classes - 1))

def misfit(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(7, classes))

def lazy(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.LazyLinear(classes))

def no_module(shape, classes):
    return [1.0]

def careless(shape, classes):
    class Careless(nn.Module):
        def forward(self, x):
            return self.nothing(x)
    return Careless()

def broken(shape, classes):
    raise LookupError("no such layer")

no_function = 3
"""


@pytest.fixture
def my_nets(tmp_path, monkeypatch):
    stand_in_folder_with(monkeypatch, tmp_path, "my_nets", FACTORIES)


@pytest.mark.usefixtures("my_nets")
def test_a_users_factory_gives_the_model_with_weights_from_the_seed():
    assert build("my_nets:net", DIGITS)(torch.zeros(2, 1, 8, 8)).shape == (2, 10)
    assert weights(build("my_nets:net", DIGITS)) == weights(build("logistic", DIGITS))
    assert weights(build("my_nets:net", DIGITS)) != weights(build("my_nets:net", DIGITS, seed=2))


@pytest.mark.usefixtures("my_nets")
@pytest.mark.parametrize(
    ("attribute", "right"),
    [
        ("narrow", "gave (2, 9) for 2 samples, must give scores of shape (2, 10)"),
        ("no_module", "the factory gave a list, not a Module"),
        ("broken", "fails: LookupError: no such layer"),
        ("no_function", "must be a function of (shape, classes)"),
    ],
)
def test_a_factory_of_something_else_is_refused(attribute, right):
    assert error_line(build, f"my_nets:{attribute}", DIGITS) == f'model.name = "my_nets:{attribute}": {right}'


@pytest.mark.usefixtures("my_nets")
def test_a_factory_whose_module_cannot_take_the_samples_is_refused():
    line = error_line(build, "my_nets:misfit", DIGITS)
    assert line.startswith('model.name = "my_nets:misfit": fails on samples of C×H×W = 1×8×8: ')
    line = error_line(build, "my_nets:careless", DIGITS)
    assert line.endswith("fails on samples of C×H×W = 1×8×8: 'Careless' object has no attribute 'nothing'")


@pytest.mark.usefixtures("my_nets")
def test_trying_a_factory_out_leaves_it_ready_to_train_and_its_weights_to_the_seed():
    module = build("my_nets:lazy", DIGITS)
    assert all(part.training for part in module.modules())
    assert weights(module) == weights(build("my_nets:lazy", DIGITS))
