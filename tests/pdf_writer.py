"""写 PDF：测试要精确安排每个字的位置、编码和坏处，现成的库不让写坏文件。

字体不嵌入：取文字只看 ToUnicode 和宽度表。汉字宽一格，西文宽半格。
"""

from __future__ import annotations

import unicodedata
import zlib
from dataclasses import dataclass, field
from pathlib import Path


def half(char: str) -> bool:
    return unicodedata.east_asian_width(char) not in "WF"


@dataclass
class Pdf:
    """``page()`` 开一页，``text()`` 写一行，``save()`` 存盘。

    unicode : 是否写 ToUnicode 表；不写就取不出文字。
    """

    unicode: bool = True
    compress: bool = True
    pages: list[list[str]] = field(default_factory=list)
    glyphs: dict[str, int] = field(default_factory=dict)
    raw: dict[int, bytes] = field(default_factory=dict)

    def page(self) -> Pdf:
        self.pages.append([])
        return self

    def code(self, text: str) -> str:
        return "".join(f"{self.glyphs.setdefault(c, len(self.glyphs) + 1):04X}" for c in text)

    def text(self, x: float, y: float, text: str, size: float = 10, matrix: str = "1 0 0 1") -> Pdf:
        self.pages[-1].append(f"BT /F1 {size} Tf {matrix} {x} {y} Tm <{self.code(text)}> Tj ET")
        return self

    def op(self, code: str) -> Pdf:
        """直接写一段内容流；{字} 换成编码。"""
        out = ""
        while "{" in code:
            before, _, rest = code.partition("{")
            inside, _, code = rest.partition("}")
            out += before + f"<{self.code(inside)}>"
        self.pages[-1].append(out + code)
        return self

    def column(self, x: float, y: float, lines: list[str], size: float = 10, leading: float = 15) -> Pdf:
        for i, line in enumerate(lines):
            self.text(x, y - i * leading, line, size)
        return self

    def objects(self) -> list[bytes]:
        def stream(data: bytes, extra: str = "") -> bytes:
            if self.compress:
                data, extra = zlib.compress(data), extra + "/Filter/FlateDecode"
            return f"<<{extra}/Length {len(data)}>>stream\n".encode() + data + b"\nendstream"

        n = len(self.pages)
        kids = " ".join(f"{6 + 2 * i} 0 R" for i in range(n))
        widths = " ".join(f"{g}[{500 if half(c) else 1000}]" for c, g in self.glyphs.items())
        maps = [f"<{g:04X}> <{c.encode('utf-16-be').hex()}>" for c, g in self.glyphs.items()]
        groups = [maps[i:i + 100] for i in range(0, len(maps), 100)]
        cmap = "1 begincodespacerange <0000> <FFFF> endcodespacerange\n" + "\n".join(
            f"{len(group)} beginbfchar\n" + "\n".join(group) + "\nendbfchar" for group in groups)
        found = [
            b"<</Type/Catalog/Pages 2 0 R>>",
            f"<</Type/Pages/Kids[{kids}]/Count {n}>>".encode(),
            ("<</Type/Font/Subtype/Type0/BaseFont/Test/Encoding/Identity-H/DescendantFonts[4 0 R]"
             + ("/ToUnicode 5 0 R" if self.unicode else "") + ">>").encode(),
            (f"<</Type/Font/Subtype/CIDFontType2/BaseFont/Test/DW 1000/W[{widths}]"
             "/CIDSystemInfo<</Registry(Adobe)/Ordering(Identity)/Supplement 0>>>>").encode(),
            stream(cmap.encode()),
        ]
        for i, page in enumerate(self.pages):
            found.append(f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 595 842]/Contents {7 + 2 * i} 0 R"
                         "/Resources<</Font<</F1 3 0 R>>>>>>".encode())
            found.append(self.raw.get(i) or stream("\n".join(page).encode("latin-1")))
        return found

    def bytes(self) -> bytes:
        out, places = b"%PDF-1.5\n", []
        for i, body in enumerate(self.objects(), 1):
            places.append(len(out))
            out += f"{i} 0 obj\n".encode() + body + b"\nendobj\n"
        xref = len(out)
        out += f"xref\n0 {len(places) + 1}\n0000000000 65535 f \n".encode()
        out += b"".join(f"{place:010d} 00000 n \n".encode() for place in places)
        return out + f"trailer<</Size {len(places) + 1}/Root 1 0 R>>\nstartxref\n{xref}\n%%EOF\n".encode()

    def save(self, path: Path) -> Path:
        path.write_bytes(self.bytes())
        return path
