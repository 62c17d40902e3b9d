"""units: what makes a scheduler start a nightly: cron, systemd or Kubernetes.

Each starts it in the folder where the unit was printed, or in a volume of its own, never twice at
once, and lets its exit code be seen.
"""

import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from factsweep.operators.errors import InputError
from factsweep.pipeline.config import folders
from factsweep.pipeline.studies.nightly.night import Unit, label

_FOLDER = "/data"  # where a pod has its volume


@dataclass(frozen=True)
class Start:
    """A nightly as a command: its name, the words behind `factsweep`, the program, the folder."""

    name: str
    words: tuple[str, ...]
    program: str
    folder: str

    @classmethod
    def here(cls, nightly: str, overrides: Sequence[str]) -> "Start":
        """As it would be started by hand, here.

        Raises:
            InputError: its name cannot be that of a unit.
        """
        if re.fullmatch(r"[\w.-]+", label(nightly)) is None:
            raise InputError(
                f"{label(nightly)!r} cannot name a unit; use letters, digits, dots and dashes."
            )
        program = Path(sys.executable).with_name("factsweep")
        folder = folders.own()
        own = () if folder is None else ("--config-dir", str(folder))
        words = ("nightly", nightly, *own, *overrides)
        return cls(label(nightly), words, str(program), str(Path.cwd()))


def cron(start: Start, unit: Unit) -> str:
    """A line for `crontab -e`: mails when the exit code is not 0; 75 if the last night still runs.

    >>> start = Start("demo", ("nightly", "demo"), "/opt/bin/factsweep", "/srv")
    >>> print(cron(start, Unit("02:30", "factsweep:cpu", None, "factsweep", 0)), end="")
    30 2 * * * cd /srv && mkdir -p results && flock -n -E 75 results/demo.lock \
/opt/bin/factsweep nightly demo >>results/demo.log 2>&1 || { code=$?; \
echo factsweep nightly demo: exit code $code, see /srv/results/demo.log; exit $code; }
    """
    hour, minute = _time(unit)
    command = shlex.join([start.program, *start.words])
    log = f"results/{start.name}.log"
    said = f"factsweep nightly {start.name}: exit code"
    see = shlex.quote(f"{start.folder}/{log}")
    line = (
        f"cd {shlex.quote(start.folder)} && mkdir -p results && "
        f"flock -n -E 75 results/{start.name}.lock {command} >>{log} 2>&1 "
        f"|| {{ code=$?; echo {said} $code, see {see}; exit $code; }}"
    )
    # In a crontab a percent sign ends the command.
    return f"{minute} {hour} * * * {line.replace('%', chr(92) + '%')}\n"


def systemd(start: Start, unit: Unit) -> str:
    """A service and its timer, two files in one text, each under its name."""
    hour, minute = _time(unit)
    name = f"factsweep-{start.name}"
    command = " ".join(_systemd_word(word) for word in (start.program, *start.words))
    return f"""\
# /etc/systemd/system/{name}.service
[Unit]
Description=factsweep nightly {start.name} (exit status 3: regression, 4: not enough evidence)
Wants=network-online.target
After=network-online.target

[Service]
Type=oneshot
User={os.environ.get("USER", "root")}
WorkingDirectory={_escaped(start.folder)}
EnvironmentFile=-/etc/factsweep/environment
ExecStart={command}
TimeoutStartSec=infinity

# /etc/systemd/system/{name}.timer
[Unit]
Description=When factsweep nightly {start.name} runs

[Timer]
OnCalendar=*-*-* {hour:02}:{minute:02}:00
Persistent=true

[Install]
WantedBy=timers.target
"""


def kubernetes(start: Start, unit: Unit) -> str:
    """A CronJob; a pod is never started again, so that exit codes 3 and 4 stay to be seen.

    Raises:
        InputError: the nightly, or the user's own configuration, is on this machine alone.
    """
    if (folder := folders.own()) is not None:
        raise InputError(
            f"the configuration in {folder} is on this machine, and no pod has it; put it into "
            "conf/ of the image, and print the unit where there is no such folder."
        )
    if start.words[1].endswith(".yaml"):
        raise InputError(
            f"{start.words[1]} is a file of this machine, which no pod has; put it into "
            "conf/nightly/ of the image and name it without .yaml."
        )
    hour, minute = _time(unit)
    manifest = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": _dns_name(start.name), "labels": {"app": "factsweep"}},
        "spec": {
            "schedule": f"{minute} {hour} * * *",
            "timeZone": "Etc/UTC",
            "concurrencyPolicy": "Forbid",
            "startingDeadlineSeconds": 3600,
            "successfulJobsHistoryLimit": 3,
            "failedJobsHistoryLimit": 7,
            "jobTemplate": {
                "spec": {
                    "backoffLimit": 0,
                    "activeDeadlineSeconds": round(unit.hours * 3600),
                    "template": {"spec": _pod(start, unit)},
                }
            },
        },
    }
    return yaml.safe_dump(manifest, sort_keys=False)


def _pod(start: Start, unit: Unit) -> dict[str, Any]:
    container: dict[str, Any] = {
        "name": "factsweep",
        "image": unit.image,
        "command": ["factsweep", *start.words],
        "workingDir": _FOLDER,
        "env": [
            {"name": "HF_HOME", "value": f"{_FOLDER}/huggingface"},
            {"name": "FACTSWEEP_HOME", "value": f"{_FOLDER}/factsweep"},
        ],
        "volumeMounts": [
            {"name": "data", "mountPath": _FOLDER},
            {"name": "memory", "mountPath": "/dev/shm"},
        ],
    }
    if unit.secret:
        container["envFrom"] = [{"secretRef": {"name": unit.secret}}]
    gpus = {"nvidia.com/gpu": unit.gpus} if unit.gpus else {}
    container["resources"] = {
        "requests": {"cpu": unit.cpus, "memory": unit.memory},
        "limits": {"memory": unit.memory, **gpus},
    }
    return {
        "restartPolicy": "Never",
        # The images' own user, who may write to the volume.
        "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "fsGroup": 1000},
        "imagePullSecrets": [{"name": name} for name in unit.pull_secrets],
        "tolerations": list(unit.tolerations),
        "containers": [container],
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": unit.claim}},
            # Ray's object store and vLLM's workers share memory; a pod has 64 MB of it.
            {"name": "memory", "emptyDir": {"medium": "Memory"}},
        ],
    }


UNITS: Mapping[str, Callable[[Start, Unit], str]] = {
    "cron": cron,
    "systemd": systemd,
    "kubernetes": kubernetes,
}


def _time(unit: Unit) -> tuple[int, int]:
    found = re.fullmatch(r"([01]?\d|2[0-3]):([0-5]\d)", unit.at)
    if found is None:
        raise InputError(f"unit.at={unit.at!r} is no time of a day; give one as '02:30'.")
    return int(found[1]), int(found[2])


def _escaped(text: str) -> str:
    return text.replace("%", "%%")


def _systemd_word(word: str) -> str:
    """A word as systemd reads it: quoted, `%` and `$` doubled."""
    doubled = _escaped(word).replace("$", "$$")
    if re.fullmatch(r"[\w@%+=:,./$-]+", doubled):
        return doubled
    quoted = doubled.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{quoted}"'


def _dns_name(name: str) -> str:
    """A name that Kubernetes takes: small letters, digits and dashes."""
    return f"factsweep-{re.sub(r'[^a-z0-9]+', '-', name.lower()).strip('-')}"[:52].strip("-")
