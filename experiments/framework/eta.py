"""How long the rest of a run will take, said about ten times."""

from __future__ import annotations

import time

from serving.progress import Progress


class Eta:
    """Counts finished trials and notes the time left at every tenth of the way; on a log there is no bar."""

    def __init__(self, total: int, progress: Progress) -> None:
        self._total, self._progress = total, progress
        self._begun, self._done = time.monotonic(), 0

    def tick(self) -> None:
        """Count one trial as done."""
        before, self._done = self._done, self._done + 1
        if self._done < self._total and self._done * 10 // self._total > before * 10 // self._total:
            left = (time.monotonic() - self._begun) / self._done * (self._total - self._done)
            self._progress.note(f"{self._done} of {self._total} trials, about {in_words(left)} left")


def in_words(seconds: float) -> str:
    """Give a duration as a person says it: "40 s", "12 min", "2 h 5 min"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
