"""`aios-chat`, and `python -m app`. The bare command goes straight to the screen: the command line's own library
costs 70 ms of the second in which the screen should be there."""

from __future__ import annotations

import gc
import sys


def main() -> None:
    """The console script."""
    # The collector would walk every freshly imported class several times over; it is switched on again, by whoever
    # begins the real work, once the imports are done.
    gc.disable()
    if len(sys.argv) > 1:
        from app.cli import main as command_line

        command_line()
    from app.guard import guarded

    sys.exit(guarded(_screen))


def _screen() -> int:
    from app.commands.screen import screen
    from app.paths import Paths
    from app.settings import load_settings

    return screen(load_settings(Paths.default().config_file), None)


if __name__ == "__main__":
    main()
