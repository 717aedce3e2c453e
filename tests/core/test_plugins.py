import pytest

from data_builders import error_line, stand_in_folder_with
from fedclade.core.plugins import load, members, near_miss


def test_a_module_in_the_users_folder_is_found(tmp_path, monkeypatch):
    stand_in_folder_with(monkeypatch, tmp_path, "my_plugin", "def pick():\n    return 42\n")
    assert load("scheduling.policy", "my_plugin:pick")() == 42


@pytest.mark.parametrize(
    ("spec", "right"),
    [
        ("no_such_module_here:f", "cannot import 'no_such_module_here'"),
        ("json:no_such", "module 'json' has no 'no_such'"),
        ("json:", "module 'json' has no ''"),
        (":f", "must be package.module:attribute"),
        (".relative:f", "must be package.module:attribute"),
    ],
)
def test_what_cannot_be_loaded_is_named_with_its_field(spec, right):
    line = error_line(load, "model.name", spec)
    assert line.startswith(f"model.name = {spec!r}: ")
    assert right in line


def test_a_plugin_whose_own_import_fails_says_which(tmp_path, monkeypatch):
    stand_in_folder_with(monkeypatch, tmp_path, "my_broken_plugin", "import no_such_dependency\n")
    assert "no_such_dependency" in error_line(load, "model.name", "my_broken_plugin:f")


def test_a_near_miss_is_suggested_and_anything_else_lists_what_is_known():
    assert near_miss("alexnt", {"cnn", "alexnet"}) == "did you mean 'alexnet'?"
    assert near_miss("zzz", {"mlp", "cnn"}) == "known: cnn, mlp"


def test_the_members_of_a_package_have_the_names_that_users_write():
    found = members("fedclade.data.sources")
    assert sorted(found) == ["cifar10", "digits", "femnist", "mix", "mnist5k", "synthetic", "topics"]  # and no _folders
    assert found["digits"] == "fedclade.data.sources.digits"
