"""The checks that every launcher makes of its tensors: one sentence about the first that does not fit."""

from __future__ import annotations

from enum import StrEnum

import torch
from torch import Tensor

FLOATS = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}
"""The types that kernels compute on, and Triton's names of them."""


class Layout(StrEnum):
    """How a tensor must lie in memory."""

    DENSE = "contiguous"
    ROWS = "contiguous in its last dimension"


def expect_dims(name: str, tensor: Tensor, dims: str) -> None:
    """Raise ValueError unless `tensor` has as many dimensions as `dims` names, none of them 0."""
    if tensor.ndim != dims.count(",") + 1 or 0 in tensor.shape:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}: expected {dims}, none of them 0")


def expect_float(name: str, tensor: Tensor) -> None:
    """Raise ValueError unless `tensor` is of a type that kernels compute on."""
    if tensor.dtype not in FLOATS:
        raise ValueError(f"{name} is {tensor.dtype}: expected float32, float16 or bfloat16")


def expect(
    name: str, tensor: Tensor, shape: tuple[int, ...], dtype: torch.dtype, beside: tuple[str, Tensor], layout: Layout
) -> None:
    """Raise ValueError unless `tensor` is of this shape and type, on the device of the tensor `beside`, and lies so."""
    if tuple(tensor.shape) != shape:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}: expected {shape}")
    if tensor.dtype != dtype:
        raise ValueError(f"{name} is {tensor.dtype}: expected {dtype}")
    where, other = beside
    if tensor.device != other.device:
        raise ValueError(f"{name} is on {tensor.device}: expected {other.device}, where {where} is")
    if not (tensor.stride(-1) == 1 or tensor.shape[-1] == 1 if layout is Layout.ROWS else tensor.is_contiguous()):
        raise ValueError(f"{name} is not {layout}")
