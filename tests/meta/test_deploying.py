"""What the guides for operators show works: under systemd, in a pod, behind Caddy."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.source import Source
from tests.meta import namespaces
from tests.meta.documents import ROOT, block

PROGRAM = """
    import time
    n = 0
    while True:
        n += 1  # @inside
        time.sleep(0.01)
"""
SYSTEMD = "/lib/systemd/systemd"
# Waits for the relay that systemd has started.
READY = """
    for _ in $(seq 300); do ! debug-relay sessions >/dev/null 2>&1 || break; sleep 0.1; done
"""


def test_the_unit_starts_a_relay_whose_sessions_survive_its_restart(tmp_path: Path) -> None:
    if why := namespaces.missing(SYSTEMD, "systemctl", "systemd-analyze"):
        pytest.skip(why)
    home = tmp_path / "home"
    unit = home / ".config" / "systemd" / "user" / "debug-relay.service"
    unit.parent.mkdir(parents=True)
    unit.write_text(block("unit"))
    (home / "debug-relay").mkdir()
    (home / "debug-relay" / ".venv").symlink_to(sys.prefix)
    (home / ".opencode-debugger").mkdir(mode=0o700)
    (home / ".opencode-debugger" / "config.toml").write_text("[server]\nport = 0\n")
    program = Source(tmp_path / "shop.py", PROGRAM)
    group = f"debug-relay-test-{os.getpid()}"
    script = f"""
        for hierarchy in {namespaces.CGROUPS} {namespaces.CGROUPS}/systemd; do
            [ -f $hierarchy/cgroup.procs ] || continue
            mkdir $hierarchy/{group}
            echo 0 > $hierarchy/{group}/cgroup.procs
        done
        mkdir -p /run/systemd/system $XDG_RUNTIME_DIR
        systemd-analyze --user verify {unit}
        {SYSTEMD} --user &
        for _ in $(seq 300); do [ ! -S $XDG_RUNTIME_DIR/systemd/private ] || break; sleep 0.1; done
        {block("start-unit")}
        {READY}
        debug-relay launch --break {program}:{program["inside"]} {program}
        before=$(systemctl --user show --property MainPID debug-relay)
        {block("restart-unit")}
        [ "$before" != "$(systemctl --user show --property MainPID debug-relay)" ]
        {READY}
        debug-relay continue
        debug-relay eval n
    """
    try:
        printed = namespaces.run(script, HOME=str(home), XDG_RUNTIME_DIR="/run/user/0")
    finally:
        namespaces.remove_cgroups(group)
    assert "stop 1" in printed, printed
    assert "stop 2" in printed, printed
    assert printed.endswith("int = 1\n"), printed


def image(folder: Path) -> Path:
    """The files of both images: what is not this machine's own, which is mounted."""
    root = folder / "image"
    for name in ("app", "dev", "etc", "opt", "proc", "run", "sys", "tmp", "usr"):
        (root / name).mkdir(parents=True)
    for name in ("bin", "lib", "lib64", "sbin"):
        (root / name).symlink_to(f"usr/{name}")
    Source(root / "app" / "shop.py", PROGRAM)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = root / "venv" / "lib" / version / "site-packages"
    packages.mkdir(parents=True)
    for path in sys.path:
        if path.endswith("site-packages"):
            (packages / "mounted.pth").write_text(f"import site; site.addsitedir({path!r})\n")
    (root / "venv" / "pyvenv.cfg").write_text(f"home = {sys.base_prefix}/bin\n")
    (root / "venv" / "bin").mkdir()
    (root / "venv" / "bin" / "python").symlink_to(Path(sys.base_prefix) / "bin" / version)
    command = root / "venv" / "bin" / "debug-relay"
    start = "from debug_relay.supervisor.cli.main import main\nraise SystemExit(main())\n"
    command.write_text(f"#!/opt/relay/venv/bin/python\n{start}")
    command.chmod(0o755)
    return root


NO_CONTAINERS = "podman can start no container on this machine"


def test_the_relay_of_the_pod_debugs_the_application_beside_it(tmp_path: Path) -> None:
    if why := namespaces.missing("podman", "gdb"):
        pytest.skip(why)
    mounted = {f"{path}:{path}:ro" for path in ("/usr", sys.base_prefix, sys.prefix, str(ROOT))}
    linker = "/etc/ld.so.cache:/etc/ld.so.cache:ro"
    settings = tmp_path / "containers.conf"
    settings.write_text(
        f"[containers]\nvolumes = {[*sorted(mounted), linker]}\n"
        'default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\n'
        '[engine]\ninfra_image = "localhost/pause:dev"\n'
    )
    (tmp_path / "pod.yaml").write_text(block("pod"))
    podman = (
        "podman --root /run/store --runroot /run/containers --storage-driver vfs "
        "--cgroup-manager cgroupfs --events-backend file"
    )
    relay = f"{podman} exec shop-relay /opt/relay/venv/bin/debug-relay"
    built = f"tar -C {image(tmp_path)} -c . | {podman} import -q -c 'ENV PATH=/usr/sbin:/usr/bin'"
    python = f"{sys.base_prefix}/bin/python3"
    script = f"""
        {built} -c 'CMD ["sleep", "infinity"]' - localhost/pause:dev
        if ! {podman} run --rm --network none localhost/pause:dev true; then
            echo {NO_CONTAINERS}
            exit 0
        fi
        {built} -c 'ENV HOME=/tmp' - localhost/debug-relay:dev
        {built} -c 'CMD ["{python}", "/app/shop.py"]' - localhost/shop:dev
        {podman} play kube --network none {tmp_path}/pod.yaml
        for _ in $(seq 300); do ! {relay} sessions >/dev/null 2>&1 || break; sleep 0.1; done
        {relay} attach $({relay} ps | sed -n 's/^ *\\([0-9]*\\) .*shop.py/\\1/p')
        {relay} pause
        {relay} eval 'n > 0'
        {relay} rm
        {podman} pod rm --force --time 0 shop
    """
    printed = namespaces.run(script, CONTAINERS_CONF=str(settings))
    if NO_CONTAINERS in printed:
        pytest.skip(printed)
    # podman leaves the pod's group in one hierarchy.
    [pod] = re.findall(r"^Pod:\n([0-9a-f]{64})$", printed, re.MULTILINE)
    namespaces.remove_cgroups(f"libpod_parent/{pod}")
    assert "in <module>" in printed, printed
    assert "bool = True" in printed, printed


def test_the_usage_of_stdio_is_that_of_its_help() -> None:
    command = Path(sys.prefix) / "bin" / "debug-relay"
    done = subprocess.run([command, "stdio", "--help"], capture_output=True, text=True, check=True)
    options = r"--\w[\w-]*(?: [A-Z]+)?"
    described = re.findall(rf"^  ({options}) ", done.stdout, re.MULTILINE)
    assert sorted(re.findall(rf"\[({options})\]", block("stdio-usage"))) == sorted(described)
