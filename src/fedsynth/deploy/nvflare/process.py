"""The engine's own process of a server or a site: `python -m fedsynth.deploy.nvflare.process KIT ROLE [ADDRESS]`."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from argparse import Namespace
from ssl import SSLContext
from typing import Any

from nvflare.fuel.f3.drivers import net_utils
from nvflare.fuel.f3.mpm import MainProcessMonitor
from nvflare.private.fed.app.client import client_train
from nvflare.private.fed.app.server import server_train
from nvflare.private.fed.server import fed_server

from fedsynth.deploy.nvflare.kits import Kit, brought_up_to_date, refuse_revoked

_PARENT_CHECK_S = 0.5


def main() -> None:
    """Run until told to stop, or until the command that started this is gone."""
    os.umask(0o077)  # whatever this and its jobs write is for their own user alone
    folder, role = sys.argv[1:3]
    kit = Kit.load(folder, role)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    settings = ["secure_train=true", "config_folder=config"]
    brought_up_to_date(kit)
    _refuse_revoked(kit)
    if role == "server":
        _listen_on(sys.argv[3])
        arguments = Namespace(
            workspace=str(kit.folder), fed_server="fed_server.json", set=[*settings, "org=server"]
        )
        sys.exit(MainProcessMonitor.run(server_train.main, run_dir=arguments.workspace, args=arguments))
    own = [*settings, f"uid={kit.name}", f"org={kit.name.replace('-', '_')}"]
    arguments = Namespace(workspace=str(kit.folder), fed_client="fed_client.json", set=own, local_rank=0)
    sys.exit(MainProcessMonitor.run(client_train.main, run_dir=arguments.workspace, args=arguments))


def _listen_on(address: str) -> None:
    """Bind this address alone: the engine does so for loopback, and would take all interfaces for any other."""
    fed_server._is_loopback_host = lambda _: True
    fed_server._normalize_loopback_host = lambda _: address


def _refuse_revoked(kit: Kit) -> None:
    """Check every connection's certificate against the authority's list; the engine knows of no such list."""
    plain = net_utils.get_ssl_context

    def checked(params: dict[str, Any], ssl_server: bool) -> SSLContext | None:
        context: SSLContext | None = plain(params, ssl_server)
        if context is not None:
            refuse_revoked(context, kit)
        return context

    net_utils.get_ssl_context = checked


def _end_with(parent: int) -> None:
    """A command that was killed leaves no process behind."""
    while os.getppid() == parent:
        time.sleep(_PARENT_CHECK_S)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
