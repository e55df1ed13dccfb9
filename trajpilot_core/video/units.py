"""Whether a packet of H.264 or H.265 in MP4 or Matroska is well formed; a zeroed block can decode without an error.

Such a packet is a sequence of units, each after its length. Inside a unit the bytes 00 00 are never followed by 00, 01
or 02 (ITU-T H.264, 7.4.1; H.265, 7.4.2), so the zero blocks of broken downloads are detected before decoding.
"""

MAX_PADDING = 8
"""Zero bytes that a muxer may have left at the end of a unit."""


def length_size(codec: str, extradata: bytes | None) -> int | None:
    """Return the size of a unit's length in bytes, or None where packets are not units with lengths."""
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
                return f"invalid zero bytes at byte {zeros} of a packet of {len(packet)}"
            zeros = packet.find(b"\0\0", zeros + 1, at)
    return None
