"""Whether a packet of H.264 or H.265 in MP4 or Matroska is well formed; a zeroed block can decode without a complaint.

Such a packet is a row of units, each behind its length. Inside a unit the bytes 00 00 are never followed by 00, 01 or
02 (ITU-T H.264, 7.4.1; H.265, 7.4.2), so blocks of zeros, as broken downloads leave them, are seen before they decode.
"""

MAX_PADDING = 8
"""Zero bytes that a muxer may have left at the end of a unit."""


def length_size(codec: str, extradata: bytes | None) -> int | None:
    """Return how many bytes hold a unit's length, or None where packets are not made of units behind lengths."""
    at = {"h264": 4, "hevc": 21}.get(codec)
    if at is None or not extradata or extradata[0] != 1 or len(extradata) <= at:
        return None
    return (extradata[at] & 3) + 1


def malformed(packet: bytes, n_length: int) -> str | None:
    """Return what is wrong with a packet whose units have lengths of `n_length` bytes, or None."""
    at = 0
    while at < len(packet):
        begin = at + n_length
        at = begin + int.from_bytes(packet[at:begin], "big")
        if at == begin or at > len(packet):
            return f"a unit of {at - begin} bytes at byte {begin} of a packet of {len(packet)}"
        zeros = packet.find(b"\0\0", begin, at)
        while 0 <= zeros < at - 2:
            if packet[zeros + 2] < 3 and (at - zeros > MAX_PADDING or packet[zeros:at].strip(b"\0")):
                return f"bytes that no encoder writes at byte {zeros} of a packet of {len(packet)}"
            zeros = packet.find(b"\0\0", zeros + 1, at)
    return None
