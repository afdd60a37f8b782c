"""Every stage's frame: what a job reads, writes and costs goes into ``run.json`` and the attempts log.

    with record.job(stage="train.sft", output=output, inputs={"demonstrations": path}, config=config) as job:
        ...                       # write final files into job.output
        job.ending = "finished"   # or "diverged"; an exception makes it "failed"

A job either leaves a whole result with its records, or nothing but its resume folder and two lines in the log.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from headroom.files import write_text
from headroom.provenance import allotment, attempts, closure, environment, manifest
from headroom.provenance.digest import sha256_file, sha256_text
from headroom.provenance.inputs import flat, games_of, parents, read_config, read_input
from headroom.provenance.manifest import MANIFEST, RECORD, TIMING
from headroom.provenance.project import relative, scale_folder, scrub
from headroom.provenance.schema import Attempt, Ending, RunRecord, Sources, Usage


class Interrupted(BaseException):
    """SIGTERM: the scheduler or the user asked the job to end."""


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Job:
    """One running job, as its stage sees it."""

    def __init__(
        self,
        stage: str,
        output: Path,
        inputs: Mapping[str, Path | Sequence[Path]],
        config: Path | None,
        seeds: Mapping[str, int],
        extra_outputs: Sequence[Path],
    ) -> None:
        self.stage = stage
        self.output = output
        self.ending: Ending = "finished"
        self.notes: dict[str, Any] = {}
        self.seeds = dict(seeds)
        self.is_file = output.suffix in (".csv", ".pdf", ".png", ".svg", ".json", ".html", ".md", ".txt")
        self.extra_outputs = tuple(extra_outputs)
        self.attempt = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{os.urandom(4).hex()}"
        self.folder = scale_folder(output) or output.parent
        self.log = self.folder / attempts.NAME
        self.started = _now()
        self._clock = time.monotonic()
        self.config = read_config(config) if config is not None else None
        self.inputs = [read_input(name, path) for name, path in flat({**inputs, **games_of(self.config)})]
        files = closure.digests(stage, world=closure.world_of(self.config.content) if self.config else None)
        self.sources = Sources(sha256=closure.digest(files), files=files)
        self.git = environment.git()
        self.packages = environment.packages()
        self.earlier = attempts.of_output(self.log, relative(output))

    @property
    def scratch_folder(self) -> Path:
        """The resume folders of this output, one for each key; a cluster may move them with HEADROOM_SCRATCH."""
        base = os.environ.get("HEADROOM_SCRATCH")
        return (Path(base) if base else self.folder / ".scratch") / _slug(self.output)

    def scratch(self, *parts: str) -> Path:
        """The undeclared resume folder of exactly this job: equal settings, inputs, sources and packages.

        It survives a kill and is removed when the job ends well.
        """
        key = {
            "config": self.config.sha256 if self.config else None,
            "inputs": {item.name: item.sha256 for item in self.inputs},
            "sources": self.sources.sha256,
            "packages": self.packages.installed_sha256,
            "seeds": self.seeds,
        }
        folder = self.scratch_folder.joinpath(sha256_text(json.dumps(key, sort_keys=True))[:32], *parts)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    @property
    def record_path(self) -> Path:
        """``run.json`` in a result directory; ``records/NAME.{data,draw}.run.json`` for a figure's file."""
        if not self.is_file:
            return self.output / RECORD
        folder = self.output.parent
        if folder.name == "data":
            return folder.parent / "records" / f"{self.output.stem}.data.run.json"
        return folder / "records" / f"{self.output.stem}.draw.run.json"

    def prepare(self) -> None:
        """Make room for the result: what an earlier attempt left is removed, somebody else's files never are."""
        if self.is_file:
            self.output.parent.mkdir(parents=True, exist_ok=True)
            return
        ours = scale_folder(self.output) is not None or (self.output / RECORD).is_file()
        if self.output.is_dir() and any(self.output.iterdir()) and not ours:
            raise SystemExit(f"{self.output}: is not empty and was not made by headroom; give --output a new folder")
        if self.output.is_dir() and any(folder != self.output / RECORD for folder in self.output.rglob(RECORD)):
            raise SystemExit(f"{self.output}: holds the results of other jobs; give --output the job's own folder")
        self.discard()
        self.output.mkdir(parents=True, exist_ok=True)

    def discard(self) -> None:
        """Remove the result, whole or partial."""
        if self.is_file:
            for path in (self.output, *self._beside(), self.record_path):
                path.unlink(missing_ok=True)
        elif self.output.is_dir():
            for path in self.output.iterdir():
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()

    def _beside(self) -> list[Path]:
        png = [self.output.with_suffix(".png")] if self.output.suffix == ".pdf" else []
        return [*png, *self.extra_outputs]

    def start_line(self) -> None:
        """Say in the log that the job has begun."""
        line = {
            "event": "started",
            "attempt": self.attempt,
            "stage": self.stage,
            "output": relative(self.output),
            "started": self.started,
            "config_sha256": self.config.sha256 if self.config else None,
            "sources_sha256": self.sources.sha256,
            "scheduler_job": os.environ.get("SLURM_JOB_ID"),
        }
        attempts.append(self.log, line)

    def end_line(self, ending: str, error: str | None = None) -> None:
        """Say in the log how the job has ended."""
        line = {
            "event": "ended",
            "attempt": self.attempt,
            "stage": self.stage,
            "output": relative(self.output),
            "ended": _now(),
            "ending": ending,
            "wall_seconds": round(time.monotonic() - self._clock, 3),
            "error": scrub(error) if error else None,
            "record_sha256": sha256_file(self.record_path) if error is None and self.record_path.is_file() else None,
        }
        attempts.append(self.log, line)

    def finish(self) -> None:
        """Write the manifest and the record."""
        digest = None
        if self.is_file:
            outputs = {
                relative(path): manifest.entry(path) for path in (self.output, *self._beside()) if path.is_file()
            }
            if relative(self.output) not in outputs:
                raise RuntimeError(f"stage {self.stage} ended without writing {relative(self.output)}")
        else:
            outputs = manifest.build(self.output)
            if not outputs:
                raise RuntimeError(f"stage {self.stage} ended without writing into {relative(self.output)}")
            digest = manifest.digest(outputs)
        timing = {TIMING: manifest.entry(self.output / TIMING)} if (self.output / TIMING).is_file() else {}
        peak, child = environment.peak_memory()
        wall = time.monotonic() - self._clock
        run = RunRecord(
            stage=self.stage,
            attempt=self.attempt,
            output=relative(self.output),
            command=[scrub(part) for part in [f"python -m headroom.{self.stage}", *sys.argv[1:]]],
            ending=self.ending,
            config=self.config,
            seeds=self.seeds,
            inputs=self.inputs,
            parents=parents(self.inputs),
            outputs={**outputs, **timing},
            manifest_sha256=digest,
            sources=self.sources,
            git=self.git,
            packages=self.packages,
            machine=environment.machine(),
            scheduler=environment.scheduler(self.earlier),
            usage=Usage(
                started=self.started,
                ended=_now(),
                wall_seconds=round(wall, 3),
                cpu_seconds=round(environment.cpu_seconds(), 3),
                peak_memory_bytes=peak,
                peak_child_memory_bytes=child,
                gpu_hours=round(environment.gpu_count() * wall / 3600, 6),
            ),
            earlier_attempts=[Attempt(**{k: old[k] for k in ("attempt", "started", "ending")}) for old in self.earlier],
            notes=self.notes,
        )
        write_text(self.record_path, run.model_dump_json(indent=2) + "\n")
        if not self.is_file:
            write_text(self.output / MANIFEST, manifest.dump(outputs))


