import os
import re
import signal
import subprocess
import sys
from urllib.request import urlopen

import pytest

from fedsynth.cli.main import main


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_view_serves_until_it_is_interrupted_also_in_the_background(tmp_path, number):
    command = [sys.executable, "-m", "fedsynth.cli.main", "view", str(tmp_path), "--port", "0"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    ignore = lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)  # noqa: E731, as for a job that a script starts with &
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, preexec_fn=ignore)
    try:
        assert process.stdout is not None
        address = re.search(r"http://127\.0\.0\.1:\d+/", process.stdout.readline())
        assert address is not None
        with urlopen(address[0], timeout=600) as page:
            assert "There are no runs" in page.read().decode()
    finally:
        process.send_signal(number)
    assert process.wait(timeout=600) == 0


def test_a_missing_folder_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit) as left:
        main(["view", str(tmp_path / "nowhere")])
    assert left.value.code == 2
    assert "no such folder" in capsys.readouterr().err
