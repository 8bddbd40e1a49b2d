"""From how many updates on is it cheaper to replace a status bar than to append a new one?

    .venv/bin/python examples/status_break_even.py

Prints the published answer, the corrected one, and what playing the run call by call gives.
"""

from __future__ import annotations

from serving.assembler import Choice, StatusRun, advise, cheaper_by_simulation

PRICE_RATIO = 0.1
"""A cached prompt token costs a tenth of a computed one."""


def main() -> None:
    """One line for one call and for four calls an update."""
    print("150-token bar, 500 tokens between updates, 40 output tokens a call")
    print(
        f"{'calls an update':>15} {'published N*':>13} {'corrected N*':>13} {'replacing wins by count at':>27}"
    )
    for calls in (1, 4):
        run = StatusRun(
            status_tokens=150, tokens_between_updates=500, output_tokens=40, calls_per_update=calls
        )
        advice = advise(run.inputs(updates=10, price_ratio=PRICE_RATIO))
        first = next(
            updates
            for updates in range(1, 100)
            if cheaper_by_simulation(run, updates, PRICE_RATIO) is Choice.REPLACE
        )
        print(
            f"{calls:>15} {advice.published.updates_at_tie:>13} {advice.corrected.updates_at_tie:>13} {first:>27}"
        )


if __name__ == "__main__":
    main()
