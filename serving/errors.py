"""The one error type that a person using the lab sees."""

from __future__ import annotations


class LabError(Exception):
    """A failure that the user can act on: one sentence saying what was expected, what came, what to do.

    The command line prints the sentence without a traceback and exits with `exit_code`
    (1: the work failed; 2: the request itself was wrong).
    """

    exit_code: int = 1


class UsageError(LabError):
    """The request itself was wrong: a bad argument, a bad file, an impossible combination."""

    exit_code = 2


class InequalityError(LabError):
    """Two numbers or id lists that must be equal are not, so nothing measured after it can be trusted."""

    def __init__(self, what: str, *, expected: str, got: str) -> None:
        super().__init__(
            f"{what}: expected {expected}, got {got}. The work stops here, because no later number could be "
            "trusted; what was finished before is kept."
        )
        self.what = what
        self.expected = expected
        self.got = got
