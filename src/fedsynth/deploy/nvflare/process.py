"""The engine's own process of a server or a site: `python -m fedsynth.deploy.nvflare.process KIT ROLE [ADDRESS]`."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from argparse import Namespace
from contextlib import suppress
from pathlib import Path
from ssl import SSLContext
from typing import Any

from nvflare.fuel.f3.comm_error import CommError
from nvflare.fuel.f3.drivers import net_utils
from nvflare.fuel.f3.drivers.driver_params import DriverParams
from nvflare.fuel.f3.mpm import MainProcessMonitor
from nvflare.fuel.f3.sfm.conn_manager import ConnManager
from nvflare.fuel.f3.sfm.constants import HandshakeKeys
from nvflare.fuel.f3.sfm.sfm_conn import SfmConnection
from nvflare.fuel.utils.admin_name_utils import is_valid_admin_client_name
from nvflare.private.fed.app.client import client_train
from nvflare.private.fed.app.server import server_train
from nvflare.private.fed.server import fed_server

from fedsynth.deploy.copies import note_copy
from fedsynth.deploy.environment import NOTICES
from fedsynth.deploy.nvflare.kits import Kit, brought_up_to_date, refuse_revoked

_PARENT_CHECK_S = 0.5
_AGAIN_S = 300.0
_ALIVE_S = 30.0  # sites are heard every ten seconds; one whose line was cut comes back after this


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
        _refuse_twins()
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


def _refuse_twins() -> None:
    """Let a site be connected once: the engine would drop the connection that it has for any newer one of that name."""
    plain = ConnManager.update_endpoint
    noted: dict[str, float] = {}  # when it was last said of a site; its copy tries every ten seconds

    def checked(manager: ConnManager, connection: SfmConnection, data: dict[str, Any]) -> None:
        name = str(data.get(HandshakeKeys.ENDPOINT_NAME, ""))
        if "." not in name and not is_valid_admin_client_name(name) and _is_alive(manager, name, connection):
            where = connection.conn.get_conn_properties().get(DriverParams.PEER_ADDR.value, "another place")
            connection.conn.close()
            if time.monotonic() - noted.get(name, -_AGAIN_S) >= _AGAIN_S:
                noted[name] = time.monotonic()
                note_copy(name)
                _notice(
                    f"site {name} is connected, and a second process with its kit was refused (from {where}); if "
                    "nobody moved the site, its kit was copied: fedsynth federation replace"
                )
            raise CommError(CommError.NOT_READY, f"{name} is connected already")
        plain(manager, connection, data)

    ConnManager.update_endpoint = checked


def _is_alive(manager: ConnManager, name: str, newer: SfmConnection) -> bool:
    """Whether a site of this name has another connection, on which it was heard lately."""
    endpoint = manager.sfm_endpoints.get(name)
    others = [] if endpoint is None else [one for one in endpoint.connections if one is not newer]
    return any(time.time() - one.last_activity < _ALIVE_S for one in others)


def _notice(words: str) -> None:
    """Write a line for the people who look after this node."""
    with suppress(OSError, KeyError), Path(os.environ[NOTICES]).open("a") as file:
        file.write(words + "\n")


def _end_with(parent: int) -> None:
    """A command that was killed leaves no process behind."""
    while os.getppid() == parent:
        time.sleep(_PARENT_CHECK_S)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
