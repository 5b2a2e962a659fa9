"""Search in the words of the chats alone: what there is before the memory is up, or where it does not come up."""

from __future__ import annotations

import time

from app.host.wire import Passage, SearchResult, SourceKind
from app.store.store import Store


def words_in_chats(store: Store, query: str, limit: int) -> SearchResult:
    """Messages that hold every word of `query`, best first; their score is the reciprocal of their rank. Blocks on
    the disk. Raises StoreError."""
    began = time.perf_counter()
    passages: list[Passage] = []
    for rank, hit in enumerate(store.search_messages(query, limit), start=1):
        message = hit.message
        chat = store.chat(message.chat)
        passages.append(
            Passage(
                id=message.id,
                label="",
                source_id=message.chat,
                source_kind=SourceKind.CHAT,
                title=chat.title if chat is not None else "",
                text=hit.snippet,
                score=1 / rank,
                time=message.created,
                message=message.id,
                role=message.role.value,
            )
        )
    return SearchResult(tuple(passages), time.perf_counter() - began)
