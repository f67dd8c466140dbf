"""Prints how torchvision's ImageFolder orders a tree of awkward names, as order.json.

find_classes and make_dataset of torchvision are followed step by step: classes are the sorted
names of the sub-folders; per class, sorted(os.walk()), then sorted(fnames).
Run: python3 order.py > order.json
"""

import json
import os
import tempfile

NAMES = [
    b"a/1.jpg", b"a/10.jpg", b"a/2.jpg", b"a/1-b.jpg", b"a/1.b.jpg", b"a/x/1.jpg", b"a/x-y/1.jpg",
    b"a/x/y/1.jpg", b"a/x.z/1.jpg", b"a/x 0/1.jpg", b"a-b/1.jpg", b"a b/1.jpg", b"a.b/1.jpg",
    b"B/z.jpg", b"Z/a.jpg", b"b/A.jpg", b"b/a.jpg", b"b/_.jpg", b"b/\n.jpg", b"b/~.jpg",
    "é/ü.jpg".encode(), "é/u.jpg".encode(), "z/\uffff.jpg".encode(), "z/\U0001f600.jpg".encode(),
    b"z/\xff.jpg", b"z/\x80.jpg", b"z/\xc3.jpg", b"z/\xc3\xa9.jpg", b"z/\xc3\xa9\xc3.jpg",
    "z/\ue000.jpg".encode(), "z/\ud7ff.jpg".encode(), b"z/\xed\xa0\x80.jpg", b"z/\xe2\x82.jpg",
    b"\xff/1.jpg", "\ue000/1.jpg".encode(), b"z/\xc3/1.jpg", b"z/\xc3\xa9/1.jpg",
]

with tempfile.TemporaryDirectory() as root:
    for name in NAMES:
        path = os.path.join(os.fsencode(root), name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb"):
            pass
    classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
    rows = []
    for label, target in enumerate(classes):
        for folder, _, fnames in sorted(os.walk(os.path.join(root, target), followlinks=True)):
            for fname in sorted(fnames):
                path = os.path.relpath(os.path.join(folder, fname), root)
                rows.append({"name": os.fsencode(path).hex(), "label": label})
    print(json.dumps(rows, indent=0))
