"""Computes what a model of examples/models computed, with the model of examples/python.

models_peer.py FILE...    each from models_test.cpp; exit code 1 if a number differs
"""

import pathlib
import sys

import torch
from safetensors import safe_open
from torch.nn.functional import cross_entropy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples" / "python"))
import models  # noqa: E402

CLOSE = {"rtol": 1e-4, "atol": 2e-6}


def group(saved, prefix):
    return {name[len(prefix):]: value for name, value in saved.items() if name.startswith(prefix)}


def made(name, weights):
    """The model whose sizes are those of the weights."""
    if name.startswith("resnet"):
        depth, kind = name[len("resnet"):].split("-")
        return models.ResNet(int(depth), weights["fc.weight"].shape[0], weights["conv1.weight"].shape[0],
                             large_images=kind == "large")
    if name == "bert":
        embeddings = "bert.embeddings.{}_embeddings.weight"
        return models.Bert(*weights[embeddings.format("word")].shape[:1], 2, weights["classifier.weight"].shape[1],
                           weights[embeddings.format("position")].shape[0]).eval()
    return models.Gpt2(*weights["wte.weight"].shape[:1], 2, weights["wte.weight"].shape[1], 3,
                       weights["wpe.weight"].shape[0]).eval()


def compare(path):
    name = pathlib.Path(path).stem
    with safe_open(path, "pt") as file:
        saved = {key: file.get_tensor(key) for key in file.keys()}
    weights, gradients = group(saved, "weight:"), group(saved, "gradient:")
    model = made(name, weights)
    model.load_state_dict(weights, strict=True)
    inputs = [saved[key] for key in ("images", "pieces", "types", "tokens") if key in saved]
    scores = model(*inputs)
    torch.testing.assert_close(saved["scores"], scores, **CLOSE)
    cross_entropy(scores.flatten(0, -2), saved["labels"].flatten()).backward()
    assert gradients.keys() == {key for key, _ in model.named_parameters()}
    for key, parameter in model.named_parameters():
        torch.testing.assert_close(gradients[key], parameter.grad, **CLOSE, msg=lambda text: f"{name}, {key}: {text}")
    for key, buffer in group(saved, "after:").items():
        torch.testing.assert_close(buffer, dict(model.named_buffers())[key], **CLOSE)
    if name == "bert":
        torch.testing.assert_close(saved["without types"], model(saved["pieces"]), **CLOSE)
        states = model.hidden_states(*inputs)
        assert len(states) == len(group(saved, "state "))
        for key, state in enumerate(states):
            torch.testing.assert_close(saved[f"state {key}"], state, **CLOSE)


for one in sys.argv[1:]:
    compare(one)
