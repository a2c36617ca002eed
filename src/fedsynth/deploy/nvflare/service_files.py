"""Files that run a kit as a service: a hardened systemd unit and a compose file, written beside the keys."""

from __future__ import annotations

from pathlib import Path

_UNIT = """\
# Runs the {title} as the user fedsynth, from {home}/{folder}, with the installation in /opt/fedsynth.
# Other places (not below /home): change the three paths below.
# sudo cp {unit} /etc/systemd/system/ && sudo systemctl enable --now {unit}
[Unit]
Description=fedsynth {title}
Documentation=file:{home}/{folder}/README.md
After=network-online.target time-sync.target
Wants=network-online.target time-sync.target

[Service]
User=fedsynth
WorkingDirectory={home}
ExecStart=/opt/fedsynth/bin/fedsynth {command}
EnvironmentFile=-/etc/fedsynth/{name}.env
Restart=on-failure
RestartSec=10
# 2: something is wrong with the files, and a sentence in the journal says what; starting again does not mend it
RestartPreventExitStatus=2
KillMode=mixed
TimeoutStopSec=60
UMask=0077

NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
ProtectSystem=strict
ReadWritePaths={home}
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
PrivateMounts=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
RemoveIPC=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM

[Install]
WantedBy=multi-user.target
"""
_COMPOSE = """\
# The {title} out of the image that `make image` builds. The user below has to own this folder{and_rows}:
#   FEDSYNTH_UID=$(id -u) FEDSYNTH_GID=$(id -g) docker compose up -d        (or podman-compose)
services:
  {service}:
    image: ${{FEDSYNTH_IMAGE:-localhost/fedsynth:latest}}
    command: [{words}]
    user: "${{FEDSYNTH_UID:-10001}}:${{FEDSYNTH_GID:-10001}}"
    read_only: true
    tmpfs: ["/tmp"]
    cap_drop: [ALL]
    security_opt: ["no-new-privileges:true"]
    restart: unless-stopped
    volumes:
      - .:/kit
{more}"""
_SITE_VOLUME = "      - ${FEDSYNTH_SITE:-../site}:/site  # site.toml, rows and the state folder\n"
_SERVER_PORT = '    ports: ["{port}:{port}"]\n'


def write_service_files(folder: Path, role: str, title: str, name: str, port: int) -> None:
    """Write the systemd unit and the compose file of a server's or a site's kit."""
    if role == "server":
        command, words = (
            f"federation serve {folder.name}",
            ("federation", "serve", "/kit", "--listen", "0.0.0.0"),
        )
        unit, more, and_rows = "fedsynth-server.service", _SERVER_PORT.format(port=port), ""
    else:
        command = f"site start {folder.name} --config site.toml"
        words = ("site", "start", "/kit", "--config", "/site/site.toml")
        unit, more, and_rows = f"fedsynth-{name}.service", _SITE_VOLUME, " and that of the rows"
    home = "/srv/fedsynth"
    unit_text = _UNIT.format(
        title=title, home=home, folder=folder.name, unit=unit, command=command, name=name
    )
    compose = _COMPOSE.format(title=title, service=role, words=", ".join(words), more=more, and_rows=and_rows)
    (folder / unit).write_text(unit_text)
    (folder / "compose.yaml").write_text(compose)