def _slug(output: Path) -> str:
    return re.sub(r"[^A-Za-z0-9.=-]+", "_", relative(output))


def _lock(folder: Path, output: Path) -> Path:
    return folder / ".scratch" / f"{_slug(output)}.lock"


def running(output: Path) -> bool:
    """Whether a process of this machine is making an output now: it holds the lock until it ends, however it ends."""
    folder = scale_folder(output)
    try:
        with _lock(folder or output.parent, output).open("rb") as handle:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # never begun, or a file system without locks
        return False
    return False


@contextmanager
def _alone(job: Job) -> Iterator[None]:
    """Refuse a second process at the same output; the lock dies with its holder."""
    path = _lock(job.folder, job.output)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        for left in reversed(range(5)):
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if not left:
                    raise SystemExit(
                        f"{job.output}: another process is making it; wait for it, or end it first"
                    ) from None
                time.sleep(0.05)  # who only looks whether it is held (:func:`running`) lets go at once
            except OSError:  # a file system without locks: the workflow's own lock remains
                break
            else:
                break
        yield


def _terminated(_number: int, _frame: FrameType | None) -> NoReturn:
    raise Interrupted


@contextmanager
def job(
    stage: str,
    output: Path,
    *,
    inputs: Mapping[str, Path | Sequence[Path]] | None = None,
    config: Path | None = None,
    seeds: Mapping[str, int] | None = None,
    extra_outputs: Sequence[Path] = (),
) -> Iterator[Job]:
    """Frame one stage.

    Args:
        stage: Module of the stage without the package's name, e.g. ``train.sft``: it decides the source closure.
        output: The result directory, or the file for a figure's table or drawing.
        inputs: Name of the stage's option -> path or paths. Directories are checked against their manifests.
        config: The resolved settings.
        seeds: Name -> seed, for the record.
        extra_outputs: Files that a figure writes beside ``output``; the PNG beside a PDF is known.

    Raises:
        SystemExit: an input is missing or altered, the output folder is not ours, the machine gives less than the
            rule asked for, or the work failed (status 1).
    """
    running = Job(stage, Path(output), inputs or {}, config, seeds or {}, extra_outputs)
    with _alone(running):
        running.prepare()
        running.start_line()
        before = signal.getsignal(signal.SIGTERM)
        try:
            signal.signal(signal.SIGTERM, _terminated)
        except ValueError:  # not in the main thread: the default action stays
            before = None
        try:
            allotment.require(running.output, running.scratch_folder)
            yield running
            running.finish()
        except BaseException as error:
            running.discard()
            raise _failed(running, error) from None
        finally:
            if before is not None:
                signal.signal(signal.SIGTERM, before)
        running.end_line(running.ending)
        shutil.rmtree(running.scratch_folder, ignore_errors=True)


def _failed(running: Job, error: BaseException) -> SystemExit:
    """Log a failure; give the exit that shows one clear line."""
    if isinstance(error, SystemExit) and isinstance(error.code, str):
        message, ending = error.code, "failed"
    elif isinstance(error, (KeyboardInterrupt, Interrupted)):
        message, ending = "interrupted; the same command resumes it", "interrupted"
    else:
        text = traceback.format_exception_only(error)[-1].strip().splitlines()
        message, ending = text[0] if text else type(error).__name__, "failed"
    line = f"{running.stage}: {message}"
    if ending == "failed" and not isinstance(error, SystemExit):
        report = running.folder / "logs" / "failures" / f"{running.attempt}.txt"
        write_text(report, scrub("".join(traceback.format_exception(error))))
        line += f"  (traceback: {relative(report)})"
    running.end_line(ending, message)
    return SystemExit(scrub(line))
