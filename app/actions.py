"""The one table of what a person can do: keys, footer, palette, `/commands` and help are made from it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ActionId(StrEnum):
    """Every action of the screen."""

    SEND = "send"
    NEWLINE = "newline"
    STOP = "stop"
    UNQUEUE = "unqueue"
    ATTACH = "attach"
    DETACH = "detach"
    NEW_CHAT = "new_chat"
    CHATS = "chats"
    FAVORITES = "favorites"
    SEARCH = "search"
    DOCUMENTS = "documents"
    BASE = "base"
    WEB = "web"
    RENAME = "rename"
    DELETE = "delete"
    EXPORT = "export"
    WINDOW = "window"
    PANEL = "panel"
    SELECT = "select"
    PAGE_UP = "page_up"
    PAGE_DOWN = "page_down"
    LATEST = "latest"
    OLDER = "older"
    NEWER = "newer"
    STAR = "star"
    PIN = "pin"
    FORK = "fork"
    QUOTE = "quote"
    COPY = "copy"
    SOURCES = "sources"
    HELP = "help"
    QUIT = "quit"


class Context(StrEnum):
    """Where an action's keys work."""

    CHAT = "chat"
    """While typing."""
    EMPTY = "empty"
    """In an empty prompt."""
    MESSAGE = "message"
    """While a message is selected."""
    GLOBAL = "global"
    """Anywhere on the chat screen."""


class Group(StrEnum):
    """The headings of the help screen and the command palette."""

    WRITE = "Write"
    CHATS = "Chats"
    MESSAGE = "A message"
    LOOK = "Look"
    PROGRAM = "Program"


@dataclass(frozen=True, slots=True)
class Action:
    """One thing that a person can do.

    `keys` are Textual key names; `footer` is the short label of the key bar ("" keeps it out of it);
    `command` is the word after the slash ("" when there is none) and `argument` what may follow it.
    """

    id: ActionId
    title: str
    help: str
    group: Group
    context: Context
    keys: tuple[str, ...] = ()
    footer: str = ""
    command: str = ""
    argument: str = ""

    @property
    def usage(self) -> str:
        """The command as typed, such as "/file PATH"; "" when there is none."""
        if not self.command:
            return ""
        return f"/{self.command} {self.argument}".rstrip()


