import importlib.util
import json

import numpy as np
import pytest
import torch

from fedsynth.assess.image_steps import FRECHET, NEAREST, PRECISION
from fedsynth.assess.scores import features
from fedsynth.assess.scores.efficientnet import efficientnet
from fedsynth.assess.scores.features import compare, extract, inception, lenet
from fedsynth.assess.scores.image_utility import cnn, image_performance, student
from fedsynth.assess.scores.networks import network_named
from fedsynth.assess.suite import evaluate
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput, Incompatible
from fedsynth.rng import Rng

SCHEMA = Schema.from_dict(
    {
        "kind": "image",
        "height": 12,
        "width": 12,
        "channels": 1,
        "label": {"name": "side", "categories": ["left", "right"]},
    }
)


def images(key: str, rows: int = 160):
    """A bright half on a noisy ground: the label is which."""
    random = Rng(5).at(key).numpy()
    labels = random.choice(["left", "right"], rows)
    pixels = random.integers(0, 60, (rows, 12, 12))
    pixels[labels == "left", :, :6] += 150
    pixels[labels == "right", :, 6:] += 150
    return pixels.astype(np.uint8), labels


@pytest.fixture(scope="module")
def good():
    return evaluate(images("real"), images("fresh"), SCHEMA, test=images("test"))


@pytest.fixture(scope="module")
def noise():
    pixels = Rng(1).numpy().integers(0, 256, (160, 12, 12)).astype(np.uint8)
    return evaluate(images("real"), (pixels, images("fresh")[1]), SCHEMA, test=images("test"))


def test_every_score_has_a_value(good):
    assert [score.name for score in good.scores if score.failed] == []
    json.dumps(good.to_dict(), allow_nan=False)


def test_a_fresh_draw_ranks_above_noise(good, noise):
    assert good[FRECHET].value < noise[FRECHET].value
    assert good[PRECISION].value > 0.6 > noise[PRECISION].value
    assert good["cnn: accuracy"].value > 0.9
    assert good["student network: auc"].value > noise["student network: auc"].value


def test_the_setting_is_named_and_not_compared_across(good, noise):
    setting = good[FRECHET].detail["setting"]
    assert setting["network"] == "lenet" and len(setting["weights"]) == 16 and setting["resize"] == 32
    assert setting["reference_images"] == setting["synthetic_images"] == 160
    assert compare(good[FRECHET], noise[FRECHET]) < 0
    other = evaluate(images("real"), images("fresh"), SCHEMA, test=images("test"), seed=1)
    with pytest.raises(Incompatible, match="same setting"):
        compare(good[FRECHET], other[FRECHET])
    with pytest.raises(Incompatible, match="different scores"):
        compare(good[FRECHET], good[PRECISION])


def test_copies_of_training_images_are_counted_and_shown():
    pixels, labels = images("real")
    found = evaluate(images("real"), (pixels[:20], labels[:20]), SCHEMA, test=images("test"))
    assert found[NEAREST].detail["copies"] == 20 and found[NEAREST].value == 0.0
    assert all(near["synthetic"] == near["real"] for near in found.details["images"]["nearest"])
    assert found[NEAREST].detail["unseen_real"] > 0.05


def test_images_of_another_size_fail_with_the_reason():
    small = (np.zeros((9, 8, 8), dtype=np.uint8), np.array(["left"] * 9))
    found = evaluate(images("real"), small, SCHEMA, test=images("test"))
    assert all("synthetic images are uint8 of shape (8, 8)" in score.failed for score in found.scores)


def test_one_class_fails_usefulness_alone():
    pixels, labels = images("fresh")
    only = labels == "left"
    found = evaluate(images("real"), (pixels[only], labels[only]), SCHEMA, test=images("test"))
    assert "fewer than two classes" in found["cnn: auc"].failed and found[FRECHET].value is not None


