"""What the guides show and no test starts is sound."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.meta.documents import block

PATH = os.pathsep.join([f"{sys.prefix}/bin", os.environ["PATH"]])


def run(*command: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PATH": PATH}
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    unit = tmp_path / "debug-relay.service"
    # It looks for the command; that of the guide lies in a home directory.
    unit.write_text(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", block("unit"), flags=re.M))
    run(analyze, "verify", str(unit))


def test_the_commands_exist() -> None:
    [command] = re.findall(r"^ExecStart=\S+/debug-relay (.*)$", block("unit"), re.M)
    word, *options = command.split()
    usage = run("debug-relay", word, "--help")
    assert [option for option in options if option not in usage] == []
    pod = yaml.safe_load(block("pod"))
    relay = pod["spec"]["containers"][1]
    assert relay["command"][1:] == [word]
    assert pod["spec"]["shareProcessNamespace"] is True
    assert relay["securityContext"]["capabilities"]["add"] == ["SYS_PTRACE"]
    mounted = {
        mount["mountPath"] for one in pod["spec"]["containers"] for mount in one["volumeMounts"]
    }
    assert mounted == {"/opt/relay"}


def test_the_usage_of_stdio_is_that_of_its_help() -> None:
    help = run("debug-relay", "stdio", "--help")
    for option in re.findall(r"--\w[\w-]*", block("stdio-usage")):
        assert option in help
