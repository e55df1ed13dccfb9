"""Packets of H.264 and H.265 are checked for what no encoder writes."""

from pathlib import Path

import av
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from video_fixture import write_video

from schemas.rejects import RejectCode
from trajpilot_core.video.decode import DecodedClip, clips
from trajpilot_core.video.table import length_size, malformed


def packed(*units: bytes) -> bytes:
    return b"".join(len(unit).to_bytes(4, "big") + unit for unit in units)


def escaped(raw: bytes) -> bytes:
    """The encoder's rule: a 3 goes between 00 00 and a byte below 4; a unit ends with a byte that is not zero."""
    out = bytearray(b"\x41")
    for byte in raw:
        if out[-2:] == b"\0\0" and byte < 4:
            out.append(3)
        out.append(byte)
    return bytes(out) + b"\x80"


@settings(max_examples=300)
@given(st.lists(st.binary(max_size=60) | st.lists(st.sampled_from([0, 1, 2, 3]), max_size=30).map(bytes), min_size=1))
def test_what_an_encoder_writes_is_well_formed(raws: list[bytes]) -> None:
    assert malformed(packed(*map(escaped, raws)), 4) is None
    assert malformed(packed(*(escaped(raw) + bytes(4) for raw in raws)), 4) is None, "zeros that pad a unit"


def test_what_no_encoder_writes_is_seen() -> None:
    for packet in (
        bytes(40),
        packed(b"\x41" + bytes(20) + b"\x80"),
        packed(b"\x41abc" + bytes(20)),
        packed(b"\x41\0\0\x01abc"),
        packed(b"\x41\0\0\x02"),
        packed(b"\x41abc")[:-1],
        packed(b"\x41abc") + b"\0",
        packed(b"\x41abc", b""),
    ):
        assert malformed(packet, 4), packet


def test_every_packet_of_a_good_file_is_well_formed(tmp_path: Path) -> None:
    for codec, suffix, expected in (
        ("libx264", ".mp4", 4),
        ("libx264", ".mkv", 4),
        ("libx265", ".mp4", 4),
        ("mpeg4", ".avi", None),
        ("libvpx-vp9", ".webm", None),
        ("libx264", ".avi", None),
    ):
        b_frames = 0 if suffix in (".avi", ".webm") else 3
        with av.open(str(write_video(tmp_path / f"v{suffix}", 40, codec=codec, b_frames=b_frames))) as container:
            context = container.streams.video[0].codec_context
            assert length_size(context.name, context.extradata) == expected
            packets = [bytes(packet) for packet in container.demux(video=0) if packet.size]
        assert len(packets) == 40
        assert expected is None or not any(malformed(packet, expected) for packet in packets)


def test_a_few_zeroed_bytes_cost_the_frames_that_are_built_on_them(tmp_path: Path) -> None:
    """Eight bytes in the middle of every packet in turn; each decodes to the end without a mark of the decoder's."""
    whole = write_video(tmp_path / "v.mp4", 40, keyframe=20, b_frames=0)
    raw, path = whole.read_bytes(), tmp_path / "zeroed.mp4"
    with av.open(str(whole)) as container:
        places = [(p.pos, p.size) for p in container.demux(video=0) if p.size]
    for number in (1, 5, 12, 19):
        at = places[number][0] + places[number][1] // 2
        path.write_bytes(raw[:at] + bytes(8) + raw[at + 8 :])
        got = dict(clips(str(path), np.array([[19], [20], [39]]) / 30, 64))
        assert getattr(got[0], "code", None) is RejectCode.DECODE_FAILED
        assert isinstance(got[1], DecodedClip)
        assert isinstance(got[2], DecodedClip)
