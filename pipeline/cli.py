"""The process `factsweep`: Ctrl-C and SIGTERM end it with code 130 and no traceback at any moment.

So slow imports wait until `command` handles the signals.
"""

# PYTHON_ARGCOMPLETE_OK
import atexit
import gc
import itertools
import os
import signal
import sys
import time
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

from factsweep.pipeline.machine.streams import end, prepare_streams

_STOPPED = 130
_STOPS = {signal.SIGINT: "stopped by Ctrl-C", signal.SIGTERM: "stopped by SIGTERM"}
_UNAVAILABLE = 75  # UnavailableError.exit_code
_AGAIN_AFTER_S = 60.0
_COLLECT_EVERY = 300_000  # new objects: imports make 250,000 that stay, and no garbage
_AGAIN_S = 0.05
_LATER = ("importlib", "omegaconf", "pydantic")  # packages whose work is not cut in two
_CALLED_BACK = "polars"  # its Rust calls Python, and loses errors raised there
_GIVES_BACK = "give_back"  # a function of `storage.lease`, at the end of a run
_patience = itertools.repeat(True, 40)  # what takes longer is interrupted all the same


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code: 0 done, 1 failed, 2 bad input, 3 or 4 of a gate."""
    from factsweep.pipeline.commands import command_line

    return command_line.main(arguments)


def command() -> NoReturn:
    """The command line of this process; ends the process with the exit code."""
    gc.set_threshold(_COLLECT_EVERY)
    prepare_streams()
    try:
        for number in _STOPS:  # under nohup and the like one is ignored, and stays so
            if signal.getsignal(number) in (signal.default_int_handler, signal.SIG_DFL):
                signal.signal(number, _raise_interrupt)
        code = main()
        if code == _UNAVAILABLE:
            code = _start_again(sys.argv[1:])
    except SystemExit as error:  # of argparse, which has said why
        code = int(error.code or 0)
    except KeyboardInterrupt:  # before the work began, or a second one during the stop
        code = _STOPPED
    for number in (*_STOPS, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)
    atexit._run_exitfuncs()  # as the interpreter does: Ray's, logging's and others
    end(code)


def _start_again(words: Sequence[str]) -> int:
    """Restart this command, after a pause, up to N times by its option `--attempts=N`.

    Returns the exit code if none is left. It is for clusters that ignore exit codes.
    """
    option = "--attempts="
    n_left = next((int(w.removeprefix(option)) for w in words if w.startswith(option)), 0)
    if n_left > 0:
        atexit._run_exitfuncs()  # the Ray of this start
        sys.stdout.flush()
        time.sleep(_AGAIN_AFTER_S)
        words = [word for word in words if not word.startswith(option)]
        command = [sys.executable, "-P", "-m", "factsweep.pipeline.cli", *words]
        command.append(f"{option}{n_left - 1}")
        os.execv(sys.executable, command)  # noqa: S606 - a child would not get this one's signals
    return _UNAVAILABLE


def _raise_interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt; during an import, or while a configuration is read, a little later.

    There a callback may lose it (pydantic compiles patterns in one), or turn it into another error
    (OmegaConf fails on half a configuration). `__del__` loses it, too.
    """
    signal.setitimer(signal.ITIMER_REAL, 0)  # Ray's C++ library would abort after a SIGTERM
    modules, functions = [], set()
    while frame is not None:
        modules.append(str(frame.f_globals.get("__name__")))
        functions.add(frame.f_code.co_name)
        frame = frame.f_back
    called_back = modules and modules[0].startswith(_CALLED_BACK)
    waits = (called_back or _GIVES_BACK in functions) and next(_patience, False)
    if waits or "__del__" in functions or any(module.startswith(_LATER) for module in modules):
        signal.signal(signal.SIGALRM, lambda _, later_frame: _raise_interrupt(number, later_frame))
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
        return
    raise KeyboardInterrupt(_STOPS[signal.Signals(number)])


if __name__ == "__main__":
    command()
