"""Write what an installation without any index needs beside its wheels: pinned hashes, a bill of materials, a page.

`make bundle` collects the wheels; then: python tools/bundle.py build/bundle
"""

from __future__ import annotations

import hashlib
import json
import platform
import sys
import uuid
import zipfile
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path

_README = """# fedsynth without an index

These wheels are for Python {python} on {system}. As an ordinary user, without a network:

    sha256sum --quiet --check SHA256SUMS
    python3 -m venv ~/fedsynth
    ~/fedsynth/bin/python -m pip install --no-index --find-links wheels --require-hashes -r requirements.txt
    ~/fedsynth/bin/fedsynth --help

`requirements.txt` has every package with the hash of its wheel: pip refuses anything else. `sbom.cdx.json` lists them
with their licences (CycloneDX 1.5).
"""


def write_bundle(folder: Path) -> int:
    """Describe the wheels in `folder`/wheels; return how many there are."""
    wheels = sorted((folder / "wheels").glob("*.whl"), key=lambda wheel: wheel.name.lower())
    if not wheels:
        raise SystemExit(f"{folder / 'wheels'}: holds no wheels; run make bundle")
    entries = [(wheel, _metadata(wheel), _digest(wheel)) for wheel in wheels]
    names = [str(about["Name"]).lower().replace("_", "-") for _, about, _ in entries]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SystemExit(
            f"{folder / 'wheels'}: two versions of {twice[0]}; remove the folder and run make bundle again"
        )
    pinned = [f"{about['Name']}=={about['Version']} --hash=sha256:{digest}" for _, about, digest in entries]
    (folder / "requirements.txt").write_text("\n".join(pinned) + "\n")
    system = f"{platform.system()} {platform.machine()}"
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    (folder / "README.md").write_text(_README.format(python=python, system=system))
    (folder / "sbom.cdx.json").write_text(json.dumps(_bill(entries), indent=1) + "\n")
    listed = {f"wheels/{wheel.name}": digest for wheel, _, digest in entries}
    for name in ("requirements.txt", "sbom.cdx.json", "README.md"):
        listed[name] = _digest(folder / name)
    (folder / "SHA256SUMS").write_text("".join(f"{digest}  {name}\n" for name, digest in listed.items()))
    return len(wheels)


def _metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        path = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return HeaderParser().parsestr(archive.read(path).decode("utf-8", "replace"))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _bill(entries: list[tuple[Path, Message, str]]) -> dict[str, object]:
    components = []
    for _, about, digest in entries:
        name, version = str(about["Name"]), str(about["Version"])
        licence = about.get("License-Expression") or (about.get("License") or "").splitlines()[:1]
        text = licence if isinstance(licence, str) else "".join(licence)[:80]
        component: dict[str, object] = {
            "type": "library",
            "name": name,
            "version": version,
            "purl": f"pkg:pypi/{name.lower().replace('_', '-')}@{version}",
            "hashes": [{"alg": "SHA-256", "content": digest}],
        }
        if text:
            component["licenses"] = [{"license": {"name": text}}]
        components.append(component)
    everything = "".join(digest for _, _, digest in entries)
    serial = uuid.uuid5(uuid.NAMESPACE_URL, everything)  # the same wheels have the same bill
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "components": components,
    }


if __name__ == "__main__":
    count = write_bundle(Path(sys.argv[1]))
    print(
        f"{sys.argv[1]}: {count} wheels, requirements.txt with their hashes, sbom.cdx.json, SHA256SUMS, README.md"
    )
