"""`python -m fedsynth` is the command line."""

import subprocess
import sys


def test_the_package_runs_as_a_module():
    done = subprocess.run([sys.executable, "-m", "fedsynth", "--version"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("fedsynth ")
