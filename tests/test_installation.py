"""What installs without an index: the bundle names every wheel by its hash, and the page has the commands."""

import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))
bundle = pytest.importorskip("bundle")


def wheel(folder: Path, name: str, version: str = "1.0") -> Path:
    """A wheel with one empty module."""
    about = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": "",
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nLicense: MIT\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in (*files, f"{about}/RECORD"))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for member, text in {**files, f"{about}/RECORD": record}.items():
            archive.writestr(member, text)
    return path


def install(folder: Path) -> subprocess.CompletedProcess:
    """Install the bundle as its README says, into a folder of its own."""
    words = [
        "--no-index",
        "--find-links",
        "wheels",
        "--require-hashes",
        "-r",
        "requirements.txt",
        "--target",
        "here",
    ]
    command = [sys.executable, "-m", "pip", "install", "--quiet", *words]
    quiet = {"PIP_CONFIG_FILE": "/dev/null", "PATH": "/usr/bin:/bin", "HOME": str(folder)}
    return subprocess.run(command, cwd=folder, env=quiet, capture_output=True, text=True, check=False)


def test_a_bundle_installs_by_its_hashes_and_refuses_a_changed_wheel(tmp_path):
    first = wheel(tmp_path / "wheels", "ward")
    wheel(tmp_path / "wheels", "Bed")
    assert bundle.write_bundle(tmp_path) == 2
    digest = hashlib.sha256(first.read_bytes()).hexdigest()
    assert f"ward==1.0 --hash=sha256:{digest}" in (tmp_path / "requirements.txt").read_text().splitlines()
    assert f"{digest}  wheels/{first.name}" in (tmp_path / "SHA256SUMS").read_text().splitlines()
    bill = json.loads((tmp_path / "sbom.cdx.json").read_text())
    assert [part["purl"] for part in bill["components"]] == ["pkg:pypi/bed@1.0", "pkg:pypi/ward@1.0"]
    done = install(tmp_path)
    assert done.returncode == 0 and (tmp_path / "here" / "ward.py").exists(), done.stderr
    with zipfile.ZipFile(first, "a") as archive:
        archive.writestr("backdoor.py", "")
    changed = install(tmp_path)
    assert changed.returncode != 0 and "DO NOT MATCH THE HASHES" in changed.stderr


def test_two_versions_of_one_package_are_no_bundle(tmp_path):
    wheel(tmp_path / "wheels", "ward")
    wheel(tmp_path / "wheels", "ward", "1.1")
    with pytest.raises(SystemExit, match="two versions of ward"):
        bundle.write_bundle(tmp_path)


def test_the_operations_page_has_the_commands_that_connect_a_site():
    from ten_minutes import page_commands

    commands = page_commands((ROOT / "docs" / "operations.md").read_text()).splitlines()
    assert commands[-1] == "fedsynth site start st-mary --config site.toml"
    assert any("--no-index" in line and "--require-hashes" in line for line in commands)
    assert not any("sudo" in line or "http" in line for line in commands)
