"""Solvers that read a packet as a model does, word by word, and know nothing of how a scenario was made."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date

from serving.assembler import Message, Packet


def texts(packet: Packet) -> str:
    """Everything that is said in a packet."""
    return "\n".join(message.content or "" for message in packet.messages)


def question(packet: Packet) -> str:
    """The user's last message."""
    return next(m.content or "" for m in reversed(packet.messages) if m.role == "user")


def phone_limit(packet: Packet) -> str:
    made = sum(call.name == "call_phone" for message in packet.messages for call in message.tool_calls)
    limit = int(found(r"at most (\d+) times", system(packet)))
    if "How often" in question(packet):
        return str(made)
    yes, no = ("call_phone", "send_letter") if "Go on" in question(packet) else ("yes", "no")
    return yes if made < limit else no


def cage_count(packet: Packet) -> str:
    lines = re.findall(r"^Cage (\w+): a (\w+) cat\.$", texts(packet), re.MULTILINE)
    if "How many" in question(packet) or "how many" in question(packet):
        wanted = found(r"is a (\w+) cat\?", question(packet))
        return str(sum(colour == wanted for _, colour in lines))
    return dict(lines)[found(r"in cage (\w+)\?", question(packet))]


def needle(packet: Packet) -> str:
    codes = dict(re.findall(r"^The access code of the ([a-z ]+) is (\d+)\.$", texts(packet), re.MULTILINE))
    asked = found(r"access codes? of (.*?)(?:, in this order)?\?", question(packet))
    return ", ".join(codes[name.removeprefix("the ")] for name in re.split(r", | and ", asked))


def rare_constraint(packet: Packet) -> str:
    ruled_out = found(r"before you begin: (?:nothing of|no room) (.*?), whatever", texts(packet))
    rooms = re.findall(r"^(\w+): a room (.*?), of (\w+), for (\d+)\.$", texts(packet), re.MULTILINE)
    allowed = [
        (int(price), code) for code, feature, owner, price in rooms if ruled_out not in (feature, owner)
    ]
    return min(allowed)[1]


def version_clash(packet: Packet) -> str:
    subject, day = re.findall(r"in the ([a-z ]+) on (\d{4}-\d\d-\d\d)\?", question(packet))[0]
    editions = re.findall(
        r'effective="([^"]+)"[^>]*>\nIn the ' + re.escape(subject) + r" there may be at most (\d+)",
        texts(packet),
    )
    in_force = [
        edition for edition in editions if date.fromisoformat(edition[0][:10]) <= date.fromisoformat(day)
    ]
    return max(in_force)[1]


def tenant_mix(packet: Packet) -> str:
    place = found(r"meter reading in the ([a-z ]+)\?", question(packet))
    return found(rf"meter in the {place} of {packet.manifest.tenant} reads (\d+)", texts(packet))


SOLVERS: Mapping[str, Callable[[Packet], str]] = {
    "PhoneLimit": phone_limit,
    "CageCount": cage_count,
    "NeedleScenario": needle,
    "RareConstraint": rare_constraint,
    "VersionClash": version_clash,
    "TenantMix": tenant_mix,
}


def system(packet: Packet) -> str:
    first: Message = packet.messages[0]
    return first.content or ""


def found(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    assert match is not None, pattern
    return match.group(1)
