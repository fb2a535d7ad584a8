"""What one kind of user does: turns, messages, pauses, and what the sessions of different users have in common."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from scenarios.distributions import Counts, Seconds
from scenarios.strict import FilePart, later

Language = Literal["en", "zh", "code", "mixed"]
"""`mixed`: every session is in English or in Chinese, half of them each."""

Share = Annotated[float, Field(ge=0, le=1)]


class SystemPrompts(FilePart):
    """The system prompts that sessions begin with."""

    tokens: Counts
    """Length of a system prompt."""
    shared: bool = True
    """True: sessions draw theirs from `count` common ones. False: every session has its own."""
    count: int = Field(default=1, ge=1)
    """How many different system prompts the sessions share."""

    @model_validator(mode="after")
    def _count_needs_sharing(self) -> Self:
        if not self.shared and self.count != 1:
            raise ValueError("`count` has a meaning only with `shared: true`; leave it out")
        return self


class Examples(FilePart):
    """Few-shot blocks: solved examples that stand before a session's first question, the same for a whole task."""

    tasks: int = Field(ge=1)
    """How many tasks there are; a session has one of them."""
    per_task: int = Field(ge=1)
    """Examples of a task."""
    tokens: Counts
    """Length of one example."""


class Documents(FilePart):
    """Documents that stand before the question, drawn from a common shelf.

    A document that two sessions both have first is a prefix that they share, to the token.
    """

    count: int = Field(ge=1)
    """Documents on the shelf."""
    tokens: Counts
    """Length of one document."""
    per_session: Counts | None = None
    """How many a session's first message begins with; later questions are about the same ones."""
    per_turn: Counts | None = None
    """How many every message begins with, looked up anew."""
    zipf: float = Field(default=0.0, ge=0)
    """How unequally popular they are: the n-th is asked for in proportion to 1 / n^zipf. 0: all equally."""

    @model_validator(mode="after")
    def _one_rhythm(self) -> Self:
        if (self.per_session is None) == (self.per_turn is None):
            raise ValueError("needs one of `per_session` and `per_turn`")
        return self


class Tools(FilePart):
    """Turns after the first that a tool answers, not a person."""

    share: Share
    """Share of the later turns."""
    tokens: Counts
    """Length of a tool's output, in place of `user_tokens`."""
    think_s: Seconds
    """Seconds that a tool takes, in place of `think_s`."""


class Branches(FilePart):
    """Turns after the first that go back one step in place of going on; as shares of those turns."""

    regenerate: Share = 0.0
    """The same message again, for another answer."""
    edit: Share = 0.0
    """The message before this one, in other words."""

    @model_validator(mode="after")
    def _no_more_than_all(self) -> Self:
        if self.regenerate + self.edit > 1:
            raise ValueError(f"`regenerate` and `edit` add up to {self.regenerate + self.edit:g}, above 1")
        return self


class Cancellation(FilePart):
    """Users who leave while the reply streams."""

    share: Share
    """Share of the replies."""
    after_tokens: Counts
    """What they read before they leave; a reply that is no longer than this is read to its end."""


class Users(FilePart):
    """One kind of user."""

    turns: Counts
    """Requests of a session."""
    system_prompts: SystemPrompts | None = None
    """Left out: sessions have no system prompt."""
    examples: Examples | None = later()
    """Left out: no few-shot examples."""
    documents: Documents | None = later()
    """Left out: no common documents."""
    first_user_tokens: Counts
    """Length of a session's first user message; examples and documents come on top."""
    user_tokens: Counts
    """Length of the later user messages, with all that a turn adds: tool outputs, retrieved text."""
    tools: Tools | None = later()
    """Left out: every message is a person's."""
    output_tokens: Counts
    """Length of a reply: what the engine is asked to generate."""
    think_s: Seconds
    """Seconds between a reply and the user's next message."""
    branches: Branches | None = later()
    """Left out: every turn goes on from the one before it."""
    cancellation: Cancellation | None = later()
    """Left out: every reply is read to its end."""
    language: Language = later("en")
    """What the words are; token ids (`api: generate`) have no language."""
    reply: Literal["model", "scripted"] = "model"
    """What joins the history: the model's own words, or scripted ones that no setting can change."""
