"""Desk calls run in named workers; what goes wrong is told in a sentence and never ends the program."""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from typing import Any

from textual.dom import DOMNode

from app.events import Severity
from app.ports import DeskError

log = logging.getLogger(__name__)


def tell(node: DOMNode, text: str, severity: Severity = Severity.INFO) -> None:
    """Show one sentence. Its text is never read as markup."""
    timeout = 12 if severity is Severity.ERROR else 6
    node.app.notify(text, severity=severity.value, timeout=timeout, markup=False)


def start(node: DOMNode, work: Coroutine[Any, Any, None], group: str, *, exclusive: bool = False) -> None:
    """Run `work` beside the screen, in its own group: cancelling one kind never cancels another."""
    node.run_worker(_told(node, work), group=group, exclusive=exclusive, exit_on_error=False)


async def _told(node: DOMNode, work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except DeskError as error:
        tell(node, str(error), Severity.ERROR)
    except Exception as error:
        # A bug or a broken disk: the chat goes on, the person is told, and the log has the traceback.
        log.exception("work in the interface failed")
        tell(node, f"That did not work ({type(error).__name__}: {error}). The log says more.", Severity.ERROR)
