"""NVFlare's own `deploy prepare` takes a kit, and the rules that the kit holds survive it."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from real_sites import PASSPHRASE

from fedsynth.deploy.nvflare.kits import ALLOWED, RIGHTS
from fedsynth.deploy.nvflare.membership import create

PAGE = Path(__file__).resolve().parents[2] / "docs" / "vantage6-nvflare.md"


@pytest.mark.slow
def test_a_prepared_kit_keeps_its_rules(tmp_path):
    create(("ada", "bern"), "127.0.0.1", 18703, tmp_path / "kits", PASSPHRASE)
    kit = tmp_path / "kits" / "sites" / "ada"
    shutil.copy(kit / "local" / "resources.json", kit / "local" / "resources.json.default")
    (tmp_path / "docker.yaml").write_text(re.search(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)[1])
    words = [
        "deploy",
        "prepare",
        str(kit),
        "--config",
        str(tmp_path / "docker.yaml"),
        "--output",
        str(tmp_path / "out"),
    ]
    program = "import sys; from nvflare.cli import main; sys.argv[0] = 'nvflare'; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    resources = json.loads((tmp_path / "out" / "local" / "resources.json.default").read_text())
    assert (
        resources["class_allow_list"] == list(ALLOWED["site"]) and resources["allow_log_streaming"] is False
    )
    rights = json.loads((tmp_path / "out" / "local" / "authorization.json").read_text())
    assert rights["permissions"]["lead"] == RIGHTS
    assert (tmp_path / "out" / "startup" / "client.key").stat().st_mode & 0o777 == 0o600
    assert "docker.sock" in (tmp_path / "out" / "startup" / "start_docker.sh").read_text()