def test_without_labels_a_network_must_be_given():
    plain = Schema.from_dict({"kind": "image", "height": 12, "width": 12, "channels": 1})
    found = evaluate((images("real")[0], None), (images("fresh")[0], None), plain)
    assert "give a network" in found[FRECHET].failed and found[NEAREST].value is not None


def test_lenet_is_the_same_for_the_same_images_and_seed():
    pixels = torch.from_numpy(images("real")[0])[:, None]
    classes = torch.from_numpy((images("real")[1] == "right").astype(np.int64))
    one, same, other = (lenet(pixels, classes, 2, seed=seed) for seed in (0, 0, 1))
    assert one.weights == same.weights != other.weights
    found = extract(one, pixels)
    assert found.values.shape == (160, 84) and np.allclose(found.chances.sum(axis=1), 1)
    with pytest.raises(BadInput, match="fewer than 2 classes"):
        lenet(pixels, classes * 0, 2)


class _Scripted(torch.nn.Module):
    """The interface of the TorchScript Inception, with pixels for features."""

    def forward(self, x: torch.Tensor, return_features: bool = False) -> torch.Tensor:
        flat = x.float().flatten(1)
        return flat if return_features else torch.softmax(flat[:, :10], 1)


def test_inception_comes_from_a_torchscript_file(tmp_path):
    torch.jit.script(_Scripted()).save(str(tmp_path / "network.pt"))
    network = inception(tmp_path / "network.pt")
    found = extract(network, torch.zeros(3, 1, 4, 4, dtype=torch.uint8))
    assert found.values.shape == (3, 48) and found.chances.shape == (3, 10)
    assert network.setting() == {"network": "inception-v3", "weights": network.weights, "resize": 299}
    (tmp_path / "wrong.pt").write_text("no network")
    with pytest.raises(BadInput, match="is not a TorchScript file"):
        inception(tmp_path / "wrong.pt")
    with pytest.raises(BadInput, match="no such file"):
        inception(tmp_path / "none.pt")


def test_inception_comes_from_the_hub_once_and_says_so_where_there_is_no_internet(tmp_path, monkeypatch):
    torch.jit.script(_Scripted()).save(str(tmp_path / "network.pt"))
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "hub"))
    monkeypatch.setattr(features, "INCEPTION_URL", (tmp_path / "none.pt").as_uri())
    with pytest.raises(BadInput, match="without internet give its file"):
        network_named("inception-v3")
    monkeypatch.setattr(features, "INCEPTION_URL", (tmp_path / "network.pt").as_uri())
    found = network_named("inception-v3")
    (tmp_path / "network.pt").unlink()
    assert network_named("inception-v3").setting() == found.setting()


def test_efficientnet_gives_features_or_names_its_extra():
    if importlib.util.find_spec("efficientnet_lite_pytorch") is None:
        with pytest.raises(BadInput, match=r"fedsynth\[images\]"):
            efficientnet()
    else:
        found = extract(efficientnet(), torch.zeros(2, 1, 8, 8, dtype=torch.uint8))
        assert found.values.shape == (2, 1280) and found.chances.shape == (2, 1000)


def test_classifiers_have_the_published_layers():
    assert sum(p.numel() for p in cnn((1, 28, 28), 10).parameters()) == (
        (9 * 32 + 32) + (32 * 9 * 64 + 64) + (64 * 9 * 128 + 128) + (6272 * 128 + 128) + (128 * 10 + 10)
    )
    assert student((1, 28, 28), 10)(torch.zeros(2, 1, 28, 28)).shape == (2, 10)
    with pytest.raises(BadInput, match="at least 4 x 4"):
        cnn((1, 3, 3), 2)


def test_an_unknown_classifier_is_refused():
    one = (torch.zeros(2, 1, 4, 4, dtype=torch.uint8), torch.tensor([0, 1]))
    with pytest.raises(BadInput, match="did you mean 'cnn'"):
        image_performance(one, one, 2, "cnnn", 0, 1)
