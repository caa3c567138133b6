"""Pictures made on the spot, as data URIs: nothing is fetched, and no two are alike."""

import base64
import random
import struct
import zlib

SIGNATURE = b"\x89PNG\r\n\x1a\n"
EIGHT_BIT_RGB = (8, 2, 0, 0, 0)  # depth, colour type, compression, filter, interlace


def noise_png_uri(width_px: int, height_px: int, rng: random.Random) -> str:
    """A PNG of `height_px` rows of `width_px` random RGB pixels."""
    rows = b"".join(b"\0" + rng.randbytes(3 * width_px) for _ in range(height_px))
    header = struct.pack(">IIBBBBB", width_px, height_px, *EIGHT_BIT_RGB)
    # Noise does not compress.
    png = SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(rows, 0)) + _chunk(b"IEND", b"")
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
