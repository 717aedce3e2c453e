"""The other simulators' own virtual environment, made when first needed and again when peers.txt has changed."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
FOLDER = HERE / ".peers"
FEDLAB = "fedlab==1.3.0"  # plain `pip install fedlab` would bring torchvision, and with it CUDA


def peers_python() -> Path:
    """The interpreter that has the peers."""
    python, stamp, wanted = FOLDER / "bin" / "python", FOLDER / "installed.txt", (HERE / "peers.txt").read_text()
    if not stamp.exists() or stamp.read_text() != wanted:
        print(f"making {FOLDER} from benchmarks/peers.txt ...", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", FOLDER], check=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "-r", HERE / "peers.txt"], check=True)
        subprocess.run([*pip, "--no-deps", FEDLAB], check=True)
        stamp.write_text(wanted)
    return python
