"""How far a piece of work is that knows no shards: one live line, or plain ones now and then."""

import sys
import time

from factsweep.pipeline.machine import logs

PLAIN_EVERY_S = 30.0


class Meter:
    """A live line on the terminal; without a terminal, a log line every half minute."""

    def __init__(self, title: str, form: logs.Form = "text") -> None:
        from rich.console import Console
        from rich.live import Live

        self.title = title
        self._form = form
        self._console = Console(file=sys.stderr)
        self._live = Live(console=self._console, refresh_per_second=4, transient=True)
        self._printed = time.monotonic()

    def __enter__(self) -> "Meter":
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def show(self, text: str) -> None:
        """Draw the line; log it, and print it where there is no terminal, every half minute."""
        from rich.text import Text

        text = f"{self.title}: {text}"
        if self._console.is_terminal:
            self._live.update(Text(text))
        if time.monotonic() - self._printed >= PLAIN_EVERY_S:
            self._printed = time.monotonic()
            if self._console.is_terminal:
                logs.LOG.info("%s", text)
            else:
                self.say(text)

    def say(self, text: str) -> None:
        """Print a sentence above the line, for good, and log it."""
        logs.LOG.info("%s", text)
        shown = text if self._console.is_terminal else logs.line(text, self._form)
        self._console.print(shown, highlight=False, markup=False, soft_wrap=True)
