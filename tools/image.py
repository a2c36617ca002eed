"""Build the OCI image from the bundle, with buildah or docker.

BASE is an image that has Python 3.11 and its venv module, named by digest (IMAGE@sha256:...), or `rootfs`: then a
Debian root is made by mmdebstrap, and no registry is needed. Run it by make image, or: python tools/image.py BASE TAG
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONTAINERFILE, BUNDLE, PLACE = (
    ROOT / "packaging/image/Containerfile",
    ROOT / "build/bundle",
    ROOT / "build/image",
)
SUITE = "bookworm"  # its Python is the 3.11 that the bundle is for
PACKAGES = "python3,python3-venv,ca-certificates"


def main(base: str, tag: str) -> None:
    """Build the image and say what it is made of."""
    builder = shutil.which("buildah") or shutil.which("docker")
    if builder is None:
        raise SystemExit("neither buildah nor docker is here; install one of them (apt-get install buildah)")
    if not (BUNDLE / "requirements.txt").is_file():
        raise SystemExit(f"{BUNDLE}: no bundle; run make bundle first")
    base = rootfs(builder) if base == "rootfs" else base
    if not base.startswith("localhost/") and "@sha256:" not in base:
        raise SystemExit(f"BASE={base}: expected an image named by digest, IMAGE@sha256:..., or rootfs")
    build(builder, tag, CONTAINERFILE, BUNDLE, f"BASE={base}")
    print(f"built {tag} from {base}")


def rootfs(builder: str) -> str:
    """Return the name of a base image out of a Debian root that mmdebstrap makes; it bears the hash of that root."""
    PLACE.mkdir(parents=True, exist_ok=True)
    archive = PLACE / "rootfs.tar"
    if not archive.is_file():
        if shutil.which("mmdebstrap") is None:
            raise SystemExit(
                "mmdebstrap is not here; install it (apt-get install mmdebstrap), or name a BASE by digest"
            )
        partial = PLACE / "partial.tar"
        subprocess.run(
            ["mmdebstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, partial], check=True
        )
        partial.rename(archive)
    with archive.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    (PLACE / "Containerfile").write_text("FROM scratch\nADD rootfs.tar /\n")
    tag = f"localhost/fedsynth-base:{digest[:16]}"
    build(builder, tag, PLACE / "Containerfile", PLACE)
    return tag


def build(builder: str, tag: str, file: Path, context: Path, *arguments: str) -> None:
    """Run one build; inside a container there is often no right to more than a change of root."""
    more = [word for argument in arguments for word in ("--build-arg", argument)]
    isolation = {} if "BUILDAH_ISOLATION" in os.environ else {"BUILDAH_ISOLATION": "chroot"}
    subprocess.run(
        [builder, "build", "--tag", tag, "--file", file, *more, context],
        check=True,
        env={**os.environ, **isolation},
    )


if __name__ == "__main__":
    main(*sys.argv[1:3])
