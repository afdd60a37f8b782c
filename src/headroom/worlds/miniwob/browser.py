"""A Chromium behind the DevTools protocol on two pipes: no port, no driver binary, no dependency.

Messages are JSON ended by a NUL byte, written to the browser's descriptor 3 and read from its 4
(``--remote-debugging-pipe``). Calls are pipelined: :meth:`Browser.post` any number, then take each
:meth:`Browser.next_answer`. The browser runs in its own process group, in a fresh profile, with every host name
resolving to nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import select
import shutil
import signal
import tempfile
import time
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

WIDTH, HEIGHT = 500, 320  # pixels; the window of the benchmark's own environment
READ_BYTES = 1 << 20
FLAGS = (
    "--headless",
    "--remote-debugging-pipe",
    "--no-first-run",
    "--no-default-browser-check",
    "--no-service-autorun",
    "--no-pings",
    "--disable-background-networking",
    "--disable-client-side-phishing-detection",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-domain-reliability",
    "--disable-extensions",
    "--disable-sync",
    "--disable-breakpad",
    "--disable-crash-reporter",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-hang-monitor",
    "--disable-popup-blocking",
    "--disable-prompt-on-repost",
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
    "--disable-features=Translate,OptimizationHints,MediaRouter,PaintHolding,BackForwardCache,AutofillServerCommunication",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--allow-file-access-from-files",
    "--renderer-process-limit=1",  # pages of one origin share a process: a few MB each instead of 14
    "--hide-scrollbars",
    "--mute-audio",
    "--font-render-hinting=none",
    "--force-color-profile=srgb",
    "--force-device-scale-factor=1",
    "--lang=en-US",
    f"--window-size={WIDTH},{HEIGHT}",
)
# Nothing paints until a frame is asked for; only the headless shell knows these.
FRAME_FLAGS = ("--enable-begin-frame-control", "--run-all-compositor-stages-before-draw")


class BrowserError(RuntimeError):
    """The browser, not the page's content, failed."""


class BrowserGoneError(BrowserError):
    """The process ended or closed its pipe."""


class BrowserHangError(BrowserError):
    """No answer in time: a hang."""


class RefusedCallError(BrowserError):
    """The browser answered one call with an error."""


