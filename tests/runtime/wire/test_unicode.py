"""Messages with texts that no encoding explains."""

from __future__ import annotations

from meshbook.runtime.wire.messages import BarState, Call, Metered, Packet, decoder
from meshbook.runtime.wire.unicode import escaped, packed


def test_a_message_arrives_with_escapes() -> None:
    metered = Metered({"loss\udc80": ((1.0, 2.0, 3.0),)}, (BarState(1, "a\udcff", 1, 2, 0.5),))
    heard = decoder.decode(packed(Packet(metered, (7,))))
    assert heard == Packet(Metered({"loss\\udc80": ((1.0, 2.0, 3.0),)}, (BarState(1, "a\\udcff", 1, 2, 0.5),)), (7,))


def test_other_messages_stay_as_they_are() -> None:
    packet = Packet(Call(1, 2, "schön 😀"))
    assert decoder.decode(packed(packet)) == packet
    assert escaped("schön 😀") == "schön 😀"
