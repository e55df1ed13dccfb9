"""Progress of work in several parts, so that it only moves forward."""

from collections.abc import Callable

Progress = Callable[[int, int, str], None]


def portion(progress: Progress, before: int, total: int) -> Progress:
    """Return the progress of one part, counted after the `before` steps of earlier parts, of `total` in all."""

    def shifted(done: int, _: int, what: str) -> None:
        progress(before + done, total, what)

    return shifted


class CountedSteps:
    """A counted part, then single steps."""

    def __init__(self, progress: Progress, after: int) -> None:
        self.progress, self.after = progress, after
        self.done, self.total = 0, after

    def __call__(self, done: int, total: int, what: str) -> None:
        """Report on the counted part."""
        self.done, self.total = done, total + self.after
        self.progress(done, self.total, f"steps; {what}")

    def begin(self, what: str) -> None:
        """Report that the next single step begins; it counts as done when the one after it begins."""
        self.progress(self.done, self.total, f"steps; {what}")
        self.done += 1
