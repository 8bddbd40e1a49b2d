"""Why tokens were computed again: every cause that the lab can prove, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from serving.prefix import Cause


class MissCause(StrEnum):
    """Where the uncached tokens of a request went; a request's tokens by cause add up to prompt − cached."""

    CLOCK = "clock"
    COUNTER = "counter"
    IDENTIFIER = "identifier"
    TOOL_ORDER = "tool order"
    TOOL_SET = "tool set"
    TOOL_DEFINITION = "tool definition"
    JSON_KEY_ORDER = "JSON key order"
    JSON_SPACING = "JSON spacing"
    WHITESPACE = "whitespace"
    TRIMMED_HISTORY = "trimmed history"
    REWRITTEN_SUMMARY = "rewritten summary"
    EDITED_MIDDLE = "edited middle"
    EPHEMERAL = "ephemeral text"
    """What closed one request – a bar, a reminder, a note – and is not where it stood in the next."""
    GROWN_MESSAGE = "grown message"
    """The newest message went on in the next request instead of being followed by another."""
    REASONING_DROPPED = "reasoning dropped"
    REASONING_ECHOED = "reasoning echoed"
    TEMPLATE_ASYMMETRY = "template asymmetry"
    TEMPLATE_DATE = "template date"
    TEMPLATE_ARGUMENTS = "template arguments"
    SERVER_TOOLS = "server rewrites tools"
    SERVER_ARGUMENTS = "server rewrites arguments"
    SERVER_SYSTEM_MERGE = "server merges system messages"
    CALL_FORM = "call form"
    """The model wrote its calls in a form of its own, as bare JSON say, and they come back in the template's."""
    RETOKENISED = "retokenisation"
    OTHER_SALT = "other salt"
    EVICTED = "evicted"
    READS_SKIPPED = "cache reads skipped"
    UNKNOWN = "unknown"
    """The ids differ and no cause is provable from what is known."""

    BRANCHED = "another conversation"
    """Nothing behind the first difference is common: other content, which no cache could hold."""
    BELOW_ONE_BLOCK = "below one block"
    """The prompt does not reach past its first block, so it cannot hit."""
    BLOCK_ROUNDING = "rest of a block"
    LAST_TOKEN = "last token"  # noqa: S105 - a token of text, not a secret
    NEW = "new"
    """Behind the end of everything that was stored."""

    @property
    def avoidable(self) -> bool:
        """Whether another way of building or sending the request would have kept the tokens."""
        return self not in _UNAVOIDABLE


_UNAVOIDABLE = frozenset(
    {
        MissCause.BRANCHED,
        MissCause.BELOW_ONE_BLOCK,
        MissCause.BLOCK_ROUNDING,
        MissCause.LAST_TOKEN,
        MissCause.NEW,
    }
)

FROM_PREDICTION: Mapping[Cause, MissCause] = MappingProxyType(
    {
        Cause.EVICTION: MissCause.EVICTED,
        Cause.SALT: MissCause.OTHER_SALT,
        Cause.BLOCK_ROUNDING: MissCause.BLOCK_ROUNDING,
        Cause.LAST_TOKEN: MissCause.LAST_TOKEN,
        Cause.NEW: MissCause.NEW,
    }
)
"""The predictor's causes by the name they have here; divergence is what the detectors name."""


def advice(cause: MissCause) -> str:
    """The change that would keep the prefix; empty where nothing has to change."""
    return _ADVICE.get(cause, "")


_ADVICE: Mapping[MissCause, str] = MappingProxyType(
    {
        MissCause.CLOCK: "Move the time to the end of the newest message and leave it there in later requests, "
        "or give the model a tool that tells the time.",
        MissCause.COUNTER: "Move the number behind everything that stays the same: to the end of the newest "
        "message, and leave it there in later requests.",
        MissCause.IDENTIFIER: "Keep ids of a request or session out of the prompt: send them as a header or as "
        "metadata.",
        MissCause.TOOL_ORDER: "Send the tools in one fixed order (by name, say); lists built from sets or from "
        "reconnecting servers change theirs.",
        MissCause.TOOL_SET: "Send the same tools in every request of a conversation, and say in the newest "
        "message which may be used; new tools only at the end.",
        MissCause.TOOL_DEFINITION: "Keep names, descriptions and schemas of tools byte for byte the same while "
        "a conversation runs.",
        MissCause.JSON_KEY_ORDER: "Send back the arguments string exactly as the model wrote it; never parse "
        "and print it again.",
        MissCause.JSON_SPACING: "Send back the arguments string exactly as the model wrote it; never parse and "
        "print it again.",
        MissCause.WHITESPACE: "Send the text back byte for byte: no strip, no re-wrapping, no other line ends.",
        MissCause.TRIMMED_HISTORY: "Keep the history, or cut it rarely and much at once instead of a little in "
        "every request.",
        MissCause.REWRITTEN_SUMMARY: "Append a new summary or status behind the history instead of rewriting "
        "the old one in place; compact rarely and much at once.",
        MissCause.EDITED_MIDDLE: "Append a correction at the end instead of changing a message that was sent.",
        MissCause.EPHEMERAL: "Leave what closed a request where it stood, and put the new one behind it at the end: "
        "an old status that stays costs its tokens once.",
        MissCause.GROWN_MESSAGE: "Send what is new as messages of their own: the template closes every message, and "
        "behind its old end all is computed again.",
        MissCause.REASONING_DROPPED: "Accept it once for each user message where the template drops reasoning, "
        "or use a template that keeps it; in a tool loop send `reasoning` back.",
        MissCause.REASONING_ECHOED: "Send reasoning back from the first request on or not at all.",
        MissCause.TEMPLATE_ASYMMETRY: "Use a template that prints a finished turn as its generation prompt "
        "began it (for Qwen3: one that keeps the empty think block in history).",
        MissCause.TEMPLATE_DATE: "Pass a fixed date to the template (`chat_template_kwargs`), or use one without.",
        MissCause.TEMPLATE_ARGUMENTS: "Keep `chat_template_kwargs` and `reasoning_effort` the same while a "
        "conversation runs.",
        MissCause.SERVER_TOOLS: "Use one surface: /v1/chat/completions prints tools anew (field order, nulls), "
        "ids rendered elsewhere do not.",
        MissCause.SERVER_ARGUMENTS: "Nothing in the client helps: the server parses the arguments and the "
        "template prints them anew; a template that prints the string as it came keeps the prefix.",
        MissCause.SERVER_SYSTEM_MERGE: "Send late instructions as a user message: the server moves every system "
        "message to the head.",
        MissCause.CALL_FORM: "Have the server's grammar hold calls to the template's form (`tool_choice` required), or "
        "send token ids (/v1/completions), which keeps what was generated.",
        MissCause.RETOKENISED: "Nothing in the text helps: send token ids (/v1/completions), which keeps what "
        "was generated.",
        MissCause.OTHER_SALT: "Share a cache_salt among requests that may share a cache.",
        MissCause.EVICTED: "Give the KV cache more blocks, run fewer conversations at once, or send the "
        "requests of one conversation closer together.",
        MissCause.READS_SKIPPED: "Leave prompt_logprobs out: a request that asks for them computes its whole "
        "prompt.",
        MissCause.BELOW_ONE_BLOCK: "Nothing is broken: a prompt no longer than one block cannot hit. A smaller "
        "--block-size lets short prompts hit.",
    }
)
