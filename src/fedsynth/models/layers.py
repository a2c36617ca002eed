"""Temporary."""

from torch.nn import Conv2d, ConvTranspose2d

__all__ = ["Conv2d", "ConvTranspose2d"]
