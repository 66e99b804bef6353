"""Pack a folder of results of the old layout, one file per record, into one file per experiment.

    python tools/pack_records.py results/experiments

Reads ``experiments/*.json`` and ``pieces/*.json`` in the folder and writes ``NAME.jsonl.gz``; removes nothing.
"""

import sys
from pathlib import Path

from creinn.experiments.store import PACKED, read_json, write_packed

folder = Path(sys.argv[1])
for path in sorted((folder / "experiments").glob("*.json")):
    manifest, records = read_json(path), {}
    for piece in manifest["pieces"]:
        piece["name"] = piece.pop("file").removesuffix(".json")
        piece["training"] = piece["training"] and piece["training"].removesuffix(".json")
        for name in filter(None, (piece["name"], piece["training"])):
            if (found := folder / "pieces" / f"{name}.json").is_file():
                records[name] = read_json(found)
    write_packed(folder / f"{path.stem}{PACKED}", manifest, records)
    print(f"{folder / path.stem}{PACKED}: {len(records)} records")
