"""Whether the files that a run reads besides its config are still what they were: data and traces, by their SHA-256."""

import hashlib
from pathlib import Path

from fedclade.config import Config
from fedclade.core.errors import UserError
from fedclade.runs.directory import INPUTS, read_json, write_json

FIELDS = (("population", "source"), ("edge", "trace"), ("edge", "device_trace"))


def digests(config: Config) -> dict[str, str]:
    """For each field that names a file or a folder that is there: a digest of what is in it."""
    named = {f"{section}.{field}": getattr(getattr(config, section), field) for section, field in FIELDS}
    return {field: _digest(Path(name)) for field, name in named.items() if name and _exists(name)}


def check_inputs(folder: Path, config: Config) -> None:
    """Refuse to go on where such a file has changed since the run was begun; note them where nothing is noted yet."""
    found, path = digests(config), folder / INPUTS
    if not path.is_file():
        if found:
            write_json(path, found)
        return
    for field, digest in read_json(path).items():
        if found.get(field) != digest:
            section, name = field.split(".")
            value = getattr(getattr(config, section), name)
            what = "has changed since the run was begun" if field in found else "is not there any more"
            raise UserError(f'{folder}: {field} = "{value}": {what}; put it back as it was, or begin the run anew')


def _exists(name: str) -> bool:
    try:
        return Path(name).exists()
    except (OSError, ValueError):  # too long, or with a zero byte: not the name of a file
        return False


def _digest(path: Path) -> str:
    files = [path] if path.is_file() else sorted(each for each in path.rglob("*") if each.is_file())
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.relative_to(path)}\0".encode())
        with file.open("rb") as opened:
            digest.update(hashlib.file_digest(opened, "sha256").digest())
    return digest.hexdigest()
