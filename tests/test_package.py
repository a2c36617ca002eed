import subprocess
import sys

import pytest

import fedsynth


def test_the_names_of_the_package_are_there_and_no_others():
    assert {name: getattr(fedsynth, name).__name__ for name in fedsynth.__all__} == {
        name: name for name in fedsynth.__all__
    }
    with pytest.raises(AttributeError, match="has no attribute 'Synthesiser'"):
        _ = fedsynth.Synthesiser


def test_the_processes_that_only_move_bytes_do_not_load_torch():
    code = "import sys, fedsynth.deploy.nvflare.node; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
