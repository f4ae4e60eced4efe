"""vivid's test picture "100% Color Squares", and how far a picture is from it.

Eight rows of eight squares, row r starting with colour r. Every pixel is compared that is at least MARGIN away from a square's
edge, where neither chroma of half the resolution nor a mosaic's neighbours mix two squares. PNG is read here, by nothing of
visiond's.

    python3 tests/vm/squares.py WIDTH HEIGHT >squares.ppm
"""
import struct
import sys
import zlib

MARGIN = 4
COLOURS = [(255, 255, 255), (255, 255, 0), (0, 255, 255), (0, 255, 0), (255, 0, 255), (255, 0, 0), (0, 0, 255), (0, 0, 0)]
# The driver's weights for a grey picture.
GREY = [(13879 * r + 46688 * g + 4713 * b) >> 16 for r, g, b in COLOURS]


def read_png(path):
    """Width, height, channels and rows of an 8-bit PNG without interlace."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n", "no PNG"
    at, packed = 8, b""
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        body = data[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            width, height, depth, colour, _, _, interlace = struct.unpack(">IIBBBBB", body)
            assert depth == 8 and interlace == 0, f"{depth} bits, interlace {interlace}"
            channels = {0: 1, 2: 3, 6: 4}[colour]
        elif kind == b"IDAT":
            packed += body
        at += length + 12
    raw, stride = zlib.decompress(packed), width * channels
    rows, above = [], bytes(stride)
    for y in range(height):
        kind = raw[y * (stride + 1)]
        line = bytearray(raw[y * (stride + 1) + 1 : (y + 1) * (stride + 1)])
        if kind == 2:
            line = bytearray((a + b) & 255 for a, b in zip(line, above))
        elif kind:
            for i in range(stride):
                left = line[i - channels] if i >= channels else 0
                corner = above[i - channels] if i >= channels else 0
                if kind == 1:
                    guess = left
                elif kind == 3:
                    guess = (left + above[i]) // 2
                else:
                    p = left + above[i] - corner
                    guess = min((abs(p - left), 0, left), (abs(p - above[i]), 1, above[i]), (abs(p - corner), 2, corner))[2]
                line[i] = (line[i] + guess) & 255
        rows.append(line)
        above = line
    return width, height, channels, rows


def inside(size):
    """The pixels of a side, each with its square, that are not near a square's edge."""
    edges = [size * i / 8 for i in range(9)]
    for i in range(size):
        square = i * 8 // size
        if i - edges[square] >= MARGIN and edges[square + 1] - 1 - i >= MARGIN:
            yield i, square


def difference(path, width, height, is_grey):
    """The largest difference, and where."""
    found = read_png(path)
    assert found[:2] == (width, height), f"{found[0]}x{found[1]}, not {width}x{height}"
    channels, rows = found[2:]
    columns, worst, pixels = list(inside(width)), (-1, None), 0
    for y, row_square in inside(height):
        row = rows[y]
        for x, square in columns:
            index = (square + row_square) % 8
            expected = (GREY[index],) * 3 if is_grey else COLOURS[index]
            pixel = row[x * channels : x * channels + 3] if channels > 1 else bytes([row[x]] * 3)
            largest = max(abs(a - b) for a, b in zip(pixel, expected))
            pixels += 1
            if largest > worst[0]:
                worst = largest, f"({x}, {y}) is {tuple(pixel)}, expected {expected}"
    assert pixels > width * height // 5, f"only {pixels} pixels compared"
    return worst


def main():
    width, height = map(int, sys.argv[1:])
    squares = [bytes(COLOURS[(x * 8 // width + y * 8 // height) % 8]) for y in range(height) for x in range(width)]
    sys.stdout.buffer.write(b"P6 %d %d 255\n" % (width, height) + b"".join(squares))


if __name__ == "__main__":
    main()