# Keys are chosen among those that every terminal delivers and that editing in the prompt does not need:
# Ctrl+A D E F K U V W X Y Z, F6 and F7 are the text area's; Ctrl+B is tmux's; Ctrl+S, Ctrl+M the terminal's.
ACTIONS: tuple[Action, ...] = (
    Action(
        ActionId.SEND,
        "Send",
        "Send what is written. It waits in a queue while an answer runs or the model loads.",
        Group.WRITE,
        Context.CHAT,
        ("enter",),
        footer="Send",
    ),
    Action(
        ActionId.NEWLINE,
        "New line",
        "Start a new line in the prompt (Shift+Enter where the terminal reports it).",
        Group.WRITE,
        Context.CHAT,
        ("ctrl+j", "shift+enter"),
    ),
    Action(
        ActionId.STOP,
        "Stop the answer",
        "Stop the running answer and keep what there is; without one, go back to the prompt.",
        Group.WRITE,
        Context.GLOBAL,
        ("escape",),
        footer="Stop",
    ),
    Action(
        ActionId.ATTACH,
        "Attach a file",
        "Choose a file to read; a dropped or pasted path does the same.",
        Group.WRITE,
        Context.GLOBAL,
        ("ctrl+o",),
        footer="File",
        command="file",
        argument="[PATH]",
    ),
    Action(
        ActionId.DETACH,
        "Take back the last attachment or quote",
        "Take the last attachment, else the quote, off the next message.",
        Group.WRITE,
        Context.EMPTY,
        ("backspace",),
        command="detach",
    ),
    Action(
        ActionId.UNQUEUE,
        "Take back a queued message",
        "Take the newest queued message back for editing; with no queue, Up and Down walk the history.",
        Group.WRITE,
        Context.EMPTY,
        ("up",),
        command="unqueue",
    ),
    Action(
        ActionId.NEW_CHAT,
        "New chat",
        "Begin a chat. It is stored with its first message.",
        Group.CHATS,
        Context.GLOBAL,
        ("ctrl+n",),
        footer="New",
        command="new",
    ),
    Action(
        ActionId.CHATS,
        "All chats",
        "List the chats: open, rename or delete one.",
        Group.CHATS,
        Context.GLOBAL,
        ("ctrl+l",),
        footer="Chats",
        command="chats",
    ),
    Action(
        ActionId.FAVORITES,
        "Starred messages",
        "List the starred messages of all chats; open or quote one.",
        Group.CHATS,
        Context.GLOBAL,
        ("ctrl+t",),
        footer="Starred",
        command="favorites",
    ),
    Action(
        ActionId.SEARCH,
        "Search",
        "Search everything that was ever said or read.",
        Group.CHATS,
        Context.GLOBAL,
        ("ctrl+r",),
        footer="Search",
        command="search",
        argument="[WORDS]",
    ),
    Action(
        ActionId.RENAME,
        "Rename this chat",
        "Give this chat a title.",
        Group.CHATS,
        Context.GLOBAL,
        ("f2",),
        command="rename",
        argument="[TITLE]",
    ),
    Action(
        ActionId.DELETE,
        "Delete this chat",
        "Delete this chat's own messages and have the memory forget them, after a question.",
        Group.CHATS,
        Context.GLOBAL,
        command="delete",
    ),
    Action(
        ActionId.EXPORT,
        "Export this chat",
        "Write this chat to a new Markdown file, by default in the current folder.",
        Group.CHATS,
        Context.GLOBAL,
        command="export",
        argument="[PATH]",
    ),
    Action(
        ActionId.SELECT,
        "Select a message",
        "Move from the prompt to the newest message; Shift+Tab does the same.",
        Group.MESSAGE,
        Context.CHAT,
        ("ctrl+up", "alt+up"),
        footer="Select",
    ),
    Action(
        ActionId.OLDER,
        "Select the message above",
        "Select the message above; earlier ones are loaded as needed.",
        Group.MESSAGE,
        Context.MESSAGE,
        ("up", "k", "ctrl+up", "alt+up"),
    ),
    Action(
        ActionId.NEWER,
        "Select the message below",
        "Select the message below; past the last one, go back to the prompt.",
        Group.MESSAGE,
        Context.MESSAGE,
        ("down", "j", "ctrl+down", "alt+down"),
    ),
    Action(
        ActionId.STAR,
        "Star",
        "Star or unstar the selected message, or the newest answer.",
        Group.MESSAGE,
        Context.MESSAGE,
        ("s",),
        footer="Star",
        command="star",
    ),
    Action(
        ActionId.PIN,
        "Pin to the window",
        "Keep the selected message, or the newest answer, in the window whatever follows; again lets it go.",
        Group.MESSAGE,
        Context.MESSAGE,
        ("p",),
        footer="Pin",
        command="pin",
    ),
    Action(
        ActionId.FORK,
        "Fork here",
        "Begin a new chat that shares everything up to the selected message, or the newest one.",
        Group.MESSAGE,
        Context.MESSAGE,
        ("f",),
        footer="Fork",
        command="fork",
    ),
    Action(
        ActionId.QUOTE,
        "Quote",
        "Quote the selected message, or the newest answer, in the next one.",
        Group.MESSAGE,
        Context.MESSAGE,
        ("q",),
        footer="Quote",
        command="quote",
    ),
    Action(
        ActionId.COPY,
        "Copy",
        "Send the selected message, or the newest answer, to the terminal's clipboard.",
        Group.MESSAGE,
        Context.MESSAGE,
        ("c",),
        footer="Copy",
        command="copy",
    ),
    Action(
        ActionId.SOURCES,
        "Show sources",
        "Show the passages behind the selected message, or the newest answer.",
        Group.MESSAGE,
        Context.MESSAGE,
        ("enter",),
        footer="Sources",
        command="sources",
    ),
    Action(
        ActionId.WINDOW,
        "Window facts",
        "What the model sees now: visible and evicted tokens, memory, speed.",
        Group.LOOK,
        Context.GLOBAL,
        command="window",
    ),
    Action(
        ActionId.DOCUMENTS,
        "Documents",
        "List every file that was read.",
        Group.LOOK,
        Context.GLOBAL,
        command="documents",
    ),
    Action(
        ActionId.BASE,
        "Knowledge bases",
        "Have this chat search these bases and the chats only (all: everything); without a name, list them.",
        Group.LOOK,
        Context.GLOBAL,
        command="base",
        argument="[NAME …]",
    ),
    Action(
        ActionId.WEB,
        "Ask with the web",
        "Search the web for a question, and answer it with what was found; off until web_search is set.",
        Group.LOOK,
        Context.GLOBAL,
        command="web",
        argument="QUESTION",
    ),
    Action(
        ActionId.PANEL,
        "Side panel",
        "Show or hide the window meter and the sources beside the chat.",
        Group.LOOK,
        Context.GLOBAL,
        ("f3",),
        command="panel",
    ),
    Action(
        ActionId.PAGE_UP,
        "Scroll up",
        "Scroll the chat up a screen; new text never moves it back.",
        Group.LOOK,
        Context.GLOBAL,
        ("pageup",),
    ),
    Action(
        ActionId.PAGE_DOWN,
        "Scroll down",
        "Scroll the chat down a screen.",
        Group.LOOK,
        Context.GLOBAL,
        ("pagedown",),
    ),
    Action(
        ActionId.LATEST,
        "Newest text",
        "Go to the end of the chat and follow new text.",
        Group.LOOK,
        Context.GLOBAL,
        ("ctrl+end", "end"),
        command="latest",
    ),
    Action(
        ActionId.HELP,
        "Help",
        "Every key and command.",
        Group.PROGRAM,
        Context.GLOBAL,
        ("f1",),
        footer="Help",
        command="help",
    ),
    Action(
        ActionId.QUIT,
        "Quit",
        "Keep everything and leave.",
        Group.PROGRAM,
        Context.GLOBAL,
        ("ctrl+q",),
        footer="Quit",
        command="quit",
    ),
)

BY_ID: dict[ActionId, Action] = {action.id: action for action in ACTIONS}
BY_COMMAND: dict[str, Action] = {action.command: action for action in ACTIONS if action.command}
