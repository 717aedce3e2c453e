"""The documentation site builds without a warning: every page is reached and every link leads somewhere."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_site_builds_without_a_warning(tmp_path):
    build = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", ROOT / "docs", tmp_path]
    answer = subprocess.run(build, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    assert (tmp_path / "index.html").is_file()