class Browser:
    """One Chromium process and the calls in flight."""

    def __init__(self, executable: Path, *, begin_frame: bool = True) -> None:
        """Start the process; the first call finds out whether it lives.

        Raises:
            BrowserGoneError: the executable cannot be started.
        """
        self.begin_frame = begin_frame
        self._ids = itertools.count(1)
        self._answers: dict[int, dict[str, Any]] = {}
        self._pending = b""
        self._cpu_seconds = 0.0
        self._profile = tempfile.mkdtemp(prefix="headroom-chromium-")
        flags = [*FLAGS, *(FRAME_FLAGS if begin_frame else ()), f"--user-data-dir={self._profile}"]
        if os.geteuid() == 0:
            flags.append("--no-sandbox")  # the sandbox refuses root; elsewhere it stays on
        try:
            self.process, self._write, self._read = _spawn([str(executable), *flags, "about:blank"])
        except BrowserGoneError:
            shutil.rmtree(self._profile, ignore_errors=True)
            raise
        # Also when nobody closes it: at the interpreter's end, or when it is forgotten.
        self._end = weakref.finalize(self, _end, self.process, self._profile)

    # -- calls -----------------------------------------------------------------------------------------------------

    def post(self, method: str, parameters: Mapping[str, Any] | None = None, *, session: str = "") -> int:
        """Send a call and return its number; the answer waits for :meth:`next_answer`.

        Raises:
            BrowserGoneError: the pipe is closed.
            BrowserHangError: the browser has stopped reading.
        """
        number = next(self._ids)
        message: dict[str, Any] = {"id": number, "method": method, "params": dict(parameters or {})}
        if session:
            message["sessionId"] = session
        self._send(json.dumps(message).encode("ascii") + b"\0")
        return number

    def next_answer(self, numbers: Iterable[int], timeout: float) -> tuple[int, dict[str, Any]]:
        """Wait for whichever of several calls is answered next.

        Args:
            numbers: as returned by :meth:`post`.
            timeout: seconds to wait for it.

        Returns:
            The call's number and the protocol message, with ``result`` or ``error``.

        Raises:
            BrowserGoneError: the process ended.
            BrowserHangError: none came in time.
        """
        wanted = list(numbers)
        deadline = time.monotonic() + timeout
        while True:
            for number in wanted:
                if number in self._answers:
                    return number, self._answers.pop(number)
            if not self._receive(deadline):
                raise BrowserHangError(f"no answer for {timeout:g} s")

    def call(
        self, method: str, parameters: Mapping[str, Any] | None = None, *, session: str = "", timeout: float
    ) -> dict[str, Any]:
        """One call and its result.

        Raises:
            RefusedCallError: the browser answered with an error.
            BrowserGoneError, BrowserHangError: as in :meth:`next_answer`.
        """
        number = self.post(method, parameters, session=session)
        _, answer = self.next_answer([number], timeout)
        if "error" in answer:
            raise RefusedCallError(f"{method}: {answer['error'].get('message', 'error')}")
        result: dict[str, Any] = answer.get("result", {})
        return result

    # -- process ---------------------------------------------------------------------------------------------------

    def process_ids(self, timeout: float) -> list[int]:
        """Numbers of the browser's own process and then of its children, as the browser tells them.

        The process that was started may be a wrapper script, so this can differ from :attr:`process`.

        Raises:
            BrowserError: as in :meth:`call`.
        """
        told = self.call("SystemInfo.getProcessInfo", timeout=timeout)["processInfo"]
        return [entry["id"] for entry in sorted(told, key=lambda entry: entry["type"] != "browser")]

    def cpu_seconds(self) -> float:
        """Processor time of the browser and its children so far; 0 where /proc does not exist."""
        if self._read >= 0:
            self._cpu_seconds = max(self._cpu_seconds, _group_cpu_seconds(self.process))
        return self._cpu_seconds

    def close(self) -> None:
        """End the process group, which is this browser's alone, and remove the profile; safe to call twice."""
        if self._read < 0:
            return
        self.cpu_seconds()
        for descriptor in (self._write, self._read):
            os.close(descriptor)
        self._write = self._read = -1
        self._end()

    # -- pipes -----------------------------------------------------------------------------------------------------

    def _send(self, data: bytes, patience: float = 20.0) -> None:
        view = memoryview(data)
        deadline = time.monotonic() + patience
        while view:
            try:
                view = view[os.write(self._write, view) :]
            except BlockingIOError:
                # Both pipes full would be a deadlock: take in answers while waiting to write.
                ready_to_read, _, _ = select.select([self._read], [self._write], [], 0.5)
                if ready_to_read:
                    self._receive(time.monotonic())
                if time.monotonic() > deadline:
                    raise BrowserHangError("the browser does not read its pipe") from None
            except OSError as error:
                raise BrowserGoneError(f"the browser has closed its pipe ({error.strerror})") from None

    def _receive(self, deadline: float) -> bool:
        """Read what is there, waiting until the deadline; False when nothing came."""
        if self._read < 0:
            raise BrowserGoneError("the browser is closed")
        readable, _, _ = select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))
        if not readable:
            return False
        try:
            data = os.read(self._read, READ_BYTES)
        except BlockingIOError:
            return True
        except OSError as error:
            raise BrowserGoneError(f"reading from the browser failed ({error.strerror})") from None
        if not data:
            raise BrowserGoneError("the browser has ended")
        *messages, self._pending = (self._pending + data).split(b"\0")
        for raw in messages:
            message = json.loads(raw)
            if "id" in message:
                self._answers[message["id"]] = message
            elif message.get("method") == "Page.javascriptDialogOpening":
                # The injected script answers the page's own dialogs; this is for a frame it is not in.
                self.post("Page.handleJavaScriptDialog", {"accept": False}, session=message.get("sessionId", ""))
        return True


def _end(process: int, profile: str) -> None:
    """End a browser's process group, which is its alone, and remove its profile."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(process, 0)
    shutil.rmtree(profile, ignore_errors=True)


def _spawn(command: list[str]) -> tuple[int, int, int]:
    """Start a program with pipes on its descriptors 3 (it reads) and 4 (it writes), in a session of its own."""
    to_browser, our_write = os.pipe()
    our_read, from_browser = os.pipe()
    # Away from 3 and 4, so that neither dup2 below can overwrite the other's source.
    high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 20) for descriptor in (to_browser, from_browser)]
    os.close(to_browser)
    os.close(from_browser)
    environment = {**os.environ, "TZ": "UTC", "LANG": "en_US.UTF-8"}
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_DUP2, high[0], 3),
        (os.POSIX_SPAWN_DUP2, high[1], 4),
    ]
    try:
        process = os.posix_spawn(command[0], command, environment, file_actions=actions, setsid=True)
    except OSError as error:
        os.close(our_write)
        os.close(our_read)
        raise BrowserGoneError(f"{command[0]} does not start ({error.strerror})") from None
    finally:
        for descriptor in high:
            os.close(descriptor)
    os.set_blocking(our_write, False)
    os.set_blocking(our_read, False)
    return process, our_write, our_read


def _group_cpu_seconds(group: int) -> float:
    """Sum of user and system time over a process group, from /proc; 0 where there is none."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended in the meantime
        if int(fields[2]) == group:
            ticks += sum(int(value) for value in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")
