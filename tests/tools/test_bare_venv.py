"""An environment that holds what a wheel declares to need, and nothing else."""

import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import bare_venv  # noqa: E402


def names(*requirements, extras=()):
    return {found.name.lower() for found in bare_venv.needed(requirements, extras, set())}


def test_what_is_needed_by_what_is_needed_is_there_and_nothing_else():
    found = names("pandas>=2", 'torch; extra == "deep"')
    assert {"pandas", "numpy"} <= found and not {"torch", "pytest"} & found


def test_an_extra_that_is_asked_for_is_followed():
    assert "numpy" not in names('pandas; extra == "deep"')
    assert {"pandas", "numpy"} <= names('pandas; extra == "deep"', extras=["deep"])


def test_a_distribution_is_linked_file_by_file(tmp_path):
    bare_venv.link(distribution("iniconfig"), tmp_path)
    assert (tmp_path / "iniconfig" / "__init__.py").samefile(
        Path(str(distribution("iniconfig").locate_file("iniconfig/__init__.py")))
    )
    assert list(tmp_path.glob("iniconfig-*.dist-info/METADATA"))


def test_bytecode_is_shared_with_where_the_files_come_from(tmp_path):
    found = distribution("iniconfig")
    bare_venv.link(found, tmp_path)
    folder = Path(str(found.locate_file("iniconfig")))
    assert (tmp_path / "iniconfig" / "__pycache__").samefile(folder / "__pycache__")
    code = "import iniconfig; print(iniconfig.__file__, iniconfig.__cached__)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True
    )
    file, cached = done.stdout.split()
    assert Path(file).is_relative_to(tmp_path) and Path(cached).parent.samefile(folder / "__pycache__")
