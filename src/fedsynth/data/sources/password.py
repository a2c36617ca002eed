"""The password of a database, out of the environment or a file; it is never written, shown or kept."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from fedsynth.errors import BadInput


def read_password(variable: str | None, file: Path | None) -> str | None:
    """Return the password that a variable or a file holds; None where neither is named."""
    if variable is not None and file is not None:
        raise BadInput("password_variable and password_file: both are given; keep one")
    if variable is not None:
        value = os.environ.get(variable)
        if not value:
            raise BadInput(
                f"password_variable={variable!r}: the environment has no such variable; set it for this process, "
                "for example by EnvironmentFile= in its systemd unit"
            )
        return value
    if file is None:
        return None
    try:
        if os.name == "posix" and stat.S_IMODE(file.stat().st_mode) & 0o077:
            raise BadInput(f"password_file {file}: other users may read it; run chmod 600 {file}")
        value = file.read_text(encoding="utf-8").strip("\r\n")
    except OSError as error:
        raise BadInput(f"password_file {file}: cannot be read ({error.strerror}); check the path") from None
    if not value:
        raise BadInput(f"password_file {file}: is empty; expected the password on one line")
    return value
