"""Writes a wheel (PEP 427) of an installed prefix; see packaging/wheel.

usage: wheel.py PREFIX PLATFORM FOLDER
"""

import base64
import hashlib
import os
import re
import subprocess
import sys
import time
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent

METADATA = """\
Metadata-Version: 2.4
Name: bdrun
Version: {version}
Summary: Run a partitioned or MPI-style job that is bigger than memory, on the machine you have
License-Expression: MIT OR Apache-2.0
{licences}
Requires-Python: >=3.9
Classifier: Environment :: Console
Classifier: Operating System :: POSIX :: Linux
Classifier: Topic :: System :: Distributed Computing
Keywords: MPI,out-of-core,memory,parallel
Description-Content-Type: text/markdown

"""

ENTRIES = """\
[console_scripts]
bdrun = bdrun:main
bdcc = bdrun:bdcc
bdcxx = bdrun:bdcxx
"""


def main(prefix, platform, folder):
    version = subprocess.run([prefix / "bin/bdrun", "--version"], check=True, capture_output=True, text=True).stdout.split()[1]
    info, data, doc = f"bdrun-{version}.dist-info", f"bdrun-{version}.data/data", prefix / "share/doc/bdrun"
    tag = f"py3-none-{platform}"
    licences = ["LICENSE-MIT", "LICENSE-APACHE", "THIRD-PARTY"]
    files = []  # name in the wheel, mode, content

    def add(name, content, mode=0o644):
        files.append((name, mode, content if isinstance(content, bytes) else content.encode()))

    for path in sorted((HERE.parent / "python/bdrun").glob("*.py")):
        add(f"bdrun/{path.name}", path.read_bytes())
    for path in sorted(prefix.rglob("*")):
        inside = path.relative_to(prefix)
        if not path.is_file() or inside.parts[:3] == ("share", "doc", "bdrun") or "pkgconfig" in inside.parts:
            continue
        # Programs find their libraries in ../lib; people and shells find theirs in the environment's share.
        where = data if inside.parts[0] == "share" else "bdrun"
        add(f"{where}/{inside}", path.read_bytes(), 0o755 if os.access(path, os.X_OK) else 0o644)
    for name in licences:
        add(f"{info}/licenses/{name}", (doc / name).read_bytes())
    # Pictures and links to what is beside the text lead nowhere from there.
    text = re.sub(r"!\[[^\]]*\]\((?!https?:)[^)]*\)\n*", "", (doc / "README.md").read_text(encoding="utf-8"))
    text = re.sub(r"\[([^\]]*)\]\((?!https?:)[^)]*\)", r"\1", text)
    lines = "\n".join(f"License-File: {name}" for name in licences)
    add(f"{info}/METADATA", METADATA.format(version=version, licences=lines) + text)
    add(f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: bdrun packaging/wheel\nRoot-Is-Purelib: false\nTag: {tag}\n")
    add(f"{info}/entry_points.txt", ENTRIES)

    record = []
    for name, _, content in files:
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record.append(f"{name},sha256={digest},{len(content)}\n")
    add(f"{info}/RECORD", "".join([*record, f"{info}/RECORD,,\n"]))

    date = time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", "315532800")))[:6]
    out = folder / f"bdrun-{version}-{tag}.whl"
    with zipfile.ZipFile(out, "w") as wheel:
        for name, mode, content in files:
            entry = zipfile.ZipInfo(name, date)
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, content, compresslevel=9)
    print(out)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__.split("\n\n")[1].strip())
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
