"""Forty rows that try hard: what stands in them was fixed when the fixtures were made, and never changes."""

import hashlib

import pyarrow as pa

SECRET = hashlib.sha256(b"dptext frozen fixtures: a key for tests alone").digest()
"""The noise key of everything that is frozen. It is public, so it protects nothing."""

TEXTS = (
    "The doctor said it's a rare disease, call 555-0199.",
    "",
    "   ",
    None,
    "good",
    "GOOD Good gOOd",
    "zxqvyuu@example.org https://a.b/c?d=1 #tag @you",
    "naïve café — œuvre ß ǅ İ",
    "😀👩\u200d👩\u200d👧\u200d👦 🇩🇪 ok",
    "我们 喜欢 电影 and films 𠀀",
    "مرحبا بالعالم שלום the world",
    "<mask> </s> [CLS] \x00 \x1b[31m",
    "e\u0301cole co\u0301mbining don\u2019t don't well-known",
    "1 22 3.14 1,000 ½ 10th 2nd ٣٤٥ Ⅳ",
    " ".join(["The plot was thin but the music is great, and I would see it again!"] * 12),
    "good",
    "one\ttwo\r\nthree\u00a0four\u200bfive\u00adsix\ufeffseven\u2028eight\u202enine",
    "สวัสดีชาวโลก こんにちは世界 カタカナ 안녕하세요 नमस्ते",
    "snake_case under_score O'Neill rock'n'roll e.g. U.S.A. 3D 4K a.b",
    "𝒻𝒶𝓃𝒸𝓎 Ｇｏｏｄ ﬁne ﬂy ﬀ",
    "a" * 500,
    "?!... --- *** (((  )))",
    "seven77 eightabc ninechars fifteen_letters sixteen__letters seventeen_letters",
    f"{'b' * 31} {'c' * 32} {'d' * 33} the",
    None,
    "the of and to a in is it you that he was for on are with as I his they be at one have this from or had by",
    "The THE the tHe",
    "\n",
    "good\n",
    " good",
    "\U000e0001\ue000\ufffd private",
    "Don't DON'T don’t dont",
    "I",
    "i am 1 of 2, you're 3",
    "İstanbul ISTANBUL ıstanbul Straße STRASSE",
    "mail me: first.last@example.org or +49 30 901820, room 101",
    "dog cat dog cat dog cat dog",
    "what\nis\nthis",
    "the end",
    None,
)

IDS = ("", " é😀\n", "007", "\x00", "7", *(f"r{i}" for i in range(5, 40)))


def texts(dtype=None):
    return pa.array(TEXTS, dtype or pa.large_string())


def ids(dtype=None):
    return pa.array(IDS, dtype or pa.string())


def key(folder):
    """A reference to the noise key, which is written to a folder for its owner alone."""
    path = folder / "frozen.key"
    if not path.exists():
        path.write_text(SECRET.hex())
        path.chmod(0o600)
    return f"file:{path}"
