from __future__ import annotations

import pytest

from app.store.store import StoreError
from app.store.types import Base


def test_a_base_collects_paths_under_a_name_in_any_letter_case(store):
    assert store.add_to_base("House", ["/h/roof"]) == Base("House", ("/h/roof",))
    assert store.add_to_base("house", ["/h/roof", "/h/garden"]) == Base("House", ("/h/garden", "/h/roof"))
    store.add_to_base("纸张", ["/p"])
    assert [base.name for base in store.bases()] == ["House", "纸张"]
    assert store.remove_base("HOUSE").name == "House"
    assert [base.name for base in store.bases()] == ["纸张"]


@pytest.mark.parametrize("name", ["", "all", "ALL", "two words", "/etc", "-x", "x" * 41, "a\nb"])
def test_a_name_that_cannot_be_typed_after_base_is_refused(store, name):
    with pytest.raises(StoreError, match="cannot be the name"):
        store.add_to_base(name, ["/h"])
    assert store.bases() == []


def test_a_chat_keeps_its_choice_and_a_fork_takes_it_along(store, turn):
    for name in ("one", "two"):
        store.add_to_base(name, [f"/{name}"])
    chat = store.create_chat().id
    asked, _ = turn(chat, "Why?", "Because.")
    assert store.bases_of(chat) == ()
    assert store.choose_bases(chat, ["TWO", "two", "one"]) == (Base("two", ("/two",)), Base("one", ("/one",)))
    fork = store.fork(chat, asked.id).id
    with pytest.raises(StoreError, match="There is no base 'three'; there is one, two"):
        store.choose_bases(chat, ["three"])
    assert [base.name for base in store.bases_of(chat)] == ["one", "two"]
    store.choose_bases(chat, [])
    assert store.bases_of(chat) == ()
    assert [base.name for base in store.bases_of(fork)] == ["one", "two"]
    store.remove_base("one")
    assert [base.name for base in store.bases_of(fork)] == ["two"]
    store.delete_chat(fork)
    assert store.bases_of(fork) == ()
