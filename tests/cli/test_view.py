import os
import re
import signal
import subprocess
import sys
from urllib.request import urlopen

import pytest

from fedsynth.cli.main import main


def test_view_serves_until_it_is_interrupted(tmp_path):
    command = [sys.executable, "-m", "fedsynth.cli.main", "view", str(tmp_path), "--port", "0"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        address = re.search(r"http://127\.0\.0\.1:\d+/", process.stdout.readline())
        assert address is not None
        with urlopen(address[0], timeout=60) as page:
            assert "There are no runs" in page.read().decode()
    finally:
        process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 0


def test_a_missing_folder_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit) as left:
        main(["view", str(tmp_path / "nowhere")])
    assert left.value.code == 2
    assert "no such folder" in capsys.readouterr().err
